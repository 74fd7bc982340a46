//! Tests which clients find a place in a broker that others have filled.

use unisono_broker::{Broker, ClientId, Limits, Permissions, Task};
use unisono_events_client::{Greeting, Instant};
use unisono_events_wire::Frame;
use unisono_events_wire::transport::TransportPeer;
use unisono_fairqueue::{ClassSpec, Hierarchy};

const ROOT: TransportPeer = TransportPeer::User(0);
const OWN: TransportPeer = TransportPeer::User(1000);

fn broker(limits: Limits) -> Broker {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let mut broker = Broker::new(tree.expect("it is sound"), limits);
    broker.run_by(1000);
    broker
}

/// Connects as often as it may.
fn fill(broker: &mut Broker, from: u32, peer: TransportPeer) -> usize {
    (0..1000)
        .take_while(|number| broker.connected(Instant::from_nanos(1), ClientId(from + number), peer))
        .count()
}

#[test]
fn root_and_the_broker_s_own_user_find_places_that_others_do_not() {
    let mut broker = broker(Limits { clients: 40, clients_of_user: 20, ..Limits::default() });
    assert_eq!(fill(&mut broker, 1000, TransportPeer::User(7)), 20, "of one user");
    assert_eq!(fill(&mut broker, 2000, TransportPeer::User(8)), 15, "of another one");
    for user in 9..14 {
        assert_eq!(fill(&mut broker, 3000 + user, TransportPeer::User(user)), 1, "the last eighth");
    }
    assert_eq!(fill(&mut broker, 3000, TransportPeer::User(99)), 0, "all places are taken");
    assert_eq!(fill(&mut broker, 4000, OWN), 8);
    assert_eq!(fill(&mut broker, 5000, ROOT), 8, "whatever the broker's own user has taken");
    assert_eq!(fill(&mut broker, 6000, TransportPeer::User(9)), 0);
}

#[test]
fn programs_of_the_broker_s_own_user_do_not_keep_its_commands_out() {
    let mut broker = broker(Limits { clients: 40, clients_of_user: 20, ..Limits::default() });
    assert_eq!(fill(&mut broker, 1000, OWN), 28);
    assert_eq!(fill(&mut broker, 2000, TransportPeer::User(7)), 7, "but for the last eighth");
    assert_eq!(fill(&mut broker, 3000, ROOT), 21, "16 that are kept, and the last eighth");
}

#[test]
fn two_users_leave_places_to_eight_others() {
    let mut broker = broker(Limits::default());
    let (all, of_user) = (Limits::default().clients, Limits::default().clients_of_user);
    assert_eq!(fill(&mut broker, 1000, TransportPeer::User(7)), of_user);
    assert_eq!(fill(&mut broker, 3000, TransportPeer::User(8)), all - of_user - all / 8);
    for user in 10..18 {
        assert_eq!(fill(&mut broker, 1000 * user, TransportPeer::User(user)), all / 64, "{user}");
    }
}

#[test]
fn two_identities_with_many_addresses_leave_places_to_others() {
    let rules = "[[allow]]\nwho = [\"anonymous\", \"unix:7\", \"unix:8\"]\nsubscribe = [\"#\"]";
    let permissions = Permissions::parse(rules, &|_| None).expect("it is sound");
    let limits = Limits { clients: 64, clients_of_user: 32, ..Limits::default() };
    let mut broker = broker(limits).with_permissions(permissions);
    assert_eq!(
        (100..140).filter(|number| greets(&mut broker, *number, TransportPeer::User(7))).count(),
        32
    );
    let address = |last: u32| TransportPeer::Address([192, 0, 2, last as u8].into());
    let anonymous = (0..40).take_while(|number| greets(&mut broker, *number, address(*number))).count();
    assert_eq!(anonymous, 24, "from as many addresses");
    assert!(greets(&mut broker, 99, TransportPeer::User(8)));
}

fn greets(broker: &mut Broker, number: u32, peer: TransportPeer) -> bool {
    let mut hello = Vec::new();
    Frame::Hello(Greeting::default()).write(&mut hello);
    if !broker.connected(Instant::from_nanos(1), ClientId(number), peer) {
        return false;
    }
    let _ = broker.received(Instant::from_nanos(1), ClientId(number), &hello, None);
    let mut tasks = std::iter::from_fn(|| broker.task());
    !tasks.any(|task| matches!(task, Task::SendAway { .. }))
}

#[test]
fn a_rule_that_does_not_say_gives_an_identity_half_of_all_places() {
    let rules = "[[allow]]\nwho = [\"anonymous\", \"unix:1000\"]\nsubscribe = [\"#\"]";
    let permissions = Permissions::parse(rules, &|_| None).expect("it is sound");
    let limits = Limits { clients: 20, clients_of_user: 20, ..Limits::default() };
    let mut broker = broker(limits).with_permissions(permissions);
    let address = |last: u32| TransportPeer::Address([192, 0, 2, last as u8].into());
    let anonymous = (0..11).filter(|number| greets(&mut broker, *number, address(*number))).count();
    assert_eq!(anonymous, 10, "from as many addresses");
    assert_eq!((20..30).filter(|number| greets(&mut broker, *number, OWN)).count(), 10);
    assert!(greets(&mut broker, 30, OWN), "places that are kept for it are of use");
}

#[test]
fn a_rule_that_says_how_many_connections_an_identity_has_is_followed() {
    let rules = "[[allow]]\nwho = [\"unix:7\"]\nsubscribe = [\"#\"]\nconnections = 12";
    let permissions = Permissions::parse(rules, &|_| None).expect("it is sound");
    let limits = Limits { clients: 20, clients_of_user: 20, ..Limits::default() };
    let mut broker = broker(limits).with_permissions(permissions);
    assert_eq!((0..13).filter(|number| greets(&mut broker, *number, TransportPeer::User(7))).count(), 12);
}
