//! A change of one class: a line behind the record.
//!
//! ```text
//!   prepared: the line without its end --> the class is changed --> committed: the end of the line
//!                |                                   |
//!                +-- given up: the line goes         +-- killed: the old policy
//! ```
//! A journal may have [`MAX_CHANGES`] such lines. The next change writes the whole journal anew, with the
//! policy that has all of them.
//!
//! Cost: independent of the policy, except for one change in [`MAX_CHANGES`] + 1.

use super::record::MAX_CHANGES;
use super::{Journal, JournalError, Record, failed};
use serde::Serialize;
use unisono_fairqueue::TermsChange;
use unisono_linux::undo::{PreparedFile, PreparedLine};

/// The future contents of a journal after a change of one class. Dropped, it is taken back.
#[derive(Debug)]
pub(crate) enum PreparedChange {
    Whole(PreparedFile),
    Line(PreparedLine),
}

impl Journal {
    /// Prepares the journal for a change of one class of the policy, which will have the text `policy`. As
    /// with [`Self::prepare`], the end of the change needs no space. `record` is what the journal has now;
    /// fails if the journal is of another process, because the line would change a policy that it was not
    /// made for.
    pub(crate) fn prepare_change<B: Serialize>(
        &self,
        record: &Record<B>,
        policy: &str,
        change: &TermsChange,
    ) -> Result<PreparedChange, JournalError> {
        if self.header()?.is_none_or(|there| there.author != record.author) {
            return Err(JournalError::Replaced { path: self.path().to_owned() });
        }
        if record.changes >= MAX_CHANGES {
            return Ok(PreparedChange::Whole(self.prepare_policy(record, policy)?));
        }
        let line = serde_json::to_string(change).expect("serializes because its keys are texts");
        let line = self.directory().append(self.name(), &line).map_err(failed("write", &self.path))?;
        Ok(PreparedChange::Line(line))
    }

    /// Ends a prepared change: from now on, the journal and `record` have the text `policy`. On an error both
    /// are as before.
    pub(crate) fn commit_change<B>(
        &self,
        prepared: PreparedChange,
        record: &mut Record<B>,
        policy: &str,
    ) -> Result<(), JournalError> {
        let changes = match prepared {
            PreparedChange::Whole(file) => {
                self.commit(file)?;
                0
            }
            PreparedChange::Line(line) => {
                line.commit().map_err(failed("write", &self.path))?;
                record.changes + 1
            }
        };
        record.replace_policy(policy);
        record.changes = changes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::journal;
    use super::*;
    use std::fs;
    use unisono_fairqueue::Rate;

    const POLICY: &str = "rate = \"1gbit\"\n[class.a]\n[class.tower]\nweight = 400\n# classes from a table\n\
        [class.s]\nweight = 5\nceiling = \"50mbit\"\nparent = \"tower\"\nmatch = [{ address = \"10.0.0.1/32\" }]\n\
        [class.t]\nweight = 5\n\n\nmatch = [{ address = \"10.0.0.2/32\" }]\n";

    /// Returns a change of a class, and the policy with it.
    fn changed(policy: &str, class: &str, ceiling: u64) -> (TermsChange, String) {
        let change = TermsChange { ceiling: Rate::new(ceiling), ..TermsChange::for_class(class) };
        let changed = change.apply_to(policy).expect("the policy can have it").policy.text;
        assert_ne!(changed, policy);
        (change, changed)
    }

    #[test]
    fn a_change_that_is_killed_at_any_byte_leaves_the_old_policy_or_the_new_one() {
        for (class, other) in [("s", "t"), ("a", "s"), ("t", "a")] {
            let (_directory, journal) = journal();
            let mut record = Record::new("kernel", "eth0", 3, POLICY, vec![5_u32]).in_force();
            journal.write(&record).expect("there is room");
            // behind one change that was committed
            let (change, before) = changed(POLICY, other, 30_000_000);
            let prepared = journal.prepare_change(&record, &before, &change).expect("there is room");
            journal.commit_change(prepared, &mut record, &before).expect("it needs no room");
            assert_eq!(journal.read().expect("it is sound").as_ref(), Some(&record));
            let bytes = fs::read(journal.path()).expect("it is there");

            let (change, after) = changed(&before, class, 40_000_000);
            let prepared = journal.prepare_change(&record, &after, &change).expect("there is room");
            std::mem::forget(prepared); // as if the process had been killed
            let prepared = fs::read(journal.path()).expect("it is there");
            assert_eq!(prepared[..bytes.len()], bytes, "a line is appended");
            let mut committed = prepared.clone();
            *committed.last_mut().expect("it is not empty") = b'\n';
            for length in bytes.len()..=prepared.len() {
                fs::write(journal.path(), &prepared[..length]).expect("there is room");
                let read = journal.read::<Vec<u32>>().expect("it is sound").expect("it is there");
                assert_eq!(read.policy, before, "{length} of {} bytes", prepared.len());
                // and the next process appends its own
                let mut again = read;
                let line = journal.prepare_change(&again, &after, &change).expect("there is room");
                assert_eq!(fs::read(journal.path()).expect("it is there"), prepared, "{length}");
                journal.commit_change(line, &mut again, &after).expect("it needs no room");
                assert_eq!(fs::read(journal.path()).expect("it is there"), committed, "{length}");
            }
            let read = journal.read::<Vec<u32>>().expect("it is sound").expect("it is there");
            assert_eq!(read.policy, after);
        }
    }

    #[test]
    fn many_changes_are_folded_into_the_policy_and_one_that_is_given_up_is_not() {
        let (_directory, journal) = journal();
        let mut record = Record::new("kernel", "eth0", 3, POLICY, vec![5_u32]).in_force();
        journal.write(&record).expect("there is room");
        let lines = || fs::read_to_string(journal.path()).expect("it is there").lines().count();
        for number in 1..=2 * MAX_CHANGES + 3 {
            let (change, text) = changed(&record.policy, "s", 50_000_000 + number as u64);
            drop(journal.prepare_change(&record, &text, &change).expect("there is room"));
            assert_eq!(journal.read().expect("it is sound").as_ref(), Some(&record));
            let prepared = journal.prepare_change(&record, &text, &change).expect("there is room");
            journal.commit_change(prepared, &mut record, &text).expect("it needs no room");
            assert_eq!(record.policy, text);
            let read = journal.read().expect("it is sound").expect("it is there");
            assert_eq!(read, record);
            assert_eq!(lines(), 2 + number % (MAX_CHANGES + 1));
        }
        // a journal of one line, as earlier versions wrote it, is written anew
        let text = fs::read_to_string(journal.path()).expect("it is there");
        let mut parts = text.lines();
        let (header, body) = (parts.next().expect("a header"), parts.next().expect("a body"));
        let of_one_line = format!("{},{}", header.trim_end_matches('}'), body.trim_start_matches('{'));
        fs::write(journal.path(), of_one_line).expect("there is room");
        let mut record = journal.read::<Vec<u32>>().expect("it is sound").expect("it is there");
        let (change, text) = changed(&record.policy, "t", 7_000_000);
        let prepared = journal.prepare_change(&record, &text, &change).expect("there is room");
        journal.commit_change(prepared, &mut record, &text).expect("it needs no room");
        assert_eq!((journal.read().expect("it is sound"), lines()), (Some(record), 2));
        // the journal of another process gets no line
        let record = journal.read::<Vec<u32>>().expect("it is sound").expect("it is there");
        let mut other = record.clone();
        other.author.process += 1;
        journal.write(&other).expect("there is room");
        let (change, text) = changed(&record.policy, "t", 8_000_000);
        let refused = journal.prepare_change(&record, &text, &change).map(drop);
        assert!(matches!(refused, Err(JournalError::Replaced { .. })));
        assert_eq!(journal.read().expect("it is sound").as_ref(), Some(&other));
        // and a line that is no change is no journal
        let damaged = fs::read_to_string(journal.path()).expect("it is there") + "{\"class\"\n";
        fs::write(journal.path(), damaged).expect("there is room");
        assert!(journal.read::<Vec<u32>>().expect_err("it is damaged").to_string().contains("no journal"));
    }
}
