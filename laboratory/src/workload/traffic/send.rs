//! The sending end: one process for each source.

use super::{Scene, TrafficSource};
use crate::workload::stamp::{STAMP, stamp};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use unisono_events_client::{Client, Destination, NO_DEADLINE, PathHandle};
use unisono_linux::clock;
use unisono_linux::timer;
use unisono_workload::Error;
use unisono_workload::conversation::socket::connect;
use unisono_workload::retry::retry;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentCount {
    /// The number of messages that were due in the measured time.
    pub messages: u64,
}

/// The number of bytes written to a socket at a time.
const CHUNK: usize = 32 << 10;
/// The number of bytes passed to the broker at a time: together with the length field they are four segments,
/// so that a message takes half a millisecond at 100 Mbit/s.
const BROKER_CHUNK: usize = 4 * 1448 - 4;
/// The maximum delay of a timer: a message that is sent later than this after it was due counts from its due
/// time.
const MAX_TIMER_DELAY: clock::Duration = clock::Duration::from_millis(1);
/// The timeout for the receiver to appear.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends as source `number` of the scene until the scene's end. The threads that it starts end with the
/// process.
pub fn send(scene: &Scene, number: usize) -> Result<SentCount, Error> {
    let source = scene.sources.get(number);
    let source = source.ok_or_else(|| Error::Options(format!("there is no source {number}")))?;
    let (failed, failures) = mpsc::channel();
    let sent = Arc::new(AtomicU64::new(0));
    for _ in 0..source.flows {
        let (scene, source, failed) = (scene.clone(), source.clone(), failed.clone());
        std::thread::spawn(move || failed.send(bulk(&scene, &source)));
    }
    if source.messages_per_s > 0.0 {
        let (scene, source, sent) = (scene.clone(), source.clone(), Arc::clone(&sent));
        let seed = u64::try_from(number).unwrap_or_default() ^ scene.from.as_nanos();
        std::thread::spawn(move || failed.send(messages(&scene, &source, seed, &sent)));
    }
    loop {
        let left = scene.until + clock::Duration::from_millis(10) - clock::now();
        match failures.recv_timeout(left.into()) {
            Ok(Err(error)) => return Err(error),
            Ok(Ok(())) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => break,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                timer::sleep_until(scene.until);
                break;
            }
        }
    }
    Ok(SentCount { messages: sent.load(Ordering::Relaxed) })
}

fn failed(what: &str, source: &TrafficSource, error: impl std::fmt::Display) -> Error {
    Error::Exchange(format!("class {}: {what}: {error}", source.class))
}

fn bulk(scene: &Scene, source: &TrafficSource) -> Result<(), Error> {
    match &scene.broker {
        Some(_) if source.cooperates => bulk_by_broker(scene, source),
        _ => bulk_by_socket(scene, source),
    }
}

fn bulk_by_socket(scene: &Scene, source: &TrafficSource) -> Result<(), Error> {
    let to = source.receiver(scene);
    let congestion = scene.congestion.as_deref();
    let mut stream = retry(CONNECT_TIMEOUT, || connect(to, congestion))
        .map_err(|error| failed("connect", source, error))?;
    let chunk = vec![0; CHUNK];
    while clock::now() < scene.until {
        stream.write_all(&chunk).map_err(|error| failed("send", source, error))?;
    }
    Ok(())
}

fn channel(
    scene: &Scene,
    source: &TrafficSource,
    destination: &Destination,
) -> Result<(Client, PathHandle), Error> {
    let path = scene.broker.as_deref().unwrap_or(std::path::Path::new("broker"));
    let mut client = retry(CONNECT_TIMEOUT, || Client::connect_unix(path))
        .map_err(|error| failed("broker", source, error))?;
    let channel =
        client.open(&source.class, destination.clone()).map_err(|error| failed("broker", source, error))?;
    Ok((client, channel))
}

fn bulk_by_broker(scene: &Scene, source: &TrafficSource) -> Result<(), Error> {
    let destination =
        Destination { congestion: scene.congestion.clone(), ..Destination::tcp(source.receiver(scene)) };
    // waits for the receiver, because the broker connects at once and the receiver must listen by then
    drop(
        retry(CONNECT_TIMEOUT, || TcpStream::connect(source.receiver(scene)))
            .map_err(|error| failed("connect", source, error))?,
    );
    let (mut client, channel) = channel(scene, source, &destination)?;
    let chunk = vec![0; BROKER_CHUNK];
    while clock::now() < scene.until {
        client.send(channel, &chunk, NO_DEADLINE).map_err(|error| failed("send", source, error))?;
    }
    Ok(())
}

/// The transport of a message.
enum SendPath {
    Socket(UdpSocket),
    Broker(Box<Client>, PathHandle),
}

fn messages(scene: &Scene, source: &TrafficSource, seed: u64, sent: &AtomicU64) -> Result<(), Error> {
    let to = source.receiver(scene);
    let mut way = match &scene.broker {
        Some(_) if source.cooperates => {
            let (client, channel) = channel(scene, source, &Destination::udp(to))?;
            SendPath::Broker(Box::new(client), channel)
        }
        _ => SendPath::Socket(connected(to).map_err(|error| failed("socket", source, error))?),
    };
    let deadline = source.deadline_ms.map(|ms| clock::Duration::from(Duration::from_secs_f64(ms / 1e3)));
    let period = 1e9 / source.messages_per_s;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut message = vec![0; source.message_bytes.max(STAMP)];
    let mut next = clock::now().as_nanos() as f64;
    for number in 0.. {
        // the interval is a period on average, but varies, so that the source is never in step with another
        // periodic source
        next += period * random.random_range(0.5..1.5);
        let due = clock::Instant::from_nanos(next as u64);
        timer::sleep_until(due);
        let now = clock::now();
        // a message that is sent too late counts from its due time, because the time that it waited at the
        // sender is delay, too
        let sent_at = if now - due > MAX_TIMER_DELAY { due } else { now };
        if sent_at >= scene.from && sent_at < scene.until {
            sent.fetch_add(1, Ordering::Relaxed);
        }
        if now >= scene.until {
            if due >= scene.until {
                break;
            }
            continue; // the message counts as due, but will never arrive
        }
        stamp(&mut message, number, sent_at);
        // the source does not wait: a message for which there is no room is dropped, and is missing at the
        // receiver
        match &mut way {
            SendPath::Socket(socket) => drop(socket.send(&message)),
            SendPath::Broker(client, channel) => {
                let deadline = deadline.map_or(NO_DEADLINE, |deadline| sent_at + deadline);
                client
                    .try_send(*channel, &message, deadline)
                    .map_err(|error| failed("send", source, error))?;
            }
        }
    }
    Ok(())
}

fn connected(to: SocketAddr) -> std::io::Result<UdpSocket> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
