//! The cost of a barrier whose threads all run, by their number and their distance.
//!
//! The idea: an episode takes as long as its longest chain of cache line transfers. The chains come from the
//! algorithms that `unisono-barrier` recommends, on processors that no other thread wants:
//!
//! | threads | algorithm | transfers one after the other |
//! |---|---|---|
//! | up to 16 | dissemination | ceil(log2 n) rounds |
//! | more | MCS tree | ceil(log4 n) up, ceil(log2 n) down |
//!
//! Threads on one core transfer no line between caches, so only the number of cores counts. Among cores with
//! `cache_cores` to a cache, transfers inside a cache are *near* and the others *far*. In the tree, the first
//! ranks are near one another. In dissemination, the steps that are shorter than the number of cores of a
//! cache add up to less than that number, so a chain of them leaves a cache at most once.
//!
//! Measured: a near transfer, as the barrier of two threads on the host of the example study. Not measured:
//! more than two cores, and the factor of far transfers.

use super::model::WaitCosts;
use unisono_linux::clock::Duration;

/// The most threads for which `unisono-barrier` recommends dissemination.
const MAX_DISSEMINATION: usize = 16;

/// A far transfer takes this many times as long as a near one: from a core of another socket instead of the
/// same one (David, Guerraoui, Trigonakis, "Everything you always wanted to know about synchronization", SOSP
/// 2013, table 2; Opteron and Xeon, rounded). Not measured here.
const FAR_FACTOR: u64 = 3;

/// Returns ceil(log2 n); 0 for one.
fn doublings(n: usize) -> u32 {
    n.max(1).next_power_of_two().ilog2()
}

impl WaitCosts {
    /// Returns the cost of a barrier of threads on this many cores, which all run.
    pub fn barrier_of(&self, cores: usize, cache_cores: usize) -> Duration {
        let near_cores = cores.min(cache_cores.max(1));
        // up the tree, four children hand over to a node
        let tree = |cores: usize| doublings(cores).div_ceil(2) + doublings(cores);
        let (all, near) = if cores <= MAX_DISSEMINATION {
            let rounds = doublings(cores);
            let leaves = u32::from(cores > near_cores);
            (rounds, doublings(near_cores).min(rounds).saturating_sub(leaves))
        } else {
            (tree(cores), tree(near_cores))
        };
        let transfers = u64::from(near) + FAR_FACTOR * u64::from(all - near);
        // threads that share one core still execute the barrier
        self.barrier * transfers.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(cores: usize, cache_cores: usize) -> u64 {
        WaitCosts::EXAMPLE_HOST.barrier_of(cores, cache_cores).as_nanos()
    }

    #[test]
    fn two_threads_cost_what_was_measured_and_more_threads_a_transfer_for_each_doubling() {
        assert_eq!([1, 2, 4, 8, 16].map(|cores| ns(cores, 16)), [62, 62, 124, 186, 248]);
        assert_eq!(ns(3, 16), ns(4, 16), "a round more as soon as two are not enough");
    }

    #[test]
    fn distance_costs_and_no_barrier_becomes_cheaper_with_more_cores() {
        assert_eq!(ns(2, 1), 3 * 62, "each core has a cache of its own");
        // 16 cores in 4 caches: one near round, three far
        assert_eq!(WaitCosts::PAPER.barrier_of(16, 4).as_nanos(), 640);
        for cache_cores in [1, 4, 8, 16, 64] {
            let costs: Vec<u64> = (1..=1024).map(|cores| ns(cores, cache_cores)).collect();
            assert!(costs.is_sorted(), "{cache_cores}: {costs:?}");
            assert!((1..=1024).all(|cores| ns(cores, cache_cores) >= ns(cores, 1024)), "{cache_cores}");
        }
        // 1,024 threads: 6 near transfers, 9 far; half a million barriers/s, not 16 million
        assert_eq!(ns(1024, 16), 33 * 62);
    }
}
