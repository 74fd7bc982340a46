//! The event log: published events on disk, bounded by bytes and age. The log has one writer.
//!
//! ```text
//!   DIRECTORY/lock                        held by the writer
//!            /00000000000000000001.events   a segment: the events from position 1 on
//!            /00000000000000004711.events   the segment that is written
//!            /consumers/NAME                the last position that a named consumer has acknowledged
//!            /consumers/NAME@DIGEST         the same, of a later owner of the name
//!            /owners                        the owners of the names of consumers and writers
//!            /topics                        the history that topics keep for late consumers
//!            /sessions/DIGEST               an MQTT session that outlives its connection
//!            /clock                         a boot, and the lead of the log's time over its monotonic clock
//! ```
//! Each event has a *position*: 1, 2, 3 and so on, over all topics. An event is *written* when `pwrite(2)`
//! has returned: it survives the end of the broker, but not a power failure. It is *synced* when a later
//! `fdatasync(2)` has returned. [`EventLog::sync`] hands out the files to sync, so that another thread can
//! wait for the disk; one sync serves all events written before it.
//!
//! **Bounds.** The events of each owner have segments of their own, a *chain* (`chain.rs`). Segments are
//! removed whole. When the log would exceed its bytes, the largest chain loses its oldest segment; a segment
//! whose newest event is too old is removed, too. Events that were acknowledged as durable become too old
//! only if the operator has set an age. A reader whose next event was removed is told the missing range.
//!
//! **Damage.** When a log is opened, a torn record behind its last whole event is cut off. Damaged bytes in
//! front of whole events stay in the file; [`EventLog::damage`] lists them, and readers continue behind them.
//! Positions of events that a power failure has taken are not assigned again if a consumer or a session has
//! them: the consumer or session would take a later event for an event that it has had.
//!
//! Cost: one `pwrite` for each event. Opening a log reads all of it once. Reading order of the files:
//! `record.rs`, `segment.rs`, and then this file.

mod chain;
mod cursor;
mod error;
mod hand_over;
mod line_file;
mod log_time;
mod name_owners;
mod own_file;
mod owned;
mod owner;
mod record;
mod segment;
mod session_lines;
mod sessions;
mod topics;
mod wall_time;

pub use cursor::{AcknowledgedFile, LogCursor, LogEntry};
pub(crate) use cursor::{BEFORE_OWNER, check_consumer_name};
pub use error::{LogDamage, LogError};
pub use owned::{ChainNumber, OwnedKind};
pub use owner::change_owner;
pub use record::{LoggedEvent, LoggedMessage};
pub use segment::{FoundRecord, ReadAt, SegmentReader, segment_in_memory};
pub use session_lines::{
    SavedFlight, SavedSession, SavedSubscription, SessionHead, SessionLine, SessionPeer,
};
pub(crate) use sessions::session_file;
pub use sessions::{FoundSession, SessionSync};
pub use topics::KeptTopic;
pub use wall_time::WallTime;

use crate::name_owner::NameOwner;
use chain::{LogChain, LogSegment, Spared};
use hand_over::LogFiles;
use name_owners::NameOwners;
use record::{MAX_BODY, write_record};
use rustix::fs::{FlockOperation, flock};
use rustix::rand::{GetRandomFlags, getrandom};
use segment::{SEGMENT_HEAD, SegmentHead};
use sessions::SessionFiles;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use topics::KeptTopics;
use unisono_linux::clock::Duration;

/// The maximum age of events whose durability no supplier was promised, if the operator sets no age. A week
/// of events is enough to find out what happened. Chosen, not measured.
const UNACKNOWLEDGED_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The bounds of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogBounds {
    /// Bytes of all segments together.
    pub bytes: u64,
    /// The maximum age of the newest event of a segment. [`Duration::MAX`]: events that were acknowledged as
    /// durable are never removed because of their age.
    pub age: Duration,
}

impl Default for LogBounds {
    /// Returns the default bounds: 256 MiB; events that were acknowledged as durable are never removed
    /// because of their age.
    fn default() -> Self {
        Self { bytes: 256 << 20, age: Duration::MAX }
    }
}

impl LogBounds {
    /// Returns the maximum age of a segment's newest event.
    fn age_of(self, acknowledged: bool) -> Duration {
        if acknowledged || self.age != Duration::MAX { self.age } else { UNACKNOWLEDGED_AGE }
    }

    /// Returns the bytes at which a segment is full: an eighth of the log's, because only whole segments are
    /// removed, but at least [`MIN_SEGMENT`] and at most 16 MiB.
    fn segment(self) -> u64 {
        (self.bytes / 8).clamp(MIN_SEGMENT, 16 << 20)
    }
}

/// Files that an `fdatasync` makes durable.
#[derive(Clone, Debug)]
pub struct SyncJob {
    files: Vec<Arc<File>>,
    /// All events before this position are synced by the job.
    pub before: u64,
    /// The number of the job: 1, 2, 3 and so on.
    pub(crate) number: u64,
}

impl SyncJob {
    /// Waits for the disk.
    ///
    /// # Errors
    /// The disk's error. Written events may be lost then, and a second sync would not report it.
    pub fn run(&self) -> io::Result<()> {
        self.files.iter().try_for_each(|file| file.sync_data())
    }
}

#[derive(Clone, Copy, Debug)]
struct LastOfWriter {
    sequence: u64,
    position: u64,
    chain: ChainNumber,
}

/// Counters of a log since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogCounters {
    pub written: u64,
    /// Events that could not be written.
    pub failed: u64,
    /// Syncs that have ended.
    pub syncs: u64,
    /// Bytes cut off behind the last whole event.
    pub torn: u64,
}

/// A log that is open for its one writer.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    bounds: LogBounds,
    directory: Arc<File>,
    lock: File,
    chains: BTreeMap<ChainNumber, LogChain>,
    owned_chains: HashMap<NameOwner, ChainNumber>,
    /// The number of chains assigned to owners since the log was opened.
    chains_given: u64,
    /// Whether no chain was free at the last search, and none has become free since.
    chains_are_full: bool,
    /// Bytes of all segments.
    bytes: u64,
    /// Bytes at which a segment is full: the next event begins another one.
    segment_bytes: u64,
    /// The position of the next event.
    next: u64,
    /// The position behind the last event found when the log was opened.
    found_end: u64,
    /// Events before this position are synced.
    synced: u64,
    /// Files written or created since the last sync began.
    unsynced: Vec<Arc<File>>,
    /// By topic and writer: the last event of each writer, while the log keeps an event of it.
    writers: HashMap<String, HashMap<String, LastOfWriter>>,
    owners: NameOwners,
    /// `None`: [`kept_topics`](Self::kept_topics) has not been called.
    topics: Option<KeptTopics>,
    /// `None`: [`saved_sessions`](Self::saved_sessions) has not been called.
    sessions: Option<SessionFiles>,
    /// The files when the log was last unlocked.
    handed_over: LogFiles,
    /// The number of syncs that have begun.
    sync_jobs: u64,
    damage: Vec<LogDamage>,
    broken: Option<String>,
    counters: LogCounters,
    buffer: Vec<u8>,
}

impl Drop for EventLog {
    /// Releases the lock itself: a child process that is between fork and exec has a copy of the descriptor,
    /// which would keep the lock.
    fn drop(&mut self) {
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl EventLog {
    /// Opens the log in a directory, which is created if it is missing, and syncs its segments.
    ///
    /// # Errors
    /// [`LogError`], also if other users could put files into the directory. Damage is no error, see
    /// [`damage`](Self::damage).
    pub fn open(path: &Path, bounds: LogBounds) -> Result<Self, LogError> {
        let failed = |source| LogError::Directory { path: path.to_owned(), source };
        own_file::make_directory(path, &[cursor::CONSUMERS, sessions::SESSIONS])?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = own_file::open(options, &path.join("lock")).map_err(failed)?;
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
        names.sort_unstable(); // names are numbers of 20 digits, so this is the order of positions
        let mut log = Self {
            path: path.to_owned(),
            bounds,
            directory,
            lock,
            chains: BTreeMap::new(),
            owned_chains: HashMap::new(),
            chains_given: 0,
            chains_are_full: false,
            bytes: 0,
            segment_bytes: bounds.segment(),
            next: 1,
            found_end: 1,
            synced: 1,
            unsynced: Vec::new(),
            writers: HashMap::new(),
            owners: NameOwners::open(path)?,
            topics: None,
            sessions: None,
            handed_over: LogFiles::new(),
            sync_jobs: 0,
            damage: Vec::new(),
            broken: None,
            counters: LogCounters::default(),
            buffer: Vec::new(),
        };
        log.take_segments(names)?;
        log.found_end = log.next;
        for position in log.acknowledged_positions().map_err(failed)? {
            log.pass(position);
        }
        log.owned_chains = log.owners.chains();
        if let Some(job) = log.sync() {
            job.run().map_err(failed)?;
            log.synced = job.before;
        }
        Ok(log)
    }

    /// Returns the topics that were declared before, with the history that each keeps.
    ///
    /// # Errors
    /// The file cannot be read or rewritten.
    pub fn kept_topics(&mut self) -> Result<Vec<KeptTopic>, LogError> {
        let topics = KeptTopics::open(&self.path)?;
        let known = topics.known().cloned().collect();
        self.topics = Some(topics);
        Ok(known)
    }

    /// Records the declaration of a topic. Has no effect before [`kept_topics`](Self::kept_topics).
    ///
    /// # Errors
    /// The disk's error, or the declarations of its owner or of all are at their limit; after a restart the
    /// topic has its earlier declaration.
    pub fn declared(&mut self, topic: KeptTopic) -> Result<(), LogError> {
        self.topics.as_mut().map_or(Ok(()), |topics| topics.declared(topic))
    }

    /// Returns whether the declaration of a topic would change nothing, whoever owns the topic.
    pub fn has_declared(&self, topic: &KeptTopic) -> bool {
        self.topics.as_ref().is_none_or(|topics| topics.has_declared(topic))
    }

    /// Returns the owner of the events of each chain that has one.
    pub fn chain_owners(&self) -> HashMap<ChainNumber, NameOwner> {
        self.owned_chains.iter().map(|(owner, chain)| (*chain, owner.clone())).collect()
    }

    /// Forgets the declarations of topics.
    ///
    /// # Errors
    /// The disk's error; after a restart the topics have their declarations.
    pub fn forget_topics<'a>(&mut self, topics: impl Iterator<Item = &'a str>) -> Result<(), LogError> {
        self.topics.as_mut().map_or(Ok(()), |known| known.forget(topics))
    }

    /// Reads the existing segments, in the order of their names.
    fn take_segments(&mut self, names: Vec<PathBuf>) -> Result<(), LogError> {
        let last = names.len().saturating_sub(1);
        let mut found = Vec::new();
        for (at, name) in names.into_iter().enumerate() {
            found.extend(self.find_segment(name, at == last)?);
        }
        let last_of: HashMap<ChainNumber, usize> =
            found.iter().enumerate().map(|(at, segment)| (segment.chain(), at)).collect();
        let is_only_chain = last_of.len() <= 1 && self.owners.chains().len() <= 1;
        for (at, segment) in found.into_iter().enumerate() {
            let is_last = last_of.get(&segment.chain()) == Some(&at);
            self.take_segment(segment, is_last, is_only_chain)?;
        }
        self.fit_segments();
        Ok(())
    }

    /// Returns the damaged ranges found when the log was opened.
    pub fn damage(&self) -> &[LogDamage] {
        &self.damage
    }

    pub fn counters(&self) -> LogCounters {
        self.counters
    }

    /// Returns the number of bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the position of the oldest event in the log.
    pub fn first(&self) -> u64 {
        self.chains.values().filter_map(LogChain::first).min().unwrap_or(self.next)
    }

    /// Returns the position that the next event gets.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the position behind the last event found when the log was opened.
    pub(crate) fn found_end(&self) -> u64 {
        self.found_end
    }

    /// Makes the log assign no position up to this one. A consumer or a session that has had an event takes
    /// its position for done; a power failure may have taken the event from the log, but not that file.
    fn pass(&mut self, position: u64) {
        if (self.next..MAX_POSITION).contains(&position) {
            let is_synced = self.synced == self.next;
            self.next = position + 1;
            if is_synced {
                self.synced = self.next;
            }
        }
    }

    /// Returns the position of the first event that is not synced.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Returns the highest event number of a writer on a topic, or `None` if the log has no event of the
    /// writer.
    pub fn last_of(&self, topic: &str, writer: &str) -> Option<u64> {
        Some(self.writers.get(topic)?.get(writer)?.sequence)
    }

    fn note_writer(&mut self, event: &LoggedEvent<'_>, position: u64, chain: ChainNumber) {
        if event.writer.is_empty() {
            return;
        }
        let known = self.writers.get_mut(event.topic).and_then(|writers| writers.get_mut(event.writer));
        if let Some(last) = known {
            last.sequence = event.sequence.max(last.sequence);
            // when a log is opened, a whole segment is read before the next one, and the positions of
            // segments of different chains overlap
            if position > last.position {
                (last.position, last.chain) = (position, chain);
            }
            return;
        }
        let writers = self.writers.entry(event.topic.to_owned()).or_default();
        let last = LastOfWriter { sequence: event.sequence, position, chain };
        writers.insert(event.writer.to_owned(), last);
    }

    /// Appends an event without an owner; returns its position.
    ///
    /// # Errors
    /// The event is not in the log. A later event may fit.
    pub fn append(&mut self, event: &LoggedEvent<'_>) -> Result<u64, LogError> {
        self.append_to(ChainNumber::default(), event)
    }

    /// Appends an event of an owner; returns its position.
    ///
    /// # Errors
    /// [`LogError`]; the event is not in the log.
    pub fn append_of(&mut self, owner: &NameOwner, event: &LoggedEvent<'_>) -> Result<u64, LogError> {
        let chain = self.chain_of(owner).inspect_err(|_| self.counters.failed += 1)?;
        self.append_to(chain, event)
    }

    /// Appends an event to the [chain](Self::chain_of) of its owner; returns its position.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_to(&mut self, chain: ChainNumber, event: &LoggedEvent<'_>) -> Result<u64, LogError> {
        let written = self.try_append(chain, event);
        match written {
            Ok(_) => self.counters.written += 1,
            Err(_) => self.counters.failed += 1,
        }
        written
    }

    /// Checks whether the log still accepts events.
    ///
    /// # Errors
    /// A sync has failed: the disk may lack written events, and no later sync would report that.
    pub fn usable(&self) -> Result<(), LogError> {
        match &self.broken {
            Some(reason) => Err(LogError::Unsynced { path: self.path.clone(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn try_append(&mut self, chain: ChainNumber, event: &LoggedEvent<'_>) -> Result<u64, LogError> {
        self.usable()?;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let last = self.chains.get(&chain).and_then(|chain| chain.segments.back());
        let mut salt = last.map_or(0, |segment| segment.head.salt);
        let mut length = write_record(&mut buffer, salt, self.next, event) as u64;
        let most = self.bounds.bytes.min(MAX_BODY as u64).saturating_sub(SEGMENT_HEAD);
        if length > most {
            return Err(LogError::TooLarge { bytes: length, most });
        }
        let full = |segment: &LogSegment| {
            segment.length + length > self.segment_bytes && segment.length > SEGMENT_HEAD
        };
        let begins = last.is_none_or(full);
        if begins || !self.make_room((chain, 1), length, Spared::Newest) {
            // a full disk has room for the new segment only after older segments were removed
            self.make_room((chain, 0), length + SEGMENT_HEAD, Spared::Newest);
            salt = self.roll(chain)?;
            self.make_room((chain, 1), length, Spared::Nothing);
            buffer.clear();
            length = write_record(&mut buffer, salt, self.next, event) as u64;
        }
        let Some(segment) = self.chains.get_mut(&chain).and_then(|chain| chain.segments.back_mut()) else {
            return Err(LogError::Directory {
                path: self.path.clone(),
                source: io::ErrorKind::NotFound.into(),
            });
        };
        if let Err(source) = segment.file.write_all_at(&buffer, segment.length) {
            // the next event overwrites the partial record, or the next opening cuts it off
            let _ = segment.file.set_len(segment.length);
            return Err(LogError::Write { path: segment.path.clone(), source });
        }
        segment.length += length;
        segment.last = self.next;
        segment.newest = segment.newest.max(event.published);
        segment.acknowledged |= event.acknowledged;
        self.bytes += length;
        add_once(&mut self.unsynced, &segment.file);
        self.note_writer(event, self.next, chain);
        buffer.shrink_to(1 << 20); // one large event does not keep its memory
        self.buffer = buffer;
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Begins a segment of a chain; returns its salt.
    fn roll(&mut self, chain: ChainNumber) -> Result<u64, LogError> {
        let path = self.path.join(format!("{:020}.{EXTENSION}", self.next));
        let failed = |source: io::Error| LogError::Write { path: path.clone(), source };
        let mut salt = [0; 8];
        getrandom(&mut salt, GetRandomFlags::empty()).map_err(|error| failed(error.into()))?;
        let head = SegmentHead { salt: u64::from_ne_bytes(salt), first: self.next, chain };
        // a segment that begins at this position has no event; the new segment takes its file name
        let empty = |segment: &LogSegment| segment.head.first == self.next;
        let is_empty = |chain: &LogChain| chain.segments.back().is_some_and(empty);
        if let Some(chain) = self.chains.values_mut().find(|chain| is_empty(chain))
            && let Some(segment) = chain.segments.pop_back()
        {
            self.bytes -= segment.length;
            self.chains_are_full &= !chain.segments.is_empty();
            self.unsynced.retain(|file| !Arc::ptr_eq(file, &segment.file));
            // the new segment takes the name even if the removal fails
            let _ = fs::remove_file(&path);
        }
        let mut options = OpenOptions::new();
        // an existing file of this name has no whole event
        let options = options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = own_file::open(options, &path).map_err(failed)?;
        if let Err(source) = file.write_all_at(&head.to_bytes(), 0) {
            let _ = fs::remove_file(&path);
            return Err(failed(source));
        }
        let file = Arc::new(file);
        self.unsynced.extend([Arc::clone(&file), Arc::clone(&self.directory)]);
        let (length, last) = (SEGMENT_HEAD, self.next - 1);
        self.bytes += length;
        let (newest, acknowledged) = (WallTime::default(), false);
        let segment = LogSegment { path, file, head, length, last, newest, acknowledged };
        self.chains.entry(chain).or_default().segments.push_back(segment);
        self.fit_segments();
        Ok(head.salt)
    }

    /// Returns the files to sync for all events written so far, or `None` if all are synced or a sync has
    /// failed. Report the end of the job with [`synced_by`](Self::synced_by).
    pub fn sync(&mut self) -> Option<SyncJob> {
        self.usable().ok()?;
        let files = std::mem::take(&mut self.unsynced);
        if files.is_empty() {
            return None;
        }
        self.sync_jobs += 1;
        Some(SyncJob { files, before: self.next, number: self.sync_jobs })
    }

    /// Returns the number that the next sync has.
    pub(crate) fn next_sync(&self) -> u64 {
        self.sync_jobs + 1
    }

    /// Records the end of a sync.
    pub fn synced_by(&mut self, job: &SyncJob, result: Result<(), String>) {
        self.counters.syncs += 1;
        match result {
            Ok(()) if self.broken.is_none() => self.synced = self.synced.max(job.before),
            Ok(()) => {}
            // the kernel has dropped pages that it could not write, and reports that only once
            Err(reason) => self.broken = Some(reason),
        }
    }
}

/// Adds a file to the files that have to be synced.
fn add_once(files: &mut Vec<Arc<File>>, file: &Arc<File>) {
    if !files.iter().any(|other| Arc::ptr_eq(other, file)) {
        files.push(Arc::clone(file));
    }
}

const EXTENSION: &str = "events";
/// No log has as many events; a file with a greater position is damaged.
const MAX_POSITION: u64 = 1 << 62;
/// The least number of bytes at which a segment is full. Smaller segments would hold few events for each file
/// and head. Chosen, not measured.
const MIN_SEGMENT: u64 = 4 << 10;
