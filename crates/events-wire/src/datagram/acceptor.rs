//! Admission of QUIC links: a link is opened only for a peer whose address has been validated.

use super::link::DatagramLink;
use super::{endpoint, server, server_tls};
use crate::tls::{TlsCertificates, TlsError};
use bytes::BytesMut;
use quinn_proto::{DatagramEvent, Endpoint, EndpointConfig, ServerConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The treatment of a datagram that belongs to no link.
#[derive(Debug)]
pub enum DatagramOutcome {
    Ignored,
    /// The caller has to send `answer`; it is no longer than the datagram.
    Answered,
    Opened(Box<DatagramLink>),
}

/// The part of a broker that handles datagrams of unknown peers. It keeps no state about them.
#[derive(Debug)]
pub struct DatagramAcceptor {
    endpoint: Endpoint,
    configs: (Arc<EndpointConfig>, Arc<ServerConfig>),
}

impl DatagramAcceptor {
    /// Makes an admission that shows these certificates to programs. A program that is silent for `idle`, but
    /// at least for 3 s, counts as vanished.
    ///
    /// # Errors
    /// The certificates do not allow TLS 1.3.
    pub fn new(certificates: &TlsCertificates, idle: Duration) -> Result<Self, TlsError> {
        let configs = (endpoint(), server(certificates, idle)?);
        let endpoint = Endpoint::new(Arc::clone(&configs.0), Some(Arc::clone(&configs.1)), true, None);
        Ok(Self { endpoint, configs })
    }

    /// Uses other certificates for links that are opened from now on.
    ///
    /// # Errors
    /// The certificates do not allow TLS 1.3; the former ones stay in use.
    pub fn use_certificates(&mut self, certificates: &TlsCertificates) -> Result<(), TlsError> {
        // a clone keeps the key of address validation, so that cookies sent before remain valid for programs
        // that are being admitted
        let mut config = (*self.configs.1).clone();
        config.crypto = server_tls(certificates)?;
        self.configs.1 = Arc::new(config);
        self.endpoint.set_server_config(Some(Arc::clone(&self.configs.1)));
        Ok(())
    }

    /// Handles a datagram from `remote`. Overwrites `answer`.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        datagram: &[u8],
        answer: &mut Vec<u8>,
    ) -> DatagramOutcome {
        answer.clear();
        match self.endpoint.handle(now, remote, None, None, BytesMut::from(datagram), answer) {
            Some(DatagramEvent::NewConnection(incoming)) if incoming.remote_address_validated() => {
                self.endpoint.ignore(incoming);
                let configs = (&self.configs.0, &self.configs.1);
                match DatagramLink::accept(now, remote, configs, datagram) {
                    Some(link) => DatagramOutcome::Opened(Box::new(link)),
                    None => DatagramOutcome::Ignored,
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                answer.clear();
                // A program ignores a second cookie: this one returns the cookie of the process that served
                // here before, and would wait for an answer in vain.
                if has_token(datagram) {
                    let _ = self.endpoint.refuse(incoming, answer);
                    return DatagramOutcome::Answered;
                }
                match self.endpoint.retry(incoming, answer) {
                    Ok(_) => DatagramOutcome::Answered,
                    Err(error) => {
                        self.endpoint.ignore(error.into_incoming());
                        DatagramOutcome::Ignored
                    }
                }
            }
            Some(DatagramEvent::Response(_)) => DatagramOutcome::Answered,
            Some(DatagramEvent::ConnectionEvent(..)) | None => DatagramOutcome::Ignored,
        }
    }
}

/// Returns whether the Initial packet at the start of a datagram carries a token, which is the place of a
/// cookie (RFC 9000, section 17.2.2).
fn has_token(datagram: &[u8]) -> bool {
    // behind the first byte and the version
    let mut rest = datagram.get(5..).unwrap_or_default();
    // the two connection IDs, each behind its length
    for _ in 0..2 {
        let Some((length, after)) = rest.split_first() else { return false };
        rest = after.get(usize::from(*length)..).unwrap_or_default();
    }
    rest.first().is_some_and(|length| *length > 0)
}
