//! Tenants of the channel, and of the server's turns: one number for each client identity, and one for all
//! clients of one peer without credentials.
//!
//! A token is one tenant from every address, and also as user and password of MQTT. So more connections, or
//! more addresses, give a client no larger part of the broker.

use super::Broker;
use super::mqtt::MqttSessionId;
use crate::permissions::ClientIdentity;
use crate::task::ClientId;
use std::collections::HashMap;
use unisono_eventchannel::{NumberMap, TenantId};
use unisono_events_wire::transport::TransportPeer;

/// With this many known tenants, as many as accounts of memory, those without state are forgotten before
/// another one is added.
const MAX_KNOWN: usize = 1024;

/// The key of a tenant: clients with the same key share limits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum TenantKey {
    Named(ClientIdentity),
    From(TransportPeer),
}

impl TenantKey {
    fn new(who: &ClientIdentity, peer: TransportPeer) -> Self {
        match who {
            ClientIdentity::Anonymous => Self::From(peer),
            ClientIdentity::Unix(user) => Self::From(TransportPeer::User(*user)),
            ClientIdentity::Mqtt(name) => Self::Named(ClientIdentity::Token(name.clone())),
            named => Self::Named(named.clone()),
        }
    }
}

/// The numbers of tenants.
#[derive(Debug, Default)]
pub(super) struct TenantNumbers {
    known: HashMap<TenantKey, TenantId>,
    /// The last tenant number assigned.
    last: u32,
}

impl TenantNumbers {
    /// Returns the number of a client's tenant. `is_used` returns whether a tenant still has any state.
    fn number(&mut self, key: TenantKey, is_used: impl Fn(TenantId) -> bool) -> TenantId {
        if let Some(tenant) = self.known.get(&key) {
            return *tenant;
        }
        if self.known.len() >= MAX_KNOWN {
            self.known.retain(|_, tenant| is_used(*tenant));
        }
        // 0 is reserved; the numbers repeat after 2^32 tenants
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.known.insert(key, TenantId(self.last));
        TenantId(self.last)
    }
}

impl Broker {
    /// Returns the tenant number of a client with this identity and peer.
    pub(super) fn tenant_number(&mut self, who: &ClientIdentity, peer: TransportPeer) -> TenantId {
        self.tenant_of_key(TenantKey::new(who, peer))
    }

    /// Returns the tenant number of an identity whose peer is unknown.
    pub(super) fn tenant_of_owner(&mut self, who: &ClientIdentity) -> TenantId {
        self.tenant_of_key(match who {
            ClientIdentity::Unix(user) => TenantKey::From(TransportPeer::User(*user)),
            who => TenantKey::Named(who.clone()),
        })
    }

    fn tenant_of_key(&mut self, key: TenantKey) -> TenantId {
        let (clients, channel) = (&self.clients, &self.channel);
        let connected: NumberMap<TenantId, ()> = match self.tenants.known.len() >= MAX_KNOWN {
            true => clients.values().map(|client| (client.tenant, ())).collect(),
            false => NumberMap::default(),
        };
        let is_used = |tenant| connected.contains_key(&tenant) || channel.has_tenant(tenant);
        self.tenants.number(key, is_used)
    }

    pub(super) fn tenant_of_session(&mut self, session: MqttSessionId) -> TenantId {
        match self.mqtt.account(session) {
            Some((who, _, peer)) => self.tenant_number(&who, peer),
            None => TenantId::NONE,
        }
    }

    /// Returns the tenant whose slice of the server's turn a program's frames count against.
    pub(crate) fn tenant(&self, client: ClientId) -> TenantId {
        self.clients.get(&client).map_or(TenantId::NONE, |connected| connected.tenant)
    }

    /// Returns the number of steps since the last call, beyond one for each frame; a step takes about as long
    /// as to publish an event, or to deliver one.
    #[inline]
    pub fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.counters.work) + self.channel.take_work()
    }
}
