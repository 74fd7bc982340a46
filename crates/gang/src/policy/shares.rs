//! Shares of users: all users get equal time for equal weight, whatever the number of their gangs.
//!
//! Each user has a virtual time: the turn time of the user's gangs, divided by the user's weight, which is
//! the weight of the user's heaviest gang. The user with the least virtual time has the next turn. A user who
//! arrives, or returns, starts at the least virtual time of the other users, so that unused time is not saved
//! up.
//!
//! Cost: a search among the users for each turn. Reference: Goyal, Vin and Cheng, "Start-time fair queuing",
//! 1996.

use crate::gang::{GangOwner, GangWeight};
use std::collections::{BTreeMap, BTreeSet};
use unisono_linux::clock::Duration;

/// Nanoseconds of turn time for each unit of weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VirtualTime(u64);

#[derive(Clone, Debug, Default)]
pub(super) struct UserShares(BTreeMap<GangOwner, VirtualTime>);

impl UserShares {
    pub(super) fn virtual_time(&self, owner: GangOwner) -> VirtualTime {
        self.0.get(&owner).copied().unwrap_or_default()
    }

    /// Adds a user that starts to ask for time; `present` are the users that do already.
    pub(super) fn enter(&mut self, owner: GangOwner, present: &BTreeSet<GangOwner>) {
        let min_time =
            present.iter().filter(|other| **other != owner).map(|other| self.virtual_time(*other)).min();
        let min_time = min_time.unwrap_or_default();
        // a user who left with more virtual time than all others is still known, and returns with that time
        self.0.retain(|other, time| present.contains(other) || *time > min_time);
        let time = self.0.entry(owner).or_default();
        *time = min_time.max(*time);
    }

    /// Charges a user for a turn of its gangs. Returns the earlier virtual time.
    pub(super) fn charge(&mut self, owner: GangOwner, length: Duration, weight: GangWeight) -> VirtualTime {
        let time = self.0.entry(owner).or_default();
        let before = *time;
        time.0 = before.0.saturating_add(length.as_nanos() / u64::from(weight.number()));
        before
    }

    /// Refunds the charge for a turn that was not used.
    pub(super) fn refund(&mut self, owner: GangOwner, before: VirtualTime) {
        self.0.insert(owner, before);
    }

    /// Advances a user who may not run now, so that the user saves no time up while another user is served.
    pub(super) fn pass_over(&mut self, owner: GangOwner, served: GangOwner) {
        let served = self.virtual_time(served);
        let time = self.0.entry(owner).or_default();
        *time = served.max(*time);
    }
}
