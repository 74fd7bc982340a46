//! Who owns a name: a consumer group, a consumer that resumes, a writer, an MQTT client identifier.
//!
//! Each identity has names of its own. `token:NAME` and `mqtt:NAME` are one owner, because both know
//! the same secret. `broker/names.rs` decides who may use a name; `log/name_owners.rs` keeps the owners of
//! names that outlive the broker.

use crate::permissions::ClientIdentity;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use unisono_eventchannel::SupplierOwner;

/// Owners' texts in the file of a log are at most this long, in bytes: a prefix and the longest name that a
/// certificate or a line of the tokens' file holds in practice. Chosen, not measured.
const MAX_OWNER_BYTES: usize = 4096;

/// The owner of a name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NameOwner {
    /// A user of this host.
    User(u32),
    /// The holder of a token, over frames or MQTT.
    Token(Arc<str>),
    /// The holder of a certificate's key.
    Certificate(Arc<str>),
    /// Every client that proved nothing.
    Anonymous,
}

impl From<&ClientIdentity> for NameOwner {
    fn from(identity: &ClientIdentity) -> Self {
        match identity {
            ClientIdentity::Unix(user) => Self::User(*user),
            ClientIdentity::Token(name) | ClientIdentity::Mqtt(name) => Self::Token(Arc::clone(name)),
            ClientIdentity::Certificate(name) => Self::Certificate(Arc::clone(name)),
            ClientIdentity::Anonymous => Self::Anonymous,
        }
    }
}

impl fmt::Display for NameOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(f, "unix:{user}"),
            Self::Token(name) => write!(f, "token:{name}"),
            Self::Certificate(name) => write!(f, "certificate:{name}"),
            Self::Anonymous => f.write_str("anonymous"),
        }
    }
}

impl FromStr for NameOwner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("`{}` is no owner of a name", text.chars().take(80).collect::<String>());
        if text.len() > MAX_OWNER_BYTES {
            return Err(unknown());
        }
        match text.split_once(':') {
            None if text == "anonymous" => Ok(Self::Anonymous),
            Some(("unix", user)) => user.parse().map(Self::User).map_err(|_| unknown()),
            Some(("token", name)) => Ok(Self::Token(name.into())),
            Some(("certificate", name)) => Ok(Self::Certificate(name.into())),
            _ => Err(unknown()),
        }
    }
}

impl Serialize for NameOwner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NameOwner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl NameOwner {
    /// Returns the identity of the owner's programs, for its accounts.
    pub(crate) fn identity(&self) -> ClientIdentity {
        match self {
            Self::User(user) => ClientIdentity::Unix(*user),
            Self::Token(name) => ClientIdentity::Token(Arc::clone(name)),
            Self::Certificate(name) => ClientIdentity::Certificate(Arc::clone(name)),
            Self::Anonymous => ClientIdentity::Anonymous,
        }
    }

    /// Returns the owner in the form in which the channel compares the owners of suppliers: a digest, so that
    /// the channel knows no identities.
    pub(crate) fn of_supplier(&self) -> SupplierOwner {
        use sha2::{Digest as _, Sha256};
        let digest: [u8; 32] = Sha256::digest(self.to_string()).into();
        SupplierOwner(u64::from_le_bytes(std::array::from_fn(|byte| digest[byte])))
    }

    /// Returns the key of a session or of a group, which differs for equal names of two owners. Neither a
    /// client identifier (MQTT 5.0, section 1.5.4) nor a group's name has the separator, so the last one ends
    /// the owner.
    pub(crate) fn key_of(&self, name: &str) -> Arc<str> {
        format!("{self}\0{name}").into()
    }

    /// Returns the owner in 32 hexadecimal digits, for names of files and of writers.
    pub(crate) fn digest(&self) -> String {
        use sha2::{Digest as _, Sha256};
        Sha256::digest(self.to_string())[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_as_it_was_written_and_nothing_else_is_one() {
        for owner in [
            NameOwner::User(0),
            NameOwner::User(u32::MAX),
            NameOwner::Token("a:b".into()),
            NameOwner::Certificate("line1.example".into()),
            NameOwner::Anonymous,
        ] {
            assert_eq!(owner.to_string().parse(), Ok(owner));
        }
        let long = format!("token:{}", "x".repeat(MAX_OWNER_BYTES));
        for text in ["", "unix:", "unix:-1", "unix:plant", "mqtt:a", "anonymous:", long.as_str()] {
            assert!(text.parse::<NameOwner>().expect_err(text).contains("is no owner"), "{text}");
        }
    }

    #[test]
    fn a_token_is_one_owner_over_frames_and_over_mqtt() {
        let token = ClientIdentity::Token("line1".into());
        assert_eq!(NameOwner::from(&token), NameOwner::from(&ClientIdentity::Mqtt("line1".into())));
        let others =
            [ClientIdentity::Certificate("line1".into()), ClientIdentity::Unix(1), ClientIdentity::Anonymous];
        assert!(others.iter().all(|other| NameOwner::from(other) != NameOwner::from(&token)));
    }
}
