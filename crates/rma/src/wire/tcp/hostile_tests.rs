//! Processes that must not be admitted, and members that send garbage: all over real sockets.

use super::handshake::{CHALLENGE, Connector, LocalIdentity};
use super::tests::{TIMEOUT, addresses, all, listeners, place};
use super::*;
use crate::model::Key;
use crate::wire::packet::{Header, MAX_PAYLOAD};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

const NONCE: [u8; 32] = [5; 32];

fn random(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(bytes)
    .collect()
}

/// Reads all bytes of a connection until its end, whether orderly or by an error.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

/// Begins a handshake as an honest rank. Returns the rank's second message, which any connection may then
/// send.
fn proof(stream: &mut TcpStream, own: LocalIdentity<'_>, wanted: u32) -> Vec<u8> {
    let connector = Connector::new(own, wanted);
    stream.write_all(connector.hello()).expect("sends");
    let mut challenge = [0; CHALLENGE];
    stream.read_exact(&mut challenge).expect("challenged");
    let here = stream.local_addr().expect("bound");
    connector.prove(&challenge, here).expect("both know the key").to_vec()
}

/// Runs `strangers` while rank 0 of two listens; then rank 1 connects, and both are one job.
fn despite(strangers: impl FnOnce(SocketAddr, &Key)) {
    let mut listeners = listeners(2, "127.0.0.1");
    let (addresses, key) = (addresses(&listeners), listeners[0].place().key);
    let last = listeners.pop().expect("two");
    thread::scope(|threads| {
        let first = listeners.pop().expect("two");
        let first = threads.spawn(|| first.connect(&addresses, TIMEOUT));
        strangers(addresses[0], &key);
        let last = last.connect(&addresses, TIMEOUT).expect("the door still opens for rank 1");
        let mut first = first.join().expect("no panic").expect("rank 1 came");
        let mut last = last;
        last.send(Rank(0), &Header::new(PacketKind::Done, 1).encode(0), &[]).expect("sends");
        let mut bytes = Vec::new();
        while first.receive(&mut bytes).expect("receives").is_none() {
            first.wait(None).expect("waits");
        }
        assert_eq!(first.gone(), []);
    });
}

#[test]
fn garbage_at_the_door_is_turned_away_and_learns_nothing() {
    despite(|address, _| {
        for seed in 0..100 {
            let mut stream = TcpStream::connect(address).expect("connects");
            let _ = stream.write_all(&random(seed, 1 + seed as usize * 40));
            assert_eq!(read_to_end(&mut stream), b"", "seed {seed}");
        }
    });
}

#[test]
fn a_handshake_cut_short_anywhere_leaves_the_job_whole() {
    despite(|address, key| {
        let own = LocalIdentity { rank: 1, size: 2, key, nonce: NONCE };
        let hello = *Connector::new(own, 0).hello();
        for cut in [0, 1, 8, 20, 51] {
            let mut stream = TcpStream::connect(address).expect("connects");
            stream.write_all(&hello[..cut]).expect("sends");
        }
        for cut in [0, 1, 19, 50] {
            let mut stream = TcpStream::connect(address).expect("connects");
            let proof = proof(&mut stream, own, 0);
            stream.write_all(&proof[..cut]).expect("sends");
        }
    });
}

#[test]
fn whoever_does_not_know_the_key_is_turned_away() {
    despite(|address, _| {
        let key = Key::from_bytes([9; 16]);
        let hello = *Connector::new(LocalIdentity { rank: 1, size: 2, key: &key, nonce: NONCE }, 0).hello();
        let mut stream = TcpStream::connect(address).expect("connects");
        stream.write_all(&hello).expect("sends");
        let mut challenge = [0; CHALLENGE];
        stream.read_exact(&mut challenge).expect("challenged");
        stream.write_all(&random(1, handshake::PROOF)).expect("sends");
        assert_eq!(read_to_end(&mut stream), b"", "not even a verdict");
    });
}

#[test]
fn a_member_with_another_key_is_told_so() {
    let mut both = listeners(2, "127.0.0.1");
    let addresses = addresses(&both);
    both.truncate(1);
    let other = listeners(2, "127.0.0.1").pop().expect("two");
    thread::scope(|threads| {
        let first = both.pop().expect("one");
        let first = threads.spawn(|| first.connect(&addresses, StdDuration::from_millis(300)));
        let wrong = other.connect(&addresses, TIMEOUT).expect_err("another key").to_string();
        assert!(wrong.contains("does not know the job's key") && wrong.contains("rank 0"), "{wrong}");
        assert!(first.join().expect("no panic").is_err(), "rank 1 never came");
    });
}

#[test]
fn a_replayed_handshake_is_turned_away() {
    let key = Key::random().expect("random");
    let own = LocalIdentity { rank: 1, size: 2, key: &key, nonce: NONCE };
    let record = |until| {
        let here = "127.0.0.1:0".parse().expect("an address");
        let listener = JobListener::bind(place(0, 2, key), here).expect("a free port");
        let address = listener.address();
        let nobody = SocketAddr::new(address.ip(), 1);
        (thread::spawn(move || listener.connect(&[address, nobody], until)), address)
    };
    let (first, address) = record(TIMEOUT);
    let mut stream = TcpStream::connect(address).expect("connects");
    let recorded = proof(&mut stream, own, 0);
    stream.write_all(&recorded).expect("sends");
    let _job = first.join().expect("no panic").expect("the original is let in");

    let (second, address) = record(StdDuration::from_millis(500));
    let mut stream = TcpStream::connect(address).expect("connects");
    let mut bytes = Connector::new(own, 0).hello().to_vec();
    bytes.extend_from_slice(&recorded);
    stream.write_all(&bytes).expect("sends");
    assert_eq!(read_to_end(&mut stream).len(), CHALLENGE, "a challenge, and no verdict");
    assert!(second.join().expect("no panic").is_err(), "nobody was let in");
}

#[test]
fn slow_and_silent_strangers_do_not_keep_members_out() {
    despite(|address, _| {
        let strangers: Vec<TcpStream> = (0..200)
            .map(|index| {
                let mut stream = TcpStream::connect(address).expect("connects");
                if index % 2 == 0 {
                    stream.write_all(b"uni").expect("sends");
                }
                stream
            })
            .collect();
        thread::spawn(move || {
            for mut stream in strangers {
                let _ = stream.write_all(b"s");
                thread::sleep(StdDuration::from_millis(10));
            }
        });
    });
}

#[test]
fn ranks_that_cannot_be_are_told_so() {
    despite(|address, key| {
        for (rank, size, wanted) in [(2, 2, 0), (0, 2, 0), (1, 3, 0), (u32::MAX, 2, 0)] {
            let mut stream = TcpStream::connect(address).expect("connects");
            let connector = Connector::new(LocalIdentity { rank, size, key, nonce: NONCE }, wanted);
            stream.write_all(connector.hello()).expect("sends");
            let mut challenge = [0; CHALLENGE];
            stream.read_exact(&mut challenge).expect("challenged");
            let Ok(proof) = connector.prove(&challenge, address) else { continue };
            stream.write_all(&proof).expect("sends");
            assert_eq!(read_to_end(&mut stream), [handshake::JoinVerdict::Misplaced as u8], "rank {rank}");
        }
    });
}

#[test]
fn a_list_with_addresses_exchanged_names_who_answers() {
    let mut listeners = listeners(3, "127.0.0.1");
    let right = addresses(&listeners);
    let mut wrong = right.clone();
    wrong.swap(0, 1);
    thread::scope(|threads| {
        let last = listeners.pop().expect("three");
        for listener in listeners {
            threads.spawn(|| listener.connect(&right, StdDuration::from_secs(1)));
        }
        let named = last.connect(&wrong, TIMEOUT).expect_err("rank 1 is at the first address").to_string();
        assert!(named.contains("rank 1 of 3 answers there, rank 0 of 3 was wanted"), "{named}");
    });
}

#[test]
fn ones_own_address_listed_for_another_is_noticed() {
    let mut listeners = listeners(2, "127.0.0.1");
    let mut list = addresses(&listeners);
    list.swap(0, 1);
    let wrong = listeners.remove(0).connect(&list, TIMEOUT).expect_err("exchanged").to_string();
    assert!(wrong.contains("listed for rank 1, but rank 0 listens there"), "{wrong}");
}

#[test]
fn a_second_process_with_a_rank_is_told_so_and_may_come_when_the_first_has_ended() {
    let mut listeners = listeners(3, "127.0.0.1");
    let (addresses, key) = (addresses(&listeners), listeners[0].place().key);
    let come = |rank| {
        let mut stream = TcpStream::connect(addresses[0]).expect("connects");
        let proof = proof(&mut stream, LocalIdentity { rank, size: 3, key: &key, nonce: NONCE }, 0);
        stream.write_all(&proof).expect("sends");
        let mut verdict = [0];
        stream.read_exact(&mut verdict).expect("judged");
        (stream, handshake::JoinVerdict::from_code(verdict[0]).expect("a verdict"))
    };
    thread::scope(|threads| {
        let twin =
            JobListener::bind(listeners[1].place().clone(), "127.0.0.1:0".parse().expect("an address"));
        let first = listeners.remove(0);
        let first = threads.spawn(|| first.connect(&addresses, TIMEOUT));
        let (original, welcome) = come(1);
        assert_eq!(welcome, handshake::JoinVerdict::Welcome);
        assert_eq!(come(1).1, handshake::JoinVerdict::Taken);
        let refusal = twin.expect("a free port").connect(&addresses, TIMEOUT).expect_err("taken").to_string();
        assert!(refusal.contains("rank 1 is taken"), "{refusal}");
        drop(original);
        let (_second, welcome) = come(1);
        assert_eq!(welcome, handshake::JoinVerdict::Welcome, "the first has ended");
        let _last = come(2);
        first.join().expect("no panic").expect("meets");
    });
}

/// Runs a job of three whose rank 2 sends `bytes`; returns the reason for which rank 0 then reports it gone.
fn insider(bytes: &[u8]) -> String {
    let mut listeners = listeners(3, "127.0.0.1");
    let (addresses, key) = (addresses(&listeners), listeners[0].place().key);
    listeners.pop();
    let mut mad: Vec<TcpStream> = Vec::new();
    let ends = thread::scope(|threads| {
        let job = threads.spawn(|| all(listeners, |listener| listener.connect(&addresses, TIMEOUT)));
        for wanted in 0..2 {
            let own = LocalIdentity { rank: 2, size: 3, key: &key, nonce: NONCE };
            let mut stream = TcpStream::connect(addresses[wanted as usize]).expect("connects");
            let proof = proof(&mut stream, own, wanted);
            stream.write_all(&proof).expect("sends");
            let mut verdict = [0];
            stream.read_exact(&mut verdict).expect("judged");
            mad.push(stream);
        }
        job.join().expect("no panic")
    });
    let mut ends = ends.into_iter().map(|end| end.expect("meets"));
    let (mut first, mut second) = (ends.next().expect("two"), ends.next().expect("two"));
    mad[0].write_all(bytes).expect("sends");
    let mut packet = Vec::new();
    while first.gone().is_empty() {
        first.wait(None).expect("waits");
        assert_eq!(first.receive(&mut packet).expect("receives"), None, "nothing of it is a packet");
    }
    assert_eq!(first.gone()[0].rank, Rank(2));
    assert_eq!(read_to_end(&mut mad[0]).len() % HEADER, 0, "closed, after heartbeats at most");
    // the job goes on
    second.send(Rank(0), &Header::new(PacketKind::Done, 1).encode(0), &[]).expect("sends");
    while first.receive(&mut packet).expect("receives") != Some(Rank(1)) {
        first.wait(None).expect("waits");
    }
    first.gone()[0].why.clone()
}

#[test]
fn a_members_oversized_packet_closes_its_connection_and_no_other() {
    let header = Header::new(PacketKind::Put, 1).encode(MAX_PAYLOAD + 1);
    let why = insider(&header);
    assert!(why.contains("above the limit"), "{why}");
}

#[test]
fn a_members_nonsense_between_packets_closes_its_connection_and_no_other() {
    let mut zero = [0; HEADER];
    zero[40] = 1;
    let why = insider(&zero);
    assert!(why.contains("no packet"), "{why}");
}
