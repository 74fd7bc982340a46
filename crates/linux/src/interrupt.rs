//! Handles Ctrl-C by polling: the program calls [`caught`] and stops in its own time.
//!
//! The handler only stores the signal's number. A second signal of the same kind ends the process as usual,
//! so that a user can always end a program that does not poll. Only SIGHUP after [`catch_for_server`] never
//! ends the process.
//!
//! Cost: a store for each signal. When not to use: for changes that have to be undone even after SIGKILL;
//! that needs a second process that watches this one. Reference: sigaction(2), signal-safety(7).

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

static CAUGHT: AtomicI32 = AtomicI32::new(0);
/// The last SIGHUP: 0 if none has arrived, otherwise a [`HangUp`], encoded as a number.
static HUNG_UP: AtomicU64 = AtomicU64::new(0);
/// Bits of `HUNG_UP`: a SIGHUP has arrived; if `BY_USER` is set too, the lower half is the user that sent it.
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
    // SYNC(hangup) release: only the sender is passed, in the word itself
    HUNG_UP.store(came, Ordering::Release);
}

/// Installs handlers that record SIGINT, SIGTERM and SIGHUP. A second signal of the same kind ends the
/// process. An ignored SIGHUP stays ignored, because nohup(1) requests that.
pub fn catch() -> io::Result<()> {
    handle(&[libc::SIGINT, libc::SIGTERM], note, libc::SA_RESETHAND)?;
    if crate::process::is_ignored(crate::signal::Signal::Hangup) {
        return Ok(());
    }
    handle(&[libc::SIGHUP], note, libc::SA_RESETHAND)
}

/// Does the same as [`catch`], but for a server: a SIGHUP does not end the server; [`hung_up`] reports it. By
/// convention SIGHUP asks a server to read its files again; the kernel also sends it when a terminal closes.
pub fn catch_for_server() -> io::Result<()> {
    handle(&[libc::SIGINT, libc::SIGTERM], note, libc::SA_RESETHAND)?;
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = note_hangup;
    set(&[libc::SIGHUP], handler as libc::sighandler_t, libc::SA_SIGINFO | libc::SA_RESTART)
}

/// Makes this process ignore SIGINT, SIGTERM and SIGHUP: for a process that ends together with another one.
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
/// A process that a shell started in the background, or under nohup(1), inherits the action "ignore" for some
/// of these signals.
pub fn usual() -> io::Result<()> {
    set(&[libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP], libc::SIG_DFL, 0)
}

/// A SIGHUP that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HangUp {
    /// The user whose process sent the signal. `None`: the kernel sent it, because a terminal was closed.
    pub sender: Option<u32>,
}

/// Returns the last SIGHUP that has arrived since the previous call, after [`catch_for_server`].
pub fn hung_up() -> Option<HangUp> {
    // SYNC(hangup) acquire: only the sender is passed, in the word itself
    let came = HUNG_UP.swap(0, Ordering::Acquire);
    let user = u32::try_from(came & u64::from(u32::MAX)).ok();
    (came != 0).then_some(HangUp { sender: user.filter(|_| came & BY_USER != 0) })
}

/// Returns the name of the caught signal, if any.
pub fn caught() -> Option<&'static str> {
    // SYNC(interrupt) acquire: only the number itself is passed
    match CAUGHT.load(Ordering::Acquire) {
        0 => None,
        libc::SIGINT => Some("SIGINT (Ctrl-C)"),
        libc::SIGTERM => Some("SIGTERM"),
        _ => Some("SIGHUP"),
    }
}
