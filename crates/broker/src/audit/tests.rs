use super::*;
use std::collections::BTreeSet;

const CLIENT: ClientId = ClientId(1);
const REFUSED: (AuditAction, AuditOutcome) = (AuditAction::Subscribe, AuditOutcome::Refused);

fn identity(who: &str) -> AuditedIdentity {
    AuditedIdentity { who: Some(who.to_owned()), name: "program".to_owned() }
}

fn trail() -> AuditTrail {
    let mut trail = AuditTrail::default();
    trail.advance(Instant::from_secs(100));
    trail.arrived(CLIENT, TransportPeer::User(7));
    trail
}

#[test]
fn equal_entries_within_a_second_are_one_line_and_a_count() {
    let mut trail = trail();
    for _ in 0..1000 {
        trail.enter(CLIENT, identity("unix:7"), REFUSED, Some("secret".to_owned()), Some("no"));
    }
    let first = trail.take();
    assert_eq!(first.iter().map(|entry| entry.count).collect::<Vec<_>>(), [1]);
    assert_eq!(first[0].why.as_deref(), Some("no"));
    trail.advance(Instant::from_secs(101));
    let rest = trail.take();
    assert_eq!(rest.iter().map(|entry| entry.count).collect::<Vec<_>>(), [999]);
    trail.advance(Instant::from_secs(102));
    assert!(trail.take().is_empty(), "all were counted");
}

#[test]
fn a_client_that_varies_its_subjects_makes_a_bounded_number_of_lines_and_all_are_counted() {
    let mut trail = trail();
    for number in 0..10_000 {
        trail.enter(CLIENT, identity("unix:7"), REFUSED, Some(number.to_string()), None);
    }
    trail.advance(Instant::from_secs(101));
    let entries = trail.take();
    assert!(entries.len() <= MAX_LINES_OF_CLIENT + 2, "{}", entries.len());
    assert_eq!(entries.iter().map(|entry| entry.count).sum::<u64>(), 10_000);
    // entries of another client are still distinguished
    trail.enter(CLIENT, identity("unix:8"), REFUSED, Some("mine".to_owned()), None);
    assert_eq!(trail.take()[0].subject.what.as_deref(), Some("mine"));
}

#[test]
fn many_clients_make_a_bounded_number_of_lines_and_all_are_counted() {
    let mut trail = trail();
    for number in 0..20_000 {
        trail.enter(CLIENT, identity(&format!("token:{number}")), REFUSED, Some("a".to_owned()), None);
    }
    trail.advance(Instant::from_secs(101));
    let entries = trail.take();
    assert!(entries.len() <= MAX_LINES + 2, "{}", entries.len());
    assert_eq!(entries.iter().map(|entry| entry.count).sum::<u64>(), 20_000);
}

/// Adds entries for 5,000 refusals, each from another address.
fn flood_from_many_addresses(trail: &mut AuditTrail, who: impl Fn(u32) -> Option<String>) {
    for number in 0..5000_u32 {
        let (client, address) = (ClientId(10 + number), std::net::Ipv4Addr::from(0x0a00_0000 + number));
        trail.arrived(client, TransportPeer::Address(address.into()));
        let of = AuditedIdentity { who: who(number), name: number.to_string() };
        trail.enter(client, of, REFUSED, Some("a".to_owned()), None);
    }
}

#[test]
fn an_identity_with_many_addresses_has_the_lines_of_one() {
    let mut trail = trail();
    // a token is one identity, over frames and over MQTT
    let ways = ["token:x", "mqtt:x"];
    flood_from_many_addresses(&mut trail, |number| Some(ways[number as usize % 2].to_owned()));
    trail.advance(Instant::from_secs(101));
    let entries = trail.take();
    assert!(entries.len() <= MAX_LINES_OF_CLIENT + 4, "{}", entries.len());
    assert_eq!(entries.iter().map(|entry| entry.count).sum::<u64>(), 5000);
}

#[test]
fn clients_without_a_proven_identity_leave_lines_to_those_with_one() {
    for who in [None, Some("anonymous")] {
        let mut trail = trail();
        flood_from_many_addresses(&mut trail, |_| who.map(str::to_owned));
        trail.enter(CLIENT, identity("unix:7"), REFUSED, Some("mine".to_owned()), None);
        let mine = trail.take().into_iter().find(|entry| entry.subject.who.as_deref() == Some("unix:7"));
        assert_eq!(mine.and_then(|entry| entry.subject.what).as_deref(), Some("mine"), "{who:?}");
    }
}

#[test]
fn a_request_is_entered_once_and_for_the_client_that_made_it() {
    let mut trail = trail();
    trail.asks(CLIENT, AuditAction::Advertise, "t".to_owned());
    trail.refused(ClientId(2), AuditedIdentity::default(), "another client's");
    trail.done(CLIENT, identity("unix:7"));
    trail.done(CLIENT, identity("unix:7"));
    let entries = trail.take();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].subject.outcome, AuditOutcome::Done);
}

#[test]
fn long_subjects_and_reasons_are_cut_between_letters() {
    let mut trail = trail();
    let long = "é".repeat(10_000);
    trail.enter(CLIENT, identity("unix:7"), REFUSED, Some(format!("x{long}")), Some(&long));
    let entries = trail.take();
    let lengths: BTreeSet<_> =
        [&entries[0].subject.what, &entries[0].why].map(|text| text.as_ref().map_or(0, String::len)).into();
    assert!(lengths.iter().all(|length| (500..=MAX_TEXT + 3).contains(length)), "{lengths:?}");
}
