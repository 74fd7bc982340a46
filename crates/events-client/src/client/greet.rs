//! The first exchange of a connection, and the error if no broker takes part in it.

use super::{Client, Error};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use unisono_events_wire::BrokerAddress;
use unisono_events_wire::Greeting;
use unisono_events_wire::frame::Frame;
use unisono_events_wire::transport::{TransportError, foreign_service};

impl Client {
    /// Sends the greeting, and waits for the broker's answer: without a limit, or for the time beside the
    /// address.
    pub(super) fn greet(
        &mut self,
        greeting: Greeting,
        at: Option<(&BrokerAddress, Duration)>,
    ) -> Result<(), Error> {
        let until = at.and_then(|(_, timeout)| Instant::now().checked_add(timeout));
        self.send_frame(&Frame::Hello(greeting))?;
        self.transport.compress_heads();
        while self.terms.version == 0 {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if !self.receive_frame(left)?
                && let Some((address, within)) = at
            {
                return Err(Error::SilentServer { address: Box::new(address.clone()), within });
            }
        }
        match at {
            Some((BrokerAddress::Tcp(_), _)) if self.terms.links => self.take_links(),
            _ => Ok(()),
        }
    }

    /// Converts the error of a greeting that went to a network address. The connection has broken before a
    /// broker answered, so the cause is probably the address, and no event is lost.
    pub(super) fn greeting_error(&self, address: SocketAddr, error: Error) -> Error {
        match (error, foreign_service(self.transport.received_part())) {
            // a broker that ends now closes the connection, too
            (Error::Broken(TransportError::Closed), None) => Error::NoGreeting { address },
            (Error::Broken(TransportError::Closed | TransportError::Oversized { .. }), service) => {
                let service = service.unwrap_or("a server of another protocol");
                Error::ForeignService { address, service }
            }
            (other, _) => other,
        }
    }
}
