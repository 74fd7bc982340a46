//! A reader's position in the log, and the acknowledged position of a named consumer.

use super::chain::LogChain;
use super::owned::ChainNumber;
use super::segment::{FoundRecord, SegmentReader};
use super::{EventLog, LogError, own_file};
use crate::log::record::checksum;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

/// The directory of the files of named consumers, inside the log's directory.
pub(super) const CONSUMERS: &str = "consumers";
/// The longest name of a consumer, in bytes. It names a file, and Linux allows 255 bytes for that
/// (`NAME_MAX`); the shorter limit leaves room in tables. Chosen, not measured.
const MAX_NAME: usize = 128;

/// The next item that a reader finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogEntry {
    /// An event; [`LogCursor::body`] has its bytes.
    Event { position: u64 },
    /// Events that were removed before they were read, or are damaged.
    Lost { first: u64, last: u64 },
}

/// A reader's place in a log.
#[derive(Debug)]
pub struct LogCursor {
    /// The position of the next event to read.
    position: u64,
    readers: BTreeMap<ChainNumber, ChainReader>,
    /// The chain of the last event that was read.
    current: Option<ChainNumber>,
}

/// A reader's place in one chain.
#[derive(Debug, Default)]
struct ChainReader {
    reader: Option<SegmentReader<Arc<File>>>,
    /// The position of a record found by the reader; the cursor has not reached it yet.
    found: Option<u64>,
    /// The last position of the chain when it was last read to its end, so that a damaged end is searched
    /// only once.
    ended: u64,
}

impl LogCursor {
    /// Makes a cursor in front of the event at a position.
    #[must_use]
    pub fn at(position: u64) -> Self {
        Self { position: position.max(1), readers: BTreeMap::new(), current: None }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the chain of the last event that was read.
    pub fn chain(&self) -> Option<ChainNumber> {
        self.current
    }

    /// Returns the body of the last event that was read.
    pub fn body(&self) -> &[u8] {
        let reader = self.current.and_then(|chain| self.readers.get(&chain)?.reader.as_ref());
        reader.map_or(&[], SegmentReader::body)
    }
}

impl ChainReader {
    /// Finds the first event of the chain from `position` on; returns its position.
    fn next(&mut self, (chain, chains): (&LogChain, usize), position: u64) -> Result<Option<u64>, LogError> {
        if self.found.is_some_and(|found| found >= position) {
            return Ok(self.found);
        }
        self.found = None;
        if chain.last() <= self.ended {
            return Ok(None);
        }
        let segments = &chain.segments;
        let behind = segments.partition_point(|segment| segment.last < position);
        for segment in segments.iter().skip(behind) {
            let failed = |source| LogError::Read { path: segment.path.clone(), source };
            let from = position.max(segment.head.first);
            let fits = |reader: &SegmentReader<Arc<File>>| {
                reader.head() == segment.head && reader.expected() <= from
            };
            if !self.reader.as_ref().is_some_and(fits) {
                let reader = SegmentReader::open(Arc::clone(&segment.file)).map_err(failed)?;
                self.reader = reader.map(|reader| reader.beside(chains));
            }
            let Some(reader) = &mut self.reader else { continue };
            loop {
                match reader.next(segment.length).map_err(failed)? {
                    FoundRecord::Event { position: found, .. } if found >= position => {
                        self.found = Some(found);
                        return Ok(self.found);
                    }
                    FoundRecord::Event { .. } | FoundRecord::Damage { .. } => {}
                    // events in a damaged tail of the segment are lost
                    FoundRecord::Tail { .. } => break,
                }
            }
        }
        self.ended = chain.last();
        Ok(None)
    }
}

impl EventLog {
    /// Reads the next event. Returns `None` if the reader has read all events.
    ///
    /// # Errors
    /// The device's error.
    pub fn read(&self, cursor: &mut LogCursor) -> Result<Option<LogEntry>, LogError> {
        if cursor.position >= self.next {
            return Ok(None);
        }
        let mut first: Option<(u64, ChainNumber)> = None;
        for (number, chain) in &self.chains {
            // all events of this chain are before the cursor
            if chain.last() < cursor.position {
                continue;
            }
            let reader = cursor.readers.entry(*number).or_default();
            let found = reader.next((chain, self.chains.len()), cursor.position)?;
            first = first.into_iter().chain(found.map(|found| (found, *number))).min();
        }
        let next = first.map_or(self.next, |(position, _)| position);
        if next > cursor.position {
            let first = std::mem::replace(&mut cursor.position, next);
            return Ok(Some(LogEntry::Lost { first, last: next - 1 }));
        }
        (cursor.current, cursor.position) = (first.map(|(_, chain)| chain), next + 1);
        Ok(Some(LogEntry::Event { position: next }))
    }

    /// Opens the file of a named consumer.
    ///
    /// # Errors
    /// The name is not valid, or the file cannot be used.
    pub fn acknowledged(&self, name: &str) -> Result<AcknowledgedFile, LogError> {
        let path = self.path.join(CONSUMERS).join(name);
        let failed = |source| LogError::Directory { path: path.clone(), source };
        check_consumer_key(name).map_err(|said| failed(io::Error::new(io::ErrorKind::InvalidInput, said)))?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = own_file::open(options, &path).map_err(failed)?;
        AcknowledgedFile::new(path.clone(), file).map_err(failed)
    }
}

impl EventLog {
    /// Returns the acknowledged positions of all consumers.
    pub(super) fn acknowledged_positions(&self) -> io::Result<Vec<u64>> {
        let mut positions = Vec::new();
        for entry in fs::read_dir(self.path.join(CONSUMERS))? {
            let path = entry?.path();
            // a file that cannot be read is reported when its consumer comes
            if let Ok(file) = File::open(&path).and_then(|file| AcknowledgedFile::new(path, file)) {
                positions.extend(file.position());
            }
        }
        Ok(positions)
    }
}

/// Checks a consumer's name, which is also the name of its file; the error describes valid names.
pub(crate) fn check_consumer_name(name: &str) -> Result<(), &'static str> {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let may = (1..=MAX_NAME).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(usable);
    may.then_some(()).ok_or("the name of a consumer has letters, digits, - _ . and does not begin with a dot")
}

/// Separates the name of a consumer from its owner's digest, where an earlier owner has the plain name.
pub(crate) const BEFORE_OWNER: char = '@';

/// Checks the name of a consumer's file: its name, or its name and the digest of its owner.
pub(super) fn check_consumer_key(key: &str) -> Result<(), &'static str> {
    let (name, owner) = key.split_once(BEFORE_OWNER).unwrap_or((key, ""));
    check_consumer_name(name)?;
    let is_digest = owner.len() <= 32 && owner.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then_some(()).ok_or("the owner of a consumer's name has hexadecimal digits")
}

/// The acknowledged position of a named consumer, on disk.
///
/// The file has two slots, written alternately, so that an interrupted write leaves the other slot intact.
/// The file is never synced: after a power failure a consumer gets some acknowledged events again.
#[derive(Debug)]
pub struct AcknowledgedFile {
    path: PathBuf,
    file: File,
    generation: u64,
    position: Option<u64>,
}

/// Bytes of one copy of an acknowledged position: its generation, the position, their checksum, and 4 unused
/// bytes.
const SLOT: usize = 24;

impl AcknowledgedFile {
    fn new(path: PathBuf, file: File) -> io::Result<Self> {
        let mut found = Self { path, file, generation: 0, position: None };
        for slot in 0..2 {
            let mut bytes = [0; SLOT];
            if found.file.read_at(&mut bytes, slot * SLOT as u64)? < SLOT {
                continue;
            }
            let long = |at: usize| -> [u8; 8] { std::array::from_fn(|byte| bytes[at + byte]) };
            let (generation, position) = (u64::from_le_bytes(long(0)), u64::from_le_bytes(long(8)));
            if slot_of(generation, position) == bytes && generation > found.generation {
                (found.generation, found.position) = (generation, Some(position));
            }
        }
        Ok(found)
    }

    /// Returns the position up to which all events are acknowledged, or `None` if the consumer has
    /// acknowledged no event.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// Records that all events up to `position` are acknowledged.
    ///
    /// # Errors
    /// The disk's error; the former position stays.
    pub fn save(&mut self, position: u64) -> Result<(), LogError> {
        let generation = self.generation + 1;
        let at = (generation % 2) * SLOT as u64;
        let written = self.file.write_all_at(&slot_of(generation, position), at);
        written.map_err(|source| LogError::Write { path: self.path.clone(), source })?;
        (self.generation, self.position) = (generation, Some(position));
        Ok(())
    }
}

fn slot_of(generation: u64, position: u64) -> [u8; SLOT] {
    let mut bytes = [0; SLOT];
    bytes[..8].copy_from_slice(&generation.to_le_bytes());
    bytes[8..16].copy_from_slice(&position.to_le_bytes());
    let sum = checksum(0, &[&bytes[..16]]);
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    bytes
}
