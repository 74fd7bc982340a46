//! Repeats measurements that other programs on the same machine have disturbed.
//!
//! A wrong result of a disturbed run proves nothing, so the run is repeated. A wrong result of an undisturbed
//! run is a failure at once.

use unisono_linux::process_stat::ProcessStat;
use unisono_linux::processor_ticks::ProcessorTicks;

/// Maximum number of runs of one measurement. Chosen, not measured.
const MAX_RUNS: usize = 4;
/// A run is disturbed if other programs, or the hypervisor, took more than this share of the processors.
const MAX_FOREIGN: f64 = 0.02;

/// Measures until a run gives a right result, or gives a wrong one without a disturbance.
///
/// # Panics
/// If an undisturbed run is wrong, or if each of four runs is wrong. The message has the reason and the
/// disturbance.
pub fn repeat_disturbed(mut measure: impl FnMut() -> Result<(), String>) {
    let mut said = Vec::new();
    for _ in 0..MAX_RUNS {
        let before = ForeignTime::now();
        let Err(wrong) = measure() else { return };
        let foreign = before.zip(ForeignTime::now()).map_or(0.0, |(before, now)| now.share_since(before));
        said.push(format!("{wrong} (others took {:.1} % of the processors)", 100.0 * foreign));
        if foreign <= MAX_FOREIGN {
            break;
        }
    }
    panic!("{}", said.join("\n"));
}

/// The processor time used so far: by all programs, and by this process with the children that it has waited
/// for.
#[derive(Clone, Copy)]
struct ForeignTime {
    all: ProcessorTicks,
    own: u64,
}

impl ForeignTime {
    /// Reads the times from /proc. Returns `None` if /proc is not readable.
    fn now() -> Option<Self> {
        let own = ProcessStat::read("self")?;
        Some(Self { all: ProcessorTicks::now()?, own: own.own_ticks + own.children_ticks })
    }

    /// Returns the share of the processors' time since `before` that was neither idle nor used by this
    /// process and its children.
    fn share_since(self, before: Self) -> f64 {
        let all = self.all.since(before.all);
        let foreign = (all.busy + all.steal.unwrap_or(0)).saturating_sub(self.own - before.own);
        foreign as f64 / all.all().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_others_is_what_neither_was_idle_nor_ours() {
        let ticks = |busy, idle, steal| ProcessorTicks { busy, idle, steal: Some(steal) };
        let before = ForeignTime { all: ticks(100, 100, 0), own: 50 };
        let after = ForeignTime { all: ticks(160, 130, 10), own: 100 };
        assert!((after.share_since(before) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn a_run_that_is_right_ends_the_measurement() {
        let mut runs = 0;
        repeat_disturbed(|| {
            runs += 1;
            Ok(())
        });
        assert_eq!(runs, 1);
    }

    #[test]
    #[should_panic(expected = "wrong")]
    fn a_measurement_that_stays_wrong_fails() {
        repeat_disturbed(|| Err("wrong".to_owned()));
    }
}
