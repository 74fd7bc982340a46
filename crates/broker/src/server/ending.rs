//! The end of a program's connection.
//!
//! Frames that came before the end count: a program that publishes and exits has published, even if its last
//! events still wait, in the connection, for room in the inbox of a consumer that blocks its suppliers. So
//! all remaining frames of an ended connection are read, in the program's turns, and only then does the
//! program count as gone. Meanwhile no frame is sent to the program: its events stay in its inboxes.
//!
//! Cost: an ended connection holds its place among the clients, and at most the bytes that its transport had
//! taken; a full inbox that no program reads holds both as long as it blocks other suppliers.

use super::Server;
use crate::task::ClientId;
use rustix::event::epoll;
use unisono_events_wire::transport::TransportError;
use unisono_linux::clock;

impl Server {
    /// Ends the connections whose other ends do not answer.
    pub(super) fn check_peers(&mut self) {
        let now = clock::now();
        if now < self.next_peer_check {
            return;
        }
        self.next_peer_check = now + self.broker.limits().peer_timeout / 5;
        let checked = self.clients.iter_mut().filter(|(_, client)| !client.has_ended());
        let checked = checked.map(|(id, client)| (*id, client.transport.check_peer()));
        let gone: Vec<_> =
            checked.filter_map(|(id, checked)| checked.err().map(|error| (id, error))).collect();
        for (id, error) in gone {
            self.fail(id, &error);
        }
    }

    /// Notes the result of sending to a program.
    pub(super) fn note_sent(&mut self, id: ClientId, sent: &Result<(), TransportError>) {
        match sent {
            Ok(()) => drop(self.unflushed_clients.insert(id)),
            Err(error) => self.fail(id, error),
        }
    }

    /// Handles an error of a program's connection while frames of the program may still wait there.
    pub(super) fn fail(&mut self, id: ClientId, error: &TransportError) {
        match error {
            TransportError::Closed => self.end_connection(id),
            error => self.lose(id, error),
        }
    }

    /// Handles the end of a program's connection after its last frame.
    pub(super) fn lose(&mut self, id: ClientId, error: &TransportError) {
        if let TransportError::Tls(_) = error {
            self.broker.count_tls_failure();
            self.broker.audit_end(id, &error.to_string());
        }
        self.drop_client(id);
    }

    /// Reads all remaining frames of a connection whose other end is gone.
    pub(super) fn end_connection(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if !client.end() {
            return;
        }
        // epoll would report the end in each turn; a descriptor that is not registered is silent already
        let _ = epoll::delete(&self.epoll, &*client.transport);
        self.broker.paused(id);
        if !self.blocked.contains(&id) {
            self.unfinished.insert(id);
        }
    }

    /// Forgets a program whose connection has no more frames.
    pub(super) fn drop_client(&mut self, id: ClientId) {
        self.beyond_epoll.remove(&id);
        if self.clients.remove(&id).is_some() {
            let tenant = self.broker.tenant(id);
            self.broker.gone(clock::now(), id);
            self.slices.spend(tenant, self.broker.take_work());
        }
    }
}
