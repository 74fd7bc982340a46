//! Ctrl-C as a question instead of an end: the program asks [`caught`] and stops in its own time.
//!
//! The handler stores the signal's number and nothing else. A second signal of the kind ends the process
//! the usual way, so that nobody is locked in by a program that does not ask.
//!
//! Cost: one store a signal. When not to use: for what must be undone even after SIGKILL; that needs
//! another process that watches. Reference: sigaction(2), signal-safety(7).

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

static CAUGHT: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    // SYNC(interrupt) release: the number is all that is handed over
    CAUGHT.store(signal, Ordering::Release);
}

/// From now on SIGINT, SIGTERM and SIGHUP are noted once each; the second of a kind ends the process.
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

/// Gives SIGINT, SIGQUIT, SIGTERM and SIGHUP their usual effect, also for programs started from here. A
/// process started in the background by a shell, or under nohup(1), inherits some of them ignored.
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

/// The signal that was caught, by name, if one was.
pub fn caught() -> Option<&'static str> {
    // SYNC(interrupt) acquire: the number is all that is handed over
    match CAUGHT.load(Ordering::Acquire) {
        0 => None,
        libc::SIGINT => Some("SIGINT (Ctrl-C)"),
        libc::SIGTERM => Some("SIGTERM"),
        _ => Some("SIGHUP"),
    }
}
