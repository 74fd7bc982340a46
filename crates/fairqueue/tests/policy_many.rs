//! Tests policies with as many matches as an access network has subscribers.

use std::fmt::Write;
use std::net::Ipv4Addr;
use unisono_fairqueue::{Facts, Policy};

fn refused(text: &str) -> String {
    Policy::parse(text).expect_err("it must be refused").to_string()
}

#[test]
fn fifty_thousand_subscribers_make_a_policy_and_each_gets_its_packets() {
    let mut text = String::from("rate = \"10gbit\"\ndefault = \"rest\"\n[class.rest]\n");
    for number in 0..50_000_u32 {
        let address = Ipv4Addr::from(0x0a00_0000 + number);
        let _ = writeln!(
            text,
            "[class.s{number}]\nmatch = [{{ address = \"{address}\" }}, {{ address = \"2001:db8:{number:x}::/48\" }}]"
        );
    }
    let policy = Policy::parse(&text).expect("it is sound");
    let name = |source: &str, destination: &str| {
        let facts =
            Facts { source: source.parse().ok(), destination: destination.parse().ok(), ..Facts::default() };
        policy.hierarchy.class(policy.class_of(&facts)).name.as_str()
    };
    assert_eq!(name("192.0.2.1", "10.0.195.79"), "s49999");
    assert_eq!(name("10.0.1.0", "10.0.0.9"), "s9", "the first match in the file decides");
    assert_eq!(name("2001:db8:c34f:1::1", "2001:db9::1"), "s49999");
    assert_eq!(name("10.0.195.80", "2001:db7::"), "rest");
    let twice = format!("{text}[class.twice]\nmatch = [{{ address = \"10.0.195.79\" }}]\n");
    assert!(refused(&twice).contains(
        "this match is shadowed: all its packets go to { address = \"10.0.195.79/32\" } of `s49999`"
    ));
}

#[test]
fn more_matches_of_several_conditions_than_can_be_compared_are_refused() {
    let mut text = String::from("rate = \"10gbit\"\n[class.a]\nmatch = [\n");
    for number in 0..4097 {
        let _ = writeln!(text, "{{ mark = {number}, protocol = 6 }},");
    }
    assert!(
        refused(&format!("{text}]\n")).starts_with("4100:1: there are more than 4096 matches of other kinds")
    );
}
