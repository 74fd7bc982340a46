//! A member's state for one window of the message path: as a target, and as an origin.

use crate::memory::op::{Back, Op};
use crate::model::{Error, Layout, Lock, Rank};
use crate::wire::packet::{Header, PacketFlags};
use std::collections::{HashMap, VecDeque};

/// Steps of the reduce-scatter with a code instead of a distance: a rank sends its vector to a partner
/// (fold), and receives the result from it.
pub(super) const FOLD: i64 = -1;
pub(super) const RESULT: i64 = -2;

/// This member's memory in the window.
#[derive(Debug)]
pub(crate) enum Memory {
    /// `bytes` bytes at `base`. `_owner` keeps memory that the engine allocated.
    Fixed { base: *mut u8, bytes: u64, _owner: Option<Vec<u128>> },
    /// Attached pieces, by address and length.
    Attached(Vec<(usize, usize)>),
}

impl Memory {
    /// Returns the address of byte `offset`, if an access to `count` elements there stays inside this memory.
    pub(crate) fn address(&self, offset: i64, layout: &Layout, count: u64) -> Option<*mut u8> {
        let (low, high) = layout.bounds(count);
        let (start, end) = (i128::from(offset) + low, i128::from(offset) + high);
        match self {
            Self::Fixed { base, bytes, .. } => (start >= 0 && end <= i128::from(*bytes) || low == high)
                .then(|| base.wrapping_offset(offset as isize)),
            Self::Attached(pieces) => covered(pieces, start, end).then_some(offset as usize as *mut u8),
        }
    }
}

/// Whether the pieces cover all addresses from `start` to `end`. An access may span adjacent pieces, because
/// a program may attach an array in parts.
fn covered(pieces: &[(usize, usize)], start: i128, end: i128) -> bool {
    let range = |(address, bytes): &(usize, usize)| (*address as i128, (*address + *bytes) as i128);
    if pieces.iter().map(range).any(|(from, to)| start >= from && end <= to) {
        return true;
    }
    let mut touched: Vec<_> =
        pieces.iter().map(range).filter(|(from, to)| *to > start && *from < end).collect();
    touched.sort_unstable();
    let reached =
        touched.iter().fold(start, |reached, (from, to)| if *from <= reached { *to } else { reached });
    start < end && reached >= end
}

/// A waiting lock request, perhaps together with the packet of its operations.
#[derive(Debug)]
pub(crate) struct LockRequest {
    pub(crate) rank: Rank,
    pub(crate) lock: Lock,
    pub(crate) operations: Option<(Header, Vec<u8>)>,
    /// The acknowledgement that the operations ask for.
    pub(crate) acknowledge: Option<u32>,
}

impl LockRequest {
    /// Creates a request without operations.
    pub(crate) const fn alone(rank: Rank, lock: Lock) -> Self {
        Self { rank, lock, operations: None, acknowledge: None }
    }

    /// Returns the length (bytes) of the operations' packet, without its header.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.operations.as_ref().map_or(0, |(_, payload)| payload.len())
    }

    /// Whether the target releases the lock after the operations.
    pub(crate) fn releases(&self) -> bool {
        self.operations.as_ref().is_some_and(|(header, _)| header.flags.has(PacketFlags::UNLOCK))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockRequester {
    /// A rank that holds no lock, so that no other rank waits for it.
    Fresh,
    /// A rank that holds another lock.
    Holder,
}

impl LockRequester {
    /// Returns the flag that a request for a shared lock carries.
    pub(crate) const fn mark(self) -> PacketFlags {
        match self {
            Self::Fresh => PacketFlags(0),
            Self::Holder => PacketFlags::HOLDER,
        }
    }
}

/// The state of an origin's lock at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// The origin has sent no request for the lock.
    Idle,
    Requested,
    Granted,
    /// Not needed: the caller promised that no other rank conflicts.
    Unchecked,
}

/// An origin's state for one target.
#[derive(Debug)]
pub(crate) struct TargetState {
    /// Operations that wait for the end of the epoch.
    pub(crate) queue: Vec<Op>,
    /// Whether the queue is sent when the lock is granted, because the program tested a request for it.
    pub(crate) send_on_grant: bool,
    /// The number of answers that have not arrived yet.
    pub(crate) outstanding: u64,
    /// The last acknowledgement requested, and the last that arrived.
    pub(crate) requested: u32,
    pub(crate) acknowledged: u32,
    pub(crate) grant: Grant,
    /// The number of posts that have arrived and were not used yet.
    pub(crate) posts: u32,
    /// The number of packets of operations sent to the target. The target may refuse no more packets than
    /// these.
    pub(crate) refusable: u64,
    /// Whether a packet was sent since the last acknowledgement was requested.
    pub(crate) unacknowledged: bool,
    /// The number of epochs, since the last flush, whose operations travelled with their lock request and
    /// asked for no acknowledgement. Long operations count more than once (`passive.rs`).
    pub(crate) unasked_requests: usize,
    /// Whether an unlock without operations was sent that asked for no acknowledgement. It has to arrive
    /// before the window is freed.
    pub(crate) unasked_unlock: bool,
    /// The acknowledgement that this member owes the peer. The peer does not wait for it yet.
    pub(crate) owed: Option<u32>,
}

impl TargetState {
    /// Whether all answers and acknowledgements that this member has requested have arrived.
    pub(crate) fn is_settled(&self) -> bool {
        self.outstanding == 0 && self.acknowledged == self.requested
    }
}

/// A window's state. The addresses in it are this process's own window memory.
#[derive(Debug)]
pub(crate) struct WindowPort {
    pub(crate) memory: Memory,
    // As a target.
    pub(crate) fence_done: i64,
    pub(crate) epoch: u32,
    pub(crate) counts: HashMap<(u32, i64, Rank), Vec<u8>>,
    pub(crate) exposed_done: i64,
    pub(crate) holders: Vec<Rank>,
    pub(crate) exclusive: bool,
    pub(crate) lock_queue: VecDeque<LockRequest>,
    /// The number of targets that this member has locked.
    pub(crate) held: usize,
    /// The number of targets whose lock this member has requested and does not know to have.
    pub(crate) requested_locks: usize,
    // As an origin.
    pub(crate) peers: Vec<TargetState>,
    pub(crate) answers: HashMap<u32, AwaitedAnswer>,
    pub(crate) next_tag: u32,
    pub(crate) refused: Option<Error>,
}

// SAFETY: any thread of the process may access window memory; the epochs order the accesses.
unsafe impl Send for WindowPort {}

#[derive(Debug)]
pub(crate) struct AwaitedAnswer {
    pub(crate) target: Rank,
    /// `None` once the window is dropped.
    pub(crate) back: Option<Back>,
    pub(crate) remaining: u64,
}

impl WindowPort {
    pub(crate) fn new(memory: Memory, size: usize) -> Self {
        let peer = || TargetState {
            queue: Vec::new(),
            send_on_grant: false,
            outstanding: 0,
            requested: 0,
            acknowledged: 0,
            grant: Grant::Idle,
            posts: 0,
            refusable: 0,
            unacknowledged: false,
            unasked_requests: 0,
            unasked_unlock: false,
            owed: None,
        };
        Self {
            memory,
            fence_done: 0,
            epoch: 0,
            counts: HashMap::new(),
            exposed_done: 0,
            holders: Vec::new(),
            exclusive: false,
            lock_queue: VecDeque::new(),
            held: 0,
            requested_locks: 0,
            peers: (0..size).map(|_| peer()).collect(),
            answers: HashMap::new(),
            next_tag: 1,
            refused: None,
        }
    }

    /// Keeps a count of a fence's reduce-scatter until this member reaches the count's step.
    ///
    /// No member is further ahead than the next fence: a member that leaves a fence knows that this member is
    /// in it. So a peer breaks the protocol if it names any other epoch, a step that does not exist, or more
    /// members than there are. This bounds the counts kept for each peer.
    pub(crate) fn take_count(
        &mut self,
        from: Rank,
        header: &Header,
        counts: &[u8],
        size: usize,
    ) -> Result<(), String> {
        let ahead = header.tag.wrapping_sub(self.epoch);
        let is_step = u32::try_from(header.offset)
            .is_ok_and(|distance| distance.is_power_of_two() && (distance as usize) < size)
            || matches!(header.offset, FOLD | RESULT);
        if ahead > 1 || !is_step || counts.len() > size * size_of::<u32>() {
            return Err("a fence count that no fence asks for".to_owned());
        }
        self.counts.insert((header.tag, header.offset, from), counts.to_vec());
        Ok(())
    }

    /// Sets the state of this member's lock at a target.
    pub(crate) fn set_grant(&mut self, target: Rank, grant: Grant) {
        let before = std::mem::replace(&mut self.peers[target.index()].grant, grant);
        self.requested_locks += usize::from(grant == Grant::Requested);
        self.requested_locks -= usize::from(before == Grant::Requested);
    }

    /// Takes the lock for `rank` if no holder conflicts.
    pub(crate) fn try_lock(&mut self, rank: Rank, lock: Lock) -> bool {
        let free = self.holders.is_empty() || (lock == Lock::Shared && !self.exclusive);
        if free {
            self.holders.push(rank);
            self.exclusive = lock == Lock::Exclusive;
        }
        free
    }

    /// Queues a request behind all others, so that none starves. A request for a shared lock from a rank that
    /// holds another lock goes before all others, because their ranks may wait for that other lock.
    pub(crate) fn enqueue(&mut self, request: LockRequest, urgency: LockRequester) {
        match (request.lock, urgency) {
            (Lock::Shared, LockRequester::Holder) => self.lock_queue.push_front(request),
            _ => self.lock_queue.push_back(request),
        }
    }

    /// Releases the lock; returns whether `rank` held it.
    pub(crate) fn release(&mut self, rank: Rank) -> bool {
        let Some(at) = self.holders.iter().position(|holder| *holder == rank) else { return false };
        self.holders.swap_remove(at);
        true
    }

    /// Returns the last request in the queue in which operations of `rank` wait for their lock.
    pub(crate) fn last_waiting(&mut self, rank: Rank) -> Option<&mut LockRequest> {
        let mut waiting = self.lock_queue.iter_mut().rev();
        waiting.find(|request| request.rank == rank && request.operations.is_some())
    }

    /// Takes the lock for the first request in the queue, if that is possible now.
    pub(crate) fn next_granted(&mut self) -> Option<LockRequest> {
        let (rank, lock) = self.lock_queue.front().map(|first| (first.rank, first.lock))?;
        if self.try_lock(rank, lock) { self.lock_queue.pop_front() } else { None }
    }

    /// Forgets the origin's buffers: no queued operation is sent from them, and answers are dropped.
    pub(crate) fn forget(&mut self) {
        self.peers.iter_mut().for_each(|peer| peer.queue.clear());
        self.answers.values_mut().for_each(|answer| answer.back = None);
    }

    pub(crate) fn tag(&mut self) -> u32 {
        self.next_tag = self.next_tag.wrapping_add(1);
        self.next_tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_touch_are_accessed_as_one_and_a_gap_is_not_crossed() {
        let pieces = [(300, 50), (100, 100), (200, 100), (360, 40)];
        for (start, end, whole) in [
            (100, 200, true),
            (150, 250, true),
            (100, 350, true),
            (199, 301, true),
            (99, 201, false),
            (340, 365, false),
            (100, 400, false),
            (350, 360, false),
        ] {
            assert_eq!(covered(&pieces, start, end), whole, "{start} to {end}");
        }
        assert!(!covered(&[], 0, 1));
    }
}
