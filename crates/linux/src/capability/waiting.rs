//! What waiting stands on: futex2, membarrier, restartable sequences.
//!
//! Reference: futex_waitv (Documentation/userspace-api/futex2.rst), membarrier(2), rseq(2).

use super::scratch::{errno, errno_of, words};
use super::{ProbedHost, TrialFinding};
use rustix::thread::futex::{ClockId, WaitvFlags, waitv};

pub(super) fn futex_waitv(_: &ProbedHost) -> TrialFinding {
    // no words to wait for: the kernel refuses with EINVAL
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
    // SAFETY: a null area of length 0 is refused with EINVAL (or EPERM, EBUSY where one is
    // registered) and registers nothing.
    let result = unsafe { libc::syscall(libc::SYS_rseq, std::ptr::null::<u8>(), 0, 0, 0) };
    match errno_of(result) {
        errno @ libc::ENOSYS => TrialFinding::missing(
            format!("rseq: {}", words(errno)),
            "use Linux 4.18 or newer with CONFIG_RSEQ; the current processor is then asked for by getcpu",
        ),
        _ => TrialFinding::found("the current processor is known without a system call"),
    }
}
