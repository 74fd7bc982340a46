//! Compares the ring in shared memory with a reference that keeps every event forever, and tests it with
//! several threads.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration as StdDuration;
use unisono_events_wire::memory::{
    ConsumerNumber, HeldEvent, MemoryConsumer, MemoryGeometry, MemorySupplier, NextEvent, PAGE_LINES,
    PublishRefused, WhenBehind,
};
use unisono_linux::clock::{Duration, now};
use unisono_linux::futex::Scope;
use unisono_sync::{ForeignWords, Lines, PublishedWords, Sleep, SpinBudget, Unwatched, Wait, sleep_at_any};

const MAX_EVENT_BYTES: u32 = 100;

fn supplier(depth: u32, consumers: u32) -> MemorySupplier {
    let geometry = MemoryGeometry::new(depth, MAX_EVENT_BYTES, consumers).expect("small");
    MemorySupplier::create(geometry, (Wait::Adaptive, SpinBudget::DEFAULT)).expect("a memfd")
}

fn join(
    supplier: &mut MemorySupplier,
    when_behind: WhenBehind,
    wait: Wait,
) -> (ConsumerNumber, MemoryConsumer) {
    let page = Lines::on_heap(PAGE_LINES);
    let (number, turn) = supplier.attach(page.clone(), when_behind, None).expect("there is room");
    let descriptor = supplier.memory().as_fd().try_clone_to_owned().expect("a descriptor");
    let words = ForeignWords::new(descriptor).expect("sealed");
    let consumer =
        MemoryConsumer::join(words, page, turn, (wait, SpinBudget::DEFAULT), None).expect("it is a ring");
    (number, consumer)
}

/// Makes the content of a turn's event. Its length and bytes depend on the turn.
fn content(turn: u64) -> Vec<u8> {
    let length = (turn.wrapping_mul(37) % u64::from(MAX_EVENT_BYTES + 1)) as usize;
    (0..length as u64).map(|at| (turn.wrapping_mul(31) + at) as u8).collect()
}

fn publish(supplier: &mut MemorySupplier) -> Result<u64, PublishRefused> {
    let turn = supplier.turn();
    supplier.publish(turn as u32, &content(turn))
}

#[derive(Clone, Debug)]
enum Step {
    Publish,
    LoanAndPublish,
    LoanAndForget,
    Lend,
    PublishLent(usize),
    ReturnLent(usize),
    Receive(usize),
    ReceiveCopy(usize),
    LetGo(usize),
    /// A consumer dies with all its holds, and another one joins.
    Replace(usize, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let consumer = 0_usize..3;
    let step = prop_oneof![
        6 => Just(Step::Publish),
        2 => Just(Step::LoanAndPublish),
        1 => Just(Step::LoanAndForget),
        2 => Just(Step::Lend),
        2 => (0_usize..4).prop_map(Step::PublishLent),
        1 => (0_usize..4).prop_map(Step::ReturnLent),
        4 => consumer.clone().prop_map(Step::Receive),
        3 => consumer.clone().prop_map(Step::ReceiveCopy),
        2 => consumer.clone().prop_map(Step::LetGo),
        1 => (consumer, any::<bool>()).prop_map(|(at, blocks)| Step::Replace(at, blocks)),
    ];
    prop::collection::vec(step, 1..300)
}

/// A consumer's state in the reference.
struct Expected {
    number: ConsumerNumber,
    blocks: bool,
    next: u64,
    first: u64,
    received: u64,
}

/// The contents of events that were written into lent memory, by turn.
#[derive(Default)]
struct LentContents(BTreeMap<u64, Vec<u8>>);

impl LentContents {
    fn content(&self, turn: u64) -> Vec<u8> {
        self.0.get(&turn).cloned().unwrap_or_else(|| content(turn))
    }

    fn are_in(&self, held: &HeldEvent, turn: u64) {
        let bytes: Vec<u8> = held.bytes().iter().map(|byte| byte.load(Relaxed)).collect();
        assert_eq!((held.mark().turn, held.mark().tag, bytes), (turn, turn as u32, self.content(turn)));
    }
}

/// Compares a consumer's result with the reference.
fn check<E>(came: &NextEvent<E>, expected: &mut Expected, tail: u64, depth: u64) -> Option<u64> {
    let next = expected.next;
    match came {
        NextEvent::Event(_) => {
            assert!(next < tail && tail - next <= depth, "{next} is not in the ring before {tail}");
            expected.received += 1;
            expected.next += 1;
            return Some(next);
        }
        NextEvent::Lost(count) => {
            assert!(!expected.blocks, "a consumer that blocks lost {count}");
            assert!(tail - next > depth, "{next} was there before {tail}");
            expected.next += count;
            assert!(expected.next <= tail, "lost more than was published");
        }
        NextEvent::Nothing => assert_eq!(next, tail),
        NextEvent::Closed => panic!("the supplier has not left"),
    }
    None
}

fn run(depth: u32, steps: Vec<Step>) {
    let mut supplier = supplier(depth, 4); // one consumer's place is left, for loans
    let (mut lent, mut lent_contents) = (Vec::new(), LentContents::default());
    let depth = u64::from(supplier.geometry().depth());
    let mut expected = Vec::new();
    let mut consumers: Vec<MemoryConsumer> = Vec::new();
    let mut held: Vec<Vec<(u64, HeldEvent)>> = Vec::new();
    let add = |supplier: &mut MemorySupplier, blocks: bool| {
        let when_behind = if blocks { WhenBehind::BlocksSupplier } else { WhenBehind::LosesOldest };
        let (number, consumer) = join(supplier, when_behind, Wait::Spin);
        let first = consumer.turn();
        assert_eq!(supplier.turn(), first);
        (Expected { number, blocks, next: first, first, received: 0 }, consumer)
    };
    for blocks in [false, false, true] {
        let (expect, consumer) = add(&mut supplier, blocks);
        expected.push(expect);
        consumers.push(consumer);
        held.push(Vec::new());
    }
    for step in steps {
        match step {
            Step::Publish | Step::LoanAndPublish => {
                let turn = supplier.turn();
                let published = if matches!(step, Step::Publish) {
                    publish(&mut supplier)
                } else {
                    supplier.loan(content(turn).len()).map(|mut loan| {
                        loan.bytes().copy_from_slice(&content(turn));
                        loan.publish(turn as u32)
                    })
                };
                match published {
                    Ok(published) => assert_eq!(published, turn),
                    Err(PublishRefused::NoRoom(number)) => {
                        let slow = expected.iter().find(|one| one.number == number).expect("it is attached");
                        let quarter = (depth / 4).max(1);
                        assert!(slow.blocks && turn - slow.next + quarter > depth, "refused for nothing");
                    }
                    Err(error) => panic!("{error}"),
                }
                let blocking = expected.iter().filter(|one| one.blocks);
                assert!(blocking.map(|one| supplier.turn() - one.next).all(|unread| unread <= depth));
            }
            Step::LoanAndForget => drop(supplier.loan(3)),
            Step::Lend => match supplier.lend(7, 20) {
                Some(bytes) => {
                    lent.push(bytes);
                    assert!(lent.len() <= 4);
                }
                None => assert_eq!(lent.len(), 4, "a loan was refused for nothing"),
            },
            Step::PublishLent(at) if at < lent.len() => {
                let turn = supplier.turn();
                lent[at].bytes_mut().fill(turn as u8);
                match supplier.publish_lent(b"a head ", &lent[at], turn as u32) {
                    Ok(published) => {
                        assert_eq!(published, Some(turn));
                        lent.remove(at);
                        lent_contents.0.insert(turn, [&b"a head "[..], &[turn as u8; 20]].concat());
                    }
                    Err(refused) => assert!(matches!(refused, PublishRefused::NoRoom(_))),
                }
            }
            Step::ReturnLent(at) if at < lent.len() => drop(lent.remove(at)),
            Step::PublishLent(_) | Step::ReturnLent(_) => {}
            Step::Receive(at) => {
                if held[at].len() == 4 {
                    assert!(consumers[at].receive().is_err(), "more are held than may be");
                    continue;
                }
                let came = consumers[at].receive().expect("the supplier is honest");
                if let Some(turn) = check(&came, &mut expected[at], supplier.turn(), depth)
                    && let NextEvent::Event(event) = came
                {
                    lent_contents.are_in(&event, turn);
                    held[at].push((turn, event));
                }
            }
            Step::ReceiveCopy(at) => {
                let mut copy = b"before".to_vec();
                let came = consumers[at].receive_copy(&mut copy).expect("the supplier is honest");
                match check(&came, &mut expected[at], supplier.turn(), depth) {
                    Some(turn) => assert_eq!(copy[6..], lent_contents.content(turn)),
                    None => assert_eq!(copy, b"before"),
                }
            }
            Step::LetGo(at) => {
                if !held[at].is_empty() {
                    held[at].remove(0);
                }
            }
            Step::Replace(at, blocks) => {
                supplier.detach(expected[at].number);
                std::mem::take(&mut held[at]).into_iter().for_each(|(_, event)| std::mem::forget(event));
                (expected[at], consumers[at]) = add(&mut supplier, blocks);
            }
        }
        held.iter().flatten().for_each(|(turn, event)| lent_contents.are_in(event, *turn));
    }
    for (consumer, expected) in consumers.iter().zip(&expected) {
        assert_eq!(consumer.turn(), expected.next);
        assert_eq!(expected.first + expected.received + consumer.lost(), expected.next);
    }
}

proptest! {
    #[test]
    fn every_event_is_received_whole_or_counted_as_lost_and_what_is_held_does_not_change(
        depth in 1_u32..20,
        steps in steps(),
    ) {
        run(depth, steps);
    }
}

#[test]
fn an_event_that_is_too_large_and_a_consumer_too_many_are_refused_with_the_limit() {
    let mut supplier = supplier(4, 1);
    let refused = supplier.publish(0, &[0; 101]).expect_err("too large");
    assert!(refused.to_string().contains("101") && refused.to_string().contains("100"));
    let _first = join(&mut supplier, WhenBehind::LosesOldest, Wait::Spin);
    let second = supplier.attach(Lines::on_heap(PAGE_LINES), WhenBehind::LosesOldest, None);
    assert!(second.expect_err("one at most").to_string().contains("all 1 places"));
}

/// Returns the number of slots that a supplier of 64 events uses for 1,000 events. A consumer takes each
/// event at once, and holds the last `holds` events.
fn slots_of(holds: usize, stopped: Option<WhenBehind>) -> usize {
    let mut supplier = supplier(64, 2);
    let (_, mut consumer) = join(&mut supplier, WhenBehind::BlocksSupplier, Wait::Spin);
    let _stopped = stopped.map(|when_behind| join(&mut supplier, when_behind, Wait::Spin));
    let (mut slots, mut held) = (BTreeSet::new(), VecDeque::new());
    for _ in 0..1000 {
        let turn = supplier.turn();
        let mut loan = supplier.loan(content(turn).len()).expect("who blocks has read all");
        slots.insert(loan.bytes().as_ptr() as usize);
        loan.bytes().copy_from_slice(&content(turn));
        loan.publish(turn as u32);
        let Ok(NextEvent::Event(event)) = consumer.receive() else { panic!("{turn} is not there") };
        held.push_back((turn, event));
        held.iter().for_each(|(turn, event)| LentContents::default().are_in(event, *turn));
        held.drain(..held.len().saturating_sub(holds));
        assert!(matches!(consumer.receive(), Ok(NextEvent::Nothing)));
    }
    slots.len()
}

#[test]
fn slots_of_events_that_all_consumers_have_read_are_used_again_at_once() {
    let alone = slots_of(0, None);
    assert!(alone < 40, "{alone} slots for consumers that keep up");
    let held = slots_of(3, None);
    assert!(held < 40, "{held} slots beside three that are held");
    let stopped = slots_of(0, Some(WhenBehind::LosesOldest));
    assert!(stopped >= 64, "{stopped} slots, and a stopped consumer may still read the last 64 events");
}

/// Consumers of every kind take events that a supplier publishes as fast as it can.
#[test]
fn consumers_that_spin_sleep_hold_and_copy_receive_the_same_events_at_once() {
    const EVENTS: u64 = 20_000;
    let mut supplier = supplier(16, 4);
    let kinds = [
        (WhenBehind::BlocksSupplier, Wait::Adaptive, true),
        (WhenBehind::BlocksSupplier, Wait::Block, false),
        (WhenBehind::LosesOldest, Wait::SpinBlock, true),
        (WhenBehind::LosesOldest, Wait::Yield, false),
    ];
    std::thread::scope(|threads| {
        for (when_behind, wait, holds) in kinds {
            let (_, mut consumer) = join(&mut supplier, when_behind, wait);
            threads.spawn(move || {
                let (mut received, mut copy) = (0, Vec::new());
                loop {
                    copy.clear();
                    let came = if holds {
                        match consumer.receive().expect("the supplier is honest") {
                            NextEvent::Event(event) => {
                                event.append_to(&mut copy);
                                NextEvent::Event(event.mark())
                            }
                            NextEvent::Lost(count) => NextEvent::Lost(count),
                            NextEvent::Nothing => NextEvent::Nothing,
                            NextEvent::Closed => NextEvent::Closed,
                        }
                    } else {
                        consumer.receive_copy(&mut copy).expect("the supplier is honest")
                    };
                    match came {
                        NextEvent::Event(mark) => {
                            received += 1;
                            assert_eq!(
                                (copy.as_slice(), mark.tag),
                                (&content(mark.turn)[..], mark.turn as u32)
                            );
                        }
                        NextEvent::Lost(count) => {
                            assert!(when_behind == WhenBehind::LosesOldest, "{count} lost");
                        }
                        NextEvent::Nothing => {
                            let _ = consumer.wait(&mut Unwatched);
                        }
                        NextEvent::Closed => break,
                    }
                }
                assert_eq!(received + consumer.lost(), EVENTS);
            });
        }
        for event in 0..EVENTS {
            while let Err(refused) = publish(&mut supplier) {
                let PublishRefused::NoRoom(number) = refused else { panic!("{refused}") };
                let _ = supplier.wait_for(number, &mut Unwatched);
            }
            if event % 7 == 0 {
                supplier.wake_consumers();
            }
        }
        supplier.close();
    });
}

/// Makes the memory of a supplier of four events of 64 bytes, overwritten with `bytes` from the byte `start`
/// on.
fn hostile(start: usize, bytes: &[u8]) -> ForeignWords {
    let mut words = PublishedWords::create(2048).expect("two pages");
    let header = [u32::from_le_bytes(*b"UEM1"), 4, 64, 12];
    words.write(0, &header.map(u32::to_ne_bytes).concat());
    words.write(start, bytes);
    ForeignWords::new(words.as_fd().try_clone_to_owned().expect("a descriptor")).expect("sealed")
}

proptest! {
    #[test]
    fn whatever_a_supplier_writes_a_consumer_reads_within_its_memory(
        header_too in prop::bool::weighted(0.2),
        entries in prop::collection::vec((small_or_any(), small_or_any(), prop::option::of(any::<u32>())), 4),
        noise in prop::collection::vec(any::<u8>(), 0..64),
        turn in prop_oneof![4_u64..64, any::<u64>()],
    ) {
        // The entries announce the turns that the consumer wants, or another turn, with arbitrary slots and
        // lengths.
        let mut words = vec![0; 32];
        for (index, (slot, length, other)) in (0..4).zip(entries) {
            let wanted = turn.wrapping_add(u64::wrapping_sub(index, turn) & 3);
            words.extend([other.unwrap_or(wanted as u32), (wanted >> 32) as u32, slot, length, 0, 0, 0, 0]);
        }
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        if header_too {
            bytes[..noise.len()].copy_from_slice(&noise);
        }
        let words = if header_too { hostile(0, &bytes) } else { hostile(128, &bytes[128..]) };
        let way = (Wait::Block, SpinBudget::DEFAULT);
        if let Ok(mut consumer) = MemoryConsumer::join(words, Lines::on_heap(PAGE_LINES), turn, way, None) {
            for _ in 0..16 {
                let mut copy = Vec::new();
                let _ = (consumer.next_length(), consumer.has_something(), consumer.arm());
                if let Ok(NextEvent::Event(_)) = consumer.receive_copy(&mut copy) {
                    assert!(copy.len() <= consumer.largest());
                }
                if let Ok(NextEvent::Event(held)) = consumer.receive() {
                    assert!(held.length() <= consumer.largest());
                    held.append_to(&mut copy);
                }
            }
        }
    }
}

fn small_or_any() -> impl Strategy<Value = u32> {
    prop_oneof![0_u32..70, any::<u32>()]
}

#[test]
fn a_consumer_that_sleeps_at_several_rings_is_woken_in_memory_by_each_and_never_at_its_descriptor() {
    let rung = Arc::new(AtomicU32::new(0));
    let (mut suppliers, mut consumers) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let mut supplier = supplier(8, 1);
        let (page, rung) = (Lines::on_heap(PAGE_LINES), Arc::clone(&rung));
        let ring_descriptor = Box::new(move || {
            rung.fetch_add(1, Relaxed);
        });
        let attached = supplier.attach(page.clone(), WhenBehind::LosesOldest, Some(ring_descriptor));
        let (_, turn) = attached.expect("there is room");
        let descriptor = supplier.memory().as_fd().try_clone_to_owned().expect("a descriptor");
        let words = ForeignWords::new(descriptor).expect("sealed");
        let way = (Wait::Block, SpinBudget::DEFAULT);
        consumers.push(MemoryConsumer::join(words, page, turn, way, None).expect("it is a ring"));
        suppliers.push(supplier);
    }
    for (at, supplier) in suppliers.iter_mut().enumerate() {
        let counted: Option<Vec<_>> = consumers.iter().map(MemoryConsumer::doze).collect();
        let counted = counted.expect("nothing is there");
        let until = Some(now() + Duration::from_secs(20));
        let slept = std::thread::scope(|threads| {
            let sleeper = threads.spawn(|| sleep_at_any(&counted, until, Scope::Shared));
            std::thread::sleep(StdDuration::from_millis(5));
            publish(supplier).expect("there is room");
            supplier.wake_consumers();
            sleeper.join().expect("no panic")
        });
        drop(counted);
        match slept {
            Ok(slept) => assert_ne!(slept, Sleep::TimedOut),
            Err(error) => return eprintln!("skipped: futex_waitv: {error}"),
        }
        assert!(consumers[at].doze().is_none(), "there is something");
        assert!(matches!(consumers[at].receive_copy(&mut Vec::new()), Ok(NextEvent::Event(_))));
    }
    assert_eq!(rung.load(Relaxed), 0);
}
