//! The event log: what was published, on disk, bounded by bytes and age. It has one writer.
//!
//! ```text
//!   DIRECTORY/lock                        held by the writer
//!            /00000000000000000001.events   a segment: the events from position 1 on
//!            /00000000000000004711.events   the segment that is written
//!            /consumers/NAME                up to where a named consumer has acknowledged
//!            /owners                        whose the names of consumers and writers are
//!            /topics                        what topics keep for those who come late
//! ```
//! Each event has a *position*: 1, 2, 3 and so on, over all topics. An event is *written* when `write(2)`
//! has returned: it outlives the broker, and not the power. It is *synced* when a later `fdatasync(2)` has
//! returned. [`EventLog::sync`] hands out the files to sync, so that another thread can wait for the disk;
//! one sync serves all that was written before it.
//!
//! **Bounds.** A segment is removed as a whole: the oldest one, when the log would exceed its bytes or when
//! its newest event is too old. A reader whose next event was removed is told which are missing.
//!
//! **Damage.** A log opens to its last whole event: what is torn behind it is cut off. Bytes in front of
//! whole events that are no record stay where they are; [`EventLog::damage`] names them, and readers go on
//! behind them.
//!
//! Cost: one `pwrite` for each event. To open a log, all of it is read once. To read: `record.rs`,
//! `segment.rs`, and then this file.

mod cursor;
mod name_owners;
mod owner;
mod record;
mod segment;
mod topics;

pub(crate) use cursor::check_consumer_name;
pub use cursor::{AcknowledgedFile, LogCursor, LogEntry};
pub use name_owners::OwnedKind;
pub use owner::give;
pub use record::LoggedEvent;
pub use segment::{FoundRecord, ReadAt, SegmentReader, segment_in_memory};
pub use topics::KeptTopic;

use name_owners::NameOwners;
use record::{MOST_BODY, RECORD_HEAD, write_record};
use rustix::fs::{FlockOperation, flock};
use rustix::rand::{GetRandomFlags, getrandom};
use segment::{SEGMENT_HEAD, SegmentHead};
use std::collections::{HashMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use topics::KeptTopics;
use unisono_linux::clock::Nanos;

/// How much a log keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogBounds {
    /// Bytes of all segments together.
    pub bytes: u64,
    /// Nanoseconds since the publication of the newest event of a segment.
    pub age: Nanos,
}

impl Default for LogBounds {
    /// 256 MiB, seven days.
    fn default() -> Self {
        Self { bytes: 256 << 20, age: Nanos::SECOND.times(7 * 24 * 3600) }
    }
}

impl LogBounds {
    /// An eighth of the log: so much of what is kept goes at a time. At least 4 KiB, so that a small log is
    /// not all heads.
    fn segment(self) -> u64 {
        (self.bytes / 8).clamp(4 << 10, 16 << 20)
    }
}

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    #[error("the log in {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("another broker writes the log in {}; stop it, or choose another directory", path.display())]
    Taken { path: PathBuf },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The event is not in the log.
    #[error("cannot write {}: {source}; make room on the disk, or give the log less (--log-bytes)", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "an event of {bytes} bytes is too large for a log of {most} bytes; publish a smaller one, or give the log more (--log-bytes)"
    )]
    TooLarge { bytes: u64, most: u64 },
    #[error(
        "{}:{line}: {what}; remove the line, and its name belongs to the first identity that uses it",
        path.display()
    )]
    Owners { path: PathBuf, line: usize, what: String },
    #[error("{most} names of consumers and writers have owners, as many as may be; free one")]
    TooManyNames { most: usize },
    /// The disk may have lost what it was told to keep; nothing more is written.
    #[error("the log in {} could not be synced ({reason}) and takes nothing more; start the broker again", path.display())]
    Unsynced { path: PathBuf, reason: String },
}

/// Bytes of a log that are no events.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {bytes} bytes from offset {offset} on are damaged; at least {lost} events before position {next} are lost", path.display())]
pub struct LogDamage {
    pub path: PathBuf,
    pub offset: u64,
    pub bytes: u64,
    /// As far as the positions around them tell.
    pub lost: u64,
    /// The position of the first whole event behind them.
    pub next: u64,
}

/// Files that an `fdatasync` makes durable.
#[derive(Clone, Debug)]
pub struct SyncJob {
    files: Vec<Arc<File>>,
    /// All events before this position are synced then.
    pub before: u64,
}

impl SyncJob {
    /// Waits for the disk.
    ///
    /// # Errors
    /// The disk's. What was written may be lost then, and a second sync would not say so.
    pub fn run(&self) -> io::Result<()> {
        self.files.iter().try_for_each(|file| file.sync_data())
    }
}

#[derive(Debug)]
struct LogSegment {
    path: PathBuf,
    file: Arc<File>,
    head: SegmentHead,
    /// Bytes of it that are used.
    length: u64,
    /// When its newest event was published.
    newest: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct LastOfWriter {
    sequence: u64,
    position: u64,
}

/// What a log has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogCounters {
    pub written: u64,
    /// Events that could not be written.
    pub failed: u64,
    /// Times that the disk was waited for.
    pub syncs: u64,
    /// Bytes that were cut off behind the last whole event.
    pub torn: u64,
}

/// A log that is open for its one writer.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    bounds: LogBounds,
    directory: Arc<File>,
    _lock: File,
    /// The oldest first; the last one is written.
    segments: VecDeque<LogSegment>,
    /// The position of the next event.
    next: u64,
    /// Events before this position are synced.
    synced: u64,
    /// Files that were written or made since the last sync began.
    unsynced: Vec<Arc<File>>,
    /// Each writer on each topic, while an event of it is kept.
    writers: HashMap<String, HashMap<String, LastOfWriter>>,
    owners: NameOwners,
    /// None: nobody has asked for them yet.
    topics: Option<KeptTopics>,
    damage: Vec<LogDamage>,
    broken: Option<String>,
    counters: LogCounters,
    buffer: Vec<u8>,
}

impl EventLog {
    /// Opens the log in a directory, which is made if it is missing, and syncs what it finds.
    ///
    /// # Errors
    /// [`LogError`]; damage is none, see [`damage`](Self::damage).
    pub fn open(path: &Path, bounds: LogBounds) -> Result<Self, LogError> {
        let failed = |source| LogError::Directory { path: path.to_owned(), source };
        let consumers = path.join(cursor::CONSUMERS);
        DirBuilder::new().recursive(true).mode(0o700).create(&consumers).map_err(failed)?;
        let mut lock = OpenOptions::new();
        let lock = lock.write(true).create(true).truncate(false).mode(0o600).open(path.join("lock"));
        let lock = lock.map_err(failed)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(LogError::Taken { path: path.to_owned() });
        }
        let directory = Arc::new(File::open(path).map_err(failed)?);
        let mut names: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let name = entry.map_err(failed)?.path();
            if name.extension().is_some_and(|extension| extension == EXTENSION) {
                names.push(name);
            }
        }
        names.sort_unstable(); // numbers of 20 digits: by position
        let mut log = Self {
            path: path.to_owned(),
            bounds,
            directory,
            _lock: lock,
            segments: VecDeque::new(),
            next: 1,
            synced: 1,
            unsynced: Vec::new(),
            writers: HashMap::new(),
            owners: NameOwners::open(path)?,
            topics: None,
            damage: Vec::new(),
            broken: None,
            counters: LogCounters::default(),
            buffer: Vec::new(),
        };
        let last = names.len().saturating_sub(1);
        for (at, name) in names.into_iter().enumerate() {
            log.take_segment(name, at == last)?;
        }
        if let Some(job) = log.sync() {
            job.run().map_err(failed)?;
            log.synced = job.before;
        }
        Ok(log)
    }

    /// What topics keep, as it was declared before.
    ///
    /// # Errors
    /// The file cannot be read, or written anew.
    pub fn kept_topics(&mut self) -> Result<Vec<KeptTopic>, LogError> {
        let topics = KeptTopics::open(&self.path)?;
        let known = topics.known().cloned().collect();
        self.topics = Some(topics);
        Ok(known)
    }

    /// A topic of the log was declared so. Means nothing before [`kept_topics`](Self::kept_topics).
    ///
    /// # Errors
    /// The disk's; after a restart the topic keeps what was declared before.
    pub fn declared(&mut self, topic: KeptTopic) -> Result<(), LogError> {
        self.topics.as_mut().map_or(Ok(()), |topics| topics.declared(topic))
    }

    /// Reads a segment that is there. One whose head is damaged is left alone.
    fn take_segment(&mut self, path: PathBuf, is_last: bool) -> Result<(), LogError> {
        let refused = |source| LogError::Read { path: path.clone(), source };
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(refused)?;
        let (file, size) = (Arc::new(file), fs::metadata(&path).map_err(refused)?.len());
        let named = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
        let reader = SegmentReader::open(Arc::clone(&file)).map_err(refused)?;
        let Some(mut reader) = reader.filter(|reader| Some(reader.head().first) == named) else {
            if is_last && size <= SEGMENT_HEAD {
                // its creation was cut off: it has no events
                fs::remove_file(&path).map_err(refused)?;
                self.counters.torn += size;
                return Ok(());
            }
            if is_last {
                // it may hold so many events: their positions are never given again
                let most = size / RECORD_HEAD as u64 + 1;
                self.next = self.next.max(named.unwrap_or_default().saturating_add(most));
            }
            self.damage.push(LogDamage { path, offset: 0, bytes: size, lost: 0, next: self.next });
            return Ok(());
        };
        let head = reader.head();
        if head.first > self.next && !self.segments.is_empty() {
            let lost = head.first - self.next;
            self.damage.push(LogDamage { path: path.clone(), offset: 0, bytes: 0, lost, next: head.first });
        }
        let (mut length, mut newest) = (size, Nanos::ZERO);
        loop {
            match reader.next(size).map_err(refused)? {
                FoundRecord::Event { position, .. } => {
                    if let Ok(event) = LoggedEvent::read(reader.body()) {
                        newest = newest.max(event.published);
                        self.heard(&event, position);
                    }
                }
                FoundRecord::Damage { offset, bytes, next } => {
                    let lost = next.saturating_sub(self.next.max(head.first));
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
        self.segments.push_back(LogSegment { path, file, head, length, newest });
        Ok(())
    }

    /// Where bytes were found that are no events, when the log was opened.
    #[must_use]
    pub fn damage(&self) -> &[LogDamage] {
        &self.damage
    }

    #[must_use]
    pub fn counters(&self) -> LogCounters {
        self.counters
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length).sum()
    }

    /// The position of the oldest event that is kept.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.segments.front().map_or(self.next, |segment| segment.head.first)
    }

    /// The position that the next event gets.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The position of the first event that is not synced.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// The last number of a writer on a topic. None: no event of it is kept.
    #[must_use]
    pub fn last_of(&self, topic: &str, writer: &str) -> Option<u64> {
        Some(self.writers.get(topic)?.get(writer)?.sequence)
    }

    fn heard(&mut self, event: &LoggedEvent<'_>, position: u64) {
        if !event.writer.is_empty() {
            if let Some(last) =
                self.writers.get_mut(event.topic).and_then(|writers| writers.get_mut(event.writer))
            {
                *last = LastOfWriter { sequence: event.sequence.max(last.sequence), position };
                return;
            }
            let writers = self.writers.entry(event.topic.to_owned()).or_default();
            let last = LastOfWriter { sequence: event.sequence, position };
            writers.insert(event.writer.to_owned(), last);
        }
    }

    /// Writes an event behind all others; the answer is its position.
    ///
    /// # Errors
    /// The event is not in the log. Later ones may fit.
    pub fn append(&mut self, event: &LoggedEvent<'_>) -> Result<u64, LogError> {
        let written = self.try_append(event);
        match written {
            Ok(_) => self.counters.written += 1,
            Err(_) => self.counters.failed += 1,
        }
        written
    }

    /// Whether it takes events still.
    ///
    /// # Errors
    /// A sync has failed: the disk may lack what the log has, and no later sync would say so.
    pub fn usable(&self) -> Result<(), LogError> {
        match &self.broken {
            Some(reason) => Err(LogError::Unsynced { path: self.path.clone(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn try_append(&mut self, event: &LoggedEvent<'_>) -> Result<u64, LogError> {
        self.usable()?;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut salt = self.segments.back().map_or(0, |segment| segment.head.salt);
        let mut length = write_record(&mut buffer, salt, self.next, event) as u64;
        let most = self.bounds.bytes.min(MOST_BODY as u64).saturating_sub(SEGMENT_HEAD);
        if length > most {
            return Err(LogError::TooLarge { bytes: length, most });
        }
        let full = |segment: &LogSegment| {
            segment.length + length > self.bounds.segment() && segment.length > SEGMENT_HEAD
        };
        if self.segments.back().is_none_or(full) {
            self.make_room(0, length + SEGMENT_HEAD);
            salt = self.roll()?;
            buffer.clear();
            length = write_record(&mut buffer, salt, self.next, event) as u64;
        } else {
            self.make_room(1, length);
        }
        let Some(segment) = self.segments.back_mut() else {
            return Err(LogError::Directory {
                path: self.path.clone(),
                source: io::ErrorKind::NotFound.into(),
            });
        };
        if let Err(source) = segment.file.write_all_at(&buffer, segment.length) {
            // what was written of it is overwritten by the next event, or cut off when the log is opened
            let _ = segment.file.set_len(segment.length);
            return Err(LogError::Write { path: segment.path.clone(), source });
        }
        segment.length += length;
        segment.newest = segment.newest.max(event.published);
        if !self.unsynced.iter().any(|file| Arc::ptr_eq(file, &segment.file)) {
            self.unsynced.push(Arc::clone(&segment.file));
        }
        self.heard(event, self.next);
        buffer.shrink_to(1 << 20); // one large event does not keep its memory
        self.buffer = buffer;
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Begins a segment; the answer is its salt.
    fn roll(&mut self) -> Result<u64, LogError> {
        let path = self.path.join(format!("{:020}.{EXTENSION}", self.next));
        let failed = |source: io::Error| LogError::Write { path: path.clone(), source };
        let mut salt = [0; 8];
        getrandom(&mut salt, GetRandomFlags::empty()).map_err(|error| failed(error.into()))?;
        let head = SegmentHead { salt: u64::from_ne_bytes(salt), first: self.next };
        let mut options = OpenOptions::new();
        // one that is there already has no whole event
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = file.map_err(failed)?;
        if let Err(source) = file.write_all_at(&head.to_bytes(), 0) {
            let _ = fs::remove_file(&path);
            return Err(failed(source));
        }
        let file = Arc::new(file);
        self.unsynced.extend([Arc::clone(&file), Arc::clone(&self.directory)]);
        self.segments.push_back(LogSegment { path, file, head, length: SEGMENT_HEAD, newest: Nanos::ZERO });
        Ok(head.salt)
    }

    /// Removes the oldest segments, but for the newest `keep`, until so many bytes more fit.
    fn make_room(&mut self, keep: usize, bytes: u64) {
        while self.segments.len() > keep && self.bytes() + bytes > self.bounds.bytes {
            self.remove_oldest();
        }
    }

    /// Removes what is too old; `now` counts from 1970.
    ///
    /// # Errors
    /// No new segment can be made for the one that is written and too old.
    pub fn expire(&mut self, now: Nanos) -> Result<(), LogError> {
        let age = self.bounds.age;
        let old = |segment: &LogSegment| segment.length > SEGMENT_HEAD && age.after(segment.newest) < now;
        while self.segments.front().is_some_and(old) {
            if self.segments.len() == 1 {
                self.roll()?;
            }
            self.remove_oldest();
        }
        Ok(())
    }

    fn remove_oldest(&mut self) {
        if let Some(segment) = self.segments.pop_front() {
            // one that is gone needs no removing; one that stays is read when the log is opened again
            let _ = fs::remove_file(&segment.path);
            self.unsynced.retain(|file| !Arc::ptr_eq(file, &segment.file));
            // else each name that ever wrote would take memory until the log is opened again
            let first = self.first();
            self.writers.retain(|_, writers| {
                writers.retain(|_, last| last.position >= first);
                !writers.is_empty()
            });
        }
    }

    /// What has to be synced for all that was written until now. None: nothing, or a sync has failed. Report
    /// the end by [`synced_by`](Self::synced_by).
    pub fn sync(&mut self) -> Option<SyncJob> {
        self.usable().ok()?;
        let files = std::mem::take(&mut self.unsynced);
        (!files.is_empty()).then_some(SyncJob { files, before: self.next })
    }

    /// A sync has ended.
    pub fn synced_by(&mut self, job: &SyncJob, result: Result<(), String>) {
        self.counters.syncs += 1;
        match result {
            Ok(()) if self.broken.is_none() => self.synced = self.synced.max(job.before),
            Ok(()) => {}
            // the kernel has dropped what it could not write, and says so once
            Err(reason) => self.broken = Some(reason),
        }
    }
}

const EXTENSION: &str = "events";
