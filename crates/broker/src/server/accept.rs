//! Takes new connections from the listeners.

use super::listen::{AcceptFailure, ServeError};
use super::served::ServedClient;
use super::{CLIENT, Server};
use crate::limits::Limits;
use crate::task::ClientId;
use rustix::event::epoll::{self, EventData, EventFlags};
use unisono_events_wire::transport::{FrameTransport, Framing, PeerWatcher, TransportError, TransportPeer};
use unisono_linux::clock;

/// Connections accepted at one listener in a turn. Accepting a connection takes about 20 us, so the other
/// connections wait at most about 1 ms. Chosen by this argument, not measured.
const MAX_ACCEPTED: usize = 64;
impl Server {
    /// Accepts the connections that wait at a listener, at most [`MAX_ACCEPTED`].
    pub(super) fn accept(&mut self, listener: usize) -> Result<(), ServeError> {
        for _ in 0..MAX_ACCEPTED {
            let Some(listener) = self.listeners.get_mut(listener) else { return Ok(()) };
            let framing = listener.framing();
            match listener.accept() {
                Ok(Some((transport, peer))) => self.add_client(transport, peer, framing),
                Ok(None) => return Ok(()),
                Err(TransportError::Failed(error)) => match AcceptFailure::from_error(&error) {
                    AcceptFailure::Connection => {}
                    // no connection fits until another one ends: new ones wait in the kernel's queue
                    AcceptFailure::Shortage => {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                        return Ok(());
                    }
                    AcceptFailure::Listener => return Err(TransportError::Failed(error).into()),
                },
                // the peer has gone again, never spoke the protocol, or could not be given its rings
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn add_client(&mut self, mut transport: Box<dyn FrameTransport>, peer: TransportPeer, framing: Framing) {
        while self.clients.contains_key(&ClientId(self.next_client)) {
            self.next_client = self.next_client.wrapping_add(1);
        }
        let id = ClientId(self.next_client);
        self.next_client = self.next_client.wrapping_add(1);
        let data = EventData::new_u64(CLIENT | u64::from(id.0));
        // a connection beyond the limit, or beyond the user's limit on watched descriptors, is closed here;
        // all others are served as before
        if epoll::add(&self.epoll, &*transport, data, EventFlags::IN).is_ok()
            && match framing {
                Framing::Length => self.broker.connected(clock::now(), id, peer),
                Framing::Mqtt => self.broker.connected_by_mqtt(clock::now(), id, peer),
            }
        {
            if transport.may_lose() {
                self.broker.may_lose(id);
            }
            transport.watch_peer(self.broker.limits().peer_timeout.into(), PeerWatcher::Broker);
            let greeting = match framing {
                Framing::Length => Limits::GREETING,
                Framing::Mqtt => Limits::CONNECT,
            };
            self.clients.insert(id, ServedClient::new(transport, greeting, self.broker.buffer_share(id)));
            self.note_transport(id);
        }
    }
}
