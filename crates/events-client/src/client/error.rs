//! Errors of a client.

use rustix::io::Errno;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use unisono_events_wire::interrupt::WaitInterrupted;
use unisono_events_wire::tls::TlsError;
use unisono_events_wire::transport::TransportError;
use unisono_events_wire::{BrokerAddress, HOST_SOCKET};

/// The reason why a broker could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No broker listens there.
    #[error("no broker at {}: {source}; start one: unisono events serve --listen {}", path.display(), path.display())]
    Nobody { path: PathBuf, source: std::io::Error },
    #[error("no broker at {}: {source}, and none at {HOST_SOCKET}; start one: unisono events serve", path.display())]
    NobodyHere { path: PathBuf, source: std::io::Error },
    /// A broker listens at the path, but no memory could be shared with it.
    #[error("cannot share memory with the broker at {}: {source}; connect to unix:{}, without shared memory", path.display(), path.display())]
    Unshared { path: PathBuf, source: TransportError },
    /// The socket exists, but this user may not use it.
    #[error("cannot use {}: {why}", path.display())]
    NotForUs { path: PathBuf, why: String },
    #[error("no broker at {address}: {source}; start one: unisono events serve --listen tcp:{address}")]
    NobodyThere { address: SocketAddr, source: std::io::Error },
    #[error("no broker at udp:{address}: {source}; start one: unisono events serve --listen udp:{address}")]
    NobodyServes { address: SocketAddr, source: std::io::Error },
    /// A server of another protocol listens there.
    #[error(
        "no Unisono broker answers at {address}, but {service}; name the address that unisono events serve \
         prints behind \"serving at\", or start one at a free port: unisono events serve --listen tcp:HOST:PORT"
    )]
    ForeignService { address: SocketAddr, service: &'static str },
    /// The connection ended before a broker answered: a server of another protocol listens there, or a broker
    /// that is ending.
    #[error(
        "no Unisono broker answers at {address}: the server there ended the connection without an answer; name \
         the address that unisono events serve prints behind \"serving at\", or try again if that broker was ending"
    )]
    NoGreeting { address: SocketAddr },
    /// A server accepted the connection, and sent no answer in time: one of another protocol that waits for
    /// more, or a broker that is stopped.
    #[error(
        "no Unisono broker answers at {address}: the server there accepted the connection, but did not answer as \
         a broker within {within:?}; name the address that unisono events serve prints behind \"serving at\", or \
         try again if that broker was starting or stopped"
    )]
    SilentServer { address: Box<BrokerAddress>, within: Duration },
    /// The encrypted connection failed.
    #[error("no TLS connection to {address}: {why}")]
    Unsecured { address: SocketAddr, why: String },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot read the token {}: {source}", path.display())]
    TokenFile { path: PathBuf, source: std::io::Error },
    /// An option (a name, a lease) is out of range.
    #[error("{0}")]
    Options(String),
    /// The broker refused a topic or a subscription.
    #[error("the broker refuses: {0}")]
    Refused(String),
    /// The broker refused an event; no consumer got it.
    #[error("the event is refused: {0}")]
    Rejected(String),
    /// The broker refused the path, or its destination is gone.
    #[error("the path is closed: {0}")]
    Closed(String),
    /// The broker disconnected this program.
    #[error("the broker ended the connection: {0}")]
    SentAway(String),
    /// The payload is too long.
    #[error("a payload of {length} bytes is too long: the broker takes {most}")]
    TooLong { length: usize, most: usize },
    /// The connection broke.
    #[error(
        "the broker is gone ({0}), and with it events that it had neither delivered nor logged; connect again"
    )]
    Broken(TransportError),
    /// This process is a forked child of the process that connected.
    #[error("the connection belongs to the parent of this forked process; connect anew")]
    Forked,
    /// The connection broke before the answer. The client connects again.
    #[error(
        "the connection broke before the broker answered; nobody knows whether the event was taken: publish it again, \
         with a writer's number if it must not come twice"
    )]
    Unanswered,
    /// There was no room for the event within the time limit; it was not taken.
    #[error("no room for the event within the time limit")]
    NoRoom,
    /// The process's check has ended the wait.
    #[error("a signal ended the wait")]
    Interrupted,
    /// The received bytes are not a broker's answer.
    #[error("what answers is no broker of this version: {0}")]
    Strange(String),
    /// No reply to a request came in time.
    #[error("no reply within {0:?}")]
    NoReply(Duration),
    /// No reply came in time, and none could come, because no consumer got the request.
    #[error(
        "no reply within {within:?}: nobody subscribes to {topic}; start a program that replies, such as: unisono \
         events subscribe {topic} --reply COMMAND"
    )]
    NobodyReplies { topic: String, within: Duration },
    /// The program that got the request reports why there is no reply.
    #[error("the request failed: {0}")]
    RequestFailed(String),
}

impl From<TransportError> for Error {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::TooLarge { bytes, most } => Self::TooLong { length: bytes, most },
            TransportError::Interrupted => Self::Interrupted,
            TransportError::SentAway(reason) => Self::SentAway(reason),
            other => Self::Broken(other),
        }
    }
}

impl From<WaitInterrupted> for Error {
    fn from(_: WaitInterrupted) -> Self {
        Self::Interrupted
    }
}

impl Error {
    pub(super) fn from_errno(error: Errno) -> Self {
        Self::Broken(TransportError::Failed(error.into()))
    }
}
