//! The options of a connection: address, name, credentials, lease and way of waiting.
//!
//! ```no_run
//! use std::time::Duration;
//! use unisono_events_client::{BrokerAddress, ClientOptions};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let address: BrokerAddress = "tcp:127.0.0.1:7400".parse()?;
//! let client = ClientOptions::new().named("camera 1").leased(Duration::from_secs(2)).connect(&address)?;
//! # drop(client);
//! # Ok(())
//! # }
//! ```

use super::connect::{tcp, tls, token_in, udp, unix};
use super::{Client, Error, MAX_FRAME_BYTES};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use unisono_events_wire::ChannelWait;
use unisono_events_wire::Greeting;
use unisono_events_wire::memory::MemoryTransport;
use unisono_events_wire::transport::{StreamTransport, TransportError};
use unisono_events_wire::{BrokerAddress, HOST_SOCKET, TlsAddress, default_socket};
use unisono_events_wire::{check_program_name, own_program_name};

/// The options of a client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientOptions {
    name: Option<String>,
    token: Option<String>,
    lease: Option<Duration>,
    wait: ChannelWait,
    types: bool,
    pub(super) reconnect: Option<Duration>,
    answer_timeout: Option<Duration>,
}

/// The default time limit for each answer while a client connects: the TLS handshake, the offer of shared
/// memory, and the broker's answer to the greeting. Even a busy broker answers within milliseconds. The limit
/// is shorter than a broker's own for a greeting (`Limits::stall_timeout`, 30 s), so that the program reports
/// the reason itself.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl ClientOptions {
    /// Makes the default options: the client is named after the process, has no token and no lease, and
    /// sleeps while it waits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name in tables, metrics and errors: at most 64 characters, none of them a control character.
    /// The default is the name shown by `ps` and the process number, as in `camera[4711]`.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Sets the token, the secret that authenticates the program over TCP, with or without TLS. It replaces
    /// the token in the file that a TLS address names.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Sets a lease: the program has to call a method of its client at least this often. Otherwise the broker
    /// considers it dead: its consumers get a notice, a stand-by supplier takes over, and the program's next
    /// call fails ([`Error::SentAway`]). A thread that waits in a method renews the lease. Events of a leased
    /// program go through the broker.
    #[must_use]
    pub fn leased(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    #[must_use]
    pub fn waiting(mut self, wait: ChannelWait) -> Self {
        self.wait = wait;
        self
    }

    /// Makes the broker send the types of topics, which are then in
    /// [`ReceivedEvent::event_type`](super::ReceivedEvent::event_type). A broker without this feature refuses
    /// the connection.
    #[must_use]
    pub fn with_types(mut self) -> Self {
        self.types = true;
        self
    }

    /// Makes the client reconnect after its connection has broken: it tries for at most this long, and
    /// repeats its advertisements and subscriptions. The same time limit applies to a broker that does not
    /// serve yet when the program first connects. Calls of the program wait in the meantime;
    /// [`Client::receive`] keeps its timeout, except that a single attempt may take as long as the network
    /// needs. Subscriptions that [resume](crate::ResumeSpec) continue after the last acknowledged event.
    /// Others have missed the events published in the meantime:
    /// [`Reception::Reconnected`](super::Reception::Reconnected) has the duration. Paths end.
    #[must_use]
    pub fn reconnecting(mut self, within: Duration) -> Self {
        self.reconnect = Some(within);
        self
    }

    /// Sets the time limit for each answer of the broker while the client connects, 10 s by default. A client
    /// that reconnects tries again afterwards.
    #[must_use]
    pub fn answered_within(mut self, timeout: Duration) -> Self {
        self.answer_timeout = Some(timeout);
        self
    }

    /// Connects without later reconnections.
    pub(super) fn connect_once(&self, address: &BrokerAddress) -> Result<Client, Error> {
        let greeting = self.greeting()?;
        let timeout = self.answer_timeout.unwrap_or(ANSWER_TIMEOUT);
        let at = Some((address, timeout));
        match address {
            BrokerAddress::Unix(path) => {
                let nobody = |source| Error::Nobody { path: path.clone(), source };
                let transport = StreamTransport::new(unix(path, nobody)?, MAX_FRAME_BYTES)?;
                Client::greeted(Box::new(transport), greeting, self.wait, at)
            }
            BrokerAddress::Shared(path) => {
                let nobody = |source| Error::Nobody { path: path.clone(), source };
                let unshared = |error| match error {
                    TransportError::Closed | TransportError::Interrupted => Error::from(error),
                    TransportError::Failed(ref source) if source.kind() == ErrorKind::TimedOut => {
                        Error::SilentServer { address: Box::new(address.clone()), within: timeout }
                    }
                    source => Error::Unshared { path: path.clone(), source },
                };
                let transport = MemoryTransport::join(unix(path, nobody)?, timeout).map_err(unshared)?;
                Client::greeted(Box::new(transport), greeting, self.wait, at)
            }
            BrokerAddress::Tcp(place) => Client::greeted(tcp(*place)?, greeting, self.wait, at),
            BrokerAddress::Tls(place) => self.secured(place, greeting, (address, timeout), tls),
            BrokerAddress::Udp(place) => self.secured(place, greeting, (address, timeout), udp),
        }
    }

    /// Connects to this user's broker, at [`default_socket`]; if there is none, to the host's broker.
    ///
    /// # Errors
    /// No broker listens at either address, or this user may not use its socket.
    pub fn connect_default(&self) -> Result<Client, Error> {
        let connect = |path: PathBuf| {
            let address = BrokerAddress::Shared(path);
            Ok((self.connect_once(&address)?, address))
        };
        self.retry_absent(|| match connect(default_socket()) {
            Err(Error::Nobody { path, source }) => match connect(HOST_SOCKET.into()) {
                Err(Error::Nobody { .. }) => Err(Error::NobodyHere { path, source }),
                of_host => of_host,
            },
            own => own,
        })
    }

    fn greeting(&self) -> Result<Greeting, Error> {
        if let Some(name) = &self.name {
            check_program_name(name).map_err(Error::Options)?;
        }
        let lease_ns = match self.lease {
            None => None,
            Some(lease) => Some(lease_ns(lease)?),
        };
        let name = self.name.clone().unwrap_or_else(own_program_name);
        Ok(Greeting { name, lease_ns, token: self.token.clone(), rings: false, types: self.types })
    }

    fn secured(
        &self,
        place: &TlsAddress,
        greeting: Greeting,
        (address, timeout): (&BrokerAddress, Duration),
        open: fn(&TlsAddress, Duration) -> Result<StreamTransport, Error>,
    ) -> Result<Client, Error> {
        let in_file = || place.token.as_deref().map(token_in).transpose();
        let token = match greeting.token {
            Some(token) => Some(token),
            None => in_file()?,
        };
        let greeting = Greeting { token, ..greeting };
        let told = |error| match error {
            // with TLS 1.3 a broker checks the program's certificate only after the program has completed its
            // part of the handshake, so a refusal arrives later
            Error::Broken(TransportError::Tls(why)) => Error::Unsecured { address: place.address, why },
            other => other,
        };
        let opened = open(place, timeout).map_err(|error| match error {
            // a broker that ends now, or another server
            Error::Broken(TransportError::Closed) => Error::NoGreeting { address: place.address },
            other => told(other),
        });
        let transport = Box::new(opened?);
        Client::greeted(transport, greeting, self.wait, Some((address, timeout))).map_err(told)
    }
}

/// The minimum lease. A shorter one would expire while the broker sleeps between two scans of its programs,
/// or while a busy host runs other programs.
const MIN_LEASE: Duration = Duration::from_millis(300);

fn lease_ns(lease: Duration) -> Result<u64, Error> {
    if lease < MIN_LEASE {
        return Err(Error::Options(format!("a lease of {lease:?}; the shortest is {MIN_LEASE:?}")));
    }
    Ok(u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX))
}

impl Client {
    /// Connects to the broker that listens at `path`, with frames over the socket.
    ///
    /// # Errors
    /// No broker listens there, or something else does.
    pub fn connect_unix(path: &Path) -> Result<Self, Error> {
        Self::at(&BrokerAddress::Unix(path.to_owned()))
    }

    /// Connects to this user's broker, at [`default_socket`]; if there is none, to the host's broker.
    ///
    /// # Errors
    /// No broker listens at either address, or this user may not use its socket.
    pub fn connect_default() -> Result<Self, Error> {
        ClientOptions::new().connect_default()
    }

    /// Connects through shared memory to the broker that listens at `path`.
    ///
    /// # Errors
    /// No broker listens there, or something else does.
    pub fn connect_shared(path: &Path) -> Result<Self, Error> {
        Self::at(&BrokerAddress::Shared(path.to_owned()))
    }

    /// Connects to the broker that listens at a TCP address.
    ///
    /// # Errors
    /// No broker listens there, or something else does.
    pub fn connect_tcp(address: SocketAddr) -> Result<Self, Error> {
        Self::at(&BrokerAddress::Tcp(address))
    }

    /// Connects with TLS, with the token in the address's file if it names one.
    ///
    /// # Errors
    /// A file cannot be read, no broker listens there, or one end does not accept the other one's certificate
    /// or token.
    pub fn connect_tls(address: &TlsAddress) -> Result<Self, Error> {
        Self::at(&BrokerAddress::Tls(address.clone()))
    }

    /// Connects as [`connect_tls`](Self::connect_tls) does, but over UDP. A thread of the client serves the
    /// connection while the program makes no call.
    ///
    /// # Errors
    /// The errors of [`connect_tls`](Self::connect_tls).
    pub fn connect_udp(address: &TlsAddress) -> Result<Self, Error> {
        Self::at(&BrokerAddress::Udp(address.clone()))
    }

    /// Connects to the broker at an address of any kind.
    ///
    /// # Errors
    /// The errors of [`ClientOptions::connect`].
    pub fn at(address: &BrokerAddress) -> Result<Self, Error> {
        ClientOptions::new().connect(address)
    }
}
