//! The log compared with a list of all events, with writes cut off at each byte and bytes changed.

use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use unisono_broker::log::{EventLog, LogBounds, LogCursor, LogEntry, LogError, LoggedEvent, WallTime};
use unisono_linux::clock::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const WIDE: LogBounds = LogBounds { bytes: 16 << 20, age: Duration::MAX };

fn open(path: &Path, bounds: LogBounds) -> EventLog {
    EventLog::open(path, bounds).expect("the log opens")
}

fn append(log: &mut EventLog, payload: &[u8]) -> u64 {
    log.append(&LoggedEvent { topic: "t", payload, ..LoggedEvent::default() }).expect("there is room")
}

/// A position and a payload.
type KeptEvent = (u64, Vec<u8>);

/// Returns the reader's output from a position on: events with their payloads, and lost ranges.
fn read(log: &EventLog, from: u64) -> (Vec<KeptEvent>, Vec<(u64, u64)>) {
    let (mut cursor, mut events, mut lost) = (LogCursor::at(from), Vec::new(), Vec::new());
    while let Some(entry) = log.read(&mut cursor).expect("it can be read") {
        match entry {
            LogEntry::Event { position } => {
                let event = LoggedEvent::read(cursor.body()).expect("an event");
                events.push((position, event.payload.to_vec()));
            }
            LogEntry::Lost { first, last } => lost.push((first, last)),
        }
    }
    (events, lost)
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut names: Vec<_> =
        entries.filter(|name| name.extension().is_some_and(|it| it == "events")).collect();
    names.sort_unstable();
    names
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Sync,
    Reopen,
    /// The last write was cut off: this many bytes are missing at the end of the file.
    Tear(u64),
    /// Bytes that a power failure leaves behind the last complete event.
    Rubbish(Vec<u8>),
    Read(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..900_usize).prop_map(Step::Append),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
        1 => (1..1500_u64).prop_map(Step::Tear),
        1 => prop::collection::vec(any::<u8>(), 1..200).prop_map(Step::Rubbish),
        2 => (0..80_u64).prop_map(Step::Read),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #[test]
    fn the_log_is_the_end_of_a_list_of_all_events(steps in steps(), bytes in prop::sample::select(vec![20_000_u64, 1 << 20])) {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let bounds = LogBounds { bytes, age: Duration::MAX };
        let mut log = Some(open(directory.path(), bounds));
        // position 1 is the first event
        let mut model: Vec<Vec<u8>> = Vec::new();
        for (count, step) in steps.into_iter().enumerate() {
            let mut opened = log.take().expect("it is open");
            match step {
                Step::Append(length) => {
                    model.push(vec![count as u8; length]);
                    prop_assert_eq!(append(&mut opened, &model[model.len() - 1]), model.len() as u64);
                }
                Step::Sync => {
                    if let Some(job) = opened.sync() {
                        job.run().expect("the disk is sound");
                        opened.synced_by(&job, Ok(()));
                    }
                    prop_assert_eq!(opened.synced(), opened.next());
                }
                Step::Read(from) => {
                    let (events, lost) = read(&opened, from);
                    let first = opened.first().max(from).max(1);
                    let expected: Vec<_> =
                        (1..).zip(model.iter().cloned()).skip_while(|(position, _)| *position < first).collect();
                    prop_assert_eq!(events, expected);
                    let gone = from.max(1)..opened.first();
                    let expected = (!gone.is_empty()).then(|| (gone.start, gone.end - 1));
                    prop_assert_eq!(lost, Vec::from_iter(expected));
                }
                Step::Reopen | Step::Tear(_) | Step::Rubbish(_) => {
                    let first = opened.first();
                    drop(opened);
                    if let Some(last) = segments(directory.path()).pop() {
                        let file = fs::OpenOptions::new().write(true).open(&last).expect("a segment");
                        let length = file.metadata().expect("a file").len();
                        match step {
                            Step::Tear(cut) => file.set_len(length.saturating_sub(cut)).expect("it is cut"),
                            Step::Rubbish(ref bytes) => {
                                use std::os::unix::fs::FileExt;
                                file.write_all_at(bytes, length).expect("it is written");
                            }
                            _ => {}
                        }
                    }
                    opened = open(directory.path(), bounds);
                    prop_assert!(opened.damage().is_empty(), "{:?}", opened.damage());
                    // only the end may be lost, and only after a cut
                    let kept = opened.next() as usize - 1;
                    let whole = matches!(step, Step::Tear(_)) || kept == model.len();
                    prop_assert!(whole && kept <= model.len(), "{} of {}", kept, model.len());
                    prop_assert!(opened.first() == first || opened.first() == opened.next());
                    model.truncate(kept);
                }
            }
            prop_assert!(opened.bytes() <= bytes);
            log = Some(opened);
        }
    }
}

#[test]
fn a_log_that_is_cut_off_at_any_byte_opens_to_the_last_whole_event_and_goes_on() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let source = directory.path().join("source");
    let mut log = open(&source, WIDE);
    let mut ends = vec![0];
    for length in [0, 1, 40, 3, 200] {
        append(&mut log, &vec![7; length]);
        ends.push(log.bytes());
    }
    drop(log);
    let [segment] = &segments(&source)[..] else { panic!("one segment") };
    let bytes = fs::read(segment).expect("a file");
    let torn = directory.path().join("torn");
    fs::create_dir(&torn).expect("a directory");
    for length in 0..=bytes.len() {
        let copy = torn.join(segment.file_name().expect("a name"));
        fs::write(&copy, &bytes[..length]).expect("a copy");
        let mut log = open(&torn, WIDE);
        let whole = ends.iter().skip(1).filter(|end| **end <= length as u64).count() as u64;
        assert!(log.damage().is_empty());
        assert_eq!((log.next(), read(&log, 1).0.len() as u64), (whole + 1, whole), "{length} bytes");
        assert_eq!(append(&mut log, b"next"), whole + 1);
        drop(log);
        let log = open(&torn, WIDE);
        assert_eq!(read(&log, 1).0.last(), Some(&(whole + 1, b"next".to_vec())), "{length} bytes");
        drop(log);
        segments(&torn).into_iter().for_each(|name| fs::remove_file(name).expect("it is there"));
    }
}

#[test]
fn a_changed_byte_in_the_middle_costs_one_event_and_is_named() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut log = open(directory.path(), WIDE);
    let mut starts = Vec::new();
    for number in 0..5_u8 {
        // the payload looks like a record, and must not be taken for one
        starts.push(log.bytes().max(32));
        append(&mut log, &[[number; 30].as_slice(), b"\xb5uEv\x01\0\0\0"].concat());
    }
    let end = log.bytes();
    starts.push(end);
    drop(log);
    let segment = segments(directory.path()).remove(0);
    let sound = fs::read(&segment).expect("a file");
    for at in 32..starts[4] as usize {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        fs::write(&segment, bytes).expect("it is written");
        let hit = starts.iter().rposition(|start| *start <= at as u64).expect("behind the head") as u64 + 1;
        let log = open(directory.path(), WIDE);
        let (events, lost) = read(&log, 1);
        let positions: Vec<u64> = events.iter().map(|(position, _)| *position).collect();
        assert_eq!(positions, (1..6).filter(|position| *position != hit).collect::<Vec<_>>(), "byte {at}");
        assert_eq!(lost, [(hit, hit)], "byte {at}");
        let [damage] = log.damage() else { panic!("{:?}", log.damage()) };
        let from = starts[hit as usize - 1];
        assert_eq!((&damage.path, damage.offset, damage.lost), (&segment, from, 1));
        assert_eq!(damage.offset + damage.bytes, starts[hit as usize]);
        assert!(damage.to_string().contains(&format!("from offset {from} on")), "{damage}");
    }
}

#[test]
fn a_segment_without_a_head_is_named_and_the_others_are_read() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let bounds = LogBounds { bytes: 40_000, age: Duration::MAX };
    let mut log = open(directory.path(), bounds);
    for _ in 0..20 {
        append(&mut log, &[1; 1000]);
    }
    drop(log);
    let names = segments(directory.path());
    assert!(names.len() > 2, "{names:?}");
    let mut bytes = fs::read(&names[1]).expect("a file");
    bytes[3] ^= 1;
    fs::write(&names[1], bytes).expect("it is written");
    let log = open(directory.path(), bounds);
    let numbers: Vec<u64> = names
        .iter()
        .map(|name| name.file_stem().and_then(|it| it.to_str()?.parse().ok()).expect("a number"))
        .collect();
    let (events, lost) = read(&log, 1);
    assert_eq!(lost, [(numbers[1], numbers[2] - 1)]);
    assert_eq!(events.len() as u64 + numbers[2] - numbers[1], 20);
    assert!(log.damage().iter().any(|damage| damage.path == names[1]), "{:?}", log.damage());
    assert!(names[1].exists(), "nothing that is damaged is removed");
    drop(log);
    let newest = &names[names.len() - 1];
    let mut bytes = fs::read(newest).expect("a file");
    bytes[3] ^= 1;
    fs::write(newest, &bytes).expect("it is written");
    let position = append(&mut open(directory.path(), bounds), b"x");
    assert!(position > 20, "the positions of damaged events are not given again");
    assert_eq!(fs::read(newest).expect("a file"), bytes, "nothing that is damaged is overwritten");
}

#[test]
fn a_log_has_one_writer() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let first = open(directory.path(), WIDE);
    let second = EventLog::open(directory.path(), WIDE).expect_err("it is taken");
    assert!(matches!(second, LogError::Taken { .. }), "{second}");
    drop(first);
    open(directory.path(), WIDE);
}

#[test]
fn what_is_too_old_goes_and_positions_go_on() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut log = open(directory.path(), LogBounds { bytes: 1 << 20, age: HOUR });
    let event = |published| LoggedEvent { topic: "t", published, ..LoggedEvent::default() };
    for at in [HOUR, HOUR * 2].map(|age| WallTime::default() + age) {
        log.append(&event(at)).expect("there is room");
    }
    log.expire(WallTime::default() + HOUR * 3).expect("there is room");
    assert_eq!((log.first(), log.next()), (1, 3), "the newest is an hour old");
    log.expire(WallTime::default() + HOUR * 3 + Duration::from_nanos(1)).expect("there is room");
    assert_eq!((log.first(), log.next()), (3, 3));
    drop(log);
    assert_eq!(append(&mut open(directory.path(), WIDE), b"x"), 3);
}

#[test]
fn what_was_acknowledged_goes_by_age_only_on_request_and_the_range_that_went_is_told() {
    let (week, directory) = (HOUR * (7 * 24), tempfile::tempdir().expect("a scratch directory"));
    let owners = [1, 2].map(unisono_broker::NameOwner::User);
    let append = |log: &mut EventLog, of: usize, acknowledged| {
        let event = LoggedEvent { topic: "t", acknowledged, payload: &[of as u8], ..LoggedEvent::default() };
        log.append_of(&owners[of], &event).expect("there is room");
    };
    let mut log = open(directory.path(), WIDE);
    for (of, acknowledged) in [(0, false), (1, true), (1, false), (0, false), (1, true)] {
        append(&mut log, of, acknowledged);
    }
    drop(log);
    // the log knows after a restart what it acknowledged
    let mut log = open(directory.path(), WIDE);
    log.expire(WallTime::default() + week).expect("there is room");
    assert_eq!(read(&log, 1).0.len(), 5);
    log.expire(WallTime::default() + week * 100).expect("there is room");
    let (events, lost) = read(&log, 1);
    assert_eq!(events.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [2, 3, 5]);
    assert_eq!(lost, [(1, 1), (4, 4)]);
    drop(log);
    let mut log = open(directory.path(), LogBounds { age: HOUR, ..WIDE });
    log.expire(WallTime::default() + week).expect("there is room");
    let last = (6, vec![0]);
    append(&mut log, 0, true);
    assert_eq!(read(&log, 1), (vec![last], vec![(1, 5)]));
}

#[test]
fn an_event_larger_than_the_log_is_refused_and_others_are_taken() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut log = open(directory.path(), LogBounds { bytes: 10_000, age: Duration::MAX });
    append(&mut log, &[1; 9000]);
    append(&mut log, &[2; 9000]);
    let large = log.append(&LoggedEvent { payload: &[3; 10_000], ..LoggedEvent::default() });
    assert!(matches!(large, Err(LogError::TooLarge { most: 9968, .. })), "{large:?}");
    assert_eq!(read(&log, 2).0, [(2, vec![2; 9000])]);
    assert_eq!(log.counters().failed, 1);
}

#[test]
fn what_a_consumer_acknowledged_outlives_a_write_that_is_cut_off() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let log = open(directory.path(), WIDE);
    let mut file = log.acknowledged("billing").expect("a name");
    assert_eq!(file.position(), None);
    for position in [4, 9] {
        file.save(position).expect("there is room");
    }
    let path = directory.path().join("consumers/billing");
    let sound = fs::read(&path).expect("a file");
    assert_eq!(log.acknowledged("billing").expect("a name").position(), Some(9));
    // position 9 is in the first slot
    for at in 0..20 {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&path, bytes).expect("it is written");
        assert_eq!(log.acknowledged("billing").expect("a name").position(), Some(4), "byte {at}");
    }
    for name in ["", "../x", "a/b", ".x", "ä"] {
        assert!(log.acknowledged(name).is_err(), "{name}");
    }
}

#[test]
fn a_position_that_a_consumer_acknowledged_is_not_given_again_after_a_power_failure() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut log = open(directory.path(), WIDE);
    let (first, second) = (append(&mut log, b"a"), append(&mut log, b"b"));
    let length = fs::metadata(&segments(directory.path())[0]).expect("a file").len();
    append(&mut log, b"lost");
    append(&mut log, b"lost");
    log.acknowledged("billing").expect("a name").save(4).expect("there is room");
    drop(log);
    // the kernel had written the consumer's file, and not the last two events
    let segment = fs::OpenOptions::new().write(true).open(&segments(directory.path())[0]);
    segment.and_then(|file| file.set_len(length)).expect("it is cut off");
    let mut log = open(directory.path(), WIDE);
    assert_eq!((append(&mut log, b"c"), log.synced()), (5, 5));
    let all = [(first, b"a".to_vec()), (second, b"b".to_vec()), (5, b"c".to_vec())];
    assert_eq!(read(&log, 1), (all.to_vec(), vec![(3, 4)]));
    drop(log);
    let log = open(directory.path(), WIDE);
    assert_eq!((log.next(), read(&log, 1)), (6, (all.to_vec(), vec![(3, 4)])));
}

#[test]
fn a_segment_without_any_byte_still_names_its_position() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    drop(open(directory.path(), WIDE));
    // the kernel had written the names of both segments, and not the new one's head
    fs::write(directory.path().join("00000000000000000042.events"), b"").expect("room on the disk");
    let mut log = open(directory.path(), WIDE);
    assert_eq!((log.next(), append(&mut log, b"x")), (42, 42));
}

#[test]
fn the_number_of_a_writer_is_known_while_an_event_of_it_is_kept() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut log = open(directory.path(), WIDE);
    for sequence in [5, 6, 9] {
        let event = LoggedEvent { topic: "t", writer: "w", sequence, ..LoggedEvent::default() };
        log.append(&event).expect("there is room");
    }
    drop(log);
    let log = open(directory.path(), WIDE);
    assert_eq!(
        (log.last_of("t", "w"), log.last_of("u", "w"), log.last_of("t", "")),
        (Some(9), None, None)
    );
}

proptest! {
    #[test]
    fn a_log_that_drops_old_events_knows_the_writers_that_one_opened_anew_knows(
        writers in prop::collection::vec((0..3_u8, 0..12_u8, 0..900_usize), 1..120),
    ) {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let bounds = LogBounds { bytes: 20_000, age: Duration::MAX };
        let mut log = open(directory.path(), bounds);
        let name = |topic: u8, writer: u8| (format!("t/{topic}"), format!("w{writer}"));
        for (sequence, (topic, writer, length)) in (1..).zip(writers) {
            let ((topic, writer), payload) = (name(topic, writer), vec![7; length]);
            let event =
                LoggedEvent { topic: &topic, writer: &writer, sequence, payload: &payload, ..Default::default() };
            log.append(&event).expect("there is room");
        }
        let known = |log: &EventLog| -> Vec<Option<u64>> {
            let names = (0..3).flat_map(|topic| (0..12).map(move |writer| name(topic, writer)));
            names.map(|(topic, writer)| log.last_of(&topic, &writer)).collect()
        };
        let before = known(&log);
        drop(log);
        prop_assert_eq!(before, known(&open(directory.path(), bounds)));
    }
}
