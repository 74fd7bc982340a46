//! The effect of a packet at its receiver. Every number in the packet is checked before it is used. An
//! invalid packet is refused with a reason, and its sender is cut off.

use super::passive::{MAX_UNASKED_BYTES, MAX_UNASKED_REQUESTS};
use super::port::{LockRequest, LockRequester, WindowPort};
use super::{EngineState, Memory};
use crate::memory::combine::{combine, compare_and_swap};
use crate::memory::cursor::{gather, walk};
use crate::memory::op::Op;
use crate::model::{Error, Layout, Lock, Operation, Rank, Verb};
use crate::wire::packet::{Header, PacketFlags, PacketKind, WirePacket};
use std::collections::hash_map::Entry;

type ServedResult = Result<(), String>;

/// The code of a refusal because the target has no such memory.
pub(crate) const NO_MEMORY: u64 = 1;

/// An operation at its target, with a checked range.
struct CheckedAccess {
    address: *mut u8,
    layout: Layout,
    count: u64,
    skip: u64,
}

impl EngineState {
    pub(super) fn serve(&mut self, from: Rank, packet: WirePacket<'_>) -> ServedResult {
        let WirePacket { header, payload } = packet;
        match header.kind {
            PacketKind::Batch if header.flags.lock().is_none() => {
                for member in packet.members() {
                    self.serve(from, member.map_err(|bad| bad.to_string())?)?;
                }
            }
            PacketKind::Layout => self.layouts[from.index()].take(&header, payload)?,
            PacketKind::Forget => self.layouts[from.index()].forget(header.layout),
            PacketKind::Goodbye => self.departed[from.index()] = true,
            PacketKind::Collect => self.take_contribution(from, &header, payload)?,
            _ => return self.serve_window(from, header, payload),
        }
        Ok(())
    }

    fn serve_window(&mut self, from: Rank, header: Header, payload: &[u8]) -> ServedResult {
        let port = self.ports.get_mut(&header.window).ok_or("no such window")?;
        match header.kind {
            PacketKind::FenceCount => port.take_count(from, &header, payload, self.size)?,
            PacketKind::Post => {
                let posts = &mut port.peers[from.index()].posts;
                *posts = posts.checked_add(1).ok_or("more posts than anybody makes")?;
            }
            PacketKind::Done => self.finished(from, &header)?,
            PacketKind::LockRequest => {
                let lock = match header.extra {
                    1 => Lock::Shared,
                    2 => Lock::Exclusive,
                    _ => return Err("no such lock".to_owned()),
                };
                self.check_lock_request(header.window, from)?;
                self.handle_lock_request(&header, LockRequest::alone(from, lock))?;
            }
            PacketKind::LockGranted => {
                let peer = &mut port.peers[from.index()];
                if peer.grant != super::port::Grant::Requested {
                    return Err("a lock nobody asked for".to_owned());
                }
                let send = std::mem::take(&mut peer.send_on_grant);
                port.set_grant(from, super::port::Grant::Granted);
                port.held += 1;
                if header.flags.has(PacketFlags::ACKNOWLEDGE) {
                    self.acknowledged(from, &header);
                }
                if send && !self.awaits_unlock(Some(from)) {
                    let sent = self.send_queue(header.window, from, PacketFlags(0), 0);
                    sent.map_err(|error| error.to_string())?;
                }
            }
            PacketKind::Unlock => self.unlocked(from, &header)?,
            PacketKind::Flush => match port.last_waiting(from) {
                Some(request) => request.acknowledge = Some(header.tag),
                None => self.acknowledge(from, &Header { flags: PacketFlags::ACKNOWLEDGE, ..header })?,
            },
            PacketKind::Complete => self.acknowledged(from, &header),
            PacketKind::Data => answered(port, from, &header, payload)?,
            PacketKind::Refused => refused(port, from, &header)?,
            _ => return self.serve_operation(from, header, payload),
        }
        Ok(())
    }

    /// Serves an operation. It, or a batch of operations, may carry its own lock request.
    fn serve_operation(&mut self, from: Rank, header: Header, payload: &[u8]) -> ServedResult {
        let Some(lock) = header.flags.lock() else {
            self.perform(from, &header, payload)?;
            return self.finished(from, &header);
        };
        if payload.len() > self.max_carried() {
            return Err("a lock request with more data than it may carry".to_owned());
        }
        let acknowledge = header.flags.has(PacketFlags::ACKNOWLEDGE).then_some(header.tag);
        self.check_lock_request(header.window, from)?;
        let port = self.port(header.window);
        if port.lock_queue.is_empty() && port.try_lock(from, lock) {
            // the payload need not be kept
            return self.perform_granted(from, &header, payload, acknowledge);
        }
        let operations = Some((header, payload.to_vec()));
        self.handle_lock_request(&header, LockRequest { rank: from, lock, operations, acknowledge })
    }

    /// Fails for a request of a rank that has the lock, and for one that is more than an origin may have
    /// waiting.
    fn check_lock_request(&mut self, window: u32, rank: Rank) -> ServedResult {
        let port = self.port(window);
        // An origin that waits for no acknowledgement may end several epochs before the first gets its lock.
        let waiting = || port.lock_queue.iter().filter(|other| other.rank == rank);
        let is_second = port.holders.contains(&rank) || !waiting().all(LockRequest::releases);
        let bytes: usize = waiting().map(LockRequest::payload_bytes).sum();
        if is_second || waiting().count() > MAX_UNASKED_REQUESTS || bytes > MAX_UNASKED_BYTES {
            return Err("a second lock".to_owned());
        }
        Ok(())
    }

    fn handle_lock_request(&mut self, header: &Header, request: LockRequest) -> ServedResult {
        let urgency =
            if header.flags.has(PacketFlags::HOLDER) { LockRequester::Holder } else { LockRequester::Fresh };
        self.port(header.window).enqueue(request, urgency);
        self.grant_locks(header.window)
    }

    /// Grants the locks that can be granted now, in the order of requests.
    pub(super) fn grant_locks(&mut self, window: u32) -> ServedResult {
        while let Some(next) = self.port(window).next_granted() {
            let to = next.rank;
            if let Some((header, payload)) = next.operations {
                self.perform_granted(to, &header, &payload, next.acknowledge)?;
            } else if to == self.rank {
                let port = self.port(window);
                port.set_grant(to, super::port::Grant::Granted);
                port.held += 1;
            } else {
                self.tell_granted(to, window, None)?;
            }
        }
        Ok(())
    }

    /// Does the operations that travelled with a lock request and have got the lock, and answers.
    fn perform_granted(
        &mut self,
        to: Rank,
        header: &Header,
        payload: &[u8],
        acknowledge: Option<u32>,
    ) -> ServedResult {
        let releases = header.flags.has(PacketFlags::UNLOCK);
        let performed = self.perform_carried(to, header, payload);
        if releases || performed.is_err() {
            self.port(header.window).release(to);
        }
        match (performed, acknowledge) {
            // The fault is that rank's, not that of the peer whose packet is being served.
            (Err(why), _) => self.refuse(to, &why),
            (Ok(()), Some(tag)) if releases => {
                self.acknowledge(to, &Header { flags: PacketFlags::ACKNOWLEDGE, tag, ..*header })?;
            }
            (Ok(()), _) if releases => {}
            (Ok(()), tag) => self.tell_granted(to, header.window, tag)?,
        }
        Ok(())
    }

    /// Tells a rank that it has the lock, with the acknowledgement of the operations that travelled with the
    /// request, or with one that is owed.
    fn tell_granted(&mut self, to: Rank, window: u32, acknowledge: Option<u32>) -> ServedResult {
        if acknowledge.is_some() {
            // An acknowledgement covers all earlier operations, so this one replaces one that is owed.
            self.port(window).peers[to.index()].owed = acknowledge;
        }
        let granted = self.with_owed(to, Header::new(PacketKind::LockGranted, window));
        self.reply(to, &granted, &[])
    }

    /// Does the operations that travelled with a lock request: one, or a batch.
    fn perform_carried(&mut self, from: Rank, header: &Header, payload: &[u8]) -> ServedResult {
        if header.kind != PacketKind::Batch {
            return self.perform(from, header, payload);
        }
        for member in (WirePacket { header: *header, payload }).members() {
            let WirePacket { header: own, payload } = member.map_err(|bad| bad.to_string())?;
            if own.window != header.window || own.flags != PacketFlags(0) {
                return Err("an operation with marks of its own in a batch with a lock request".to_owned());
            }
            self.perform(from, &own, payload)?;
        }
        Ok(())
    }

    pub(super) fn release_lock(&mut self, from: Rank, window: u32) -> ServedResult {
        if !self.port(window).release(from) {
            return Err("it released a lock that it does not hold".to_owned());
        }
        self.grant_locks(window)
    }

    /// Carries out the requests in an operation's flags, after the operation itself is done.
    fn finished(&mut self, from: Rank, header: &Header) -> ServedResult {
        if header.flags.has(PacketFlags::LAST) {
            let port = self.port(header.window);
            if header.flags.has(PacketFlags::FENCE) {
                port.fence_done += 1;
            } else if !header.flags.has(PacketFlags::UNLOCK) {
                port.exposed_done += 1;
            }
        }
        if header.flags.has(PacketFlags::UNLOCK) {
            self.unlocked(from, header)
        } else {
            self.acknowledge(from, header)
        }
    }

    /// Releases the lock. After an exclusive lock the origin does not wait for the acknowledgement yet, so it
    /// is sent later.
    fn unlocked(&mut self, from: Rank, header: &Header) -> ServedResult {
        let exclusive = self.port(header.window).exclusive;
        self.release_lock(from, header.window)?;
        if exclusive && header.flags.has(PacketFlags::ACKNOWLEDGE) {
            self.owe(from, header);
            return Ok(());
        }
        self.acknowledge(from, header)
    }

    fn acknowledge(&mut self, from: Rank, header: &Header) -> ServedResult {
        if header.flags.has(PacketFlags::ACKNOWLEDGE) {
            // An acknowledgement covers all earlier operations, so this acknowledgement replaces an owed one.
            self.port(header.window).peers[from.index()].owed = None;
            let done = Header { tag: header.tag, ..Header::new(PacketKind::Complete, header.window) };
            self.reply(from, &done, &[])?;
        }
        Ok(())
    }

    fn reply(&mut self, to: Rank, header: &Header, payload: &[u8]) -> ServedResult {
        // An error here ends this member's own communication, and its next call reports it.
        self.send(to, header, payload).map_err(|error| error.to_string())
    }

    /// Finds and checks the memory that an operation names.
    fn access(&self, from: Rank, header: &Header) -> Result<Option<CheckedAccess>, String> {
        let layout = match header.layout {
            0 => Layout::contiguous(1, header.element),
            id => self.layouts[from.index()].find(id).cloned().ok_or("an unknown layout")?,
        };
        let Some(port) = self.ports.get(&header.window) else { return Err("no such window".to_owned()) };
        let count = header.count;
        layout.total(count).map_err(|bad| bad.to_string())?;
        match port.memory.address(header.offset, &layout, count) {
            Some(address) => Ok(Some(CheckedAccess { address, layout, count, skip: header.extra })),
            None if matches!(port.memory, Memory::Attached(_)) => Ok(None),
            None => Err("a offset outside the window".to_owned()),
        }
    }

    fn perform(&mut self, from: Rank, header: &Header, payload: &[u8]) -> ServedResult {
        let Some(access) = self.access(from, header)? else {
            let refusal = Header {
                tag: header.tag,
                offset: header.offset,
                count: header.count,
                extra: NO_MEMORY,
                ..Header::new(PacketKind::Refused, header.window)
            };
            return self.reply(from, &refusal, &[]);
        };
        let brings = if header.kind == PacketKind::Get { 0 } else { payload.len() as u64 };
        let wanted = match header.kind {
            PacketKind::Get => payload
                .try_into()
                .map(u64::from_le_bytes)
                .map_err(|_| "a get without the number of bytes wanted".to_owned())?,
            PacketKind::GetAccumulate => brings,
            _ => 0,
        };
        let total = access.layout.total(access.count).map_err(|bad| bad.to_string())?;
        let reaches = access.skip.checked_add(brings.max(wanted));
        if reaches.is_none_or(|end| end > total) && header.kind != PacketKind::CompareAndSwap {
            return Err("more data than its layout has".to_owned());
        }
        if wanted as usize > self.transport.max_payload() {
            return Err("more data than one packet carries".to_owned());
        }
        let mut before = vec![0; wanted as usize];
        if wanted > 0 {
            // SAFETY: the range lies inside the part, which the program promised to keep valid.
            unsafe { gather(&access.layout, access.count, access.address, access.skip, &mut before) };
        }
        match header.kind {
            PacketKind::Put => access.write(payload, None)?,
            PacketKind::Get => {}
            PacketKind::Accumulate | PacketKind::GetAccumulate => {
                let element = header.element.ok_or("an accumulate of no type")?;
                let operation = header.operation.ok_or("an accumulate of no operation")?;
                operation.check(element).map_err(|bad| bad.to_string())?;
                if !access.skip.is_multiple_of(element.size() as u64) {
                    return Err("a piece that splits an element".to_owned());
                }
                access.write(payload, Some((element, operation)))?;
            }
            PacketKind::CompareAndSwap => {
                let element = header.element.ok_or("a swap of no type")?;
                let size = element.size();
                if payload.len() != 2 * size || total != size as u64 {
                    return Err("a swap of no single element".to_owned());
                }
                before.resize(size, 0);
                let (compare, new) = payload.split_at(size);
                // SAFETY: one element inside the part, which the program promised to keep valid.
                unsafe { compare_and_swap(access.address, compare, new, &mut before) };
            }
            _ => return Err("an answer that nobody asked for".to_owned()),
        }
        if matches!(header.kind, PacketKind::Get | PacketKind::GetAccumulate | PacketKind::CompareAndSwap) {
            let skip = if header.kind == PacketKind::CompareAndSwap { 0 } else { access.skip };
            let data =
                Header { tag: header.tag, extra: skip, ..Header::new(PacketKind::Data, header.window) };
            self.reply(from, &data, &before)?;
        }
        Ok(())
    }

    /// Does an operation on this member's own part, at once.
    pub(crate) fn perform_here(&mut self, window: u32, op: &Op) -> Result<(), Error> {
        let total = op.total as usize;
        let target = self.rank;
        let refused = || Error::Unattached { target, address: op.offset as usize };
        let port = self.port(window);
        let address = port.memory.address(op.offset, &op.layout, op.count).ok_or_else(refused)?;
        let access = CheckedAccess { address, layout: op.layout.clone(), count: op.count, skip: 0 };
        let copied;
        let brought = match op.data.slice(op.total) {
            Some(slice) => slice,
            None => {
                let mut bytes = vec![0; total];
                op.data.copy(0, &mut bytes);
                copied = bytes;
                &copied
            }
        };
        let mut before = Vec::new();
        if op.is_answered() {
            before.resize(total, 0);
            // SAFETY: the range lies inside the part, which the program promised to keep valid.
            unsafe { gather(&access.layout, access.count, address, 0, &mut before) };
        }
        let done = match (op.verb, op.element, op.operation) {
            (Verb::CompareAndSwap, ..) => {
                let (compare, new) = brought.split_at(total);
                // SAFETY: one element inside the part, which the program promised to keep valid.
                unsafe { compare_and_swap(address, compare, new, &mut before) };
                Ok(())
            }
            (Verb::Get, ..) => Ok(()),
            (Verb::Put, ..) => access.write(brought, None),
            (_, Some(element), Some(operation)) => access.write(brought, Some((element, operation))),
            _ => Ok(()),
        };
        done.map_err(Error::Type)?;
        if let Some(back) = &op.back {
            back.write(0, &before);
        }
        Ok(())
    }
}

impl CheckedAccess {
    /// Writes or combines `bytes`; blocks that end inside an element are refused.
    fn write(&self, bytes: &[u8], how: Option<(crate::model::Element, Operation)>) -> ServedResult {
        let mut split = false;
        walk(
            &self.layout,
            self.count,
            self.address,
            self.skip,
            bytes.len() as u64,
            |address, from, to| {
                let piece = &bytes[from..to];
                match how {
                    None => {
                        // SAFETY: the block lies in the checked range; a caller may put a window onto itself,
                        // so source and target may overlap.
                        unsafe { std::ptr::copy(piece.as_ptr(), address, piece.len()) };
                    }
                    Some((element, _)) if !piece.len().is_multiple_of(element.size()) => split = true,
                    Some((element, operation)) => {
                        // SAFETY: the block lies in the checked range and holds whole elements; the operation
                        // was checked to be defined for them.
                        unsafe { combine(element, operation, address, piece.as_ptr(), piece.len()) };
                    }
                }
            },
        );
        if split { Err("a block that splits an element".to_owned()) } else { Ok(()) }
    }
}

/// Records a target's refusal of an operation. A peer may refuse only operations that it was sent, and only
/// for memory that is not attached.
fn refused(port: &mut WindowPort, from: Rank, header: &Header) -> ServedResult {
    let peer = &mut port.peers[from.index()];
    if header.extra != NO_MEMORY || !matches!(port.memory, Memory::Attached(_)) {
        return Err("a refusal without a reason".to_owned());
    }
    peer.refusable = peer.refusable.checked_sub(1).ok_or("a refusal of what nobody asked for")?;
    if let Entry::Occupied(answer) = port.answers.entry(header.tag) {
        if answer.get().target != from {
            return Err("a refusal of what another rank was asked for".to_owned());
        }
        answer.remove();
        peer.outstanding -= 1;
    }
    port.refused = Some(Error::Unattached { target: from, address: header.offset as usize });
    Ok(())
}

fn answered(port: &mut WindowPort, from: Rank, header: &Header, bytes: &[u8]) -> ServedResult {
    let answer = port.answers.get_mut(&header.tag).filter(|answer| answer.target == from);
    let answer = answer.ok_or("an answer that nobody asked for")?;
    let length = bytes.len() as u64;
    let written = || answer.back.as_ref().is_none_or(|back| back.write(header.extra, bytes));
    if length > answer.remaining || !written() {
        return Err("an answer longer than what was asked for".to_owned());
    }
    answer.remaining -= length;
    if answer.remaining == 0 {
        port.answers.remove(&header.tag);
        port.peers[from.index()].outstanding -= 1;
    }
    Ok(())
}
