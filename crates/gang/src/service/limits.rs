//! The quotas of the daemon's gangs: each gang is held to its quota by its turns, so that the kernel does not
//! stop its threads one by one (see `turn_quota.rs`).
//!
//! Gangs below the same quota get equal parts of it. A quota may change while the gangs run, so it is read
//! again periodically. Cost: reads of two or three small files for each group that contains a gang's process,
//! ancestors included.

use crate::gang::GangId;
use crate::turn_quota::TurnQuota;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unisono_linux::affinity::Tid;
use unisono_linux::quota;

/// A quota and the control group that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GangQuota {
    group: PathBuf,
    quota: TurnQuota,
}

impl GangQuota {
    /// Returns the smallest quota that applies to a process, if there is one.
    pub(super) fn for_process(process: Tid) -> Option<GangQuota> {
        let found = quota::limits_of(process).ok()?.quota?;
        Some(GangQuota { quota: TurnQuota::from(&found), group: found.group })
    }
}

/// Returns each gang's part of its quota.
pub(super) fn parts(gangs: &BTreeMap<GangId, GangQuota>) -> BTreeMap<GangId, TurnQuota> {
    let below = |group: &Path| gangs.values().filter(|other| other.group == group).count();
    gangs.iter().map(|(id, gang)| (*id, gang.quota.shared_by(below(&gang.group)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_linux::clock::Duration;

    #[test]
    fn gangs_below_one_quota_share_it() {
        let gang = |group: &str, time| GangQuota {
            group: group.into(),
            quota: TurnQuota { time: Duration::from_nanos(time), period: Duration::from_nanos(100) },
        };
        let gangs = [(GangId(0), gang("/a", 90)), (GangId(1), gang("/b", 50)), (GangId(2), gang("/a", 90))];
        let times: Vec<u64> = parts(&gangs.into()).values().map(|part| part.time.as_nanos()).collect();
        assert_eq!(times, [45, 50, 45]);
    }
}
