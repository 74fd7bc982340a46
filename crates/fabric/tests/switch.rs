//! Compares the switch program with the state machine of `unisono-btin`: for the same received frames, it
//! must send the same frames.
//!
//! There is one switch with a node at every port. Each step of each case of the table goes through real
//! devices.

#[path = "../../btin/tests/switch/cases.rs"]
mod cases;

use cases::SwitchCase;
use std::time::Duration;
use unisono_btin::{BarrierFrame, Dropped, End, FrameOutcome, NodeId, Port, SwitchId, SwitchNetwork};
use unisono_fabric::fabric::{Fabric, HARDWARE, NODE_DEVICE};
use unisono_fabric::layout::{BARRIER, RegisterSetup};
use unisono_fabric::{Error, HomeProcessors, SwitchProgram};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::packet::PacketSocket;

const PORTS: u16 = 8;
const SWITCH: SwitchId = SwitchId(0);

/// A switch and a socket at the far end of each port.
struct Bench {
    program: SwitchProgram,
    sockets: Vec<PacketSocket>,
    _fabric: Fabric,
}

impl Bench {
    fn new(by_filters: bool) -> Result<Self, Error> {
        let nodes = (0..PORTS).map(|port| End { switch: SWITCH, port: Port(port) }).collect();
        let network = SwitchNetwork::new(vec![PORTS], vec![], nodes).expect("it is sound");
        let program = SwitchProgram::load(&network)?;
        let mut fabric = Fabric::new(&network, &HomeProcessors::default())?;
        if by_filters {
            fabric.attach_by_filters(&network, &program)?;
        } else {
            eprintln!("attached by {}", fabric.attach(&network, &program)?);
        }
        let home = NetworkNamespace::current().expect("our own");
        let socket = |node| {
            fabric.node(NodeId(node)).enter().expect("root may");
            let socket = PacketSocket::open(NODE_DEVICE, BARRIER).expect("the device is up");
            socket.set_timeout(Duration::from_secs(20)).expect("a time");
            socket
        };
        let sockets = (0..u32::from(PORTS)).map(socket).collect();
        home.enter().expect("root may");
        Ok(Self { program, sockets, _fabric: fabric })
    }

    fn send(&self, port: Port, frame: BarrierFrame) {
        self.sockets[usize::from(port.0)].send(&on_the_wire(&frame.to_bytes())).expect("the device is up");
    }

    fn receive(&self, port: Port) -> Option<BarrierFrame> {
        let mut bytes = [0; 64];
        let length = self.sockets[usize::from(port.0)].receive(&mut bytes).expect("the device is up")?;
        let payload = bytes[14..length].first_chunk().expect("at least a frame");
        Some(BarrierFrame::from_bytes(*payload))
    }

    /// Returns the switches' counter of this name.
    fn counted(&self, name: &str) -> u64 {
        let all = self.program.counters().expect("they can be read");
        all.iter().find(|(known, _)| *known == name).expect("a known name").1
    }
}

fn on_the_wire(payload: &[u8]) -> Vec<u8> {
    [&HARDWARE[..], &HARDWARE, &BARRIER.to_be_bytes(), payload].concat()
}

fn bench(by_filters: bool) -> Option<Bench> {
    match Bench::new(by_filters) {
        Ok(bench) => Some(bench),
        Err(error @ (Error::Host(_) | Error::System { .. })) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn counter_of(outcome: FrameOutcome) -> Option<&'static str> {
    Some(match outcome {
        FrameOutcome::Arrived | FrameOutcome::Completed | FrameOutcome::Released => return None,
        FrameOutcome::Again => "repeated arrivals",
        FrameOutcome::Resent => "arrivals sent up again",
        FrameOutcome::Answered => "releases sent again",
        FrameOutcome::Passed => "failures passed on",
        FrameOutcome::Dropped(Dropped::Port) => "from a port that is not in the register",
        FrameOutcome::Dropped(Dropped::Episode) => "of another episode",
        FrameOutcome::Dropped(Dropped::Repeated) => "releases twice",
        FrameOutcome::Dropped(Dropped::Early) => "releases too early",
        FrameOutcome::Dropped(Dropped::Kind) => "of no kind for a switch",
    })
}

fn run(bench: &Bench, case: &SwitchCase) {
    let setup = RegisterSetup::new(&case.register, case.turn, case.operation, case.first);
    bench.program.install(SWITCH, cases::GROUP, &setup).expect("there is such a switch");
    for (number, step) in case.steps.iter().enumerate() {
        let before = counter_of(step.outcome).map(|name| bench.counted(name));
        bench.send(step.port, step.frame);
        for (port, frame) in &step.out {
            assert_eq!(bench.receive(*port).as_ref(), Some(frame), "{}, step {number}, {port:?}", case.name);
        }
        if let (Some(before), Some(name)) = (before, counter_of(step.outcome)) {
            // a frame without an answer has been processed when `send` returns, or is soon after
            let seen = (0..2000).any(|_| {
                std::thread::sleep(Duration::from_millis(u64::from(bench.counted(name) == before)));
                bench.counted(name) == before + 1
            });
            assert!(seen, "{}, step {number}: not counted as {name}", case.name);
        }
    }
}

#[test]
fn every_case_of_the_table_comes_out_of_real_devices_as_written() {
    every_case(false);
}

#[test]
fn every_case_comes_out_as_written_where_filters_call_the_program() {
    every_case(true);
}

fn every_case(by_filters: bool) {
    let Some(bench) = bench(by_filters) else { return };
    for case in cases::all() {
        run(&bench, &case);
    }
    // any frame that is not in the table would still be in a socket
    for socket in &bench.sockets {
        socket.set_timeout(Duration::from_millis(10)).expect("a time");
    }
    for port in (0..PORTS).map(Port) {
        assert_eq!(bench.receive(port), None, "{port:?} got more than the table says");
    }
}

#[test]
fn frames_of_others_are_dropped_and_counted_and_hurt_nobody() {
    let Some(bench) = bench(false) else { return };
    let (foreign, unknown) = ("foreign frames", "of no group here");
    let before = (bench.counted(foreign), bench.counted(unknown));
    let socket = &bench.sockets[0];
    let header = |ethertype: u16| [&HARDWARE[..], &HARDWARE, &ethertype.to_be_bytes()].concat();
    socket.send(&[header(0x0806), vec![0; 46]].concat()).expect("up"); // ARP
    socket.send(&header(0x0800)).expect("up"); // an IPv4 packet without a header
    socket.send(&[header(BARRIER), vec![0; 3]].concat()).expect("up"); // a byte short
    socket.send(&[header(0x88b6), vec![0; 19]].concat()).expect("up"); // a byte short
    socket.send(&[header(BARRIER), vec![0; 4]].concat()).expect("up"); // a group without a register
    socket.send(&[header(0x0800), vec![255; 60]].concat()).expect("up"); // to a node that does not exist
    let seen = (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        (bench.counted(foreign), bench.counted(unknown)) == (before.0 + 2, before.1 + 4)
    });
    assert!(seen, "{:?}", bench.program.counters());
    for case in cases::all() {
        run(&bench, &case);
    }
}
