//! Limits on connections: of all clients, of one user and of one identity. Some places are reserved for the
//! operator, and some for users that have few connections.
//!
//! Programs that take all places, by a fault or with intent, must not keep out the operator, who has to be
//! able to end them. So root, and the user that the broker runs as, find a place when all others are taken:
//! with `unisono events top` they can list the programs that hold the other places. A limit of half for one
//! user does not stop two of them, so the last eighth of all places is for users that have few.

use super::Broker;
use crate::permissions::{ClientGrant, ClientIdentity};
use unisono_events_wire::transport::TransportPeer;
use unisono_linux::clock::Instant;

/// Places reserved for the broker's own user, and as many again for root: enough for a few commands at a
/// time. The gang daemon reserves as many. Chosen, not measured.
const OPERATOR_PLACES: usize = 8;
const ROOT: u32 = 0;

/// Returns whether a party with `theirs` of `all` places may take one more. The last eighth is for parties
/// with less than a 64th, so that two parties with half each leave some to eight others. Chosen, not
/// measured.
pub(super) fn may_take_one_more(theirs: usize, taken: usize, all: usize) -> bool {
    theirs < (all / 64).max(1) || taken < all - all / 8
}

impl Broker {
    /// Sets the user of the broker's process: it and root are the operators, for whom places are reserved. A
    /// server calls this by itself.
    pub fn run_by(&mut self, user: u32) {
        self.run.own_user = Some(user);
    }

    /// Returns the number of places reserved for this peer.
    fn places_kept_for(&self, peer: TransportPeer) -> usize {
        match (peer, self.run.own_user) {
            (TransportPeer::User(ROOT), Some(_)) => 2 * OPERATOR_PLACES,
            (TransportPeer::User(user), Some(own)) if user == own => OPERATOR_PLACES,
            _ => 0,
        }
    }

    /// Returns whether a peer that has just connected finds a place. A program that has been silent for a
    /// while may have to leave for it.
    pub(super) fn find_place(&mut self, now: Instant, peer: TransportPeer) -> bool {
        let theirs = self.clients.values().filter(|client| client.peer == peer).count();
        let kept = self.places_kept_for(peer);
        if theirs >= self.limits.clients_of_user + kept {
            return self.make_place(now, Some(peer));
        }
        let (taken, all) = (self.clients.len(), self.limits.clients);
        let is_free = taken < all + kept && (kept > 0 || may_take_one_more(theirs, taken, all));
        is_free || self.make_place(now, None)
    }

    /// Returns the maximum number of connections of an identity. The default of a rule is half of all places,
    /// like the limit of a user: an identity may have many addresses. An operator has no such default: its
    /// limit is the limit of its user, with the reserved places in addition.
    pub(super) fn connections_of(&self, who: &ClientIdentity, grant: &ClientGrant) -> usize {
        let is_operator =
            matches!(who, ClientIdentity::Unix(user) if self.places_kept_for(TransportPeer::User(*user)) > 0);
        match grant.connections {
            Some(connections) => connections,
            None if is_operator => usize::MAX,
            None => (self.limits.clients / 2).max(1),
        }
    }
}
