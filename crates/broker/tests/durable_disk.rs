//! What a broker answers to suppliers of durable events if its disk hangs or fails to sync, or if it has no
//! log.

use crate::durable::{WIDE, broker, follower, offer};
use unisono_broker::{Broker, ClientId, Limits, Received, Task};
use unisono_events_client::{Advertisement, Durability};
use unisono_events_wire::Frame;
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_linux::clock::Instant;

/// The broker's answers to frames of one program.
struct Program(Broker);

impl Program {
    fn say(&mut self, frame: &Frame<'_>) -> Vec<String> {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        let _ = self.0.received(Instant::from_nanos(1), ClientId(0), &bytes, None);
        self.heard()
    }

    fn heard(&mut self) -> Vec<String> {
        let tasks = std::iter::from_fn(|| self.0.task());
        tasks
            .map(|task| match task {
                Task::Answer { head, .. } => format!("{:?}", Frame::read(&head).expect("a frame")),
                other => format!("{other:?}"),
            })
            .collect()
    }
}

#[test]
fn a_disk_that_fails_to_sync_is_said_to_those_who_waited_and_nothing_more_is_promised() {
    use unisono_events_wire::frame::{PublishFlags, PublishHead};
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut program = Program(broker(directory.path(), WIDE));
    let peer = unisono_events_wire::transport::TransportPeer::User(0);
    assert!(program.0.connected(Instant::from_nanos(1), ClientId(0), peer));
    program.say(&Frame::Hello(unisono_events_client::Greeting::default()));
    for (number, durability) in [(1, Durability::Synced), (2, Durability::Received)] {
        let spec = Advertisement { durability, ..Advertisement::new(&format!("t/{number}")) };
        program.say(&Frame::Advertise { number, spec });
    }
    let flags = PublishFlags { answer: true, ..PublishFlags::default() };
    let event = |topic, token| {
        let head = PublishHead { flags, topic, token, ..PublishHead::default() };
        Frame::Publish { head, payload: b"x" }
    };
    assert_eq!(program.say(&event(1, 1)), Vec::<String>::new(), "nothing is said before the sync");
    let job = program.0.sync().expect("somebody waits");
    assert_eq!(program.say(&event(1, 2)), Vec::<String>::new());
    assert!(program.0.sync().is_none(), "one at a time");
    program.0.synced(Instant::from_nanos(1), &job, Ok(()));
    let [first] = &program.heard()[..] else { panic!("one answer") };
    assert!(first.contains("token: 1") && first.contains("Synced"), "{first}");
    let job = program.0.sync().expect("somebody waits");
    program.0.synced(Instant::from_nanos(1), &job, Err("the disk is on fire".to_owned()));
    let [second] = &program.heard()[..] else { panic!("one answer") };
    assert!(second.contains("Rejected") && second.contains("the disk is on fire"), "{second}");
    let [third] = &program.say(&event(1, 3))[..] else { panic!("one answer") };
    assert!(third.contains("Rejected") && third.contains("takes nothing more"), "{third}");
    let [other] = &program.say(&event(2, 1))[..] else { panic!("one answer") };
    assert!(other.contains("Taken"), "others notice nothing: {other}");
    let statistics = program.0.statistics(Instant::from_nanos(1)).log.expect("it keeps a log");
    assert_eq!((statistics.written, statistics.failed, statistics.syncs), (2, 1, 2));
}

#[test]
fn while_a_disk_hangs_those_who_asked_for_it_wait_and_others_notice_nothing() {
    use unisono_events_wire::frame::{PublishFlags, PublishHead};
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut program = Program(broker(directory.path(), WIDE));
    let peer = unisono_events_wire::transport::TransportPeer::User(0);
    assert!(program.0.connected(Instant::from_nanos(1), ClientId(0), peer));
    program.say(&Frame::Hello(unisono_events_client::Greeting::default()));
    for (number, durability) in [(1, Durability::Synced), (2, Durability::Written)] {
        let spec = Advertisement { durability, ..Advertisement::new(&format!("t/{number}")) };
        program.say(&Frame::Advertise { number, spec });
    }
    let publish = |program: &mut Program, topic, token, at_once| {
        let flags = PublishFlags { answer: true, at_once };
        let head = PublishHead { flags, topic, token, ..PublishHead::default() };
        let mut bytes = Vec::new();
        Frame::Publish { head, payload: b"x" }.write(&mut bytes);
        program.0.received(Instant::from_nanos(1), ClientId(0), &bytes, None)
    };
    let mut token = 0;
    let job = loop {
        token += 1;
        assert!(token < 100_000, "what waits has a bound");
        if publish(&mut program, 1, token, false) == Received::Blocked {
            break program.0.sync().expect("somebody waits");
        }
    };
    assert_eq!(program.heard(), Vec::<String>::new(), "nothing is said before the sync");
    assert_eq!(publish(&mut program, 1, token, true), Received::Done);
    let [refused] = &program.heard()[..] else { panic!("one answer") };
    assert!(refused.contains("Rejected") && refused.contains("the disk is behind"), "{refused}");
    assert_eq!(publish(&mut program, 2, 1, false), Received::Done);
    let [other] = &program.heard()[..] else { panic!("one answer") };
    assert!(other.contains("Written"), "{other}");
    program.0.synced(Instant::from_nanos(1), &job, Ok(()));
    assert_eq!(program.heard().len(), token as usize - 1);
    assert_eq!(publish(&mut program, 1, token, false), Received::Done, "it goes on");
}

#[test]
fn after_a_failed_sync_an_event_that_comes_again_is_refused_and_nothing_is_synced() {
    use unisono_events_wire::frame::{PublishFlags, PublishHead};
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut program = Program(broker(directory.path(), WIDE));
    let peer = unisono_events_wire::transport::TransportPeer::User(0);
    assert!(program.0.connected(Instant::from_nanos(1), ClientId(0), peer));
    program.say(&Frame::Hello(unisono_events_client::Greeting::default()));
    let spec = Advertisement { topic: "t".to_owned(), ..offer(Durability::Synced, Some("w")) };
    program.say(&Frame::Advertise { number: 1, spec });
    let flags = PublishFlags { answer: true, ..PublishFlags::default() };
    let event = |sequence: u64| {
        let (token, sequence) = (sequence as u32, Some(sequence));
        let head = PublishHead { flags, topic: 1, token, sequence, ..PublishHead::default() };
        Frame::Publish { head, payload: b"x" }
    };
    assert_eq!(program.say(&event(1)), Vec::<String>::new());
    let job = program.0.sync().expect("somebody waits");
    // written while the sync is under way: its file has to be synced again
    assert_eq!(program.say(&event(2)), Vec::<String>::new());
    program.0.synced(Instant::from_nanos(1), &job, Err("the disk is on fire".to_owned()));
    assert_eq!(program.heard().len(), 2, "both waited");
    let [again] = &program.say(&event(1))[..] else { panic!("one answer") };
    assert!(again.contains("Rejected") && again.contains("takes nothing more"), "{again}");
    assert!(program.0.sync().is_none(), "a later sync says nothing of the first");
}

#[test]
fn without_a_log_nothing_is_promised() {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let broker = Broker::new(tree.expect("it is sound"), Limits::default());
    let mut program = Program(broker);
    let peer = unisono_events_wire::transport::TransportPeer::User(0);
    assert!(program.0.connected(Instant::from_nanos(1), ClientId(0), peer));
    program.say(&Frame::Hello(unisono_events_client::Greeting::default()));
    let spec = offer(Durability::Written, None);
    let said = program.say(&Frame::Advertise { number: 1, spec });
    assert!(said[0].contains("Refused") && said[0].contains("--log"), "{said:?}");
    let spec = Box::new(follower("x"));
    let said = program.say(&Frame::Subscribe { number: 1, spec });
    assert!(said[0].contains("Refused") && said[0].contains("--log"), "{said:?}");
}
