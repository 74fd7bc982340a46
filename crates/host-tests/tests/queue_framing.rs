//! Tests that the rate of a policy is charged for the bytes that a packet takes on the link, `overhead` and
//! `atm` included.

use crate::queue_shared::{DEVICE, applied, cleared, file, looks, on_a_host, unisono, wait_until_it_looks};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};
use unisono_host_tests::hosts::Hosts;
use unisono_host_tests::processes::words;
use unisono_host_tests::{TestOutcome, host_tests};
use unisono_linux::network_namespace::NetworkNamespace;

/// Returns the frames of 100 bytes that the second host receives per second while the first one sends far
/// more than the policy's rate.
fn frames_per_second(hosts: &Hosts) -> f64 {
    const HEADERS: usize = 14 + 20 + 8;
    let far = NetworkNamespace::named(hosts.name(1)).expect("it is there");
    let begin = Instant::now();
    // the queues let a burst through at the beginning, and packets wait that an earlier policy has charged
    let (counted, until) = (begin + Duration::from_secs(1), begin + Duration::from_secs(3));
    let receiver = thread::spawn(move || {
        far.enter().expect("root may");
        let socket = UdpSocket::bind("10.77.0.2:5001").expect("the address is ours");
        socket.set_nonblocking(true).expect("it is ours");
        let mut frames = 0;
        while Instant::now() < until {
            while socket.recv(&mut [0; 200]).is_ok() {
                frames += u32::from(Instant::now() >= counted);
            }
            thread::sleep(Duration::from_micros(500));
        }
        frames
    });
    let socket = UdpSocket::bind("10.77.0.1:0").expect("the address is ours");
    socket.set_nonblocking(true).expect("it is ours");
    while Instant::now() < until {
        for _ in 0..10 {
            let _ = socket.send_to(&[7; 100 - HEADERS], "10.77.0.2:5001");
        }
        thread::sleep(Duration::from_millis(2));
    }
    f64::from(receiver.join().expect("no panic")) / (until - counted).as_secs_f64()
}

fn packets_are_charged_for_what_the_link_adds() -> TestOutcome {
    let hosts = on_a_host()?;
    for backend in ["kernel", "interposed"] {
        let before = looks();
        // a cell of 53 bytes carries 48, so 118 bytes take 3 cells; a policy after another one changes the
        // bytes that are charged
        for (keys, charged, shown) in [
            ("", 100.0, None),
            ("overhead = 100", 200.0, Some("packets count as on the link: +100 bytes each")),
            (
                "overhead = 18\natm = true",
                159.0,
                Some("packets count as on the link: +18 bytes each, in ATM cells"),
            ),
            ("overhead = -50", 50.0, Some("packets count as on the link: -50 bytes each")),
            ("", 100.0, None),
        ] {
            let policy = format!("rate = \"1mbit\"\n{keys}\n[class.a]\nmatch = [{{ port = 5001 }}]\n");
            applied(&file(&policy), &["--backend", backend])?;
            let ratio = frames_per_second(&hosts) / (1e6 / 8.0 / charged);
            // the lower bound is low, for a busy machine
            assert!((0.8..1.05).contains(&ratio), "{backend}, {keys:?}: {ratio} of the expected frames");
            let table = words(&unisono(&["queue", "show", "--dev", DEVICE, "--once", "--interval", "10ms"]));
            match shown {
                Some(shown) => assert!(table.contains(shown), "{table}"),
                None => assert!(!table.contains("as on the link"), "{table}"),
            }
        }
        cleared(&[]);
        wait_until_it_looks(&before);
    }
    Ok(())
}

/// The kernel counts an overhead once for a packet, and gives a device several segments of TCP as one packet.
fn each_segment_of_tcp_is_charged() -> TestOutcome {
    let hosts = on_a_host()?;
    for backend in ["kernel", "interposed"] {
        applied(&file("rate = \"50mbit\"\noverhead = 100\n[class.a]\n"), &["--backend", backend])?;
        let far = NetworkNamespace::named(hosts.name(1)).expect("it is there");
        let (listens, address) = std::sync::mpsc::channel();
        let receiver = thread::spawn(move || {
            far.enter().expect("root may");
            let listener = TcpListener::bind("10.77.0.2:0").expect("the address is ours");
            listens.send(listener.local_addr().expect("bound")).expect("somebody waits");
            let (mut stream, _) = listener.accept().expect("somebody connects");
            let (begin, mut bytes, mut piece) = (Instant::now(), 0, vec![0; 1 << 16]);
            while begin.elapsed() < Duration::from_secs(1) {
                let _ = stream.read(&mut piece).expect("the sender sends");
            }
            let counted = Instant::now();
            while counted.elapsed() < Duration::from_secs(2) {
                bytes += stream.read(&mut piece).expect("the sender sends");
            }
            bytes as f64 * 8.0 / counted.elapsed().as_secs_f64()
        });
        let mut stream = TcpStream::connect(address.recv().expect("it listens")).expect("it listens");
        while stream.write(&[7; 1 << 16]).is_ok() {}
        let ratio = receiver.join().expect("no panic") / 50e6;
        // 1,448 bytes of 1,614; charged for every second segment, they are 1,448 of 1,564
        assert!((0.6..0.91).contains(&ratio), "{backend}: {ratio} of the link's rate");
        cleared(&[]);
    }
    Ok(())
}

host_tests![needs Queues;
    each_segment_of_tcp_is_charged within 120,
    packets_are_charged_for_what_the_link_adds within 120,
];
