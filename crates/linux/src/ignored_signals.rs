//! The signals that were ignored when this process was started: signal(7).
//!
//! Rust's runtime ignores SIGPIPE before `main`, and sets its default action again in each program that the
//! process starts. If the starter of this process ignored SIGPIPE (`trap '' PIPE`), those programs would no
//! longer ignore it. So this module reads the action before the runtime changes it.
//!
//! Where SIGCHLD is ignored, the kernel discards the exit status of children, and their parent cannot wait
//! for them. Some services start programs so. A process that waits for children has to restore the default
//! action ([`keep_children`]), and the program that replaces it gets the ignored signal back.

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

static PIPE_IGNORED_AT_START: AtomicBool = AtomicBool::new(false);
static CHILD_IGNORED_AT_START: AtomicBool = AtomicBool::new(false);

/// The C library calls the functions of this section before `main`, and so before Rust's runtime starts.
#[used]
#[unsafe(link_section = ".init_array")]
static READ_AT_START: extern "C" fn() = {
    extern "C" fn read_at_start() {
        // no other thread exists yet
        PIPE_IGNORED_AT_START.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
        CHILD_IGNORED_AT_START.store(is_ignored(libc::SIGCHLD), Ordering::Relaxed);
    }
    read_at_start
};

fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed; `action` is valid for writes.
    let read = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroed is a valid value of this plain structure, and the kernel filled it.
    read == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Restores the default action of SIGCHLD if this process was started with an ignored SIGCHLD, so that it can
/// wait for its children.
pub fn keep_children() {
    if is_ignored(libc::SIGCHLD) {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}

/// Makes the command's program ignore SIGPIPE and SIGCHLD if this process was started with them ignored.
pub fn inherit(command: &mut Command) {
    // written once, before `main`
    let ignored = [
        (libc::SIGPIPE, PIPE_IGNORED_AT_START.load(Ordering::Relaxed)),
        (libc::SIGCHLD, CHILD_IGNORED_AT_START.load(Ordering::Relaxed)),
    ];
    if ignored.iter().all(|(_, ignored)| !ignored) {
        return;
    }
    let ignore = move || {
        for (signal, _) in ignored.iter().filter(|(_, ignored)| *ignored) {
            // SAFETY: no handler is installed; signal is async-signal-safe.
            unsafe { libc::signal(*signal, libc::SIG_IGN) };
        }
        Ok(())
    };
    // SAFETY: `ignore` allocates nothing and makes only async-signal-safe calls.
    unsafe { command.pre_exec(ignore) };
}
