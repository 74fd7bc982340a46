//! Tests policies: an accepted policy means what its text says, and an error names the position and a
//! correction.

use proptest::option::weighted as maybe;
use proptest::prelude::*;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use unisono_fairqueue::{
    ClassId, Dscp, Facts, Flows, IpProtocol, Limit, MacAddress, Matcher, Network, Order, Overflow, Policy,
    Rate,
};
use unisono_time::Duration;

const WHOLE: &str = r#"
rate = "100mbit"   # a comment
default = "rest"

[class.video]
weight = 3
ceiling = "80mbit"

[class.video.live]
weight = 2
limit = "64KiB"
overflow = "drop-longest"
order = "deadline"
match = [{ cgroup = "/system.slice/live.service/" }, { port = 5004, protocol = "udp" }]

[class.video.stored]
match = [{ address = "10.0.0.0/8", port = [8000, 8010] }]

[class.control]
weight = 0.5
packets = 100
match = [{ priority = 6 }, { protocol = 89 }]

[cpu]
live = 3
"#;

fn refused(text: &str) -> String {
    Policy::parse(text).expect_err("it must be refused").to_string()
}

#[test]
fn the_example_of_the_documentation_is_a_policy() {
    let source = include_str!("../src/policy/mod.rs");
    let example = source.split("//! ```").nth(1).expect("it has one").trim_start_matches("toml");
    let text: String = example.lines().map(|line| format!("{}\n", line.trim_start_matches("//!"))).collect();
    let policy = Policy::parse(&text).expect("it is sound");
    assert_eq!((policy.rules.len(), policy.cpu.map_or(0, |cpu| cpu.shares.len())), (8, 1));
}

#[test]
fn a_policy_means_what_was_written() {
    let policy = Policy::parse(WHOLE).expect("it is sound");
    assert_eq!(policy.rate, Rate::new(100_000_000).expect("it is positive"));
    let tree = &policy.hierarchy;
    let id = |name: &str| tree.find(name).expect("it is there");
    let names: Vec<&str> = tree.classes().map(|(_, class)| class.name.as_str()).collect();
    assert_eq!(names, ["root", "video", "live", "stored", "control", "rest"]);
    assert_eq!(policy.default, id("rest"));
    assert_eq!(tree.class(id("live")).parent, id("video"));
    assert_eq!(tree.class(id("live")).order, Order::Deadline);
    let limit = Limit { packets: u64::MAX, bytes: 65_536, overflow: Overflow::DropLongest };
    assert_eq!(tree.class(id("live")).limit, Some(limit));
    assert_eq!(tree.class(id("control")).limit.map(|limit| limit.packets), Some(100));
    assert_eq!(policy.ceiling(id("stored")).to_string(), "80mbit");
    assert_eq!(policy.ceiling(id("rest")).to_string(), "100mbit");
    assert!((policy.guarantee(id("live")) - 3.0 / 4.5 * 2.0 / 3.0 * 1e8).abs() < 1.0);
    assert_eq!(policy.rules.len(), 5);
    assert_eq!(policy.rules[0].at.to_string(), "14:10");
    for at in policy.rules.iter().map(|rule| rule.at) {
        let line = WHOLE.lines().nth(at.line - 1).expect("a line of the text");
        assert_eq!(line.chars().nth(at.column - 1), Some('{'), "{at}");
    }
    let cpu = &policy.cpu.as_ref().expect("it has shares").shares;
    assert_eq!((cpu.len(), cpu[0].cgroup.as_str()), (1, "/system.slice/live.service"));
}

#[test]
fn the_classes_below_one_are_never_sure_of_more_than_its_ceiling() {
    // a third of the link is more than the ceiling
    let text = "rate = \"100mbit\"\ndefault = \"x\"\n[class.x]\n[class.y]\n[class.g]\nceiling = \"30mbit\"\n\
        [class.g.a]\nweight = 2\n[class.g.b]\n[class.g.b.c]\nceiling = \"2mbit\"\n[class.g.b.d]\nweight = 4\n";
    let policy = Policy::parse(text).expect("it is sound");
    let sure = |name: &str| policy.guarantee(policy.hierarchy.find(name).expect("it is there"));
    for (name, wanted) in [("g", 30e6), ("a", 20e6), ("b", 10e6), ("c", 2e6), ("d", 8e6)] {
        assert!((sure(name) - wanted).abs() < 1.0, "{name}: {}", sure(name));
    }
    for (all, (id, class)) in policy.guarantees().into_iter().zip(policy.hierarchy.classes()) {
        assert!((all - policy.guarantee(id)).abs() < 1e-3, "{}: {all}", class.name);
    }
}

#[test]
fn the_first_match_in_the_file_decides_and_the_default_takes_the_rest() {
    let policy = Policy::parse(WHOLE).expect("it is sound");
    let name = |facts: &Facts<'_>| policy.hierarchy.class(policy.class_of(facts)).name.clone();
    let ten = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    let other = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    let base = Facts { source: other, destination: ten, ..Facts::default() };
    assert_eq!(name(&base), "rest");
    assert_eq!(name(&Facts { destination_port: Some(8010), ..base }), "stored");
    assert_eq!(name(&Facts { source_port: Some(8010), ..base }), "rest", "the port is of the other end");
    let udp = Some(IpProtocol::UDP);
    assert_eq!(name(&Facts { source_port: Some(5004), protocol: udp, ..base }), "live");
    assert_eq!(name(&Facts { destination_port: Some(8010), priority: Some(6), ..base }), "stored");
    assert_eq!(name(&Facts { cgroup: Some("/system.slice/live.service/sub"), ..base }), "live");
    assert_eq!(name(&Facts { cgroup: Some("/system.slice/live.service2"), ..base }), "rest");
}

#[test]
fn a_leaf_says_who_waits_for_whom_in_it_and_when_packets_are_marked() {
    let text =
        "rate = \"1mbit\"\n[class.a]\nflows = \"fair\"\necn = \"1.5ms\"\n[class.b]\nflows = \"together\"\n";
    let policy = Policy::parse(text).expect("it is sound");
    let id = |name: &str| policy.hierarchy.find(name).expect("it is there");
    assert_eq!(
        (policy.flows(id("a")), policy.congestion(id("a"))),
        (Flows::Fair, Some(Duration::from_micros(1500)))
    );
    assert_eq!((policy.flows(id("b")), policy.congestion(id("b"))), (Flows::Together, None));
}

#[test]
fn a_class_can_name_its_parent_instead_of_standing_in_its_table() {
    let text =
        "rate = \"1mbit\"\n[class.b]\nparent = \"a\"\n[class.a]\nweight = 2\n[class.c]\nparent = \"root\"";
    let tree = Policy::parse(text).expect("it is sound").hierarchy;
    let parent = |name: &str| tree.class(tree.find(name).expect("it is there")).parent;
    assert_eq!(parent("b"), tree.find("a").expect("it is there"));
    assert_eq!(parent("a"), ClassId::ROOT);
    assert_eq!(parent("c"), ClassId::ROOT);
}

#[test]
fn everything_bad_is_refused_with_its_place_and_what_to_write_instead() {
    let cases = [
        ("[class.a]\nweight = 0", "3:10: the weight 0 gives no share; write a positive number"),
        (
            "[class.a]\nweight = -2.5",
            "3:10: the weight -2.5 gives no share; write a positive number",
        ),
        (
            "[class.a]\nweight = \"3\"",
            "3:10: a weight is a decimal number such as 3 or 0.5, not the text \"3\"",
        ),
        ("[class.a]\nweight = 1e9", "3:10: `1e9` is no weight: a positive decimal number"),
        ("[class.a]\nweight = nan", "3:10: `nan` is no weight"),
        ("[class.a]\n[class.a]", "3:8: `a` is there twice; names are unique"),
        (
            "[class.a.x]\n[class.b.x]",
            "3:10: class `x` is there twice, first at 2:10; names are unique in the whole tree",
        ),
        (
            "[class.a]\nparent = \"b\"\n[class.b]\nparent = \"a\"",
            "3:10: the parents make a cycle: a is below b is below a; take one `parent` out",
        ),
        ("[class.a]\nparent = \"a\"", "3:10: the parents make a cycle: a is below a"),
        (
            "[class.a]\n[class.a.b]\nparent = \"a\"",
            "4:10: a class in the table of another is its child already; leave `parent` out",
        ),
        (
            "[class.video]\n[class.b]\nparent = \"vdeo\"",
            "4:10: parent: there is no class `vdeo`; did you mean `video`?",
        ),
        (
            "[class.a]\nceiling = \"101mbit\"",
            "3:11: the ceiling 101mbit is over the link's rate; write at most \"100mbit\"",
        ),
        (
            "[class.a]\nceiling = \"5mbit\"\n[class.a.b.c]\nceiling = \"6mbit\"",
            "5:11: the ceiling 6mbit is over that of `a` above it (at 3:11); write at most \"5mbit\"",
        ),
        (
            "[class.a]\nceiling = \"0mbit\"",
            "3:11: ceiling: `0mbit` is no rate; write a positive number and its unit",
        ),
        (
            "[class.a]\nceiling = 80",
            "3:11: `ceiling` is a rate such as \"100mbit\", in quotation marks, not the number 80",
        ),
        ("[class.a]\nlimit = \"64\"", "3:9: limit: \"64\" is no size; write a number and its unit"),
        (
            "[class.a]\nlimit = \"1KiB\"",
            "3:9: a limit of 1KiB holds no packet; write at least \"1514B\"",
        ),
        (
            "[class.a]\npackets = 0",
            "3:11: packets: expected a whole number from 1, such as 100, not the number 0",
        ),
        (
            "[class.a]\nlimit = \"64KiB\"\npackets = 5",
            "4:11: `limit` and `packets` both say how much may wait",
        ),
        ("[class.a]\noverflow = \"drop-tail\"", "3:12: `overflow` without a limit means nothing"),
        (
            "[class.a]\npackets = 5\noverflow = \"drop-tial\"",
            "4:12: overflow: unknown word `drop-tial`; did you mean `drop-tail`?",
        ),
        (
            "[class.a]\norder = \"edf\"",
            "3:9: order: unknown word `edf`; expected one of fifo, deadline",
        ),
        (
            "[class.a]\norder = \"deadline\"\n[class.a.b]",
            "3:9: class `a` has children; say the order at its leaves",
        ),
        ("[class.a]\nflows = \"fare\"", "3:9: flows: unknown word `fare`; did you mean `fair`?"),
        (
            "[class.a]\norder = \"deadline\"\nflows = \"fair\"",
            "4:9: packets leave by their deadlines or by turns of their flows; take `order` or `flows` out",
        ),
        (
            "[class.a]\nflows = \"fair\"\n[class.a.b]",
            "3:9: class `a` has children, and packets wait at leaves; say `flows` there",
        ),
        (
            "[class.a]\necn = \"5ms\"\n[class.a.b]",
            "3:7: class `a` has children, and packets wait at leaves; say `ecn` there",
        ),
        (
            "[class.a]\necn = \"5\"",
            "3:7: ecn: \"5\" is no duration; write a positive number and its unit",
        ),
        ("[class.a]\necn = \"0ms\"", "3:7: ecn: \"0ms\" is no duration"),
        ("[class.a]\necn = 5", "3:7: "),
        ("[class.a]\nwieght = 2", "3:1: unknown key `wieght`; did you mean `weight`?"),
        (
            "[class.a]\nmatch = [{ ports = 80 }]",
            "3:12: unknown key `ports` in a match; did you mean `port`?",
        ),
        ("[clas.a]", "2:2: unknown key `clas`; did you mean `class`?"),
        ("[class]\na = 3", "3:1: `a` is no class; a class is a table, as in [class.a]"),
        ("[class.\"a b\"]", "2:8: \"a b\" is no name for a class"),
        ("[class.root]", "2:8: `root` is the name of the whole link"),
        (
            "[class.a]\nmatch = { port = 80 }",
            "3:9: `match` is a list, as in [{ port = 80 }], not a table",
        ),
        (
            "[class.a]\nmatch = [80]",
            "3:10: a match is a table, as in { port = 80 }, not the number 80",
        ),
        (
            "[class.a]\nmatch = [{}]",
            "3:10: a match without parts is for every packet; make the class the `default`",
        ),
        (
            "[class.a]\nmatch = [{ port = 80 }]\n[class.a.b]",
            "3:10: class `a` has children, and packets wait at leaves; move the match to one of them, such as `b`",
        ),
        ("[class.a]\nmatch = [{ port = 0 }]", "3:19: port: expected 1 to 65535"),
        (
            "[class.a]\nmatch = [{ port = [9, 8] }]",
            "3:19: ports 9 to 8 are none; write the lower one first",
        ),
        (
            "[class.a]\nmatch = [{ port = [1, 2, 3] }]",
            "3:19: port: expected 1 to 65535, or the first and the last",
        ),
        (
            "[class.a]\nmatch = [{ port = 7, protocol = \"icmp\" }]",
            "3:12: icmp has no ports, so this can never hit",
        ),
        (
            "[class.a]\nmatch = [{ protocol = \"tpc\" }]",
            "3:23: unknown protocol `tpc`; did you mean `tcp`?",
        ),
        (
            "[class.a]\nmatch = [{ protocol = 256 }]",
            "3:23: a protocol is a name such as \"udp\" or a number from 0 to 255",
        ),
        (
            "[class.a]\nmatch = [{ address = \"10.1.0.0/8\" }]",
            "3:22: address: `10.1.0.0/8` says more than its prefix; write \"10.0.0.0/8\" for the network",
        ),
        ("[class.a]\nmatch = [{ address = \"example\" }]", "3:22: address: `example` is no address"),
        ("[class.a]\nmatch = [{ priority = -1 }]", "3:23: a priority is a whole number from 0"),
        (
            "[class.a]\nmatch = [{ mark = \"1\" }]",
            "3:19: a mark is a whole number from 0, as nftables",
        ),
        (
            "[class.a]\nmatch = [{ mark = 0x1_0000_0000 }]",
            "3:19: a mark is a whole number from 0, as nftables",
        ),
        (
            "[class.a]\nmatch = [{ dscp = 64 }]",
            "3:19: dscp: a code point is a number from 0 to 63 or a name",
        ),
        (
            "[class.a]\nmatch = [{ dscp = \"af44\" }]",
            "3:19: dscp: a code point is a number from 0 to 63 or a name",
        ),
        (
            "[class.a]\nmatch = [{ mac = \"02:00:5e:10:00\" }]",
            "3:18: mac: \"02:00:5e:10:00\" is no address; write one as in \"02:00:5e:10:00:01\"",
        ),
        (
            "[class.a]\nmatch = [{ vlan = 4095 }]",
            "3:19: vlan: expected the number of a VLAN, from 1 to 4094",
        ),
        (
            "[class.a]\nmatch = [{ cgroup = \"a\" }]",
            "3:21: \"a\" is no path from the root of the control groups",
        ),
        ("[class.a]\nmatch = [{ cgroup = \"/a/../b\" }]", "3:21: \"/a/../b\" is no path"),
        (
            "[class.a]\nmatch = [{ cgroup = \"/\" }]",
            "3:21: the root control group holds every process",
        ),
        (
            "default = \"rst\"\n[class.rest]",
            "2:11: default: there is no class `rst`; did you mean `rest`?",
        ),
        (
            "default = \"a\"\n[class.a.b]",
            "2:11: the default class `a` has children, and packets wait at leaves: b",
        ),
        (
            "default = 3",
            "2:11: `default` is the name of a class, in quotation marks, not the number 3",
        ),
        ("[cpu]\nvideo = 3", "3:1: cpu: there is no class `video`; the classes are default"),
        ("[class.a]\n[cpu]\na = 3", "4:1: cpu: class `a` has no match by control group"),
        (
            "[class.a]\nmatch = [{ cgroup = \"/a\" }]\n[cpu]\na = 1000",
            "5:1: cpu: the kernel knows weights from 0.01 to 100, not 1000",
        ),
        ("[class.a]\n[io]\na = 3", "4:1: io: class `a` has no match by control group"),
        (
            "[class.a]\nmatch = [{ cgroup = \"/a\" }]\n[io]\na = 50",
            "5:1: io: the kernel knows weights from 0.01 to 10, not 50",
        ),
        ("[class.a]\nweight = ", "3:"),
    ];
    let mut wrong = String::new();
    for (rest, expected) in cases {
        let said = refused(&format!("rate = \"100mbit\"\n{rest}"));
        if !said.starts_with(expected) {
            let _ = write!(wrong, "{rest}\n  said      {said}\n  expected  {expected}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(
        refused("").starts_with("1:1: the policy does not say what the link carries; write, say, rate = ")
    );
    assert!(refused("rate = 100").starts_with("1:8: `rate` is a rate such as \"100mbit\""));
    assert!(refused(&" ".repeat(17 << 20)).starts_with("1:1: 17825792 bytes are too many"));
}

#[test]
fn a_match_that_can_never_hit_is_refused_and_those_before_it_are_named() {
    let policy = |first: &str, second: &str| {
        format!("rate = \"1mbit\"\n[class.a]\nmatch = [{first}]\n[class.b]\nmatch = [{second}]")
    };
    let shadowed = [
        ("{ port = 80 }", "{ port = 80, protocol = \"tcp\" }"),
        ("{ port = [1, 100] }", "{ port = [50, 60], address = \"10.0.0.1\" }"),
        ("{ address = \"0.0.0.0/0\" }", "{ address = \"10.0.0.0/8\", priority = 3 }"),
        ("{ cgroup = \"/a\" }", "{ cgroup = \"/a/b\" }"),
        // shadowed only by all earlier matches together
        ("{ port = [1, 50] }, { port = [51, 100] }", "{ port = [20, 80] }"),
        (
            "{ address = \"0.0.0.0/1\" }, { address = \"128.0.0.0/1\" }",
            "{ address = \"0.0.0.0/0\" }",
        ),
        ("{ address = \"0.0.0.0/0\" }, { address = \"::/0\" }", "{ protocol = \"tcp\" }"),
        (
            "{ port = 7, protocol = \"tcp\" }, { port = 7, protocol = \"udp\" }, { port = 7, protocol = 33 }, \
             { port = 7, protocol = 132 }, { port = 7, protocol = 136 }",
            "{ port = 7 }",
        ),
        (&code_points(64), "{ address = \"0.0.0.0/0\" }"),
        ("{ address = \"0.0.0.0/0\" }, { address = \"::/0\" }", "{ dscp = 46, mark = 3 }"),
        ("{ vlan = 5 }", "{ vlan = 5, dscp = \"ef\" }"),
    ];
    for (first, second) in shadowed {
        let said = refused(&policy(first, second));
        assert!(said.starts_with("5:10: this match is shadowed: all its packets go to {"), "{said}");
        assert!(said.contains("of `a` at 3:10"), "{said}");
    }
    let open = [
        ("{ port = 80, protocol = \"tcp\" }", "{ port = 80 }"),
        ("{ cgroup = \"/a/b\" }", "{ cgroup = \"/a\" }"),
        ("{ cgroup = \"/a\" }", "{ cgroup = \"/ab\" }"),
        ("{ port = [1, 50] }, { port = [52, 100] }", "{ port = [20, 80] }"),
        ("{ address = \"0.0.0.0/0\" }", "{ protocol = \"tcp\" }"),
        ("{ address = \"0.0.0.0/0\" }, { address = \"::/0\" }", "{ priority = 3 }"),
        ("{ address = \"0.0.0.0/0\" }", "{ dscp = 3 }"),
        ("{ dscp = \"ef\" }", "{ dscp = \"cs0\" }"),
        ("{ vlan = 5, mark = 1 }", "{ vlan = 5 }"),
        (&code_points(63), "{ address = \"0.0.0.0/0\" }"),
        (&code_points(64), "{ vlan = 7 }"),
    ];
    for (first, second) in open {
        Policy::parse(&policy(first, second)).unwrap_or_else(|error| panic!("{first} {second}: {error}"));
    }
    let twice = refused("rate = \"1mbit\"\n[class.a]\nmatch = [{ port = 1 }, { port = 1 }]");
    assert!(twice.ends_with("{ port = 1 } of `a` at 3:10; take it out"), "{twice}");
}

#[test]
fn deep_and_long_texts_are_refused_and_nothing_overflows() {
    let long = [
        format!("rate = \"1mbit\"\n[class{}]", ".a".repeat(1_000_000)),
        format!("rate = \"1mbit\"\nclass{} = 1", ".a".repeat(1_000_000)),
        format!("rate = {}", "[".repeat(2_000_000)),
        format!("class = {}", "{a = ".repeat(400_000)),
    ];
    for text in long {
        assert!(Policy::parse(&text).is_err());
    }
    let mut chain = String::from("rate = \"1mbit\"\n[class.c0]\n");
    for class in 1..20_000 {
        let _ = writeln!(chain, "[class.c{class}]\nparent = \"c{}\"", class - 1);
    }
    assert!(refused(&chain).contains("`c64`: classes are nested more than 64 deep"));
}

fn matchers() -> impl Strategy<Value = Matcher> {
    let network = (0_u8..8, 29_u8..=32).prop_map(|(last, prefix)| {
        Network::new(Ipv4Addr::new(10, 0, 0, last).into(), prefix).expect("short")
    });
    let ports = (1_u16..6, 0_u16..3).prop_map(|(first, more)| first..=first + more);
    let protocol = prop_oneof![Just(IpProtocol::TCP), Just(IpProtocol::UDP), Just(IpProtocol(1))];
    let cgroup = prop_oneof![Just("/a"), Just("/a/b"), Just("/c")].prop_map(str::to_owned);
    (
        maybe(0.2, cgroup),
        maybe(0.6, network),
        maybe(0.4, ports),
        maybe(0.3, protocol),
        maybe(0.2, 0_u32..2),
        (maybe(0.1, Just(0)), maybe(0.2, Just(0)), maybe(0.1, Just(5)), maybe(0.1, Just([2; 6]))),
    )
        .prop_map(|(cgroup, address, ports, protocol, priority, (mark, dscp, vlan, mac))| Matcher {
            cgroup,
            address,
            ports,
            protocol,
            priority,
            mark,
            dscp: dscp.and_then(Dscp::new),
            vlan,
            mac: mac.and_then(MacAddress::new),
        })
        .prop_filter("it asks for something", |matcher| {
            !matcher.is_empty()
                && (matcher.ports.is_none() || matcher.protocol.is_none_or(IpProtocol::has_ports))
        })
}

/// Returns the first `number` of the 64 code points, as matches.
fn code_points(number: u8) -> String {
    (0..number).map(|point| format!("{{ dscp = {point} }}")).collect::<Vec<_>>().join(", ")
}

/// Returns every packet of a small world. Besides what matches name, it has an address outside of all
/// networks, a port, a protocol with ports and a protocol without ports that no match names.
fn world() -> Vec<Facts<'static>> {
    let mut ends = Vec::new();
    for address in (0..8).map(|last| Ipv4Addr::new(10, 0, 0, last)).chain([Ipv4Addr::new(192, 0, 2, 1)]) {
        ends.extend((1..9).map(Some).chain([None]).map(|port| (Some(IpAddr::V4(address)), port)));
    }
    let mut facts = Vec::new();
    for (address, port) in ends.into_iter().chain([(None, None)]) {
        let with_ports = [Some(IpProtocol::TCP), Some(IpProtocol::UDP), Some(IpProtocol(132))];
        let without = [Some(IpProtocol(1)), Some(IpProtocol(50))];
        let protocols: Vec<_> = match (address, port) {
            (None, _) => vec![None],
            (_, None) => with_ports.into_iter().chain(without).collect(),
            _ => with_ports.to_vec(),
        };
        for protocol in protocols {
            for priority in [None, Some(0), Some(1)] {
                for cgroup in [None, Some("/a"), Some("/a/b"), Some("/c")] {
                    let points = [9, 0].map(|point| protocol.and(Dscp::new(point)));
                    let others = points.into_iter().flat_map(|dscp| {
                        [(None, None), (None, Some(5)), (Some(0), None), (Some(0), Some(5))]
                            .into_iter()
                            .flat_map(move |(mark, vlan)| {
                                [None, MacAddress::new([2; 6])].map(|mac| (mark, dscp, vlan, mac))
                            })
                    });
                    for (mark, dscp, vlan, mac) in others {
                        facts.push(Facts {
                            source: address,
                            destination: address,
                            source_mac: mac,
                            destination_mac: mac,
                            source_port: port,
                            destination_port: port,
                            protocol,
                            priority,
                            mark,
                            dscp,
                            vlan,
                            cgroup,
                        });
                    }
                }
            }
        }
    }
    facts
}

proptest! {
    #[test]
    fn a_match_is_refused_exactly_if_no_packet_would_come_to_it(all in proptest::collection::vec(matchers(), 1..9)) {
        let mut text = String::from("rate = \"1mbit\"\n");
        for (number, matcher) in all.iter().enumerate() {
            let _ = writeln!(text, "[class.c{number}]\nmatch = [{matcher}]");
        }
        let world = world();
        let first_of = |facts: &Facts<'_>| all.iter().position(|matcher| matcher.matches(facts));
        let hit: Vec<_> = world.iter().filter_map(first_of).collect();
        let dead = (0..all.len()).find(|number| !hit.contains(number));
        match (Policy::parse(&text), dead) {
            (Err(error), Some(dead)) => {
                prop_assert_eq!(error.at.line, 3 + 2 * dead);
                prop_assert!(error.what.starts_with("this match is shadowed"), "{}", error);
            }
            (Ok(policy), None) => for facts in &world {
                let naive = first_of(facts).map_or(policy.default, |number| {
                    policy.hierarchy.find(&format!("c{number}")).expect("it was declared")
                });
                prop_assert_eq!(policy.class_of(facts), naive);
            },
            (parsed, dead) => prop_assert!(false, "{:?} {:?}\n{}", parsed.map(|_| ()), dead, text),
        }
    }

    #[test]
    fn the_first_match_of_either_end_decides(
        all in proptest::collection::vec(matchers(), 1..12), ends in (0_u8..8, 0_u8..8), mark in maybe(0.5, Just(0)),
        vlan in maybe(0.5, Just(5)), port in 1_u16..8,
    ) {
        let mut text = String::from("rate = \"1mbit\"\n");
        for (number, matcher) in all.iter().enumerate() {
            let _ = writeln!(text, "[class.c{number}]\nmatch = [{matcher}]");
        }
        let Ok(policy) = Policy::parse(&text) else { return Ok(()) };
        let [source, destination] = [ends.0, ends.1].map(|last| Some(Ipv4Addr::new(10, 0, 0, last).into()));
        let (source_port, destination_port) = (Some(port), Some(3));
        let protocol = Some(IpProtocol::TCP);
        let facts =
            Facts { source, destination, source_port, destination_port, protocol, mark, vlan, ..Facts::default() };
        let naive = policy.rules.iter().find(|rule| rule.matcher.matches(&facts)).map_or(policy.default, |rule| rule.class);
        prop_assert_eq!(policy.class_of(&facts), naive);
    }

    #[test]
    fn one_match_contains_another_exactly_if_all_its_packets_match(a in matchers(), b in matchers()) {
        let world = world();
        let counterexample = world.iter().any(|facts| b.matches(facts) && !a.matches(facts));
        prop_assert_eq!(a.contains(&b), !counterexample);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,200}") {
        let _ = Policy::parse(&text);
    }

    #[test]
    fn a_policy_with_anything_changed_is_read_or_refused_within_its_lines(
        at in 0..WHOLE.len(), remove in 0_usize..12, insert in "[ -~\n\"=.0é\\[\\]{}]{0,6}",
    ) {
        let mut text = WHOLE.to_owned();
        let end = (at + remove).min(text.len());
        text.replace_range(at..end, &insert);
        if let Err(error) = Policy::parse(&text) {
            prop_assert!((1..=text.lines().count() + 1).contains(&error.at.line), "{}", error);
            prop_assert!(!error.what.is_empty() && !error.what.contains('\n'), "{}", error);
        }
    }
}

#[test]
fn a_default_class_of_its_own_has_a_name_as_others_have() {
    let policy =
        Policy::parse("rate = \"1mbit\"\ndefault = \"rest\"\n[class.post]").expect("`rest` is no `post`");
    assert_eq!(policy.hierarchy.class(policy.default).name, "rest");
    for name in ["x\\u001b[31m", "two words", &"x".repeat(65)] {
        let text = format!("rate = \"1mbit\"\ndefault = \"{name}\"\n[class.a]\n");
        let said = Policy::parse(&text).expect_err(name).to_string();
        assert!(said.contains("is no name for a class") && !said.contains('\u{1b}'), "{said}");
    }
}
