//! One end of a stream of events over some middleware, with the same arguments, semantics and result as
//! `peers/rival.h`.
//!
//! ```text
//!   program publish|subscribe|stopped ADDRESS BYTES EVENTS_PER_S FROM UNTIL RESULT
//! ```
//! FROM and UNTIL are times of the monotonic clock (ns). With 0 events per second, events are sent as fast as
//! the middleware accepts them. An event begins with its number and the time when it was sent.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::process::ExitCode;
use std::{fmt::Write as _, fs};

pub type Failed = Box<dyn std::error::Error>;

/// The number of bytes of the stamp at the start of an event: its number and its send time.
pub const STAMP: usize = 16;
const MAX_DELAYS: usize = 20_000;
const USAGE: &str = "usage: publish|subscribe|stopped ADDRESS BYTES EVENTS_PER_S FROM UNTIL RESULT";

/// The operations that a middleware must provide.
pub trait Rival {
    type Publisher;
    type Subscriber;

    fn publisher(address: &str, bytes: usize) -> Result<Self::Publisher, Failed>;

    fn subscriber(address: &str, bytes: usize) -> Result<Self::Subscriber, Failed>;

    fn publish(publisher: &mut Self::Publisher, event: &[u8]) -> Result<(), Failed>;

    /// Waits at most some milliseconds for an event. Returns its length and its stamp.
    fn receive(subscriber: &mut Self::Subscriber) -> Result<Option<(usize, [u8; STAMP])>, Failed>;

    /// Waits until all published events have left.
    fn close(publisher: Self::Publisher) -> Result<(), Failed>;
}

pub fn run<R: Rival>() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(end) = PeerEnd::read(&words) else {
        eprintln!("{USAGE}; an event has at least {STAMP} bytes");
        return ExitCode::from(2);
    };
    let done = if words[0] == "publish" { end.supply::<R>() } else { end.consume::<R>() };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", end.address);
            ExitCode::FAILURE
        }
    }
}

struct PeerEnd {
    address: String,
    bytes: usize,
    events_per_s: f64,
    from: u64,
    until: u64,
    result: String,
}

impl PeerEnd {
    fn read(words: &[String]) -> Option<Self> {
        let [role, address, bytes, events_per_s, from, until, result] = words else { return None };
        let end = Self {
            address: address.clone(),
            bytes: bytes.parse().ok()?,
            events_per_s: events_per_s.parse().ok()?,
            from: from.parse().ok()?,
            until: until.parse().ok()?,
            result: result.clone(),
        };
        let is_role = ["publish", "subscribe", "stopped"].contains(&role.as_str());
        (is_role && end.bytes >= STAMP).then_some(end)
    }

    fn supply<R: Rival>(&self) -> Result<(), Failed> {
        let mut publisher = R::publisher(&self.address, self.bytes)?;
        let mut event = vec![0; self.bytes];
        sleep_until(self.from);
        for number in 0_u64.. {
            if self.events_per_s > 0.0 {
                let due = self.from + (number as f64 * 1e9 / self.events_per_s) as u64;
                if due >= self.until {
                    break;
                }
                sleep_until(due);
            }
            let sent = now();
            if sent >= self.until {
                break;
            }
            event[..8].copy_from_slice(&number.to_le_bytes());
            event[8..STAMP].copy_from_slice(&sent.to_le_bytes());
            R::publish(&mut publisher, &event)?;
        }
        R::close(publisher)
    }

    fn consume<R: Rival>(&self) -> Result<(), Failed> {
        let mut subscriber = R::subscriber(&self.address, self.bytes)?;
        let (mut events, mut wrong, mut delays) = (0_u64, 0_u64, Vec::new());
        while now() < self.until {
            let Some((length, stamp)) = R::receive(&mut subscriber)? else { continue };
            let here = now();
            let sent = u64::from_le_bytes(std::array::from_fn(|at| stamp[8 + at]));
            if sent < self.from || here > self.until {
                continue;
            }
            if delays.len() < MAX_DELAYS {
                delays.push(here - sent);
            }
            events += 1;
            wrong += u64::from(length != self.bytes);
        }
        let mut text = format!("{{\"events\": {events}, \"wrong_length\": {wrong}, \"delays_ns\": [");
        for (at, delay) in delays.iter().enumerate() {
            write!(text, "{}{delay}", if at == 0 { "" } else { "," })?;
        }
        text.push_str("]}\n");
        Ok(fs::write(&self.result, text)?)
    }
}

/// Returns the stamp of an event: its first bytes.
pub fn stamp(event: &[u8]) -> [u8; STAMP] {
    event.first_chunk().copied().unwrap_or([0; STAMP])
}

pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn sleep_until(at: u64) {
    let time = Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as i64 };
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &time).is_err() {}
}
