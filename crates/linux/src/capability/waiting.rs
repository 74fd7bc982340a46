//! Kernel features for waiting: futex2, membarrier, restartable sequences and their extension.
//!
//! Reference: futex_waitv (Documentation/userspace-api/futex2.rst), membarrier(2), rseq(2), and for longer
//! slices Documentation/userspace-api/rseq.rst.

use super::scratch::{errno, errno_of, words};
use super::{ProbedHost, TrialFinding};
use crate::current_cpu::area_in_use;
use rustix::thread::futex::{ClockId, WaitvFlags, waitv};

pub(super) fn futex_waitv(_: &ProbedHost) -> TrialFinding {
    // with no words to wait for, the kernel refuses with EINVAL
    match errno(waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic)) {
        0 | libc::EINVAL => TrialFinding::found("waits for several words at once"),
        errno => TrialFinding::missing(
            format!("futex_waitv: {}", words(errno)),
            "use Linux 5.16 or newer, without a filter on system calls; waiting for one word works anyway",
        ),
    }
}

pub(super) fn membarrier(_: &ProbedHost) -> TrialFinding {
    // SAFETY: the query command takes no pointers and changes nothing.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) };
    if commands < 0 {
        return TrialFinding::missing(
            format!("membarrier: {}", words(errno_of(commands))),
            "use Linux 4.14 or newer with CONFIG_MEMBARRIER; barriers fence both sides instead",
        );
    }
    let private = commands & i64::from(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0;
    let shared = commands & i64::from(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0;
    match (private, shared) {
        (true, true) => TrialFinding::found("expedited, within a process and between processes"),
        (true, false) => TrialFinding::found("expedited, within a process only"),
        _ => TrialFinding::missing(
            "membarrier offers no expedited commands",
            "use Linux 4.16 or newer without nohz_full processors",
        ),
    }
}

pub(super) fn rseq(_: &ProbedHost) -> TrialFinding {
    // SAFETY: a null area of length 0 is refused with EINVAL (or EPERM, EBUSY where an area is registered)
    // and registers nothing.
    let result = unsafe { libc::syscall(libc::SYS_rseq, std::ptr::null::<u8>(), 0, 0, 0) };
    match errno_of(result) {
        errno @ libc::ENOSYS => TrialFinding::missing(
            format!("rseq: {}", words(errno)),
            "use Linux 4.18 or newer with CONFIG_RSEQ; the current processor is then asked for by getcpu",
        ),
        _ => TrialFinding::found("the current processor is known without a system call"),
    }
}

/// `PR_RSEQ_SLICE_EXTENSION` and its request for the present state, which changes nothing.
const SLICE_EXTENSION: i32 = 79;
const ASK_FOR_STATE: libc::c_ulong = 1;
/// The kernel's error if it was built without longer slices, or started with `rseq_slice_ext=0`. It is the
/// kernel's own ENOTSUPP, not the EOPNOTSUPP of programs.
const SWITCHED_OFF: i32 = 524;
/// A thread's rseq area needs this many bytes; the last of them hold the word that requests a longer slice.
const AREA_WITH_SLICES: u32 = 32;

/// Finds out whether a thread may keep its processor for some microseconds after its slice is over (Linux
/// 7.0).
pub(super) fn slice_extension(_: &ProbedHost) -> TrialFinding {
    let none: libc::c_ulong = 0;
    // SAFETY: this request takes no pointers and changes nothing.
    let result = unsafe { libc::prctl(SLICE_EXTENSION, ASK_FOR_STATE, none, none, none) };
    longer_slices(errno_of(result.into()), area_in_use())
}

/// Returns the finding from the kernel's result (0: supported) and the number of rseq area bytes that the C
/// library uses.
fn longer_slices(errno: i32, in_use: u32) -> TrialFinding {
    let kernel = match errno {
        0 | libc::ENXIO => None,
        SWITCHED_OFF => Some(
            "this kernel was built without CONFIG_RSEQ_SLICE_EXTENSION, or started with rseq_slice_ext=0",
        ),
        libc::EINVAL => Some("this kernel is older than Linux 7.0"),
        _ => Some("prctl is refused here"),
    };
    let library = (in_use < AREA_WITH_SLICES)
        .then(|| format!("the C library uses {in_use} of the {AREA_WITH_SLICES} bytes that asking takes (glibc 2.41 uses them)"));
    let missing: Vec<String> = kernel.map(str::to_owned).into_iter().chain(library).collect();
    if missing.is_empty() {
        return TrialFinding::found("a thread may ask to keep its processor for microseconds")
            .with_hint("nothing in this version asks");
    }
    TrialFinding::missing(missing.join("; "), "nothing to do: nothing in this version asks for longer slices")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_longer_slices_lack_is_said_of_kernel_and_library() {
        assert!(longer_slices(0, 33).is_found());
        for (errno, in_use, reasons) in [
            (libc::EINVAL, 20, ["older than Linux 7.0", "20 of the 32 bytes"]),
            (SWITCHED_OFF, 33, ["CONFIG_RSEQ_SLICE_EXTENSION", "rseq_slice_ext=0"]),
            (libc::EPERM, 0, ["refused", "0 of the 32 bytes"]),
        ] {
            let finding = longer_slices(errno, in_use);
            let reason = finding.reason.as_deref().unwrap_or_default();
            assert!(!finding.is_found() && reasons.iter().all(|part| reason.contains(part)), "{reason}");
        }
        let library = longer_slices(0, 20);
        assert!(
            library.reason.as_deref().is_some_and(|reason| !reason.contains("kernel")),
            "{:?}",
            library.reason
        );
    }
}
