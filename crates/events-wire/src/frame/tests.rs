//! Tests that each written frame is read back, and that frames that no writer produces are refused.

use super::*;
use crate::destination::Destination;
use crate::ring::RefusalCounts;
use proptest::prelude::*;
use unisono_linux::clock::{Duration, Instant};

fn destinations() -> impl Strategy<Value = Destination> {
    let address = (any::<std::net::IpAddr>(), any::<u16>()).prop_map(std::net::SocketAddr::from);
    (address, any::<bool>()).prop_map(|(address, tcp)| match tcp {
        true => Destination { congestion: Some("reno".to_owned()), ..Destination::tcp(address) },
        false => Destination::udp(address),
    })
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        number in any::<u32>(), long in any::<u64>(), text in ".{0,60}", flags in any::<[bool; 5]>(),
        payload in proptest::collection::vec(any::<u8>(), 0..100), destination in destinations(),
        fraction in any::<f64>(),
    ) {
        let fields = FieldSet::new().with(&*text, true).with("n", number as i64).with("f", fraction).with("t", &*text);
        let [remaining, answer, at_once, part, acknowledge] = flags;
        let publish = PublishHead {
            flags: PublishFlags { answer, at_once }, criticality: 3, topic: number, deadline: PublishDeadline::read(remaining, long),
            token: number, sequence: answer.then_some(long), key: &text, fields: fields.clone(),
        };
        let deliver = DeliverHead {
            flags: DeliverFlags { late: answer, retained: at_once, part, acknowledge },
            criticality: 9, repeated: 2, consumer: number, topic: 1, supplier: 2, sequence: long,
            times: DeliverTimes::read(remaining, [4, long]), delivery: long, key: &text, fields,
        };
        let frames = [
            Frame::Hello(Greeting { name: text.clone(), lease_ns: Some(long), token: Some(text.clone()), rings: true, types: true }),
            Frame::Advertise { number, spec: Advertisement::new(&text) },
            Frame::Publish { head: publish, payload: &payload },
            Frame::Subscribe { number, spec: Box::new(SubscriptionSpec::new(&text)) },
            Frame::Acknowledge { consumer: number, delivery: long }, Frame::Unsubscribe { number },
            Frame::Open { number, path: PathSpec { class: text.clone(), destination } },
            Frame::Close { number }, Frame::Flush { number }, Frame::Ask, Frame::Reload, Frame::Alive,
            Frame::TakeOver { step: TakeOverStep::Log },
            Frame::TakenOver(TakeOverReport { refused: Some(text.clone()), sockets: number, log: None }),
            Frame::Welcome(WelcomeTerms { version: 1, largest: number, path_largest: 1, same_clock: true, run: u64::from(number), reply: text.clone(), peer_timeout_ns: u64::from(number), late_reports: number.is_multiple_of(2), refusal_reports: number.is_multiple_of(3), links: number.is_multiple_of(5) }),
            Frame::Accepted { number }, Frame::Refused { number, reason: &text },
            Frame::Published { topic: number, token: 1, sequence: long, outcome: PublishOutcome::Taken(7) },
            Frame::Published { topic: 1, token: 1, sequence: long, outcome: PublishOutcome::Written(7) },
            Frame::Published { topic: 1, token: 1, sequence: long, outcome: PublishOutcome::Synced(0) },
            Frame::Rejected { topic: number, token: 1, reason: &text }, Frame::Topic { number, name: &text },
            Frame::TopicType { number, event_type: Some(&text) }, Frame::TopicType { number, event_type: None },
            Frame::Deliver { head: deliver, payload: &payload },
            Frame::Notice { consumer: number, notice: NoticeText::Tick { at_ns: long } },
            Frame::Sent { consumer: number, topic: 1, supplier: 2, count: long, last: 3 },
            Frame::Opened { number, credit: number }, Frame::Closed { number, reason: &text },
            Frame::Credit { number, bytes: number }, Frame::Statistics { json: &text },
            Frame::Bye { reason: &text },
            Frame::RingReport { number, report: RingReport::Left { events: long, for_good: remaining, recalled: number.is_multiple_of(2) } },
            Frame::RingReport { number, report: RingReport::Refused { counts: RefusalCounts { deadline: long, full: 1 } } },
            Frame::Ring { number, order: RingOrder::Numbered { last: long } },
        ];
        for frame in frames {
            let mut bytes = Vec::new();
            frame.write(&mut bytes);
            prop_assert_eq!(Frame::read(&bytes), Ok(frame));
        }
    }

    #[test]
    fn a_binary_frame_has_one_reading(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        kind in proptest::sample::select(vec![3_u8, 5, 6, 8, 132, 135, 137, 139, 143, 144]),
    ) {
        let mut bytes = bytes;
        if let [first, a, b, c, ..] = &mut bytes[..] {
            // makes most of the frames nearly correct
            (*first, *a, *b, *c) = (kind, 0, 0, 0);
        }
        if let Ok(frame) = Frame::read(&bytes) {
            let mut again = Vec::new();
            frame.write(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn an_event_is_read_or_refused_as_its_fields_are_one_by_one(
        is_publication in any::<bool>(), flags in any::<[bool; 5]>(), number in any::<u32>(), long in any::<u64>(),
        key in ".{0,9}", payload in proptest::collection::vec(any::<u8>(), 0..60),
        changes in proptest::collection::vec((prop_oneof![0..8_usize, 8..80_usize], any::<u8>()), 0..3),
        length in proptest::option::weighted(0.3, 0..90_usize),
    ) {
        let [is_relative, late, retained, part, acknowledge] = flags;
        let fields = FieldSet::new().with("n", long as i64).with("t", &*key);
        let mut bytes = Vec::new();
        if is_publication {
            PublishHead {
                flags: PublishFlags { answer: late, at_once: retained }, criticality: 3, topic: number, token: number,
                deadline: PublishDeadline::read(is_relative, long), sequence: part.then_some(long), key: &key, fields,
            }.write(&mut bytes);
        } else {
            DeliverHead {
                flags: DeliverFlags { late, retained, part, acknowledge }, criticality: 3, repeated: 2, consumer: number,
                topic: 1, supplier: 2, sequence: long, times: DeliverTimes::read(is_relative, [4, long]), delivery: long,
                key: &key, fields,
            }.write(&mut bytes);
        }
        bytes.extend(payload);
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(length.unwrap_or(usize::MAX));
        let expected = read_fields_one_by_one(&bytes);
        let read = match (PublishHead::read(&bytes), DeliverHead::read(&bytes)) {
            (Ok((head, payload)), Err(_)) => Some(Frame::Publish { head, payload }),
            (Err(_), Ok((head, payload))) => Some(Frame::Deliver { head, payload }),
            _ => None,
        };
        prop_assert_eq!(&read, &expected);
        if PublishHead::begins(&bytes) || DeliverHead::begins(&bytes) {
            prop_assert_eq!(Frame::read(&bytes).ok(), expected);
        } else {
            prop_assert_eq!(expected, None);
        }
    }
}

/// Reads a publication or a delivery without its head's own reader. `None`: the bytes are neither.
fn read_fields_one_by_one(bytes: &[u8]) -> Option<Frame<'_>> {
    let mut reader = FrameReader::new(bytes);
    let [kind, flags, criticality, repeated] = reader.array().ok()?;
    let number = reader.word().ok()?;
    let flag = |place: u8| flags >> place & 1 == 1;
    match kind {
        3 if flags < 16 && repeated == 0 => {
            let deadline = PublishDeadline::read(flag(0), reader.long().ok()?);
            let token = reader.word().ok()?;
            let sequence = if flag(3) { Some(reader.long().ok()?) } else { None };
            let (key, fields) = reader.key_and_fields().ok()?;
            let flags = PublishFlags { answer: flag(1), at_once: flag(2) };
            let topic = number;
            let head = PublishHead { flags, criticality, topic, deadline, token, sequence, key, fields };
            Some(Frame::Publish { head, payload: reader.rest() })
        }
        135 if flags < 32 => {
            let [topic, supplier] = [reader.word().ok()?, reader.word().ok()?];
            let sequence = reader.long().ok()?;
            let times = DeliverTimes::read(flag(0), [reader.long().ok()?, reader.long().ok()?]);
            let delivery = reader.long().ok()?;
            let (key, fields) = reader.key_and_fields().ok()?;
            let flags =
                DeliverFlags { late: flag(1), retained: flag(2), part: flag(3), acknowledge: flag(4) };
            let consumer = number;
            let head = DeliverHead {
                flags,
                criticality,
                repeated,
                consumer,
                topic,
                supplier,
                sequence,
                times,
                delivery,
                key,
                fields,
            };
            Some(Frame::Deliver { head, payload: reader.rest() })
        }
        _ => None,
    }
}

#[test]
fn what_is_cut_off_or_goes_on_is_refused() {
    let mut bytes = Vec::new();
    let fields = FieldSet::new().with("level", 3);
    let head = PublishHead { key: "roof", fields, ..PublishHead::default() };
    Frame::Publish { head, payload: b"" }.write(&mut bytes);
    for length in 0..bytes.len() {
        assert!(Frame::read(&bytes[..length]).is_err(), "{length}");
    }
    let mut ask = Vec::new();
    Frame::Ask.write(&mut ask);
    ask.push(0);
    assert!(!PublishHead::begins(&ask) && PublishHead::read(&ask).is_err(), "another frame");
    assert!(!DeliverHead::begins(&ask) && DeliverHead::read(&ask).is_err(), "another frame");
    let said = Frame::read(&ask).expect_err("a byte too many").to_string();
    assert_eq!(said, "9 bytes are no valid frame: bytes are left over");
}

#[test]
fn relative_times_become_moments_on_the_readers_clock_and_no_deadline_stays_none() {
    let (now, age) = (Instant::from_secs(9), Duration::from_secs(2));
    let times = |remaining| DeliverTimes::Relative { remaining, age }.on_clock(|| now);
    assert_eq!(times(Duration::from_secs(3)), (Instant::from_secs(12), Instant::from_secs(7)));
    assert_eq!(times(Duration::MAX), (unisono_eventchannel::NO_DEADLINE, Instant::from_secs(7)));
}
