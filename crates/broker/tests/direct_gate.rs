//! A broker that the test can pause: the overtaking of frames while a supplier's connection is full.

use crate::common::watchdog::within_a_minute;
use crate::common::{broker, event};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use unisono_broker::{OWNER, Server};
use unisono_events_client::{Advertisement, ChannelWait, Client, EventDraft, SubscriptionSpec};

/// The point between two turns where a broker can be paused.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    is_closed: bool,
    is_waiting: bool,
    is_over: bool,
}

impl Gate {
    /// Waits while the gate is closed. The broker calls this in each turn.
    fn pass(&self) -> bool {
        let mut state = self.state.lock().expect("nobody panics in it");
        state.is_waiting = true;
        self.changed.notify_all();
        while state.is_closed && !state.is_over {
            state = self.changed.wait(state).expect("nobody panics in it");
        }
        state.is_waiting = false;
        state.is_over
    }

    fn change(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.state.lock().expect("nobody panics in it"));
        self.changed.notify_all();
    }

    /// Pauses the broker.
    fn close(&self) {
        let mut state = self.state.lock().expect("nobody panics in it");
        state.is_closed = true;
        while !state.is_waiting {
            state = self.changed.wait(state).expect("nobody panics in it");
        }
    }
}

/// Ends the broker even if the test panics.
struct Ends<'a>(&'a Gate);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.is_over = true);
    }
}

/// Returns whether a thread of this process is in interruptible sleep.
fn sleeps(thread: &Path) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(thread).join("stat")).expect("it runs");
    let after_name = stat.rsplit(") ").next();
    after_name.is_some_and(|rest| rest.starts_with('S'))
}

/// Checks that a consumer gets an event that is published after it was accepted, while the order to the
/// supplier still waits in the broker.
fn accepted_while_the_supplier_is_full(has_rings: bool) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let unix = directory.path().join("events");
    let mut server = Server::new(broker(), ChannelWait::Sleep).expect("descriptors are left");
    server.listen_unix(&unix, OWNER).expect("it listens");
    let gate = Gate::default();
    std::thread::scope(|scope| {
        let ends = Ends(&gate);
        let serving = scope.spawn(|| server.serve(&|| gate.pass()));
        let join = || Client::connect_shared(&unix).expect("it listens");
        let direct = SubscriptionSpec::new("t");
        let (mut supplier, mut first) = (join(), join());
        let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
        first.subscribe(&direct).expect("it fits");
        supplier.publish(topic, &EventDraft::new(b"a")).expect("it leaves");
        assert_eq!(*event(&mut first).payload.bytes(), *b"a");
        assert_eq!(first.statistics().expect("it answers").direct, 1);
        // the supplier's connection holds 256 frames; further events for it wait in the broker
        let many = SubscriptionSpec { queue_events: 1000, ..SubscriptionSpec::new("u") };
        supplier.subscribe(&many).expect("it fits");
        let mut other = Client::connect_unix(&unix).expect("it listens");
        let crowd = other.advertise(&Advertisement::new("u")).expect("a topic");
        for _ in 0..300 {
            other.publish(crowd, &EventDraft::new(b"x")).expect("it leaves");
        }
        other.statistics().expect("all of that is taken");
        let mut second = if has_rings { join() } else { Client::connect_unix(&unix).expect("it listens") };
        second.subscribe(&direct).expect("it fits");
        gate.close();
        let thread = std::fs::read_link("/proc/thread-self").expect("it is mounted");
        let published = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // opens the gate once the supplier waits for the broker, or has published without waiting
                while !published.load(Ordering::Relaxed) && !sleeps(&thread) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                gate.change(|state| state.is_closed = false);
            });
            supplier.publish(topic, &EventDraft::new(b"b")).expect("it leaves");
            published.store(true, Ordering::Relaxed);
        });
        for consumer in [&mut first, &mut second] {
            assert_eq!(*event(consumer).payload.bytes(), *b"b");
        }
        drop(ends);
        serving.join().expect("it does not panic").expect("it serves");
    });
}

#[test]
fn a_consumer_without_rings_gets_what_a_supplier_with_a_full_connection_publishes_after_it_was_accepted() {
    within_a_minute(|| accepted_while_the_supplier_is_full(false));
}

#[test]
fn a_consumer_with_rings_gets_what_a_supplier_with_a_full_connection_publishes_after_it_was_accepted() {
    within_a_minute(|| accepted_while_the_supplier_is_full(true));
}
