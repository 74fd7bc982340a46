//! Runs the transport's conformance suite over callbacks that pass messages between threads as an MPI does:
//! messages are matched in order, and an operation ends only some time after it began.

use super::*;
use std::sync::{Arc, Mutex};
use unisono_rma::wire::tests::conformance;

type Queue = Mutex<VecDeque<(c_int, Vec<u8>)>>;

/// A rank's end of the simulated MPI.
struct End {
    rank: c_int,
    queues: Arc<Vec<Queue>>,
}

/// An operation that has begun.
struct PendingOperation {
    /// The number of questions until it ends.
    left: usize,
    /// The data of a receive, and its memory: it is there only at the end.
    late: Option<(Vec<u8>, *mut u8)>,
}

impl PendingOperation {
    fn begin(left: usize, late: Option<(Vec<u8>, *mut u8)>) -> *mut c_void {
        Box::into_raw(Box::new(Self { left, late })).cast()
    }
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
    unsafe { *pending = PendingOperation::begin(3, None) };
    0
}

unsafe extern "C" fn ended(_context: *mut c_void, pending: *mut *mut c_void, done: *mut c_int) -> c_int {
    // SAFETY: `send` or `take` stored a box's pointer there.
    let begun = unsafe { (*pending).cast::<PendingOperation>() };
    // SAFETY: an operation is there, and only this thread has it.
    let asked = unsafe { &mut *begun };
    asked.left -= 1;
    let has_ended = asked.left == 0;
    // SAFETY: the transport gives a place for it.
    unsafe { *done = c_int::from(has_ended) };
    if !has_ended {
        return 0;
    }
    // SAFETY: it came from Box::into_raw and is forgotten by the transport now.
    let operation = unsafe { Box::from_raw(begun) };
    if let Some((bytes, packet)) = operation.late {
        // SAFETY: the transport keeps memory of the message's size until now.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), packet, bytes.len()) };
    }
    // SAFETY: the transport gives the place of the operation.
    unsafe { *pending = ptr::null_mut() };
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
    assert_eq!(matched.len(), bytes);
    // of two long packets the later may be there first
    let questions = if bytes > WHOLE_BYTES { 1 + bytes % 5 } else { 1 };
    let mut pending = PendingOperation::begin(questions, Some((*matched, packet.cast())));
    let mut done = 0;
    if bytes <= WHOLE_BYTES {
        // SAFETY: the operation has just begun.
        unsafe { ended(ptr::null_mut(), &raw mut pending, &raw mut done) };
    }
    // SAFETY: the transport gives a place for it.
    unsafe { *message = pending };
    0
}

/// A longer packet ends some time after it was matched.
const WHOLE_BYTES: usize = 1024;

/// The callbacks of each rank of a simulated MPI.
fn callbacks(size: usize) -> Vec<Callbacks> {
    let queues: Arc<Vec<Queue>> = Arc::new((0..size).map(|_| Queue::default()).collect());
    let end = |rank: usize| {
        let context = Box::new(End { rank: rank as c_int, queues: Arc::clone(&queues) });
        Callbacks { context: Box::into_raw(context).cast(), send, ended, receive, take }
    };
    (0..size).map(end).collect()
}

fn ends(size: usize) -> conformance::Transports {
    let end = |(rank, callbacks)| {
        Box::new(HostMessages::new(Rank::at(rank), size, AWAKE, callbacks, None)) as Box<dyn Transport>
    };
    callbacks(size).into_iter().enumerate().map(end).collect()
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

/// Ends with a watch: a ring of connections on this host.
fn watched_ends(size: usize) -> Vec<HostMessages> {
    let key = [7; 16];
    let mut offers = vec![0; size * watch::UNISONO_MPI_WATCH_OFFER];
    let room = offers.chunks_exact_mut(watch::UNISONO_MPI_WATCH_OFFER);
    let made: Vec<*mut WatchHandle> = room
        .enumerate()
        .map(|(rank, room)| {
            // SAFETY: the key and the room have the sizes that the function wants.
            unsafe {
                watch::unisono_mpi_watch_new(rank as c_int, size as c_int, key.as_ptr(), room.as_mut_ptr())
            }
        })
        .collect();
    // SAFETY: `unisono_mpi_watch_new` made each of them by Box::into_raw.
    let mut watches: Vec<Box<WatchHandle>> =
        made.into_iter().map(|watch| unsafe { Box::from_raw(watch) }).collect();
    std::thread::scope(|threads| {
        for watch in &mut watches {
            threads.spawn(|| watch.meet(&offers).expect("they meet"));
        }
    });
    let callbacks = callbacks(size);
    let parts = watches.into_iter().zip(callbacks).enumerate();
    parts
        .map(|(rank, (watch, calls))| HostMessages::new(Rank::at(rank), size, AWAKE, calls, Some(watch)))
        .collect()
}

#[test]
fn neighbours_notice_that_a_rank_is_gone_and_tell_those_that_are_none() {
    let mut ends = watched_ends(5);
    drop(ends.remove(2));
    let mut packet = Vec::new();
    while ends.iter().any(|end| end.gone().is_empty()) {
        for end in &mut ends {
            end.receive(&mut packet).expect("it can communicate");
        }
    }
    for end in &ends {
        let gone = end.gone();
        assert_eq!(
            (gone.len(), gone[0].rank, &*gone[0].why),
            (1, Rank(2), "it closed the connection"),
            "at {}",
            end.rank()
        );
    }
}

#[test]
fn a_wait_without_limit_ends_at_the_notice_that_a_rank_is_gone() {
    let mut ends: Vec<HostMessages> = callbacks(3)
        .into_iter()
        .enumerate()
        .map(|(rank, calls)| HostMessages::new(Rank::at(rank), 3, AWAKE, calls, None))
        .collect();
    let gone = Gone { rank: Rank(2), why: "it closed the connection".to_owned() };
    ends[1].send_bytes(Rank(0), encode_notice(&gone)).expect("sent");
    ends[0].wait(None).expect("it can communicate");
    assert_eq!(ends[0].gone()[0].rank, Rank(2));
}

#[test]
fn a_rank_that_says_goodbye_is_not_gone() {
    let mut ends = watched_ends(2);
    let mut goodbye = [0; HEADER];
    goodbye[0] = PacketKind::Goodbye as u8;
    let mut leaver = ends.remove(1);
    leaver.send(Rank(0), &goodbye, &[]).expect("sent");
    leaver.left[0] = true; // as if rank 0 had left as well: the drop does not wait for its goodbye
    while !leaver.flush().expect("it can communicate") {}
    drop(leaver);
    let (mut packet, until) = (Vec::new(), clock::now() + Duration::from_millis(300));
    while clock::now() < until {
        ends[0].receive(&mut packet).expect("it can communicate");
    }
    assert!(ends[0].gone().is_empty(), "{:?}", ends[0].gone());
}
