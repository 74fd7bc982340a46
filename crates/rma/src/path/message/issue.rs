//! How operations are sent: short ones together, long ones in pieces, each layout once.
//!
//! ```text
//!   queue:  put 16 B, put 16 B, acc 8 B, put 3 MB, get 1 KB
//!   sent:   [batch: put, put, acc] [put, 1 MB] [put, 1 MB] [put, 1 MB] [get | LAST]
//! ```
//! The last piece of the last operation carries the marks of the epoch's end ([`PacketFlags::LAST`] and
//! others). Cost: one message for all short operations in a row; one description for each layout and target.
//! Reference: the paper, section 6 (aggregation, cached datatypes).

use super::EngineState;
use super::port::AwaitedAnswer;
use crate::memory::op::Op;
use crate::model::{Error, Layout, Rank, Verb};
use crate::wire::packet::{HEADER, Header, PacketFlags, PacketKind};
use std::io::IoSlice;

/// The longest data (bytes) of operations that share one message. A message costs its header, a system call
/// over TCP and its place in the target's queue, some microseconds together; 1 KB is copied into the batch in
/// 0.1 us. Chosen by this sum, not measured.
pub(crate) const SHORT: u64 = 1024;

/// The size (bytes) from which on a batch is sent: with a few pages, many operations share the header and the
/// system call already. Waiting for more operations gains nothing, and delays the target, which could begin
/// meanwhile. Chosen, not measured.
const FULL_BATCH: usize = 16 << 10;

/// The longest payload (bytes) that travels with a lock request in a small job. Longer data waits at its
/// origin for the grant. If both ranks send to each other, the grant queues behind the target's own data, so
/// its round trip may take as long as the data of a packet. Chosen, not measured.
pub(super) const MAX_CARRIED: usize = 256 << 10;
/// The longest payload (bytes) that travels with a lock request in any job. Chosen, not measured.
pub(super) const MIN_CARRIED: usize = 16 << 10;
/// The memory (bytes) of a target for one such payload of each origin, because the target keeps a payload
/// until it can grant the lock. Chosen, not measured.
const CARRIED_OF_ALL: usize = 16 << 20;

/// Returns the length (bytes) of an operation's payload in its packet.
fn payload_bytes(op: &Op) -> usize {
    match op.verb {
        Verb::Get => size_of_val(&op.total),
        Verb::CompareAndSwap => 2 * op.total as usize,
        _ => op.total as usize,
    }
}

/// Returns the room (bytes) that an operation takes in a batch.
pub(super) fn room_in_batch(op: &Op) -> usize {
    (HEADER + payload_bytes(op)).next_multiple_of(8)
}

/// Several operations for one message.
#[derive(Default)]
struct MessageBatch {
    bytes: Vec<u8>,
    members: usize,
}

impl EngineState {
    /// Sends `ops` to `target`; the last carries `marks`, and `tag` if the marks ask for an answer.
    pub(crate) fn send_all(
        &mut self,
        window: u32,
        target: Rank,
        ops: Vec<Op>,
        marks: PacketFlags,
        tag: u32,
    ) -> Result<(), Error> {
        let mut batch = MessageBatch::default();
        let last = ops.len().wrapping_sub(1);
        for (index, op) in ops.into_iter().enumerate() {
            let marks = if index == last { marks } else { PacketFlags(0) };
            let limit = self.transport.max_payload().min(FULL_BATCH);
            if op.layout.id().is_some_and(|id| !self.described[target.index()].knows(id)) {
                // The batch may use layouts that `describe` makes the target forget, so the batch is sent
                // first.
                self.send_batch(window, target, &mut batch)?;
                self.describe(target, &op.layout)?;
            }
            if op.total <= SHORT {
                if batch.bytes.len() + room_in_batch(&op) > limit {
                    self.send_batch(window, target, &mut batch)?;
                }
                self.add(window, target, &op, marks, tag, &mut batch);
            } else {
                self.send_batch(window, target, &mut batch)?;
                self.send_pieces(window, target, &op, marks, tag)?;
            }
        }
        self.send_batch(window, target, &mut batch)?;
        self.port(window).peers[target.index()].unacknowledged = true;
        Ok(())
    }

    /// Returns the longest payload (bytes) that travels with a lock request; the same at all members.
    pub(super) fn max_carried(&self) -> usize {
        (CARRIED_OF_ALL / self.size.max(1)).clamp(MIN_CARRIED, MAX_CARRIED)
    }

    /// Whether the operations in the queue fit into one packet with the request of their lock.
    pub(super) fn fits_request(&self, window: u32, target: Rank) -> bool {
        let Some(port) = self.ports.get(&window) else { return false };
        let ops = &port.peers[target.index()].queue[..];
        let piece = self.transport.max_payload() & !15;
        let limit = piece.min(self.max_carried());
        // the target may forget a layout while the packet waits for the lock
        ops.iter().all(|op| op.layout.is_contiguous())
            && match ops {
                [] => false,
                [op] => payload_bytes(op) <= limit && op.total <= piece as u64,
                _ => {
                    ops.iter().all(|op| op.total <= SHORT)
                        && ops.iter().map(room_in_batch).sum::<usize>() <= limit
                }
            }
    }

    /// Sends operations that fit into one packet ([`fits_request`](Self::fits_request)); `marks` and `tag`
    /// are those of all of them.
    pub(super) fn send_together(
        &mut self,
        window: u32,
        target: Rank,
        ops: Vec<Op>,
        marks: PacketFlags,
        tag: u32,
    ) -> Result<(), Error> {
        if ops.len() == 1 {
            return self.send_all(window, target, ops, marks, tag);
        }
        let mut batch = MessageBatch::default();
        for op in ops {
            self.add(window, target, &op, PacketFlags(0), 0, &mut batch);
        }
        let header = Header { flags: marks, tag, ..Header::new(PacketKind::Batch, window) };
        self.send(target, &header, &batch.bytes)
    }

    /// Builds the header of an operation, and registers the answer that the operation asks for.
    fn header(&mut self, window: u32, target: Rank, op: &Op, marks: PacketFlags, tag: u32) -> Header {
        let mut header = Header {
            flags: marks,
            element: op.element,
            operation: op.operation,
            tag,
            offset: op.offset,
            layout: op.layout.id().unwrap_or(0),
            count: if op.layout.is_contiguous() { op.total } else { op.count },
            ..Header::new(op.verb.into(), window)
        };
        if let Some(back) = &op.back {
            let port = self.port(window);
            header.tag = port.tag();
            let answer = AwaitedAnswer { target, back: Some(back.clone()), remaining: op.total };
            port.answers.insert(header.tag, answer);
            port.peers[target.index()].outstanding += 1;
        }
        header
    }

    fn add(
        &mut self,
        window: u32,
        target: Rank,
        op: &Op,
        marks: PacketFlags,
        tag: u32,
        batch: &mut MessageBatch,
    ) {
        let header = self.header(window, target, op, marks, tag);
        let length = payload_bytes(op);
        batch.bytes.extend_from_slice(&header.encode(length));
        let start = batch.bytes.len();
        batch.bytes.resize(start + length, 0);
        let payload = &mut batch.bytes[start..];
        if op.verb == Verb::Get {
            payload.copy_from_slice(&op.total.to_le_bytes());
        } else {
            op.data.copy(0, payload);
        }
        batch.bytes.resize((start + length).next_multiple_of(8), 0);
        batch.members += 1;
        self.port(window).peers[target.index()].refusable += 1;
    }

    fn send_batch(&mut self, window: u32, target: Rank, batch: &mut MessageBatch) -> Result<(), Error> {
        match batch.members {
            0 => return Ok(()),
            1 => {
                // A single operation travels without the batch's padding.
                let (header, rest) = batch.bytes.split_at(HEADER);
                let header = header.first_chunk::<HEADER>().copied().unwrap_or([0; HEADER]);
                let length = u32::from_le_bytes([header[12], header[13], header[14], header[15]]) as usize;
                self.transport.send(target, &header, &[IoSlice::new(&rest[..length])])?;
            }
            _ => self.send(target, &Header::new(PacketKind::Batch, window), &batch.bytes)?,
        }
        batch.bytes.clear();
        batch.members = 0;
        Ok(())
    }

    fn send_pieces(
        &mut self,
        window: u32,
        target: Rank,
        op: &Op,
        marks: PacketFlags,
        tag: u32,
    ) -> Result<(), Error> {
        let header = self.header(window, target, op, marks, tag);
        // The pieces consist of whole elements, of any element type.
        let max_payload = (self.transport.max_payload() & !15) as u64;
        let mut copied = Vec::new();
        let mut skip = 0;
        while skip < op.total {
            let length = max_payload.min(op.total - skip);
            let flags = if skip + length == op.total { marks } else { PacketFlags(0) };
            let header = Header { flags, extra: skip, ..header };
            self.port(window).peers[target.index()].refusable += 1;
            if op.verb == Verb::Get {
                self.send(target, &header, &length.to_le_bytes())?;
            } else if let Some(slice) = op.data.slice(op.total) {
                let from = skip as usize;
                self.send(target, &header, &slice[from..from + length as usize])?;
            } else {
                copied.resize(length as usize, 0);
                op.data.copy(skip, &mut copied);
                self.send(target, &header, &copied)?;
            }
            skip += length;
        }
        Ok(())
    }

    /// Sends a layout that the target does not know.
    fn describe(&mut self, target: Rank, layout: &Layout) -> Result<(), Error> {
        let Some(id) = layout.id() else { return Ok(()) };
        let description = layout.encode();
        let total = description.len() as u64;
        let described = &mut self.described[target.index()];
        if !described.has_room(total) {
            for id in described.clear() {
                self.send(target, &Header { layout: id, ..Header::new(PacketKind::Forget, 0) }, &[])?;
            }
        }
        self.described[target.index()].add(id, total);
        let max_payload = self.transport.max_payload();
        for (number, piece) in description.chunks(max_payload).enumerate() {
            let extra = (number * max_payload) as u64;
            let header = Header { layout: id, count: total, extra, ..Header::new(PacketKind::Layout, 0) };
            self.send(target, &header, piece)?;
        }
        Ok(())
    }
}
