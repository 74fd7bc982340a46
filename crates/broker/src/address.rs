//! Where a broker listens, as people write it: a path, `shm:PATH`, or `tcp:HOST:PORT`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a broker listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BrokerAddress {
    /// A Unix socket in the file system.
    Unix(PathBuf),
    /// The same; the socket only brings the descriptors of shared memory, and wakes who sleeps.
    Shared(PathBuf),
    Tcp(SocketAddr),
}

/// Where the broker of this user listens, and is looked for, if nobody says otherwise.
#[must_use]
pub fn default_socket() -> PathBuf {
    let directory = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    directory.join("unisono-events")
}

/// Why a text is no address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{text}` is no address: {why}; write a path such as /run/user/1000/events, shm:/run/user/1000/events-shm, or tcp:127.0.0.1:7400"
)]
pub struct AddressError {
    text: String,
    why: String,
}

impl FromStr for BrokerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |why: &str| AddressError { text: text.to_owned(), why: why.to_owned() };
        if let Some(host) = text.strip_prefix("tcp:") {
            let found = host.to_socket_addrs().map_err(|error| wrong(&error.to_string()))?.next();
            return found.map(Self::Tcp).ok_or_else(|| wrong("the host has no address"));
        }
        let shared = text.strip_prefix("shm:");
        let path = shared.or(text.strip_prefix("unix:")).unwrap_or(text);
        if path.is_empty() {
            return Err(wrong("it is empty"));
        }
        // 108 bytes with the end: sun_path in unix(7)
        if path.len() > 107 {
            return Err(wrong("a socket's path has at most 107 bytes"));
        }
        Ok(if shared.is_some() { Self::Shared(path.into()) } else { Self::Unix(path.into()) })
    }
}

impl fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Shared(path) => write!(f, "shm:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["/run/events", "relative", "shm:/run/events", "tcp:127.0.0.1:7400", "tcp:[::1]:7400"] {
            assert_eq!(text.parse::<BrokerAddress>().expect("an address").to_string(), text);
        }
        assert_eq!("unix:/a".parse(), Ok(BrokerAddress::Unix("/a".into())));
        for text in ["", "unix:", "shm:", "tcp:", "tcp:localhost", "tcp:127.0.0.1:99999", &"a".repeat(108)] {
            assert!(text.parse::<BrokerAddress>().is_err(), "{text}");
        }
    }
}
