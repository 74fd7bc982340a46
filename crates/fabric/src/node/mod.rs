//! A node: a process in a namespace of its own. It carries out orders: it sets up registers and runs
//! barriers.
//!
//! Between orders a node still answers messages, because its earlier messages may have been lost: the root
//! node of a tree answers repeated arrivals, and a rank of a dissemination barrier sends its messages again
//! on request.

mod registers;
mod retransmit;
mod wait;

use crate::error::Error;
use crate::fabric::{self, HARDWARE, NODE_DEVICE, address_of};
use crate::job::NodeContext;
use crate::layout::{BARRIER, REQUEST};
use crate::orders::{BarrierRun, NodeOrder, NodeReport};
use crate::software::{RankMessage, Software, SoftwareAlgorithm};
pub(crate) use retransmit::RetransmitTimer;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration as StdDuration;
use unisono_btin::{BarrierFrame, GroupMember, NodeId};
use unisono_linux::Errno;
use unisono_linux::clock::{self, Instant};
use unisono_linux::current_cpu;
use unisono_linux::packet::PacketSocket;
use unisono_linux::process::readable;
use unisono_linux::scheduling::{self, Children, SchedulingPolicy};
use unisono_linux::socket::force_receive_room;

/// The UDP port of software barriers.
const UDP_PORT: u16 = 4_074;
/// The size of the receive buffer for datagrams: a kilobyte from each of 4,096 members.
const DATAGRAM_ROOM: usize = 4 << 20;
pub(crate) const ETHERNET: usize = 14;

pub(crate) struct MemberNode<'a> {
    id: NodeId,
    known: NodeContext<'a>,
    orders: BufReader<UnixStream>,
    barriers: PacketSocket,
    requests: PacketSocket,
    datagrams: UdpSocket,
    /// The node's part in each job. `None`: the node is not a member, or the registers are not set up.
    members: Vec<Option<GroupMember>>,
    software: Option<SoftwarePart>,
    /// Whether another member has given up this node's current barrier.
    given_up: bool,
    /// Frames to send; a buffer that is reused to save allocations.
    out: Vec<BarrierFrame>,
    /// Messages of a run that this node has not been ordered to begin yet.
    early: Vec<(u8, RankMessage)>,
    /// The retransmission timeout for barriers of the current kind; `learned` keeps the timeouts of earlier
    /// kinds.
    retransmit: RetransmitTimer,
    kind: Option<SoftwareAlgorithm>,
    learned: BTreeMap<Option<SoftwareAlgorithm>, RetransmitTimer>,
    next_request: u16,
    duties: Vec<registers::NodeDuty>,
    life: u32,
}

/// The node's part in a software barrier: the job whose members take part, and the run.
struct SoftwarePart {
    part: Software,
    job: usize,
    tag: u8,
}

enum OrderDone {
    With(NodeReport),
    Stopped,
}

/// Runs the node until the stream of orders ends. The calling thread must be in the node's namespace.
pub(crate) fn serve(id: NodeId, known: NodeContext<'_>, orders: UnixStream) -> Result<(), Error> {
    // with the batch policy a woken node does not preempt the node that woke it, which is about to wait
    // itself
    let batch = SchedulingPolicy::Batch { nice: 0 };
    let _ = scheduling::set_own(batch, Children::Inherit); // if this fails, the node still works, but more slowly
    current_cpu::stop_noting(); // a node never asks for its processor, and it is scheduled for every frame
    fabric::take_address(id)?;
    let open =
        |ethertype| PacketSocket::open(NODE_DEVICE, ethertype).map_err(Error::io("open a packet socket"));
    let datagrams = UdpSocket::bind((address_of(id), UDP_PORT)).map_err(Error::io("open a UDP socket"))?;
    // the root of a central barrier receives from all members at once; with a smaller buffer it would lose
    // messages and be slow
    force_receive_room(&datagrams, DATAGRAM_ROOM).map_err(Error::io("make room at a UDP socket"))?;
    let largest = known.jobs.iter().map(|job| job.group.members().len()).max().unwrap_or(0);
    let mut node = MemberNode {
        id,
        known,
        orders: BufReader::new(orders),
        barriers: open(BARRIER)?,
        requests: open(REQUEST)?,
        datagrams,
        members: vec![None; known.jobs.len()],
        software: None,
        given_up: false,
        out: Vec::new(),
        early: Vec::new(),
        retransmit: RetransmitTimer::for_members(largest),
        kind: None,
        learned: BTreeMap::new(),
        next_request: 0,
        duties: Vec::new(),
        life: 0,
    };
    node.report(&NodeReport::Ready)?;
    while let Some(order) = node.next_order()? {
        let report = match node.execute(&order) {
            Ok(OrderDone::With(report)) => report,
            Ok(OrderDone::Stopped) => NodeReport::Stopped,
            Err(error) => NodeReport::Failed { why: error.to_string() },
        };
        node.report(&report)?;
    }
    Ok(())
}

impl MemberNode<'_> {
    fn execute(&mut self, order: &NodeOrder) -> Result<OrderDone, Error> {
        match order {
            NodeOrder::SetUp { without, first } => self.set_up(without, *first),
            NodeOrder::Release => self.release(),
            NodeOrder::Barriers { jobs, run } => self.run_in_switches(jobs, *run),
            NodeOrder::Software { algorithm, job, tag, run } => {
                self.run_in_software(*algorithm, *job, *tag, *run)
            }
            NodeOrder::Stop => Ok(OrderDone::Stopped), // the node was idle
        }
    }

    fn report(&mut self, report: &NodeReport) -> Result<(), Error> {
        let mut line =
            serde_json::to_vec(report).expect("serializes because it holds numbers and text alone");
        line.push(b'\n');
        self.orders.get_mut().write_all(&line).map_err(Error::io("report to the deployment"))
    }

    /// Waits for the next order, and answers other nodes in the meantime. Returns `None` if there will be no
    /// more orders.
    fn next_order(&mut self) -> Result<Option<NodeOrder>, Error> {
        loop {
            if !self.orders.buffer().is_empty() {
                return self.read_order();
            }
            let descriptors = [self.orders.get_ref().as_fd(), self.barriers.as_fd(), self.datagrams.as_fd()];
            let ready = readable(&descriptors, None).map_err(Error::io("wait for orders"))?;
            match ready[..] {
                [true, ..] => return self.read_order(),
                [_, true, _] => {
                    self.take_frame(&mut Vec::new())?;
                }
                [.., true] => {
                    self.take_datagram()?;
                }
                _ => {}
            }
        }
    }

    fn read_order(&mut self) -> Result<Option<NodeOrder>, Error> {
        let mut line = String::new();
        let length = self.orders.read_line(&mut line).map_err(Error::io("read orders"))?;
        if length == 0 {
            return Ok(None);
        }
        let bad = |error: serde_json::Error| Error::Barrier(format!("an order is not understood: {error}"));
        serde_json::from_str(&line).map(Some).map_err(bad)
    }

    /// Returns whether the deployment has ordered the node to stop. It is called after a timeout.
    fn is_stop_ordered(&mut self) -> Result<bool, Error> {
        let waits = readable(&[self.orders.get_ref().as_fd()], Some(StdDuration::ZERO))
            .map_err(Error::io("look for orders"))?;
        // the only order to a node that has not reported yet is Stop; the end of the orders ends the process
        Ok(waits == [true] && self.read_order()?.is_none_or(|order| order == NodeOrder::Stop))
    }

    fn send(&self, frame: BarrierFrame) -> Result<(), Error> {
        let mut bytes = [0; ETHERNET + 4];
        bytes[..ETHERNET].copy_from_slice(&header(BARRIER));
        bytes[ETHERNET..].copy_from_slice(&frame.to_bytes());
        tolerate(self.barriers.send(&bytes), "send a frame")
    }

    /// Stores the timeouts learned for barriers of the old kind, and continues with the timeouts of the new
    /// kind.
    fn switch_kind(&mut self, kind: Option<SoftwareAlgorithm>, members: usize) {
        if kind != self.kind {
            let now = self.learned.remove(&kind).unwrap_or_else(|| RetransmitTimer::for_members(members));
            let before = std::mem::replace(&mut self.retransmit, now);
            self.learned.insert(std::mem::replace(&mut self.kind, kind), before);
        }
    }

    /// Runs barriers one after the other. `once` runs one barrier, and returns whether the node was ordered
    /// to stop.
    fn repeat(
        &mut self,
        run: BarrierRun,
        mut once: impl FnMut(&mut Self, &mut u64) -> Result<bool, Error>,
    ) -> Result<OrderDone, Error> {
        let (mut start, mut repeated) = (clock::now(), 0);
        let mut moments = Vec::with_capacity(if run.trace { run.count as usize } else { 0 });
        for number in 0..run.warm_up + run.count {
            if number == run.warm_up {
                (start, repeated) = (clock::now(), 0);
            }
            let traced = run.trace && number >= run.warm_up;
            let entered = if traced { clock::now() } else { Instant::ZERO };
            if once(self, &mut repeated)? {
                return Ok(OrderDone::Stopped);
            }
            if traced {
                moments.push((entered, clock::now()));
            }
        }
        Ok(OrderDone::With(NodeReport::Done { took: clock::now() - start, repeated, moments }))
    }
}

/// Returns the Ethernet header. Source and destination are the same, because all devices have the same
/// address.
pub(crate) fn header(ethertype: u16) -> [u8; ETHERNET] {
    let mut header = [0; ETHERNET];
    header[..6].copy_from_slice(&HARDWARE);
    header[6..12].copy_from_slice(&HARDWARE);
    header[12..].copy_from_slice(&ethertype.to_be_bytes());
    header
}

/// Ignores errors that only mean the loss of a frame, because a cable is down or the kernel has no room: the
/// frame will be sent again.
pub(crate) fn tolerate(sent: std::io::Result<()>, what: &str) -> Result<(), Error> {
    let Err(error) = sent else { return Ok(()) };
    match Errno::from_io_error(&error) {
        Some(Errno::NETDOWN | Errno::NOBUFS | Errno::NXIO) => Ok(()),
        _ => Err(Error::io(what.to_owned())(error)),
    }
}
