//! The load of other programs before a study: none, steady or unsteady.
//!
//! The idea: a shared machine is never quiet, and steady load is a property of the machine, not a
//! disturbance. The study watches the machine for a few seconds while it does nothing itself, in windows.
//! Load that differs little between the windows is steady; the study's answers then hold for this machine
//! with this load.
//!
//! Cost: none here; `unisono-study` reads the ticks.

use crate::tick_share::{DISTURBANCE_LIMIT, TickShare};
use serde::{Deserialize, Serialize};

/// The windows of a steady load differ by at most this share of their mean, beyond [`TICK_ERROR`]. The limit
/// lies between the spread of a loop that never sleeps (0) and the spread of a compiler (0.5 and more).
/// Chosen, not measured.
const MAX_STEADY_SPREAD: f64 = 0.25;

/// Two windows of the same load may differ by this share: a window of half a second has 50 ticks for each
/// processor, of which the first and the last are counted whole or not at all.
const TICK_ERROR: f64 = 0.05;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadPattern {
    /// Other programs took at most [`DISTURBANCE_LIMIT`].
    Quiet,
    /// Other programs took about the same share in each window.
    Steady,
    Unsteady,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackgroundLoad {
    pub pattern: LoadPattern,
    /// Mean share of all processors (0 to 1) that others took, the hypervisor included.
    pub share: f64,
    /// The hypervisor's part of `share`. The hypervisor takes nothing from a machine that is idle.
    #[serde(default)]
    pub steal: f64,
}

impl BackgroundLoad {
    /// Classifies the ticks that others took in successive windows. `steal` are the hypervisor's ticks of all
    /// windows. `None` if the windows contain no tick.
    pub fn from_windows(windows: &[TickShare], steal: u64) -> Option<Self> {
        let share = windows.iter().copied().sum::<TickShare>().share()?;
        let shares = || windows.iter().filter_map(|window| window.share());
        let (low, high) = (shares().fold(1.0, f64::min), shares().fold(0.0, f64::max));
        let pattern = match share {
            share if share <= DISTURBANCE_LIMIT => LoadPattern::Quiet,
            share if high - low <= TICK_ERROR + MAX_STEADY_SPREAD * share => LoadPattern::Steady,
            _ => LoadPattern::Unsteady,
        };
        let all: u64 = windows.iter().map(|window| window.all).sum();
        Some(Self { pattern, share, steal: steal as f64 / all as f64 })
    }

    /// Returns the share that others take without disturbing a run.
    pub fn steady_share(self) -> f64 {
        if self.pattern == LoadPattern::Steady { self.share } else { 0.0 }
    }

    /// Returns the load in words, for a machine with this number of processors; `None` for a quiet machine.
    pub fn in_words(self, processors: u32) -> Option<String> {
        let taken = format!("{:.1} of {processors} processors", self.share * f64::from(processors));
        match self.pattern {
            LoadPattern::Quiet => None,
            LoadPattern::Steady => Some(format!(
                "other programs steadily take {taken}: the answers are for this machine as it is now"
            )),
            LoadPattern::Unsteady => Some(format!(
                "other programs take {taken}, now more and now less: a run during which they take some is made again"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(taken: &[u64]) -> BackgroundLoad {
        let windows: Vec<TickShare> =
            taken.iter().map(|taken| TickShare { taken: *taken, all: 100 }).collect();
        BackgroundLoad::from_windows(&windows, 6).expect("there are ticks")
    }

    #[test]
    fn a_loop_is_steady_a_compiler_is_not_and_a_few_ticks_are_nothing() {
        assert_eq!(load(&[1, 0, 3, 0, 2, 1]).pattern, LoadPattern::Quiet);
        let one_loop = load(&[50, 51, 50, 49, 52, 50]);
        assert_eq!(one_loop.steal, 0.01);
        assert_eq!((one_loop.pattern, one_loop.steady_share()), (LoadPattern::Steady, one_loop.share));
        let compiler = load(&[90, 20, 55, 100, 0, 40]);
        assert_eq!((compiler.pattern, compiler.steady_share()), (LoadPattern::Unsteady, 0.0));
        assert_eq!(load(&[4, 5, 6, 4, 5, 5]).pattern, LoadPattern::Steady, "a small program, all the time");
        assert_eq!(load(&[100; 6]).pattern, LoadPattern::Steady);
        assert_eq!(BackgroundLoad::from_windows(&[], 0), None);
    }

    #[test]
    fn the_words_count_processors() {
        let words = load(&[55; 6]).in_words(2).expect("a load");
        assert!(words.starts_with("other programs steadily take 1.1 of 2 processors: "), "{words}");
        assert_eq!(load(&[0; 6]).in_words(2), None);
    }
}
