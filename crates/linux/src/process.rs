//! Processes: starting them inside cgroups, referring to them ([`PidFd`]), receiving signals through file
//! descriptors (`signalfd(2)`).
//!
//! Reference: signalfd(2).

pub use crate::pidfd::PidFd;
pub use crate::poll::readable_of as readable;
pub use crate::signal::Signal;
use rustix::fs::Mode;
use rustix::process::{getpid, setpgid, setsid, umask};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Executes a signal's default action on this process, although this thread receives the signal as data: for
/// [`Signal::Suspend`] the process stops here until another process continues it. Does nothing if the signal
/// is ignored, or if no process could continue this one (an orphaned process group).
pub fn obey(signal: Signal) {
    let (set, mut before) = (set_of(&[signal]), set_of(&[]));
    // SAFETY: raise takes a number; the signal stays pending while this thread blocks it.
    unsafe { libc::raise(signal.number()) };
    // SAFETY: `set` is valid for reads and `before` for writes.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, &raw mut before) };
    // SAFETY: the call above filled `before` with this thread's mask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
}

fn set_of(signals: &[Signal]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `set` is valid for writes.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: `set` was initialised above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal.number()) };
    }
    // SAFETY: sigemptyset initialised it.
    unsafe { set.assume_init() }
}

/// Returns whether this process ignores the signal, as it does after nohup(1).
pub fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed; `action` is valid for writes.
    if unsafe { libc::sigaction(signal.number(), std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: zeroed is a valid value of this plain structure, and the kernel filled it.
    unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The kernel: a terminal key. Every process of the foreground group receives it by itself.
    Kernel,
    /// Another process; only this process received the signal.
    Process,
}

/// Receives signals as data instead of being interrupted. Make it before other threads start, because threads
/// inherit the mask.
#[derive(Debug)]
pub struct SignalFd {
    fd: OwnedFd,
    signals: Vec<Signal>,
}

impl SignalFd {
    /// Blocks the signals for this thread (and the threads that it starts) and receives them here.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        let set = set_of(signals);
        // SAFETY: `set` is valid for reads; no old mask is requested.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        // SAFETY: `set` is valid for reads.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made and has no other owner.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, signals: signals.to_vec() })
    }

    pub fn next(&self) -> Option<(Signal, Sender)> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = std::mem::size_of::<libc::signalfd_siginfo>();
        // SAFETY: `info` is valid for writes of `size` bytes.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if read != size as isize {
            return None;
        }
        // SAFETY: zeroed is a valid value of this plain structure, and the kernel filled it.
        let info = unsafe { info.assume_init() };
        let signal = self.signals.iter().find(|s| s.number() as u32 == info.ssi_signo)?;
        let sender = if info.ssi_code > 0 { Sender::Kernel } else { Sender::Process };
        Some((*signal, sender))
    }
}

crate::as_fd!(SignalFd.fd);

/// The process group and session of a started process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The starter's group: terminal keys reach the process.
    Same,
    OwnGroup,
    /// A session of its own: no terminal, and signals to the starter's group do not reach it.
    OwnSession,
}

/// Starts a program that is in the given cgroups before its first instruction: each file is an open
/// `cgroup.procs`. Unblocks in the program all signals that this process has blocked.
pub fn start(command: &mut Command, joins: Vec<File>, family: Family) -> io::Result<Child> {
    let prepare = move || {
        for file in &joins {
            rustix::io::write(file, b"0")?;
        }
        // a new process leads no group and no session, so neither call can fail
        let _ = match family {
            Family::Same => Ok(()),
            Family::OwnGroup => setpgid(None, None),
            Family::OwnSession => setsid().map(|_| ()),
        };
        let set = set_of(&[]);
        // SAFETY: `set` is valid for reads; pthread_sigmask is async-signal-safe.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
        Ok(())
    };
    // SAFETY: `prepare` allocates nothing and makes only async-signal-safe calls.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// Returns whether a signal asks a server to end. SIGHUP ends a server that a terminal's shell has started,
/// because a terminal that closes sends it. A server that leads its own session has no terminal and goes on.
pub fn asks_to_end(signal: Signal) -> bool {
    signal != Signal::Hangup || session() != getpid().as_raw_nonzero().get()
}

/// Returns the number of this process's session; 0 where its leader is outside the namespace of process
/// identifiers, as in a container that `docker exec` or `unshare --pid` entered. It calls libc, because
/// rustix's `Pid` cannot be 0.
fn session() -> i32 {
    // SAFETY: getsid takes no pointer.
    unsafe { libc::getsid(0) }
}

/// Prevents other users from writing to files and directories that this process makes from now on, whatever
/// umask it was started with: a systemd unit that all users may write would give them root's rights. Only for
/// commands that start no programs of the user, because programs inherit the umask.
pub fn deny_writing_by_others() {
    let before = umask(Mode::from_raw_mode(0o077));
    umask(before | Mode::WGRP | Mode::WOTH);
}

/// Returns whether this process may do what only root may do (effective user 0).
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::Tid;
    use std::time::Duration;

    #[test]
    fn a_descriptor_tells_when_its_process_ends() {
        let mut child = start(Command::new("sleep").arg("60"), Vec::new(), Family::OwnGroup)
            .expect("sleep is on every Linux");
        let process = PidFd::open(Tid(child.id() as i32)).expect("pidfd");
        assert!(!process.has_ended(Some(Duration::ZERO)).expect("poll"));
        process.send(Signal::Kill).expect("own child");
        assert!(process.has_ended(Some(Duration::from_secs(30))).expect("poll"));
        child.wait().expect("reap");
    }

    #[test]
    fn a_process_that_is_not_there_cannot_be_opened() {
        assert!(PidFd::open(Tid(i32::MAX)).is_err());
    }
}
