//! A chain of segments: the events of one owner, so that no owner displaces another one's events from the
//! log.
//!
//! ```text
//!   positions   1 2 3 4 5 6 7 8 9 ...     of all events together
//!   chain 1     1 2     5       9         of one identity
//!   chain 2         3 4   6 7 8           of another one
//!   chain 0     events without an owner, of a log written before chains had owners, and of owners that an
//!               earlier broker had no chain for
//! ```
//! The positions of a chain ascend, with gaps. A reader of the log takes the lowest position of all chains
//! (`cursor.rs`). When the log would exceed its bytes, the largest chain loses its oldest segment. So an
//! identity loses events only while no other one has more in the log: of `n` identities each keeps at least
//! an `n`th part, less one segment. An identity that finds no chain is refused: in a chain with others it
//! would displace their events.
//!
//! Cost: for each event a check of the last segment of its chain; for a reader one comparison for each chain.

use super::owned::{ChainNumber, OwnedKind};
use super::record::RECORD_HEAD;
use super::segment::{FoundRecord, SEGMENT_HEAD, SegmentHead, SegmentReader};
use super::{EventLog, LogDamage, LogError, LoggedEvent, WallTime, own_file};
use crate::name_owner::NameOwner;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum number of chains of owners: as many as a broker has programs by default. A reader keeps a buffer
/// for each chain. The broker keeps a file for each segment, and equal chains have four segments each.
pub(super) const MAX_CHAINS: u32 = 256;

/// Segments that are never removed to make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spared {
    Newest,
    Nothing,
}

#[derive(Debug)]
pub(super) struct LogSegment {
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    pub(super) head: SegmentHead,
    /// The used bytes of the segment's file.
    pub(super) length: u64,
    /// The position of the last event; of an empty segment, the position before its first.
    pub(super) last: u64,
    /// When the newest event was published.
    pub(super) newest: WallTime,
    /// Whether a supplier was promised that one of its events is durable.
    pub(super) acknowledged: bool,
}

/// The segments of a chain, the oldest first; the last one is written.
#[derive(Debug, Default)]
pub(super) struct LogChain {
    pub(super) segments: VecDeque<LogSegment>,
    /// When the chain was assigned to its owner, by the log's count of chains assigned since it was opened.
    given: u64,
}

impl LogChain {
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length).sum()
    }

    /// Returns when the newest event was published.
    pub(super) fn newest(&self) -> Option<WallTime> {
        self.segments.iter().map(|segment| segment.newest).max()
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.segments.front().map(|segment| segment.head.first)
    }

    /// Returns the position of the last event, or 0 if the chain has no segment.
    pub(super) fn last(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.last)
    }
}

/// A file of a segment, before its events are read.
pub(super) struct FoundSegment {
    path: PathBuf,
    file: Arc<File>,
    size: u64,
    reader: SegmentReader<Arc<File>>,
}

impl FoundSegment {
    pub(super) fn chain(&self) -> ChainNumber {
        self.reader.head().chain
    }
}

impl EventLog {
    /// Returns a chain for a new owner: a chain without events, preferably one without an owner, otherwise
    /// the chain that has had its owner for longest.
    fn free_chain(&self) -> Option<ChainNumber> {
        if self.chains_are_full {
            return None;
        }
        let owned = |number: &ChainNumber| self.owner_of(OwnedKind::Chain, &number.0.to_string()).is_some();
        let given = |number: &ChainNumber| self.chains.get(number).map_or(0, |chain| chain.given);
        let is_empty =
            |number: &ChainNumber| self.chains.get(number).is_none_or(|chain| chain.segments.is_empty());
        let empty = (1..=MAX_CHAINS).map(ChainNumber).filter(is_empty);
        empty.min_by_key(|number| (owned(number), given(number)))
    }

    /// Checks whether the log takes events of an owner.
    ///
    /// # Errors
    /// All chains have events of other owners.
    pub fn has_chain_for(&self, owner: &NameOwner) -> Result<(), LogError> {
        let may = self.owned_chains.contains_key(owner) || self.free_chain().is_some();
        may.then_some(()).ok_or(LogError::TooManyOwners { most: MAX_CHAINS })
    }

    /// Returns the chain of an owner's events. When all chains have an owner, a chain without events is
    /// reused.
    ///
    /// # Errors
    /// All chains have events of other owners, or the disk's error.
    pub fn chain_of(&mut self, owner: &NameOwner) -> Result<ChainNumber, LogError> {
        if let Some(chain) = self.owned_chains.get(owner) {
            return Ok(*chain);
        }
        let Some(number) = self.free_chain() else {
            self.chains_are_full = true;
            return Err(LogError::TooManyOwners { most: MAX_CHAINS });
        };
        self.assign_name(OwnedKind::Chain, &number.0.to_string(), owner)?;
        self.owned_chains.retain(|_, chain| *chain != number);
        self.owned_chains.insert(owner.clone(), number);
        self.chains_given += 1;
        self.chains.entry(number).or_default().given = self.chains_given;
        Ok(number)
    }

    /// Sets the bytes at which a segment is full: an eighth of the log's, or less, so that chains of equal
    /// size have at least four segments; but at least [`MIN_SEGMENT`](super::MIN_SEGMENT).
    pub(super) fn fit_segments(&mut self) {
        let chains = self.chains.values().filter(|chain| !chain.segments.is_empty()).count() as u64;
        let of_chain = self.bounds.bytes / (4 * chains.max(1));
        self.segment_bytes = self.bounds.segment().min(of_chain.max(super::MIN_SEGMENT));
    }

    /// Opens the file of a segment. Returns `None` if its head is not valid: a last file whose creation was
    /// cut off is removed, and any other file is left unchanged and reported as damage.
    pub(super) fn find_segment(
        &mut self,
        path: PathBuf,
        is_last: bool,
    ) -> Result<Option<FoundSegment>, LogError> {
        let refused = |source| LogError::Read { path: path.clone(), source };
        let file = own_file::open(OpenOptions::new().read(true).write(true), &path).map_err(refused)?;
        let (file, size) = (Arc::new(file), fs::metadata(&path).map_err(refused)?.len());
        let named = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
        let reader = SegmentReader::open(Arc::clone(&file)).map_err(refused)?;
        let usable = |reader: &SegmentReader<_>| {
            Some(reader.head().first) == named && reader.head().chain.0 <= MAX_CHAINS
        };
        if let Some(reader) = reader.filter(usable) {
            return Ok(Some(FoundSegment { path, file, size, reader }));
        }
        if is_last && size <= SEGMENT_HEAD {
            // the file's creation was cut off: it has no events, but older segments may be gone
            self.pass(named.unwrap_or(0).saturating_sub(1));
            fs::remove_file(&path).map_err(refused)?;
            self.counters.torn += size;
            return Ok(None);
        }
        if is_last {
            // the file may hold this many events: their positions are never assigned again
            let most = size / RECORD_HEAD as u64 + 1;
            self.next = self.next.max(named.unwrap_or_default().saturating_add(most));
        }
        self.damage.push(LogDamage { path, offset: 0, bytes: size, lost: 0, next: self.next });
        Ok(None)
    }

    /// Reads an existing segment. In a log of one chain a missing position was lost; with several chains,
    /// another chain may have held it.
    pub(super) fn take_segment(
        &mut self,
        found: FoundSegment,
        is_last: bool,
        is_only_chain: bool,
    ) -> Result<(), LogError> {
        let FoundSegment { path, file, size, mut reader } = found;
        let refused = |source| LogError::Read { path: path.clone(), source };
        let head = reader.head();
        if is_only_chain && head.first > self.next && self.chains.contains_key(&head.chain) {
            let lost = head.first - self.next;
            self.damage.push(LogDamage { path: path.clone(), offset: 0, bytes: 0, lost, next: head.first });
        }
        let (mut length, mut newest, mut acknowledged) = (size, WallTime::default(), false);
        loop {
            match reader.next(size).map_err(refused)? {
                FoundRecord::Event { position, .. } => {
                    if let Ok(event) = LoggedEvent::read(reader.body()) {
                        newest = newest.max(event.published);
                        acknowledged |= event.acknowledged;
                        self.note_writer(&event, position, head.chain);
                    }
                }
                FoundRecord::Damage { bytes: 0, .. } if !is_only_chain => {}
                FoundRecord::Damage { offset, bytes, next } => {
                    let lost = match is_only_chain {
                        true => next.saturating_sub(self.next.max(head.first)),
                        false => 0,
                    };
                    self.damage.push(LogDamage { path: path.clone(), offset, bytes, lost, next });
                }
                FoundRecord::Tail { bytes: 0, .. } => break,
                FoundRecord::Tail { offset, bytes } if is_last => {
                    file.set_len(offset).map_err(refused)?;
                    self.counters.torn += bytes;
                    length = offset;
                    break;
                }
                FoundRecord::Tail { offset, bytes } => {
                    let next = reader.expected();
                    self.damage.push(LogDamage { path: path.clone(), offset, bytes, lost: 0, next });
                    length = offset;
                    break;
                }
            }
            self.next = self.next.max(reader.expected());
        }
        self.next = self.next.max(reader.expected());
        self.unsynced.push(Arc::clone(&file));
        self.bytes += length;
        let last = reader.expected() - 1;
        let segment = LogSegment { path, file, head, length, last, newest, acknowledged };
        self.chains.entry(head.chain).or_default().segments.push_back(segment);
        Ok(())
    }

    /// Returns the highest position of an event that the log has or had.
    fn newest(&self) -> u64 {
        self.chains.values().map(LogChain::last).max().unwrap_or(0)
    }

    /// Removes segments until `bytes` more fit: each time the oldest segment of the largest chain. The newest
    /// `keep` segments of the written chain stay. With [`Spared::Newest`] the segment with the newest
    /// position of the log stays, too: if it went first and the broker then ended, a log opened again would
    /// assign positions twice. Returns whether the bytes fit.
    pub(super) fn make_room(
        &mut self,
        (written, keep): (ChainNumber, usize),
        bytes: u64,
        spared: Spared,
    ) -> bool {
        while self.bytes + bytes > self.bounds.bytes {
            let newest = self.newest();
            let may_lose = |(number, chain): &(&ChainNumber, &LogChain)| {
                let kept = if **number == written { keep } else { 0 };
                let is_spared = |segment: &LogSegment| spared == Spared::Newest && segment.last >= newest;
                chain.segments.len() > kept && !chain.segments.front().is_some_and(is_spared)
            };
            let size = |(number, chain): &(&ChainNumber, &LogChain)| {
                chain.bytes() + if **number == written { bytes } else { 0 }
            };
            let most = self.chains.iter().filter(may_lose).max_by_key(size).map(|(number, _)| *number);
            let Some(number) = most else { return false };
            self.remove_oldest(number);
        }
        true
    }

    pub(super) fn remove_oldest(&mut self, number: ChainNumber) {
        let Some(chain) = self.chains.get_mut(&number) else { return };
        let Some(segment) = chain.segments.pop_front() else { return };
        let first = chain.first().unwrap_or(u64::MAX);
        self.chains_are_full &= !chain.segments.is_empty();
        // a file that is already gone needs no removal; a file that stays is read when the log is opened
        // again
        let _ = fs::remove_file(&segment.path);
        self.bytes -= segment.length;
        self.fit_segments();
        self.unsynced.retain(|file| !Arc::ptr_eq(file, &segment.file));
        // forgets writers whose last event was in the segment: their names would take memory until the log is
        // opened again
        self.writers.retain(|_, writers| {
            writers.retain(|_, last| last.chain != number || last.position >= first);
            !writers.is_empty()
        });
    }

    /// Removes events beyond the log's age; `now` is the log's time.
    ///
    /// # Errors
    /// The last segment is too old, and no new one can be made in its place.
    pub fn expire(&mut self, now: WallTime) -> Result<(), LogError> {
        let bounds = self.bounds;
        let old = |segment: &LogSegment| {
            segment.length > SEGMENT_HEAD && segment.newest + bounds.age_of(segment.acknowledged) < now
        };
        let numbers: Vec<ChainNumber> = self.chains.keys().copied().collect();
        for number in numbers {
            while let Some(chain) = self.chains.get(&number)
                && chain.segments.front().is_some_and(old)
            {
                // a segment's name must record the last position of the log
                if chain.segments.len() == 1 && chain.last() == self.newest() {
                    self.roll(number)?;
                }
                self.remove_oldest(number);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogBounds;

    #[test]
    fn the_newest_position_is_on_disk_whatever_has_to_go() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let bounds = LogBounds { bytes: 64 << 10, ..LogBounds::default() };
        let mut log = EventLog::open(directory.path(), bounds).expect("it is empty");
        let [one, other] = [1, 2].map(|user| log.chain_of(&NameOwner::User(user)).expect("one is free"));
        for (chain, length) in [(one, 10_000), (other, 40_000)] {
            let event = LoggedEvent { payload: &vec![0; length], ..LoggedEvent::default() };
            log.append_to(chain, &event).expect("it fits");
        }
        // an event of 50,000 bytes is about to be written, and the broker ends
        assert!(!log.make_room((one, 1), 50_000, Spared::Newest));
        drop(log);
        let mut log = EventLog::open(directory.path(), bounds).expect("it is sound");
        assert_eq!(log.next(), 3);
        assert!(log.make_room((one, 0), 64_000, Spared::Nothing));
    }
}
