//! Short grace periods while programs are attached and detached.
//!
//! Attaching a program to a device (tcx) waits until no processor uses what was there before: a grace period
//! of the kernel, 10 ms and more, with the lock of all network settings held. A network has hundreds of
//! ports. The kernel can hurry at the price of an interrupt at each processor (50 us), but only for everybody
//! at once: the knob `/sys/kernel/rcu_expedited`. It is turned for the fraction of a second that attaching
//! takes and turned back.
//!
//! What it was is written down first, so that whoever comes after a process that was killed meanwhile turns
//! it back. Reference: Documentation/RCU/, Documentation/ABI/testing/sysfs-kernel-rcu (rcu_expedited).

use crate::notes::{DIRECTORY, note};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

const KNOB: &str = "/sys/kernel/rcu_expedited";
const NOTE: &str = "/run/unisono/rcu_expedited";

/// As long as this lives, grace periods are short.
#[derive(Debug)]
pub(crate) struct Hurry {
    /// Locked: another process that found it turned would turn it back to that.
    knob: File,
    before: String,
}

impl Hurry {
    /// Turns the knob; waits for others who have turned it.
    pub(crate) fn begin() -> io::Result<Self> {
        let mut knob = OpenOptions::new().read(true).write(true).open(KNOB)?;
        knob.lock()?;
        let before = if let Ok(left) = fs::read_to_string(NOTE) {
            left // by one that was killed; what the knob says now is its doing
        } else {
            let mut now = String::new();
            knob.read_to_string(&mut now)?;
            now.trim().to_owned()
        };
        note(Path::new(NOTE), &before)?;
        let mut hurry = Self { knob, before };
        hurry.turn("1")?;
        Ok(hurry)
    }

    fn turn(&mut self, to: &str) -> io::Result<()> {
        self.knob.rewind()?;
        self.knob.write_all(to.as_bytes())
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.before);
        if self.turn(&before).is_ok() {
            let _ = fs::remove_file(NOTE); // there is none if somebody cleaned up
        }
        let _ = fs::remove_dir(DIRECTORY); // unless others have their notes there
        let _ = self.knob.unlock(); // closing it does the same
    }
}

/// Turns the knob back if somebody was killed before he could.
pub(crate) fn calm_down() -> io::Result<()> {
    if Path::new(NOTE).exists() {
        drop(Hurry::begin()?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knob_is_turned_back_also_after_somebody_was_killed() {
        let read = || fs::read_to_string(KNOB).map(|text| text.trim().to_owned());
        let hurry = match Hurry::begin() {
            Ok(hurry) => hurry,
            Err(error) => return eprintln!("skipped: {KNOB}: {error}"),
        };
        let before = hurry.before.clone();
        assert_eq!(read().expect("it is there"), "1");
        // killed: the lock is gone, nothing is turned back
        hurry.knob.unlock().expect("it is locked");
        std::mem::forget(hurry);
        calm_down().expect("root may");
        // others may be hurrying at this moment, who have their own note
        let seen = (0..5000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            read().is_ok_and(|now| now == before) && !Path::new(NOTE).exists()
        });
        assert!(seen, "the knob stays turned");
    }
}
