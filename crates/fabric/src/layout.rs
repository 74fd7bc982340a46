//! The structures of `intf.h` in Rust. A test compiles the header and compares the two.

use unisono_btin::{End, GroupId, Port, ReductionOperator, Register, SwitchId, TurnPoint};
use unisono_linux::netlink::link::Index;

pub const BARRIER: u16 = 0x88b5;
pub const REQUEST: u16 = 0x88b6;
/// The number of ports of a switch. Each has one bit in a word that is changed atomically.
pub const PORTS: u32 = 1 << PORT_BITS;
const PORT_BITS: u32 = 5;
const FIRST_DEVICE: u32 = PORTS;
pub const GROUPS: u32 = 256;
const NOWHERE: u8 = 0xff;

/// Returns the interface index of the device at a port of a switch.
pub fn device(switch: SwitchId, port: Port) -> Index {
    Index(FIRST_DEVICE + (switch.0 << PORT_BITS) + u32::from(port.0))
}

/// Returns the switch and port of an interface index, or `None` if no switch has a device with this index.
pub fn end_of(device: Index) -> Option<End> {
    let place = device.0.checked_sub(FIRST_DEVICE)?;
    let port = u16::try_from(place % PORTS).ok()?;
    Some(End { switch: SwitchId(place >> PORT_BITS), port: Port(port) })
}

/// Returns the index of a group's register at a switch in the map `registers`.
pub fn slot(switch: SwitchId, group: GroupId) -> u32 {
    switch.0 * GROUPS + u32::from(group.0)
}

/// The setup of a register in the form that the program uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterSetup {
    /// The port towards the root, for completed reductions. `None`: messages turn around here.
    pub above: Option<Port>,
    /// The ports from which an arrival is expected, and to which the release is sent; one bit for each.
    pub below: u32,
    pub operation: ReductionOperator,
    pub first: u16,
}

impl RegisterSetup {
    /// Makes the setup of a register. `turn` may be `AtSwitch` only at the root switch of a tree.
    pub fn new(register: &Register, turn: TurnPoint, operation: ReductionOperator, first: u16) -> Self {
        let (above, below) = register.sides(turn);
        Self { above, below: below.iter().fold(0, |bits, port| bits | 1 << port.0), operation, first }
    }

    pub fn word(&self) -> u64 {
        1 << 63
            | u64::from(operation(self.operation)) << 56
            | u64::from(self.above_byte()) << 48
            | u64::from(self.first) << 32
            | u64::from(self.below)
    }

    pub fn state(&self) -> u64 {
        u64::from(self.first) << 32 | u64::from(self.operation.neutral()) << 48
    }

    fn above_byte(&self) -> u8 {
        self.above.map_or(NOWHERE, |port| port.0 as u8)
    }
}

fn operation(operation: ReductionOperator) -> u8 {
    match operation {
        ReductionOperator::Or => 0,
        ReductionOperator::And => 1,
        ReductionOperator::Min => 2,
        ReductionOperator::Max => 3,
        ReductionOperator::Sum => 4,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterState {
    /// The ports from which an arrival is expected.
    pub below: u32,
    /// The ports whose arrival has been received.
    pub arrived: u32,
    /// The current episode, whose arrivals are being combined.
    pub episode: u16,
}

impl RegisterState {
    /// Decodes a register's two words. Returns `None` if the register is not in use.
    pub fn read(setup: u64, state: u64) -> Option<Self> {
        let low = |word: u64| (word & 0xffff_ffff) as u32;
        (setup >> 63 == 1).then_some(Self {
            below: low(setup),
            arrived: low(state),
            episode: (state >> 32 & 0xffff) as u16,
        })
    }

    pub fn missing(self) -> impl Iterator<Item = Port> {
        let missing = self.below & !self.arrived;
        (0..PORTS as u16).filter(move |port| missing & 1 << port != 0).map(Port)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterRequestKind {
    Install(RegisterSetup),
    Release,
    /// Installs the register unless the group has another one there.
    Claim(RegisterSetup),
    /// Releases this register, and no other.
    Return(RegisterSetup),
}

/// A switch's answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestAnswer {
    Done,
    /// A claim found another register of the group.
    Refused,
}

/// A request about a register of a switch, sent by a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterRequest {
    pub kind: RegisterRequestKind,
    pub group: GroupId,
    pub target: SwitchId,
    pub origin: u32,
    /// The number of the request, which the answer repeats.
    pub number: u16,
}

impl RegisterRequest {
    pub const LENGTH: usize = 20;
    const DONE: u8 = 2;
    const REFUSED: u8 = 5;

    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let none = RegisterSetup { above: None, below: 0, operation: ReductionOperator::Or, first: 0 };
        let (code, setup) = match self.kind {
            RegisterRequestKind::Install(setup) => (0, setup),
            RegisterRequestKind::Release => (1, none),
            RegisterRequestKind::Claim(setup) => (3, setup),
            RegisterRequestKind::Return(setup) => (4, setup),
        };
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&[code, self.group.0, setup.above_byte(), operation(setup.operation)]);
        bytes[4..6].copy_from_slice(&setup.first.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.number.to_be_bytes());
        for (at, word) in [(8, setup.below), (12, self.target.0), (16, self.origin)] {
            bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Returns the number of the answered request and the answer, if these bytes are one.
    pub fn answer(bytes: &[u8]) -> Option<(u16, RequestAnswer)> {
        let bytes: &[u8; Self::LENGTH] = bytes.first_chunk()?;
        let answer = match bytes[0] {
            Self::DONE => RequestAnswer::Done,
            Self::REFUSED => RequestAnswer::Refused,
            _ => return None,
        };
        Some((u16::from_be_bytes([bytes[6], bytes[7]]), answer))
    }
}

/// Names of the outcomes that the switches count, in the order of `enum unisono_outcome`.
pub const OUTCOMES: [&str; 13] = [
    "repeated arrivals",
    "arrivals sent up again",
    "releases sent again",
    "failures passed on",
    "from a port that is not in the register",
    "of another episode",
    "releases twice",
    "releases too early",
    "of no kind for a switch",
    "of no group here",
    "lost to contention",
    "foreign frames",
    "lost on purpose",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const QUESTIONS: &str = r#"
#include <linux/types.h>
#include <stddef.h>
#include <stdio.h>
#include "intf.h"
int main(void)
{
	struct unisono_request request = { 0, 1, 2, 3, 0x0405, 0x0607, 0x08090a0b, 0x0c0d0e0f, 0x10111213 };
	const unsigned char *bytes = (const unsigned char *)&request;
	printf("%zu %zu %zu %zu %zu", sizeof(struct unisono_frame), sizeof(request),
	       sizeof(struct unisono_register), sizeof(struct unisono_place), sizeof(struct unisono_settings));
	printf(" %zu %zu %zu", offsetof(struct unisono_request, episode), offsetof(struct unisono_request, below),
	       offsetof(struct unisono_request, origin));
	printf(" %zu %zu", offsetof(struct unisono_register, state), offsetof(struct unisono_place, port));
	printf(" %d %d %d %d %d", UNISONO_BARRIER, UNISONO_REQUEST, UNISONO_PORTS, UNISONO_GROUPS, UNISONO_NOWHERE);
	printf(" %d %d %d", UNISONO_FIRST_DEVICE, UNISONO_OUTCOMES, UNISONO_DONE);
	printf(" %d %d %d", UNISONO_CLAIM, UNISONO_RETURN, UNISONO_REFUSED);
	printf(" %d %d %d", UNISONO_OPERATION_SHIFT, UNISONO_ABOVE_SHIFT, UNISONO_FIRST_SHIFT);
	printf(" %d %d %d %llu\n", UNISONO_DATA_SHIFT, UNISONO_LAST_SHIFT, UNISONO_SUM, UNISONO_IN_USE >> 63);
	return bytes[0];
}
"#;

    #[test]
    fn the_header_says_the_same_in_c() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::write(place.path().join("intf.h"), crate::program::HEADER).expect("write");
        std::fs::write(place.path().join("layout.c"), QUESTIONS).expect("write");
        let cc = Command::new("cc").args(["layout.c", "-o", "layout"]).current_dir(place.path()).status();
        if !cc.is_ok_and(|status| status.success()) {
            return eprintln!("skipped: cc does not compile here, or there are no kernel headers");
        }
        let output = Command::new(place.path().join("layout")).output().expect("it was just made");
        let register = size_of::<[u64; 2]>();
        let expected = format!(
            "4 {} {register} 8 16 4 8 16 8 4 {} {} {PORTS} {GROUPS} {NOWHERE} {FIRST_DEVICE} {} {} 3 4 {} 56 48 32 48 54 {} 1\n",
            RegisterRequest::LENGTH,
            BARRIER,
            REQUEST,
            OUTCOMES.len(),
            RegisterRequest::DONE,
            RegisterRequest::REFUSED,
            operation(ReductionOperator::Sum),
        );
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }

    #[test]
    fn a_request_is_in_network_byte_order_and_its_answer_is_recognized() {
        let setup = RegisterSetup {
            above: Some(Port(3)),
            below: 0x0102_0304,
            operation: ReductionOperator::Max,
            first: 0x0506,
        };
        let request = RegisterRequest {
            kind: RegisterRequestKind::Install(setup),
            group: GroupId(9),
            target: SwitchId(7),
            origin: 11,
            number: 0x0708,
        };
        let mut bytes = request.to_bytes();
        assert_eq!(bytes, [0, 9, 3, 3, 5, 6, 7, 8, 1, 2, 3, 4, 0, 0, 0, 7, 0, 0, 0, 11]);
        assert_eq!(RegisterRequest::answer(&bytes), None);
        bytes[0] = 2;
        assert_eq!(RegisterRequest::answer(&bytes), Some((0x0708, RequestAnswer::Done)));
        assert_eq!(RegisterRequest::answer(&bytes[1..]), None, "too short");
        bytes[0] = 5;
        assert_eq!(RegisterRequest::answer(&bytes), Some((0x0708, RequestAnswer::Refused)));
    }

    #[test]
    fn a_state_names_the_ports_that_are_missing() {
        let setup = RegisterSetup { above: None, below: 0b1011, operation: ReductionOperator::And, first: 6 };
        let state = RegisterState::read(setup.word(), setup.state() | 0b0010).expect("it is in use");
        assert_eq!((state.episode, state.missing().collect::<Vec<_>>()), (6, vec![Port(0), Port(3)]));
        assert_eq!(RegisterState::read(0, 0), None);
    }
}
