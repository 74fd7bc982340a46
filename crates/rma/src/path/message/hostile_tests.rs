//! Tests with packets of a peer that break the protocol. They must neither change other members' answers nor
//! fill this member's memory.

use super::passive::{MAX_UNASKED_BYTES, MAX_UNASKED_REQUESTS};
use super::port::{AwaitedAnswer, LockRequest};
use super::serve::NO_MEMORY;
use super::{EngineState, Memory, MessageEngine, WindowPort};
use crate::memory::op::Back;
use crate::model::{Element, Rank, Sink};
use crate::wire::Transport;
use crate::wire::loopback::Loopback;
use crate::wire::packet::{Header, PacketFlags, PacketKind};
use std::io::IoSlice;
use std::sync::Arc;

/// Creates rank 0 of three with a dynamic window, number 1, and the transports of the other two.
fn member() -> (Arc<MessageEngine>, Vec<Loopback>) {
    let mut ends = Loopback::job(3);
    let shared = MessageEngine::new(Box::new(ends.remove(0)));
    let number = shared.core().new_window();
    assert_eq!(number, 1);
    let port = WindowPort::new(Memory::Attached(Vec::new()), 3);
    shared.core().ports.insert(number, port);
    (shared, ends)
}

fn send(peer: &mut Loopback, header: &Header, payload: &[u8]) {
    let pieces = [IoSlice::new(payload)];
    peer.send(Rank(0), &header.encode(payload.len()), &pieces).expect("a loopback takes everything");
    peer.flush().expect("as above");
}

/// Serves all packets that have arrived, and returns the rank that was cut off.
fn cut_off(core: &mut EngineState) -> Option<Rank> {
    core.progress().expect("a peer's fault is not this member's");
    core.transport.gone().first().map(|gone| gone.rank)
}

#[test]
fn a_refusal_of_what_another_rank_was_asked_changes_nothing_and_its_sender_is_cut_off() {
    let (shared, mut others) = member();
    let layout = Element::U64.layout();
    let mut result = 0_u64;
    let sink = Sink { address: (&raw mut result).cast(), count: 1, layout: &layout };
    let mut core = shared.core();
    let port = core.port(1);
    port.answers.insert(7, AwaitedAnswer { target: Rank(2), back: Some(Back::new(sink)), remaining: 8 });
    (port.peers[2].outstanding, port.peers[1].refusable) = (1, 1);
    let refusal = Header { tag: 7, extra: NO_MEMORY, ..Header::new(PacketKind::Refused, 1) };
    send(&mut others[0], &refusal, &[]);
    assert_eq!(cut_off(&mut core), Some(Rank(1)));
    let port = core.port(1);
    assert!(port.answers.contains_key(&7) && port.refused.is_none(), "rank 2 still owes it");
    assert_eq!((port.peers[1].outstanding, port.peers[2].outstanding), (0, 1));
}

#[test]
fn a_refusal_from_a_rank_that_was_asked_nothing_is_refused() {
    let (shared, mut others) = member();
    let mut core = shared.core();
    let refusal = Header { extra: NO_MEMORY, ..Header::new(PacketKind::Refused, 1) };
    send(&mut others[1], &refusal, &[]);
    assert_eq!(cut_off(&mut core), Some(Rank(2)));
    assert!(core.port(1).refused.is_none());
}

#[test]
fn contributions_to_calls_far_ahead_are_not_kept() {
    let far_ahead = |header: &Header, payload: &[u8]| {
        let (shared, mut others) = member();
        let mut core = shared.core();
        send(
            &mut others[0],
            &Header { tag: 1, ..Header::new(PacketKind::Collect, 0) },
            b"the next call's",
        );
        assert_eq!(cut_off(&mut core), None, "a peer may be one call ahead");
        for _ in 0..1000 {
            send(&mut others[0], header, payload);
        }
        assert_eq!(cut_off(&mut core), Some(Rank(1)), "{header:?}");
        assert_eq!(core.collected.len(), 1, "{header:?}");
    };
    let collect = |window, tag, extra| Header { tag, extra, ..Header::new(PacketKind::Collect, window) };
    far_ahead(&collect(0, 2, 0), &[]);
    far_ahead(&collect(0, 0_u32.wrapping_sub(1), 0), &[]);
    far_ahead(&collect(0, 1, 2), &[]);
    far_ahead(&collect(9, 1, 0), &[]);
    far_ahead(&collect(1, 1, 0), &[0; 64]);
}

#[test]
fn counts_of_fences_that_nobody_can_be_in_are_not_kept() {
    let impossible = |epoch, round, length| {
        let (shared, mut others) = member();
        let mut core = shared.core();
        let count = |tag, offset| Header { tag, offset, ..Header::new(PacketKind::FenceCount, 1) };
        send(&mut others[0], &count(1, 1), &[0; 8]);
        assert_eq!(cut_off(&mut core), None, "a peer may be one fence ahead");
        send(&mut others[0], &count(epoch, round), &vec![0; length]);
        assert_eq!(cut_off(&mut core), Some(Rank(1)), "epoch {epoch}, round {round}, {length} bytes");
        assert_eq!(core.port(1).counts.len(), 1);
    };
    impossible(2, 1, 4);
    impossible(u32::MAX, 1, 4);
    impossible(1, 4, 4);
    impossible(1, 3, 4);
    impossible(1, -3, 4);
    impossible(1, 2, 13);
}

#[test]
fn a_window_that_all_have_freed_is_forgotten() {
    let (shared, mut others) = member();
    let mut core = shared.core();
    send(&mut others[0], &Header { tag: 1, ..Header::new(PacketKind::Collect, 1) }, &[]);
    assert_eq!(cut_off(&mut core), None);
    core.forget_window(1);
    assert!(core.collected.is_empty());
    send(&mut others[0], &Header { tag: 1, ..Header::new(PacketKind::Collect, 1) }, &[]);
    assert_eq!(cut_off(&mut core), Some(Rank(1)));
}

const ONCE: PacketFlags = PacketFlags::LOCK_SHARED.with(PacketFlags::UNLOCK);

#[test]
fn operations_with_marks_of_their_own_or_of_another_window_do_not_travel_with_a_lock_request() {
    let put = Header::new(PacketKind::Put, 1);
    let marked = |flags| Header { flags, ..put };
    for inner in [marked(PacketFlags::UNLOCK), marked(ONCE), Header { window: 2, ..put }] {
        let (shared, mut others) = member();
        let mut core = shared.core();
        let batch = Header { flags: ONCE, ..Header::new(PacketKind::Batch, 1) };
        send(&mut others[0], &batch, &inner.encode(0));
        assert_eq!(cut_off(&mut core), Some(Rank(1)), "{inner:?}");
        assert!(core.port(1).holders.is_empty(), "{inner:?}");
    }
}

#[test]
fn a_rank_that_keeps_a_lock_after_its_operations_cannot_request_it_again() {
    let (shared, mut others) = member();
    let mut core = shared.core();
    let request = Header { flags: PacketFlags::LOCK_SHARED, ..Header::new(PacketKind::Put, 1) };
    send(&mut others[0], &request, &[]);
    assert_eq!(cut_off(&mut core), None);
    assert_eq!(core.port(1).holders, [Rank(1)]);
    send(&mut others[0], &request, &[]);
    assert_eq!(cut_off(&mut core), Some(Rank(1)));
}

#[test]
fn what_waits_for_a_lock_is_bounded() {
    let (shared, mut others) = member();
    let mut core = shared.core();
    let request = Header { flags: ONCE, ..Header::new(PacketKind::Put, 1) };
    send(&mut others[1], &Header { extra: 2, ..Header::new(PacketKind::LockRequest, 1) }, &[]);
    assert_eq!(cut_off(&mut core), None);
    for _ in 0..=MAX_UNASKED_REQUESTS {
        send(&mut others[0], &request, &[]);
    }
    assert_eq!(cut_off(&mut core), None);
    send(&mut others[0], &request, &[]);
    assert_eq!(cut_off(&mut core), Some(Rank(1)));
    assert_eq!(core.port(1).lock_queue.len(), MAX_UNASKED_REQUESTS + 1);

    let (shared, mut others) = member();
    let longest = shared.core().max_carried();
    send(&mut others[1], &Header { extra: 2, ..Header::new(PacketKind::LockRequest, 1) }, &[]);
    assert_eq!(cut_off(&mut shared.core()), None);
    while cut_off(&mut shared.core()).is_none() {
        send(&mut others[0], &request, &vec![0; longest]);
    }
    let kept: usize = shared.core().port(1).lock_queue.iter().map(LockRequest::payload_bytes).sum();
    assert!(kept <= MAX_UNASKED_BYTES + longest, "{kept} bytes are kept");

    let (shared, mut others) = member();
    send(&mut others[0], &request, &vec![0; longest + 1]);
    assert_eq!(cut_off(&mut shared.core()), Some(Rank(1)));
}
