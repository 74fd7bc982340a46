//! Reply topics: each program has a reply topic of its own.
//!
//! The broker assigns the name with the greeting. The program may subscribe to the topic, and any program
//! that knows the name may publish on it, whatever the permissions say: the requester puts the name into the
//! request, so that the receivers of the request know it. The name cannot be guessed, because it is a hash of
//! a secret. So the permissions need not name reply topics, and no rule has to let a program read the replies
//! to other programs.
//!
//! Cost: a hash per connecting program; its name is kept until the program disconnects.

use crate::task::ClientId;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use unisono_eventchannel::NumberMap;

/// The reply topics of the connected programs.
#[derive(Debug, Default)]
pub(super) struct GrantedReplies {
    secret: u64,
    /// Number of programs that got a reply topic.
    granted: u64,
    by_client: NumberMap<ClientId, Arc<str>>,
    owners: HashMap<Arc<str>, ClientId>,
}

impl GrantedReplies {
    pub(super) fn new(secret: u64) -> Self {
        Self { secret, ..Self::default() }
    }

    /// Assigns a program its reply topic.
    pub(super) fn grant(&mut self, client: ClientId) -> String {
        self.granted += 1;
        let mut hash = Sha256::new();
        hash.update(self.secret.to_le_bytes());
        hash.update(self.granted.to_le_bytes());
        let mut topic = "reply/".to_owned();
        for byte in hash.finalize().iter().take(16) {
            let _ = write!(topic, "{byte:02x}"); // writing to a string cannot fail
        }
        let name: Arc<str> = topic.as_str().into();
        self.owners.insert(Arc::clone(&name), client);
        self.by_client.insert(client, name);
        topic
    }

    /// Frees the reply topic of a program that has disconnected.
    pub(super) fn withdraw(&mut self, client: ClientId) {
        if let Some(topic) = self.by_client.remove(&client) {
            self.owners.remove(&topic);
        }
    }

    /// Returns whether any program may publish on a topic because it is a reply topic.
    pub(super) fn may_publish(&self, topic: &str) -> bool {
        self.owners.contains_key(topic)
    }

    /// Returns whether a pattern is this program's own reply topic.
    pub(super) fn may_subscribe(&self, client: ClientId, pattern: &str) -> bool {
        self.owners.get(pattern) == Some(&client)
    }
}
