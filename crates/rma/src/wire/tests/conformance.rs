//! The contract of every transport, as one suite: call [`check`] in the transport's own tests.
//!
//! Each part panics with a message where the contract of [`crate::wire`] is broken. `make` returns the
//! connected transports of a new job of the given size, in the order of ranks. To the other ranks, dropping
//! one must look like the death of its rank.

#![expect(clippy::missing_panics_doc, reason = "panicking is how a suite reports")]

use crate::model::Rank;
use crate::wire::Transport;
use crate::wire::packet::{Header, PacketKind, WirePacket};
use std::io::IoSlice;
use std::thread;
use unisono_linux::clock::{Duration, now};

/// The transports of a job, by rank.
pub type Transports = Vec<Box<dyn Transport>>;

/// The longest wait before an awaited event counts as lost.
const TIMEOUT: Duration = Duration::from_secs(60);

pub fn check(make: impl Fn(usize) -> Transports) {
    ends_know_who_they_are(&make);
    packets_arrive_in_order_whole_and_once(&make);
    two_ranks_that_only_send_do_not_wait_for_each_other(&make);
    a_wait_ends_at_its_deadline_and_at_a_packet(&make);
    whoever_is_gone_is_reported_after_its_packets(&make);
    a_refused_peer_is_cut_off(&make);
    a_bell_ends_a_wait(&make);
    whoever_listens_learns_of_what_others_receive_and_ring(&make);
}

/// Each transport returns its own rank and the size of the job.
pub fn ends_know_who_they_are(make: &impl Fn(usize) -> Transports) {
    for (index, end) in make(3).iter().enumerate() {
        assert_eq!((end.rank(), end.size()), (Rank::at(index), 3), "an end knows who it is");
        assert!((4096..=crate::wire::packet::MAX_PAYLOAD).contains(&end.max_payload()), "payload limits");
    }
}

fn send(end: &mut dyn Transport, to: Rank, tag: u32, payload: &[u8]) {
    let header = Header { tag, ..Header::new(PacketKind::Put, 1) }.encode(payload.len());
    let (first, second) = payload.split_at(payload.len() / 3);
    end.send(to, &header, &[IoSlice::new(first), IoSlice::new(second)]).expect("sending works");
}

/// Receives until `enough` says so; panics after [`TIMEOUT`].
fn receive_until(
    end: &mut dyn Transport,
    mut take: impl FnMut(Rank, WirePacket<'_>),
    mut enough: impl FnMut(&dyn Transport) -> bool,
) {
    let (mut bytes, limit) = (Vec::new(), now() + TIMEOUT);
    loop {
        while let Some(from) = end.receive(&mut bytes).expect("receiving works") {
            take(from, WirePacket::parse(&bytes).expect("packets arrive whole"));
        }
        if enough(end) {
            return;
        }
        assert!(now() < limit, "rank {} waited in vain for what was sent to it", end.rank());
        end.wait(Some(now() + Duration::SECOND)).expect("waiting works");
    }
}

fn content(tag: u32, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(31).wrapping_add(tag) as u8).collect()
}

/// Every rank sends packets of many lengths to every other; all arrive in order, whole and once.
pub fn packets_arrive_in_order_whole_and_once(make: &impl Fn(usize) -> Transports) {
    const PACKETS: u32 = 200;
    let size = 3;
    let length = |tag: u32, max_payload: usize| match tag % 7 {
        0 => 0,
        1 => max_payload,
        other => (tag as usize * 37 + other as usize) % 3000,
    };
    thread::scope(|threads| {
        for mut end in make(size) {
            threads.spawn(move || {
                let (me, max_payload) = (end.rank(), end.max_payload().min(100_000));
                let peers = || (0..size).map(Rank::at).filter(move |peer| *peer != me);
                for tag in 0..PACKETS {
                    for peer in peers() {
                        send(&mut *end, peer, tag, &content(tag, length(tag, max_payload)));
                    }
                }
                let expected = std::cell::RefCell::new(vec![0_u32; size]);
                let take = |from: Rank, packet: WirePacket<'_>| {
                    let expected = &mut expected.borrow_mut()[from.index()];
                    assert_eq!(packet.header.tag, *expected, "packets from {from} to {me} in order");
                    assert_eq!(packet.payload, content(*expected, length(*expected, max_payload)), "whole");
                    *expected += 1;
                };
                let done = |_: &dyn Transport| peers().all(|peer| expected.borrow()[peer.index()] == PACKETS);
                receive_until(&mut *end, take, done);
                let limit = now() + TIMEOUT;
                while !end.flush().expect("flushing works") {
                    assert!(now() < limit, "what is kept is passed on");
                }
            });
        }
    });
}

/// Sending never waits: both ranks send megabytes before either receives.
pub fn two_ranks_that_only_send_do_not_wait_for_each_other(make: &impl Fn(usize) -> Transports) {
    const PACKETS: u32 = 64;
    let mut ends = make(2);
    for (index, end) in ends.iter_mut().enumerate() {
        let payload = content(0, end.max_payload().min(1 << 18));
        for tag in 0..PACKETS {
            send(&mut **end, Rank::at(1 - index), tag, &payload);
        }
    }
    thread::scope(|threads| {
        for mut end in ends {
            threads.spawn(move || {
                let came = std::cell::Cell::new(0);
                receive_until(&mut *end, |_, _| came.set(came.get() + 1), |_| came.get() == PACKETS);
                while !end.flush().expect("flushing works") {
                    end.wait(Some(now() + Duration::from_millis(10))).expect("waiting works");
                }
            });
        }
    });
}

/// A wait ends at its deadline, and at once when a packet has arrived.
pub fn a_wait_ends_at_its_deadline_and_at_a_packet(make: &impl Fn(usize) -> Transports) {
    let mut ends = make(2);
    let mut bytes = Vec::new();
    while ends[0].receive(&mut bytes).expect("receiving works").is_some() {}
    ends[0].wait(Some(now() + Duration::from_millis(20))).expect("waiting works");
    send(&mut *ends[1], Rank(0), 9, b"x");
    while !ends[1].flush().expect("flushing works") {}
    let came = std::cell::Cell::new(false);
    receive_until(&mut *ends[0], |_, packet| came.set(packet.header.tag == 9), |_| came.get());
}

/// The death of a peer is reported, by rank and with a reason, after its earlier packets have arrived.
pub fn whoever_is_gone_is_reported_after_its_packets(make: &impl Fn(usize) -> Transports) {
    let mut ends = make(3);
    let mut dies = ends.remove(1);
    send(&mut *dies, Rank(0), 1, b"last words");
    while !dies.flush().expect("flushing works") {}
    drop(dies);
    let words = std::cell::Cell::new(0);
    let mut first = ends.remove(0);
    receive_until(
        &mut *first,
        |_, packet| words.set(packet.payload.len()),
        |end| words.get() > 0 && !end.gone().is_empty(),
    );
    assert_eq!(words.get(), 10, "last words arrive");
    assert_eq!(first.gone()[0].rank, Rank(1), "the one gone is named");
    assert!(!first.gone()[0].why.is_empty(), "with a reason");
    send(&mut *first, Rank(1), 2, b"into the void");
    send(&mut *first, Rank(2), 3, b"still there?");
    let has_arrived = std::cell::Cell::new(false);
    thread::scope(|threads| {
        let mut last = ends.remove(0);
        let pump = threads.spawn(move || {
            while !first.flush().expect("flushing works") {
                first.wait(Some(now() + Duration::from_millis(10))).expect("waiting works");
            }
            first
        });
        receive_until(&mut *last, |_, packet| has_arrived.set(packet.header.tag == 3), |_| has_arrived.get());
        drop(pump.join().expect("the pump does not panic"));
    });
}

/// A refused peer is reported gone with the given reason, and no packet of it is delivered any more.
pub fn a_refused_peer_is_cut_off(make: &impl Fn(usize) -> Transports) {
    let mut ends = make(2);
    ends[0].refuse(Rank(1), "it sent nonsense");
    assert!(
        ends[0].gone().iter().any(|gone| gone.rank == Rank(1) && gone.why.contains("nonsense")),
        "a refused peer is gone"
    );
    send(&mut *ends[1], Rank(0), 1, b"more nonsense");
    let _ = ends[1].flush();
    let mut bytes = Vec::new();
    ends[0].wait(Some(now() + Duration::from_millis(20))).expect("waiting works");
    assert_eq!(ends[0].receive(&mut bytes).expect("receiving works"), None, "nothing of it is delivered");
}

/// A bell rung by another thread ends a wait.
pub fn a_bell_ends_a_wait(make: &impl Fn(usize) -> Transports) {
    let mut ends = make(2);
    let Some(bell) = ends[0].bell() else { return };
    thread::scope(|threads| {
        let waiter = threads.spawn(|| {
            ends[0].wait(Some(now() + TIMEOUT)).expect("waiting works");
        });
        while !waiter.is_finished() {
            bell.ring();
            thread::yield_now();
        }
    });
}

/// Listening threads learn of packets that another thread received before they listened, and each of them
/// learns of a ring.
pub fn whoever_listens_learns_of_what_others_receive_and_ring(make: &impl Fn(usize) -> Transports) {
    let mut ends = make(2);
    let Some(bell) = ends[0].bell() else { return };
    let (here, there) = ends.split_at_mut(1);
    let limit = now() + TIMEOUT;
    let listen = |last_events| {
        while bell.events() == last_events {
            assert!(now() < limit, "a listener was not told");
            bell.listen(last_events, Some(limit));
        }
    };
    for tag in 0..100 {
        let last_events = bell.events();
        thread::scope(|threads| {
            let listeners: Vec<_> = (0..3).map(|_| threads.spawn(|| listen(last_events))).collect();
            if tag % 4 == 0 {
                bell.ring();
            } else {
                send(&mut *there[0], Rank(0), tag, b"for one of them");
                let has_arrived = std::cell::Cell::new(false);
                receive_until(
                    &mut *here[0],
                    |_, packet| has_arrived.set(packet.header.tag == tag),
                    |_| has_arrived.get(),
                );
            }
            for listener in listeners {
                listener.join().expect("told");
            }
        });
    }
}
