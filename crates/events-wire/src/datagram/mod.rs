//! Frames over UDP. Each connection carries its frames in one stream of QUIC.
//!
//! ```text
//!   program                                                    broker
//!   DatagramChannel: socket, timer                             DatagramChannel
//!     DatagramLink: QUIC, without either <==== datagrams ====>   DatagramLink
//!                                               first ones -->   DatagramAcceptor
//! ```
//! QUIC (quinn-proto, a state machine) numbers, acknowledges and repeats datagrams, limits the sender to the
//! rate of the network and the other end, detects that the other end has vanished, and encrypts with the
//! certificates that TLS uses. This module has neither sockets nor a clock: its caller passes the received
//! datagrams and the time to [`DatagramLink`], and gets the datagrams to send and the time of the next call.
//! [`DatagramAcceptor`] decides which programs get a link. The socket and the timer are in
//! `transport/datagrams.rs`.
//!
//! **Admission.** The acceptor answers the first datagram from an unknown address with a cookie, which is
//! smaller than that datagram, and keeps no state about the address. Only a program that returns the cookie
//! has proved that it owns its address. A cookie of the process that served at the socket before is refused,
//! and the program begins again.
//!
//! **A socket for each connection.** The broker opens a socket for each program, bound to the same address
//! and connected to the program, so that the kernel distributes the datagrams and each transport has a
//! descriptor.
//!
//! Cost: a system call for each datagram (up to 1452 bytes) in both directions, and one for each change of
//! the timer. TCP is cheaper for long streams. When to use it: if a network loses datagrams or changes, or if
//! TCP is not available. Events still arrive in order, except best-effort ones: a lost datagram delays the
//! events behind it.
//!
//! Reference: RFC 9000 (QUIC), 9001 (its TLS), 9002 (loss and congestion).

mod acceptor;
mod link;

pub use acceptor::{DatagramAcceptor, DatagramOutcome};
pub(crate) use link::LinkRead;
pub use link::{DatagramLink, LinkEnd};

use crate::tls::{TlsCertificates, TlsError};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{EndpointConfig, IdleTimeout, RandomConnectionIdGenerator, TransportConfig, VarInt};
use std::sync::Arc;
use std::time::Duration;

/// The protocol's name in the handshake (ALPN); its version is in the greeting.
const PROTOCOL: &[u8] = b"unisono-events";
/// The interval of keep-alive datagrams (signs of life). Chosen, not measured.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// The minimum time after which a silent end counts as vanished: two signs of life may be lost.
const MIN_IDLE: Duration = Duration::from_secs(3);
/// Maximum bytes in flight in one direction: a socket buffer of the default size (208 KiB, which include the
/// kernel's overhead) holds this much in full datagrams, so that none is lost between processes of the same
/// host. On a link with a round trip of 1 ms this is 780 Mbit/s.
const WINDOW: u32 = 96 << 10;
/// The maximum number of bytes of best-effort events that wait to leave, or to be read; beyond it, the oldest
/// are dropped. At 80 Mbit/s this many bytes leave within 10 ms; an event that would wait longer is better
/// dropped.
const LOOSE: usize = 96 << 10;
/// The number of bytes of a connection ID: two equal random ones among 2^64 are very unlikely.
const NUMBER: usize = 8;

/// Returns the transport parameters of an end that considers a silent other end gone after `idle`. The
/// shorter time of the two ends applies; a program sets none, so that the broker's applies.
fn transport(idle: Option<Duration>) -> Arc<TransportConfig> {
    let idle = idle.map(|idle| idle.max(MIN_IDLE).as_millis());
    let idle =
        idle.map(|idle| IdleTimeout::from(VarInt::from_u32(u32::try_from(idle).unwrap_or(u32::MAX >> 2))));
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(Some(LOOSE))
        .datagram_send_buffer_size(LOOSE)
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(WINDOW.into())
        .max_idle_timeout(idle)
        .keep_alive_interval(Some(KEEP_ALIVE));
    Arc::new(config)
}

fn endpoint() -> Arc<EndpointConfig> {
    let mut config = EndpointConfig::default();
    // the acceptor must recognize the number of any link, to tell a program that its link is gone
    config.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(NUMBER)));
    Arc::new(config)
}

/// Returns a broker's TLS configuration for QUIC.
fn server_tls(certificates: &TlsCertificates) -> Result<Arc<QuicServerConfig>, TlsError> {
    let mut tls = (*certificates.config).clone();
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    let tls = QuicServerConfig::try_from(tls).map_err(|error| TlsError::Datagrams(error.to_string()))?;
    Ok(Arc::new(tls))
}

/// Returns the configuration with which a broker accepts programs.
fn server(
    certificates: &TlsCertificates,
    idle: Duration,
) -> Result<Arc<quinn_proto::ServerConfig>, TlsError> {
    let mut config = quinn_proto::ServerConfig::with_crypto(server_tls(certificates)?);
    // a link cannot move to another address, because the broker's socket for it is connected to one address
    config.migration(false).transport_config(transport(Some(idle)));
    Ok(Arc::new(config))
}

fn client(tls: &rustls::ClientConfig) -> Result<quinn_proto::ClientConfig, TlsError> {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    let tls = QuicClientConfig::try_from(tls).map_err(|error| TlsError::Datagrams(error.to_string()))?;
    let mut config = quinn_proto::ClientConfig::new(Arc::new(tls));
    config.transport_config(transport(None));
    Ok(config)
}
