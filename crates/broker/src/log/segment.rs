//! A segment: a file with the records of consecutive events. The reader finds the complete records, whatever
//! the file contains.
//!
//! ```text
//!   8 magic  8 salt  8 first position  4 checksum  4 chain, then records
//! ```
//! Where there is no complete record, the reader searches byte by byte for the next one. If it finds one, the
//! bytes between are *damaged*. If not, they are the *tail*: a write cut off by the end of the process or by
//! a power failure.
//!
//! Cost: one read of up to 64 KiB for many small records. In a damaged segment, one checksum of a head for
//! each occurrence of the magic number.

use super::owned::ChainNumber;
use super::record::{LoggedEvent, MAX_BODY, RECORD_HEAD, RECORD_MAGIC, RecordHead, checksum, write_record};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

pub(crate) const SEGMENT_HEAD: u64 = 32;
const SEGMENT_MAGIC: [u8; 8] = *b"UELOG1\n\0";
/// Bytes per read; a longer record is read at once. Many short records then cost one system call. Chosen by
/// this argument, not measured.
const CHUNK: usize = 64 << 10;

/// Random access to bytes: a file, or memory.
pub trait ReadAt {
    /// Reads bytes at an offset and returns their number, as `pread(2)` does; 0 at the end.
    ///
    /// # Errors
    /// The device's error.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for Arc<File> {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&**self, bytes, offset)
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let count = bytes.len().min(self.len() - from);
        bytes[..count].copy_from_slice(&self[from..from + count]);
        Ok(count)
    }
}

/// The head of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHead {
    pub(crate) salt: u64,
    /// The position of the segment's first event.
    pub(crate) first: u64,
    pub(crate) chain: ChainNumber,
}

impl SegmentHead {
    pub(crate) fn to_bytes(self) -> [u8; SEGMENT_HEAD as usize] {
        let mut bytes = [0; SEGMENT_HEAD as usize];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..16].copy_from_slice(&self.salt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        bytes[28..].copy_from_slice(&self.chain.0.to_le_bytes());
        // for chain 0 the checksum covers only the bytes in front of it, as in logs without chains
        let chain: &[u8] = if self.chain.0 == 0 { &[] } else { &bytes[28..] };
        let sum = checksum(0, &[&bytes[..24], chain]);
        bytes[24..28].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn read(bytes: [u8; SEGMENT_HEAD as usize]) -> Option<Self> {
        let long = |at: usize| -> [u8; 8] { std::array::from_fn(|byte| bytes[at + byte]) };
        let chain: [u8; 4] = std::array::from_fn(|byte| bytes[28 + byte]);
        let head = Self {
            salt: u64::from_le_bytes(long(8)),
            first: u64::from_le_bytes(long(16)),
            chain: ChainNumber(u32::from_le_bytes(chain)),
        };
        (head.to_bytes() == bytes).then_some(head)
    }
}

/// Makes a segment with these events, for tests of its readers.
pub fn segment_in_memory(salt: u64, first: u64, events: &[LoggedEvent<'_>]) -> Vec<u8> {
    let mut bytes = SegmentHead { salt, first, chain: ChainNumber::default() }.to_bytes().to_vec();
    for (position, event) in (first..).zip(events) {
        write_record(&mut bytes, salt, position, event);
    }
    bytes
}

/// The content at the reader's offset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FoundRecord {
    /// A complete record; [`SegmentReader::body`] has its bytes.
    Event { position: u64, offset: u64 },
    /// Bytes that are not a record, followed by complete records; the first of them has the position `next`.
    /// With zero bytes, the record at `offset` is complete, and only the positions before it are missing.
    Damage { offset: u64, bytes: u64, next: u64 },
    /// No complete record follows. With zero bytes, the segment ends here.
    Tail { offset: u64, bytes: u64 },
}

/// Reads a segment from its beginning.
#[derive(Debug)]
pub struct SegmentReader<R> {
    source: R,
    head: SegmentHead,
    offset: u64,
    /// The position that the next record should have.
    expected: u64,
    /// Bytes of the source from `chunk_at` on.
    chunk: Vec<u8>,
    /// Bytes that are read at once, or one record if it is longer.
    chunk_bytes: usize,
    chunk_at: u64,
    /// The place of the last record's body in the chunk.
    body: std::ops::Range<usize>,
}

impl<R: ReadAt> SegmentReader<R> {
    /// Opens a segment for reading; `None`: these bytes do not begin with a segment's head.
    ///
    /// # Errors
    /// The device's error.
    pub fn open(source: R) -> io::Result<Option<Self>> {
        let mut bytes = [0; SEGMENT_HEAD as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match source.read_at(&mut bytes[filled..], filled as u64)? {
                0 => return Ok(None),
                count => filled += count,
            }
        }
        let Some(head) = SegmentHead::read(bytes) else { return Ok(None) };
        Ok(Some(Self {
            source,
            head,
            offset: SEGMENT_HEAD,
            expected: head.first,
            chunk: Vec::new(),
            chunk_bytes: CHUNK,
            chunk_at: 0,
            body: 0..0,
        }))
    }

    /// Makes the chunk smaller, for one of `readers` segments that are read side by side. All chunks together
    /// take at most 2 MiB, unless a page for each takes more.
    pub(super) fn beside(mut self, readers: usize) -> Self {
        self.chunk_bytes = ((2 << 20) / readers.max(1)).clamp(4 << 10, CHUNK);
        self
    }

    pub(crate) fn head(&self) -> SegmentHead {
        self.head
    }

    /// Returns the position that the next event should have.
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// Returns the body of the last record.
    pub fn body(&self) -> &[u8] {
        &self.chunk[self.body.clone()]
    }

    /// Reads the next item within the first `end` bytes.
    ///
    /// # Errors
    /// The device's error.
    pub fn next(&mut self, end: u64) -> io::Result<FoundRecord> {
        let offset = self.offset;
        if let Some(head) = self.whole(offset, end)? {
            if head.position > self.expected {
                self.expected = head.position;
                return Ok(FoundRecord::Damage { offset, bytes: 0, next: head.position });
            }
            self.offset += (RECORD_HEAD + head.length) as u64;
            self.expected = head.position + 1;
            return Ok(FoundRecord::Event { position: head.position, offset });
        }
        match self.search(offset + 1, end)? {
            Some((next_offset, next)) => {
                (self.offset, self.expected) = (next_offset, next);
                Ok(FoundRecord::Damage { offset, bytes: next_offset - offset, next })
            }
            None => Ok(FoundRecord::Tail { offset, bytes: end.saturating_sub(offset) }),
        }
    }

    /// Returns the head of the record at an offset, if the record is complete and its position has not been
    /// passed.
    fn whole(&mut self, offset: u64, end: u64) -> io::Result<Option<RecordHead>> {
        if !self.load(offset, RECORD_HEAD, end)? {
            return Ok(None);
        }
        let at = (offset - self.chunk_at) as usize;
        let Some(head) = RecordHead::read(self.head.salt, &self.chunk[at..]) else { return Ok(None) };
        let usable = (self.expected..u64::MAX).contains(&head.position);
        if !usable || !self.load(offset, RECORD_HEAD + head.length, end)? {
            return Ok(None);
        }
        let from = (offset - self.chunk_at) as usize + RECORD_HEAD;
        self.body = from..from + head.length;
        Ok(head.fits(self.head.salt, &self.chunk[self.body.clone()]).then_some(head))
    }

    /// Searches for the next complete record from an offset on; returns its offset and its position.
    fn search(&mut self, mut offset: u64, end: u64) -> io::Result<Option<(u64, u64)>> {
        while self.load(offset, RECORD_HEAD, end)? {
            let at = (offset - self.chunk_at) as usize;
            let magic = self.chunk[at..].windows(RECORD_MAGIC.len()).position(|four| four == RECORD_MAGIC);
            match magic {
                Some(skip) => {
                    offset += skip as u64;
                    if let Some(head) = self.whole(offset, end)? {
                        return Ok(Some((offset, head.position)));
                    }
                    offset += 1;
                }
                // the chunk may end within a magic number
                None => offset = self.chunk_at + (self.chunk.len() - RECORD_MAGIC.len() + 1) as u64,
            }
        }
        Ok(None)
    }

    /// Makes the chunk contain `count` bytes from an offset on; false: `end` comes before them.
    fn load(&mut self, offset: u64, count: usize, end: u64) -> io::Result<bool> {
        debug_assert!(count <= RECORD_HEAD + MAX_BODY);
        if offset.checked_add(count as u64).is_none_or(|last| last > end) {
            return Ok(false);
        }
        let held = self.chunk_at..self.chunk_at + self.chunk.len() as u64;
        if held.contains(&offset) && offset + count as u64 <= held.end {
            return Ok(true);
        }
        let most = (end - offset).min(count.max(self.chunk_bytes) as u64) as usize;
        (self.chunk_at, self.body) = (offset, 0..0);
        self.chunk.clear();
        self.chunk.resize(most, 0);
        let mut filled = 0;
        while filled < most {
            match self.source.read_at(&mut self.chunk[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) => {
                    self.chunk.clear();
                    return Err(error);
                }
            }
        }
        self.chunk.truncate(filled);
        Ok(filled >= count)
    }
}
