//! The number of processors that a process effectively has: the least of its affinity, its cpuset and its
//! quota, but at least one.
//!
//! How to round a quota of 2.5 processors: three threads use all of the quota's time, but the kernel stops
//! them in each period when that time is used up. Two threads are never stopped, but leave half a processor
//! unused. When the group's time is used up, each processor still has a slice of it (5 ms:
//! `kernel.sched_cfs_bandwidth_slice_us`) that its thread may use, and a thread that waits for a stopped
//! thread spends that slice spinning. If there is one thread more than whole processors, each period loses at
//! most the slices of all other threads. So the number is rounded up if the fraction of a processor is more
//! time in each period than those slices, and down otherwise. In the usual period of 100 ms, 1.5 becomes two
//! and 1.04 one; 8.3 becomes eight and 8.5 nine. (Go and Java always round up, Rust down.)

use std::fmt;
use unisono_linux::affinity::CpuSet;
use unisono_linux::quota::{ProcessorLimits, Quota};
use unisono_text::counted;

/// The part of a group's time, in microseconds, that the kernel gives to a processor at once (its default
/// since Linux 3.2).
const SLICE_US: u64 = 5000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// The number of processors in the machine; no other limit is lower.
    Machine,
    Affinity(CpuSet),
    /// The cpuset of a control group.
    Cpuset(CpuSet),
    /// The quota of a control group.
    Quota(Quota),
    /// This program's part of the processors, which are divided among several programs.
    Partition,
    /// This many ranks of an MPI program share the processors of this host.
    Ranks(usize),
}

/// The alternate form (`{:#}`) leaves out which processors or group it is, which can be longer than a line.
impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitedBy::Machine => f.write_str("the machine has no more"),
            LimitedBy::Affinity(_) if f.alternate() => f.write_str("the affinity allows no more"),
            LimitedBy::Affinity(cpus) => write!(f, "the affinity allows processors {cpus}"),
            LimitedBy::Cpuset(_) if f.alternate() => f.write_str("the cpuset has no more"),
            LimitedBy::Cpuset(cpus) => write!(f, "the cpuset has processors {cpus}"),
            LimitedBy::Quota(quota) => {
                // two digits describe a quota; further digits are noise of the division
                let number = format!("{:.2}", quota.processors());
                let number = number.trim_end_matches('0').trim_end_matches('.');
                write!(f, "a quota of {number} holds")?;
                // the path comes last, because it may be longer than a line
                if f.alternate() { Ok(()) } else { write!(f, " in {}", quota.group.display()) }
            }
            LimitedBy::Partition => f.write_str("this is its part among several programs"),
            LimitedBy::Ranks(count) => write!(f, "{count} ranks share the processors of this host"),
        }
    }
}

/// The number of processors that a process has, and the limit that allows no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The number of processors, at least 1.
    pub processors: usize,
    pub limited_by: LimitedBy,
}

/// The alternate form is that of [`LimitedBy`].
impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, because ", counted(self.processors, "processor"))?;
        fmt::Display::fmt(&self.limited_by, f)
    }
}

pub fn effective(limits: &ProcessorLimits) -> Effective {
    let affinity = &limits.affinity;
    let allowed = limits.cpuset.as_ref().map_or_else(|| affinity.clone(), |set| set.intersection(affinity));
    // a cpuset that is disjoint from the affinity is out of date: the kernel obeys the affinity
    let allowed = if allowed.is_empty() { affinity.clone() } else { allowed };
    let limited_by = match &limits.cpuset {
        _ if allowed.len() >= limits.online => LimitedBy::Machine,
        Some(cpuset) if *cpuset == allowed => LimitedBy::Cpuset(allowed.clone()),
        _ => LimitedBy::Affinity(allowed.clone()),
    };
    let allowed = allowed.len().max(1);
    match &limits.quota {
        Some(quota) if quota_threads(quota) < allowed => {
            Effective { processors: quota_threads(quota), limited_by: LimitedBy::Quota(quota.clone()) }
        }
        _ => Effective { processors: allowed, limited_by },
    }
}

/// Returns the number of threads for a quota, at least 1.
fn quota_threads(quota: &Quota) -> usize {
    let (down, rest_us) = (quota.time_us / quota.period_us, quota.time_us % quota.period_us);
    let up = rest_us > down.saturating_mul(SLICE_US);
    usize::try_from(down.saturating_add(u64::from(up))).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unisono_linux::cgroup::CgroupVersion;
    use unisono_linux::quota::GroupRelation;

    fn quota(time_us: u64, period_us: u64) -> Quota {
        Quota { time_us, period_us, group: "/job".into(), of: GroupRelation::Own, version: CgroupVersion::V2 }
    }

    fn limits(affinity: &str, cpuset: Option<&str>, time_us: Option<u64>) -> ProcessorLimits {
        let list = |text: &str| text.parse::<CpuSet>().expect("a list");
        ProcessorLimits {
            affinity: list(affinity),
            cpuset: cpuset.map(list),
            quota: time_us.map(|time_us| quota(time_us, 100_000)),
            online: 8,
            unread: Vec::new(),
        }
    }

    #[test]
    fn the_least_of_affinity_cpuset_and_quota_counts() {
        for (limits, expected) in [
            (limits("0-7", None, None), "8 processors, because the machine has no more"),
            (limits("0,2", None, None), "2 processors, because the affinity allows processors 0,2"),
            (limits("4-7", Some("4-7"), None), "4 processors, because the cpuset has processors 4-7"),
            (
                limits("4-5", Some("4-7"), None),
                "2 processors, because the affinity allows processors 4-5",
            ),
            (limits("0-7", None, Some(100_000)), "1 processor, because a quota of 1 holds in /job"),
            (limits("0-7", None, Some(250_000)), "3 processors, because a quota of 2.5 holds in /job"),
            (limits("0", None, Some(250_000)), "1 processor, because the affinity allows processors 0"),
            (
                limits("0-7", Some("0-7"), Some(1000)),
                "1 processor, because a quota of 0.01 holds in /job",
            ),
        ] {
            assert_eq!(effective(&limits).to_string(), expected);
        }
    }

    #[test]
    fn the_alternate_form_names_the_limit_without_processors_and_group() {
        for (limits, expected) in [
            (limits("0-7", None, None), "8 processors, because the machine has no more"),
            (limits("0,2", None, None), "2 processors, because the affinity allows no more"),
            (limits("4-7", Some("4-7"), None), "4 processors, because the cpuset has no more"),
            (limits("0-7", None, Some(100_000)), "1 processor, because a quota of 1 holds"),
        ] {
            assert_eq!(format!("{:#}", effective(&limits)), expected);
        }
    }

    #[test]
    fn a_fraction_is_rounded_up_where_it_is_worth_more_than_what_stopping_costs() {
        for (hundredths, threads) in [
            (1, 1),
            (50, 1),
            (100, 1),
            (104, 1),
            (106, 2),
            (150, 2),
            (200, 2),
            (210, 2),
            (211, 3),
            (830, 8),
            (850, 9),
        ] {
            assert_eq!(quota_threads(&quota(hundredths * 1000, 100_000)), threads, "{hundredths}");
        }
        assert_eq!(
            quota_threads(&quota(15_000, 10_000)),
            1,
            "half of a period of 10 ms is no more than a slice"
        );
    }

    proptest! {
        #[test]
        fn there_is_always_a_processor_and_never_more_than_allowed(
            cpus in proptest::collection::btree_set(0_usize..64, 1..20),
            cpuset in proptest::option::of(proptest::collection::btree_set(0_usize..64, 1..20)),
            bandwidth in proptest::option::of((1_u64..=u64::MAX, 1_u64..=u64::MAX)),
        ) {
            let affinity: CpuSet = cpus.into_iter().collect();
            let limits = ProcessorLimits {
                affinity: affinity.clone(),
                cpuset: cpuset.map(|cpus| cpus.into_iter().collect()),
                quota: bandwidth.map(|(time, period)| quota(time, period)),
                online: 64,
                unread: Vec::new(),
            };
            let found = effective(&limits).processors;
            prop_assert!((1..=affinity.len()).contains(&found));
            if let Some(quota) = &limits.quota {
                prop_assert!((found as f64) < quota.processors() + 1.0 || found == 1);
            }
        }
    }
}
