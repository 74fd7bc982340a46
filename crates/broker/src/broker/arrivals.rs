//! The arrival of a program: its connection, its TLS identity, and its greeting.

use super::{Broker, ClientProtocol, ConnectedClient};
use crate::name_owner::NameOwner;
use crate::permissions::{ClientGrant, ClientIdentity, RateBudget, RefusalKind};
use crate::sorted_map::SortedMap;
use crate::task::ClientId;
use crate::topic_names::AnnouncedTopics;
use std::sync::Arc;
use unisono_events_wire::check_program_name;
use unisono_events_wire::frame::{Frame, VERSION};
use unisono_events_wire::transport::TransportPeer;
use unisono_events_wire::{Greeting, WelcomeTerms};
use unisono_linux::clock::{Duration, Instant};

impl Broker {
    /// Handles a new connection; returns whether it may stay.
    pub fn connected(&mut self, now: Instant, client: ClientId, peer: TransportPeer) -> bool {
        self.run_timers(now);
        if let Some(trail) = &mut self.audit {
            trail.arrived(client, peer);
        }
        let peer = peer.party();
        let may = self.find_place(now, peer);
        if may {
            let tenant = self.tenant_number(&ClientIdentity::Anonymous, peer);
            let connected = ConnectedClient {
                peer,
                tenant,
                held: 0,
                secured: None,
                since: now,
                greeted: false,
                name: Arc::default(),
                lease: None,
                outlets: SortedMap::default(),
                consumers: SortedMap::default(),
                named: AnnouncedTopics::default(),
                paused: false,
                takes_descriptors: false,
                understands_rings: false,
                takes_links: false,
                may_lose: false,
                protocol: ClientProtocol::Frames,
                who: ClientIdentity::Anonymous,
                owner: NameOwner::Anonymous,
                grant: Arc::new(ClientGrant::all()),
                token: None,
                expires: None,
                budget: RateBudget::default(),
                ahead: None,
            };
            self.clients.insert(client, connected);
        } else {
            self.audit_end(client, "no place is left");
            self.audit_gone(client);
        }
        may
    }

    /// Records that a program's connection is encrypted, and the names in its certificate, if it has shown
    /// one.
    pub fn secured(&mut self, client: ClientId, names: Vec<Arc<str>>) {
        if let Some(connected) = self.clients.get_mut(&client) {
            connected.secured = Some(names);
        }
    }

    /// Counts a failed TLS handshake.
    pub fn count_tls_failure(&mut self) {
        self.access.count(RefusalKind::Tls);
    }

    /// Returns whether programs over TCP need a token or a certificate.
    pub(crate) fn has_tokens(&self) -> bool {
        self.access.tokens.is_some()
    }

    /// Returns the number of bytes of the largest frame that a program may send, or `None` if it has not sent
    /// its greeting.
    pub(crate) fn largest_of(&self, client: ClientId) -> Option<usize> {
        let connected = self.clients.get(&client).filter(|client| client.greeted)?;
        Some(self.limits.largest_frame_for(connected.grant.size))
    }

    pub(super) fn greet(
        &mut self,
        now: Instant,
        client: ClientId,
        greeting: Greeting,
        same_clock: bool,
    ) -> Result<(), String> {
        check_program_name(&greeting.name)?;
        let token = greeting.token.as_deref().map(|token| (None, token.as_bytes()));
        self.identify(now, client, token, None)?;
        if let Some(connected) = self.clients.get_mut(&client) {
            (connected.greeted, connected.name) = (true, greeting.name.into());
            connected.lease = greeting.lease_ns.map(Duration::from_nanos);
            connected.understands_rings = greeting.rings;
            if greeting.types {
                connected.named = AnnouncedTopics::with_types();
            }
        }
        self.audit_connected(client);
        let (largest, path_largest) = (self.limits.largest, self.limits.path_largest);
        let reply = self.replies.grant(client);
        let (run, peer_timeout_ns) = (self.run.number, self.limits.peer_timeout.as_nanos());
        let terms = WelcomeTerms {
            version: VERSION,
            largest,
            path_largest,
            same_clock,
            run,
            reply,
            peer_timeout_ns,
            late_reports: true,
            refusal_reports: true,
            links: self.offers_links(client),
        };
        self.answer(client, &Frame::Welcome(terms));
        Ok(())
    }
}
