//! Events of several owners in one log, against a list of all of them: the losses of each owner when the log
//! is full, and the events found when it is opened again.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use unisono_broker::NameOwner;
use unisono_broker::log::{EventLog, LogBounds, LogCursor, LogEntry, LoggedEvent, WallTime};
use unisono_linux::clock::Duration;

const BYTES: u64 = 64 << 10;
/// The bytes of a segment in a log with three chains: a twelfth of the log.
const SEGMENT: u64 = BYTES / 12;
const OWNERS: u32 = 3;
/// When the first events were published.
const START: WallTime = WallTime(1_000_000_000);
/// Bytes of a record of an event of the topic `t` without a payload.
const RECORD: usize = 24 + 41;

fn open(path: &Path) -> EventLog {
    EventLog::open(path, LogBounds { bytes: BYTES, age: Duration::from_secs(3600) }).expect("the log opens")
}

fn append(log: &mut EventLog, owner: u32, payload: &[u8], published: WallTime) -> u64 {
    let chain = log.chain_of(&NameOwner::User(owner)).expect("one is free");
    let event = LoggedEvent { topic: "t", payload, published, ..LoggedEvent::default() };
    log.append_to(chain, &event).expect("there is room")
}

/// Returns the events that a reader finds from a position on, and the positions that it is told are lost.
fn read(log: &EventLog, from: u64) -> (BTreeMap<u64, Vec<u8>>, Vec<u64>) {
    let (mut cursor, mut events, mut lost, mut next) =
        (LogCursor::at(from), BTreeMap::new(), Vec::new(), from);
    while let Some(entry) = log.read(&mut cursor).expect("it can be read") {
        match entry {
            LogEntry::Event { position } => {
                assert_eq!(position, next, "positions ascend without a gap that is not told");
                let event = LoggedEvent::read(cursor.body()).expect("an event");
                events.insert(position, event.payload.to_vec());
                next = position + 1;
            }
            LogEntry::Lost { first, last } => {
                assert_eq!(first, next);
                lost.extend(first..=last);
                next = last + 1;
            }
        }
    }
    assert_eq!(next, log.next().max(from));
    (events, lost)
}

#[derive(Clone, Debug)]
enum Step {
    Append(u32, usize),
    Flood(u32, usize),
    Reopen,
    /// The last write was cut off: this many bytes are missing.
    Tear(u64),
    Expire,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (0..OWNERS, 0_usize..3000).prop_map(|(owner, length)| Step::Append(owner, length)),
        2 => (0..OWNERS, 1_usize..100).prop_map(|(owner, count)| Step::Flood(owner, count)),
        1 => (0..OWNERS, 20_000_usize..60_000).prop_map(|(owner, length)| Step::Append(owner, length)),
        2 => Just(Step::Reopen),
        1 => (1_u64..80).prop_map(Step::Tear),
        1 => Just(Step::Expire),
    ];
    prop::collection::vec(step, 0..80)
}

/// Returns the bytes of the files of a log's segments.
fn on_disk(path: &Path) -> u64 {
    let entries = fs::read_dir(path).expect("a directory").map(|entry| entry.expect("an entry"));
    let segments = entries.filter(|entry| entry.path().extension().is_some_and(|it| it == "events"));
    segments.map(|entry| entry.metadata().expect("it is there").len()).sum()
}

/// Returns the segment that ends with the record at this position, with a payload of this many bytes.
fn ends_with(path: &Path, position: u64, length: usize) -> PathBuf {
    let entries = fs::read_dir(path).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut segments = entries.filter(|path| path.extension().is_some_and(|it| it == "events"));
    let ends = |path: &PathBuf| {
        let bytes = fs::read(path).expect("it can be read");
        // the position follows the magic and the length of the body
        let at = bytes.len().checked_sub(RECORD + length).map(|at| at + 8);
        at.and_then(|at| bytes.get(at..at + 8)) == Some(&position.to_le_bytes())
    };
    segments.find(ends).expect("it is the last one of a segment")
}

proptest! {
    // each case writes and reads files
    #[test]
    fn readers_find_each_event_once_in_order_or_are_told_that_it_is_lost(steps in steps()) {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut log = open(directory.path());
        let mut all: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut now = START;
        let (mut gone, mut wrote) = (0, false);
        for step in steps {
            now = now + Duration::SECOND;
            let appended = match step {
                Step::Append(owner, length) => vec![(owner, vec![owner as u8; length])],
                Step::Flood(owner, count) => vec![(owner, vec![owner as u8; 700]); count],
                Step::Reopen => {
                    let next = log.next();
                    drop(log);
                    log = open(directory.path());
                    prop_assert_eq!(log.next(), next);
                    prop_assert_eq!(log.damage(), []);
                    Vec::new()
                }
                Step::Tear(bytes) => {
                    let last = all.last_key_value().map(|(position, payload)| (*position, payload.len()));
                    let is_last_write = |(position, _): &(u64, usize)| wrote && *position > gone;
                    let Some((position, length)) = last.filter(is_last_write) else { continue };
                    let (next, kept) = (log.next(), read(&log, 1).0);
                    drop(log);
                    let file = ends_with(directory.path(), position, length);
                    let size = fs::metadata(&file).expect("it is there").len();
                    let bytes = bytes.min(length as u64 + 20);
                    let torn = fs::OpenOptions::new().write(true).open(&file).expect("it opens");
                    torn.set_len(size - bytes).expect("it is cut off");
                    log = open(directory.path());
                    let lost: Vec<u64> = kept.keys().copied().filter(|at| !read(&log, 1).0.contains_key(at)).collect();
                    prop_assert!(lost.len() <= 1, "{:?}", lost);
                    // the position of the lost event may be used again, because no supplier got a
                    // confirmation
                    prop_assert!(log.next() == next || log.next() == position);
                    lost.iter().for_each(|at| drop(all.remove(at)));
                    Vec::new()
                }
                Step::Expire => {
                    log.expire(now + Duration::from_secs(7200)).expect("room on the disk");
                    prop_assert_eq!(read(&log, 1).0.len(), 0);
                    gone = log.next() - 1;
                    Vec::new()
                }
            };
            wrote = !appended.is_empty();
            for (owner, payload) in appended {
                let position = append(&mut log, owner, &payload, now);
                prop_assert!(all.insert(position, payload).is_none(), "a position twice: {}", position);
            }
            prop_assert!(log.bytes() <= BYTES, "{}", log.bytes());
            prop_assert_eq!(on_disk(directory.path()), log.bytes());
        }
        let (events, lost) = read(&log, 1);
        for (position, payload) in &events {
            prop_assert_eq!(all.get(position), Some(payload));
        }
        prop_assert!(lost.iter().all(|position| !events.contains_key(position)));
        // a reader from any position finds the same events
        for from in [2, log.next() / 2, log.next()] {
            let rest: BTreeMap<_, _> = events.range(from..).map(|(at, payload)| (*at, payload.clone())).collect();
            prop_assert_eq!(read(&log, from.max(1)).0, rest);
        }
    }

    /// Each owner keeps a third of the log, less a segment, or all that it has written.
    #[test]
    fn an_owner_loses_events_only_while_it_has_the_most(
        rounds in prop::collection::vec((0..OWNERS, 1_usize..60, 1_usize..1500), 1..60),
    ) {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut log = open(directory.path());
        for owner in 0..OWNERS {
            append(&mut log, owner, &[owner as u8], START);
        }
        let mut written = [0_u64; OWNERS as usize];
        for (owner, count, length) in rounds {
            for _ in 0..count {
                append(&mut log, owner, &vec![owner as u8; length], START);
                written[owner as usize] += length as u64;
            }
        }
        let mut kept = [0_u64; OWNERS as usize];
        for payload in read(&log, 1).0.values() {
            kept[payload[0] as usize] += payload.len() as u64;
        }
        for owner in 0..OWNERS as usize {
            // an event of one byte takes 66, and a segment may be full but for one event
            let least = written[owner].min((BYTES / u64::from(OWNERS) - 2 * SEGMENT) / (RECORD as u64 + 1));
            prop_assert!(kept[owner] >= least, "{} of {} bytes of owner {}", kept[owner], written[owner], owner);
        }
    }
}

#[test]
fn a_flood_of_one_owner_leaves_another_one_s_events_alone() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut log = open(directory.path());
    let order = |log: &mut EventLog, number: u8| append(log, 0, &[number; 40], START);
    let orders: Vec<u64> = (0..10).map(|number| order(&mut log, number)).collect();
    for _ in 0..300 {
        append(&mut log, 1, &[9; 16_000], START);
    }
    for _ in 0..2 {
        let (events, _) = read(&log, 1);
        assert!(orders.iter().all(|position| events.contains_key(position)));
        assert!(events.len() > 12, "the flood has the rest");
        drop(log);
        log = open(directory.path());
    }
    // alone, an owner has all of it
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut log = open(directory.path());
    for _ in 0..300 {
        append(&mut log, 1, &[9; 1000], START);
    }
    assert!(log.bytes() > BYTES / 8 * 7, "{}", log.bytes());
}

#[test]
fn an_owner_beyond_the_chains_is_refused_and_pushes_nobody_out_until_a_chain_is_empty() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let bounds = LogBounds { bytes: 4 << 20, age: Duration::from_secs(3600) };
    let started = || EventLog::open(directory.path(), bounds).expect("the log opens");
    let mut log = started();
    for owner in 0..256 {
        append(&mut log, owner, b"x", START);
    }
    let flood = LoggedEvent { topic: "t", payload: &[7; 16_000], ..LoggedEvent::default() };
    for restarts in [false, true] {
        if restarts {
            drop(log);
            log = started();
        }
        let chains: std::collections::BTreeSet<_> =
            (0..256).map(|owner| log.chain_of(&NameOwner::User(owner)).expect("its own")).collect();
        assert_eq!(chains.len(), 256);
        for owner in 256..300 {
            log.has_chain_for(&NameOwner::User(owner)).expect_err("none is left");
            for _ in 0..20 {
                let refused = log.append_of(&NameOwner::User(owner), &flood).expect_err("none is left");
                assert!(refused.to_string().contains("keeps events of 256 identities"), "{refused}");
            }
        }
        assert_eq!((read(&log, 1).0.len(), log.counters().failed), (256, 880));
    }
    log.expire(WallTime::default() + Duration::from_secs(7200)).expect("room on the disk");
    log.has_chain_for(&NameOwner::User(299)).expect("they are empty");
    let chain = log.chain_of(&NameOwner::User(299)).expect("they are empty");
    assert_ne!(chain, log.chain_of(&NameOwner::User(298)).expect("they are empty"));
}

#[test]
fn a_log_that_was_written_before_there_were_owners_is_read_and_gives_its_room_away() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut log = open(directory.path());
    for number in 0..20_u8 {
        log.append(&LoggedEvent { topic: "t", payload: &[number; 1000], ..LoggedEvent::default() })
            .expect("room");
    }
    drop(log);
    assert!(!directory.path().join("owners").exists());
    let mut log = open(directory.path());
    assert_eq!(log.damage(), []);
    append(&mut log, 1, b"new", START);
    assert_eq!(read(&log, 1).0.len(), 21);
    for _ in 0..60 {
        append(&mut log, 1, &[7; 1000], START);
    }
    let (events, lost) = read(&log, 1);
    let old = events.keys().filter(|position| **position <= 20).count();
    assert!((10..=20).contains(&old), "{old} of the old ones; {lost:?} are lost");
}
