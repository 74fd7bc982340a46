//! The time of a log: a time of day that does not step while the host runs.
//!
//! Ages are differences of this time. Within a boot it advances with the monotonic clock, even if the time of
//! day is set: the file `clock` keeps the boot's identity, and the lead of the log's time over the monotonic
//! clock. In another boot it begins with the time of day, but not before the newest event in the log.

use super::chain::LogChain;
use super::line_file::LineFile;
use super::{EventLog, LogError, WallTime};
use unisono_linux::clock::{Duration, Instant};

pub(super) const CLOCK: &str = "clock";

impl EventLog {
    /// Returns the lead of the log's time over the monotonic clock in this boot. `wall_ahead` is the lead of
    /// the time of day.
    ///
    /// # Errors
    /// The file of the log's clock cannot be read or written.
    pub fn time_ahead(&self, boot: &str, now: Instant, wall_ahead: Duration) -> Result<Duration, LogError> {
        let path = self.path.join(CLOCK);
        let known = LineFile::content(&path)?;
        let known = std::str::from_utf8(&known).unwrap_or_default();
        if let Some((of, ahead)) = known.trim_end().split_once(' ')
            && of == boot
            && let Ok(ahead) = ahead.parse()
        {
            return Ok(Duration::from_nanos(ahead));
        }
        let newest = self.chains.values().filter_map(LogChain::newest).max().unwrap_or_default();
        let ahead = wall_ahead.max(newest - WallTime::at(now, Duration::ZERO));
        LineFile::replace(&path, format!("{boot} {}\n", ahead.as_nanos()).as_bytes())?;
        Ok(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{LogBounds, LoggedEvent};

    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_logs_time_does_not_step_within_a_boot_and_never_goes_back() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let open = || EventLog::open(directory.path(), LogBounds::default()).expect("it is sound");
        let now = Instant::from_nanos(1_000_000_000_000);
        let (wrong, right) = (YEAR * 30, YEAR * 56);
        let mut log = open();
        assert_eq!(log.time_ahead("one", now, wrong).expect("there is room"), wrong);
        let event = LoggedEvent { published: WallTime::at(now, wrong), ..LoggedEvent::default() };
        log.append(&event).expect("there is room");
        drop(log);
        // the clock was set, and the broker started again
        let log = open();
        assert_eq!(log.time_ahead("one", now + SECOND, right).expect("there is room"), wrong);
        // in the next boot the time of day counts
        assert_eq!(log.time_ahead("two", Instant::ZERO, right).expect("there is room"), right);
        // but in a boot whose clock is behind the last event no time has passed
        let back = log.time_ahead("three", Instant::ZERO + SECOND, YEAR).expect("there is room");
        assert_eq!(WallTime::at(Instant::ZERO + SECOND, back), event.published);
    }
}
