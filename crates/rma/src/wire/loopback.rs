//! Loopback: packets between threads of one process.
//!
//! The idea: each rank has a mailbox: a mutex around a queue of packets, and a flag to sleep on. It
//! is the simplest transport that keeps the contract, and the engine's own tests run on it. Cost for each
//! packet: one allocation, one lock, and a wake-up if the receiver sleeps. When not to use: for speed;
//! processes that share memory have the mapped path.

use super::{Bell, Gone, Transport};
use crate::model::{Error, Rank};
use crate::wire::packet::HEADER;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use unisono_linux::clock::{Duration, Instant, now};
use unisono_linux::futex::{self, Scope, WakeCount};
use unisono_sync::MAX_SLEEP;

#[derive(Debug, Default)]
struct Mailbox {
    packets: Mutex<VecDeque<(Rank, Vec<u8>)>>,
    /// The count of packets, rings and lost peers. A waiter sleeps on it.
    events: AtomicU32,
    closed: AtomicU32,
}

const OPEN: u32 = 0;
const LEFT: u32 = 1;
const PANICKED: u32 = 2;

impl Mailbox {
    fn packets(&self) -> MutexGuard<'_, VecDeque<(Rank, Vec<u8>)>> {
        // No code panics with the lock held; a poisoned queue is whole.
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self) {
        // SYNC(mailbox) release: the packet is queued before its event is counted
        self.events.fetch_add(1, Ordering::Release);
        futex::wake(&self.events, WakeCount::All, Scope::Private);
    }
}

impl Bell for Mailbox {
    fn ring(&self) {
        self.announce();
    }

    fn events(&self) -> u32 {
        // SYNC(mailbox) acquire: every packet counted here is in the queue
        self.events.load(Ordering::Acquire)
    }

    fn listen(&self, last_events: u32, until: Option<Instant>) -> Duration {
        if self.events() != last_events {
            return Duration::ZERO;
        }
        let before = now();
        futex::wait(&self.events, last_events, until, Scope::Private);
        now() - before
    }
}

#[derive(Debug)]
pub struct Loopback {
    rank: Rank,
    mailboxes: Arc<[Arc<Mailbox>]>,
    /// The count of events before the last poll of the mailbox.
    last_events: u32,
    gone: Vec<Gone>,
    refused: Vec<Rank>,
}

impl Loopback {
    /// Creates the transports of a job of `size` ranks, in the order of ranks.
    pub fn job(size: usize) -> Vec<Self> {
        let mailboxes: Arc<[Arc<Mailbox>]> = (0..size).map(|_| Arc::new(Mailbox::default())).collect();
        (0..size)
            .map(|rank| Self {
                rank: Rank::at(rank),
                mailboxes: Arc::clone(&mailboxes),
                last_events: 0,
                gone: Vec::new(),
                refused: Vec::new(),
            })
            .collect()
    }

    fn own(&self) -> &Arc<Mailbox> {
        &self.mailboxes[self.rank.index()]
    }

    fn update_gone(&mut self) {
        for (index, mailbox) in self.mailboxes.iter().enumerate() {
            let rank = Rank::at(index);
            if rank == self.rank || self.gone.iter().any(|gone| gone.rank == rank) {
                continue;
            }
            // SYNC(closed) acquire: all packets of a rank that is gone are in the mailboxes
            let why = match mailbox.closed.load(Ordering::Acquire) {
                OPEN => continue,
                PANICKED => "its thread panicked",
                _ => "its end was dropped",
            };
            self.gone.push(Gone { rank, why: why.to_owned() });
        }
    }
}

impl Transport for Loopback {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.mailboxes.len()
    }

    fn send(&mut self, to: Rank, header: &[u8; HEADER], payload: &[IoSlice<'_>]) -> Result<(), Error> {
        let Some(mailbox) = self.mailboxes.get(to.index()) else { return Ok(()) };
        let bytes = payload.iter().map(|piece| piece.len()).sum::<usize>();
        let mut packet = Vec::with_capacity(HEADER + bytes);
        packet.extend_from_slice(header);
        for piece in payload {
            packet.extend_from_slice(piece);
        }
        mailbox.packets().push_back((self.rank, packet));
        mailbox.announce();
        Ok(())
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> Result<Option<Rank>, Error> {
        // SYNC(mailbox) acquire: every packet counted in `events` is in the queue popped below
        self.last_events = self.own().events.load(Ordering::Acquire);
        loop {
            let next = self.own().packets().pop_front();
            let Some((from, mut bytes)) = next else {
                let known = self.gone.len();
                self.update_gone();
                if self.gone.len() > known {
                    // The peer's last packets may have arrived between the two checks.
                    continue;
                }
                return Ok(None);
            };
            if !self.refused.contains(&from) {
                std::mem::swap(packet, &mut bytes);
                return Ok(Some(from));
            }
        }
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), Error> {
        let slice = now() + MAX_SLEEP;
        let until = until.map_or(slice, |until| until.min(slice));
        self.own().listen(self.last_events, Some(until));
        self.update_gone();
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, Error> {
        Ok(true)
    }

    fn gone(&self) -> &[Gone] {
        &self.gone
    }

    fn refuse(&mut self, peer: Rank, why: &str) {
        self.refused.push(peer);
        if !self.gone.iter().any(|gone| gone.rank == peer) {
            self.gone.push(Gone { rank: peer, why: why.to_owned() });
        }
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        let bell: Arc<dyn Bell> = Arc::clone(self.own()) as Arc<dyn Bell>;
        Some(bell)
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { PANICKED } else { LEFT };
        // SYNC(closed) release: this rank's packets are queued before its end is announced
        self.own().closed.store(how, Ordering::Release);
        for mailbox in &*self.mailboxes {
            mailbox.announce();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tests::conformance;

    #[test]
    fn loopback_keeps_the_contract() {
        conformance::check(|size| {
            Loopback::job(size).into_iter().map(|end| Box::new(end) as Box<dyn Transport>).collect()
        });
    }
}
