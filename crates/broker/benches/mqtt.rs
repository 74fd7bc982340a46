//! Messages of QoS 0 from one MQTT client to another one, through this broker and through mosquitto, in
//! turns on one host: `cargo bench -p unisono-broker --bench mqtt [BYTES [MESSAGES [ROUNDS]]]`.
//!
//! The clients are the same for both brokers and implement only the necessary part of MQTT: the writer sends
//! prepared packets, the reader counts bytes. The writer is never more than 800 messages ahead, so that
//! neither broker drops any. Without mosquitto, this broker is measured alone.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unisono_broker::{Broker, Exposure, Limits, Server};
use unisono_events_client::ChannelWait;
use unisono_fairqueue::{ClassSpec, Hierarchy};

/// Messages per write.
const BATCH: usize = 50;
const AHEAD: u64 = 800;

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let mut number = |otherwise| numbers.next().unwrap_or(otherwise);
    let (bytes, messages, rounds) = (number(100), number(100_000), number(7));
    let stop = AtomicBool::new(false);
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let broker = Broker::new(tree.expect("it is sound"), Limits::default());
    let mut server = Server::new(broker, ChannelWait::Sleep).expect("descriptors are left");
    let any = "127.0.0.1:0".parse().expect("an address");
    let ours = server.listen_mqtt(any, Exposure::Loopback).expect("it listens");
    let peer = Peer::start();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&|| stop.load(Ordering::Relaxed)));
        let mut rates = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            let mut order = vec![(0, Some(ours)), (1, peer.as_ref().map(|peer| peer.at))];
            if round % 2 == 1 {
                order.reverse();
            }
            for (which, at) in order {
                if let Some(at) = at {
                    rates[which].push(run(at, bytes, messages));
                }
            }
        }
        for (name, rates) in ["unisono", "mosquitto"].iter().zip(&mut rates) {
            rates.sort_by(f64::total_cmp);
            if let Some(middle) = rates.get(rates.len() / 2) {
                let (least, most) = (rates[0], rates[rates.len() - 1]);
                let n = rates.len();
                eprintln!(
                    "{name:10} {middle:9.0} messages/s of {bytes} bytes, from {least:.0} to {most:.0}, n = {n}"
                );
            }
        }
        stop.store(true, Ordering::Relaxed);
        serving.join().expect("it does not panic").expect("it serves");
    });
}

/// A mosquitto process, killed on drop.
struct Peer {
    child: Child,
    at: SocketAddr,
    /// Removed on drop.
    _directory: tempfile::TempDir,
}

impl Peer {
    fn start() -> Option<Self> {
        let free = TcpListener::bind("127.0.0.1:0").ok()?;
        let at = free.local_addr().ok()?;
        drop(free);
        let directory = tempfile::tempdir().ok()?;
        let file = directory.path().join("mosquitto.conf");
        let options =
            "allow_anonymous true\nset_tcp_nodelay true\nlog_type none\nmax_queued_messages 100000\n";
        std::fs::write(&file, format!("listener {} 127.0.0.1\n{options}", at.port())).ok()?;
        let mut command = Command::new("mosquitto");
        command.arg("-c").arg(file).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            eprintln!("skipped: mosquitto is not installed (Debian: mosquitto)");
            return None;
        };
        let peer = Self { child, at, _directory: directory };
        let start = Instant::now();
        while TcpStream::connect(at).is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "mosquitto does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(at: SocketAddr, name: u8) -> TcpStream {
    let mut socket = TcpStream::connect(at).expect("it listens");
    socket.set_nodelay(true).expect("a connection");
    let packet = [0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 1, name];
    socket.write_all(&packet).expect("it reads");
    let mut answer = [0; 4];
    socket.read_exact(&mut answer).expect("it answers");
    assert_eq!(answer, [0x20, 2, 0, 0]);
    socket
}

/// Returns the messages per second.
fn run(at: SocketAddr, bytes: usize, messages: usize) -> f64 {
    let mut reader = client(at, b'r');
    reader.write_all(&[0x82, 6, 0, 1, 0, 1, b't', 0]).expect("it reads");
    let mut answer = [0; 5];
    reader.read_exact(&mut answer).expect("it answers");
    let mut writer = client(at, b'w');
    let mut packet = vec![0x30];
    let mut length = bytes + 3;
    while length > 0x7F {
        packet.push((length & 0x7F) as u8 | 0x80);
        length >>= 7;
    }
    packet.push(length as u8);
    packet.extend([0, 1, b't']);
    packet.resize(packet.len() + bytes, b'x');
    let (size, batch) = (packet.len() as u64, packet.repeat(BATCH));
    let heard = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 1 << 20];
            while heard.load(Ordering::Relaxed) < size * messages as u64 {
                let count = reader.read(&mut buffer).expect("it goes on");
                assert!(count > 0, "the broker ended the connection");
                heard.fetch_add(count as u64, Ordering::Relaxed);
            }
        });
        for sent in (0..messages).step_by(BATCH) {
            while sent as u64 - (heard.load(Ordering::Relaxed) / size).min(sent as u64) > AHEAD {
                std::thread::yield_now();
            }
            writer.write_all(&batch).expect("it reads");
        }
    });
    messages as f64 / start.elapsed().as_secs_f64()
}
