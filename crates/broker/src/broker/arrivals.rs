//! The arrival of a program: its connection, its TLS identity, and its greeting.

use super::{Broker, ClientProtocol, ConnectedClient};
use crate::frame::{Frame, VERSION};
use crate::name::check_program_name;
use crate::name_owner::NameOwner;
use crate::permissions::{ClientGrant, ClientIdentity, RateBudget, RefusalKind};
use crate::spec::{Greeting, WelcomeTerms};
use crate::task::ClientId;
use crate::topic_names::ToldTopics;
use crate::transport::TransportPeer;
use std::collections::BTreeMap;
use std::sync::Arc;
use unisono_eventchannel::NumberMap;
use unisono_linux::clock::Nanos;

impl Broker {
    /// Handles a new connection; returns whether it may stay.
    pub fn connected(&mut self, now: Nanos, client: ClientId, peer: TransportPeer) -> bool {
        self.look(now);
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
                costs: NumberMap::default(),
                secured: None,
                since: now,
                greeted: false,
                name: String::new(),
                lease: None,
                outlets: BTreeMap::new(),
                consumers: BTreeMap::new(),
                named: ToldTopics::default(),
                paused: false,
                takes_descriptors: false,
                understands_rings: false,
                may_lose: false,
                protocol: ClientProtocol::Frames,
                who: ClientIdentity::Anonymous,
                owner: NameOwner::Anonymous,
                grant: Arc::new(ClientGrant::all()),
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

    /// Whether programs over TCP need a token or a certificate.
    pub(crate) fn has_tokens(&self) -> bool {
        self.access.tokens.is_some()
    }

    /// Bytes of the largest frame that a program may send. None: it has not greeted.
    pub(crate) fn largest_of(&self, client: ClientId) -> Option<usize> {
        let connected = self.clients.get(&client).filter(|client| client.greeted)?;
        Some(self.limits.largest_frame_for(connected.grant.size))
    }

    pub(super) fn greet(
        &mut self,
        now: Nanos,
        client: ClientId,
        greeting: Greeting,
        same_clock: bool,
    ) -> Result<(), String> {
        check_program_name(&greeting.name)?;
        let token = greeting.token.as_deref().map(|token| (None, token.as_bytes()));
        self.identify(now, client, token, None)?;
        if let Some(connected) = self.clients.get_mut(&client) {
            (connected.greeted, connected.name) = (true, greeting.name);
            connected.lease = greeting.lease_ns.map(Nanos);
            connected.understands_rings = greeting.rings;
            if greeting.types {
                connected.named = ToldTopics::with_types();
            }
        }
        self.audit_connected(client);
        let (largest, path_largest) = (self.limits.largest, self.limits.path_largest);
        let reply = self.replies.grant(client);
        let terms =
            WelcomeTerms { version: VERSION, largest, path_largest, same_clock, run: self.run, reply };
        self.answer(client, &Frame::Welcome(terms));
        Ok(())
    }
}
