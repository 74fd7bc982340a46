//! The audit trail: connections, grants and refusals of each client, as entries for a file of the operator's.
//!
//! ```text
//!   Broker --(a client asks, gets, is refused, goes)--> AuditTrail --entries--> AuditFile (JSON Lines)
//! ```
//! The first of equal entries is written at once. Equal entries within the same second are counted, and one
//! more entry at the second's end gives their number. Two entries are equal if their action, outcome, client
//! and subject are equal. An identity gets at most [`MAX_LINES_OF_CLIENT`] entries with a subject in a
//! second, from all its addresses together; its further requests of that second are counted in one entry for
//! each action and outcome. Clients without a proven identity get as many entries for each address, and
//! [`MAX_UNPROVEN_LINES`] together. All clients together get [`MAX_LINES`]; beyond them the entries do not
//! distinguish clients. So a flood of requests makes no flood of lines, and every request is counted.
//!
//! Cost: none without a trail. With a trail one look-up for each request, and none for events that the broker
//! accepts. When not to use it: to count (statistics and metrics do).

mod file;

pub use file::{AuditError, AuditFile};

use crate::task::ClientId;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use unisono_events_wire::transport::TransportPeer;
use unisono_linux::clock::{Duration, Instant};

/// Maximum number of entries with a subject that one identity gets in a second. A program rarely asks for
/// more topics when it starts. Chosen, not measured.
const MAX_LINES_OF_CLIENT: usize = 32;
/// Maximum number of entries of all clients in a second: some 200 KiB. Chosen, not measured.
const MAX_LINES: usize = 1024;
/// Maximum number of entries of all clients without a proven identity in a second: a quarter, because
/// addresses cost a client nothing. Chosen, not measured.
const MAX_UNPROVEN_LINES: usize = MAX_LINES / 4;
/// The address in an entry that counts clients of several addresses.
const OTHERS: &str = "others";
/// Maximum bytes of a subject and of a reason. A subscription may have many patterns.
const MAX_TEXT: usize = 512;

/// The action of a client, or its request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditAction {
    Connect,
    Disconnect,
    Advertise,
    Subscribe,
    JoinGroup,
    Resume,
    OpenPath,
    /// A supplier and a consumer were introduced, to exchange events without the broker.
    Ring,
    Publish,
    /// The broker's files were read again.
    Reload,
    /// Another process asked to serve at the broker's sockets.
    TakeOver,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    Done,
    Refused,
}

/// The key of an entry: entries with the same key are equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct AuditSubject {
    pub action: AuditAction,
    pub outcome: AuditOutcome,
    /// The identity, as permissions write it. `None`: the client has not authenticated yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The address of the network, or the user of this host.
    pub address: String,
    /// The name that the client gave itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The topics, the patterns or the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
}

/// A line of the file, without its time of day.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AuditEntry {
    /// The time on the monotonic clock.
    #[serde(skip)]
    pub at: Instant,
    #[serde(flatten)]
    pub subject: AuditSubject,
    /// The reason of the refusal, or of the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The number of equal requests that the entry reports: 1, or all those since the last equal entry was
    /// written.
    #[serde(skip_serializing_if = "is_one")]
    pub count: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_one(count: &u64) -> bool {
    *count == 1
}

/// The trail's record of a connection.
#[derive(Debug)]
struct AuditedClient {
    address: TransportPeer,
    /// Whether an entry says that the broker accepted the connection.
    connected: bool,
    /// The reason of the connection's end, once it is known.
    reason: Option<String>,
}

/// A client's identity at the time of an entry, as the broker knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditedIdentity {
    pub(crate) who: Option<String>,
    pub(crate) name: String,
}

/// The maximum number of entries in a second for `of`: an identity, an address, or all clients without a
/// proven identity.
struct LineBudget {
    of: String,
    most: usize,
}

impl LineBudget {
    /// Returns the budgets that an entry counts in. The last one covers clients of several addresses.
    fn for_subject(subject: &AuditSubject) -> Vec<Self> {
        let proven = subject.who.as_deref().filter(|who| *who != "anonymous");
        match proven {
            Some(who) => {
                // one token is one identity, over frames and over MQTT
                let of = who.strip_prefix("mqtt:").map_or_else(|| who.to_owned(), |it| format!("token:{it}"));
                vec![Self { of, most: MAX_LINES_OF_CLIENT }]
            }
            None => vec![
                Self { of: format!("from {}", subject.address), most: MAX_LINES_OF_CLIENT },
                Self { of: String::new(), most: MAX_UNPROVEN_LINES },
            ],
        }
    }
}

/// Makes entries, and bounds their number in each second.
#[derive(Debug, Default)]
pub(crate) struct AuditTrail {
    now: Instant,
    clients: HashMap<ClientId, AuditedClient>,
    /// The request in the frame that the broker handles now.
    request: Option<(ClientId, AuditAction, String)>,
    /// When the current second began.
    second: Instant,
    /// The entries of this second, each with the count of equal ones that were not written.
    seen: BTreeMap<AuditSubject, AuditEntry>,
    /// The entries of this second in each budget.
    lines: HashMap<String, usize>,
    ready: Vec<AuditEntry>,
    /// Entries that could not be written.
    pub(crate) lost: u64,
}

impl AuditTrail {
    /// Advances the time. At the end of a second, requests that were only counted get their entries.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.now = now;
        if now - self.second < Duration::SECOND {
            return;
        }
        self.second = now;
        self.lines.clear();
        let counted = std::mem::take(&mut self.seen).into_values().filter(|entry| entry.count > 0);
        self.ready.extend(counted.map(|entry| AuditEntry { at: now, ..entry }));
    }

    /// Makes the entries of counted requests when the broker ends.
    pub(crate) fn finish(&mut self, now: Instant) {
        self.second = Instant::ZERO;
        self.advance(now);
    }

    /// Returns the entries since the last call.
    pub(crate) fn take(&mut self) -> Vec<AuditEntry> {
        std::mem::take(&mut self.ready)
    }

    pub(crate) fn arrived(&mut self, client: ClientId, address: TransportPeer) {
        self.clients.insert(client, AuditedClient { address, connected: false, reason: None });
    }

    /// Adds an entry for a connection whose client the broker has accepted.
    pub(crate) fn connected(&mut self, client: ClientId, of: AuditedIdentity) {
        if let Some(known) = self.clients.get_mut(&client) {
            known.connected = true;
            self.enter(client, of, (AuditAction::Connect, AuditOutcome::Done), None, None);
        }
    }

    /// Records the reason of the end; the first reason counts.
    pub(crate) fn ends_because(&mut self, client: ClientId, reason: &str) {
        if let Some(known) = self.clients.get_mut(&client) {
            known.reason.get_or_insert_with(|| reason.to_owned());
        }
    }

    pub(crate) fn gone(&mut self, client: ClientId, of: AuditedIdentity) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        let (reason, was_connected) = (known.reason.take(), known.connected);
        let (entry, usual) = match was_connected {
            true => ((AuditAction::Disconnect, AuditOutcome::Done), "the client closed the connection"),
            false => ((AuditAction::Connect, AuditOutcome::Refused), "the client left without a greeting"),
        };
        let of = if was_connected { of } else { AuditedIdentity { who: None, ..of } };
        self.enter(client, of, entry, None, Some(reason.as_deref().unwrap_or(usual)));
        self.clients.remove(&client);
    }

    /// Records a client's request; [`done`](Self::done) or [`refused`](Self::refused) records the outcome.
    pub(crate) fn asks(&mut self, client: ClientId, action: AuditAction, what: String) {
        self.request = Some((client, action, what));
    }

    /// Adds an entry for the last request, as granted.
    pub(crate) fn done(&mut self, client: ClientId, of: AuditedIdentity) {
        if let Some((_, action, what)) = self.request.take_if(|(whose, ..)| *whose == client) {
            self.enter(client, of, (action, AuditOutcome::Done), Some(what), None);
        }
    }

    /// Adds an entry for the last request, as refused.
    pub(crate) fn refused(&mut self, client: ClientId, of: AuditedIdentity, why: &str) {
        if let Some((_, action, what)) = self.request.take_if(|(whose, ..)| *whose == client) {
            self.enter(client, of, (action, AuditOutcome::Refused), Some(what), Some(why));
        }
    }

    /// Adds an entry for an action without a request of its own.
    pub(crate) fn enter(
        &mut self,
        client: ClientId,
        of: AuditedIdentity,
        entry: (AuditAction, AuditOutcome),
        what: Option<String>,
        why: Option<&str>,
    ) {
        let address = self.clients.get(&client).map(|known| known.address);
        self.enter_from(address, of, entry, what, why);
    }

    /// Adds an entry for an action of a client that may be gone.
    pub(crate) fn enter_from(
        &mut self,
        address: Option<TransportPeer>,
        of: AuditedIdentity,
        (action, outcome): (AuditAction, AuditOutcome),
        what: Option<String>,
        why: Option<&str>,
    ) {
        let address = address.map_or_else(String::new, |address| match address {
            TransportPeer::User(user) => format!("unix:{user}"),
            TransportPeer::Address(address) => address.to_canonical().to_string(),
        });
        let what = what.map(shortened);
        self.count(AuditSubject { action, outcome, who: of.who, address, name: of.name, what }, why);
    }

    fn count(&mut self, mut subject: AuditSubject, why: Option<&str>) {
        if let Some(entry) = self.seen.get_mut(&subject) {
            entry.count += 1;
            return;
        }
        let budgets = LineBudget::for_subject(&subject);
        let is_used_up =
            |budget: &LineBudget| self.lines.get(&budget.of).is_some_and(|lines| *lines >= budget.most);
        if budgets.iter().any(is_used_up) {
            (subject.what, subject.name) = (None, String::new());
        }
        // the budget of several addresses is used up: the entry does not name the address
        if budgets.last().is_some_and(is_used_up) {
            OTHERS.clone_into(&mut subject.address);
        }
        if self.seen.len() >= MAX_LINES {
            let AuditSubject { action, outcome, .. } = subject;
            let (address, name) = (OTHERS.to_owned(), String::new());
            subject = AuditSubject { action, outcome, who: None, address, name, what: None };
        }
        if let Some(entry) = self.seen.get_mut(&subject) {
            entry.count += 1;
            return;
        }
        for budget in budgets {
            *self.lines.entry(budget.of).or_default() += 1;
        }
        let why = why.map(|why| shortened(why.to_owned()));
        let entry = AuditEntry { at: self.now, subject, why, count: 1 };
        self.seen.insert(entry.subject.clone(), AuditEntry { count: 0, ..entry.clone() });
        self.ready.push(entry);
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests;
