//! Which barrier to use here, and why.
//!
//! A pure choice from what the caller knows or asks the host for: how many participants, how many CPUs they
//! may use, and how much else wants to run. The rules are those the measurements in this crate's
//! `benches/budgets.rs` support; each answer says which rule it was. The wait policy is always the adaptive
//! one, except where nothing is left to adapt to.

use crate::algorithm::Algorithm;
use unisono_sync::Wait;

/// A choice with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recommendation {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The wait policy.
    pub wait: Wait,
    /// Why, as a sentence for people.
    pub why: String,
}

/// What else wants the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Nothing, as far as known: the machine, or these CPUs, belong to the program.
    None,
    /// Other threads are runnable on these CPUs, or may become so.
    Foreign,
    /// Nobody knows.
    Unknown,
}

/// The barrier for so many participants on so many CPUs.
#[must_use]
pub fn recommended(participants: usize, cpus: usize, load: Load) -> Recommendation {
    let shared = participants > cpus;
    let (algorithm, wait, why) = if shared {
        let rest = match load {
            Load::Foreign => "and sleeping beside the foreign load",
            Load::None => "and yielding to one another while nobody else wants these CPUs",
            Load::Unknown => "yielding to one another or sleeping, whichever turns out cheaper",
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
            let choice = recommended(participants, cpus, Load::Foreign);
            assert_eq!(choice.algorithm, Algorithm::PerCore);
            assert!(choice.why.contains("share") && choice.why.contains("foreign"), "{}", choice.why);
        }
    }

    #[test]
    fn who_has_a_cpu_each_gets_plain_stores() {
        assert_eq!(recommended(2, 2, Load::None).algorithm, Algorithm::Dissemination);
        assert_eq!(recommended(64, 64, Load::Unknown).algorithm, Algorithm::McsTree);
    }
}
