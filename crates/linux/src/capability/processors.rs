//! Processors, clocks, counters, and virtualization.
//!
//! Reference: perf_event_open(2), proc(5) on `/proc/stat`,
//! Documentation/ABI/testing/sysfs-devices-system-clocksource.

use super::scratch::{close, errno_of, words};
use super::{OUTSIDE_REMEDY, ProbedHost, TrialFinding};
use crate::affinity::{self, Tid};
use crate::processor_ticks::ProcessorTicks;
use crate::topology::Topology;

pub(super) fn cores(_: &ProbedHost) -> TrialFinding {
    let machine = Topology::read();
    let allowed = affinity::allowed(Tid::SELF).unwrap_or_else(|_| machine.numbers());
    let usable = machine.within(&allowed);
    let detail = if usable.cpus.len() == machine.cpus.len() {
        format!("{machine}")
    } else {
        format!("{usable}; this process may use processors {allowed} of {}", machine.cpus.len())
    };
    if usable.cpus.len() < 2 {
        return TrialFinding::found(detail)
            .with_hint("with one processor nothing can run in step: use a machine with two or more");
    }
    TrialFinding::found(detail)
}

pub(super) fn clock(host: &ProbedHost) -> TrialFinding {
    let base = "sys/devices/system/clocksource/clocksource0";
    let Some(current) = host.read(&format!("{base}/current_clocksource")) else {
        return TrialFinding::undecided(
            "the clock source is not described in /sys/devices/system/clocksource",
            OUTSIDE_REMEDY,
        );
    };
    let others = host.read(&format!("{base}/available_clocksource")).unwrap_or_default();
    let flags = host.read("proc/cpuinfo").unwrap_or_default();
    let steady = ["constant_tsc", "nonstop_tsc"]
        .iter()
        .all(|wanted| flags.split_ascii_whitespace().any(|flag| flag == *wanted));
    let found = TrialFinding::found(format!(
        "{current}{} (available: {others})",
        if steady { ", with a time-stamp counter that runs at one rate" } else { "" }
    ));
    match current.as_str() {
        "tsc" | "arch_sys_counter" | "kvm-clock" => found,
        _ => found.with_hint(format!(
            "reading {current} costs a system call or more: times below a few microseconds are not to be trusted"
        )),
    }
}

/// Opens a counter of processor cycles for this thread.
pub(super) fn perf_counters(host: &ProbedHost) -> TrialFinding {
    const CLOSE_ON_EXEC: u64 = 1 << 3;
    const FIRST_SIZE: u64 = 64;
    const DISABLED: u64 = 1;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    // struct perf_event_attr, first version: type 0 (hardware) and size, config 0 (cycles), ..., flags
    let attributes: [u64; 8] =
        [FIRST_SIZE << 32, 0, 0, 0, 0, DISABLED | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR, 0, 0];
    // SAFETY: `attributes` is valid for reads of the size that it contains; pid 0 is this thread.
    let counter =
        unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, CLOSE_ON_EXEC) };
    match errno_of(counter) {
        0 => {
            close(counter as i32);
            TrialFinding::found("hardware counters")
        }
        libc::EACCES | libc::EPERM => TrialFinding::missing(
            format!(
                "refused (kernel.perf_event_paranoid is {})",
                host.read("proc/sys/kernel/perf_event_paranoid").as_deref().unwrap_or("unknown")
            ),
            "run as root or sysctl kernel.perf_event_paranoid=1; nothing in this version uses them",
        ),
        libc::ENOENT | libc::EOPNOTSUPP => TrialFinding::missing(
            "the kernel offers no hardware counters (usual in a virtual machine)",
            "enable the virtual performance counters in the hypervisor; nothing in this version uses them",
        ),
        errno => TrialFinding::missing(
            format!("perf_event_open: {}", words(errno)),
            "use a kernel with CONFIG_PERF_EVENTS; nothing in this version uses them",
        ),
    }
}

/// Checks whether this system runs in a virtual machine or a container.
pub(super) fn virtualization(host: &ProbedHost) -> TrialFinding {
    match kind(host) {
        Some(what) => TrialFinding::found(what).with_hint(
            "waking a halted virtual processor is slow, and others may take its time: watch the spread",
        ),
        None if host.read("proc/cpuinfo").is_none() => {
            TrialFinding::undecided("/proc/cpuinfo cannot be read", OUTSIDE_REMEDY)
        }
        None => TrialFinding::missing(
            "no sign of a virtual machine or a container",
            "nothing to do: that is best",
        ),
    }
}

fn kind(host: &ProbedHost) -> Option<String> {
    let vendor = host
        .read("sys/class/dmi/id/sys_vendor")
        .or_else(|| host.read("sys/hypervisor/type"))
        .filter(|vendor| !vendor.is_empty());
    let flags = host.read("proc/cpuinfo").unwrap_or_default();
    let machine = flags.split_ascii_whitespace().any(|flag| flag == "hypervisor").then(|| match vendor {
        Some(vendor) => format!("a virtual machine ({vendor})"),
        None => "a virtual machine".to_owned(),
    });
    let container = ["/.dockerenv", "/run/.containerenv"].iter().any(|file| host.exists(file))
        || host.read("proc/1/environ").is_some_and(|environment| environment.contains("container="));
    match (machine, container) {
        (Some(machine), true) => Some(format!("a container in {machine}")),
        (Some(machine), false) => Some(machine),
        (None, true) => Some("a container".to_owned()),
        (None, false) => None,
    }
}

/// Checks whether the kernel reports how much time the hypervisor took.
pub(super) fn steal(host: &ProbedHost) -> TrialFinding {
    let Some(ticks) = host.read("proc/stat").and_then(|text| ProcessorTicks::parse(&text)) else {
        return TrialFinding::undecided("/proc/stat cannot be read", OUTSIDE_REMEDY);
    };
    let Some(stolen) = ticks.steal else {
        return TrialFinding::missing(
            "/proc/stat has no steal column",
            "time taken by a hypervisor cannot be told apart",
        );
    };
    let share = 100.0 * stolen as f64 / ticks.all().max(1) as f64;
    TrialFinding::found(format!("accounted; {share:.2} % since boot"))
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeRoot;
    use super::*;

    #[test]
    fn steal_is_a_share_of_all_time() {
        let root = FakeRoot::with("steal", &[("proc/stat", "cpu  50 0 0 25 0 0 0 25 0 0\ncpu0 1 1\n")]);
        assert_eq!(steal(&root.0).detail, "accounted; 25.00 % since boot");
    }

    #[test]
    fn a_kernel_without_a_steal_column_is_named() {
        let root = FakeRoot::with("no-steal", &[("proc/stat", "cpu 50 0 0 25\n")]);
        assert!(!steal(&root.0).is_found());
    }

    #[test]
    fn a_container_in_a_virtual_machine_is_both() {
        let root = FakeRoot::with(
            "nested",
            &[
                ("proc/cpuinfo", "flags : fpu hypervisor\n"),
                (".dockerenv", ""),
                ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
            ],
        );
        assert_eq!(virtualization(&root.0).detail, "a container in a virtual machine (QEMU)");
    }

    #[test]
    fn a_slow_clock_source_comes_with_a_warning() {
        let root = FakeRoot::with(
            "hpet",
            &[("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n")],
        );
        assert!(clock(&root.0).remedy.is_some());
    }
}
