//! The transport as a whole, over loopback addresses.
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

use super::*;
use crate::model::{JobMembership, Key};
use crate::wire::packet::{Header, WirePacket};
use crate::wire::tests::conformance;
use crate::wire::tests::fault::{FaultPlan, Faulty};
use std::thread;

pub(super) const TIMEOUT: StdDuration = StdDuration::from_secs(60);

pub(super) fn place(rank: u32, size: usize, key: Key) -> JobMembership {
    JobMembership { rank: Rank(rank), size, key }
}

pub(super) fn listeners(size: usize, ip: &str) -> Vec<JobListener> {
    let key = Key::random().expect("random");
    let address = SocketAddr::new(ip.parse().expect("an address"), 0);
    (0..size as u32)
        .map(|rank| JobListener::bind(place(rank, size, key), address).expect("a free port"))
        .collect()
}

pub(super) fn addresses(listeners: &[JobListener]) -> Vec<SocketAddr> {
    listeners.iter().map(JobListener::address).collect()
}

/// Runs `join` for each listener in a thread of its own.
pub(super) fn all(
    listeners: Vec<JobListener>,
    join: impl Fn(JobListener) -> Result<Tcp, Error> + Sync,
) -> Vec<Result<Tcp, Error>> {
    let join = &join;
    thread::scope(|threads| {
        let joining: Vec<_> =
            listeners.into_iter().map(|listener| threads.spawn(move || join(listener))).collect();
        joining.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn ends(joined: Vec<Result<Tcp, Error>>) -> conformance::Transports {
    joined.into_iter().map(|end| Box::new(end.expect("all meet")) as Box<dyn Transport>).collect()
}

#[test]
fn tcp_keeps_the_contract_between_known_addresses() {
    conformance::check(|size| {
        let listeners = listeners(size, "127.0.0.1");
        let addresses = addresses(&listeners);
        ends(all(listeners, |listener| listener.connect(&addresses, TIMEOUT)))
    });
}

#[test]
fn tcp_keeps_the_contract_through_rank_0_over_ipv6() {
    if let Err(error) = std::net::TcpListener::bind("[::1]:0") {
        println!("skipped: this host has no IPv6 loopback address: {error}");
        return;
    }
    conformance::check(|size| {
        let listeners = listeners(size, "::1");
        let root = listeners[0].address();
        ends(all(listeners, |listener| listener.connect_through(root, TIMEOUT)))
    });
}

#[test]
fn tcp_with_faults_keeps_the_contract() {
    for seed in 0..3 {
        let plan = FaultPlan::new(seed).delay(Duration::from_millis(3));
        conformance::check(|size| {
            let listeners = listeners(size, "127.0.0.1");
            let addresses = addresses(&listeners);
            let joined = all(listeners, |listener| listener.connect(&addresses, TIMEOUT)).into_iter();
            joined.map(|end| Box::new(Faulty::new(end.expect("meets"), plan)) as Box<dyn Transport>).collect()
        });
    }
}

#[test]
fn one_member_needs_nobody() {
    let listeners = listeners(1, "127.0.0.1");
    let addresses = addresses(&listeners);
    for joined in all(listeners, |listener| listener.connect(&addresses, TIMEOUT)) {
        assert_eq!(joined.expect("nobody to wait for").size(), 1);
    }
}

#[test]
fn whoever_does_not_come_is_named() {
    let mut listeners = listeners(3, "127.0.0.1");
    let addresses = addresses(&listeners);
    listeners.remove(1);
    let short = StdDuration::from_millis(200);
    let errors: Vec<String> = all(listeners, |listener| listener.connect(&addresses, short))
        .into_iter()
        .map(|joined| joined.expect_err("rank 1 is missing").to_string())
        .collect();
    assert!(errors[0].contains("ranks 1"), "{errors:?}");
    assert!(errors[1].contains(&format!("rank 1 at {}", addresses[1])), "{errors:?}");
}

#[test]
fn an_address_in_use_is_named() {
    let taken = listeners(1, "127.0.0.1");
    let again = JobListener::bind(taken[0].place().clone(), taken[0].address()).expect_err("in use");
    assert!(again.to_string().contains(&taken[0].address().to_string()), "{again}");
}

#[test]
fn once_all_have_met_nobody_listens_any_more() {
    let listeners = listeners(2, "127.0.0.1");
    let addresses = addresses(&listeners);
    let _job = all(listeners, |listener| listener.connect(&addresses, TIMEOUT));
    for address in addresses {
        let knock = std::net::TcpStream::connect(address);
        assert!(knock.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused), "{address}");
    }
}

#[test]
fn a_seat_listens_at_the_address_it_was_given_and_at_no_other_of_the_host() {
    let taken = listeners(1, "127.0.0.1");
    let mut other = taken[0].address();
    other.set_ip("127.0.0.2".parse().expect("an address"));
    let knock = std::net::TcpStream::connect(other);
    assert!(knock.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused), "{other}");
    std::net::TcpStream::connect(taken[0].address()).expect("its own address is open");
}

/// Creates a pair of connected transports.
fn pair() -> (Tcp, Tcp) {
    let listeners = listeners(2, "127.0.0.1");
    let addresses = addresses(&listeners);
    let mut ends = all(listeners, |listener| listener.connect(&addresses, TIMEOUT))
        .into_iter()
        .map(|end| end.expect("meets"));
    (ends.next().expect("two"), ends.next().expect("two"))
}

#[test]
fn whoever_said_goodbye_is_not_reported_and_its_last_words_arrive() {
    const PACKETS: u32 = 200;
    let (mut near, mut far) = pair();
    let leaving = thread::spawn(move || {
        let payload = vec![7; 50_000];
        for tag in 0..PACKETS {
            let header = Header { tag, ..Header::new(PacketKind::Put, 1) }.encode(payload.len());
            far.send(Rank(0), &header, &[IoSlice::new(&payload)]).expect("sends");
        }
        far.send(Rank(0), &Header::new(PacketKind::Goodbye, 0).encode(0), &[]).expect("sends");
        while !far.flush().expect("flushes") {
            far.wait(None).expect("waits");
        }
    });
    let (mut bytes, mut came, mut left) = (Vec::new(), 0, false);
    while !left {
        near.wait(None).expect("waits");
        while near.receive(&mut bytes).expect("receives").is_some() {
            let packet = WirePacket::parse(&bytes).expect("whole");
            left = packet.header.kind == PacketKind::Goodbye;
            came += u32::from(!left);
        }
        // packets that the leaving rank never reads
        near.send(Rank(1), &Header::new(PacketKind::Done, 1).encode(0), &[]).expect("sends");
    }
    leaving.join().expect("no panic");
    for _ in 0..5 {
        near.wait(Some(now() + Duration::from_millis(50))).expect("waits");
        assert_eq!(near.receive(&mut bytes).expect("receives"), None);
    }
    assert_eq!((came, near.gone()), (PACKETS, &[][..]));
}

#[test]
fn a_peer_that_computes_and_reads_nothing_is_not_taken_for_dead() {
    let (mut near, mut far) = pair();
    let payload = vec![1; 1 << 20];
    for _ in 0..32 {
        let header = Header::new(PacketKind::Put, 1).encode(payload.len());
        near.send(Rank(1), &header, &[IoSlice::new(&payload)]).expect("sends");
    }
    let mut bytes = Vec::new();
    let end = now() + Duration::from_millis(2500);
    while now() < end {
        near.wait(Some(end)).expect("waits");
        assert_eq!(near.receive(&mut bytes).expect("receives"), None);
        assert_eq!(near.gone(), [], "it only computes");
    }
    let mut came = 0;
    while came < 32 {
        while far.receive(&mut bytes).expect("receives").is_some() {
            came += 1;
        }
        near.flush().expect("flushes");
    }
}

#[test]
fn an_idle_pair_exchanges_heartbeats_that_nobody_sees() {
    let (mut near, mut far) = pair();
    let mut bytes = Vec::new();
    let end = now() + Duration::from_millis(1200);
    while now() < end {
        for end_of_pair in [&mut near, &mut far] {
            end_of_pair.wait(Some(now() + Duration::from_millis(50))).expect("waits");
            assert_eq!(end_of_pair.receive(&mut bytes).expect("receives"), None);
            assert_eq!(end_of_pair.gone(), []);
        }
    }
}
