//! What programs take of the processors that have nothing to do with the study.
//!
//! The idea: whatever ran before a run began, and is neither this process nor started by it, is a stranger.
//! What strangers use during the run, they take from it. Programs that begin meanwhile may be the run's own;
//! those of a stranger count when they end, for the one that started them. Programs that this process does
//! not see, those of another container for instance, are seen only in [`crate::host::LoadWatch`].
//!
//! Cost: one read of `/proc/PID/stat` (about 10 us) for each process, before a run and after it.

use std::collections::BTreeMap;
use unisono_linux::process_list;
use unisono_linux::process_stat::ProcessStat;

/// The parent of the kernel's threads, which work for whoever asks them.
const KTHREADD: i32 = 2;

/// The strangers and what they had used when a run began.
#[derive(Debug)]
pub struct StrangersWatch(BTreeMap<i32, ProcessStat>);

impl StrangersWatch {
    pub fn begin() -> Self {
        let own = std::process::id().cast_signed();
        let ours = process_list::with_descendants(|one| one.number == own);
        let strangers = process_list::with_descendants(|_| true).into_iter();
        let strangers = strangers.filter(|number| !ours.contains(number) && *number != KTHREADD);
        let known = strangers.filter_map(|number| Some((number, ProcessStat::of(number)?)));
        Self(known.filter(|(_, stat)| stat.parent != KTHREADD).collect())
    }

    /// What they have used since, in ticks of a hundredth of a second.
    pub fn ticks(&self) -> u64 {
        let used = self.0.iter().filter_map(|(number, before)| {
            // another process may have the number by now
            let now = ProcessStat::of(number).filter(|now| now.started == before.started)?;
            Some(now.all_ticks.saturating_sub(before.all_ticks))
        });
        used.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn what_this_program_and_its_children_use_is_no_strangers() {
        let watch = StrangersWatch::begin();
        let own = std::process::id().cast_signed();
        assert!(!watch.0.contains_key(&own));
        assert!(watch.0.contains_key(&std::os::unix::process::parent_id().cast_signed()));
    }

    #[test]
    fn what_a_stranger_uses_counts() {
        // a process that ran before is a stranger to a watch that does not know whose it is
        let own = std::process::id().cast_signed();
        let before = ProcessStat::of(own).expect("it runs");
        let watch = StrangersWatch(BTreeMap::from([(own, before)]));
        let start = Instant::now();
        while watch.ticks() < 3 {
            assert!(start.elapsed() < Duration::from_secs(60), "30 ms of work are seen");
        }
        let other = ProcessStat { started: before.started + 1, ..before };
        assert_eq!(StrangersWatch(BTreeMap::from([(own, other)])).ticks(), 0, "another process");
    }
}
