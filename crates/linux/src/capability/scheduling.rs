//! Scheduling classes and their limits.
//!
//! Reference: sched(7), sched_setattr(2), Documentation/scheduler/sched-rt-group.rst, sched-ext.rst.

use super::cgroups;
use super::scratch::{errno, in_thread, words};
use super::{OUTSIDE_REMEDY, ProbedHost, TrialFinding};
use crate::affinity::Tid;
use crate::process::is_root;
use crate::scheduling::{self, Children, SchedulingPolicy, Urgency};
use std::time::Duration;

/// Requests `SCHED_FIFO` at priority 1 in a thread that ends at once.
pub(super) fn real_time(host: &ProbedHost) -> TrialFinding {
    let first = SchedulingPolicy::Fifo(Urgency::MIN);
    let errno = in_thread(|| errno(scheduling::set(Tid::SELF, first, Children::Inherit)));
    match errno {
        0 => TrialFinding::found("SCHED_FIFO and SCHED_RR, priorities 1 to 99"),
        libc::EPERM => refused(host),
        errno => TrialFinding::missing(format!("sched_setattr: {}", words(errno)), "none known"),
    }
}

/// Returns the reason why the kernel refuses a real-time class with EPERM: no privilege, or a control group
/// without a share.
fn refused(host: &ProbedHost) -> TrialFinding {
    if let Some(group) = cgroups::own_v1(host, "cpu") {
        let budget = group.join("cpu.rt_runtime_us");
        let read = std::fs::read_to_string(&budget);
        if read.is_ok_and(|text| text.trim() == "0") {
            let budget = budget.display();
            return TrialFinding::missing(
                format!("this control group has no real-time share: {budget} is 0"),
                format!(
                    "echo 100000 > {budget} as root (its parent needs as much), or start from the root cpu group"
                ),
            );
        }
    }
    if is_root() {
        TrialFinding::missing("root here lacks CAP_SYS_NICE", "start the container with --cap-add SYS_NICE")
    } else {
        TrialFinding::missing(
            "it needs root or a real-time limit (RLIMIT_RTPRIO)",
            "run as root, or add `@group - rtprio 99` to /etc/security/limits.conf and log in again",
        )
    }
}

pub(super) fn throttling(host: &ProbedHost) -> TrialFinding {
    let value = |name| {
        let path = format!("proc/sys/kernel/{name}");
        let text = host.kernel_file(&path, "proc/sys/kernel")?.ok_or(format!("/{path} does not exist"))?;
        text.parse::<i64>().map_err(|_| format!("/{path} is no number: {text}"))
    };
    let (runtime, period) = match (value("sched_rt_runtime_us"), value("sched_rt_period_us")) {
        (Ok(runtime), Ok(period)) => (runtime, period),
        (Err(reason), _) | (_, Err(reason)) => return TrialFinding::undecided(reason, OUTSIDE_REMEDY),
    };
    if runtime < 0 || period <= 0 {
        return TrialFinding::missing(
            "it is off (sched_rt_runtime_us is -1): a real-time loop can take the machine away",
            "sysctl kernel.sched_rt_runtime_us=950000",
        );
    }
    TrialFinding::found(format!(
        "{runtime} of {period} us: {:.0} % stay for other classes",
        100.0 - 100.0 * runtime as f64 / period as f64
    ))
}

/// Requests 1 ms in 100 ms with `SCHED_DEADLINE` in a thread that ends at once.
pub(super) fn deadline(_: &ProbedHost) -> TrialFinding {
    let policy = SchedulingPolicy::Deadline {
        runtime: Duration::from_millis(1),
        deadline: Duration::from_millis(100),
        period: Duration::from_millis(100),
    };
    let errno = in_thread(|| errno(scheduling::set(Tid::SELF, policy, Children::Inherit)));
    match errno {
        0 => TrialFinding::found("admitted 1 ms in 100 ms"),
        libc::EPERM if is_root() => TrialFinding::missing(
            "refused to root: the thread may not use all processors, or CAP_SYS_NICE is missing",
            "start without taskset and outside a cpuset; SCHED_FIFO is used instead",
        ),
        libc::EPERM => TrialFinding::missing("it needs root", "run as root"),
        libc::EBUSY => TrialFinding::missing(
            "its bandwidth is taken by others",
            "end other SCHED_DEADLINE threads; SCHED_FIFO is used instead",
        ),
        errno => TrialFinding::missing(
            format!("sched_setattr: {}", words(errno)),
            "use Linux 3.14 or newer; SCHED_FIFO is used instead",
        ),
    }
}

pub(super) fn autogroup(host: &ProbedHost) -> TrialFinding {
    match host.kernel_file("proc/sys/kernel/sched_autogroup_enabled", "proc/sys/kernel") {
        Ok(Some(state)) if state == "0" => {
            TrialFinding::missing("switched off", "nothing to do: nice then works across terminal sessions")
        }
        // MPICH starts each rank in a session of its own, so ranks that share a processor cannot yield it to
        // each other.
        Ok(Some(_)) => TrialFinding::found("on").with_hint(
            "nice and yielding have no effect across sessions, and MPICH's ranks are one each; \
             sysctl kernel.sched_autogroup_enabled=0",
        ),
        Ok(None) => TrialFinding::missing(
            "this kernel was built without it",
            "nothing to do: nice then works across terminal sessions",
        ),
        Err(reason) => TrialFinding::undecided(reason, OUTSIDE_REMEDY),
    }
}

pub(super) fn sched_ext(host: &ProbedHost) -> TrialFinding {
    match host.kernel_file("sys/kernel/sched_ext/state", "sys/kernel") {
        Ok(Some(state)) if state == "disabled" => {
            TrialFinding::found("no scheduler is loaded; unisono gang run --mechanism sched-ext loads one").with_hint(
                "it needs root, clang with the headers of libbpf, and cgroup version 2; beside programs that keep the \
                 processors busy use another mechanism",
            )
        }
        Ok(Some(state)) => {
            let name = host.read("sys/kernel/sched_ext/root/ops").unwrap_or_else(|| "unknown".to_owned());
            TrialFinding::missing(
                format!("the scheduler {name} is loaded ({state}), and the kernel takes one at a time"),
                "end it for unisono gang run --mechanism sched-ext; the other mechanisms do not need this",
            )
        }
        Err(reason) => TrialFinding::undecided(reason, OUTSIDE_REMEDY),
        Ok(None) => TrialFinding::missing(
            "/sys/kernel/sched_ext does not exist: this kernel was built without CONFIG_SCHED_CLASS_EXT",
            "boot a kernel of Linux 7.0 or newer that has it, for unisono gang run --mechanism sched-ext; the other \
             mechanisms do not need it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeRoot;
    use super::*;

    #[test]
    fn throttling_says_what_stays_for_others() {
        let root = FakeRoot::with(
            "throttled",
            &[
                ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
                ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
            ],
        );
        assert_eq!(throttling(&root.0).detail, "950000 of 1000000 us: 5 % stay for other classes");
    }

    #[test]
    fn throttling_that_is_off_is_reported_as_missing() {
        let root = FakeRoot::with(
            "unthrottled",
            &[
                ("proc/sys/kernel/sched_rt_runtime_us", "-1\n"),
                ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
            ],
        );
        assert!(!throttling(&root.0).is_found());
    }

    #[test]
    fn a_scheduler_that_somebody_else_has_loaded_is_in_the_way() {
        let with = |name, state, ops| {
            let files = [("sys/kernel/sched_ext/state", state), ("sys/kernel/sched_ext/root/ops", ops)];
            sched_ext(&FakeRoot::with(name, &files).0)
        };
        assert!(with("sched-ext-free", "disabled\n", "").is_found());
        let taken = with("sched-ext-taken", "enabled\n", "rusty\n");
        assert!(!taken.is_found());
        assert!(taken.reason.is_some_and(|reason| reason.contains("rusty")));
    }

    #[test]
    fn a_host_without_files_is_described_without_a_panic() {
        let root = FakeRoot::with("scheduling-empty", &[]);
        for probe in [throttling, autogroup, sched_ext] {
            assert!(!probe(&root.0).is_found());
        }
    }
}
