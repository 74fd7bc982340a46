//! BPF: the system call, the JIT compiler behind it, type information.
//!
//! Reference: bpf(2), Documentation/admin-guide/sysctl/net.rst (bpf_jit_enable).

use super::scratch::{close, errno_of, words};
use super::{OUTSIDE_REMEDY, ProbedHost, TrialFinding};
use crate::bpf::ClassifierProgram;
use crate::process::is_root;
use std::fs;
use std::io;

const PROG_LOAD: i32 = 5;
const SOCKET_FILTER: u32 = 1;

/// The head of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
struct Load {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
}

/// Loads a classifier that reads the sender's control group (`bpf_skb_ancestor_cgroup_id`), and drops it.
pub(super) fn classifier(_: &ProbedHost) -> TrialFinding {
    // mov r2, 1; call 83; mov r0, 0; exit
    let instructions = [0x1_0000_02b7, 0x53_0000_0085, 0xb7, 0x95];
    match ClassifierProgram::load("unisono_probe", &instructions) {
        Ok(_) => TrialFinding::found("the kernel accepts one that compares control groups"),
        Err(_) if !is_root() => {
            TrialFinding::missing("it needs root", "run as root: unisono queue apply needs it")
        }
        Err(error) => TrialFinding::missing(
            error.to_string().replace('\n', " "),
            "use a kernel of 4.19 or later with CONFIG_NET_CLS_BPF and CONFIG_CGROUPS: unisono queue apply needs it",
        ),
    }
}

/// Loads `return 0` as a socket filter and drops it.
pub(super) fn syscall(host: &ProbedHost) -> TrialFinding {
    // mov r0, 0; exit
    let instructions: [u64; 2] = [0xb7, 0x95];
    let attributes = Load {
        program_type: SOCKET_FILTER,
        instruction_count: 2,
        instructions: instructions.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        ..Load::default()
    };
    // SAFETY: `attributes` and its pointers are valid for reads; the size is its own.
    let program =
        unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const attributes, size_of::<Load>()) };
    match errno_of(program) {
        0 => {
            close(program as i32);
            TrialFinding::found("the kernel accepts a program")
        }
        libc::EPERM if !is_root() => {
            let setting = host.read("proc/sys/kernel/unprivileged_bpf_disabled");
            TrialFinding::missing(
                format!(
                    "it needs root (kernel.unprivileged_bpf_disabled is {})",
                    setting.as_deref().unwrap_or("unknown")
                ),
                "run as root: barriers in the switches (unisono tree deploy) need it",
            )
        }
        errno => TrialFinding::missing(
            format!("bpf: {}", words(errno)),
            "use a kernel with CONFIG_BPF_SYSCALL, outside a filter on system calls: unisono tree deploy needs it",
        ),
    }
}

pub(super) fn jit(host: &ProbedHost) -> TrialFinding {
    match host.read("proc/sys/net/core/bpf_jit_enable").as_deref() {
        Some("0") => {
            TrialFinding::missing("net.core.bpf_jit_enable is 0", "sysctl net.core.bpf_jit_enable=1")
        }
        Some(_) => TrialFinding::found("programs are compiled"),
        // only the first network namespace shows the file (Documentation/admin-guide/sysctl/net.rst)
        None => TrialFinding::undecided(
            "/proc/sys/net/core/bpf_jit_enable cannot be read: not in this network namespace, or not built in",
            "look again outside the container; without a compiler the kernel interprets BPF programs",
        ),
    }
}

pub(super) fn btf(host: &ProbedHost) -> TrialFinding {
    match (host.exists("sys/kernel/btf/vmlinux"), host.exists("sys/kernel")) {
        (true, _) => TrialFinding::found("/sys/kernel/btf/vmlinux"),
        (false, true) => TrialFinding::missing(
            "/sys/kernel/btf/vmlinux does not exist: the kernel carries no type information",
            "use a kernel with CONFIG_DEBUG_INFO_BTF; the BPF queueing discipline needs it",
        ),
        (false, false) => TrialFinding::undecided("/sys/kernel does not exist here", OUTSIDE_REMEDY),
    }
}

/// Checks whether BPF programs can implement queueing disciplines: the kernel's types then include the
/// structure that such programs fill in.
pub(super) fn qdisc(host: &ProbedHost) -> TrialFinding {
    const STRUCTURE: &[u8] = b"\0bpf_struct_ops_Qdisc_ops\0";
    const REMEDY: &str = "use Linux 6.16 or later with CONFIG_NET_SCH_BPF for fair queuing inside the kernel; HTB \
                          shares a link without it";
    let types = match fs::read(host.path("sys/kernel/btf/vmlinux")) {
        Ok(types) => types,
        Err(error) if error.kind() == io::ErrorKind::NotFound && host.exists("sys/kernel") => {
            return TrialFinding::missing("the kernel carries no type information", REMEDY);
        }
        Err(error) => {
            let why = words(error.raw_os_error().unwrap_or(libc::EIO));
            return TrialFinding::undecided(
                format!("/sys/kernel/btf/vmlinux cannot be read: {why}"),
                OUTSIDE_REMEDY,
            );
        }
    };
    if types.windows(STRUCTURE.len()).any(|window| window == STRUCTURE) {
        TrialFinding::found("a BPF program can be a queueing discipline")
    } else {
        TrialFinding::missing("this kernel has no queueing disciplines made of BPF programs", REMEDY)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeRoot;
    use super::*;

    #[test]
    fn the_bpf_queueing_discipline_is_found_by_the_kernel_s_own_words() {
        let found =
            |name, words| qdisc(&FakeRoot::with(name, &[("sys/kernel/btf/vmlinux", words)]).0).is_found();
        assert!(found("qdisc", "\0bpf_struct_ops_Qdisc_ops\0"));
        assert!(!found("no-qdisc", "\0bpf_struct_ops_tcp_congestion_ops\0"));
        assert!(!qdisc(&FakeRoot::with("no-types", &[]).0).is_found(), "there is nothing to read");
    }
}
