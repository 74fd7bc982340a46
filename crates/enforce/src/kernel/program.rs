//! The classifier: a policy's rules as a BPF program, in the order of the file.
//!
//! ```text
//!   read once        protocol, both addresses, both ports, control groups     (what is not there is not there)
//!   rule 1           part by part; the first that does not hold jumps to the next rule
//!   rule 2           ...                                                      its class is the answer
//!   default
//! ```
//! The same answer as [`Policy::class_of`], which tests compare it with. A control group is compared by its number at its depth, so
//! all below it are meant; the sender's is that of the process that made the socket, then. Parts that a packet does not
//! have do not match: later fragments have no ports, and neither have protocols that we do not know to have some.
//!
//! Cost: a nanosecond or so an instruction; some 100 ns for ten rules. Reference: tc-bpf(8), bpf-helpers(7).

use std::collections::BTreeMap;
use std::net::IpAddr;
use unisono_fairqueue::{ClassId, Dscp, Matcher, Network, Policy, Protocol};
use unisono_linux::bpf::assembler::{
    Assembler, Label, Operation, R0, R1, R2, R3, R4, R5, Register, STACK, Size, When,
};

/// `bpf_skb_ancestor_cgroup_id`.
pub(super) const ANCESTOR_CGROUP: i32 = 83;
/// `bpf_skb_load_bytes_relative`.
const LOAD_BYTES: i32 = 68;
const FROM_NETWORK_HEADER: i32 = 1;
const FROM_MAC_HEADER: i32 = 0;
/// In `struct __sk_buff`.
const MARK: i16 = 8;
const PROTOCOL: i16 = 16;
const VLAN_PRESENT: i16 = 20;
const VLAN_TAG: i16 = 24;
const PRIORITY: i16 = 32;

/// The packet.
const PACKET: Register = Register(6);
/// 4, 6, or 0 for what is not IP.
const FAMILY: Register = Register(7);
/// What is in the IP packet, or [`NONE`].
const CARRIES: Register = Register(8);
/// While the header is read, how long it is; then both ports (source above) and a bit that says that there are some.
const PORTS: Register = Register(9);

/// `TC_ACT_UNSPEC`.
const GO_ON: i32 = -1;
const NONE: i32 = 256;
const HAS_PORTS: u64 = 1 << 32;
/// The header, 40 bytes; what is read after it, 8 bytes; the outermost VLAN, 8 bytes; then the control groups, 8 bytes each.
const HEADER: i16 = -40;
const MORE: i16 = -48;
const VLAN: i16 = -56;
const CGROUPS: i16 = -64;
/// More than any number of a VLAN.
const NO_VLAN: i32 = 1 << 12;
/// So many extension headers of IPv6 are passed over.
const MOST_EXTENSIONS: usize = 6;
/// So many depths of control groups fit on the stack.
pub(super) const MOST_DEPTHS: usize = 48;

/// Where a control group is: how deep (the root is 0), and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) depth: u32,
    pub(super) number: u64,
}

/// Writes the program, which answers the class; none if it is too long for jumps.
pub(super) fn write(
    policy: &Policy,
    cgroups: &BTreeMap<String, Place>,
    number: impl Fn(ClassId) -> u32,
) -> Option<Vec<u64>> {
    write_after(Assembler::default(), policy, cgroups, number, answers)
}

/// The same, but it makes the class the packet's priority and lets it go on; for who chooses classes by that. Packets of
/// one priority go on as they are.
pub(super) fn write_marking(
    policy: &Policy,
    cgroups: &BTreeMap<String, Place>,
    but: u32,
    number: impl Fn(ClassId) -> u32,
) -> Option<Vec<u64>> {
    let mut code = Assembler::default();
    let others = code.label();
    code.load(Size::Four, R0, R1, PRIORITY).jump_if(When::Not32, R0, but.cast_signed(), others);
    code.set(R0, GO_ON).exit().here(others);
    write_after(code, policy, cgroups, number, marks)
}

fn write_after(
    mut code: Assembler,
    policy: &Policy,
    cgroups: &BTreeMap<String, Place>,
    number: impl Fn(ClassId) -> u32,
    ends: fn(&mut Assembler, u32),
) -> Option<Vec<u64>> {
    let mut depths: Vec<u32> = cgroups.values().map(|place| place.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    let slot = |depth: u32| {
        let at = depths.iter().position(|known| *known == depth).expect("known because all were collected");
        CGROUPS - 8 * i16::try_from(at).expect("small because there are few depths")
    };

    read(&mut code);
    if policy.rules.iter().any(|rule| rule.matcher.vlan.is_some()) {
        read_vlan(&mut code);
    }
    for depth in &depths {
        code.copy(R1, PACKET).set(R2, depth.cast_signed()).call(ANCESTOR_CGROUP);
        code.store(STACK, slot(*depth), R0);
    }
    for rule in &policy.rules {
        let next = code.label();
        let Matcher { cgroup, address, ports, protocol, priority, mark, dscp, vlan } = &rule.matcher;
        if let Some(place) = cgroup.as_ref().and_then(|cgroup| cgroups.get(cgroup)) {
            code.load(Size::Eight, R1, STACK, slot(place.depth)).set_long(R2, place.number);
            code.jump_if_registers(When::Not, R1, R2, next);
        }
        if let Some(Protocol(number)) = protocol {
            code.jump_if(When::Not, CARRIES, i32::from(*number), next);
        }
        if let Some(priority) = priority {
            code.load(Size::Four, R1, PACKET, PRIORITY);
            code.jump_if(When::Not32, R1, priority.cast_signed(), next);
        }
        if let Some(mark) = mark {
            code.load(Size::Four, R1, PACKET, MARK);
            code.jump_if(When::Not32, R1, mark.cast_signed(), next);
        }
        if let Some(vlan) = vlan {
            code.load(Size::Eight, R1, STACK, VLAN).jump_if(When::Not, R1, i32::from(*vlan), next);
        }
        if let Some(dscp) = dscp {
            dscp_matches(&mut code, *dscp, next);
        }
        let ports = ports.as_ref().map(|ports| (*ports.start(), *ports.end()));
        if address.is_some() || ports.is_some() {
            let (other, matched) = (code.label(), code.label());
            end_matches(&mut code, End::Source, *address, ports, other);
            code.jump(matched).here(other);
            end_matches(&mut code, End::Destination, *address, ports, next);
            code.here(matched);
        }
        ends(&mut code, number(rule.class));
        code.here(next);
    }
    ends(&mut code, number(policy.default));
    code.finish()
}

fn answers(code: &mut Assembler, class: u32) {
    code.number(Operation::Set32, R0, class.cast_signed()).exit();
}

fn marks(code: &mut Assembler, class: u32) {
    code.number(Operation::Set32, R1, class.cast_signed()).store_four(PACKET, PRIORITY, R1);
    code.set(R0, GO_ON).exit();
}

/// Reads what rules ask for into registers and onto the stack.
fn read(code: &mut Assembler) {
    code.copy(PACKET, R1);
    for eight in (HEADER..0).step_by(8).chain([MORE]) {
        code.clear(STACK, eight);
    }
    code.set(FAMILY, 0).set(CARRIES, NONE);
    code.set(PORTS, 0);
    let (version_6, ports, nothing, done) = (code.label(), code.label(), code.label(), code.label());
    let network = |ether: u16| i32::from(ether.to_be());
    code.load(Size::Four, R0, PACKET, PROTOCOL);
    code.jump_if(When::Not, R0, network(0x0800), version_6);

    load(code, HEADER, 20, done);
    code.set(FAMILY, 4).load(Size::One, CARRIES, STACK, HEADER + 9);
    code.load(Size::Two, R1, STACK, HEADER + 6).swap_from_network(R1).number(Operation::And, R1, 0x1fff);
    code.jump_if(When::Not, R1, 0, done); // a later fragment
    code.load(Size::One, PORTS, STACK, HEADER).number(Operation::And, PORTS, 0xf);
    code.number(Operation::Left, PORTS, 2).jump(ports);

    code.here(version_6).jump_if(When::Not, R0, network(0x86dd), done);
    load(code, HEADER, 40, done);
    code.set(FAMILY, 6).load(Size::One, CARRIES, STACK, HEADER + 6);
    code.set(PORTS, 40);
    for _ in 0..MOST_EXTENSIONS {
        extension(code, ports, nothing);
    }

    code.here(ports);
    let has_ports = code.label();
    for Protocol(number) in Protocol::WITH_PORTS {
        code.jump_if(When::Equal, CARRIES, i32::from(number), has_ports);
    }
    code.jump(nothing).here(has_ports);
    load(code, MORE, 4, nothing);
    code.load(Size::Two, PORTS, STACK, MORE).swap_from_network(PORTS).number(Operation::Left, PORTS, 16);
    code.load(Size::Two, R1, STACK, MORE + 2).swap_from_network(R1).or(PORTS, R1);
    code.set_long(R1, HAS_PORTS).or(PORTS, R1).jump(done);
    code.here(nothing).set(PORTS, 0).here(done);
}

/// Reads the number of the outermost VLAN tag onto the stack. The kernel keeps the tag beside the packet where the device
/// writes tags itself, and in the frame otherwise.
fn read_vlan(code: &mut Assembler) {
    let (in_frame, tagged, known, done) = (code.label(), code.label(), code.label(), code.label());
    code.set(R1, NO_VLAN).store(STACK, VLAN, R1);
    code.load(Size::Four, R0, PACKET, VLAN_PRESENT).jump_if(When::Equal, R0, 0, in_frame);
    code.load(Size::Four, R1, PACKET, VLAN_TAG).jump(known);
    code.here(in_frame).load(Size::Four, R0, PACKET, PROTOCOL);
    for ether in [0x8100_u16, 0x88a8] {
        code.jump_if(When::Equal, R0, i32::from(ether.to_be()), tagged);
    }
    code.jump(done).here(tagged);
    // behind the two addresses and the type
    code.copy(R1, PACKET).set(R2, 14).copy(R3, STACK).number(Operation::Add, R3, i32::from(MORE));
    code.set(R4, 2).set(R5, FROM_MAC_HEADER).call(LOAD_BYTES).jump_if(When::Not, R0, 0, done);
    code.load(Size::Two, R1, STACK, MORE).swap_from_network(R1);
    code.here(known).number(Operation::And, R1, 0xfff).store(STACK, VLAN, R1).here(done);
}

fn dscp_matches(code: &mut Assembler, dscp: Dscp, or_else: Label) {
    let (six, known) = (code.label(), code.label());
    // version, then the field: after eight bits in IPv4, after four in IPv6
    code.load(Size::Two, R1, STACK, HEADER).swap_from_network(R1);
    code.jump_if(When::Equal, FAMILY, 6, six).jump_if(When::Not, FAMILY, 4, or_else);
    code.number(Operation::Right, R1, 2).jump(known);
    code.here(six).number(Operation::Right, R1, 6).here(known).number(Operation::And, R1, 0x3f);
    code.jump_if(When::Not, R1, i32::from(dscp.number()), or_else);
}

/// Copies what follows the first `PORTS` bytes of the network header onto the stack.
fn load(code: &mut Assembler, to: i16, length: i32, or_else: Label) {
    code.copy(R1, PACKET).copy(R2, PORTS).copy(R3, STACK).number(Operation::Add, R3, i32::from(to));
    code.set(R4, length).set(R5, FROM_NETWORK_HEADER).call(LOAD_BYTES);
    code.jump_if(When::Not, R0, 0, or_else);
}

/// Passes over one extension header of IPv6.
fn extension(code: &mut Assembler, no_more: Label, no_ports: Label) {
    let (options, fragment, next) = (code.label(), code.label(), code.label());
    for (number, label) in [(0, options), (43, options), (60, options), (44, fragment)] {
        code.jump_if(When::Equal, CARRIES, number, label);
    }
    code.jump(no_more);
    code.here(options);
    load(code, MORE, 8, no_ports);
    code.load(Size::One, CARRIES, STACK, MORE).load(Size::One, R1, STACK, MORE + 1);
    code.number(Operation::Add, R1, 1).number(Operation::Left, R1, 3).add(PORTS, R1).jump(next);
    code.here(fragment);
    load(code, MORE, 8, no_ports);
    code.load(Size::One, CARRIES, STACK, MORE).number(Operation::Add, PORTS, 8);
    code.load(Size::Two, R1, STACK, MORE + 2).swap_from_network(R1).number(Operation::And, R1, 0xfff8);
    code.jump_if(When::Not, R1, 0, no_ports);
    code.here(next);
}

#[derive(Clone, Copy)]
enum End {
    Source,
    Destination,
}

fn end_matches(
    code: &mut Assembler,
    end: End,
    address: Option<Network>,
    ports: Option<(u16, u16)>,
    or_else: Label,
) {
    if let Some(network) = address {
        let (family, start, words) = match (network.address(), end) {
            (IpAddr::V4(address), End::Source) => (4, HEADER + 12, address.octets().to_vec()),
            (IpAddr::V4(address), End::Destination) => (4, HEADER + 16, address.octets().to_vec()),
            (IpAddr::V6(address), End::Source) => (6, HEADER + 8, address.octets().to_vec()),
            (IpAddr::V6(address), End::Destination) => (6, HEADER + 24, address.octets().to_vec()),
        };
        code.jump_if(When::Not, FAMILY, family, or_else);
        let mut bits = u32::from(network.prefix());
        for (at, word) in (start..).step_by(4).zip(words.chunks_exact(4)) {
            let taken = bits.min(32);
            bits -= taken;
            if taken == 0 {
                break;
            }
            let mask = (u32::MAX << (32 - taken)).to_be();
            let word = i32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            code.load(Size::Four, R1, STACK, at);
            if taken < 32 {
                code.number(Operation::And32, R1, mask.cast_signed());
            }
            code.jump_if(When::Not32, R1, word, or_else);
        }
    }
    if let Some((first, last)) = ports {
        code.jump_if(When::Equal, PORTS, 0, or_else).copy(R1, PORTS);
        if matches!(end, End::Source) {
            code.number(Operation::Right, R1, 16);
        }
        code.number(Operation::And, R1, 0xffff);
        code.jump_if(When::Below, R1, i32::from(first), or_else);
        code.jump_if(When::Above, R1, i32::from(last), or_else);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::option::weighted as maybe;
    use proptest::prelude::*;
    use std::fmt::Write;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use unisono_fairqueue::Facts;
    use unisono_linux::bpf::Classifier;
    use unisono_linux::process::is_root;

    fn load(policy: &Policy) -> Result<Classifier, String> {
        let answer = |class: ClassId| u32::try_from(class.index()).expect("few classes") + 100;
        let program = write(policy, &BTreeMap::new(), answer).expect("it is short");
        Classifier::load("unisono_test", &program).map_err(|error| error.to_string())
    }

    /// Whether programs can be loaded here; says so if not.
    fn can_load() -> bool {
        if !is_root() {
            eprintln!("skipped: it needs root");
            return false;
        }
        let loaded = Classifier::load("unisono_test", &[0x2_0000_00b7, 0x95]);
        if let Err(error) = &loaded {
            eprintln!("skipped: no BPF programs here: {error}");
        }
        loaded.is_ok()
    }

    /// What a frame has before its ports.
    #[derive(Clone, Debug)]
    enum Before {
        Nothing,
        Options(u8),
        Fragment(u16),
        Extensions(Vec<u8>),
    }

    fn frame(facts: &Facts<'_>, before: &Before) -> Vec<u8> {
        let carries = facts.protocol.map_or(0, |protocol| protocol.0);
        let field = facts.dscp.map_or(0, |dscp| dscp.number() << 2 | 1);
        let mut frame = vec![2; 12];
        let mut ports = [facts.source_port, facts.destination_port]
            .iter()
            .flat_map(|port| port.unwrap_or(7).to_be_bytes())
            .collect::<Vec<u8>>();
        ports.extend([0; 16]);
        match (facts.source, facts.destination) {
            (Some(IpAddr::V4(source)), Some(IpAddr::V4(destination))) => {
                let words = if let Before::Options(words) = before { *words } else { 0 };
                let fragment = if let Before::Fragment(offset) = before { *offset } else { 0 };
                frame.extend([8, 0, 0x45 + words, field, 0, 40, 0, 0]);
                frame.extend(fragment.to_be_bytes());
                frame.extend([64, carries, 0, 0]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                frame.extend(vec![0; 4 * usize::from(words)]);
            }
            (Some(IpAddr::V6(source)), Some(IpAddr::V6(destination))) => {
                let mut headers: Vec<u8> = match before {
                    Before::Extensions(headers) => headers.clone(),
                    Before::Fragment(_) => vec![44],
                    _ => Vec::new(),
                };
                headers.push(carries);
                frame.extend([0x86, 0xdd, 0x60 | field >> 4, field << 4, 0, 0, 0, 60, headers[0], 64]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                for pair in headers.windows(2) {
                    let fragment = if let Before::Fragment(offset) = before { offset << 3 } else { 1 };
                    let [high, low] = fragment.to_be_bytes();
                    match pair[0] {
                        44 => frame.extend([pair[1], 0, high, low, 0, 0, 0, 0]),
                        _ => frame.extend([pair[1], 1].into_iter().chain([0; 14])),
                    }
                }
            }
            _ => frame.extend([8, 6, 0, 1, 8, 0]), // ARP
        }
        frame.extend(ports);
        frame
    }

    fn matchers() -> impl Strategy<Value = Matcher> {
        let network = prop_oneof![
            (0_u8..8, 28_u8..=32).prop_map(|(last, prefix)| (Ipv4Addr::new(10, 0, 0, last).into(), prefix)),
            (0_u16..8, 125_u8..=128)
                .prop_map(|(last, prefix)| (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).into(), prefix)),
            (0_u16..8, 61_u8..=64)
                .prop_map(|(last, prefix)| (Ipv6Addr::new(0xfd00, 0, 0, last, 0, 0, 0, 0).into(), prefix)),
            Just((Ipv4Addr::UNSPECIFIED.into(), 0)),
        ];
        let network =
            network.prop_map(|(address, prefix)| Network::new(address, prefix).expect("short enough"));
        let ports = (1_u16..6, 0_u16..3).prop_map(|(first, more)| first..=first + more);
        let protocol = prop_oneof![Just(Protocol::TCP), Just(Protocol::UDP), Just(Protocol(1))];
        let priority = prop_oneof![Just(0_u32), Just(6), Just(u32::MAX)];
        let mark = prop_oneof![Just(0_u32), Just(1 << 31)];
        let dscp =
            prop_oneof![Just(0), Just(46), Just(63)].prop_map(|number| Dscp::new(number).expect("below 64"));
        let parts = (maybe(0.6, network), maybe(0.5, ports), maybe(0.3, protocol), maybe(0.3, priority));
        (parts, maybe(0.3, mark), maybe(0.3, dscp)).prop_map(
            |((address, ports, protocol, priority), mark, dscp)| Matcher {
                cgroup: None,
                address,
                ports,
                protocol,
                priority,
                mark,
                dscp,
                vlan: None,
            },
        )
    }

    fn packets() -> impl Strategy<Value = (Facts<'static>, Before)> {
        let ends = prop_oneof![
            4 => (0_u8..9, 0_u8..9).prop_map(|(from, to)| {
                let address = |last| Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
                (address(from), address(to))
            }),
            4 => (0_u16..9, 0_u16..9, any::<bool>()).prop_map(|(from, to, low)| {
                let address = |part| {
                    let parts = if low { [0, 0, part] } else { [part, 0, 0] };
                    Some(IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, parts[0], 0, 0, 0, parts[2])))
                };
                (address(from), address(to))
            }),
            1 => Just((None, None)),
        ];
        let before = prop_oneof![
            3 => Just(Before::Nothing),
            1 => (0_u8..=10).prop_map(Before::Options),
            1 => (1_u16..100).prop_map(Before::Fragment),
            1 => proptest::collection::vec(prop_oneof![Just(0_u8), Just(43), Just(60)], 1..5).prop_map(Before::Extensions),
        ];
        let protocol =
            prop_oneof![Just(Protocol::TCP), Just(Protocol::UDP), Just(Protocol(1)), Just(Protocol(136))];
        let priority = prop_oneof![Just(0_u32), Just(6), Just(u32::MAX), Just(7)];
        let mark = prop_oneof![Just(0_u32), Just(1), Just(1 << 31)];
        let dscp = prop_oneof![Just(0), Just(46), Just(63), Just(7)].prop_map(Dscp::new);
        (ends, (1_u16..9, 1_u16..9), protocol, (priority, mark, dscp), before).prop_map(
            |((source, destination), (from, to), protocol, (priority, mark, dscp), before)| {
                let protocol = source.map(|_| protocol);
                let has_ports =
                    protocol.is_some_and(Protocol::has_ports) && !matches!(before, Before::Fragment(_));
                let facts = Facts {
                    source,
                    destination,
                    source_port: has_ports.then_some(from),
                    destination_port: has_ports.then_some(to),
                    protocol,
                    priority: Some(priority),
                    mark: Some(mark),
                    dscp: source.and(dscp),
                    vlan: None,
                    cgroup: None,
                };
                (facts, before)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        #[test]
        fn the_kernel_chooses_the_class_that_the_policy_says(
            all in proptest::collection::vec(matchers(), 1..8),
            packets in proptest::collection::vec(packets(), 40),
        ) {
            if !can_load() {
                return Ok(());
            }
            // what could never hit is left out one by one, as an operator would
            let mut rules: Vec<&Matcher> = Vec::new();
            let text = |rules: &[&Matcher]| {
                let mut text = String::from("rate = \"1mbit\"\n");
                for (number, matcher) in rules.iter().enumerate() {
                    let _ = writeln!(text, "[class.c{number}]\nmatch = [{matcher}]");
                }
                text
            };
            for matcher in &all {
                rules.push(matcher);
                if Policy::parse(&text(&rules)).is_err() {
                    rules.pop();
                }
            }
            let policy = Policy::parse(&text(&rules)).expect("each rule was tried");
            let classifier = load(&policy).map_err(TestCaseError::fail)?;
            for (facts, before) in &packets {
                let frame = frame(facts, before);
                let (priority, mark) = (facts.priority.unwrap_or(0), facts.mark.unwrap_or(0));
                let got = classifier.test_with(&frame, priority, mark).expect("it is a frame");
                let wanted = u32::try_from(policy.class_of(facts).index()).expect("few classes") + 100;
                prop_assert_eq!(got, wanted, "{:?} {:?}\n{}", facts, before, policy.text);
            }
        }

        #[test]
        fn no_frame_makes_the_program_fail(bytes in proptest::collection::vec(any::<u8>(), 14..120), ether in 0..3) {
            if !can_load() {
                return Ok(());
            }
            let policy = Policy::parse("rate = \"1mbit\"\n[class.a]\nmatch = [{ port = [1, 40000] }]").expect("sound");
            let mut bytes = bytes;
            bytes[12..14].copy_from_slice(&[[8, 0], [0x86, 0xdd], [8, 6]][usize::try_from(ether).expect("positive")]);
            let class = load(&policy).expect("it is sound").test(&bytes);
            // a frame that is cut short is refused by the kernel, or classified
            prop_assert!(class.is_err() || (101..=102).contains(&class.expect("it is no error")));
        }
    }

    #[test]
    fn the_outermost_vlan_of_a_frame_decides() {
        if !can_load() {
            return;
        }
        let policy =
            Policy::parse("rate = \"1mbit\"\n[class.a]\nmatch = [{ vlan = 5 }]").expect("it is sound");
        let classifier = load(&policy).expect("it is loaded");
        let rest = frame(&Facts::default(), &Before::Nothing);
        for (tags, class) in [
            (&[][..], policy.default),
            (&[[0x81, 0, 0xe0, 5]], policy.rules[0].class),
            (&[[0x88, 0xa8, 0, 5], [0x81, 0, 0, 6]], policy.rules[0].class),
            (&[[0x88, 0xa8, 0, 6], [0x81, 0, 0, 5]], policy.default),
            (&[[0x81, 0, 1, 5]], policy.default),
        ] {
            let tagged = [&rest[..12], &tags.concat(), &rest[12..]].concat();
            let got = classifier.test(&tagged).expect("it is a frame");
            assert_eq!(got, u32::try_from(class.index()).expect("few classes") + 100, "{tags:?}");
        }
    }

    #[test]
    fn a_program_of_a_thousand_rules_is_loaded() {
        if !can_load() {
            return;
        }
        let mut text = String::from("rate = \"1mbit\"\n");
        for number in 0..1000 {
            let _ = writeln!(
                text,
                "[class.c{number}]\nmatch = [{{ address = \"10.0.{}.0/24\", port = {} }}]",
                number % 256,
                number + 1
            );
        }
        let policy = Policy::parse(&text).expect("it is sound");
        let classifier = load(&policy).expect("it is loaded");
        let server = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 231, 9)));
        let facts = Facts {
            source: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            destination: server,
            source_port: Some(9999),
            destination_port: Some(1000),
            protocol: Some(Protocol::TCP),
            ..Facts::default()
        };
        let last = policy.hierarchy.find("c999").expect("it was declared");
        assert_eq!(policy.class_of(&facts), last);
        let got = classifier.test(&frame(&facts, &Before::Nothing)).expect("it is a frame");
        assert_eq!(got, u32::try_from(last.index()).expect("few classes") + 100);
    }
}
