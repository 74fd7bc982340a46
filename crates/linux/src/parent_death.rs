//! A child that must not outlive its parent (`PR_SET_PDEATHSIG`).
//!
//! A child that is ours asks for it itself, first thing ([`die_with_parent`]): no code runs between fork and
//! exec. For any other program it is asked between fork and exec ([`end_with_starter`]); the wish survives
//! exec, but not that of a program with privileges of its own (set-user-id), and is not inherited by the
//! child's children. A parent that died before the question is noticed by comparing its number.
//! When not to use: the signal is sent when the *thread* that started the child ends, so start such
//! children from a thread that lives as long as they are wanted. Reference: PR_SET_PDEATHSIG(2const).

use rustix::process::{Signal, set_parent_process_death_signal};
use std::io;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::Command;

/// Has the kernel kill this process when the thread that started it ends. `parent` is the process that should
/// be the parent, if known. Fails if the parent is not, or no longer, `parent`: the caller should end too.
pub fn die_with_parent(parent: Option<u32>) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    match parent {
        Some(parent) if parent_id() != parent => {
            Err(io::Error::other(format!("the parent process {parent} is gone")))
        }
        _ => Ok(()),
    }
}

/// Takes the wish back: this process goes on when the thread that started it ends. If that has ended already,
/// the kernel's signal has been sent, and this does not return.
pub fn outlive_starter() -> io::Result<()> {
    Ok(set_parent_process_death_signal(None)?)
}

/// Has the kernel kill the program that this command starts when the thread that starts it ends.
pub fn end_with_starter(command: &mut Command) {
    let starter = std::process::id();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if parent_id() == starter { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    // SAFETY: `ask` allocates nothing and makes async-signal-safe calls alone.
    unsafe { command.pre_exec(ask) };
}
