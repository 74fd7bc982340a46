//! Handles Ctrl-C by polling: the program calls [`caught`] and stops in its own time.
//!
//! The handler only stores the signal's number. A second signal of the same kind ends the process as usual,
//! so that a user can always end a program that does not poll.
//!
//! Cost: a store for each signal. When not to use: for changes that have to be undone even after SIGKILL;
//! that needs another process that watches. Reference: sigaction(2), signal-safety(7).

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

static CAUGHT: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    // SYNC(interrupt) release: only the number itself is passed
    CAUGHT.store(signal, Ordering::Release);
}

/// From now on SIGINT, SIGTERM and SIGHUP are recorded once each; the second signal of a kind ends the
/// process.
pub fn catch() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: an all-zero sigaction is a valid value: default handler, empty mask, no flags.
        let action = unsafe { action.assume_init_mut() };
        action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: `action` is initialized and the handler only stores to an atomic, which is
        // async-signal-safe.
        if unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Restores the default actions of SIGINT, SIGQUIT, SIGTERM and SIGHUP, also for programs started from here.
/// A process that a shell started in the background, or under nohup(1), inherits some of them ignored.
pub fn usual() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an all-zero sigaction is a valid value: default handler, empty mask, no flags.
        let action = unsafe { std::mem::zeroed::<libc::sigaction>() };
        // SAFETY: `action` is initialized; the default action runs no code of ours.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The name of the caught signal, if any.
pub fn caught() -> Option<&'static str> {
    // SYNC(interrupt) acquire: only the number itself is passed
    match CAUGHT.load(Ordering::Acquire) {
        0 => None,
        libc::SIGINT => Some("SIGINT (Ctrl-C)"),
        libc::SIGTERM => Some("SIGTERM"),
        _ => Some("SIGHUP"),
    }
}
