//! Children that must not outlive their parent (`PR_SET_PDEATHSIG`).
//!
//! A child that runs our code requests this itself at its start ([`die_with_parent`]), so no code runs
//! between fork and exec. For any other program the request is made between fork and exec
//! ([`end_with_starter`]). The request survives exec, except when the child executes a program with
//! privileges of its own (set-user-id), and the child's children do not inherit it. If the parent died before
//! the request, the child notices that its parent's number has changed. When not to use: the kernel sends the
//! signal when the *thread* that started the child ends, so start such children from a thread that lives as
//! long as they are needed. Reference: PR_SET_PDEATHSIG(2const).

use rustix::process::{Signal, set_parent_process_death_signal};
use std::io;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::Command;

/// Makes the kernel kill this process when the thread that started it ends. `parent` is the expected parent
/// process, if known. Fails if the parent is not, or no longer, `parent`: the caller should then end too.
pub fn die_with_parent(parent: Option<u32>) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    match parent {
        Some(parent) if parent_id() != parent => {
            Err(io::Error::other(format!("the parent process {parent} is gone")))
        }
        _ => Ok(()),
    }
}

/// Cancels the request: this process continues when the thread that started it ends. If that thread has ended
/// already, the kernel has killed this process, and this call does not return.
pub fn outlive_starter() -> io::Result<()> {
    Ok(set_parent_process_death_signal(None)?)
}

/// Makes the kernel kill the program that this command starts when the thread that starts it ends.
pub fn end_with_starter(command: &mut Command) {
    let starter = std::process::id();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if parent_id() == starter { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    // SAFETY: `ask` allocates nothing and makes only async-signal-safe calls.
    unsafe { command.pre_exec(ask) };
}
