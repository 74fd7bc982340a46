//! Packets between processes of one host, through rings in shared memory.
//!
//! The idea: each ordered pair of ranks has a ring of bytes with one writer and one reader, so that no ring
//! is contended. A packet longer than its ring travels in parts. The sender keeps bytes for which there is no
//! room. Each rank has a bell (a counter with sleepers) that others ring after they have sent. Cost for each
//! packet: two copies, one atomic addition, and a wake-up if the receiver sleeps; memory for size squared
//! rings. When not to use: for windows that the mapped path reaches.
//!
//! ```text
//!   segment:  host lines | ring lines, for each pair the writer's tail and the reader's head | ring bytes
//! ```
//! Beside the tail lies the writer's request for a report about room. It works like a sleeper's count: the
//! writer requests it, fences, and checks the head once more; the reader gives room back, fences, and checks
//! the request. The reader reports to the writer once half of the ring is free.
//!
//! A process that maps the memory may be hostile: heads and tails are checked, and bytes are copied before
//! they are parsed.

use super::{Bell, Gone, Transport};
use crate::host::flag_waiter::FlagWaiter;
use crate::host::{HostMembers, rendezvous};
use crate::model::{Error, JobMembership, Rank};
use crate::wire::packet::{HEADER, announced};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration as StdDuration;
use unisono_linux::clock::{Duration, Instant, now};
use unisono_linux::futex::Scope;
use unisono_sync::atomics::{AtomicU32, Ordering};
use unisono_sync::{CacheLine, Until, Wakeups};

#[derive(Debug)]
pub struct RingTransport {
    host: Arc<HostMembers>,
    ring_bytes: usize,
    /// For each receiver, the packets for which there was no room, and the number of bytes of the first of
    /// these packets that were sent.
    kept: Vec<(VecDeque<Vec<u8>>, usize)>,
    /// For each sender, the part of a packet that has arrived.
    parts: Vec<Vec<u8>>,
    /// The sender whose ring is read first next time, so that none starves.
    next: usize,
    last_events: u32,
    flag_waiter: FlagWaiter,
    gone: Vec<Gone>,
    refused: Vec<bool>,
}

/// Returns the number of bytes of each ring in a job of `size` ranks.
const fn ring_bytes(size: usize) -> usize {
    match size {
        0..=8 => 64 << 10,
        9..=32 => 16 << 10,
        _ => 4 << 10,
    }
}

/// Returns the index of the first line of a pair's ring.
const fn pair(size: usize, from: usize, to: usize) -> usize {
    HostMembers::lines(size) + 2 * (from * size + to)
}

/// Returns the number of lines before the rings' bytes.
const fn lines(size: usize) -> usize {
    pair(size, size, 0)
}

impl RingTransport {
    /// Connects to the other processes of a job on this host, however they were started; waits for all of
    /// them, for at most `timeout`. Fails as [`crate::Job::shared`] does.
    pub fn connect(place: &JobMembership, timeout: StdDuration) -> Result<Self, Error> {
        let size = place.size;
        let bytes = lines(size) * size_of::<CacheLine>() + size * size * ring_bytes(size);
        let host = rendezvous::join(place, bytes, timeout.into())?;
        Ok(Self {
            host: Arc::new(host),
            ring_bytes: ring_bytes(size),
            kept: (0..size).map(|_| (VecDeque::new(), 0)).collect(),
            parts: vec![Vec::new(); size],
            next: 0,
            last_events: 0,
            flag_waiter: FlagWaiter::default(),
            gone: Vec::new(),
            refused: vec![false; size],
        })
    }

    pub(crate) fn host(&self) -> &Arc<HostMembers> {
        &self.host
    }

    fn ring(&self, from: usize, to: usize) -> Ring<'_> {
        let size = self.host.size;
        let first = pair(size, from, to);
        let start = lines(size) * size_of::<CacheLine>() + (from * size + to) * self.ring_bytes;
        let base = self.host.lines.start().as_ptr();
        Ring {
            tail: self.host.lines.line(first).word(0),
            room_wanted: self.host.lines.line(first).word(1),
            head: self.host.lines.line(first + 1).word(0),
            bytes: base.wrapping_add(start),
            size: self.ring_bytes,
        }
    }

    /// Sends kept packets for `to`, as far as there is room. Returns whether none is left.
    fn flush_to(&mut self, to: usize) -> bool {
        let me = self.host.rank.index();
        let (mut queue, mut sent) = std::mem::take(&mut self.kept[to]);
        let ring = self.ring(me, to);
        let mut rings = false;
        while let Some(packet) = queue.front() {
            let wrote = ring.write(&packet[sent..]);
            rings |= wrote > 0;
            sent += wrote;
            if sent < packet.len() {
                if wrote == 0 && !ring.request_room() {
                    break;
                }
                continue;
            }
            queue.pop_front();
            sent = 0;
        }
        let empty = queue.is_empty();
        if empty {
            ring.room_wanted.store(0, Ordering::Relaxed);
        }
        self.kept[to] = (queue, sent);
        if rings {
            self.host.ring(Rank::at(to));
        }
        empty
    }

    /// Reads bytes that have arrived from `from`. Returns whether a packet is complete now.
    fn receive_from(&mut self, from: usize) -> Result<bool, String> {
        let mut part = std::mem::take(&mut self.parts[from]);
        let ring = self.ring(from, self.host.rank.index());
        let mut read = 0;
        let whole = loop {
            let wanted = match part.first_chunk::<HEADER>() {
                None => HEADER,
                Some(header) => HEADER + announced(header).map_err(|bad| bad.to_string())?,
            };
            if part.len() == wanted && wanted >= HEADER && part.len() >= HEADER {
                break true;
            }
            let came = ring.read(&mut part, wanted)?;
            read += came;
            if came == 0 {
                break false;
            }
        };
        let reports = read > 0 && ring.must_report_room();
        self.parts[from] = part;
        if reports {
            self.host.ring(Rank::at(from));
        }
        Ok(whole)
    }

    fn update_gone(&mut self) -> bool {
        let known = self.gone.len();
        let first = self.host.gone_member().map(|gone| gone.rank);
        let all = (0..self.host.size).map(Rank::at);
        for rank in first.into_iter().chain(all).filter(|rank| *rank != self.host.rank) {
            if let Some(gone) = self.host.gone(rank)
                && !self.gone.iter().any(|other| other.rank == rank)
            {
                self.gone.push(gone);
            }
        }
        self.gone.len() > known
    }

    fn is_gone(&self, rank: usize) -> bool {
        self.gone.iter().any(|gone| gone.rank.index() == rank)
    }

    fn next_packet(&mut self, packet: &mut Vec<u8>) -> Option<Rank> {
        let size = self.host.size;
        for step in 0..size {
            let from = (self.next + step) % size;
            if from == self.host.rank.index() || self.refused[from] {
                continue;
            }
            match self.receive_from(from) {
                Ok(true) => {
                    packet.clear();
                    std::mem::swap(packet, &mut self.parts[from]);
                    self.next = from + 1;
                    return Some(Rank::at(from));
                }
                Ok(false) => {}
                Err(why) => self.refuse(Rank::at(from), &why),
            }
        }
        None
    }
}

struct Ring<'a> {
    tail: &'a AtomicU32,
    room_wanted: &'a AtomicU32,
    head: &'a AtomicU32,
    bytes: *mut u8,
    size: usize,
}

impl Ring<'_> {
    /// Requests a report about room; called by the writer of a full ring. Returns true if there is room after
    /// all; otherwise the reader will report.
    fn request_room(&self) -> bool {
        self.room_wanted.store(1, Ordering::Relaxed);
        // SYNC(ring-room) fence: the request is written before the head is read; the other side is in
        // `must_report_room`
        unisono_sync::atomics::fence(Ordering::SeqCst);
        // SYNC(ring-head) acquire: the reader has copied the bytes whose room it gave back
        self.head.load(Ordering::Acquire) != self.tail.load(Ordering::Relaxed).wrapping_sub(self.size as u32)
    }

    /// Whether the reader has to report to the writer; called by the reader after it gave room back.
    fn must_report_room(&self) -> bool {
        // SYNC(ring-room) fence: the head is written before the request is read; the other side is in
        // `request_room`
        unisono_sync::atomics::fence(Ordering::SeqCst);
        let used = self.tail.load(Ordering::Relaxed).wrapping_sub(self.head.load(Ordering::Relaxed));
        self.room_wanted.load(Ordering::Relaxed) != 0 && used as usize <= self.size / 2
    }

    /// Writes as many of `bytes` as fit. Returns their number.
    fn write(&self, bytes: &[u8]) -> usize {
        let tail = self.tail.load(Ordering::Relaxed);
        // SYNC(ring-head) acquire: the reader has copied the bytes whose room it gave back
        let head = self.head.load(Ordering::Acquire);
        let used = (tail.wrapping_sub(head) as usize).min(self.size);
        let length = bytes.len().min(self.size - used);
        let at = tail as usize % self.size;
        let first = length.min(self.size - at);
        // SAFETY: `at + first` is within the ring, which lies in the mapped segment.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.bytes.wrapping_add(at), first) };
        let rest = bytes[first..length].as_ptr();
        // SAFETY: the rest is shorter than the ring, and goes to the ring's start in the mapped segment.
        unsafe { std::ptr::copy_nonoverlapping(rest, self.bytes, length - first) };
        // SYNC(ring-tail) release: the bytes are written before their count
        self.tail.store(tail.wrapping_add(length as u32), Ordering::Release);
        length
    }

    /// Appends to `part` until it has `wanted` bytes or the ring is empty. Returns the number of bytes read.
    fn read(&self, part: &mut Vec<u8>, wanted: usize) -> Result<usize, String> {
        let head = self.head.load(Ordering::Relaxed);
        // SYNC(ring-tail) acquire: the bytes are read after their count
        let tail = self.tail.load(Ordering::Acquire);
        let there = tail.wrapping_sub(head) as usize;
        if there > self.size {
            return Err("its ring holds more than it can".to_owned());
        }
        let length = there.min(wanted.saturating_sub(part.len()));
        let at = head as usize % self.size;
        let first = length.min(self.size - at);
        part.reserve(wanted - part.len());
        for (start, bytes) in [(at, first), (0, length - first)] {
            let (from, into) = (self.bytes.wrapping_add(start), part.spare_capacity_mut().as_mut_ptr());
            // SAFETY: the range is within the ring; `reserve` made room for all of it.
            unsafe { std::ptr::copy_nonoverlapping(from, into.cast::<u8>(), bytes) };
            // SAFETY: the line above has written these bytes behind the vector's end.
            unsafe { part.set_len(part.len() + bytes) };
        }
        // SYNC(ring-head) release: the copy is made before the room is given back
        self.head.store(head.wrapping_add(length as u32), Ordering::Release);
        Ok(length)
    }
}

impl Transport for RingTransport {
    fn rank(&self) -> Rank {
        self.host.rank
    }

    fn size(&self) -> usize {
        self.host.size
    }

    fn send(&mut self, to: Rank, header: &[u8; HEADER], payload: &[IoSlice<'_>]) -> Result<(), Error> {
        let index = to.index();
        if index >= self.host.size || self.is_gone(index) || self.refused[index] {
            return Ok(());
        }
        if self.kept[index].0.is_empty() {
            let ring = self.ring(self.host.rank.index(), index);
            let pieces = || std::iter::once(&header[..]).chain(payload.iter().map(|piece| &**piece));
            let mut rest: Vec<u8> = Vec::new();
            for piece in pieces() {
                let wrote = if rest.is_empty() { ring.write(piece) } else { 0 };
                rest.extend_from_slice(&piece[wrote..]);
            }
            self.host.ring(to);
            if !rest.is_empty() {
                self.kept[index].0.push_back(rest);
                self.flush_to(index);
            }
            return Ok(());
        }
        let mut packet = header.to_vec();
        payload.iter().for_each(|piece| packet.extend_from_slice(piece));
        self.kept[index].0.push_back(packet);
        self.flush_to(index);
        Ok(())
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> Result<Option<Rank>, Error> {
        self.last_events = self.host.bell(self.host.rank).value();
        // SYNC(flag) fence: the packets of every event counted above are visible in the rings below
        unisono_sync::atomics::fence(Ordering::SeqCst);
        self.flush()?;
        if let Some(from) = self.next_packet(packet) {
            return Ok(Some(from));
        }
        // The last packets of a peer that is gone may have arrived between the two checks.
        if self.update_gone() { Ok(self.next_packet(packet)) } else { Ok(None) }
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), Error> {
        let host = Arc::clone(&self.host);
        let (bell, next) = (host.bell(host.rank), self.last_events.wrapping_add(1));
        self.flag_waiter.wait_until(&host, bell, next, until);
        self.update_gone();
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, Error> {
        let mut empty = true;
        for to in 0..self.host.size {
            if self.is_gone(to) || self.refused[to] {
                self.kept[to].0.clear();
            } else if !self.kept[to].0.is_empty() {
                empty &= self.flush_to(to);
            }
        }
        Ok(empty)
    }

    fn gone(&self) -> &[Gone] {
        &self.gone
    }

    fn refuse(&mut self, peer: Rank, why: &str) {
        if let Some(refused) = self.refused.get_mut(peer.index()) {
            *refused = true;
        }
        if !self.is_gone(peer.index()) {
            self.gone.push(Gone { rank: peer, why: why.to_owned() });
        }
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        let listener =
            Listener { host: Arc::clone(&self.host), flag_waiter: Mutex::new(FlagWaiter::default()) };
        Some(Arc::new(listener))
    }
}

/// The bell, for threads that do not hold the transport.
#[derive(Debug)]
struct Listener {
    host: Arc<HostMembers>,
    flag_waiter: Mutex<FlagWaiter>,
}

impl Bell for Listener {
    fn ring(&self) {
        self.host.ring(self.host.rank);
    }

    fn events(&self) -> u32 {
        self.host.bell(self.host.rank).value()
    }

    fn listen(&self, last_events: u32, until: Option<Instant>) -> Duration {
        let bell = self.host.bell(self.host.rank);
        let next = last_events.wrapping_add(1);
        if bell.reached(next) {
            return Duration::ZERO;
        }
        // One thread waits by the policy. A second thread, such as the agent, sleeps at once.
        let mut flag_waiter = match self.flag_waiter.try_lock() {
            Ok(flag_waiter) => flag_waiter,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let before = now();
                let _ = bell.sleep(next, Wakeups::Symmetric(Scope::Shared), &mut Until(until));
                return now() - before;
            }
        };
        let slept = flag_waiter.asleep();
        flag_waiter.wait_until(&self.host, bell, next, until);
        flag_waiter.asleep() - slept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Key;
    use crate::wire::tests::conformance;
    use std::thread;

    /// Creates the transports of a job of threads of this process, each with mappings of its own.
    fn ends(size: usize) -> conformance::Transports {
        let key = Key::random().expect("the kernel has random bytes");
        let joining: Vec<_> = (0..size)
            .map(|rank| {
                thread::spawn(move || {
                    let place = JobMembership { rank: Rank::at(rank), size, key };
                    RingTransport::connect(&place, StdDuration::from_secs(60)).expect("all come")
                })
            })
            .collect();
        let joined = joining.into_iter().map(|thread| thread.join().expect("joining does not panic"));
        joined.map(|end| Box::new(end) as Box<dyn Transport>).collect()
    }

    #[test]
    fn shared_memory_keeps_the_contract() {
        conformance::check(ends);
    }

    #[test]
    fn a_sender_that_waits_for_room_is_told_and_does_not_sleep_its_slices_out() {
        const PACKETS: u32 = 4000;
        let mut ends = ends(2);
        let (mut receiver, mut sender) = (ends.remove(1), ends.remove(0));
        thread::scope(|threads| {
            let waits = threads.spawn(move || {
                let header =
                    crate::wire::packet::Header::new(crate::wire::packet::PacketKind::Put, 1).encode(200);
                for _ in 0..PACKETS {
                    sender.send(Rank(1), &header, &[IoSlice::new(&[7; 200])]).expect("sending works");
                }
                let (mut late, limit) = (0, now() + Duration::from_secs(60));
                while !sender.flush().expect("flushing works") {
                    let start = now();
                    assert!(start < limit, "what is kept is passed on");
                    sender.wait(None).expect("waiting works");
                    late += u32::from(now() - start > Duration::from_millis(90));
                    // This test does not need the packets that arrived.
                    let _ = sender.receive(&mut Vec::new()).expect("receiving works");
                }
                (late, sender)
            });
            let (mut came, mut packet) = (0, Vec::new());
            while came < PACKETS {
                match receiver.receive(&mut packet).expect("receiving works") {
                    Some(_) => came += 1,
                    None => receiver.wait(None).expect("waiting works"),
                }
            }
            let (late, _sender) = waits.join().expect("no panic");
            // The packets fill the ring some 14 times: a sender that gets no report is late nearly every
            // time.
            assert!(late < 6, "late {late} times");
        });
    }

    #[test]
    fn whoever_does_not_know_the_key_is_not_told_where_the_segment_is() {
        let key = Key::random().expect("the kernel has random bytes");
        let mut other = *key.bytes();
        other[15] ^= 1;
        let wrong = JobMembership { rank: Rank(1), size: 2, key: Key::from_bytes(other) };
        let right = JobMembership { rank: Rank(0), size: 2, key };
        let invites = thread::spawn(move || RingTransport::connect(&right, StdDuration::from_millis(400)));
        let refused = RingTransport::connect(&wrong, StdDuration::from_millis(200)).expect_err("a wrong key");
        assert!(matches!(refused, Error::TimedOut { .. }), "{refused}");
        let alone = invites.join().expect("no panic").expect_err("nobody came");
        assert!(alone.to_string().contains("rank 1"), "{alone}");
    }
}
