//! Topics of replies: each program has one of its own.
//!
//! The broker gives each program the name when it greets. The program may subscribe to it, and whoever knows
//! it may publish on it, whatever the permissions say: the one who asks puts the name into the request, so
//! that those know it who get the request. Nobody guesses it, because it is a hash of a secret. The
//! permissions need not name topics of replies, and no rule has to let anybody read the answers that others
//! get.
//!
//! Cost: a hash for each program that connects, and a name that is kept as long.

use crate::task::ClientId;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use unisono_eventchannel::NumberMap;

/// The topics of replies of the programs that are connected.
#[derive(Debug, Default)]
pub(super) struct GrantedReplies {
    secret: u64,
    /// Programs that were given a topic.
    granted: u64,
    by_client: NumberMap<ClientId, Arc<str>>,
    owners: HashMap<Arc<str>, ClientId>,
}

impl GrantedReplies {
    pub(super) fn new(secret: u64) -> Self {
        Self { secret, ..Self::default() }
    }

    /// Gives a program its topic.
    pub(super) fn grant(&mut self, client: ClientId) -> String {
        self.granted += 1;
        let mut hash = Sha256::new();
        hash.update(self.secret.to_le_bytes());
        hash.update(self.granted.to_le_bytes());
        let mut topic = "reply/".to_owned();
        for byte in hash.finalize().iter().take(16) {
            let _ = write!(topic, "{byte:02x}"); // a string takes everything
        }
        let name: Arc<str> = topic.as_str().into();
        self.owners.insert(Arc::clone(&name), client);
        self.by_client.insert(client, name);
        topic
    }

    /// A program has gone.
    pub(super) fn withdraw(&mut self, client: ClientId) {
        if let Some(topic) = self.by_client.remove(&client) {
            self.owners.remove(&topic);
        }
    }

    /// Whether a program may publish on a topic because somebody expects answers there.
    pub(super) fn may_publish(&self, topic: &str) -> bool {
        self.owners.contains_key(topic)
    }

    /// Whether a pattern is the topic of this program's own replies.
    pub(super) fn may_subscribe(&self, client: ClientId, pattern: &str) -> bool {
        self.owners.get(pattern) == Some(&client)
    }
}
