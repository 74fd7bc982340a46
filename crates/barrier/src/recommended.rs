//! Recommends a barrier for a host, with the reason.
//!
//! The recommendation is a pure function of three inputs: the number of participants, the number of CPUs that
//! they may use, and the load of other threads. The measurements in this crate's `benches/budgets.rs` support
//! the rules; each recommendation names its rule. The wait policy is always the adaptive one.
//!
//! Participants that share CPUs, measured by `unisono barrier --threads N --pin spread --seconds 0.12 --runs
//! 3 --algorithm all --wait adaptive`, and `--pin none`, on two virtual CPUs (AMD EPYC, Linux 6.18),
//! otherwise idle, interleaved; us an episode, median of n = 3 (2 threads do not share CPUs; * marks the
//! least):
//! ```text
//!                      2 threads        4 threads        8 threads       16 threads
//!                   spread    none   spread    none   spread    none   spread    none
//!   central          0.093   0.083    1.68*    2.15     4.63    5.88    16.1    11.4*
//!   competitive      0.097   0.088    1.72     1.96     4.60*   5.98    13.8    13.2
//!   combining-tree   0.090   0.085    1.91     2.00     7.65   10.2     22.5    20.4
//!   static-tree      0.113   0.124    5.52     5.19    11.3    21.5     50.5    39.2
//!   dissemination    0.063*  0.064*   6.09     6.86    19.1    21.7     70.1    59.7
//!   tournament       0.135   0.122   19.2      7.24    32.3    30.5     92.3    74.0
//!   mcs-tree         0.094   0.130    6.18     5.46    20.9    27.3     57.9    65.5
//!   per-core         0.111   0.109    2.78     1.56*    4.78    5.86*   13.2*   12.1
//! ```
//! Three runs are too few to rank central, competitive and per-core. (The runs of per-core with 4 threads and
//! `--pin spread` took 2.04 to 3.09; its threads slept a part of the time, and in another run, of `budgets
//! idle4`, it took 1.63.) Every tree is slower. More than two participants with a CPU each were not measured:
//! there were two CPUs. The rules for that case rest on counting line transfers.

use crate::algorithm::Algorithm;
use unisono_sync::Wait;

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recommendation {
    pub algorithm: Algorithm,
    pub wait: Wait,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecommendedLoad {
    /// No other load, as far as known: the machine, or these CPUs, belong to the program.
    None,
    /// Other threads are runnable on these CPUs, or may become so.
    Foreign,
    Unknown,
}

/// Returns the barrier to use for `participants` participants on `cpus` CPUs.
///
/// ```
/// use unisono_barrier::{Algorithm, RecommendedLoad, recommended};
///
/// let recommendation = recommended(8, 2, RecommendedLoad::Unknown);
/// assert_eq!(recommendation.algorithm, Algorithm::PerCore, "{}", recommendation.why);
/// ```
pub fn recommended(participants: usize, cpus: usize, load: RecommendedLoad) -> Recommendation {
    let shared = participants > cpus;
    let (algorithm, wait, why) = if shared {
        let rest = match load {
            RecommendedLoad::Foreign => "and sleeping beside the foreign load",
            RecommendedLoad::None => "and yielding to one another while nobody else wants these CPUs",
            RecommendedLoad::Unknown => "yielding to one another or sleeping, whichever turns out cheaper",
        };
        let why = format!(
            "{participants} participants share {cpus} CPUs: on each the last to come waits for the others and \
             wakes its fellows where it stands, {rest}"
        );
        (Algorithm::PerCore, Wait::Adaptive, why)
    } else if participants <= 2 {
        let why = format!(
            "{participants} participants on {cpus} CPUs: each stores once and polls once, and the two transfers \
             overlap"
        );
        (Algorithm::Dissemination, Wait::Adaptive, why)
    } else if participants <= 16 {
        let why = format!(
            "{participants} participants on {cpus} CPUs: ceil(log2 n) rounds of plain stores, nothing contended"
        );
        (Algorithm::Dissemination, Wait::Adaptive, why)
    } else {
        let why = format!(
            "{participants} participants on {cpus} CPUs: the fewest line transfers of all, each participant \
             polls a line of its own"
        );
        (Algorithm::McsTree, Wait::Adaptive, why)
    };
    Recommendation { algorithm, wait, why }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_shares_cpus_gets_the_barrier_that_knows_who_shares_which() {
        for (participants, cpus) in [(3, 2), (8, 2), (65, 64)] {
            let choice = recommended(participants, cpus, RecommendedLoad::Foreign);
            assert_eq!(choice.algorithm, Algorithm::PerCore);
            assert!(choice.why.contains("share") && choice.why.contains("foreign"), "{}", choice.why);
        }
    }

    #[test]
    fn who_has_a_cpu_each_gets_plain_stores() {
        assert_eq!(recommended(2, 2, RecommendedLoad::None).algorithm, Algorithm::Dissemination);
        assert_eq!(recommended(64, 64, RecommendedLoad::Unknown).algorithm, Algorithm::McsTree);
    }
}
