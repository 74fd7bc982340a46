//! The supplier's end of the ring. It lends and publishes slots, and reuses them once no consumer can be
//! reading them.
//!
//! A slot is in one of these states, and only the supplier changes them:
//!
//! ```text
//!   free --loan--> lent --publish--> in the ring --overwritten, or read by all--> retired
//!    ^                                                                               |
//!    +------------------------------------ no holds left ----------------------------+
//! ```
//! No consumer takes a retired slot any more: its entry announces another event, or all consumers have passed
//! it. A consumer that took the slot before has marked it in its holds; a consumer whose mark the supplier
//! did not see reads the announcement again after it has marked the slot, and finds that it has changed
//! (`PROTOCOL.md`, "holds").
//!
//! The slot that became free last is lent first. While consumers keep up, a supplier reuses a few slots: they
//! stay in the caches, and the pages of the other slots are never touched.

use super::entry::{Announced, RingEntry, low};
use super::geometry::{AHEAD, ENTRY, HOLDS, MemoryGeometry};
use super::page::ConsumerPage;
use std::fmt;
use std::io;
use unisono_linux::futex::Scope;
#[cfg(not(loom))]
use unisono_sync::LentBytes;
use unisono_sync::atomics::{AtomicU32, Ordering, fence};
use unisono_sync::{
    Lines, PublishedWords, SpinBudget, Wait, WaitHints, WaitPolicy, Waiter, Wakeups, Watch, WatchVerdict,
};

/// The treatment of a consumer that has not read an event when the event's entry is needed for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBehind {
    /// It loses the oldest events, and learns how many it has lost.
    LosesOldest,
    /// The supplier waits for it.
    BlocksSupplier,
}

/// A consumer of a supplier's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConsumerNumber(pub u32);

impl fmt::Display for ConsumerNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "consumer {}", self.0)
    }
}

/// The reason why an event is not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishRefused {
    #[error("an event of {bytes} bytes; this supplier's memory takes {largest} at most")]
    TooLarge { bytes: usize, largest: u32 },
    #[error("{0} has not read the oldest event, and has asked the supplier to wait for it")]
    NoRoom(ConsumerNumber),
}

/// The reason why a consumer is not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachRefused {
    #[error("all {0} places for consumers are taken")]
    TooMany(u32),
    #[error("the consumer's page is too short")]
    ShortPage,
}

/// The number of events after which the word for early events is written anew. The word has the low half of a
/// turn, and readers compare it with a turn that must be less than 2^31 events away.
const MAX_EARLY_AGE: u64 = 1 << 30;

struct RingReader {
    number: ConsumerNumber,
    page: ConsumerPage,
    when_behind: WhenBehind,
    /// The next turn that the consumer wanted when its page was last read.
    position: u64,
    /// Makes the consumer's descriptor readable.
    ring_descriptor: Option<Box<dyn FnMut() + Send>>,
}

impl fmt::Debug for RingReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingReader")
            .field("number", &self.number)
            .field("when_behind", &self.when_behind)
            .finish()
    }
}

impl RingReader {
    /// Reads the consumer's position, limited to `turn`. A fence has to follow before the slots that the
    /// consumer has passed are written again.
    #[inline]
    fn update_position(&mut self, turn: u64) {
        let read = u64::from(self.page.position().value().wrapping_sub(low(self.position)));
        // A consumer whose page has a position beyond this ring counts as having read everything, so it can
        // no longer block the supplier.
        self.position = self.position.saturating_add(read).min(turn);
    }
}

/// One supplier's ring, for writing.
#[derive(Debug)]
pub struct MemorySupplier {
    words: PublishedWords,
    geometry: MemoryGeometry,
    /// The turn of the next event.
    turn: u64,
    /// The slot that each entry announces, or `None` if all consumers have read it and it is retired.
    in_ring: Box<[Option<u32>]>,
    /// The turn before which all consumers had read all events when their pages were last read.
    passed: u64,
    /// The turn at which retired slots were last examined.
    looked: u64,
    free: Vec<u32>,
    retired: Vec<u32>,
    /// The number of held slots among the retired ones at the last examination.
    held: usize,
    /// The slots that are lent to the program. Some may have been returned already.
    lent: Vec<u32>,
    /// Whether each slot is held, by slot number. This is scratch memory of [`reclaim`](Self::reclaim).
    is_held: Box<[bool]>,
    attached: Vec<RingReader>,
    most_attached: u32,
    last_number: u32,
    /// The turn in the word for early events.
    early: u64,
    /// Whether events were published since the sleeping consumers were last woken.
    unsignalled: bool,
    /// The process that made the ring.
    process: u32,
    waiter: Waiter,
}

impl MemorySupplier {
    /// Creates the ring in new memory.
    ///
    /// # Errors
    /// The kernel's error, such as a limit; `EINVAL` before Linux 5.1.
    pub fn create(geometry: MemoryGeometry, (wait, budget): (Wait, SpinBudget)) -> io::Result<Self> {
        let words = PublishedWords::create(geometry.words())?;
        geometry.write(&words);
        let slots = geometry.slots();
        let most_attached = (slots - geometry.depth() - 1 - geometry.spare() as u32) / HOLDS as u32;
        Ok(Self {
            words,
            geometry,
            // The first turn is `depth`, because zeroed entries announce turn 0.
            turn: u64::from(geometry.depth()),
            in_ring: vec![None; geometry.depth() as usize].into(),
            passed: u64::from(geometry.depth()),
            looked: u64::from(geometry.depth()),
            free: (0..slots).rev().collect(),
            retired: Vec::new(),
            held: 0,
            lent: Vec::new(),
            is_held: vec![false; slots as usize].into(),
            attached: Vec::new(),
            most_attached,
            last_number: 0,
            early: 0,
            unsignalled: false,
            process: std::process::id(),
            waiter: Waiter::new(wait, budget, Wakeups::Symmetric(Scope::Shared)),
        })
    }

    /// Returns the memory, whose descriptor can be passed to consumers.
    #[must_use]
    pub fn memory(&self) -> &PublishedWords {
        &self.words
    }

    #[must_use]
    #[inline]
    pub fn geometry(&self) -> MemoryGeometry {
        self.geometry
    }

    /// Returns the turn of the next event.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Adds a consumer by its page. Returns its number and its first turn, which is the turn of the next
    /// event. The supplier calls `ring_descriptor` when there are events and the consumer waits at its
    /// descriptor.
    ///
    /// # Errors
    /// There is no room, or the page is too short.
    pub fn attach(
        &mut self,
        page: Lines,
        when_behind: WhenBehind,
        ring_descriptor: Option<Box<dyn FnMut() + Send>>,
    ) -> Result<(ConsumerNumber, u64), AttachRefused> {
        // while slots are lent, one consumer less can attach, because the lent slots are the slots that it
        // could hold
        let taken = self.attached.len() + usize::from(!self.lent.is_empty());
        if taken >= self.most_attached as usize {
            return Err(AttachRefused::TooMany(self.most_attached));
        }
        let page = ConsumerPage::new(page).ok_or(AttachRefused::ShortPage)?;
        let position = self.turn;
        page.regime().announce_processors();
        page.position().signal(low(position), Wakeups::Never);
        self.last_number += 1;
        let number = ConsumerNumber(self.last_number);
        self.attached.push(RingReader { number, page, when_behind, position, ring_descriptor });
        Ok((number, position))
    }

    /// Removes a consumer that has left or died. Its held slots become free.
    pub fn detach(&mut self, number: ConsumerNumber) {
        self.attached.retain(|attached| attached.number != number);
    }

    /// Lends a slot for an event of `bytes` bytes.
    ///
    /// # Errors
    /// The event is too large, or a blocking consumer has no room for it.
    #[cfg(not(loom))]
    #[inline]
    pub fn loan(&mut self, bytes: usize) -> Result<Loan<'_>, PublishRefused> {
        let slot = self.slot_for(bytes)?;
        Ok(Loan { supplier: self, slot: Some(slot), bytes })
    }

    /// Lends the place of a payload of `bytes` bytes after a head of `head` bytes, until the event is
    /// published by [`publish_lent`](Self::publish_lent) or the loan is dropped. The lent slots are those
    /// that one more consumer could hold. Returns `None` if all of them are lent, if the maximum number of
    /// consumers is attached, or if the event is too large. Only the publication checks whether a blocking
    /// consumer has room.
    #[cfg(not(loom))]
    pub fn lend(&mut self, head: usize, bytes: usize) -> Option<LentBytes> {
        self.reclaim_lent();
        let is_left = self.lent.len() < HOLDS && self.attached.len() < self.most_attached as usize;
        if !is_left || head + bytes > self.geometry.largest() as usize {
            return None;
        }
        self.reclaim();
        let slot = self.free.pop()?;
        self.lent.push(slot);
        let start = self.geometry.slot(slot) + head;
        Some(self.words.lend(start..start + bytes))
    }

    /// Publishes an event whose payload is in lent memory of this ring, with a head of the length that the
    /// loan was made for. The caller ends the loan. Returns `None` if the payload is elsewhere; the caller
    /// then publishes a copy.
    ///
    /// # Errors
    /// A blocking consumer has no room for it.
    #[cfg(not(loom))]
    #[inline]
    pub fn publish_lent(
        &mut self,
        head: &[u8],
        payload: &LentBytes,
        tag: u32,
    ) -> Result<Option<u64>, PublishRefused> {
        let begins = |slot: &u32| self.geometry.slot(*slot) + head.len() == payload.range().start;
        let Some(at) = self.lent.iter().position(begins).filter(|_| self.words.is_lender_of(payload)) else {
            return Ok(None);
        };
        if let Some(number) = self.who_has_no_room() {
            return Err(PublishRefused::NoRoom(number));
        }
        let slot = self.lent.swap_remove(at);
        self.words.write(self.geometry.slot(slot), head);
        Ok(Some(self.announce(slot, head.len() + payload.range().len(), tag)))
    }

    /// Frees the lent slots that were returned.
    #[cfg(not(loom))]
    fn reclaim_lent(&mut self) {
        let (words, geometry, free) = (&self.words, self.geometry, &mut self.free);
        self.lent.retain(|slot| {
            let start = geometry.slot(*slot);
            let is_lent = words.has_lent(&(start..start + geometry.largest() as usize));
            if !is_lent {
                free.push(*slot);
            }
            is_lent
        });
    }

    /// Copies an event into the ring. Returns its turn. Polling consumers see the event at once, sleeping
    /// ones after [`wake_consumers`](Self::wake_consumers).
    ///
    /// # Errors
    /// The errors of [`loan`](Self::loan).
    pub fn publish(&mut self, tag: u32, bytes: &[u8]) -> Result<u64, PublishRefused> {
        let slot = self.slot_for(bytes.len())?;
        self.words.write(self.geometry.slot(slot), bytes);
        Ok(self.announce(slot, bytes.len(), tag))
    }

    #[inline]
    fn slot_for(&mut self, bytes: usize) -> Result<u32, PublishRefused> {
        let largest = self.geometry.largest();
        if bytes > largest as usize {
            return Err(PublishRefused::TooLarge { bytes, largest });
        }
        if let Some(number) = self.who_has_no_room() {
            return Err(PublishRefused::NoRoom(number));
        }
        if self.turn - self.looked >= self.geometry.spare() as u64 {
            self.reclaim();
        }
        Ok(self.free.pop().expect("because there are more slots than in the ring, spare, lent and held"))
    }

    #[inline]
    fn announce(&mut self, slot: u32, bytes: usize, tag: u32) -> u64 {
        let turn = self.turn;
        let index = self.geometry.index(turn);
        let first = MemoryGeometry::entry(index);
        let announced = Announced { slot, length: bytes as u32, tag };
        RingEntry::new(self.words.words(first..first + ENTRY)).announce(turn, announced);
        self.retired.extend(self.in_ring[index].replace(slot));
        self.turn += 1;
        self.unsignalled = true;
        if let Some(next) = self.free.last() {
            let start = self.geometry.slot(*next);
            self.words.prefetch(start..start + bytes.min(AHEAD));
        }
        turn
    }

    /// Returns a blocking consumer that has not read the event that the next event would overwrite, if any.
    #[inline]
    pub(super) fn who_has_no_room(&mut self) -> Option<ConsumerNumber> {
        let (turn, depth) = (self.turn, u64::from(self.geometry.depth()));
        let full = |position: u64| turn - position >= depth;
        let blocking =
            self.attached.iter_mut().filter(|attached| attached.when_behind == WhenBehind::BlocksSupplier);
        for attached in blocking {
            if full(attached.position) {
                attached.update_position(turn);
                if full(attached.position) {
                    return Some(attached.number);
                }
            }
        }
        None
    }

    /// Returns the maximum number of unread events of any consumer, as far as the consumers have reported. A
    /// consumer that keeps up reports only after it has read all events, or a quarter of the ring.
    pub fn unread(&mut self) -> u64 {
        let turn = self.turn;
        self.attached.iter_mut().for_each(|attached| attached.update_position(turn));
        self.attached.iter().map(|attached| turn - attached.position).max().unwrap_or_default()
    }

    /// Retires the slots that all consumers have passed, and frees the retired slots that no consumer holds.
    #[cold]
    fn reclaim(&mut self) {
        self.looked = self.turn;
        if self.turn.saturating_sub(self.early) > MAX_EARLY_AGE {
            self.announce_early_before(self.turn);
        }
        self.attached.iter_mut().for_each(|attached| attached.update_position(self.turn));
        let past = self.attached.iter().map(|attached| attached.position).min().unwrap_or(self.turn);
        // the slots of earlier turns were retired when their entries were rewritten
        let oldest = self.turn - u64::from(self.geometry.depth());
        for turn in self.passed.max(oldest)..past {
            self.retired.extend(self.in_ring[self.geometry.index(turn)].take());
        }
        self.passed = self.passed.max(past);
        // SYNC(hold) fence: the announcements that retired these slots come before the reading of the holds;
        // the other side is in `MemoryConsumer::receive`. SYNC(flag) acquire: a consumer has read its events
        // and set its holds before it set its position
        fence(Ordering::SeqCst);
        for hold in self.attached.iter().flat_map(|attached| attached.page.holds()) {
            // SYNC(hold-end) acquire: the holder's reads come before its release of the slot
            if let Some(slot) = hold.load(Ordering::Acquire).checked_sub(1)
                && let Some(is_held) = self.is_held.get_mut(slot as usize)
            {
                *is_held = true;
            }
        }
        let (is_held, free) = (&self.is_held, &mut self.free);
        self.retired.retain(|slot| {
            let held = is_held[*slot as usize];
            if !held {
                free.push(*slot);
            }
            held
        });
        self.held = self.retired.len();
        self.is_held.fill(false);
    }

    /// Wakes the sleeping consumers. Call it after one event or after a batch.
    pub fn wake_consumers(&mut self) {
        if !std::mem::take(&mut self.unsignalled) {
            return;
        }
        // SYNC(asleep) fence: the announcements come before the reading of the sleepers' flags; the other
        // side is in `JoinedRing::may_sleep`
        fence(Ordering::SeqCst);
        for attached in &mut self.attached {
            let page = &attached.page;
            // SYNC(asleep-announced) acquire: the count of sleepers is read after the flag;
            // SYNC(asleep-announced) release: the wake-up comes after
            let announced =
                |word: &AtomicU32| word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0;
            if page.sleepers().has_sleepers() && announced(page.asleep()) {
                page.sleepers().disturb(Scope::Shared);
            }
            if let Some(ring_descriptor) = &mut attached.ring_descriptor
                && announced(page.polled())
            {
                ring_descriptor();
            }
        }
    }

    /// Waits until this blocking consumer has read an event, or until `watch` ends the wait. Afterwards there
    /// may still be no room, so the caller tries again.
    pub fn wait_for<W: Watch>(&mut self, number: ConsumerNumber, watch: &mut W) -> WatchVerdict {
        self.wake_consumers();
        let Some(attached) = self.attached.iter().find(|attached| attached.number == number) else {
            return WatchVerdict::Continue;
        };
        let target = low(attached.position.wrapping_add(1));
        let regime = attached.page.regime();
        let hints = || WaitHints { regime, crowded: regime.is_crowded(2), last_cpus: None };
        let verdict = self.waiter.policy(hints).wait(attached.page.position(), target, watch);
        self.waiter.learn(regime);
        verdict
    }

    /// Announces that the supplier polls for room. Returns whether there is none now; if so, the descriptor
    /// that consumers ring becomes readable once there is room.
    pub fn polls_for_room(&mut self) -> bool {
        for attached in &self.attached {
            attached.page.room_polled().swap(1, Ordering::Relaxed);
        }
        // SYNC(room-polled) fence: the words `room_polled` are set before the positions are read; the other
        // side is in `MemoryConsumer::publish_position`
        fence(Ordering::SeqCst);
        self.who_has_no_room().is_some()
    }

    /// Announces that the next event is due before an earlier one, or that a consumer has to look for such an
    /// event.
    pub fn announce_early(&mut self) {
        self.announce_early_before(self.turn + 1);
    }

    /// Announces that consumers have to look for an early event among all events so far. This is for a ring
    /// that another one follows, because early events of the other ring cannot be announced in this one.
    pub fn announce_early_end(&mut self) {
        self.announce_early_before(self.turn);
    }

    fn announce_early_before(&mut self, turn: u64) {
        self.early = turn;
        let header = self.words.words(MemoryGeometry::header());
        // SYNC(early) release: the event is announced after it is known to be early
        MemoryGeometry::early(header).store(low(turn), Ordering::Release);
    }

    /// Publishes the number of orders given since the beginning. Consumers see it at once, even if the ring
    /// has no room for an event.
    pub fn announce_orders(&self, orders: u32) {
        let header = self.words.words(MemoryGeometry::header());
        // SYNC(orders) release: events that a consumer learns of after this order come after it
        MemoryGeometry::orders(header).store(orders, Ordering::Release);
    }

    /// Tells all consumers that no event follows the events in the ring.
    pub fn close(&mut self) {
        let header = self.words.words(MemoryGeometry::header());
        // SYNC(closed) release: all events come before the end
        MemoryGeometry::closed(header).store(1, Ordering::Release);
        self.unsignalled = true;
        self.wake_consumers();
    }
}

impl Drop for MemorySupplier {
    fn drop(&mut self) {
        // a forked child's copy does not end the parent's ring
        if std::process::id() == self.process {
            self.close();
        }
    }
}

/// A slot for an event in preparation. If it is dropped, the slot becomes free again.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct Loan<'a> {
    supplier: &'a mut MemorySupplier,
    slot: Option<u32>,
    bytes: usize,
}

#[cfg(not(loom))]
impl Loan<'_> {
    /// Returns the event's bytes. Their initial content is unspecified.
    #[must_use]
    #[inline]
    pub fn bytes(&mut self) -> &mut [u8] {
        let Some(slot) = self.slot else { return &mut [] };
        let start = self.supplier.geometry.slot(slot);
        self.supplier.words.bytes_mut(start..start + self.bytes)
    }

    /// Announces the event. Returns its turn. This is [`MemorySupplier::publish`] without the copy.
    pub fn publish(mut self, tag: u32) -> u64 {
        match self.slot.take() {
            Some(slot) => self.supplier.announce(slot, self.bytes, tag),
            None => self.supplier.turn,
        }
    }
}

#[cfg(not(loom))]
impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.supplier.free.extend(self.slot.take());
    }
}
