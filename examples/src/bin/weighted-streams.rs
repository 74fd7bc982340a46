//! A streaming server whose streams share a link by their bit rates: each stream is a socket with a weight.
//!
//! ```sh
//! sudo unisono queue apply examples/policies/streams.toml --dev eth0
//! sudo unisono queue guard &
//! weighted-streams video 10 10.0.0.7:5004 1500 3  10.0.0.8:5004 500 1
//! ```
//! The policy has to permit this user to put sockets into the class. If the class has less bandwidth than all
//! streams need, each stream gets a part by its weight, and a packet for which its socket has no room is
//! lost.
#![forbid(unsafe_code)]

use anyhow::{Context, ensure};
use clap::Parser;
use std::io::Write;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};
use unisono_socket_shares::share_socket;

/// Send streams whose sockets have weights in a class of the link
#[derive(Parser)]
struct Args {
    class: String,
    seconds: f64,
    /// For each stream: ADDRESS:PORT, its bit rate in kbit/s, its weight
    #[arg(required = true)]
    streams: Vec<String>,
}

const PACKET: [u8; 1000] = [0; 1000];

struct Stream<'a> {
    receiver: &'a str,
    socket: UdpSocket,
    packets_per_s: f64,
    sent: u32,
    lost: u32,
}

impl<'a> Stream<'a> {
    fn open(class: &str, receiver: &'a str, kbit: &str, weight: &str) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(receiver).with_context(|| receiver.to_owned())?;
        socket.set_nonblocking(true)?;
        share_socket(&socket, class, weight.parse().context("the weight is no number")?)?;
        let kbit: f64 = kbit.parse().context("the bit rate is no number")?;
        let packets_per_s = kbit * 1000.0 / (8.0 * PACKET.len() as f64);
        Ok(Self { receiver, socket, packets_per_s, sent: 0, lost: 0 })
    }

    fn send_until(&mut self, elapsed: Duration) {
        while f64::from(self.sent + self.lost) < elapsed.as_secs_f64() * self.packets_per_s {
            match self.socket.send(&PACKET) {
                Ok(_) => self.sent += 1,
                Err(_) => self.lost += 1,
            }
        }
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let (words, rest) = args.streams.as_chunks();
    ensure!(rest.is_empty(), "a stream has three words: ADDRESS:PORT KBIT WEIGHT");
    let streams =
        words.iter().map(|[receiver, kbit, weight]| Stream::open(&args.class, receiver, kbit, weight));
    let mut streams = streams.collect::<anyhow::Result<Vec<_>>>()?;
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < args.seconds {
        streams.iter_mut().for_each(|stream| stream.send_until(start.elapsed()));
        thread::sleep(Duration::from_millis(1));
    }
    let mut output = std::io::stdout().lock();
    for stream in streams {
        writeln!(output, "{}: {} packets, {} lost", stream.receiver, stream.sent, stream.lost)?;
    }
    Ok(())
}
