//! Connects suppliers with consumers: each gets one end of a socket pair, and an order.

use super::Server;
use super::served::ServedClient;
use crate::task::ClientId;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, OwnedFd};

impl Server {
    /// Makes a socket pair and passes one end to a supplier.
    pub(super) fn introduce(&mut self, id: ClientId, link: u32, head: Vec<u8>) {
        match socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None) {
            Ok((one, other)) => {
                self.links.insert(link, other);
                if self.pass(id, (link, Some(one))) {
                    self.order(id, head);
                }
            }
            Err(_) => self.broker.link_failed(link),
        }
    }

    /// Passes an end to a program; returns whether that succeeded.
    pub(super) fn pass(&mut self, id: ClientId, (link, end): (u32, Option<OwnedFd>)) -> bool {
        let Some(client) = self.clients.get_mut(&id) else { return false };
        let passed = matches!(end.map(|end| client.transport.pass(end.as_fd())), Some(Ok(())));
        if !passed {
            self.broker.link_failed(link);
        }
        passed
    }

    /// Tells the broker which suppliers' kernels have all frames, where a subscription waits for that.
    pub(super) fn note_arrivals(&mut self) {
        for id in self.broker.awaited_suppliers() {
            if self.clients.get(&id).is_none_or(ServedClient::is_acknowledged) {
                self.broker.frames_arrived(id);
            }
        }
    }

    /// Sends a program an order about a ring.
    pub(super) fn order(&mut self, id: ClientId, head: Vec<u8>) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let sent = client.order(&mut self.broker, id, head);
        self.note_sent(id, &sent);
    }
}
