//! The action for SIGPIPE that was in force when this process was started: signal(7).
//!
//! Rust's runtime ignores SIGPIPE before `main`, and sets its default action again in each program that the
//! process starts. If the starter of this process ignored SIGPIPE (`trap '' PIPE`), those programs would no
//! longer ignore it. So this module reads the action before the runtime changes it.

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

static IGNORED_AT_START: AtomicBool = AtomicBool::new(false);

/// The C library calls the functions of this section before `main`, and so before Rust's runtime starts.
#[used]
#[unsafe(link_section = ".init_array")]
static READ_AT_START: extern "C" fn() = {
    extern "C" fn read_at_start() {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: nothing is changed; `action` is valid for writes.
        let read = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr()) };
        // SAFETY: zeroed is a valid value of this plain structure, and the kernel filled it.
        let ignored = read == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN;
        IGNORED_AT_START.store(ignored, Ordering::Relaxed); // no other thread exists yet
    }
    read_at_start
};

/// Returns whether this process was started with an ignored SIGPIPE.
pub fn was_ignored() -> bool {
    IGNORED_AT_START.load(Ordering::Relaxed) // written once, before `main`
}

/// Makes the command's program ignore SIGPIPE if this process was started with an ignored SIGPIPE.
pub fn inherit(command: &mut Command) {
    if !was_ignored() {
        return;
    }
    let ignore = || {
        // SAFETY: no handler is installed; signal is async-signal-safe.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: `ignore` allocates nothing and makes only an async-signal-safe call.
    unsafe { command.pre_exec(ignore) };
}
