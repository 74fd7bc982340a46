//! Detects members whose process has ended.
//!
//! A member killed by a signal announces nothing, so waiters have to check. A waiter that has waited for a
//! tenth of a second opens a pidfd for the process of each other member, and compares its start time with the
//! one recorded when the member joined. From then on it polls the pidfds ten times a second. Cost: nothing
//! before that; then once two system calls and a file for each process, and one poll(2) for each check. Where
//! pidfds are missing (before Linux 5.3) it compares start times instead.

use crate::control::{Control, PlaceStanding};
use crate::error::Cause;
use unisono_linux::pidfd::start_time;
use unisono_linux::pinned::PinnedProcess;

/// The pidfds of the other members' processes.
#[derive(Debug, Default)]
pub(crate) struct LivenessCheck {
    held: Vec<PinnedProcess>,
    /// The place of each pidfd's member, at the same index as in `held`.
    places: Vec<usize>,
}

impl LivenessCheck {
    /// Declares each member gone whose process has ended.
    pub(crate) fn check(&mut self, control: &Control, episode: u32) {
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
