//! Handles Ctrl-C by polling: the program calls [`caught`] and stops in its own time.
//!
//! The handler only stores the signal's number. A second signal of the same kind ends the process as usual,
//! so that a user can always end a program that does not poll.
//!
//! Cost: a store for each signal. When not to use: for changes that have to be undone even after SIGKILL;
//! that needs another process that watches. Reference: sigaction(2), signal-safety(7).

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

static CAUGHT: AtomicI32 = AtomicI32::new(0);
/// 0: no SIGHUP has come. Otherwise [`HangUp`] as a number.
static HUNG_UP: AtomicU64 = AtomicU64::new(0);
/// In `HUNG_UP`: a SIGHUP has come; with `BY_USER` the lower half is the user that sent it.
const CAME: u64 = 1 << 62;
const BY_USER: u64 = 1 << 63;

extern "C" fn note(signal: libc::c_int) {
    // SYNC(interrupt) release: only the number itself is passed
    CAUGHT.store(signal, Ordering::Release);
}

extern "C" fn note_hangup(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo_t.
    let info = unsafe { &*info };
    // SAFETY: si_uid is there if a process has sent the signal (SI_USER), and is not read otherwise.
    let sender = (info.si_code == libc::SI_USER).then(|| unsafe { info.si_uid() });
    let came = CAME | sender.map_or(0, |user| BY_USER | u64::from(user));
    // SYNC(hangup) release: the sender is all that is handed over
    HUNG_UP.store(came, Ordering::Release);
}

/// From now on SIGINT, SIGTERM and SIGHUP are noted once each; the second of a kind ends the process. A
/// SIGHUP that is ignored stays so: nohup(1) has asked for that.
pub fn catch() -> io::Result<()> {
    handle(&[libc::SIGINT, libc::SIGTERM], note, libc::SA_RESETHAND)?;
    if crate::process::is_ignored(crate::signal::Signal::Hangup) {
        return Ok(());
    }
    handle(&[libc::SIGHUP], note, libc::SA_RESETHAND)
}

/// The same for a server, which a SIGHUP does not end: [`hung_up`] says that it came. By custom it asks a
/// server to read its files again, and a terminal that closes sends it.
pub fn catch_for_server() -> io::Result<()> {
    handle(&[libc::SIGINT, libc::SIGTERM], note, libc::SA_RESETHAND)?;
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = note_hangup;
    set(&[libc::SIGHUP], handler as libc::sighandler_t, libc::SA_SIGINFO | libc::SA_RESTART)
}

/// Has SIGINT, SIGTERM and SIGHUP do nothing: for a process that ends with another one.
pub fn ignore() -> io::Result<()> {
    set(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP], libc::SIG_IGN, 0)
}

fn handle(
    signals: &[libc::c_int],
    handler: extern "C" fn(libc::c_int),
    flags: libc::c_int,
) -> io::Result<()> {
    set(signals, handler as libc::sighandler_t, flags | libc::SA_RESTART)
}

fn set(signals: &[libc::c_int], handler: libc::sighandler_t, flags: libc::c_int) -> io::Result<()> {
    for signal in signals {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: an all-zero sigaction is a valid value: default handler, empty mask, no flags.
        let action = unsafe { action.assume_init_mut() };
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        // SAFETY: `action` is initialized; a handler here only stores to an atomic, which is
        // async-signal-safe.
        if unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Restores the default actions of SIGINT, SIGQUIT, SIGTERM and SIGHUP, also for programs started from here.
/// A process that a shell started in the background, or under nohup(1), inherits some of them ignored.
pub fn usual() -> io::Result<()> {
    set(&[libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP], libc::SIG_DFL, 0)
}

/// A SIGHUP that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HangUp {
    /// The user whose process has sent it. None: the kernel has, because a terminal was closed.
    pub sender: Option<u32>,
}

/// The last SIGHUP since this was asked before, after [`catch_for_server`].
pub fn hung_up() -> Option<HangUp> {
    // SYNC(hangup) acquire: the sender is all that is handed over
    let came = HUNG_UP.swap(0, Ordering::Acquire);
    let user = u32::try_from(came & u64::from(u32::MAX)).ok();
    (came != 0).then_some(HangUp { sender: user.filter(|_| came & BY_USER != 0) })
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
