//! The parameters of two kernels' schedulers. The rules are in `queue.rs` and `place.rs`.

use unisono_linux::clock::Duration;
use unisono_text::named;

named! {
    "kernel";
    #[derive(Default)]
    pub enum KernelModel {
        /// Linux 2.6.32: CFS, as on the paper's machine.
        Cfs = "cfs-2.6.32",
        /// Linux 6.18: EEVDF, as on the host of the example study.
        #[default]
        Eevdf = "eevdf",
    }
}

/// A kernel's constants on a machine of a given size; times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tunables {
    pub(super) kernel: KernelModel,
    /// CONFIG_HZ=250: Debian's and Ubuntu's kernels of both times, and the example host.
    pub(super) tick: u64,
    /// CFS: each thread runs once in this time (sysctl_sched_latency).
    pub(super) latency: u64,
    /// CFS: the minimum share of the latency that a thread gets (sysctl_sched_min_granularity).
    pub(super) min_granularity: u64,
    /// CFS: a woken thread preempts if it is behind by more than this (sysctl_sched_wakeup_granularity).
    pub(super) wakeup_granularity: u64,
    /// EEVDF: the length of a thread's request (sysctl_sched_base_slice).
    pub(super) slice: u64,
    /// sysctl_sched_migration_cost: 0.5 ms in both kernels.
    pub(super) migration_cost: u64,
    /// Percentage of this core's load that the busiest core's load must exceed before a thread is moved.
    pub(super) imbalance: u64,
    /// Interval between two periodic balances of a busy core.
    pub(super) balance_busy: u64,
    /// Interval between two periodic balances of an idle core.
    pub(super) balance_idle: u64,
}

impl Tunables {
    pub(super) fn for_kernel(kernel: KernelModel, cores: usize) -> Self {
        const MS: u64 = 1_000_000;
        let cores = cores as u64;
        match kernel {
            KernelModel::Cfs => {
                // 2.6.32 sched_init_granularity: 1 + ilog2(cores), at most 200 ms
                let factor = 1 + u64::from(cores.ilog2());
                Self {
                    kernel,
                    tick: 4 * MS,
                    // 2.6.32 sched_fair.c: 5 ms, 1 ms, 1 ms
                    latency: (5 * MS * factor).min(200 * MS),
                    min_granularity: MS * factor,
                    wakeup_granularity: MS * factor,
                    slice: 0,
                    migration_cost: MS / 2,
                    // 2.6.32 include/linux/topology.h, SD_CPU_INIT: imbalance_pct 125, intervals 1 to 4 ms,
                    // busy_factor 64
                    imbalance: 125,
                    balance_busy: 64 * MS,
                    balance_idle: MS,
                }
            }
            KernelModel::Eevdf => Self {
                kernel,
                tick: 4 * MS,
                latency: 0,
                min_granularity: 0,
                wakeup_granularity: 0,
                // 6.18 fair.c: 0.7 ms times 1 + ilog2(min(cores, 8))
                slice: 700_000 * (1 + u64::from(cores.min(8).ilog2())),
                migration_cost: MS / 2,
                // 6.18 topology.c, sd_init: imbalance_pct 117, min_interval as many ms as cores,
                // busy_factor 16
                imbalance: 117,
                balance_busy: 16 * cores * MS,
                balance_idle: cores * MS,
            },
        }
    }
}

/// sched_prio_to_weight of kernel/sched/core.c: nice 0 is 1024, each step about 1.25.
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121,
    2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29,
    23, 18, 15,
];

/// WEIGHT_IDLEPRIO of kernel/sched/sched.h.
pub(super) const IDLE_WEIGHT: i64 = 3;
pub(super) const NICE_0: i64 = 1024;

pub(super) fn weight_of(nice: i8) -> i64 {
    WEIGHTS[(i32::from(nice) + 20).clamp(0, 39) as usize].into()
}

/// sysctl_sched_cfs_bandwidth_slice: the amount that a core takes from the quota at a time.
pub(super) const QUOTA_SLICE: Duration = Duration::from_millis(5);
