//! The receiving end: counts the arrivals of each class.

use super::{Scene, TrafficSource};
use crate::workload::stamp::stamped;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as StdDuration;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::tcp::segments_received;
use unisono_linux::timer;
use unisono_measure::Histogram;
use unisono_measure::record::Distribution;
use unisono_workload::Error;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceReceived {
    /// The number of bytes of connections, without headers, that arrived in the measured time.
    pub bulk_bytes: u64,
    /// The number of segments of connections that the link carried in the measured time, including duplicates
    /// and segments out of order.
    #[serde(default)]
    pub segments: u64,
    /// The number of messages that were sent in the measured time and arrived.
    pub messages: u64,
    pub message_bytes: u64,
    /// The number of these messages that arrived after their deadline.
    pub late: u64,
    /// The time from sending to arrival.
    pub delay_us: Option<Distribution>,
}

/// The time after the end of measuring in which messages that were sent before may still arrive.
const DRAIN_TIME: Duration = Duration::from_millis(300);

#[derive(Debug, Default)]
struct ReceivedCount {
    bulk_bytes: AtomicU64,
    connections: Mutex<Vec<TcpStream>>,
    messages: Mutex<MessageTimes>,
}

impl ReceivedCount {
    /// Returns the number of segments received on all connections so far. A closed connection keeps its
    /// count.
    fn segments(&self) -> u64 {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.iter().filter_map(|stream| segments_received(stream).ok()).map(u64::from).sum()
    }
}

#[derive(Debug, Default)]
struct MessageTimes {
    number: u64,
    bytes: u64,
    late: u64,
    delay: Histogram,
}

/// Receives until the end of the scene. The threads that it starts end with the process.
pub fn receive(scene: &Scene) -> Result<Vec<SourceReceived>, Error> {
    let mut counts = Vec::new();
    for source in &scene.sources {
        let count = Arc::new(ReceivedCount::default());
        listen(scene, source, &count)?;
        counts.push(count);
    }
    let segments = |at: Instant| -> Vec<u64> {
        timer::sleep_until(at);
        counts.iter().map(|count| count.segments()).collect()
    };
    let (before, after) = (segments(scene.from), segments(scene.until));
    timer::sleep_until(scene.until + DRAIN_TIME);
    let received = counts.iter().zip(before.iter().zip(after)).map(|(count, (before, after))| {
        let messages = count.messages.lock().unwrap_or_else(PoisonError::into_inner);
        SourceReceived {
            bulk_bytes: count.bulk_bytes.load(Ordering::Relaxed),
            segments: after.saturating_sub(*before),
            messages: messages.number,
            message_bytes: messages.bytes,
            late: messages.late,
            delay_us: messages.delay.distribution(1e3),
        }
    });
    Ok(received.collect())
}

fn listen(scene: &Scene, source: &TrafficSource, count: &Arc<ReceivedCount>) -> Result<(), Error> {
    let failed = |what: &str, error: std::io::Error| {
        Error::Exchange(format!("cannot listen at {what} port {}: {error}", source.port))
    };
    let any: std::net::IpAddr =
        if scene.receiver.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let address = SocketAddr::new(any, source.port);
    let listener = TcpListener::bind(address).map_err(|error| failed("tcp", error))?;
    let socket = UdpSocket::bind(address).map_err(|error| failed("udp", error))?;
    let (from, until) = (scene.from, scene.until);
    let counts = Arc::clone(count);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Ok(stream) = stream.try_clone() {
                counts.connections.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
            }
            let counts = Arc::clone(&counts);
            std::thread::spawn(move || read(stream, from, until, &counts.bulk_bytes));
        }
    });
    let counts = Arc::clone(count);
    let deadline = source.deadline_ms.map_or(Duration::MAX, |ms| StdDuration::from_secs_f64(ms / 1e3).into());
    std::thread::spawn(move || take(&socket, from, until, deadline, &counts.messages));
    Ok(())
}

fn read(mut stream: TcpStream, from: Instant, until: Instant, bytes: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = stream.read(&mut buffer) {
        let now = clock::now();
        if count == 0 {
            return;
        }
        if (from..until).contains(&now) {
            bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}

fn take(
    socket: &UdpSocket,
    from: Instant,
    until: Instant,
    deadline: Duration,
    messages: &Mutex<MessageTimes>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length) = socket.recv(&mut buffer) {
        let now = clock::now();
        let Some((_, sent)) = stamped(&buffer[..length]) else { continue };
        if (from..until).contains(&sent) {
            let delay = now - sent;
            let mut messages = messages.lock().unwrap_or_else(PoisonError::into_inner);
            messages.number += 1;
            messages.bytes += length as u64;
            messages.late += u64::from(delay > deadline);
            messages.delay.record(delay.into());
        }
    }
}
