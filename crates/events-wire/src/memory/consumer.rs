//! A consumer's end of one supplier's ring.
//!
//! A consumer takes an event in one of two ways: held in its slot ([`receive`](MemoryConsumer::receive)),
//! which costs a fence but no copy, or copied ([`receive_copy`](MemoryConsumer::receive_copy)), which needs
//! no announcement of a hold but a check afterwards that the copy is consistent. Copying is better for events
//! below a few hundred bytes.
//!
//! The supplier's memory is not trusted: slot and length are checked after they are copied, and the bytes in
//! the slot are returned as atomics or as a copy.

use super::entry::{Announced, EntryState, RingEntry, low};
use super::geometry::{AHEAD, ENTRY, HOLDS, MemoryGeometry};
use super::page::ConsumerPage;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use unisono_linux::clock::Instant;
use unisono_linux::futex::Scope;
#[cfg(not(loom))]
use unisono_sync::CountedSleeper;
use unisono_sync::atomics::{AtomicU32, Ordering, fence};
use unisono_sync::{
    ForeignWords, Lines, SpinBudget, Wait, WaitHints, WaitPolicy, Waiter, Wakeups, Watch, WatchVerdict,
};

/// The reason why no event can be received from this supplier, now or ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveRefused {
    #[error("{HOLDS} events of this supplier are held; drop one of them before the next is received")]
    AllHeld,
    #[error("the supplier announces an event that lies outside its memory")]
    OutsideMemory,
    #[error("the event lies in memory that its supplier has not written; copy it")]
    NeverWritten,
}

/// The reason why a supplier's memory cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinRefused {
    #[error("the supplier's memory is not that of this version, or lies about its size")]
    BadHeader,
    #[error("the consumer's page is too short")]
    ShortPage,
}

/// The next event in a ring, or its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextEvent<E> {
    Event(E),
    /// This many events were overwritten before the consumer reached them.
    Lost(u64),
    Nothing,
    /// The supplier has left, and all its events were received.
    Closed,
}

/// An event that was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventMark {
    /// The supplier's count of its events.
    pub turn: u64,
    /// A number that the supplier attached, such as a topic's number.
    pub tag: u32,
}

/// The state shared by a consumer and its held events.
#[derive(Debug)]
struct JoinedRing {
    words: ForeignWords,
    geometry: MemoryGeometry,
    page: ConsumerPage,
    /// The holds in use. The page lists them, too, but the supplier can write to the page.
    in_use: [AtomicBool; HOLDS],
    /// The process that joined. In a forked child, the copies of held events hold no slots.
    process: u32,
}

/// The file that backs a ring's memory. Pages that the supplier has written stay written.
pub(super) trait RingBacking: Send {
    /// Returns whether all bytes of the range were written.
    fn is_written(&self, range: &Range<usize>) -> bool;

    /// Appends a copy of the bytes, with zeros for unwritten ones. This allocates no memory for the holes in
    /// the file.
    fn append(&self, range: &Range<usize>, into: &mut Vec<u8>);
}

/// One supplier's ring, for reading.
pub struct MemoryConsumer {
    ring: Arc<JoinedRing>,
    turn: u64,
    /// The turn that was last reported to the supplier, in the page.
    published_turn: u64,
    lost: u64,
    way: Wait,
    waiter: Waiter,
    /// Makes the supplier's descriptor readable.
    ring_supplier: Option<Box<dyn FnMut() + Send>>,
    /// The file behind the memory. `None`: unwritten bytes are read like others.
    backing: Option<Box<dyn RingBacking>>,
}

impl fmt::Debug for MemoryConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryConsumer").field("turn", &self.turn).field("lost", &self.lost).finish()
    }
}

impl MemoryConsumer {
    /// Makes a consumer that reads from `turn` on, the turn that the supplier returned when it attached the
    /// page. The consumer calls `ring_supplier` when there is room and the supplier waits for it at its
    /// descriptor.
    ///
    /// # Errors
    /// The memory has no supplier's header, or the page is too short.
    pub fn join(
        words: ForeignWords,
        page: Lines,
        turn: u64,
        (wait, budget): (Wait, SpinBudget),
        ring_supplier: Option<Box<dyn FnMut() + Send>>,
    ) -> Result<Self, JoinRefused> {
        let geometry = MemoryGeometry::read(&words).ok_or(JoinRefused::BadHeader)?;
        let page = ConsumerPage::new(page).ok_or(JoinRefused::ShortPage)?;
        page.regime().announce_processors();
        let in_use = std::array::from_fn(|_| AtomicBool::new(false));
        let process = std::process::id();
        let ring = Arc::new(JoinedRing { words, geometry, page, in_use, process });
        let waiter = Waiter::new(wait, budget, Wakeups::Symmetric(Scope::Shared));
        let backing = None;
        Ok(Self { ring, turn, published_turn: turn, lost: 0, way: wait, waiter, ring_supplier, backing })
    }

    /// Checks `backing` from now on, and reads no unwritten memory: the read would allocate pages, and charge
    /// them to this process.
    pub(super) fn read_through(&mut self, backing: Box<dyn RingBacking>) {
        self.backing = Some(backing);
    }

    /// Sets the way of waiting. If it is the current one, its learned state is kept.
    pub fn wait_by(&mut self, (wait, budget): (Wait, SpinBudget)) {
        if wait != self.way {
            self.way = wait;
            self.waiter = Waiter::new(wait, budget, Wakeups::Symmetric(Scope::Shared));
        }
    }

    /// Returns the maximum number of bytes of an event.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.ring.geometry.largest() as usize
    }

    /// Returns the number of events that this consumer has lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the turn of the next event.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Returns the next event, which stays in its slot until it is dropped.
    ///
    /// # Errors
    /// All holds are in use, or the supplier breaks the protocol.
    #[inline]
    pub fn receive(&mut self) -> Result<NextEvent<HeldEvent>, ReceiveRefused> {
        let ring = &self.ring;
        // SYNC(hold-free) acquire: the page's word was cleared before
        let Some(free) = ring.in_use.iter().position(|used| !used.load(Ordering::Acquire)) else {
            return Err(ReceiveRefused::AllHeld);
        };
        let turn = self.turn;
        let entry = ring.entry(turn);
        match entry.check_turn(turn, ring.geometry.depth()) {
            EntryState::Ready => {}
            otherwise => return Ok(self.without_event(otherwise)),
        }
        let announced = entry.read();
        let hold = ring.page.hold(free);
        hold.store(announced.slot.wrapping_add(1), Ordering::Relaxed);
        // SYNC(hold) fence: the hold is visible before the announcement is read again; the other side is in
        // `MemorySupplier::reclaim`
        fence(Ordering::SeqCst);
        if !entry.still(turn) {
            hold.store(0, Ordering::Relaxed);
            return Ok(self.without_event(EntryState::BeingRewritten));
        }
        let Some(range) = ring.range(announced) else {
            hold.store(0, Ordering::Relaxed);
            return Err(ReceiveRefused::OutsideMemory);
        };
        if self.backing.as_ref().is_some_and(|backing| !backing.is_written(&range)) {
            hold.store(0, Ordering::Relaxed);
            return Err(ReceiveRefused::NeverWritten);
        }
        ring.in_use[free].store(true, Ordering::Relaxed);
        let ring = Arc::clone(ring);
        self.advance(turn.wrapping_add(1));
        let mark = EventMark { turn, tag: announced.tag };
        Ok(NextEvent::Event(HeldEvent { ring, hold: free, mark, range }))
    }

    /// Appends a copy of the next event to `into`.
    ///
    /// # Errors
    /// The supplier breaks the protocol.
    #[inline]
    pub fn receive_copy(&mut self, into: &mut Vec<u8>) -> Result<NextEvent<EventMark>, ReceiveRefused> {
        let (ring, turn) = (&self.ring, self.turn);
        let entry = ring.entry(turn);
        match entry.check_turn(turn, ring.geometry.depth()) {
            EntryState::Ready => {}
            otherwise => return Ok(self.without_event(otherwise)),
        }
        let (announced, before) = (entry.read(), into.len());
        let range = ring.range(announced);
        match (&self.backing, &range) {
            (_, None) => {}
            (Some(backing), Some(range)) if !backing.is_written(range) => backing.append(range, into),
            (_, Some(range)) => {
                ring.prefetch(turn.wrapping_add(1));
                ring.words.append_to(range.clone(), into);
            }
        }
        // SYNC(entry-rewrite) acquire: a consumer that copied newer bytes sees below that the turn is over
        fence(Ordering::Acquire);
        if !entry.still(turn) {
            into.truncate(before);
            return Ok(self.without_event(EntryState::BeingRewritten));
        }
        if range.is_none() {
            return Err(ReceiveRefused::OutsideMemory);
        }
        self.advance(turn.wrapping_add(1));
        Ok(NextEvent::Event(EventMark { turn, tag: announced.tag }))
    }

    /// Returns the length of the next event, if there is one. The event may be lost before it is received.
    #[must_use]
    #[inline]
    pub fn next_length(&self) -> Option<usize> {
        let entry = self.ring.entry(self.turn);
        let ready = entry.check_turn(self.turn, self.ring.geometry.depth()) == EntryState::Ready;
        ready.then(|| entry.read().length as usize)
    }

    #[cold]
    #[inline]
    fn without_event<E>(&mut self, state: EntryState) -> NextEvent<E> {
        let (turn, depth) = (self.turn, u64::from(self.ring.geometry.depth()));
        let next = match state {
            EntryState::Ready | EntryState::NotYet => return self.nothing(),
            // Later entries may still be whole.
            EntryState::BeingRewritten => turn.wrapping_add(1),
            // Continues at the oldest entry in the ring plus a quarter of the ring, to stay ahead of the
            // supplier.
            EntryState::Overwritten(by) => {
                by.wrapping_add(1).saturating_sub(depth - depth / 4).max(turn.wrapping_add(1))
            }
        };
        let lost = next.wrapping_sub(turn);
        self.lost = self.lost.saturating_add(lost);
        self.advance(next);
        NextEvent::Lost(lost)
    }

    #[inline]
    fn nothing<E>(&mut self) -> NextEvent<E> {
        if self.published_turn != self.turn {
            // Lets the supplier reuse the slots. No wake-up is needed: if the supplier had gone to sleep
            // because there was no room, the consumer would have read a quarter of the ring since, and would
            // have woken it.
            self.published_turn = self.turn;
            self.ring.page.position().signal(low(self.turn), Wakeups::Never);
        }
        if self.ring.is_closed() && !self.ring.announces(self.turn) {
            NextEvent::Closed
        } else {
            NextEvent::Nothing
        }
    }

    /// Sets the next turn, and reports it to the supplier after each further quarter of the ring. The
    /// consumer reports it earlier only if the ring is empty ([`nothing`](Self::nothing)), because each
    /// report takes the page's cache line from the supplier.
    #[inline]
    fn advance(&mut self, turn: u64) {
        let quarter = u64::from(self.ring.geometry.depth() / 4).max(1);
        let published_turn = std::mem::replace(&mut self.turn, turn) / quarter;
        if turn / quarter != published_turn {
            self.publish_position();
        }
    }

    #[inline]
    fn publish_position(&mut self) {
        self.published_turn = self.turn;
        let page = &self.ring.page;
        // SYNC(room-polled) fence: in `signal`, the position is stored before `room_polled` is read; the
        // other side is in `MemorySupplier::polls_for_room`
        page.position().signal(low(self.turn), Wakeups::Symmetric(Scope::Shared));
        if let Some(ring_supplier) = &mut self.ring_supplier
            && page.room_polled().load(Ordering::Relaxed) != 0
            && page.room_polled().swap(0, Ordering::Relaxed) != 0
        {
            ring_supplier();
        }
    }

    /// Returns whether [`receive`](Self::receive) would return an event, a loss or the end.
    #[must_use]
    #[inline]
    pub fn has_something(&self) -> bool {
        self.ring.announces(self.turn) || self.ring.is_closed()
    }

    /// Returns the number of orders that the supplier has given since the beginning, including orders whose
    /// frames had no room in the ring yet.
    #[must_use]
    #[inline]
    pub fn orders(&self) -> u32 {
        let header = self.ring.words.words(MemoryGeometry::header());
        // SYNC(orders) acquire: a consumer that learned of a later act of the supplier sees the order, too
        MemoryGeometry::orders(header).load(Ordering::Acquire)
    }

    /// Returns whether any event from the next one on may be due before an earlier event.
    #[must_use]
    #[inline]
    pub fn has_early(&self) -> bool {
        let header = self.ring.words.words(MemoryGeometry::header());
        // SYNC(early) acquire: an announced event that is early is known to be early
        let early = MemoryGeometry::early(header).load(Ordering::Acquire);
        early.wrapping_sub(low(self.turn)).cast_signed() > 0
    }

    /// Waits by this consumer's method of waiting until an event or the end comes, or until `watch` stops the
    /// wait. A supplier that dies sends no signal: `watch` must check whether it lives.
    pub fn wait<W: Watch>(&mut self, watch: &mut W) -> WatchVerdict {
        let (ring, turn) = (&*self.ring, self.turn);
        let regime = ring.page.regime();
        let hints = || WaitHints { regime, crowded: regime.is_crowded(2), last_cpus: None };
        let flag = ring.page.sleepers().over(ring.entry(turn).low());
        let mut look = Asleep { ring, turn, watch };
        let verdict = self.waiter.policy(hints).wait(flag, low(turn), &mut look);
        self.waiter.learn(regime);
        if self.has_something() { WatchVerdict::Continue } else { verdict }
    }

    /// Counts this consumer as asleep, before a sleep at several rings
    /// ([`sleep_at_any`](unisono_sync::sleep_at_any)). Returns `None` if there is an event or the end. A
    /// supplier that dies sends no signal, so the sleep must not last longer than
    /// [`MAX_SLEEP`](unisono_sync::MAX_SLEEP).
    #[cfg(not(loom))]
    #[must_use]
    pub fn doze(&self) -> Option<CountedSleeper<'_>> {
        let counted = self.ring.page.sleepers().count_sleeper();
        self.ring.may_sleep(self.turn, self.ring.page.asleep()).then_some(counted)
    }

    /// Announces that this consumer polls its descriptor. Returns whether the ring is empty now; if it is,
    /// the descriptor becomes readable once an event or the end comes.
    #[must_use]
    pub fn arm(&self) -> bool {
        let polled = self.ring.page.polled();
        // The word was set before, and the descriptor was not rung since: either the fence of that call came
        // before the supplier's next announcement, so that the supplier will ring, or the announcement is
        // visible here.
        if polled.load(Ordering::Relaxed) != 0 {
            return !self.has_something();
        }
        self.ring.may_sleep(self.turn, polled)
    }
}

impl JoinedRing {
    #[inline]
    fn entry(&self, turn: u64) -> RingEntry<'_> {
        let first = MemoryGeometry::entry(self.geometry.index(turn));
        RingEntry::new(self.words.words(first..first + ENTRY))
    }

    /// Returns the byte range of an event, or `None` if it is outside the memory.
    #[inline]
    fn range(&self, announced: Announced) -> Option<Range<usize>> {
        let Announced { slot, length, .. } = announced;
        let fits = slot < self.geometry.slots() && length <= self.geometry.largest();
        fits.then(|| {
            let start = self.geometry.slot(slot);
            start..start + length as usize
        })
    }

    /// Prefetches the event of this turn, if it has been announced.
    #[inline]
    fn prefetch(&self, turn: u64) {
        let entry = self.entry(turn);
        // a model has no caches
        if !cfg!(loom)
            && entry.still(turn)
            && let Some(range) = self.range(entry.read())
        {
            let end = range.end.min(range.start + AHEAD);
            self.words.prefetch(range.start..end);
        }
    }

    /// Returns whether this turn's event has been announced, even if it is lost already.
    #[inline]
    fn announces(&self, turn: u64) -> bool {
        self.entry(turn).check_turn(turn, self.geometry.depth()) != EntryState::NotYet
    }

    fn is_closed(&self) -> bool {
        let header = self.words.words(MemoryGeometry::header());
        // SYNC(closed) acquire: once the end is seen, all events before it are visible
        MemoryGeometry::closed(header).load(Ordering::Acquire) != 0
    }

    /// Announces in a word of the page that the consumer is about to sleep until `turn`. Returns whether it
    /// may sleep.
    fn may_sleep(&self, turn: u64, word: &AtomicU32) -> bool {
        // This is a swap, because a swap has a place before or after the supplier's swap, whatever value the
        // word had.
        // SYNC(asleep-announced) release: the count of sleepers is visible before the announced sleep
        word.swap(1, Ordering::Release);
        // SYNC(asleep) fence: the sleep is announced before the entry is read again; the other side is in
        // `MemorySupplier::wake_consumers`
        fence(Ordering::SeqCst);
        !self.announces(turn) && !self.is_closed()
    }
}

/// Checks the ring once more before a sleep.
struct Asleep<'a, W> {
    ring: &'a JoinedRing,
    turn: u64,
    watch: &'a mut W,
}

impl<W: Watch> Watch for Asleep<'_, W> {
    fn check(&mut self) -> WatchVerdict {
        let may_sleep = self.ring.may_sleep(self.turn, self.ring.page.asleep());
        if may_sleep { self.watch.check() } else { WatchVerdict::Stop }
    }

    fn sleep_until(&mut self) -> Option<Instant> {
        self.watch.sleep_until()
    }
}

/// An event in its slot. The supplier does not reuse the slot before this value is dropped.
#[derive(Debug)]
pub struct HeldEvent {
    ring: Arc<JoinedRing>,
    hold: usize,
    mark: EventMark,
    range: Range<usize>,
}

impl HeldEvent {
    #[must_use]
    #[inline]
    pub fn mark(&self) -> EventMark {
        self.mark
    }

    /// Returns the length of the event.
    #[must_use]
    #[inline]
    pub fn length(&self) -> usize {
        self.range.len()
    }

    /// Returns the event's bytes. A supplier that keeps to the protocol does not change them.
    #[cfg(not(loom))]
    #[must_use]
    pub fn bytes(&self) -> &[std::sync::atomic::AtomicU8] {
        self.ring.words.bytes(self.range.clone())
    }

    /// Copies the event's bytes from `offset` on. Panics if the range exceeds the event.
    #[cfg(not(loom))]
    pub fn copy(&self, offset: usize, into: &mut [u8]) {
        assert!(
            offset + into.len() <= self.range.len(),
            "{} bytes from {offset} of {}",
            into.len(),
            self.length()
        );
        self.ring.words.read(self.range.start + offset, into);
    }

    /// Appends a copy of the event.
    pub fn append_to(&self, into: &mut Vec<u8>) {
        self.ring.words.append_to(self.range.clone(), into);
    }
}

impl Drop for HeldEvent {
    fn drop(&mut self) {
        if std::process::id() != self.ring.process {
            return;
        }
        // SYNC(hold-end) release: all reads of the slot come before its reuse
        self.ring.page.hold(self.hold).store(0, Ordering::Release);
        // SYNC(hold-free) release: the page's word is cleared before the hold is reused
        self.ring.in_use[self.hold].store(false, Ordering::Release);
    }
}
