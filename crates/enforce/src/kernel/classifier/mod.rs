//! The classifier: compiles a policy's rules into a BPF program, in the order of the policy file.
//!
//! ```text
//!   a socket's leaf  if the packet's socket has one of its own ([`super::socket_leaves`])
//!   read once        VLAN tags skipped; protocol, both addresses, both ports, control groups
//!                    a later fragment: the class of the packet's first fragment, if it is remembered
//!   rules by key     of many rules with one address, MAC address, mark or VLAN each: the first that matches
//!                    ([`keys`])
//!   rule 1           condition by condition; the first that fails jumps to the next rule
//!   rule 2           ...                                                      returns its class
//!   default
//! ```
//! The program classifies as [`Policy::class_of`] does; tests compare both. The program asks for the ancestor
//! of the sender's control group at the depth of the rule's group, and compares its number, so all groups
//! below the rule's group match, too. The sender's group is the group in which its socket was made. A packet
//! of a container carries the number of its group in `tc_index` ([`crate::containers`]). A condition on a
//! missing field never matches, such as on the ports of a protocol without ports.
//!
//! Later fragments of a packet carry no ports. If a rule names ports, the class of a first fragment is
//! remembered ([`REMEMBERED`]), with the fields that all fragments share as the key, and later fragments get
//! that class. If the class is not remembered, they get the class of a packet without ports. The interposed
//! backend ([`crate::interposed`]) does the same.
//!
//! Cost: about a nanosecond an instruction; some 100 ns for ten rules. Reference: tc-bpf(8), bpf-helpers(7).

mod frames;
mod headers;
mod keys;
mod macs;

use super::socket_leaves::CLASS_WORD;
use crate::containers::TC_INDEX;
pub(super) use frames::{COUNTER_BYTES, ClassMap, count_accepted, write_redirecting};
use headers::{read, read_vlan};
use keys::KeyedRules;
use macs::{mac_matches, read_macs};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use unisono_fairqueue::{ClassId, Dscp, IpProtocol, Matcher, Network, Policy, SoleCondition};
use unisono_linux::bpf::assembler::{
    AluOperation, Assembler, BpfRegister, JumpWhen, Label, LoadSize, R0, R1, R2, R3, R4, STACK,
};
use unisono_linux::bpf::{LruMap, SocketStorage};

pub(super) const ANCESTOR_CGROUP: i32 = 83;
const LOAD_BYTES: i32 = 68;
/// `bpf_xdp_load_bytes` (Linux 5.18).
const LOAD_FRAME_BYTES: i32 = 189;
/// `bpf_map_lookup_elem` and `bpf_map_update_elem`.
const LOOKUP: i32 = 1;
const UPDATE: i32 = 2;
/// `bpf_sk_fullsock` and `bpf_sk_storage_get`.
const FULL_SOCKET: i32 = 95;
const SOCKET_WORDS: i32 = 107;
/// The reference points of `bpf_skb_load_bytes_relative`.
const FROM_MAC_HEADER: i32 = 0;
const FROM_NETWORK_HEADER: i32 = 1;
/// Offsets in `struct __sk_buff`.
const MARK: i16 = 8;
const PROTOCOL: i16 = 16;
const VLAN_PRESENT: i16 = 20;
const VLAN_TAG: i16 = 24;
const PRIORITY: i16 = 32;
const SOCKET: i16 = 168;

const PACKET: BpfRegister = BpfRegister(6);
/// The version of IP: 4, 6, or 0 for packets that are not IP.
const FAMILY: BpfRegister = BpfRegister(7);
/// The protocol inside the IP packet, or [`NONE`].
const CARRIES: BpfRegister = BpfRegister(8);
/// While headers are read: the offset of the next header. Afterwards: both ports, the source port in the
/// upper half, and the bit [`HAS_PORTS`] above them.
const PORTS: BpfRegister = BpfRegister(9);

const GO_ON: i32 = -1;
const NONE: i32 = 256;
const HAS_PORTS: u64 = 1 << 32;
/// Places on the stack, from the top down: the IP header, 40 bytes; bytes read after it, 8 bytes; the
/// outermost VLAN number, 8 bytes; both addresses of the frame, 16 bytes; then the sender's control group at
/// each depth, 8 bytes each.
const HEADER: i16 = -40;
const MORE: i16 = -48;
const VLAN: i16 = -56;
const MACS: i16 = -72;
const CGROUPS: i16 = -80;
/// More than any VLAN number.
const NO_VLAN: i32 = 1 << 12;
/// Places on the stack below the control groups: the fields that all fragments of a packet share
/// ([`KEY_BYTES`]), the class of the first fragment, whether this packet is a first fragment, and the
/// reference point for reading headers.
const KEY: i16 = CGROUPS - 8 * MAX_DEPTHS as i16 - KEY_BYTES as i16;
const VALUE: i16 = KEY - 8;
const FIRST: i16 = VALUE - 8;
const FROM: i16 = FIRST - 8;
/// Places on the stack for rules that are found by key: the key, and the number and the class of the first
/// rule that matches.
const RULE_KEY: i16 = FROM - keys::KEY_BYTES as i16;
const FOUND: i16 = RULE_KEY - keys::VALUE_BYTES as i16;
/// Source, destination, identification, and protocol with IP's version.
const KEY_BYTES: u32 = 40;
/// The number of packets whose first fragment is remembered: about 4 ms of a link of 10 Gbit/s in packets of
/// three fragments. The fragments of a packet leave a host in a row.
const REMEMBERED: u32 = 1024;
/// The most VLAN tags that are skipped. A frame with more tags counts as not IP.
const MAX_TAGS: usize = 4;
/// The most extension headers of IPv6 that are skipped.
const MAX_EXTENSIONS: usize = 6;
/// The most depths of control groups that fit on the stack.
pub(super) const MAX_DEPTHS: usize = 42;

/// A control group's depth (the root is 0), and its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GroupPosition {
    pub(super) depth: u32,
    pub(super) number: u64,
    /// The values of `tc_index` in packets of containers in this group.
    pub(super) senders: Vec<u16>,
}

/// The control groups and the map that a program refers to. The map must live until the program is loaded.
#[derive(Debug)]
pub(super) struct ProgramSources {
    cgroups: BTreeMap<String, GroupPosition>,
    /// Remembers the classes of fragmented packets. `None`: no rule names ports.
    fragments: Option<LruMap>,
    /// The leaves of sockets, and the numbers of the classes that may have some.
    sockets: Option<(SocketStorage, Vec<u16>)>,
    /// `None`: all rules are compared with the packet.
    keyed: Option<KeyedRules>,
}

impl ProgramSources {
    /// Makes the maps of a program. `number` returns the value of a class, as in [`write`].
    pub(super) fn for_policy(
        policy: &Policy,
        cgroups: BTreeMap<String, GroupPosition>,
        number: impl Fn(ClassId) -> u32,
    ) -> io::Result<Self> {
        let ports = policy.rules.iter().any(|rule| rule.matcher.ports.is_some());
        let fragments = ports.then(|| LruMap::new("unisono_parts", KEY_BYTES, REMEMBERED)).transpose()?;
        let keyed = KeyedRules::for_policy(policy, keys::MIN_RULES, number)?;
        Ok(Self { cgroups, fragments, sockets: None, keyed })
    }

    /// Adds leaves of sockets below the classes of these numbers. This is only for a program that returns the
    /// class.
    pub(super) fn with_sockets(self, storage: SocketStorage, classes: Vec<u16>) -> Self {
        Self { sockets: Some((storage, classes)), ..self }
    }

    pub(super) fn have_cgroups(&self) -> bool {
        !self.cgroups.is_empty()
    }

    /// Returns the numbers of the control groups that the program compares.
    pub(super) fn group_numbers(&self) -> BTreeMap<String, u64> {
        self.cgroups.iter().map(|(path, position)| (path.clone(), position.number)).collect()
    }
}

#[derive(Clone, Copy)]
enum ClassUse {
    Answer,
    /// The class becomes the packet's priority.
    Mark,
    /// The program goes on at this label, with the class in R1.
    GoOn(Label),
}

/// The argument of a program, which decides how it reads headers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramInput {
    /// A packet of the network stack (`struct __sk_buff`).
    Packet,
    /// A frame before the network stack (`struct xdp_md`): the bytes alone.
    Frame,
}

#[derive(Clone, Copy)]
struct ProgramForm {
    input: ProgramInput,
    end: ClassUse,
}

/// Writes a program that returns the class. Returns `None` if a jump would be too far.
pub(super) fn write(
    policy: &Policy,
    sources: &ProgramSources,
    number: impl Fn(ClassId) -> u32,
) -> Option<Vec<u64>> {
    let form = ProgramForm { input: ProgramInput::Packet, end: ClassUse::Answer };
    write_after(Assembler::default(), policy, sources, number, form).finish()
}

/// Writes a program that sets the packet's priority to the class and lets the packet pass. Packets of the
/// priority `but` stay unchanged.
pub(super) fn write_marking(
    policy: &Policy,
    sources: &ProgramSources,
    but: u32,
    number: impl Fn(ClassId) -> u32,
) -> Option<Vec<u64>> {
    let mut code = Assembler::default();
    let others = code.label();
    code.load(LoadSize::Four, R0, R1, PRIORITY).jump_if(JumpWhen::Not32, R0, but.cast_signed(), others);
    code.set(R0, GO_ON).exit().here(others);
    let form = ProgramForm { input: ProgramInput::Packet, end: ClassUse::Mark };
    write_after(code, policy, sources, number, form).finish()
}

fn write_after(
    mut code: Assembler,
    policy: &Policy,
    sources: &ProgramSources,
    number: impl Fn(ClassId) -> u32,
    form: ProgramForm,
) -> Assembler {
    let end = form.end;
    let ProgramSources { cgroups, fragments, sockets, keyed } = sources;
    let fragments = fragments.as_ref();
    let mut depths: Vec<u32> = cgroups.values().map(|place| place.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    let slot = |depth: u32| {
        let at = depths.iter().position(|known| *known == depth).expect("known because all were collected");
        CGROUPS - 8 * i16::try_from(at).expect("small because there are few depths")
    };

    if let Some((storage, classes)) = sockets {
        leaf_of_socket(&mut code, storage, classes);
    }
    read(&mut code, fragments, form);
    if policy.rules.iter().any(|rule| rule.matcher.vlan.is_some()) {
        read_vlan(&mut code);
    }
    if policy.rules.iter().any(|rule| rule.matcher.mac.is_some()) {
        read_macs(&mut code, form.input);
    }
    for depth in &depths {
        code.copy(R1, PACKET).set(R2, depth.cast_signed()).call(ANCESTOR_CGROUP);
        code.store(STACK, slot(*depth), R0);
    }
    if let Some(keyed) = keyed {
        keyed.find(&mut code);
    }
    let mut is_undecided = false;
    for (place, rule) in (0..).zip(&policy.rules) {
        if keyed.is_some() && SoleCondition::from_matcher(&rule.matcher).is_some() {
            is_undecided = true;
            continue;
        }
        if std::mem::take(&mut is_undecided) {
            conclude_if_found(&mut code, place, fragments, end);
        }
        let next = code.label();
        let Matcher { cgroup, address, mac, ports, protocol, priority, mark, dscp, vlan } = &rule.matcher;
        if let Some(place) = cgroup.as_ref().and_then(|cgroup| cgroups.get(cgroup)) {
            cgroup_matches(&mut code, place, slot(place.depth), next);
        }
        if let Some(IpProtocol(number)) = protocol {
            code.jump_if(JumpWhen::Not, CARRIES, i32::from(*number), next);
        }
        if let Some(priority) = priority {
            code.load(LoadSize::Four, R1, PACKET, PRIORITY);
            code.jump_if(JumpWhen::Not32, R1, priority.cast_signed(), next);
        }
        if let Some(mark) = mark {
            code.load(LoadSize::Four, R1, PACKET, MARK);
            code.jump_if(JumpWhen::Not32, R1, mark.cast_signed(), next);
        }
        if let Some(vlan) = vlan {
            code.load(LoadSize::Eight, R1, STACK, VLAN).jump_if(JumpWhen::Not, R1, i32::from(*vlan), next);
        }
        if let Some(dscp) = dscp {
            dscp_matches(&mut code, *dscp, next);
        }
        let ports = ports.as_ref().map(|ports| (*ports.start(), *ports.end()));
        if address.is_some() || mac.is_some() || ports.is_some() {
            let (other, matched) = (code.label(), code.label());
            mac_matches(&mut code, Side::Source, *mac, other);
            side_matches(&mut code, Side::Source, *address, ports, other);
            code.jump(matched).here(other);
            mac_matches(&mut code, Side::Destination, *mac, next);
            side_matches(&mut code, Side::Destination, *address, ports, next);
            code.here(matched);
        }
        conclude(&mut code, DecidedClass::Known(number(rule.class)), fragments, end);
        code.here(next);
    }
    if keyed.is_some() {
        conclude_if_found(&mut code, i32::MAX, fragments, end);
    }
    conclude(&mut code, DecidedClass::Known(number(policy.default)), fragments, end);
    code
}

/// Emits code that ends the program with the leaf of the packet's socket, if the socket has one below a class
/// of the policy in force. R1 holds the packet before and after this code.
fn leaf_of_socket(code: &mut Assembler, storage: &SocketStorage, classes: &[u16]) {
    let (none, found) = (code.label(), code.label());
    code.copy(PACKET, R1);
    code.load(LoadSize::Eight, R1, PACKET, SOCKET).jump_if(JumpWhen::Equal, R1, 0, none);
    code.call(FULL_SOCKET).jump_if(JumpWhen::Equal, R0, 0, none);
    code.copy(R2, R0).map(R1, storage.as_fd()).set(R3, 0).set(R4, 0).call(SOCKET_WORDS);
    code.jump_if(JumpWhen::Equal, R0, 0, none);
    code.load(LoadSize::Four, R1, R0, 4 * CLASS_WORD as i16);
    for class in classes {
        code.jump_if(JumpWhen::Equal, R1, i32::from(*class), found);
    }
    code.jump(none).here(found).load(LoadSize::Four, R0, R0, 0).exit();
    code.here(none).copy(R1, PACKET);
}

/// The class that the program returns.
#[derive(Clone, Copy)]
enum DecidedClass {
    Known(u32),
    /// The class of the rule that was found by key.
    Found,
}

/// Emits code that ends the program with the class of the rule that was found by key, if that rule precedes
/// the rule of the number `before`.
fn conclude_if_found(code: &mut Assembler, before: i32, fragments: Option<&LruMap>, end: ClassUse) {
    let later = code.label();
    code.load(LoadSize::Four, R1, STACK, FOUND).jump_if(JumpWhen::Above, R1, before, later);
    conclude(code, DecidedClass::Found, fragments, end);
    code.here(later);
}

/// Emits code that ends the program with a class, and remembers the class if this is the first fragment of a
/// packet.
fn conclude(code: &mut Assembler, class: DecidedClass, fragments: Option<&LruMap>, end: ClassUse) {
    let load = |code: &mut Assembler| match class {
        DecidedClass::Known(class) => {
            code.number(AluOperation::Set32, R1, class.cast_signed());
        }
        DecidedClass::Found => {
            code.load(LoadSize::Four, R1, STACK, FOUND + keys::CLASS_AT);
        }
    };
    if let Some(fragments) = fragments {
        let unfragmented = code.label();
        code.load(LoadSize::Four, R1, STACK, FIRST).jump_if(JumpWhen::Equal, R1, 0, unfragmented);
        load(code);
        code.store_four(STACK, VALUE, R1).map(R1, fragments.as_fd());
        stack_address(code, R2, KEY);
        stack_address(code, R3, VALUE);
        code.set(R4, 0).call(UPDATE).here(unfragmented);
    }
    load(code);
    finish(code, end);
}

/// Emits the end of the program for the class in R1.
fn finish(code: &mut Assembler, end: ClassUse) {
    match end {
        ClassUse::Answer => code.copy(R0, R1).exit(),
        ClassUse::Mark => code.store_four(PACKET, PRIORITY, R1).set(R0, GO_ON).exit(),
        ClassUse::GoOn(next) => code.jump(next),
    };
}

fn stack_address(code: &mut Assembler, to: BpfRegister, place: i16) {
    code.copy(to, STACK).number(AluOperation::Add, to, i32::from(place));
}

/// Emits code that jumps to `or_else` unless the group of the sender's socket matches, or the group whose
/// number the packet carries because its sender is in another network namespace ([`crate::containers`]).
fn cgroup_matches(code: &mut Assembler, place: &GroupPosition, slot: i16, or_else: Label) {
    let matched = code.label();
    code.load(LoadSize::Eight, R1, STACK, slot).set_long(R2, place.number);
    code.jump_if_registers(JumpWhen::Equal, R1, R2, matched);
    code.load(LoadSize::Four, R1, PACKET, TC_INDEX);
    for number in &place.senders {
        code.jump_if(JumpWhen::Equal, R1, i32::from(*number), matched);
    }
    code.jump(or_else).here(matched);
}

fn dscp_matches(code: &mut Assembler, dscp: Dscp, or_else: Label) {
    let (six, known) = (code.label(), code.label());
    // the field begins after the first eight bits in IPv4 (version, header length), after four in IPv6
    // (version)
    code.load(LoadSize::Two, R1, STACK, HEADER).swap_from_network(R1);
    code.jump_if(JumpWhen::Equal, FAMILY, 6, six).jump_if(JumpWhen::Not, FAMILY, 4, or_else);
    code.number(AluOperation::Right, R1, 2).jump(known);
    code.here(six).number(AluOperation::Right, R1, 6).here(known).number(AluOperation::And, R1, 0x3f);
    code.jump_if(JumpWhen::Not, R1, i32::from(dscp.number()), or_else);
}

/// The side of a packet whose address and port are compared.
#[derive(Clone, Copy)]
enum Side {
    Source,
    Destination,
}

fn side_matches(
    code: &mut Assembler,
    side: Side,
    address: Option<Network>,
    ports: Option<(u16, u16)>,
    or_else: Label,
) {
    if let Some(network) = address {
        let (family, start, words) = match (network.address(), side) {
            (IpAddr::V4(address), Side::Source) => (4, HEADER + 12, address.octets().to_vec()),
            (IpAddr::V4(address), Side::Destination) => (4, HEADER + 16, address.octets().to_vec()),
            (IpAddr::V6(address), Side::Source) => (6, HEADER + 8, address.octets().to_vec()),
            (IpAddr::V6(address), Side::Destination) => (6, HEADER + 24, address.octets().to_vec()),
        };
        code.jump_if(JumpWhen::Not, FAMILY, family, or_else);
        let mut bits = u32::from(network.prefix());
        for (at, word) in (start..).step_by(4).zip(words.chunks_exact(4)) {
            let taken = bits.min(32);
            bits -= taken;
            if taken == 0 {
                break;
            }
            let mask = (u32::MAX << (32 - taken)).to_be();
            let word = i32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            code.load(LoadSize::Four, R1, STACK, at);
            if taken < 32 {
                code.number(AluOperation::And32, R1, mask.cast_signed());
            }
            code.jump_if(JumpWhen::Not32, R1, word, or_else);
        }
    }
    if let Some((first, last)) = ports {
        code.jump_if(JumpWhen::Equal, PORTS, 0, or_else).copy(R1, PORTS);
        if matches!(side, Side::Source) {
            code.number(AluOperation::Right, R1, 16);
        }
        code.number(AluOperation::And, R1, 0xffff);
        code.jump_if(JumpWhen::Below, R1, i32::from(first), or_else);
        code.jump_if(JumpWhen::Above, R1, i32::from(last), or_else);
    }
}

#[cfg(test)]
mod tests;
