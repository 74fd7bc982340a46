//! Runs the transport's conformance suite over callbacks that pass messages between threads as an MPI does:
//! messages are matched in order, and a send completes only some time after it began. The death of a rank is
//! not tested, because an MPI does not report it.

use super::*;
use std::sync::{Arc, Mutex};
use unisono_rma::wire::tests::conformance;

type Queue = Mutex<VecDeque<(c_int, Vec<u8>)>>;

/// A rank's end of the simulated MPI.
struct End {
    rank: c_int,
    queues: Arc<Vec<Queue>>,
}

unsafe extern "C" fn send(
    context: *mut c_void,
    to: c_int,
    packet: *mut c_void,
    bytes: usize,
    pending: *mut *mut c_void,
) -> c_int {
    // SAFETY: the context is an End that is never freed.
    let end = unsafe { &*context.cast::<End>() };
    // SAFETY: the transport gives a packet of this size.
    let packet = unsafe { std::slice::from_raw_parts(packet.cast::<u8>(), bytes) };
    end.queues[to as usize].lock().expect("unpoisoned").push_back((end.rank, packet.to_vec()));
    // SAFETY: the transport gives a place for it.
    unsafe { *pending = Box::into_raw(Box::new(3_u32)).cast() };
    0
}

unsafe extern "C" fn sent(_context: *mut c_void, pending: *mut *mut c_void, done: *mut c_int) -> c_int {
    // SAFETY: `send` stored a box's pointer there.
    let left = unsafe { (*pending).cast::<u32>() };
    // SAFETY: `send` left a number there, and only this thread has it.
    let left_now = unsafe { &mut *left };
    *left_now -= 1;
    let ended = *left_now == 0;
    // SAFETY: the transport gives a place for it.
    unsafe { *done = c_int::from(ended) };
    if ended {
        // SAFETY: it came from Box::into_raw and is forgotten by the transport now.
        drop(unsafe { Box::from_raw(left) });
    }
    0
}

unsafe extern "C" fn receive(
    context: *mut c_void,
    from: *mut c_int,
    bytes: *mut usize,
    message: *mut *mut c_void,
) -> c_int {
    // SAFETY: the context is an End that is never freed.
    let end = unsafe { &*context.cast::<End>() };
    let Some((sender, packet)) = end.queues[end.rank as usize].lock().expect("unpoisoned").pop_front() else {
        return 0;
    };
    // SAFETY: the transport gives a place for it.
    unsafe { *from = sender };
    // SAFETY: the transport gives a place for it.
    unsafe { *bytes = packet.len() };
    // SAFETY: the transport gives a place for it.
    unsafe { *message = Box::into_raw(Box::new(packet)).cast() };
    0
}

unsafe extern "C" fn take(
    _context: *mut c_void,
    message: *mut *mut c_void,
    packet: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: `receive` stored a box's pointer there.
    let matched = unsafe { (*message).cast::<Vec<u8>>() };
    // SAFETY: it came from Box::into_raw and is forgotten by the transport now.
    let matched = unsafe { Box::from_raw(matched) };
    // SAFETY: the transport gives memory of the message's size.
    let into = unsafe { std::slice::from_raw_parts_mut(packet.cast::<u8>(), bytes) };
    into.copy_from_slice(&matched);
    0
}

fn ends(size: usize) -> conformance::Transports {
    let queues: Arc<Vec<Queue>> = Arc::new((0..size).map(|_| Queue::default()).collect());
    let end = |rank: usize| {
        let context = Box::new(End { rank: rank as c_int, queues: Arc::clone(&queues) });
        let callbacks = Callbacks { context: Box::into_raw(context).cast(), send, sent, receive, take };
        Box::new(HostMessages::new(Rank::at(rank), size, callbacks)) as Box<dyn Transport>
    };
    (0..size).map(end).collect()
}

#[test]
fn messages_of_an_mpi_are_a_transport() {
    conformance::ends_know_who_they_are(&ends);
    conformance::packets_arrive_in_order_whole_and_once(&ends);
    conformance::two_ranks_that_only_send_do_not_wait_for_each_other(&ends);
    conformance::a_wait_ends_at_its_deadline_and_at_a_packet(&ends);
    conformance::a_refused_peer_is_cut_off(&ends);
    conformance::a_bell_ends_a_wait(&ends);
}
