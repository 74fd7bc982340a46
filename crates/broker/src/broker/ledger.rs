//! Shares of the broker's memory: granted queues and credit, and the events that topics keep.
//!
//! A grant is the most memory that a consumer may come to hold, not its present use. It is charged when the
//! consumer is added, and released when the consumer is removed, or when the queue of its group ends if that
//! queue outlives its consumers. The channel counts the events that topics keep for late consumers, for two
//! accounts: the account of the publisher's identity (which stays the same when the program connects again)
//! and the account of its user.
//!
//! Structures are charged as they are made (`structures.rs`), and buffers of connections as they grow
//! (`buffers.rs` of `events-wire`).
//!
//! Cost: two additions for each grant, and a look-up for each event that is kept.

use super::mqtt::MqttSessionId;
use super::{Broker, ConnectedClient, structures};
use crate::limits::Limits;
use crate::name_owner::NameOwner;
use crate::permissions::{ClientIdentity, RefusalKind};
use crate::task::ClientId;
use std::collections::HashMap;
use std::sync::Arc;
use unisono_eventchannel::{KeepingAccount, KeepingTerms, KeptBy, TenantId, TopicId};
use unisono_events_wire::SubscriptionSpec;
use unisono_events_wire::transport::TransportPeer;
use unisono_events_wire::{AllMemory, BufferAccount, BufferShare};
use unisono_linux::clock::{Duration, Instant};

/// The smallest grant, in bytes: about what a consumer without any event costs if as many gaps, notices and
/// counters of missed deadlines as possible wait for it.
const MIN_GRANT: u64 = 32 << 10;
/// With this many known accounts, accounts without kept events are forgotten before another account is added.
const MAX_ACCOUNTS: usize = 1024;

/// The holder of an account.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum AccountHolder {
    Client(ClientIdentity),
    User(TransportPeer),
    /// The user of an identity whose address is unknown, because only the log, written in an earlier run,
    /// names it.
    UserOf(ClientIdentity),
}

impl AccountHolder {
    /// Returns the holder of a client's account. A token has one account, even if some of its clients send it
    /// as user and password of MQTT.
    fn client(who: &ClientIdentity) -> Self {
        Self::Client(NameOwner::from(who).identity())
    }

    fn role(&self) -> KeptBy {
        match self {
            Self::Client(_) => KeptBy::Client,
            Self::User(_) | Self::UserOf(_) => KeptBy::User,
        }
    }
}

/// The memory of one user.
#[derive(Debug, Default)]
struct UserMemory {
    granted: u64,
    held: u64,
    /// Bytes of its events that topics kept when it last published an event to keep.
    kept: u64,
    buffers: Option<Arc<BufferAccount>>,
}

impl UserMemory {
    fn buffered(&self) -> u64 {
        self.buffers.as_ref().map_or(0, |buffers| buffers.used())
    }

    fn update_buffers(&self) {
        if let Some(buffers) = &self.buffers {
            buffers.set_others(self.granted.saturating_add(self.held).saturating_add(self.kept));
        }
    }
}

/// All grants, and the numbers of accounts.
#[derive(Debug, Default)]
pub(super) struct MemoryLedger {
    granted: u64,
    /// Structures: names, filters, sessions.
    held: u64,
    /// By user; a user without memory has no entry.
    users: HashMap<TransportPeer, UserMemory>,
    /// Queues of groups without consumers, each with the latest time of its end.
    lingering: Vec<(Instant, TransportPeer, QueueGrant)>,
    accounts: HashMap<AccountHolder, KeepingAccount>,
    /// The last number assigned to an account.
    last: u32,
    /// Bytes of kept events and names when they were last counted.
    kept: u64,
    /// `None`: no connection charges its buffers.
    all: Option<Arc<AllMemory>>,
}

impl MemoryLedger {
    pub(super) fn book(&mut self, peer: TransportPeer, bytes: u64) {
        self.granted = self.granted.saturating_add(bytes);
        let theirs = self.users.entry(peer).or_default();
        theirs.granted = theirs.granted.saturating_add(bytes);
        theirs.update_buffers();
        self.update_all_buffers();
    }

    fn update_all_buffers(&self) {
        if let Some(all) = &self.all {
            all.set_others(self.granted.saturating_add(self.held).saturating_add(self.kept));
        }
    }

    fn set_kept(&mut self, kept: usize) {
        self.kept = kept as u64;
        self.update_all_buffers();
    }

    /// Charges a peer for structures of this many bytes.
    pub(super) fn hold(&mut self, peer: TransportPeer, bytes: u64) {
        self.held = self.held.saturating_add(bytes);
        let theirs = self.users.entry(peer).or_default();
        theirs.held = theirs.held.saturating_add(bytes);
        theirs.update_buffers();
        self.update_all_buffers();
    }

    pub(super) fn release_held(&mut self, peer: TransportPeer, bytes: u64) {
        self.held = self.held.saturating_sub(bytes);
        self.change(peer, |theirs| theirs.held = theirs.held.saturating_sub(bytes));
    }

    /// Changes the memory of a peer, and removes its entry if nothing is left.
    fn change(&mut self, peer: TransportPeer, change: impl FnOnce(&mut UserMemory)) {
        self.update_all_buffers();
        if let Some(theirs) = self.users.get_mut(&peer) {
            change(theirs);
            theirs.update_buffers();
            let is_used = theirs.buffers.as_ref().is_some_and(|buffers| Arc::strong_count(buffers) > 1);
            if (theirs.granted, theirs.held, is_used) == (0, 0, false) {
                self.users.remove(&peer);
            }
        }
    }

    /// Returns the account of a user's buffers.
    pub(super) fn buffers(&mut self, peer: TransportPeer, limits: &Limits) -> Arc<BufferAccount> {
        let all = self.all.get_or_insert_with(|| Arc::new(AllMemory::new(limits.memory)));
        let new = || Arc::new(BufferAccount::new(limits.memory_of_user, Arc::clone(all)));
        let theirs = self.users.entry(peer).or_default();
        let buffers = Arc::clone(theirs.buffers.get_or_insert_with(new));
        theirs.update_buffers();
        self.update_all_buffers();
        buffers
    }

    /// Returns the number of bytes of the buffers of all connections.
    fn buffered(&self) -> u64 {
        self.all.as_ref().map_or(0, |all| all.buffers())
    }

    /// Releases the queue of a consumer that is removed; the queue of its group may linger.
    pub(super) fn release_queue(&mut self, now: Instant, peer: TransportPeer, grant: QueueGrant) {
        let linger = grant.linger;
        if !linger.is_zero() {
            return self.lingering.push((now + linger, peer, grant));
        }
        self.release(peer, grant.bytes);
        self.release_held(peer, grant.held);
    }

    pub(super) fn release(&mut self, peer: TransportPeer, bytes: u64) {
        self.granted = self.granted.saturating_sub(bytes);
        self.change(peer, |theirs| theirs.granted = theirs.granted.saturating_sub(bytes));
    }

    pub(super) fn expire(&mut self, now: Instant) {
        let over: Vec<_> = self.lingering.extract_if(.., |(until, ..)| *until <= now).collect();
        for (_, peer, grant) in over {
            self.release(peer, grant.bytes);
            self.release_held(peer, grant.held);
        }
        // users whose last connection has gone
        let peers: Vec<_> = self.users.keys().copied().collect();
        peers.into_iter().for_each(|peer| self.change(peer, |_| {}));
    }

    fn granted_to(&self, peer: TransportPeer) -> u64 {
        self.users.get(&peer).map_or(0, |theirs| theirs.granted.saturating_add(theirs.held))
    }

    fn account(
        &mut self,
        holder: AccountHolder,
        kept: impl Fn(KeptBy, KeepingAccount) -> usize,
    ) -> KeepingAccount {
        if let Some(account) = self.accounts.get(&holder) {
            return *account;
        }
        if self.accounts.len() >= MAX_ACCOUNTS {
            self.accounts.retain(|holder, account| kept(holder.role(), *account) > 0);
        }
        self.last += 1; // the numbers repeat after 2^32 accounts; each took a connection
        self.accounts.insert(holder, KeepingAccount(self.last));
        KeepingAccount(self.last)
    }
}

/// Memory granted to a consumer of a program. Packed, because a broker has many.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
pub(super) struct QueueGrant {
    pub(super) bytes: u64,
    /// Bytes of its names, patterns and filters.
    pub(super) held: u64,
    /// The time for which the queue outlives the consumer.
    linger: Duration,
}

impl QueueGrant {
    /// Makes the grant of a consumer: room for its queue, and as much again if events may wait outside the
    /// queue for an acknowledgement or for a correlation.
    pub(super) fn for_spec(spec: &SubscriptionSpec) -> Self {
        let entries = (spec.queue_events as u64).saturating_mul(unisono_events_wire::EVENT_COST.into());
        let queue = (spec.queue_bytes as u64).max(entries).max(MIN_GRANT);
        // the queue of a consumer that resumes holds its unacknowledged events
        let twice = spec.again.is_some() && spec.resume.is_none();
        let linger = if spec.group.is_some() { Duration::from_nanos(spec.linger_ns) } else { Duration::ZERO };
        // events that wait for a correlation have the bound of the queue, too
        let twice = twice || spec.together.is_some();
        let held = structures::subscription(spec);
        Self { bytes: if twice { queue.saturating_mul(2) } else { queue }, held, linger }
    }
}

impl ConnectedClient {
    /// Returns the number of bytes granted to the client's consumers.
    fn granted(&self) -> u64 {
        self.consumers.values().map(|(_, grant)| grant.bytes).fold(0, u64::saturating_add)
    }

    /// Returns the number of bytes of all structures made for the client.
    fn held_in_all(&self) -> u64 {
        self.consumers.values().map(|(_, grant)| grant.held).fold(self.held, u64::saturating_add)
    }
}

fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl Broker {
    /// Checks that a program's queues and kept events may take `more` additional bytes.
    pub(super) fn check_memory(&mut self, client: ClientId, more: u64) -> Result<(), String> {
        let connected = self.clients.get(&client).ok_or("it is gone")?;
        let most = connected.grant.memory;
        let with_names = most.saturating_add(structures::NAMES);
        let theirs = connected.granted().saturating_add(connected.held_in_all());
        let (queues, who) = (theirs.saturating_add(more), connected.who.clone());
        let holder = AccountHolder::client(&who);
        let mut all = queues.saturating_add(self.kept_of(&holder));
        if all > with_names && self.retire_for_room() {
            all = queues.saturating_add(self.kept_of(&holder));
        }
        if all <= with_names {
            return Ok(());
        }
        self.access.count(RefusalKind::Memory);
        Err(format!(
            "the permissions allow {who} {most} bytes of queues and kept events, and these would be {all}"
        ))
    }

    fn kept_of(&self, holder: &AccountHolder) -> u64 {
        let account = self.ledger.accounts.get(holder);
        account.map_or(0, |account| self.channel.kept_of(holder.role(), *account) as u64)
    }

    /// Returns the number of bytes that topics keep for the client of this session.
    pub(super) fn kept_of_session(&self, session: MqttSessionId) -> u64 {
        self.mqtt.account(session).map_or(0, |(who, ..)| self.kept_of(&AccountHolder::client(&who)))
    }

    /// Checks whether a peer may have `bytes` more, and counts a refusal.
    ///
    /// # Errors
    /// The limit of its user or of the broker is reached.
    pub(super) fn check_memory_of_peer(&mut self, peer: TransportPeer, bytes: u64) -> Result<(), String> {
        debug_assert_eq!(
            self.ledger.granted,
            self.granted_from_scratch(),
            "a grant was not booked, or twice"
        );
        debug_assert_eq!(self.ledger.held, self.held_from_scratch(), "a structure was not booked, or twice");
        let mut refused = self.refusal_of_memory(peer, bytes);
        if refused.is_some() && self.retire_for_room() {
            refused = self.refusal_of_memory(peer, bytes);
        }
        let Some(refused) = refused else { return Ok(()) };
        self.access.count(RefusalKind::Memory);
        Err(refused)
    }

    /// Retires unused topics, whose names take memory; returns whether there were any.
    pub(super) fn retire_for_room(&mut self) -> bool {
        let retired = self.channel.retire_for_room();
        self.forget_retired();
        retired
    }

    fn refusal_of_memory(&mut self, peer: TransportPeer, bytes: u64) -> Option<String> {
        let Limits { memory, memory_of_user, .. } = self.limits;
        let of_topics = self.channel.kept().saturating_add(self.channel.named());
        self.ledger.set_kept(of_topics);
        let structures = self.ledger.held.saturating_add(self.ledger.buffered());
        let all = self.ledger.granted.saturating_add(structures).saturating_add(of_topics as u64);
        let buffered = self.ledger.users.get(&peer).map_or(0, UserMemory::buffered);
        let kept = self.kept_of(&AccountHolder::User(peer));
        let theirs = self.ledger.granted_to(peer).saturating_add(buffered).saturating_add(kept);
        let refused = if bytes > memory {
            format!(
                "{bytes} bytes are more than the broker gives to all programs together ({memory}); ask for less"
            )
        } else if all.saturating_add(bytes) > memory {
            format!("the broker has given all memory it may ({memory} bytes); try later")
        } else if theirs.saturating_add(bytes) > memory_of_user {
            format!(
                "one user may have {memory_of_user} bytes of queues, credit and kept events together; close \
                 something"
            )
        } else {
            return None;
        };
        Some(refused)
    }

    /// Returns the number of bytes of structures, and of the buffers of connections.
    pub(super) fn held(&self) -> u64 {
        self.ledger.held.saturating_add(self.ledger.buffered())
    }

    pub(super) fn granted(&self) -> u64 {
        self.ledger.granted
    }

    /// Returns the sum of all grants.
    fn granted_from_scratch(&self) -> u64 {
        let queues = self.clients.values().map(ConnectedClient::granted);
        let lingering = self.ledger.lingering.iter().map(|(.., grant)| grant.bytes);
        let paths = self.link.paths.len() as u64 * u64::from(self.limits.credit);
        queues.chain(lingering).fold(paths.saturating_add(self.mqtt.memory()), u64::saturating_add)
    }

    /// Returns the sum of all structures.
    fn held_from_scratch(&self) -> u64 {
        let clients = self.clients.values().map(ConnectedClient::held_in_all);
        let lingering = self.ledger.lingering.iter().map(|(.., grant)| grant.held);
        clients.chain(lingering).fold(self.mqtt.held(), u64::saturating_add)
    }

    /// Returns the account that a program's connection charges its buffers to.
    pub(crate) fn buffer_share(&mut self, client: ClientId) -> BufferShare {
        let Some(peer) = self.clients.get(&client).map(|client| client.peer) else {
            return BufferShare::default();
        };
        BufferShare::new(self.ledger.buffers(peer, &self.limits))
    }

    /// Charges a structure of a program.
    ///
    /// # Errors
    /// The limit of its rule, of its user or of the broker is reached.
    pub(super) fn hold_for_client(&mut self, client: ClientId, bytes: u64) -> Result<(), String> {
        self.check_memory(client, bytes)?;
        let peer = self.clients.get(&client).ok_or("it is gone")?.peer;
        self.check_memory_of_peer(peer, bytes)?;
        self.ledger.hold(peer, bytes);
        if let Some(connected) = self.clients.get_mut(&client) {
            connected.held += bytes;
        }
        Ok(())
    }

    pub(super) fn release_for_client(&mut self, client: ClientId, bytes: u64) {
        if let Some(connected) = self.clients.get_mut(&client) {
            connected.held = connected.held.saturating_sub(bytes);
            self.ledger.release_held(connected.peer, bytes);
        }
    }

    /// Charges a structure of an MQTT session.
    ///
    /// # Errors
    /// As [`hold_for_client`](Self::hold_for_client).
    pub(super) fn hold_for_session(&mut self, session: MqttSessionId, bytes: u64) -> Result<(), String> {
        let Some((who, left, peer)) = self.mqtt.account(session) else { return Ok(()) };
        let holder = AccountHolder::client(&who);
        let is_over = |broker: &Self| broker.kept_of(&holder).saturating_add(bytes) > left;
        if is_over(self) && (!self.retire_for_room() || is_over(self)) {
            self.access.count(RefusalKind::Memory);
            return Err(format!(
                "the permissions leave {who} {left} bytes beside its queues, and retained messages, filters and \
                 names would take more"
            ));
        }
        self.check_memory_of_peer(peer, bytes)?;
        self.ledger.hold(peer, bytes);
        self.mqtt.hold(session, bytes);
        Ok(())
    }

    pub(super) fn release_for_session(&mut self, session: MqttSessionId, bytes: u64) {
        if let Some((.., peer)) = self.mqtt.account(session) {
            self.mqtt.release_held(session, bytes);
            self.ledger.release_held(peer, bytes);
        }
    }

    /// Returns the limits for keeping a program's events on a topic.
    pub(super) fn terms_of_program(&mut self, client: ClientId, topic: TopicId) -> KeepingTerms {
        match self.channel.keeps(topic) {
            true => self.terms_of_names(client),
            false => KeepingTerms::default(),
        }
    }

    /// Returns the limits for keeping the names of a program's topics.
    pub(super) fn terms_of_names(&mut self, client: ClientId) -> KeepingTerms {
        let Some(connected) = self.clients.get(&client) else { return KeepingTerms::default() };
        let theirs = connected.granted().saturating_add(connected.held_in_all());
        let left = connected.grant.memory.saturating_add(structures::NAMES).saturating_sub(theirs);
        self.terms((connected.who.clone(), left), connected.peer)
    }

    /// Returns the limits for keeping an MQTT client's events.
    pub(super) fn terms_of_session(&mut self, session: MqttSessionId) -> KeepingTerms {
        let Some((who, left, peer)) = self.mqtt.account(session) else { return KeepingTerms::default() };
        self.terms((who, left), peer)
    }

    fn terms(&mut self, (who, left): (ClientIdentity, u64), peer: TransportPeer) -> KeepingTerms {
        let Limits { memory, memory_of_user, .. } = self.limits;
        let buffered = self.ledger.users.get(&peer).map_or(0, UserMemory::buffered);
        let of_user = memory_of_user.saturating_sub(self.ledger.granted_to(peer).saturating_add(buffered));
        let all = memory.saturating_sub(self.ledger.granted.saturating_add(self.held()));
        self.ledger.set_kept(self.channel.kept().saturating_add(self.channel.named()));
        let kept = self.kept_of(&AccountHolder::User(peer));
        self.ledger.change(peer, |theirs| theirs.kept = kept);
        let kept = |whose, account| self.channel.kept_of(whose, account);
        let client = self.ledger.account(AccountHolder::client(&who), kept);
        let user = self.ledger.account(AccountHolder::User(peer), kept);
        KeepingTerms { client: (client, bytes(left)), user: (user, bytes(of_user)), all: bytes(all) }
    }

    /// Returns the tenant and the limits that apply to data that the log has kept for an owner since an
    /// earlier run.
    pub(super) fn terms_of_owner(&mut self, owner: Option<&NameOwner>) -> (TenantId, KeepingTerms) {
        let who = owner.map_or(ClientIdentity::Anonymous, NameOwner::identity);
        let user = match &who {
            ClientIdentity::Unix(user) => AccountHolder::User(TransportPeer::User(*user)),
            who => AccountHolder::UserOf(who.clone()),
        };
        let Limits { memory, memory_of_user, .. } = self.limits;
        let kept = |whose, account| self.channel.kept_of(whose, account);
        let client = self.ledger.account(AccountHolder::client(&who), kept);
        let user = self.ledger.account(user, kept);
        let most = bytes(memory_of_user);
        let terms = KeepingTerms { client: (client, most), user: (user, most), all: bytes(memory) };
        (self.tenant_of_owner(&who), terms)
    }
}
