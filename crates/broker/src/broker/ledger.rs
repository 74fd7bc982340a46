//! Who has how much of the broker's memory: queues and credit that were granted, and what topics keep.
//!
//! A grant is what a consumer may come to hold, not what it holds. It is booked when the consumer comes and
//! released when it goes, or, of a group whose queue outlives its consumers, when that has ended. What topics
//! keep for late consumers is counted as it is, by the channel, for two accounts: that of who published it
//! (by its name, so that it is the same when the program connects again), and that of its user.
//!
//! Cost: two additions for each grant, and a look-up for each event that is kept.

use super::mqtt::MqttSessionId;
use super::{Broker, ConnectedClient};
use crate::limits::Limits;
use crate::permissions::{ClientIdentity, RefusalKind};
use crate::spec::SubscriptionSpec;
use crate::task::ClientId;
use crate::transport::TransportPeer;
use std::collections::HashMap;
use unisono_eventchannel::{KeepingAccount, KeepingTerms, KeptBy, TopicId};
use unisono_linux::clock::Nanos;

/// Bytes of each grant at least: about what a consumer without any event costs.
const LEAST_GRANT: u64 = 4096;
/// Accounts that are known. Of more, those are forgotten of which nothing is kept.
const MOST_ACCOUNTS: usize = 1024;

/// Whose account it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum AccountHolder {
    Client(ClientIdentity),
    User(TransportPeer),
}

impl AccountHolder {
    fn role(&self) -> KeptBy {
        match self {
            Self::Client(_) => KeptBy::Client,
            Self::User(_) => KeptBy::User,
        }
    }
}

/// What was granted, and the numbers of accounts.
#[derive(Debug, Default)]
pub(super) struct MemoryLedger {
    granted: u64,
    /// By user; none is 0.
    users: HashMap<TransportPeer, u64>,
    /// Queues of groups without consumers, with when they end at the latest.
    lingering: Vec<(Nanos, TransportPeer, u64)>,
    accounts: HashMap<AccountHolder, KeepingAccount>,
    /// The number given last.
    last: u32,
}

impl MemoryLedger {
    pub(super) fn book(&mut self, peer: TransportPeer, bytes: u64) {
        self.granted = self.granted.saturating_add(bytes);
        let theirs = self.users.entry(peer).or_default();
        *theirs = theirs.saturating_add(bytes);
    }

    /// A consumer goes; the queue of its group may go on for a while.
    pub(super) fn release_queue(&mut self, now: Nanos, peer: TransportPeer, grant: QueueGrant) {
        match grant.linger {
            Nanos::ZERO => self.release(peer, grant.bytes),
            linger => self.lingering.push((linger.after(now), peer, grant.bytes)),
        }
    }

    pub(super) fn release(&mut self, peer: TransportPeer, bytes: u64) {
        self.granted = self.granted.saturating_sub(bytes);
        if let Some(theirs) = self.users.get_mut(&peer) {
            *theirs = theirs.saturating_sub(bytes);
            if *theirs == 0 {
                self.users.remove(&peer);
            }
        }
    }

    pub(super) fn look(&mut self, now: Nanos) {
        let over: Vec<_> = self.lingering.extract_if(.., |(until, ..)| *until <= now).collect();
        over.into_iter().for_each(|(_, peer, bytes)| self.release(peer, bytes));
    }

    fn granted_to(&self, peer: TransportPeer) -> u64 {
        self.users.get(&peer).copied().unwrap_or(0)
    }

    fn account(
        &mut self,
        holder: AccountHolder,
        kept: impl Fn(KeptBy, KeepingAccount) -> usize,
    ) -> KeepingAccount {
        if let Some(account) = self.accounts.get(&holder) {
            return *account;
        }
        if self.accounts.len() >= MOST_ACCOUNTS {
            self.accounts.retain(|holder, account| kept(holder.role(), *account) > 0);
        }
        self.last += 1; // 2^32 accounts later the numbers would come again; each took a connection
        self.accounts.insert(holder, KeepingAccount(self.last));
        KeepingAccount(self.last)
    }
}

/// What was granted to a consumer of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueGrant {
    pub(super) bytes: u64,
    /// How long its queue outlives it.
    linger: Nanos,
}

impl QueueGrant {
    /// Room for its queue, and for as much that it has not acknowledged.
    pub(super) fn of(spec: &SubscriptionSpec) -> Self {
        let entries = (spec.queue_events as u64).saturating_mul(Limits::ENTRY.into());
        let queue = (spec.queue_bytes as u64).max(entries).max(LEAST_GRANT);
        // what a consumer that resumes has not acknowledged is part of its queue
        let twice = spec.again.is_some() && spec.resume.is_none();
        let linger = if spec.group.is_some() { Nanos(spec.linger_ns) } else { Nanos::ZERO };
        Self { bytes: if twice { queue.saturating_mul(2) } else { queue }, linger }
    }
}

impl ConnectedClient {
    /// Bytes that were granted to its consumers.
    fn granted(&self) -> u64 {
        self.consumers.values().map(|(_, grant)| grant.bytes).fold(0, u64::saturating_add)
    }
}

fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl Broker {
    /// Whether a program's queues, and what topics keep of it, may have so many bytes more.
    pub(super) fn check_memory(&mut self, client: ClientId, more: u64) -> Result<(), String> {
        let connected = self.clients.get(&client).ok_or("it is gone")?;
        let most = connected.grant.memory;
        let (queues, who) = (connected.granted().saturating_add(more), connected.who.clone());
        let all = queues.saturating_add(self.kept_of(AccountHolder::Client(who.clone())));
        if all <= most {
            return Ok(());
        }
        self.access.count(RefusalKind::Memory);
        Err(format!(
            "the permissions allow {who} {most} bytes of queues and kept events, and these would be {all}"
        ))
    }

    fn kept_of(&self, holder: AccountHolder) -> u64 {
        let account = self.ledger.accounts.get(&holder);
        account.map_or(0, |account| self.channel.kept_of(holder.role(), *account) as u64)
    }

    /// Bytes that topics keep of the client whose session it is.
    pub(super) fn kept_of_session(&self, session: MqttSessionId) -> u64 {
        self.mqtt.account(session).map_or(0, |(who, ..)| self.kept_of(AccountHolder::Client(who)))
    }

    /// Whether a peer may have so many bytes more; the answer is why not.
    pub(super) fn refuses_memory(&mut self, peer: TransportPeer, bytes: u64) -> Option<String> {
        debug_assert_eq!(
            self.ledger.granted,
            self.granted_from_scratch(),
            "a grant was not booked, or twice"
        );
        let Limits { memory, memory_of_user, .. } = self.limits;
        let all = self.ledger.granted.saturating_add(self.channel.kept() as u64);
        let theirs = self.ledger.granted_to(peer).saturating_add(self.kept_of(AccountHolder::User(peer)));
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

    pub(super) fn granted(&self) -> u64 {
        self.ledger.granted
    }

    /// All grants, added up.
    fn granted_from_scratch(&self) -> u64 {
        let queues = self.clients.values().map(ConnectedClient::granted);
        let lingering = self.ledger.lingering.iter().map(|(.., bytes)| *bytes);
        let paths = self.paths.len() as u64 * u64::from(self.limits.credit);
        queues.chain(lingering).fold(paths.saturating_add(self.mqtt.memory()), u64::saturating_add)
    }

    /// On which terms a topic may keep what a program publishes.
    pub(super) fn terms_of_program(&mut self, client: ClientId, topic: TopicId) -> KeepingTerms {
        if !self.channel.keeps(topic) {
            return KeepingTerms::default();
        }
        let Some(connected) = self.clients.get(&client) else { return KeepingTerms::default() };
        let left = connected.grant.memory.saturating_sub(connected.granted());
        self.terms((connected.who.clone(), left), connected.peer)
    }

    /// The same, of a client that speaks MQTT.
    pub(super) fn terms_of_session(&mut self, session: MqttSessionId) -> KeepingTerms {
        let Some((who, left, peer)) = self.mqtt.account(session) else { return KeepingTerms::default() };
        self.terms((who, left), peer)
    }

    fn terms(&mut self, (who, left): (ClientIdentity, u64), peer: TransportPeer) -> KeepingTerms {
        let Limits { memory, memory_of_user, .. } = self.limits;
        let of_user = memory_of_user.saturating_sub(self.ledger.granted_to(peer));
        let all = memory.saturating_sub(self.ledger.granted);
        let kept = |whose, account| self.channel.kept_of(whose, account);
        let client = self.ledger.account(AccountHolder::Client(who), kept);
        let user = self.ledger.account(AccountHolder::User(peer), kept);
        KeepingTerms { client: (client, bytes(left)), user: (user, bytes(of_user)), all: bytes(all) }
    }
}
