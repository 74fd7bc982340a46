//! A broker's address in text form: a path, `unix:PATH`, `tcp:HOST:PORT`, and `tls:` or `udp:` with
//! `HOST:PORT?authority=FILE&certificate=FILE&key=FILE&token-file=FILE`. Two slashes may follow the colon of
//! a scheme.

use crate::tls::{CertifiedFiles, TlsClient, TlsError};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use unisono_linux::private_directory::{PrivateDirectory, temporary_directory};

/// The address of a broker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BrokerAddress {
    /// A Unix socket in the file system. It passes the descriptors of shared memory and wakes sleeping
    /// processes; the frames are in the shared memory.
    Shared(PathBuf),
    /// The same kind of socket, but it carries the frames itself, because the program shares no memory. A
    /// broker's socket accepts both kinds of programs.
    Unix(PathBuf),
    Tcp(SocketAddr),
    /// TCP with TLS.
    Tls(TlsAddress),
    /// UDP with QUIC, which includes TLS.
    Udp(TlsAddress),
}

/// An address with TLS, over TCP or UDP, and the credentials of both ends.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TlsAddress {
    /// The name in the broker's certificate: a host name, or an IP address without brackets.
    pub host: String,
    pub address: SocketAddr,
    /// The certificate of the broker's authority, in a PEM file; required for a program.
    pub authority: Option<PathBuf>,
    /// The program's certificate, for a broker that asks for certificates.
    pub own: Option<CertifiedFiles>,
    /// The file with the program's token, for a broker that asks for a token.
    pub token: Option<PathBuf>,
}

impl TlsAddress {
    /// Reads the files that a program needs for this address. `scheme` (`tls` or `udp`) is named in the
    /// error.
    ///
    /// # Errors
    /// A file is missing or not valid.
    pub fn program(&self, scheme: &str) -> Result<TlsClient, TlsError> {
        let authority = self.authority.as_deref();
        let authority =
            authority.ok_or_else(|| TlsError::NoAuthority { address: format!("{scheme}:{self}") })?;
        TlsClient::read(&self.host, authority, self.own.as_ref())
    }

    fn read(text: &str) -> Result<Self, String> {
        let (place, options) = text.split_once('?').unwrap_or((text, ""));
        let address = place.to_socket_addrs().map_err(|error| error.to_string())?.next();
        let address = address.ok_or("the host has no address")?;
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host).trim_matches(['[', ']']);
        let (mut authority, mut certificate, mut key, mut token) = (None, None, None, None);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, file) = option.split_once('=').unwrap_or((option, ""));
            let place = match name {
                "authority" => &mut authority,
                "certificate" => &mut certificate,
                "key" => &mut key,
                "token-file" => &mut token,
                _ => {
                    return Err(format!(
                        "`{option}` is none of authority=FILE, certificate=FILE, key=FILE and token-file=FILE"
                    ));
                }
            };
            if file.is_empty() {
                return Err(format!("`{name}` without a file"));
            }
            *place = Some(PathBuf::from(file));
        }
        let own = CertifiedFiles::new(certificate.as_deref(), key.as_deref());
        let own = own.map_err(|error: TlsError| error.to_string())?;
        Ok(Self { host: host.to_owned(), address, authority, own, token })
    }
}

/// Writes the part of the address after `tls:` or `udp:`.
impl fmt::Display for TlsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.address.port())?,
            false => write!(f, "{}:{}", self.host, self.address.port())?,
        }
        let own = self.own.iter().flat_map(|own| [("certificate", &own.certificate), ("key", &own.key)]);
        let options = self.authority.iter().map(|file| ("authority", file)).chain(own);
        let options = options.chain(self.token.iter().map(|file| ("token-file", file)));
        for (at, (name, file)) in options.enumerate() {
            write!(f, "{}{name}={}", if at == 0 { '?' } else { '&' }, file.display())?;
        }
        Ok(())
    }
}

/// The socket of the host's broker, as in the systemd unit `unisono-events.socket`.
pub const HOST_SOCKET: &str = "/run/unisono/events";

/// Returns the default socket of this user's broker: `$XDG_RUNTIME_DIR/unisono-events`, or
/// `/tmp/unisono-UID/events` if the variable is not set.
#[must_use]
pub fn default_socket() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) => PathBuf::from(directory).join("unisono-events"),
        None => temporary_directory().join("events"),
    }
}

/// Checks that a socket in this user's directory in `/tmp` is safe to use: any user may make directories
/// there, so the directory has to belong to this user alone. A missing directory is made. Sockets elsewhere
/// are not checked.
///
/// # Errors
/// Another user could have put the socket there.
pub fn check_owner(socket: &Path) -> io::Result<()> {
    let directory = temporary_directory();
    if socket.parent() == Some(&directory) {
        PrivateDirectory::open(&directory)?;
    }
    Ok(())
}

/// Why a text is not a valid address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    #[error(
        "`{text}` is no address: {why}; write a path such as /run/user/1000/events, tcp:127.0.0.1:7400, tls:HOST:7401?authority=FILE, or udp:HOST:7402?authority=FILE"
    )]
    Invalid { text: String, why: String },
    /// A host, a port or both without a scheme, which could also be the name of a file.
    #[error(
        "`{text}` may be a host with a port or a socket's path; write {} for TCP, or ./{text} for a socket of that name",
        tcp_spelling(text)
    )]
    HostAndPort { text: String },
}

/// Returns whether a text without a scheme may be meant as a host, a port or both: it contains no `/`, and a
/// colon, only digits, an address or this host's name for itself.
fn looks_like_host_and_port(text: &str) -> bool {
    let is_host = || text == "localhost" || text.parse::<Ipv4Addr>().is_ok();
    !text.contains('/') && (text.contains(':') || text.bytes().all(|b| b.is_ascii_digit()) || is_host())
}

/// Returns the address by TCP that a text without a scheme seems to mean. A missing host becomes this host,
/// and a missing or unknown port becomes the word `PORT`.
fn tcp_spelling(text: &str) -> String {
    if text.parse::<Ipv6Addr>().is_ok() {
        return format!("tcp:[{text}]:PORT");
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(match text.bytes().all(|b| b.is_ascii_digit()) {
        true => ("", text),
        false => (text, ""),
    });
    let host = match host {
        "" => "127.0.0.1".to_owned(),
        "*" => "0.0.0.0".to_owned(),
        host if host.parse::<Ipv6Addr>().is_ok() => format!("[{host}]"),
        host if host.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_err() && host.contains(':') => {
            "HOST".to_owned()
        }
        host => host.to_owned(),
    };
    format!("tcp:{host}:{}", if port.parse::<u16>().is_ok() { port } else { "PORT" })
}

/// Returns the part of an address after a scheme, as `tcp:HOST` or as `tcp://HOST`.
fn after_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(scheme)?.strip_prefix(':')?;
    Some(rest.strip_prefix("//").unwrap_or(rest))
}

impl FromStr for BrokerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |why: &str| AddressError::Invalid { text: text.to_owned(), why: why.to_owned() };
        if let Some(host) = after_scheme(text, "tcp") {
            let found = host.to_socket_addrs().map_err(|error| wrong(&error.to_string()))?.next();
            return found.map(Self::Tcp).ok_or_else(|| wrong("the host has no address"));
        }
        if let Some(place) = after_scheme(text, "tls") {
            return TlsAddress::read(place).map(Self::Tls).map_err(|why| wrong(&why));
        }
        if let Some(place) = after_scheme(text, "udp") {
            return TlsAddress::read(place).map(Self::Udp).map_err(|why| wrong(&why));
        }
        let (unix, shared) = (after_scheme(text, "unix"), after_scheme(text, "shm"));
        if unix.is_none() && shared.is_none() {
            // a path that begins so has another spelling: ./NAME://
            if text.split_once("://").is_some_and(|(scheme, _)| !scheme.contains('/')) {
                return Err(wrong("its scheme is none of unix, tcp, tls and udp"));
            }
            if !text.is_empty() && looks_like_host_and_port(text) {
                return Err(AddressError::HostAndPort { text: text.to_owned() });
            }
        }
        let path = unix.or(shared).unwrap_or(text);
        if path.is_empty() {
            return Err(wrong("it is empty"));
        }
        // 108 bytes with the terminating NUL: sun_path in unix(7)
        if path.len() > 107 {
            return Err(wrong("a socket's path has at most 107 bytes"));
        }
        Ok(if unix.is_some() { Self::Unix(path.into()) } else { Self::Shared(path.into()) })
    }
}

impl fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared(path) => {
                let path = path.display().to_string();
                let scheme = if looks_like_host_and_port(&path) { "shm:" } else { "" };
                write!(f, "{scheme}{path}")
            }
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Tls(address) => write!(f, "tls:{address}"),
            Self::Udp(address) => write!(f, "udp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let tls = [
            "tls:localhost:7401",
            "udp:localhost:7401?authority=/a.pem&token-file=/t",
            "tls:[::1]:7401?authority=/a.pem&certificate=/c.pem&key=/k.pem&token-file=/t",
        ];
        let plain = ["/run/events", "relative", "unix:/run/events", "tcp:127.0.0.1:7400", "tcp:[::1]:7400"];
        for text in plain.into_iter().chain(tls) {
            assert_eq!(text.parse::<BrokerAddress>().expect("an address").to_string(), text);
        }
        for text in
            ["./localhost:1883", "shm:localhost:1883", "unix:localhost:1883", "/run/host:7400", "./7400"]
        {
            assert_eq!(text.parse::<BrokerAddress>().expect("a path").to_string(), text);
        }
        assert_eq!("shm:/a".parse(), Ok(BrokerAddress::Shared("/a".into())));
        let half = "tls:127.0.0.1:1?key=/k.pem";
        let other = "tls:127.0.0.1:1?password=x";
        let bad = [
            "",
            "unix:",
            "shm:",
            "tcp:",
            "tcp:localhost",
            "tcp:127.0.0.1:99999",
            "tls:localhost",
            "udp:localhost",
            "mqtt://localhost",
            "http://localhost:80/",
            half,
            other,
        ];
        for text in bad.into_iter().chain([&*"a".repeat(108)]) {
            assert!(text.parse::<BrokerAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_host_or_a_port_without_a_scheme_is_refused_with_both_spellings() {
        for (text, tcp) in [
            ("localhost:1883", "tcp:localhost:1883"),
            ("127.0.0.1:7400", "tcp:127.0.0.1:7400"),
            ("0.0.0.0:7400", "tcp:0.0.0.0:7400"),
            ("[::1]:7400", "tcp:[::1]:7400"),
            (":7400", "tcp:127.0.0.1:7400"),
            ("7400", "tcp:127.0.0.1:7400"),
            ("*:7400", "tcp:0.0.0.0:7400"),
            ("::1", "tcp:[::1]:PORT"),
            ("127.0.0.1", "tcp:127.0.0.1:PORT"),
            ("localhost", "tcp:localhost:PORT"),
            ("localhost:", "tcp:localhost:PORT"),
            ("localhost:http", "tcp:localhost:PORT"),
            ("localhost:99999", "tcp:localhost:PORT"),
            ("quic:localhost:1", "tcp:HOST:1"),
        ] {
            let error = text.parse::<BrokerAddress>().expect_err("it may be a host with a port").to_string();
            assert!(
                error.contains(&format!("write {tcp} for TCP, or ./{text} for a socket")),
                "{text}: {error}"
            );
            if !tcp.contains("HOST") && !tcp.contains("PORT") {
                assert!(tcp.parse::<BrokerAddress>().is_ok(), "{tcp}");
            }
        }
    }

    #[test]
    fn a_scheme_may_be_followed_by_two_slashes() {
        for (text, plain) in [
            ("tcp://127.0.0.1:7400", "tcp:127.0.0.1:7400"),
            ("tls://localhost:7401?authority=/a.pem", "tls:localhost:7401?authority=/a.pem"),
            ("unix:///run/events", "unix:/run/events"),
            ("shm:///run/events", "/run/events"),
        ] {
            assert_eq!(text.parse::<BrokerAddress>().expect("an address").to_string(), plain);
        }
    }
}
