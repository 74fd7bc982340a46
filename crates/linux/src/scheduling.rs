//! The scheduling of a thread: `sched_setattr(2)`, `sched_getattr(2)`, `sched_setscheduler(2)`.
//!
//! A [`SchedulingPolicy`] is a class with its parameters, typed. Cost: one system call (about 1.2 us with
//! warm caches, four times that after another program has run). Raising a class needs `CAP_SYS_NICE` or a
//! resource limit. The kernel refuses the real-time classes (`EPERM`) in a non-root cgroup of the version 1
//! `cpu` controller that has no real-time budget. It refuses `SCHED_DEADLINE` if the thread may not use all
//! processors or the machine's bandwidth is used up (`EPERM`, `EBUSY`).
//!
//! Reference: sched(7), sched_setattr(2).

use crate::affinity::Tid;
use rustix::process::getpriority_process;
use std::fs;
use std::io;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingPolicy {
    /// The default fair class.
    Other {
        /// From -20 (most processor time) to 19.
        nice: i32,
        /// The slice that this thread requests (0.1 ms to 100 ms, kernels from 6.12 on); `None` is the
        /// kernel's default.
        slice: Option<Duration>,
    },
    /// Fair, but never preempts another thread on wake-up.
    Batch { nice: i32 },
    /// Fair with the least weight, preempted by every other fair thread.
    Idle,
    /// Scheduled by the scheduler that is loaded into the kernel (sched_ext); the same as `Other` while none
    /// is loaded.
    Extensible { nice: i32 },
    /// Real-time, runs until it sleeps or a more urgent thread becomes runnable.
    Fifo(Urgency),
    /// Real-time, takes turns with threads of the same urgency.
    RoundRobin(Urgency),
    /// Earliest deadline first within a reserved bandwidth; above all other classes.
    Deadline {
        /// Processor time granted in each period.
        runtime: Duration,
        /// The deadline, counted from the start of the period.
        deadline: Duration,
        period: Duration,
    },
}

/// A real-time priority, 1 (least urgent) to 99.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Urgency(u8);

impl Urgency {
    /// The least urgent real-time priority.
    pub const MIN: Urgency = Urgency(1);
    /// The most urgent priority; the kernel's own migration threads are above it.
    pub const MAX: Urgency = Urgency(99);

    /// Makes a priority, clamped to 1..=99.
    pub fn new(priority: u8) -> Self {
        Self(priority.clamp(1, 99))
    }

    pub fn number(self) -> u8 {
        self.0
    }
}

/// Whether children start with the parent's class or with the default class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    Inherit,
    /// Children start as `Other { nice: 0 }`; required to fork from [`SchedulingPolicy::Deadline`].
    Reset,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const RESET_ON_FORK: u64 = 1;
const SCHED_FIFO: u32 = 1;
const SCHED_RR: u32 = 2;
const SCHED_BATCH: u32 = 3;
const SCHED_IDLE: u32 = 5;
const SCHED_DEADLINE: u32 = 6;
const SCHED_EXT: u32 = 7;

impl SchedulingPolicy {
    /// The class of a thread without changes.
    pub const DEFAULT: SchedulingPolicy = SchedulingPolicy::Other { nice: 0, slice: None };

    fn attributes(&self, children: Children) -> SchedulingAttributes {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut attributes = SchedulingAttributes {
            size: std::mem::size_of::<SchedulingAttributes>() as u32,
            flags: if children == Children::Reset { RESET_ON_FORK } else { 0 },
            ..SchedulingAttributes::default()
        };
        match *self {
            SchedulingPolicy::Other { nice, slice } => {
                attributes.nice = nice;
                attributes.runtime = slice.map_or(0, nanos);
            }
            SchedulingPolicy::Batch { nice } => {
                attributes.policy = SCHED_BATCH;
                attributes.nice = nice;
            }
            SchedulingPolicy::Idle => attributes.policy = SCHED_IDLE,
            SchedulingPolicy::Extensible { nice } => {
                attributes.policy = SCHED_EXT;
                attributes.nice = nice;
            }
            SchedulingPolicy::Fifo(urgency) => {
                attributes.policy = SCHED_FIFO;
                attributes.priority = urgency.0.into();
            }
            SchedulingPolicy::RoundRobin(urgency) => {
                attributes.policy = SCHED_RR;
                attributes.priority = urgency.0.into();
            }
            SchedulingPolicy::Deadline { runtime, deadline, period } => {
                attributes.policy = SCHED_DEADLINE;
                attributes.runtime = nanos(runtime);
                attributes.deadline = nanos(deadline);
                attributes.period = nanos(period);
            }
        }
        attributes
    }
}

/// Puts the calling thread into a class. Fails with `EPERM` without permission (see the module's text),
/// `EINVAL` for parameters out of range, and `EBUSY` if the deadline class has no bandwidth left. Another
/// thread is put there through [`crate::pinned::PinnedThread::set_class`].
pub fn set_own(policy: SchedulingPolicy, children: Children) -> io::Result<()> {
    set(Tid::SELF, policy, children)
}

/// Puts the thread that has this number now into a class. Fails as [`set_own`] does, and with `ESRCH` if
/// there is no such thread.
pub(crate) fn set(thread: Tid, policy: SchedulingPolicy, children: Children) -> io::Result<()> {
    let attributes = policy.attributes(children);
    // SAFETY: `attributes` has the kernel's layout (its first version) and contains its own size.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, thread.0, &raw const attributes, 0u32) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the class that a thread is in.
pub fn get(thread: Tid) -> io::Result<SchedulingPolicy> {
    let attributes = attributes_of(thread)?;
    let urgency = Urgency::new(u8::try_from(attributes.priority).unwrap_or(99));
    Ok(match attributes.policy {
        SCHED_FIFO => SchedulingPolicy::Fifo(urgency),
        SCHED_RR => SchedulingPolicy::RoundRobin(urgency),
        SCHED_BATCH => SchedulingPolicy::Batch { nice: attributes.nice },
        SCHED_IDLE => SchedulingPolicy::Idle,
        SCHED_EXT => SchedulingPolicy::Extensible { nice: attributes.nice },
        SCHED_DEADLINE => SchedulingPolicy::Deadline {
            runtime: Duration::from_nanos(attributes.runtime),
            deadline: Duration::from_nanos(attributes.deadline),
            period: Duration::from_nanos(attributes.period),
        },
        // every fair thread reports a slice; a requested slice cannot be distinguished here from the kernel's
        // default, so it is not reported
        _ => SchedulingPolicy::Other { nice: attributes.nice, slice: None },
    })
}

/// Returns the slice of a fair thread. A kernel before 6.12 has no slices per thread: the result is zero
/// there.
pub(crate) fn slice_of(thread: Tid) -> io::Result<Duration> {
    Ok(Duration::from_nanos(attributes_of(thread)?.runtime))
}

fn attributes_of(thread: Tid) -> io::Result<SchedulingAttributes> {
    let mut attributes = SchedulingAttributes::default();
    let size = std::mem::size_of::<SchedulingAttributes>() as u32;
    // SAFETY: `attributes` is valid for writes of `size` bytes for the length of the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, thread.0, &raw mut attributes, size, 0u32) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(attributes) }
}

/// Returns the threads of the process that has this number now.
pub fn threads_of(process: u32) -> io::Result<Vec<Tid>> {
    let entries = fs::read_dir(format!("/proc/{process}/task"))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Tid)).collect())
}

/// Returns the nice value of a thread; in a class that is not fair, the value that applies again when it
/// returns to a fair class.
pub fn nice_of(thread: Tid) -> io::Result<i32> {
    Ok(getpriority_process(thread.pid())?)
}

/// Puts a thread into the class of the scheduler that is loaded into the kernel (sched_ext), with the nice
/// value that the thread has. Fails as [`set`] does, and with `EINVAL` if the kernel has no sched_ext.
pub(crate) fn set_extensible(thread: Tid) -> io::Result<()> {
    set(thread, SchedulingPolicy::Extensible { nice: nice_of(thread)? }, Children::Inherit)
}

/// Puts a thread back into the default class, with the nice value that it had before. Fails as [`set`] does.
pub(crate) fn set_fair(thread: Tid) -> io::Result<()> {
    set(thread, SchedulingPolicy::Other { nice: nice_of(thread)?, slice: None }, Children::Inherit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_asks_for_the_idle_class_is_in_it() {
        std::thread::spawn(|| {
            set(Tid::SELF, SchedulingPolicy::Idle, Children::Inherit).expect("lowering is always permitted");
            assert_eq!(get(Tid::SELF).expect("own class"), SchedulingPolicy::Idle);
        })
        .join()
        .expect("thread");
    }

    #[test]
    fn niceness_is_reported_as_it_was_set() {
        std::thread::spawn(|| {
            let policy = SchedulingPolicy::Batch { nice: 7 };
            set(Tid::SELF, policy, Children::Inherit).expect("lowering is always permitted");
            assert_eq!(get(Tid::current()).expect("own class"), policy);
        })
        .join()
        .expect("thread");
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let backwards = SchedulingPolicy::Deadline {
            runtime: Duration::from_millis(5),
            deadline: Duration::from_millis(1),
            period: Duration::from_millis(1),
        };
        assert!(set(Tid::SELF, backwards, Children::Reset).is_err());
        assert_eq!(Urgency::new(0), Urgency::MIN);
        assert_eq!(Urgency::new(200), Urgency::MAX);
    }

    #[test]
    fn a_thread_that_was_in_another_class_comes_back_with_its_nice_value() {
        std::thread::spawn(|| {
            set(Tid::SELF, SchedulingPolicy::Other { nice: 7, slice: None }, Children::Inherit)
                .expect("lowering");
            set(Tid::SELF, SchedulingPolicy::Batch { nice: 7 }, Children::Inherit).expect("always permitted");
            assert_eq!(nice_of(Tid::SELF).expect("own nice value"), 7);
            set_fair(Tid::SELF).expect("always permitted");
            assert_eq!(get(Tid::SELF).expect("own class"), SchedulingPolicy::Other { nice: 7, slice: None });
        })
        .join()
        .expect("thread");
    }
}
