//! Makes every running thread execute a full memory barrier: membarrier(2).
//!
//! This is the asymmetric half of a store-load handshake. The frequent side (store; compiler fence; load)
//! needs no fence instructions, because the rare side calls [`fence_all`] between its own store and load: the
//! kernel interrupts every CPU that currently runs a registered thread, and each interrupt is a full barrier.
//! Threads that are not running executed a barrier when they were switched out.
//!
//! Cost: the caller pays one round of interrupts to the CPUs that run its peers (a few microseconds); the
//! peers pay that interrupt; other threads pay nothing. When not to use: if both sides are rare, two
//! sequentially consistent fences are simpler.

use crate::futex::Scope;
use rustix::thread::{MembarrierCommand, membarrier};
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;
const REGISTERED: u8 = 1;
const REFUSED: u8 = 2;

/// Registers this process for [`fence_all`] of this scope: [`Scope::Private`] from its own threads,
/// [`Scope::Shared`] from every process. Asks the kernel once and remembers the result; a forked child
/// inherits the registration of its parent. Fails with `ENOSYS` without membarrier, `EINVAL` without the
/// expedited commands, and `EPERM` under a filter.
pub fn register(scope: Scope) -> io::Result<()> {
    static PRIVATE: AtomicU8 = AtomicU8::new(UNKNOWN);
    static SHARED: AtomicU8 = AtomicU8::new(UNKNOWN);
    let (known, command) = match scope {
        Scope::Private => (&PRIVATE, MembarrierCommand::RegisterPrivateExpedited),
        Scope::Shared => (&SHARED, MembarrierCommand::RegisterGlobalExpedited),
    };
    match known.load(Ordering::Relaxed) {
        REGISTERED => return Ok(()),
        REFUSED => return Err(io::Error::from_raw_os_error(libc::ENOSYS)),
        _ => {}
    }
    let answer = membarrier(command);
    known.store(if answer.is_ok() { REGISTERED } else { REFUSED }, Ordering::Relaxed);
    Ok(answer?)
}

/// Makes every thread in scope execute a full memory barrier, and returns after that. Fails with `EPERM` if
/// this process has not [`register`]ed for [`Scope::Private`].
pub fn fence_all(scope: Scope) -> io::Result<()> {
    Ok(membarrier(match scope {
        Scope::Private => MembarrierCommand::PrivateExpedited,
        Scope::Shared => MembarrierCommand::GlobalExpedited,
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registered_process_can_fence_in_both_scopes_or_is_told_why_not() {
        for scope in [Scope::Private, Scope::Shared] {
            match register(scope) {
                Ok(()) => fence_all(scope).expect("a registered process may fence"),
                Err(reason) => assert!(reason.raw_os_error().is_some(), "{reason}"),
            }
            assert_eq!(register(scope).is_ok(), register(scope).is_ok());
        }
    }
}
