//! Who finds a place: connections of all, of one user, of one identity, and those that are kept for the
//! operator.
//!
//! Programs that take all places, whether by a fault or with intent, must not keep out whoever is to end
//! them. So root, and the user that the broker runs as, find a place when nobody else does: their `events
//! top` shows who has the others.

use super::Broker;
use crate::permissions::{ClientGrant, ClientIdentity};
use crate::transport::TransportPeer;
use unisono_linux::clock::Nanos;

/// Places beyond all others for the broker's own user, and as many again for root: a few commands at a time.
/// The gang daemon keeps as many. Chosen, not measured.
const OPERATOR_PLACES: usize = 8;
const ROOT: u32 = 0;

impl Broker {
    /// The broker runs as this user: it and root are the operators, for whom places are kept. A server says
    /// so by itself.
    pub fn run_by(&mut self, user: u32) {
        self.own_user = Some(user);
    }

    /// Places that only this peer finds.
    fn places_kept_for(&self, peer: TransportPeer) -> usize {
        match (peer, self.own_user) {
            (TransportPeer::User(ROOT), Some(_)) => 2 * OPERATOR_PLACES,
            (TransportPeer::User(user), Some(own)) if user == own => OPERATOR_PLACES,
            _ => 0,
        }
    }

    /// Whether a peer that has just connected finds a place. A program that has said nothing for a while may
    /// have to leave for it.
    pub(super) fn find_place(&mut self, now: Nanos, peer: TransportPeer) -> bool {
        let theirs = self.clients.values().filter(|client| client.peer == peer).count();
        let kept = self.places_kept_for(peer);
        if theirs >= self.limits.clients_of_user + kept {
            return self.make_place(now, Some(peer));
        }
        self.clients.len() < self.limits.clients + kept || self.make_place(now, None)
    }

    /// How many connections an identity may have. A rule that does not say gives half of all places, as one
    /// user has: an identity may have many addresses. Operators have what their places allow.
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
