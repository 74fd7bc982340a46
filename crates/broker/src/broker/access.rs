//! Identities of clients, and their rights to requests.

use super::Broker;
use super::places::may_take_one_more;
use crate::name_owner::NameOwner;
use crate::permissions::{ClientIdentity, RefusalKind, TokenHash};
use crate::task::ClientId;
use std::sync::Arc;
use unisono_eventchannel::BlockedSuppliers;
use unisono_events_wire::transport::TransportPeer;
use unisono_events_wire::{Advertisement, KeptHistory, SubscriptionSpec, WhenFull};
use unisono_linux::clock::Instant;

impl Broker {
    /// Identifies a client; `login` is a token, or MQTT's user and password. `session` is the identifier of
    /// an MQTT client: the present connection of that client's session does not count against the limit,
    /// because the new connection replaces it.
    ///
    /// # Errors
    /// The credentials are wrong, no rule admits the client, or its connections are at their limit.
    pub(super) fn identify(
        &mut self,
        now: Instant,
        client: ClientId,
        login: Option<(Option<&str>, &[u8])>,
        session: Option<&str>,
    ) -> Result<(), String> {
        let connected = self.clients.get(&client).ok_or("it is gone")?;
        let (peer, secured) = (connected.peer, connected.secured.as_deref());
        let (who, expires) = self.identity(now, (peer, secured), login).inspect_err(|_| {
            self.access.count(RefusalKind::Token);
        })?;
        let grant = self.access.grant(&who)?;
        let owner = NameOwner::from(&who);
        let replaced = session.and_then(|name| self.mqtt.client_of(&owner, name));
        let theirs = self
            .clients
            .iter()
            .filter(|(id, client)| client.greeted && client.owner == owner && Some(**id) != replaced);
        let (theirs, most) = (theirs.count(), self.connections_of(&who, &grant));
        // the new connection has a place already
        let taken = self.clients.len() - 1;
        let leaves_some = grant.connections.is_some()
            || most == usize::MAX
            || may_take_one_more(theirs, taken, self.limits.clients);
        if theirs >= most || !leaves_some {
            self.access.count(RefusalKind::Connections);
            let most = most.min(theirs);
            return Err(format!("{who} may have {most} connections; close one"));
        }
        let tenant = self.tenant_number(&who, peer);
        if let Some(connected) = self.clients.get_mut(&client) {
            (connected.who, connected.grant, connected.expires) = (who, grant, expires);
            connected.token = login.map(|(_, secret)| TokenHash::from_secret(secret));
            connected.owner = owner;
            connected.tenant = tenant;
        }
        Ok(())
    }

    /// Returns the identity of a client, and when its credentials expire.
    fn identity(
        &self,
        now: Instant,
        (peer, secured): (TransportPeer, Option<&[Arc<str>]>),
        login: Option<(Option<&str>, &[u8])>,
    ) -> Result<(ClientIdentity, Option<Instant>), String> {
        let Some((user, secret)) = login else {
            if let Some(who) = self.access.certified(secured.unwrap_or_default()) {
                return Ok((who, None));
            }
            return match peer {
                TransportPeer::User(user) => Ok((ClientIdentity::Unix(user), None)),
                TransportPeer::Address(_) if self.access.tokens.is_some() => {
                    Err("no token came; this broker asks for one over TCP".to_owned())
                }
                TransportPeer::Address(_) => Ok((ClientIdentity::Anonymous, None)),
            };
        };
        if let TransportPeer::Address(address) = peer
            && !address.to_canonical().is_loopback()
            && secured.is_none()
        {
            let what = "a token over a connection that others can read; it is known to them now: \
                        replace it, and connect to tls:HOST:PORT";
            return Err(what.to_owned());
        }
        let tokens = self.access.tokens.as_ref().ok_or("this broker knows no tokens; connect without one")?;
        let (name, expires) = tokens.name(now, &TokenHash::from_secret(secret))?;
        match user {
            None => Ok((ClientIdentity::Token(name), expires)),
            Some(user) if *user == *name => Ok((ClientIdentity::Mqtt(name), expires)),
            Some(user) => Err(format!("the password is not that of the user `{user}`")),
        }
    }

    pub(super) fn check_publish(&mut self, client: ClientId, topic: &str) -> Result<(), String> {
        let connected = self.clients.get(&client).ok_or("it is gone")?;
        if connected.grant.may_publish(topic) || self.replies.may_publish(topic) {
            return Ok(());
        }
        self.access.count(RefusalKind::Publish);
        let rule = self.access.publish_rule(&connected.grant);
        Err(format!("{} may not publish `{topic}`{rule}", connected.who))
    }

    /// Checks that a program may have its share of a topic.
    pub(super) fn check_share(&mut self, client: ClientId, spec: &Advertisement) -> Result<(), String> {
        let connected = self.clients.get(&client).ok_or("it is gone")?;
        let (asked, most) = (spec.share.unwrap_or(1), connected.grant.share);
        if asked <= most {
            return Ok(());
        }
        self.access.count(RefusalKind::Publish);
        Err(format!(
            "a share of {asked}; the permissions allow {} {most}; add `share = {asked}` to its rule",
            connected.who
        ))
    }

    /// Checks that a program may publish for a supplier of another broker: such a program chooses the numbers
    /// of the supplier's events, and so decides which events of another join of the same identity count as
    /// duplicates. Without permissions, joins are programs of root and of the broker's own user.
    pub(super) fn check_join(&mut self, client: ClientId, spec: &Advertisement) -> Result<(), String> {
        let connected = self.clients.get(&client).ok_or("it is gone")?;
        let may = match self.access.permissions {
            Some(_) => connected.grant.join,
            None => self.is_operator(connected.peer),
        };
        if may || spec.from_elsewhere.is_none() {
            return Ok(());
        }
        self.access.count(RefusalKind::Join);
        Err(format!(
            "{} may not publish for suppliers of other brokers; add `join = true` to its rule of the permissions, or \
             connect to the broker's socket as its own user",
            connected.who
        ))
    }

    /// Checks that an advertisement of a reply topic asks for no type, no exclusive supplier and no history.
    /// A program that learnt the topic's name from a request could otherwise advertise it first, with terms
    /// that exclude the program that replies.
    pub(super) fn check_reply_terms(&mut self, spec: &Advertisement) -> Result<(), String> {
        let is_plain = spec.event_type.is_none() && !spec.exclusive && spec.history == KeptHistory::default();
        if is_plain || !self.replies.may_publish(&spec.topic) {
            return Ok(());
        }
        self.access.count(RefusalKind::Topic);
        Err(format!(
            "the reply topic `{}` has no type, no history and no exclusive owner; leave these out",
            spec.topic
        ))
    }

    pub(super) fn check_subscribe(&mut self, client: ClientId, pattern: &str) -> Result<(), String> {
        let connected = self.clients.get(&client).ok_or("it is gone")?;
        if connected.grant.may_subscribe(pattern) || self.replies.may_subscribe(client, pattern) {
            return Ok(());
        }
        self.access.count(RefusalKind::Subscribe);
        let rule = self.access.subscribe_rule(&connected.grant);
        Err(format!("{} may not subscribe to `{pattern}`{rule}", connected.who))
    }

    /// Returns the suppliers that a consumer with a blocking policy may block. Without permissions these are
    /// suppliers of its own identity, or all if it is root or the broker's own user.
    pub(super) fn check_blocking(
        &mut self,
        client: ClientId,
        spec: &SubscriptionSpec,
    ) -> Result<BlockedSuppliers, String> {
        let connected = self.clients.get(&client).ok_or("it is gone")?;
        if spec.full != WhenFull::BlockSupplier {
            return Ok(BlockedSuppliers::All);
        }
        if self.access.permissions.is_none() {
            return Ok(match self.is_operator(connected.peer) {
                true => BlockedSuppliers::All,
                false => BlockedSuppliers::Of(connected.owner.of_supplier()),
            });
        }
        if connected.grant.block {
            return Ok(BlockedSuppliers::All);
        }
        self.access.count(RefusalKind::Block);
        Err(format!(
            "{} may not have suppliers wait for it; add `block = true` to its rule, or let a full queue drop events",
            connected.who
        ))
    }

    /// Returns whether a peer is root or the broker's own user, as the kernel reports.
    pub(super) fn is_operator(&self, peer: TransportPeer) -> bool {
        matches!(peer, TransportPeer::User(user) if user == 0 || Some(user) == self.run.own_user)
    }

    /// Checks that a program may publish an event of `bytes` bytes now.
    pub(super) fn check_event(&mut self, now: Instant, client: ClientId, bytes: usize) -> Result<(), String> {
        let connected = self.clients.get_mut(&client).ok_or("it is gone")?;
        let (size, rate) = (connected.grant.size, connected.grant.rate);
        if bytes > size {
            self.access.count(RefusalKind::Size);
            return Err(format!(
                "a payload of {bytes} bytes; the permissions allow {size}: publish a smaller one"
            ));
        }
        match rate.map(|rate| connected.budget.take(now, rate)) {
            Some(Err(wait)) => {
                self.access.count(RefusalKind::Rate);
                Err(format!("more events in a second than the permissions allow; try again in {wait}"))
            }
            _ => Ok(()),
        }
    }

    /// Refunds the rate charged for an event that waits for room. The event is checked and charged again when
    /// the server passes it again.
    pub(super) fn uncheck_event(&mut self, client: ClientId) {
        if let Some(connected) = self.clients.get_mut(&client)
            && let Some(rate) = connected.grant.rate
        {
            connected.budget.refund(rate);
        }
    }

    /// Charges one event to the rate of an MQTT client; returns whether the rate allows the event.
    pub(super) fn has_budget(&mut self, now: Instant, client: ClientId) -> bool {
        let Some(connected) = self.clients.get_mut(&client) else { return false };
        let over = connected.grant.rate.is_some_and(|rate| connected.budget.take(now, rate).is_err());
        if over {
            self.access.count(RefusalKind::Rate);
        }
        !over
    }
}
