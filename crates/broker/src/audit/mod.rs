//! Who connected, what each client got and what it was refused: entries for a file of the operator's.
//!
//! ```text
//!   Broker --(a client asks, gets, is refused, goes)--> AuditTrail --entries--> AuditFile (JSON Lines)
//! ```
//! The first of equal entries is written at once. Those that follow within the second are counted, and one
//! more entry at the second's end says how many there were. Entries are equal if action, outcome, client and
//! subject are. A client that varies its subjects has [`MAX_LINES_OF_CLIENT`] entries in a second with a
//! subject, and beyond them one for each action and outcome. All clients together have [`MAX_LINES`]; beyond
//! them clients are not told apart. So a flood of requests makes no flood of lines, and nothing goes
//! uncounted.
//!
//! Cost: nothing without a trail. With one a look-up for each request, none for events that are taken. When
//! not to use it: to count (statistics and metrics do).

mod file;

pub use file::{AuditError, AuditFile};

use crate::task::ClientId;
use crate::transport::TransportPeer;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use unisono_linux::clock::Nanos;

/// Entries with a subject of one client in a second. A program that starts seldom asks for more topics.
/// Chosen, not measured.
const MAX_LINES_OF_CLIENT: usize = 32;
/// Entries of all clients in a second: some 200 KiB. Chosen, not measured.
const MAX_LINES: usize = 1024;
/// Bytes of a subject and of a reason. A subscription may have many patterns.
const MAX_TEXT: usize = 512;

/// What a client did or wanted.
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
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    Done,
    Refused,
}

/// Which entries are equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct AuditSubject {
    pub action: AuditAction,
    pub outcome: AuditOutcome,
    /// The identity, as permissions write it. None: the client has not said yet who it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The address of the network, or the user of this host.
    pub address: String,
    /// The name that the client gave itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Topics, patterns, a destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
}

/// A line of the file, but for its time of day.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AuditEntry {
    /// By the monotonic clock.
    #[serde(skip)]
    pub at: Nanos,
    #[serde(flatten)]
    pub subject: AuditSubject,
    /// Why it was refused, or ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How many equal ones came since the last entry.
    #[serde(skip_serializing_if = "is_one")]
    pub count: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_one(count: &u64) -> bool {
    *count == 1
}

/// What the trail knows of a connection.
#[derive(Debug)]
struct AuditedClient {
    address: TransportPeer,
    /// Whether its connection was entered as done.
    connected: bool,
    /// Why it ends, once that is known.
    reason: Option<String>,
}

/// Who a client is, as the broker knows it when something happens.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditedIdentity {
    pub(crate) who: Option<String>,
    pub(crate) name: String,
}

/// Makes entries of what happens, and bounds them.
#[derive(Debug, Default)]
pub(crate) struct AuditTrail {
    now: Nanos,
    clients: HashMap<ClientId, AuditedClient>,
    /// What the client asks for whose frame is being handled.
    request: Option<(ClientId, AuditAction, String)>,
    /// When the current second began.
    second: Nanos,
    /// The entries of this second, each with the equal ones that were not written.
    seen: BTreeMap<AuditSubject, AuditEntry>,
    lines: HashMap<String, usize>,
    ready: Vec<AuditEntry>,
    /// Entries that could not be written.
    pub(crate) lost: u64,
}

impl AuditTrail {
    /// Time passes: at the end of a second what was only counted is entered.
    pub(crate) fn advance(&mut self, now: Nanos) {
        self.now = now;
        if now.since(self.second) < Nanos::SECOND {
            return;
        }
        self.second = now;
        self.lines.clear();
        let counted = std::mem::take(&mut self.seen).into_values().filter(|entry| entry.count > 0);
        self.ready.extend(counted.map(|entry| AuditEntry { at: now, ..entry }));
    }

    /// Enters what was only counted, because nothing follows.
    pub(crate) fn finish(&mut self, now: Nanos) {
        self.second = Nanos::ZERO;
        self.advance(now);
    }

    /// The entries since the last call.
    pub(crate) fn take(&mut self) -> Vec<AuditEntry> {
        std::mem::take(&mut self.ready)
    }

    pub(crate) fn arrived(&mut self, client: ClientId, address: TransportPeer) {
        self.clients.insert(client, AuditedClient { address, connected: false, reason: None });
    }

    /// The broker knows who the client is, and lets it stay.
    pub(crate) fn connected(&mut self, client: ClientId, of: AuditedIdentity) {
        if let Some(known) = self.clients.get_mut(&client) {
            known.connected = true;
            self.enter(client, of, (AuditAction::Connect, AuditOutcome::Done), None, None);
        }
    }

    /// The first reason that is told counts.
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

    /// A client asks for something; [`done`](Self::done) or [`refused`](Self::refused) says what it gets.
    pub(crate) fn asks(&mut self, client: ClientId, action: AuditAction, what: String) {
        self.request = Some((client, action, what));
    }

    /// What was asked for last is granted.
    pub(crate) fn done(&mut self, client: ClientId, of: AuditedIdentity) {
        if let Some((_, action, what)) = self.request.take_if(|(whose, ..)| *whose == client) {
            self.enter(client, of, (action, AuditOutcome::Done), Some(what), None);
        }
    }

    /// What was asked for last is refused.
    pub(crate) fn refused(&mut self, client: ClientId, of: AuditedIdentity, why: &str) {
        if let Some((_, action, what)) = self.request.take_if(|(whose, ..)| *whose == client) {
            self.enter(client, of, (action, AuditOutcome::Refused), Some(what), Some(why));
        }
    }

    /// Enters something that nobody asked for by a request of its own.
    pub(crate) fn enter(
        &mut self,
        client: ClientId,
        of: AuditedIdentity,
        (action, outcome): (AuditAction, AuditOutcome),
        what: Option<String>,
        why: Option<&str>,
    ) {
        let address = self.clients.get(&client).map_or_else(String::new, |known| match known.address {
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
        let client = subject.who.clone().unwrap_or_else(|| subject.address.clone());
        let has_subject_left = self.lines.get(&client).is_none_or(|lines| *lines < MAX_LINES_OF_CLIENT);
        if !has_subject_left {
            (subject.what, subject.name) = (None, String::new());
        }
        if self.seen.len() >= MAX_LINES {
            let address = "others".to_owned();
            let AuditSubject { action, outcome, .. } = subject;
            subject = AuditSubject { action, outcome, who: None, address, name: String::new(), what: None };
        }
        if let Some(entry) = self.seen.get_mut(&subject) {
            entry.count += 1;
            return;
        }
        *self.lines.entry(client).or_default() += 1;
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
