//! How a program connects: where to, under which name, for whom, and how it waits.
//!
//! ```no_run
//! use std::time::Duration;
//! use unisono_broker::{BrokerAddress, ClientOptions};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let address: BrokerAddress = "tcp:127.0.0.1:7400".parse()?;
//! let client = ClientOptions::new().named("camera 1").leased(Duration::from_secs(2)).connect(&address)?;
//! # drop(client);
//! # Ok(())
//! # }
//! ```

use super::connect::{tcp, token_in, unix};
use super::{Client, Error, LARGEST_FRAME};
use crate::address::{BrokerAddress, HOST_SOCKET, TlsAddress, default_socket};
use crate::channel_wait::ChannelWait;
use crate::memory::MemoryTransport;
use crate::name::{check_program_name, own_program_name};
use crate::spec::Greeting;
use crate::transport::{StreamTransport, TransportError};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// What a program says of itself when it connects, and how it waits for the broker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientOptions {
    name: Option<String>,
    token: Option<String>,
    lease: Option<Duration>,
    wait: ChannelWait,
    types: bool,
    pub(super) reconnect: Option<Duration>,
}

impl ClientOptions {
    /// Named after the process, without a token and a lease, sleeping while it waits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The name in tables, metrics and errors: at most 64 characters, none of them a control character. Left
    /// out: what `ps` shows, and the number of the process, as in `camera[4711]`.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// The secret that says over TCP, with or without TLS, who the program is; instead of the one in the file
    /// that a TLS address names.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// The program calls a method of its client at least this often. If it does not, the broker takes it for
    /// dead: its consumers are told, a stand-by supplier takes over, and the program hears of it when it
    /// calls again ([`Error::SentAway`]). Who waits in a method counts as calling. Events of a leased program
    /// go through the broker.
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

    /// The broker tells the types of topics, which are then in
    /// [`ReceivedEvent::event_type`](super::ReceivedEvent::event_type). A broker that is older than this
    /// refuses the connection.
    #[must_use]
    pub fn told_types(mut self) -> Self {
        self.types = true;
        self
    }

    /// When the connection breaks later, the client connects again, for at most this long, and advertises and
    /// subscribes what it had. Calls of the program wait meanwhile, but [`Client::receive`] no longer than
    /// asked, and a try may take as long as the network lets it. Subscriptions that
    /// [resume](crate::ResumeSpec) go on after what was acknowledged. Others have missed what was published
    /// meanwhile: [`Reception::Reconnected`](super::Reception::Reconnected) says for how long. Paths end.
    #[must_use]
    pub fn reconnecting(mut self, within: Duration) -> Self {
        self.reconnect = Some(within);
        self
    }

    /// Without connecting again later.
    pub(super) fn connect_once(&self, address: &BrokerAddress) -> Result<Client, Error> {
        let greeting = self.greeting()?;
        match address {
            BrokerAddress::Unix(path) => {
                let nobody = |source| Error::Nobody { path: path.clone(), source };
                let transport = StreamTransport::new(unix(path, nobody)?, LARGEST_FRAME)?;
                Client::over(Box::new(transport), greeting, self.wait)
            }
            BrokerAddress::Shared(path) => {
                let nobody = |source| Error::Nobody { path: path.clone(), source };
                let unshared = |error| match error {
                    TransportError::Closed => Error::Broken(error),
                    source => Error::Unshared { path: path.clone(), source },
                };
                let transport = MemoryTransport::join(unix(path, nobody)?).map_err(unshared)?;
                Client::over(Box::new(transport), greeting, self.wait)
            }
            BrokerAddress::Tcp(address) => Client::over(tcp(*address)?, greeting, self.wait),
            BrokerAddress::Tls(address) => self.secured(address, greeting, TlsAddress::open),
            BrokerAddress::Udp(address) => self.secured(address, greeting, TlsAddress::open_datagrams),
        }
    }

    /// Connects to this user's broker, at [`default_socket`]; if there is none, to the host's.
    ///
    /// # Errors
    /// There is neither, or one of them is not for this user.
    pub fn connect_default(&self) -> Result<Client, Error> {
        match self.connect(&BrokerAddress::Shared(default_socket())) {
            Err(Error::Nobody { path, source }) => {
                match self.connect(&BrokerAddress::Shared(HOST_SOCKET.into())) {
                    Err(Error::Nobody { .. }) => Err(Error::NobodyHere { path, source }),
                    of_host => of_host,
                }
            }
            own => own,
        }
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
        address: &TlsAddress,
        greeting: Greeting,
        open: fn(&TlsAddress) -> Result<StreamTransport, Error>,
    ) -> Result<Client, Error> {
        let in_file = || address.token.as_deref().map(token_in).transpose();
        let token = match greeting.token {
            Some(token) => Some(token),
            None => in_file()?,
        };
        let greeting = Greeting { token, ..greeting };
        let told = |error| match error {
            // with TLS 1.3 a broker judges the program's certificate after the handshake
            Error::Broken(TransportError::Tls(why)) => Error::Unsecured { address: address.address, why },
            other => other,
        };
        Client::over(Box::new(open(address).map_err(told)?), greeting, self.wait).map_err(told)
    }
}

/// A shorter lease would run out while the broker sleeps between two looks at its programs, or while a busy
/// host runs others.
const SHORTEST_LEASE: Duration = Duration::from_millis(300);

fn lease_ns(lease: Duration) -> Result<u64, Error> {
    if lease < SHORTEST_LEASE {
        return Err(Error::Options(format!("a lease of {lease:?}; the shortest is {SHORTEST_LEASE:?}")));
    }
    Ok(u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX))
}

impl Client {
    /// Connects to the broker that listens at `path`, by frames over the socket.
    ///
    /// # Errors
    /// Nobody is there, or something else is.
    pub fn connect_unix(path: &Path) -> Result<Self, Error> {
        Self::at(&BrokerAddress::Unix(path.to_owned()))
    }

    /// Connects to this user's broker, at [`default_socket`]; if there is none, to the host's.
    ///
    /// # Errors
    /// There is neither, or one of them is not for this user.
    pub fn connect_default() -> Result<Self, Error> {
        ClientOptions::new().connect_default()
    }

    /// Connects through shared memory to the broker that listens at `path`.
    ///
    /// # Errors
    /// Nobody is there, or something else is.
    pub fn connect_shared(path: &Path) -> Result<Self, Error> {
        Self::at(&BrokerAddress::Shared(path.to_owned()))
    }

    /// Connects to the broker that listens at a TCP address.
    ///
    /// # Errors
    /// Nobody is there, or something else is.
    pub fn connect_tcp(address: SocketAddr) -> Result<Self, Error> {
        Self::at(&BrokerAddress::Tcp(address))
    }

    /// Connects with TLS, as the owner of the token in the address's file if there is one.
    ///
    /// # Errors
    /// A file cannot be read, nobody is there, or one of the two ends does not accept the other one's
    /// certificate or token.
    pub fn connect_tls(address: &TlsAddress) -> Result<Self, Error> {
        Self::at(&BrokerAddress::Tls(address.clone()))
    }

    /// The same over UDP. The program has to call a method of the client every 30 s at least, or the broker
    /// takes it as gone.
    ///
    /// # Errors
    /// As [`connect_tls`](Self::connect_tls).
    pub fn connect_udp(address: &TlsAddress) -> Result<Self, Error> {
        Self::at(&BrokerAddress::Udp(address.clone()))
    }

    /// Connects to the broker at an address of any kind.
    ///
    /// # Errors
    /// As [`ClientOptions::connect`].
    pub fn at(address: &BrokerAddress) -> Result<Self, Error> {
        ClientOptions::new().connect(address)
    }
}
