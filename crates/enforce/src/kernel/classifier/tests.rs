//! Compares the classifier with the policy, and with the backend that parses frames itself.

use super::*;
use crate::interposed;
use proptest::option::weighted as maybe;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use unisono_fairqueue::{Facts, MacAddress};
use unisono_linux::bpf::{ClassifierProgram, Redirector};
use unisono_linux::process::is_root;

fn load(policy: &Policy) -> Result<ClassifierProgram, String> {
    load_keyed(policy, keys::MIN_RULES)
}

/// Returns the result of a program for a class.
fn answer(class: ClassId) -> u32 {
    u32::try_from(class.index()).expect("few classes") + 100
}

fn sources(policy: &Policy, min: usize) -> Result<ProgramSources, String> {
    let text = |error: io::Error| error.to_string();
    let keyed = KeyedRules::for_policy(policy, min, answer).map_err(text)?;
    let sources = ProgramSources::for_policy(policy, BTreeMap::new(), answer).map_err(text)?;
    Ok(ProgramSources { keyed, ..sources })
}

/// Loads the program of a policy, with tables if at least `min` rules can be found by key.
fn load_keyed(policy: &Policy, min: usize) -> Result<ClassifierProgram, String> {
    // the tables stay open until the program is loaded
    let sources = sources(policy, min)?;
    let program = write(policy, &sources, answer).expect("it is short");
    ClassifierProgram::load("unisono_test", &program).map_err(|error| error.to_string())
}

/// Loads the program that classifies frames before the network stack.
fn load_early(policy: &Policy, min: usize) -> Result<Redirector, String> {
    let sources = sources(policy, min)?;
    let program = frames::write_frames(policy, &sources, answer, |code| {
        code.copy(R0, R1).exit();
    });
    Redirector::load("unisono_test", &program.expect("it is short")).map_err(|error| error.to_string())
}

/// Returns a policy with a class for each matcher. Rules that an earlier rule shadows are left out one by
/// one, as an operator would do.
fn policy_of(all: &[Matcher]) -> Policy {
    let mut rules: Vec<&Matcher> = Vec::new();
    let text = |rules: &[&Matcher]| {
        let mut text = String::from("rate = \"1mbit\"\n");
        for (number, matcher) in rules.iter().enumerate() {
            let _ = writeln!(text, "[class.c{number}]\nmatch = [{matcher}]");
        }
        text
    };
    for matcher in all {
        rules.push(matcher);
        if Policy::parse(&text(&rules)).is_err() {
            rules.pop();
        }
    }
    Policy::parse(&text(&rules)).expect("each rule was tried")
}

/// Returns whether programs can be loaded here. If not, prints the reason.
fn can_load() -> bool {
    if !is_root() {
        eprintln!("skipped: it needs root");
        return false;
    }
    let loaded = ClassifierProgram::load("unisono_test", &[0x2_0000_00b7, 0x95]);
    if let Err(error) = &loaded {
        eprintln!("skipped: no BPF programs here: {error}");
    }
    loaded.is_ok()
}

/// The headers of a frame between its IP header and its ports.
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
    let mac = |mac: Option<MacAddress>| mac.map_or([2; 6], MacAddress::bytes);
    let mut frame = [mac(facts.destination_mac), mac(facts.source_mac)].concat();
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

fn macs() -> impl Strategy<Value = MacAddress> {
    // they differ in the first, a middle or the last byte
    let bytes = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 9, 1], [6, 0, 0, 0, 0, 1]];
    (0..bytes.len()).prop_map(move |at| MacAddress::new(bytes[at]).expect("not zero"))
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
    let network = network.prop_map(|(address, prefix)| Network::new(address, prefix).expect("short enough"));
    let ports = (1_u16..6, 0_u16..3).prop_map(|(first, more)| first..=first + more);
    let protocol = prop_oneof![Just(IpProtocol::TCP), Just(IpProtocol::UDP), Just(IpProtocol(1))];
    let priority = prop_oneof![Just(0_u32), Just(6), Just(u32::MAX)];
    let mark = prop_oneof![Just(0_u32), Just(1 << 31)];
    let dscp =
        prop_oneof![Just(0), Just(46), Just(63)].prop_map(|number| Dscp::new(number).expect("below 64"));
    let parts = (maybe(0.6, network), maybe(0.5, ports), maybe(0.3, protocol), maybe(0.3, priority));
    let several = (parts, maybe(0.3, mark), maybe(0.3, dscp), maybe(0.3, macs())).prop_map(
        |((address, ports, protocol, priority), mark, dscp, mac)| Matcher {
            cgroup: None,
            address,
            mac,
            ports,
            protocol,
            priority,
            mark,
            dscp,
            vlan: None,
        },
    );
    let one = macs().prop_map(|mac| Matcher { mac: Some(mac), ..Matcher::default() });
    prop_oneof![4 => several, 1 => one]
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
        prop_oneof![Just(IpProtocol::TCP), Just(IpProtocol::UDP), Just(IpProtocol(1)), Just(IpProtocol(136))];
    let priority = prop_oneof![Just(0_u32), Just(6), Just(u32::MAX), Just(7)];
    let mark = prop_oneof![Just(0_u32), Just(1), Just(1 << 31)];
    let dscp = prop_oneof![Just(0), Just(46), Just(63), Just(7)].prop_map(Dscp::new);
    (ends, (1_u16..9, 1_u16..9), protocol, (priority, mark, dscp, macs(), macs()), before).prop_map(
        |(
            (source, destination),
            (from, to),
            protocol,
            (priority, mark, dscp, source_mac, destination_mac),
            before,
        )| {
            let protocol = source.map(|_| protocol);
            let has_ports =
                protocol.is_some_and(IpProtocol::has_ports) && !matches!(before, Before::Fragment(_));
            let facts = Facts {
                source,
                destination,
                source_mac: Some(source_mac),
                destination_mac: Some(destination_mac),
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
    #[test]
    fn the_kernel_chooses_the_class_that_the_policy_says(
        all in proptest::collection::vec(matchers(), 1..8),
        packets in proptest::collection::vec(packets(), 40),
    ) {
        if !can_load() {
            return Ok(());
        }
        let policy = policy_of(&all);
        for min in [1, usize::MAX] {
            let classifier = load_keyed(&policy, min).map_err(TestCaseError::fail)?;
            for (facts, before) in &packets {
                let frame = frame(facts, before);
                let (priority, mark) = (facts.priority.unwrap_or(0), facts.mark.unwrap_or(0));
                let actual = classifier.test_with(&frame, priority, mark).expect("it is a frame");
                let wanted = answer(policy.class_of(facts));
                prop_assert_eq!(actual, wanted, "{:?} {:?} {}\n{}", facts, before, min, policy.text);
            }
        }
    }

    #[test]
    fn the_program_before_the_network_stack_chooses_the_same_class(
        all in proptest::collection::vec(matchers(), 1..8),
        packets in proptest::collection::vec(packets(), 40),
    ) {
        if !can_load() {
            return Ok(());
        }
        // a frame has neither priority nor mark
        let all = all.into_iter().map(|matcher| Matcher { priority: None, mark: None, ..matcher });
        let all: Vec<Matcher> = all.filter(|matcher| !matcher.is_empty()).collect();
        if all.is_empty() {
            return Ok(());
        }
        let policy = policy_of(&all);
        for min in [1, usize::MAX] {
            let program = load_early(&policy, min).map_err(TestCaseError::fail)?;
            for (facts, before) in &packets {
                let actual = program.test(&frame(facts, before)).expect("it is a frame");
                let wanted = answer(policy.class_of(facts));
                prop_assert_eq!(actual, wanted, "{:?} {:?} {}\n{}", facts, before, min, policy.text);
            }
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
        let early = load_early(&policy, usize::MAX).expect("it is sound").test(&bytes);
        for class in [class, early] {
            // the kernel refuses a frame that is too short; the program classifies any other
            prop_assert!(class.is_err() || (101..=102).contains(&class.expect("it is no error")));
        }
    }
}

#[test]
fn the_outermost_vlan_of_a_frame_decides() {
    if !can_load() {
        return;
    }
    let policy = Policy::parse("rate = \"1mbit\"\n[class.a]\nmatch = [{ vlan = 5 }]").expect("it is sound");
    let [compared, keyed] = [usize::MAX, 1].map(|min| load_keyed(&policy, min).expect("it is loaded"));
    let rest = frame(&Facts::default(), &Before::Nothing);
    for (tags, class) in [
        (&[][..], policy.default),
        (&[[0x81, 0, 0xe0, 5]], policy.rules[0].class),
        (&[[0x88, 0xa8, 0, 5], [0x81, 0, 0, 6]], policy.rules[0].class),
        (&[[0x88, 0xa8, 0, 6], [0x81, 0, 0, 5]], policy.default),
        (&[[0x81, 0, 1, 5]], policy.default),
    ] {
        let tagged = [&rest[..12], &tags.concat(), &rest[12..]].concat();
        for classifier in [&compared, &keyed] {
            let actual = classifier.test(&tagged).expect("it is a frame");
            assert_eq!(actual, u32::try_from(class.index()).expect("few classes") + 100, "{tags:?}");
        }
    }
}

#[test]
fn each_of_thousands_of_mac_addresses_has_its_class_at_both_ends() {
    if !can_load() {
        return;
    }
    // more than a list of comparisons may have
    let mac = |number: u16| {
        let [high, low] = number.to_be_bytes();
        MacAddress::new([high, 2, low, 0, high, low]).expect("not zero")
    };
    let mut text = String::from("rate = \"1mbit\"\ndefault = \"rest\"\n");
    for number in 0..5000 {
        let _ = writeln!(text, "[class.c{number}]\nmatch = [{{ mac = \"{}\" }}]", mac(number));
    }
    let mut both = AllClassifiers::new(&text);
    for number in [0, 1, 255, 256, 4095, 4999] {
        for (from, to) in [(number, 6000), (6000, number), (number, 4999), (4999, number)] {
            let facts =
                Facts { source_mac: Some(mac(from)), destination_mac: Some(mac(to)), ..Facts::default() };
            assert_eq!(both.class(&frame(&facts, &Before::Nothing)), format!("c{number}"), "{from} {to}");
        }
    }
    let strange = Facts { source_mac: Some(mac(5000)), destination_mac: Some(mac(6000)), ..Facts::default() };
    assert_eq!(both.class(&frame(&strange, &Before::Nothing)), "rest");
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
        protocol: Some(IpProtocol::TCP),
        ..Facts::default()
    };
    let last = policy.hierarchy.find("c999").expect("it was declared");
    assert_eq!(policy.class_of(&facts), last);
    let actual = classifier.test(&frame(&facts, &Before::Nothing)).expect("it is a frame");
    assert_eq!(actual, u32::try_from(last.index()).expect("few classes") + 100);
}

/// Returns a frame with VLAN tags of these types before its content.
fn tagged(tags: &[u16], frame: &[u8]) -> Vec<u8> {
    let tags = tags.iter().flat_map(|kind| [kind.to_be_bytes(), [0x20, 7]].concat());
    frame[..12].iter().copied().chain(tags).chain(frame[12..].iter().copied()).collect()
}

/// Returns a datagram from port 1 to port 53, or a fragment of it, given by identification, offset, and
/// whether more fragments follow.
fn datagram(version: u8, fragment: Option<(u8, u16, bool)>) -> Vec<u8> {
    let content = [[0, 1, 0, 53, 0, 16, 0, 0], [7; 8]].concat();
    let mut frame = vec![2; 12];
    let ends: Vec<u8> = (1..=if version == 4 { 8 } else { 32 }).collect();
    let (number, begins, more) = fragment.unwrap_or((0, 0, false));
    if version == 4 {
        frame.extend([8, 0, 0x45, 0, 0, 36, 0, number]);
        frame.extend((begins | u16::from(more) << 13).to_be_bytes());
        frame.extend([64, 17, 0, 0]);
        frame.extend(ends);
    } else {
        let (length, next) = if fragment.is_some() { (24, 44) } else { (16, 17) };
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, length, next, 64]);
        frame.extend(ends);
        if fragment.is_some() {
            frame.extend([17, 0]);
            frame.extend((begins << 3 | u16::from(more)).to_be_bytes());
            frame.extend([0, 0, 0, number]);
        }
    }
    frame.extend(content);
    frame
}

/// The kernel's classifier of packets and that of frames, and the classifier of the interposed backend.
struct AllClassifiers {
    policy: Policy,
    kernel: ClassifierProgram,
    early: Redirector,
    interposed: interposed::Classifier,
}

impl AllClassifiers {
    fn new(text: &str) -> Self {
        let policy = Policy::parse(text).expect("it is sound");
        let kernel = load(&policy).expect("it is loaded");
        let early = load_early(&policy, keys::MIN_RULES).expect("it is loaded");
        let named = interposed::Named::from_policy(&policy).expect("there are few");
        Self { policy, kernel, early, interposed: interposed::Classifier::new(named) }
    }

    fn class(&mut self, frame: &[u8]) -> String {
        let own_tag = tagged(&[interposed::TAG_TYPE], frame);
        let own_tag = [&own_tag[..14], &[0, 0], &own_tag[16..]].concat();
        let theirs = self.interposed.class(&self.policy, &own_tag).expect("it is well formed");
        for actual in [self.kernel.test(frame), self.early.test(frame)] {
            assert_eq!(actual.expect("it is a frame"), answer(theirs), "{frame:02x?}");
        }
        self.policy.hierarchy.class(theirs).name.clone()
    }
}

const NAMES: &str = "rate = \"1mbit\"\ndefault = \"rest\"\n[class.names]\nmatch = [{ port = 53 }]\n\
    [class.datagrams]\nmatch = [{ protocol = \"udp\" }]\n";

#[test]
fn later_fragments_have_the_class_of_their_first_one() {
    if !can_load() {
        return;
    }
    for version in [4, 6] {
        let mut both = AllClassifiers::new(NAMES);
        let mut class = |fragment| both.class(&datagram(version, fragment));
        assert_eq!(class(None), "names");
        assert_eq!(class(Some((1, 2, true))), "datagrams", "its first one was not seen");
        assert_eq!(class(Some((2, 0, true))), "names");
        assert_eq!(class(Some((2, 2, true))), "names");
        assert_eq!(class(Some((1, 2, false))), "datagrams", "it is of another packet");
        assert_eq!(class(Some((2, 4, false))), "names");
    }
}

#[test]
fn frames_with_vlan_tags_inside_have_the_class_of_what_they_carry() {
    if !can_load() {
        return;
    }
    let mut both = AllClassifiers::new(NAMES);
    for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100], &[0x8100, 0x8100, 0x8100]] {
        for version in [4, 6] {
            assert_eq!(both.class(&tagged(tags, &datagram(version, None))), "names", "{tags:04x?}");
            let number = u8::try_from(tags.len()).expect("few tags");
            let mut part =
                |begins| both.class(&tagged(tags, &datagram(version, Some((number, begins, true)))));
            assert_eq!((part(0), part(2)), ("names".to_owned(), "names".to_owned()), "{tags:04x?}");
        }
        let arp = [&[2; 12][..], &[8, 6, 0, 1, 8, 0], &[0; 30]].concat();
        assert_eq!(both.class(&tagged(tags, &arp)), "rest");
    }
}

#[test]
fn without_a_rule_that_asks_for_ports_no_fragments_are_remembered() {
    if !can_load() {
        return;
    }
    let text = "rate = \"1mbit\"\n[class.datagrams]\nmatch = [{ protocol = \"udp\" }]\n";
    let policy = Policy::parse(text).expect("it is sound");
    assert!(
        ProgramSources::for_policy(&policy, BTreeMap::new(), |_| 0)
            .expect("nothing is made")
            .fragments
            .is_none()
    );
    let mut both = AllClassifiers::new(text);
    for fragment in [None, Some((1, 0, true)), Some((1, 2, false))] {
        assert_eq!(both.class(&datagram(4, fragment)), "datagrams");
    }
}

#[test]
fn flows_that_differ_in_one_address_or_port_are_spread_over_all_processors() {
    if !can_load() {
        return;
    }
    let policy = Policy::parse("rate = \"1mbit\"\n[class.a]\n").expect("it is sound");
    let processors = BTreeSet::from([0, 1, 4, 7]);
    let sources = sources(&policy, usize::MAX).expect("it needs no maps");
    let program = frames::write_frames(&policy, &sources, answer, |code| {
        frames::choose_processor(code, &processors);
        code.copy(R0, frames::PROCESSOR).exit();
    });
    let program = Redirector::load("unisono_test", &program.expect("it is short")).expect("it is loaded");
    // the last bytes of both addresses and of both ports
    for (version, places) in [(4, [29, 33, 35, 37]), (6, [37, 53, 55, 57])] {
        for place in places {
            let chosen = |byte: u8| {
                let mut frame = datagram(version, None);
                frame[place] = byte;
                program.test(&frame).expect("it is a frame")
            };
            assert_eq!((0..64).map(chosen).collect::<BTreeSet<u32>>(), processors, "{version} {place}");
        }
    }
}
