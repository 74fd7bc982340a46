//! For `unisono tree deploy`: runs barriers for a given time, despite failures of cables and processes.
//!
//! A barrier can fail to end for four reasons. A cable was pulled: the kernel has reported it, and the trees
//! are repaired without it, however many cables are pulled. A link loses frames: the registers show it, and
//! the trees are repaired without it. A process has ended: no repair is possible, and the run ends. Otherwise
//! a member is slow, and gets another chance. Repairs and chances are limited, so that a network that fails
//! all the time is reported, and not repaired forever.

use super::{Deployment, Repaired};
use crate::diagnose::Suspect;
use crate::error::Error;
use crate::orders::BarrierRun;
use std::time::{Duration as StdDuration, Instant as StdInstant};
use unisono_linux::clock::Duration;
use unisono_linux::interrupt;
use unisono_text::counted;

/// The number of barriers at the start of a run whose times are recorded, to check that no member leaves a
/// barrier before all have entered it.
pub const TRACED_BARRIERS: u32 = 20;
/// The number of barriers between two readings of the clock: at 50 us to 5 ms each, they take 10 ms to a
/// second.
const BARRIERS_PER_ROUND: u32 = 200;
/// The maximum number of repairs around lossy links and of chances for slow members, together, in one run.
const MAX_REPAIRS: usize = 16;
/// The maximum number of stuck barriers in a row without a missing process or a suspected link.
const MAX_RETRIES: usize = 3;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EnduranceResult {
    pub barriers: u64,
    pub took: Duration,
    /// The number of the members' timeouts.
    pub repeated: u64,
    pub failed: Option<String>,
}

impl Deployment<'_> {
    /// Runs barriers of all groups until the time is over, a signal arrives, or no repair is possible. The
    /// [listener](Self::listen) is notified of all events in the meantime. `timeout` is the maximum time of a
    /// barrier. Fails with the errors of [`barriers`](Self::barriers) that no repair can remedy.
    pub fn run_for(&mut self, time: StdDuration, timeout: StdDuration) -> Result<EnduranceResult, Error> {
        let all: Vec<usize> = (0..self.jobs.len()).collect();
        let stuck_after = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(100);
        let mut endured = EnduranceResult::default();
        let (start, mut setbacks, mut trace) = (StdInstant::now(), Setbacks::default(), true);
        while (trace || start.elapsed() < time) && interrupt::caught().is_none() {
            let count = if trace { TRACED_BARRIERS } else { BARRIERS_PER_ROUND };
            let (what, links, setback) = match self
                .barriers(&all, BarrierRun { warm_up: 0, count, trace, stuck_after })
            {
                Ok(ran) => {
                    if trace && !ran.is_synchronized() {
                        endured.failed = Some("a member left a barrier before all had entered it".to_owned());
                        break;
                    }
                    (trace, setbacks.chances) = (false, 0);
                    endured.barriers += u64::from(count);
                    endured.took += ran.took;
                    endured.repeated += ran.repeated;
                    continue;
                }
                Err(_) if interrupt::caught().is_some() => break,
                // the kernel has named the cable, so the registers are not consulted: the registers of an
                // interrupted barrier would blame other links
                Err(Error::Cable(what)) => (what, Vec::new(), Setback::Pulled),
                Err(Error::Barrier(what)) => {
                    self.notify(&what);
                    let links = self.suspected_links();
                    let setback = match (links.is_empty(), self.is_complete()) {
                        (false, _) => Setback::Lossy,
                        (true, true) => Setback::Slow,
                        (true, false) => Setback::Ended,
                    };
                    (what, links, setback)
                }
                Err(error) => return Err(error),
            };
            if !setbacks.allow(setback) {
                endured.failed = Some(what);
                break;
            }
            let began = StdInstant::now();
            match self.set_up_again(&links) {
                Ok(repaired) => self.notify(&describe_repair(self.without(), repaired, began.elapsed())),
                Err(error) => {
                    endured.failed = Some(format!("{what}; it cannot be left out: {error}"));
                    break;
                }
            }
        }
        Ok(endured)
    }

    /// Returns the links that lose frames according to the registers of all groups, ascending.
    fn suspected_links(&self) -> Vec<u32> {
        let suspects = (0..self.jobs.len()).flat_map(|job| self.suspects(job));
        let mut links: Vec<u32> = suspects
            .filter_map(|suspect| if let Suspect::Link { link, .. } = suspect { Some(link) } else { None })
            .collect();
        links.sort_unstable();
        links.dedup();
        links
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Setback {
    Pulled,
    Lossy,
    /// Every member runs and no link is suspected, so a member is slow.
    Slow,
    /// The process of a member has ended.
    Ended,
}

#[derive(Default)]
struct Setbacks {
    /// The number of setbacks other than pulled cables; and, in `chances`, of slow members in a row.
    repairs: usize,
    chances: usize,
}

impl Setbacks {
    /// Counts a setback. Returns whether the run may continue.
    fn allow(&mut self, setback: Setback) -> bool {
        self.chances = if setback == Setback::Slow { self.chances + 1 } else { 0 };
        self.repairs += usize::from(setback != Setback::Pulled);
        setback != Setback::Ended && self.chances <= MAX_RETRIES && self.repairs <= MAX_REPAIRS
    }
}

fn describe_repair(
    without: &[u32],
    Repaired { registers, changed, roots }: Repaired,
    took: StdDuration,
) -> String {
    let took = took.as_secs_f64() * 1e3;
    if without.is_empty() {
        return format!(
            "everybody is there: {} set up again in {took:.0} ms",
            counted(registers, "register")
        );
    }
    let roots = if roots == 0 { String::new() } else { format!(", {} moved", counted(roots, "root")) };
    format!(
        "without link {without:?}: {changed} of {} changed{roots}, set up again in {took:.0} ms",
        counted(registers, "register")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_member_gets_three_chances_in_a_row_and_one_that_ended_none() {
        let mut setbacks = Setbacks::default();
        assert!((0..3).all(|_| setbacks.allow(Setback::Slow)));
        assert!(!setbacks.allow(Setback::Slow));
        assert!(setbacks.allow(Setback::Lossy) && setbacks.allow(Setback::Slow));
        assert!(!setbacks.allow(Setback::Ended));
    }

    #[test]
    fn cables_may_be_pulled_for_ever_but_links_lose_frames_sixteen_times() {
        let mut setbacks = Setbacks::default();
        assert!((0..100).all(|_| setbacks.allow(Setback::Pulled)));
        assert!((0..16).all(|_| setbacks.allow(Setback::Lossy)));
        assert!(!setbacks.allow(Setback::Lossy));
    }
}
