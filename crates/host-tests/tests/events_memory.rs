//! Tests events through shared memory between processes: if one process is stopped or killed, the others
//! continue undisturbed.
#![expect(clippy::print_stdout, reason = "a child process says to the test what it received")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use unisono_events_wire::memory::{
    ConsumerNumber, Doorbell, DoorbellState, DoorbellWatch, MemoryConsumer, MemoryGeometry, MemoryOffer,
    MemorySupplier, NextEvent, PublishRefused, WhenBehind,
};
use unisono_host_tests::processes::Killed;
use unisono_host_tests::{TestOutcome, host_tests, one_in};
use unisono_sync::{SpinBudget, Unwatched, Wait, WatchVerdict};

/// The environment variable that says what a child process of these tests does; see [`play`].
const ROLE: &str = "UNISONO_EVENTS_ROLE";
const MAX_EVENT_BYTES: u32 = 64 << 10;
const WAY: (Wait, SpinBudget) = (Wait::Adaptive, SpinBudget::DEFAULT);

/// A child process that has one end of a socket as its standard input.
struct Party {
    child: Killed,
    doorbell: Doorbell,
}

impl Party {
    fn start(role: &str) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(ROLE, role).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped());
        let child = Killed(command.spawn().expect("it starts"));
        Self { child, doorbell: Doorbell::new(ours.into()) }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.0.id().to_string()]).status();
        assert!(sent.expect("kill starts").success());
    }

    /// Returns the numbers that the process reports when it ends by itself.
    fn says(&mut self) -> Vec<u64> {
        let out = BufReader::new(self.child.0.stdout.take().expect("piped"));
        let numbers = out.lines().map_while(Result::ok).filter_map(|line| {
            line.strip_prefix("said ")
                .map(|rest| rest.split(' ').filter_map(|word| word.parse().ok()).collect())
        });
        numbers.last().unwrap_or_default()
    }
}

fn supplier(consumers: u32) -> MemorySupplier {
    let geometry = MemoryGeometry::new(64, MAX_EVENT_BYTES, consumers).expect("within the limits");
    MemorySupplier::create(geometry, WAY).expect("a memfd")
}

/// Returns the content of the event with this number: each byte is the lowest byte of the number, so that an
/// event that is mixed from two is noticed.
fn content(turn: u64) -> Vec<u8> {
    vec![turn as u8; (turn % 5000) as usize]
}

fn is_whole(turn: u64, bytes: &[u8]) -> bool {
    bytes.len() as u64 == turn % 5000 && bytes.iter().all(|byte| *byte == turn as u8)
}

fn publish(supplier: &mut MemorySupplier) -> Result<u64, PublishRefused> {
    let turn = supplier.turn();
    let published = supplier.publish(0, &content(turn));
    supplier.wake_consumers();
    published
}

fn join(doorbell: &Doorbell) -> MemoryConsumer {
    loop {
        if let Some(offer) = MemoryOffer::receive(doorbell).expect("the supplier is there") {
            return offer.accept(WAY, doorbell).expect("a supplier's memory");
        }
        let timeout = Some(Duration::from_secs(10));
        assert!(unisono_linux::poll::readable([doorbell.as_fd()], timeout).expect("poll")[0]);
    }
}

/// Receives until the supplier closes or dies. Returns the number of events that were received and that were
/// lost. Calls `came_one` for each event received.
fn consume(doorbell: &Doorbell, holds: bool, mut came_one: impl FnMut()) -> (u64, u64) {
    let mut consumer = join(doorbell);
    println!("joined");
    let (mut received, mut copy, mut held) = (0, Vec::new(), Vec::new());
    loop {
        copy.clear();
        let came = if holds {
            match consumer.receive().expect("an honest supplier") {
                NextEvent::Event(event) => {
                    event.append_to(&mut copy);
                    let mark = event.mark();
                    held.push(event);
                    if held.len() == 4 {
                        held.clear();
                    }
                    NextEvent::Event(mark)
                }
                NextEvent::Lost(count) => NextEvent::Lost(count),
                NextEvent::Nothing => NextEvent::Nothing,
                NextEvent::Closed => NextEvent::Closed,
            }
        } else {
            consumer.receive_copy(&mut copy).expect("an honest supplier")
        };
        match came {
            NextEvent::Event(mark) => {
                assert!(is_whole(mark.turn, &copy), "half of event {}", mark.turn);
                received += 1;
                came_one();
            }
            NextEvent::Lost(_) => {}
            NextEvent::Nothing => {
                let verdict = consumer.wait(&mut DoorbellWatch::new(doorbell, None));
                if verdict == WatchVerdict::Stop && !consumer.has_something() {
                    break;
                }
            }
            NextEvent::Closed => break,
        }
    }
    (received, consumer.lost())
}

/// Runs the other end of a test, in a child process.
fn play(role: &str) {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor is free");
    let doorbell = Doorbell::new(socket);
    if role == "supply" {
        let mut supplier = supplier(1);
        supplier.offer(WhenBehind::LosesOldest, &doorbell).expect("the consumer is there");
        loop {
            publish(&mut supplier).expect("nobody blocks");
        }
    }
    let (received, lost) = consume(&doorbell, role == "hold", || ());
    println!("said {received} {lost}");
}

/// Publishes for `time`. Returns the number of events.
fn publish_for(supplier: &mut MemorySupplier, time: Duration) -> u64 {
    let (start, first) = (Instant::now(), supplier.turn());
    while start.elapsed() < time {
        match publish(supplier) {
            Ok(_) => {}
            Err(PublishRefused::NoRoom(number)) => {
                let _ = supplier.wait_for(number, &mut Unwatched);
            }
            Err(error) => panic!("{error}"),
        }
    }
    supplier.turn() - first
}

fn wait_for_joined(party: &mut Party) {
    let out = party.child.0.stdout.as_mut().expect("piped");
    let mut line = String::new();
    let mut reader = BufReader::new(out);
    while !line.ends_with("joined\n") {
        assert!(reader.read_line(&mut line).expect("it lives") > 0, "it ended: {line}");
    }
}

fn consumers_in_other_processes_receive_every_event_or_know_how_many_they_lost() -> TestOutcome {
    for (role, when_behind) in [("copy", WhenBehind::BlocksSupplier), ("hold", WhenBehind::LosesOldest)] {
        let (mut party, mut supplier) = (Party::start(role), supplier(1));
        supplier.offer(when_behind, &party.doorbell).expect("room");
        wait_for_joined(&mut party);
        let published = publish_for(&mut supplier, Duration::from_millis(300));
        drop(supplier);
        let says = party.says();
        assert_eq!(says.iter().sum::<u64>(), published, "{role}");
        assert!(when_behind == WhenBehind::LosesOldest || says[1] == 0, "{says:?}");
    }
    Ok(())
}

fn a_consumer_that_is_stopped_loses_its_own_events_alone_and_goes_on() -> TestOutcome {
    let mut supplier = supplier(2);
    let (mut fast, mut stopped) = (Party::start("copy"), Party::start("hold"));
    supplier.offer(WhenBehind::BlocksSupplier, &fast.doorbell).expect("room");
    supplier.offer(WhenBehind::LosesOldest, &stopped.doorbell).expect("room");
    wait_for_joined(&mut fast);
    wait_for_joined(&mut stopped);
    let first = supplier.turn();
    publish_for(&mut supplier, Duration::from_millis(50));
    stopped.signal("-STOP");
    let meanwhile = publish_for(&mut supplier, Duration::from_millis(300));
    assert!(meanwhile > 1000, "a stopped consumer held the supplier up: {meanwhile} events");
    stopped.signal("-CONT");
    publish_for(&mut supplier, Duration::from_millis(50));
    let published = supplier.turn() - first;
    drop(supplier);
    assert_eq!(fast.says(), [published, 0]);
    let says = stopped.says();
    assert_eq!(says.iter().sum::<u64>(), published);
    assert!(says[1] > 0, "it slept through {meanwhile} events and lost none");
    Ok(())
}

fn a_consumer_that_is_killed_at_any_moment_is_forgotten_and_costs_no_event() -> TestOutcome {
    let mut supplier = supplier(2);
    let mut fast = Party::start("copy");
    supplier.offer(WhenBehind::BlocksSupplier, &fast.doorbell).expect("room");
    wait_for_joined(&mut fast);
    let first = supplier.turn();
    for kill in (0..40).step_by(one_in(5)) {
        let mut victim = Party::start("hold");
        let number: ConsumerNumber =
            supplier.offer(WhenBehind::LosesOldest, &victim.doorbell).expect("the last one was forgotten");
        wait_for_joined(&mut victim);
        publish_for(&mut supplier, Duration::from_micros(100 * kill));
        victim.signal("-KILL");
        let _ = victim.child.0.wait();
        publish_for(&mut supplier, Duration::from_millis(1));
        assert_eq!(victim.doorbell.take().expect("a socket"), DoorbellState::Gone);
        supplier.detach(number);
    }
    let published = supplier.turn() - first;
    drop(supplier);
    assert_eq!(fast.says(), [published, 0]);
    Ok(())
}

fn a_supplier_that_is_killed_leaves_whole_events_and_no_memory() -> TestOutcome {
    for kill in (0..40).step_by(one_in(5)) {
        let mut party = Party::start("supply");
        let doorbell = party.doorbell.clone();
        let (came_one, came) = sync_channel(1);
        let consumer = std::thread::spawn(move || {
            consume(&doorbell, false, || {
                let _ = came_one.try_send(()); // once is enough
            })
        });
        came.recv().expect("the supplier publishes");
        std::thread::sleep(Duration::from_micros(37 * kill));
        party.signal("-KILL");
        let _ = party.child.0.wait();
        let (received, lost) = consumer.join().expect("every event was whole, and the end was seen");
        assert!(received > 0, "nothing came before the end; {lost} lost");
    }
    let mapped = fs::read_to_string("/proc/self/maps").expect("proc is there");
    assert!(!mapped.contains("memfd:unisono"), "memory of the dead is mapped still: {mapped}");
    Ok(())
}

/// Runs a role of [`play`], if this process was started for that.
pub(crate) fn play_role() -> Option<ExitCode> {
    play(&std::env::var(ROLE).ok()?);
    Some(ExitCode::SUCCESS)
}

host_tests![
    needs Nothing;
    consumers_in_other_processes_receive_every_event_or_know_how_many_they_lost,
    a_consumer_that_is_stopped_loses_its_own_events_alone_and_goes_on,
    a_consumer_that_is_killed_at_any_moment_is_forgotten_and_costs_no_event within 300,
    a_supplier_that_is_killed_leaves_whole_events_and_no_memory within 60,
];
