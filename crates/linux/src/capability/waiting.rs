//! What waiting stands on: futex2, membarrier, restartable sequences.
//!
//! Reference: futex_waitv (Documentation/userspace-api/futex2.rst), membarrier(2), rseq(2).

use super::scratch::{errno_of, words};
use super::{Finding, Host};

pub(super) fn futex_waitv(_: &Host) -> Finding {
    // SAFETY: no waiters and null pointers: the kernel refuses with EINVAL before it looks at any.
    let result = unsafe {
        libc::syscall(libc::SYS_futex_waitv, std::ptr::null::<u8>(), 0, 0, std::ptr::null::<u8>(), 0)
    };
    match errno_of(result) {
        0 | libc::EINVAL => Finding::found("waits for several words at once"),
        errno => Finding::missing(
            format!("futex_waitv: {}", words(errno)),
            "use Linux 5.16 or newer, without a filter on system calls; waiting for one word works anyway",
        ),
    }
}

pub(super) fn membarrier(_: &Host) -> Finding {
    // SAFETY: the query command takes no pointers and changes nothing.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) };
    if commands < 0 {
        return Finding::missing(
            format!("membarrier: {}", words(errno_of(commands))),
            "use Linux 4.14 or newer with CONFIG_MEMBARRIER; barriers fence both sides instead",
        );
    }
    let private = commands & i64::from(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0;
    let shared = commands & i64::from(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0;
    match (private, shared) {
        (true, true) => Finding::found("expedited, within a process and between processes"),
        (true, false) => Finding::found("expedited, within a process only"),
        _ => Finding::missing(
            "membarrier offers no expedited commands",
            "use Linux 4.16 or newer without nohz_full processors",
        ),
    }
}

pub(super) fn rseq(_: &Host) -> Finding {
    // SAFETY: a null area of length 0 is refused with EINVAL (or EPERM, EBUSY where one is
    // registered) and registers nothing.
    let result = unsafe { libc::syscall(libc::SYS_rseq, std::ptr::null::<u8>(), 0, 0, 0) };
    match errno_of(result) {
        errno @ libc::ENOSYS => Finding::missing(
            format!("rseq: {}", words(errno)),
            "use Linux 4.18 or newer with CONFIG_RSEQ; the current processor is then asked for by getcpu",
        ),
        _ => Finding::found("the current processor is known without a system call"),
    }
}
