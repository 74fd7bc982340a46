//! One end of a stream of events over the event channel or a plain TCP connection, measured like other
//! middleware (`peers/rival.h` has the same semantics and the same result).
//!
//! ```text
//!   publisher -- paced, or as fast as events are accepted --> subscriber: events, delays
//! ```
//! An event begins with its number and the time when it was sent. Both processes are on one host and share
//! its monotonic clock.

use super::stamp::{STAMP, stamp, stamped};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;
use unisono_events_client::{
    Advertisement, BrokerAddress, ChannelWait, Client, EventDraft, Reception, SubscriptionSpec, TopicHandle,
    WhenFull,
};
use unisono_linux::clock::{self, Instant};
use unisono_linux::timer;
use unisono_workload::Error;
use unisono_workload::conversation::{Conversation, NextMessage, TcpConversation};
use unisono_workload::retry::retry;

/// The transport of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RivalCarrier {
    /// The event channel at the address of a broker.
    Channel,
    /// A connection for each subscriber to a port of this host.
    Tcp,
}

impl RivalCarrier {
    /// All carriers, each with its name and its description on the command line.
    pub const ALL: [(Self, &str, &str); 2] = [
        (Self::Channel, "channel", "The event channel at the address of a broker"),
        (Self::Tcp, "tcp", "A connection for each subscriber"),
    ];
}

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RivalRole {
    Publish,
    Subscribe,
    /// A subscriber that will be stopped; it lets the broker drop events for which there is no room.
    Stopped,
}

impl RivalRole {
    /// All roles, each with its name and its description on the command line.
    pub const ALL: [(Self, &str, &str); 3] = [
        (Self::Publish, "publish", "Publish the stream"),
        (Self::Subscribe, "subscribe", "Receive it"),
        (Self::Stopped, "stopped", "Receive it, be stopped, and let drop what there is no room for"),
    ];
}

/// One end of a run.
#[derive(Clone, Debug)]
pub struct RivalEnd {
    pub carrier: RivalCarrier,
    pub role: RivalRole,
    pub address: String,
    /// The number of bytes of an event, at least 16.
    pub bytes: usize,
    /// Events per second. 0: as fast as they are accepted.
    pub events_per_s: f64,
    /// The start and the end of the measured time, on the monotonic clock.
    pub from: Instant,
    pub until: Instant,
    /// How an end of the event channel waits.
    pub wait: ChannelWait,
}

/// A subscriber's counts of the events that were sent at `from` or later and arrived by `until`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RivalStream {
    pub events: u64,
    /// The number of events with a wrong number of bytes.
    pub wrong_length: u64,
    /// The delays of the first events.
    pub delays_ns: Vec<u64>,
}

/// The maximum number of delays that are recorded.
const MAX_DELAYS: usize = 20_000;
const TOPIC: &str = "rival";
/// The timeout for the other end to appear.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum time between two readings of the clock by a subscriber.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl RivalEnd {
    /// Runs this end. A publisher returns empty counts.
    ///
    /// # Errors
    /// The other end or the broker does not appear, or the communication breaks.
    pub fn run(&self) -> Result<RivalStream, Error> {
        if self.bytes < STAMP {
            return Err(Error::Options(format!("an event of {} bytes; write at least {STAMP}", self.bytes)));
        }
        match self.role {
            RivalRole::Publish => self.publish().map(|()| RivalStream::default()),
            RivalRole::Subscribe | RivalRole::Stopped => self.subscribe(),
        }
        .map_err(|error| Error::Exchange(format!("{}: {error}", self.address)))
    }

    fn publish(&self) -> io::Result<()> {
        let mut outlet: Box<dyn RivalOutlet> = match self.carrier {
            RivalCarrier::Channel => Box::new(ChannelOutlet::open(self)?),
            RivalCarrier::Tcp => Box::new(TcpOutlet::open(self)?),
        };
        let mut event = vec![0; self.bytes];
        timer::sleep_until(self.from);
        for number in 0.. {
            if self.events_per_s > 0.0 {
                let due =
                    self.from + clock::Duration::from_nanos((number as f64 * 1e9 / self.events_per_s) as u64);
                if due >= self.until {
                    break;
                }
                timer::sleep_until(due);
            }
            let sent = clock::now();
            if sent >= self.until {
                break;
            }
            stamp(&mut event, number, sent);
            outlet.publish(&event)?;
        }
        outlet.finish()
    }

    fn subscribe(&self) -> io::Result<RivalStream> {
        let mut stream = RivalStream::default();
        // reads only the stamp and does not copy the event, as the subscribers of the other middleware do
        let mut arrived = |head: &[u8], bytes: usize| {
            let here = clock::now();
            let Some((_, sent)) = stamped(head) else { return };
            if sent < self.from || here > self.until {
                return;
            }
            if stream.delays_ns.len() < MAX_DELAYS {
                stream.delays_ns.push((here - sent).as_nanos());
            }
            stream.events += 1;
            stream.wrong_length += u64::from(bytes != self.bytes);
        };
        match self.carrier {
            RivalCarrier::Channel => {
                let mut client = self.client()?;
                let full = match self.role {
                    RivalRole::Stopped => WhenFull::DropOldest,
                    _ => WhenFull::BlockSupplier,
                };
                let queue_bytes = SubscriptionSpec::default().queue_bytes.max(4 * self.bytes);
                let spec = SubscriptionSpec { full, queue_bytes, ..SubscriptionSpec::new(TOPIC) };
                client.subscribe(&spec).map_err(io::Error::other)?;
                while clock::now() < self.until {
                    if let Some(Reception::Event(event)) =
                        client.receive(Some(POLL_INTERVAL)).map_err(io::Error::other)?
                    {
                        match event.payload.in_place() {
                            Some(bytes) => {
                                let mut head = [0; STAMP];
                                for (to, from) in head.iter_mut().zip(bytes) {
                                    *to = from.load(Ordering::Relaxed);
                                }
                                arrived(&head, bytes.len());
                            }
                            None => {
                                let bytes = event.payload.bytes();
                                arrived(&bytes, bytes.len());
                            }
                        }
                    }
                }
            }
            RivalCarrier::Tcp => {
                let stream = retry(START_TIMEOUT, || TcpStream::connect(&self.address))?;
                let mut publisher = TcpConversation::over(stream)?;
                let mut event = Vec::new();
                while clock::now() < self.until
                    && publisher.receive(&mut event, self.until)? == NextMessage::Message
                {
                    arrived(&event, event.len());
                }
            }
        }
        Ok(stream)
    }

    fn client(&self) -> io::Result<Client> {
        let address: BrokerAddress =
            self.address.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let mut client = retry(START_TIMEOUT, || Client::at(&address)).map_err(io::Error::other)?;
        client.set_wait(self.wait);
        Ok(client)
    }
}

/// The outlet of a publisher's events.
trait RivalOutlet {
    fn publish(&mut self, event: &[u8]) -> io::Result<()>;

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct ChannelOutlet {
    client: Client,
    topic: TopicHandle,
    /// Whether events are buffered until more events follow, so that one system call sends many of them.
    in_batches: bool,
}

impl ChannelOutlet {
    fn open(end: &RivalEnd) -> io::Result<Self> {
        let mut client = end.client()?;
        let topic = client.advertise(&Advertisement::new(TOPIC)).map_err(io::Error::other)?;
        Ok(Self { client, topic, in_batches: end.events_per_s == 0.0 })
    }
}

impl RivalOutlet for ChannelOutlet {
    fn publish(&mut self, event: &[u8]) -> io::Result<()> {
        let event = EventDraft::new(event);
        let published = if self.in_batches {
            self.client.publish_buffered(self.topic, &event)
        } else {
            self.client.publish(self.topic, &event)
        };
        published.map_err(io::Error::other)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.client.flush().map_err(io::Error::other)
    }
}

struct TcpOutlet(Vec<TcpConversation>);

impl TcpOutlet {
    /// Accepts connections until measuring begins.
    fn open(end: &RivalEnd) -> io::Result<Self> {
        let listener = TcpListener::bind(&end.address)?;
        listener.set_nonblocking(true)?;
        let mut subscribers = Vec::new();
        while clock::now() + POLL_INTERVAL.into() <= end.from {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    subscribers.push(TcpConversation::over(stream)?);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self(subscribers))
    }
}

impl RivalOutlet for TcpOutlet {
    fn publish(&mut self, event: &[u8]) -> io::Result<()> {
        self.0.iter_mut().try_for_each(|subscriber| match subscriber.send(event) {
            // a subscriber that has reached the end has closed its connection
            Err(error)
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
            {
                Ok(())
            }
            sent => sent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_of_a_paced_stream_over_tcp_arrives_and_is_timed() {
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let from = clock::now() + clock::Duration::from_millis(300);
        let end = |role| RivalEnd {
            carrier: RivalCarrier::Tcp,
            role,
            address: format!("127.0.0.1:{port}"),
            bytes: 1024,
            events_per_s: 100.0,
            from,
            until: from + clock::Duration::from_millis(500),
            wait: ChannelWait::Sleep,
        };
        let stream = std::thread::scope(|scope| {
            let publisher = scope.spawn(|| end(RivalRole::Publish).run());
            let stream = end(RivalRole::Subscribe).run().expect("it subscribes");
            publisher.join().expect("no panic").expect("it publishes");
            stream
        });
        // the last event may be in transit when the time is over
        assert!((40..=50).contains(&stream.events), "{} events", stream.events);
        assert_eq!((stream.wrong_length, stream.delays_ns.len() as u64), (0, stream.events));
    }

    #[test]
    fn an_event_that_has_no_room_for_its_stamp_is_refused() {
        let end = RivalEnd {
            carrier: RivalCarrier::Tcp,
            role: RivalRole::Publish,
            address: String::new(),
            bytes: 8,
            events_per_s: 0.0,
            from: Instant::ZERO,
            until: Instant::ZERO,
            wait: ChannelWait::Sleep,
        };
        assert!(end.run().expect_err("refused").to_string().contains("8 bytes"));
    }
}
