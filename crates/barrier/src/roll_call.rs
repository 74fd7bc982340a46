//! Which of the other processes still live.
//!
//! A member killed by a signal says nothing, so those who wait for it have to ask. Each waiter that has
//! waited for a tenth of a second holds on to the processes of all others by pidfds, identified by the start
//! time they recorded when they joined, and polls them ten times a second. Cost: nothing before that; then
//! two system calls and a file a process once, and one poll(2) a roll call. Where pidfds are missing (before
//! Linux 5.3) it compares start times instead.

use crate::control::{Control, PlaceStanding};
use crate::error::Cause;
use unisono_linux::pidfd::start_time;
use unisono_linux::pinned::PinnedProcess;

/// The processes of the other members, held on to.
#[derive(Debug, Default)]
pub(crate) struct RollCall {
    held: Vec<PinnedProcess>,
    /// The places whose process the pidfd at the same position holds.
    places: Vec<usize>,
}

impl RollCall {
    /// Declares the members gone whose process has ended.
    pub(crate) fn call(&mut self, control: &Control, episode: u32) {
        let ours = std::process::id();
        for member in control.members() {
            let process = member.process();
            let counts = matches!(
                member.standing(),
                PlaceStanding::Member | PlaceStanding::Leaving | PlaceStanding::Admitted
            );
            if !counts || process == ours || process == 0 || self.places.contains(&member.id) {
                continue;
            }
            match PinnedProcess::identified(process, member.process_start()) {
                Ok(held) => {
                    self.held.push(held);
                    self.places.push(member.id);
                }
                Err(_) if start_time(process) != Some(member.process_start()) => {
                    control.declare_gone(member.id, Cause::Died, episode);
                }
                Err(_) => {} // the kernel or the limit of descriptors refuses a pidfd
            }
        }
        for at in PinnedProcess::ended(&self.held).unwrap_or_default() {
            control.declare_gone(self.places[at], Cause::Died, episode);
        }
    }
}
