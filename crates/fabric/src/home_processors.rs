//! Home processors: the processor on which a member's process runs and its node receives frames.
//!
//! A release wakes all members in one pass through the kernel, on the processor of the member that arrived
//! last. These wake-ups took half of the time of a barrier among 256 members, 4 us each under tracing. The
//! probable reason is that the kernel takes the lock of another processor's run queue to wake a process
//! there. So with many members for each processor, each process is bound to one processor, and the frames of
//! its node are received there (receive packet steering, set as the default of the node's namespace). The
//! release is then queued at every processor, and each processor wakes its own members.
//!
//! Barriers in the switches and in software run in the same way. With few members, the scheduler places
//! processes better than this module could, so this module changes no settings. A kernel without
//! `rps_default_mask` (before 6.3) receives on the sending processor. Reference:
//! Documentation/networking/scaling.rst (RPS), Documentation/admin-guide/sysctl/net.rst.

use std::collections::BTreeMap;
use std::fs;
use unisono_btin::NodeId;
use unisono_linux::affinity::{self, CpuSet, Tid};

/// With fewer members than this for each processor, the scheduler places the processes. Chosen, not measured.
const MIN_MEMBERS_PER_PROCESSOR: usize = 16;

/// The home processor of each member. Empty if there are few members.
#[derive(Clone, Debug, Default)]
pub struct HomeProcessors(BTreeMap<NodeId, usize>);

impl HomeProcessors {
    /// Distributes members over the processors that this process may use.
    pub fn distribute(members: &[NodeId]) -> Self {
        affinity::allowed(Tid::SELF)
            .map_or_else(|_| Self::default(), |allowed| Self::distribute_over(&allowed, members))
    }

    fn distribute_over(processors: &CpuSet, members: &[NodeId]) -> Self {
        if processors.len() < 2 || members.len() < MIN_MEMBERS_PER_PROCESSOR * processors.len() {
            return Self::default();
        }
        let all: Vec<usize> = processors.iter().collect();
        Self(members.iter().copied().zip(all.into_iter().cycle()).collect())
    }

    /// Keeps the calling process on the member's home processor.
    pub(crate) fn pin(&self, member: NodeId) {
        if let Some(processor) = self.0.get(&member) {
            let _ = affinity::restrict_own(&CpuSet::single(*processor)); // an error only costs speed
        }
    }

    /// Makes future devices in the calling thread's namespace receive on the member's home processor.
    pub(crate) fn steer_receive(&self, member: NodeId) {
        if let Some(processor) = self.0.get(&member) {
            // if this fails, because the kernel has no such file, the node receives on the sending processor
            let _ = fs::write("/proc/sys/net/core/rps_default_mask", mask(*processor));
        }
    }
}

/// Returns the kernel's mask of one processor: words of 32 bits, the highest first.
fn mask(processor: usize) -> String {
    format!("{:x}{}", 1_u32 << (processor % 32), ",00000000".repeat(processor / 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_members_are_shared_out_evenly_and_few_are_left_alone() {
        let processors: CpuSet = [1, 5].into_iter().collect();
        let members: Vec<NodeId> = (0..40).map(|number| NodeId(7 * number)).collect();
        let homes = HomeProcessors::distribute_over(&processors, &members);
        for processor in processors.iter() {
            assert_eq!(homes.0.values().filter(|home| **home == processor).count(), 20);
        }
        assert!(HomeProcessors::distribute_over(&processors, &members[..31]).0.is_empty());
        assert!(
            HomeProcessors::distribute_over(&CpuSet::single(3), &members).0.is_empty(),
            "there is nothing to choose"
        );
    }

    #[test]
    fn a_mask_is_written_as_the_kernel_reads_it() {
        assert_eq!([0, 1, 31].map(mask), ["1", "2", "80000000"]);
        assert_eq!([32, 69].map(mask), ["1,00000000", "20,00000000,00000000"]);
    }
}
