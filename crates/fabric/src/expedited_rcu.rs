//! Shortens the kernel's RCU grace periods while programs are attached and detached.
//!
//! Attaching a program to a device (tcx) waits until no processor uses the previous list of programs. This
//! RCU grace period takes 10 ms and more, while the kernel holds the lock of all network settings, and a
//! network has hundreds of ports. The kernel can shorten grace periods at the price of an interrupt at each
//! processor (50 us), but only for the whole host: by `/sys/kernel/rcu_expedited`. This module sets it for
//! the fraction of a second that attaching takes, and then restores it.
//!
//! First, the old value is written to a journal, so that the next deployment can restore it if this process
//! is killed. Reference: Documentation/RCU/, Documentation/ABI/testing/sysfs-kernel-rcu (rcu_expedited).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use unisono_linux::undo::UndoDirectory;

const EXPEDITED_FILE: &str = "/sys/kernel/rcu_expedited";
/// The file in the journal with the old value of the setting.
const JOURNAL_FILE: &str = "rcu_expedited";

/// Returns the directory in which deployments record the settings to restore if they are killed.
pub(crate) fn journal() -> UndoDirectory {
    UndoDirectory::at(Path::new("/run/unisono/tree"))
}

/// A guard: grace periods are short as long as this value lives.
#[derive(Debug)]
pub(crate) struct ExpeditedRcu {
    /// The file of the setting. It is locked, because a second process would otherwise read the changed value
    /// and later restore that.
    knob: File,
    before: String,
}

impl ExpeditedRcu {
    /// Enables the setting. Waits until no other process holds its lock.
    pub(crate) fn enable() -> io::Result<Self> {
        let mut knob = OpenOptions::new().read(true).write(true).open(EXPEDITED_FILE)?;
        knob.lock()?;
        let before = match journal().read(JOURNAL_FILE)? {
            // the journal is from a killed process, which also left the present value
            Some(left) if !left.is_empty() => left,
            // an empty file is from a process that was killed before it changed the setting
            none_or_empty => {
                let mut now = String::new();
                knob.read_to_string(&mut now)?;
                none_or_empty.map_or(Ok(()), |_| journal().remove(JOURNAL_FILE))?;
                journal().create(JOURNAL_FILE)?.write_all(now.trim().as_bytes())?;
                now.trim().to_owned()
            }
        };
        let mut expedited = Self { knob, before };
        expedited.write("1")?;
        Ok(expedited)
    }

    fn write(&mut self, to: &str) -> io::Result<()> {
        self.knob.rewind()?;
        self.knob.write_all(to.as_bytes())
    }
}

impl Drop for ExpeditedRcu {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.before);
        if self.write(&before).is_ok() {
            let _ = journal().remove(JOURNAL_FILE);
        }
        journal().remove_if_empty();
        let _ = self.knob.unlock(); // a close of the file would do the same
    }
}

/// Restores the setting if a process was killed before it could do so.
pub(crate) fn restore_expedited() -> io::Result<()> {
    if journal().read(JOURNAL_FILE)?.is_some() {
        drop(ExpeditedRcu::enable()?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knob_is_turned_back_also_after_somebody_was_killed() {
        let read = || std::fs::read_to_string(EXPEDITED_FILE).map(|text| text.trim().to_owned());
        let expedited = match ExpeditedRcu::enable() {
            Ok(expedited) => expedited,
            Err(error) => return eprintln!("skipped: {EXPEDITED_FILE}: {error}"),
        };
        let before = expedited.before.clone();
        assert_eq!(read().expect("it is there"), "1");
        // another process may have changed the setting at this moment, with a journal file of its own
        let is_back = || {
            (0..5000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                read().is_ok_and(|now| now == before)
                    && journal().read(JOURNAL_FILE).is_ok_and(|note| note.is_none())
            })
        };
        // as if the process were killed: the lock is released, but the setting is not restored
        expedited.knob.unlock().expect("it is locked");
        std::mem::forget(expedited);
        restore_expedited().expect("root may");
        assert!(is_back(), "the knob stays turned");
        // as if the process were killed while it wrote the journal, before it changed the setting
        let mut expedited = ExpeditedRcu::enable().expect("as before");
        expedited.write(&before).expect("as before");
        journal().remove(JOURNAL_FILE).expect("it is ours");
        journal().create(JOURNAL_FILE).expect("it is ours");
        expedited.knob.unlock().expect("it is locked");
        std::mem::forget(expedited);
        restore_expedited().expect("root may");
        assert!(is_back(), "the knob stays turned after an empty journal");
    }
}
