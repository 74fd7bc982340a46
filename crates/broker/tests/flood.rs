//! A flood from one program, and a flood of connections, leave the others their part of each turn: counted in
//! bytes and connections, not in time.

use crate::common::watchdog::within_a_minute;
use rustix::event::{EventfdFlags, eventfd};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use unisono_broker::{Broker, Exposure, Limits, Server};
use unisono_events_client::{Advertisement, ChannelWait, Greeting};
use unisono_events_wire::transport::{
    AcceptedTransport, Drained, FrameTransport, IncomingFrame, MAX_INTAKE, PayloadRef, PollFor, Taken,
    TransportError, TransportListener, TransportPeer,
};
use unisono_events_wire::{Frame, frame::PublishHead};
use unisono_fairqueue::{ClassSpec, Hierarchy};

/// Bytes of a flooding program's frame.
const FRAME: usize = 64 << 10;
/// Frames of a flooding program.
const FRAMES: usize = 400;

/// Counters over all programs of a test.
#[derive(Debug, Default)]
struct FloodCounts {
    received: AtomicUsize,
    accepted: AtomicUsize,
    accepted_at_first_frame: AtomicUsize,
}

/// A program that always has frames.
#[derive(Debug)]
struct FloodingProgram {
    ready: OwnedFd,
    frames: usize,
    saying: Vec<u8>,
    counts: Arc<FloodCounts>,
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    bytes
}

impl FrameTransport for FloodingProgram {
    fn largest(&self) -> usize {
        1 << 20
    }

    fn send(&mut self, _: &[u8], _: PayloadRef<'_>) -> Result<Taken, TransportError> {
        Ok(Taken::Taken)
    }

    fn flush(&mut self) -> Result<Drained, TransportError> {
        Ok(Drained::All)
    }

    fn receive(&mut self) -> Result<Option<IncomingFrame<'_>>, TransportError> {
        let accepted = self.counts.accepted.load(Ordering::Relaxed);
        // only the first frame of all programs stores the number
        let _ = self.counts.accepted_at_first_frame.compare_exchange(
            0,
            accepted,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        self.saying = match self.frames {
            0 => bytes(&Frame::Hello(Greeting::default())),
            1 => bytes(&Frame::Advertise { number: 0, spec: Advertisement::new("t") }),
            FRAMES => return Ok(None),
            _ => bytes(&Frame::Publish { head: PublishHead::default(), payload: &[0; FRAME] }),
        };
        self.frames += 1;
        self.counts.received.fetch_add(self.saying.len(), Ordering::Relaxed);
        Ok(Some(IncomingFrame { bytes: &self.saying, shared_payload: None }))
    }

    fn poll_for(&self) -> PollFor {
        PollFor::Frames
    }

    fn close(&mut self) {}
}

impl AsFd for FloodingProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

/// A listener at which many programs have connected.
#[derive(Debug)]
struct FloodedListener(OwnedFd, Vec<FloodingProgram>);

impl TransportListener for FloodedListener {
    fn accept(&mut self) -> Result<Option<AcceptedTransport>, TransportError> {
        let Some(next) = self.1.pop() else { return Ok(None) };
        next.counts.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(Some((Box::new(next), TransportPeer::Address(Ipv4Addr::LOCALHOST.into()))))
    }
}

impl AsFd for FloodedListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn server() -> Server {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let broker = Broker::new(tree.expect("it is sound"), Limits::default());
    Server::new(broker, ChannelWait::Sleep).expect("descriptors are left")
}

/// Serves `programs` flooding programs until all their frames are taken; returns the counters, and the
/// largest number of bytes in a turn.
fn served(programs: usize) -> (Arc<FloodCounts>, usize) {
    let ready = || eventfd(1, EventfdFlags::CLOEXEC).expect("descriptors are left");
    let counts = Arc::new(FloodCounts::default());
    let program =
        |_| FloodingProgram { ready: ready(), frames: 0, saying: Vec::new(), counts: Arc::clone(&counts) };
    let programs: Vec<_> = (0..programs).map(program).collect();
    let all = programs.len() * (FRAMES - 2) * FRAME;
    let mut server = server();
    server.add(Box::new(FloodedListener(ready(), programs))).expect("it listens");
    let (before, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let stop = || {
        let now = counts.received.load(Ordering::Relaxed);
        let turn = now - before.swap(now, Ordering::Relaxed);
        most.fetch_max(turn, Ordering::Relaxed);
        now >= all
    };
    server.serve(&stop).expect("it serves");
    (Arc::clone(&counts), most.load(Ordering::Relaxed))
}

#[test]
fn a_turn_takes_no_more_bytes_of_a_flood_than_may_be_sent_meanwhile() {
    within_a_minute(|| {
        for programs in [1, 3] {
            let (_, most) = served(programs);
            assert!((FRAME..MAX_INTAKE + 2 * FRAME).contains(&most), "{programs} programs: {most} bytes");
        }
    });
}

#[test]
fn all_programs_that_have_connected_are_accepted_before_one_of_them_is_heard() {
    within_a_minute(|| {
        let (counts, _) = served(20);
        assert_eq!(counts.accepted_at_first_frame.load(Ordering::Relaxed), 20);
    });
}

#[test]
fn five_hundred_programs_connect_before_the_broker_accepts_one() {
    within_a_minute(|| {
        let mut server = server();
        let address = server.listen_tcp((Ipv4Addr::LOCALHOST, 0).into(), Exposure::Loopback);
        let address = address.expect("a free port");
        // without a place in the backlog a connection is tried again after 1, 3 and 7 s, for nothing
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(10));
        let connected: Result<Vec<_>, _> = (0..500).map(connect).collect();
        assert_eq!(connected.map(|connected| connected.len()).map_err(|error| error.kind()), Ok(500));
    });
}
