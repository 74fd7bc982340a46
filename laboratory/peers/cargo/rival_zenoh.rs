//! The ends for zenoh, as peers on loopback without a router and without discovery: the publisher listens,
//! and the subscribers connect. A publisher waits for a slow subscriber.

mod rival;

use rival::{Failed, Rival, STAMP, stamp};
use std::time::{Duration, Instant};
use zenoh::handlers::FifoChannelHandler;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;
use zenoh::{Config, Session, Wait};

const TOPIC: &str = "unisono/rival";
/// The other end must appear within this time.
const TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

struct Zenoh;

fn session(settings: &[(&str, String)]) -> Result<Session, Failed> {
    let mut config = Config::default();
    let fixed = [("mode", "\"peer\"".to_owned()), ("scouting/multicast/enabled", "false".to_owned())];
    for (name, value) in fixed.iter().chain(settings) {
        config.insert_json5(name, value).map_err(|error| error.to_string())?;
    }
    Ok(zenoh::open(config).wait().map_err(|error| error.to_string())?)
}

impl Rival for Zenoh {
    type Publisher = (Publisher<'static>, Session);
    type Subscriber = (Subscriber<FifoChannelHandler<Sample>>, Session);

    fn publisher(address: &str, _: usize) -> Result<Self::Publisher, Failed> {
        let session = session(&[("listen/endpoints", format!("[\"{address}\"]"))])?;
        let publisher =
            session.declare_publisher(TOPIC).congestion_control(CongestionControl::Block).express(true);
        let publisher = publisher.wait().map_err(|error| error.to_string())?;
        Ok((publisher, session))
    }

    fn subscriber(address: &str, _: usize) -> Result<Self::Subscriber, Failed> {
        let until = Instant::now() + TIMEOUT;
        let session = loop {
            match session(&[
                ("listen/endpoints", "[]".to_owned()),
                ("connect/endpoints", format!("[\"{address}\"]")),
                ("connect/timeout_ms", "5000".to_owned()),
            ]) {
                Ok(session) => break session,
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => std::thread::sleep(POLL_INTERVAL),
            }
        };
        let subscriber = session.declare_subscriber(TOPIC).wait().map_err(|error| error.to_string())?;
        Ok((subscriber, session))
    }

    fn publish((publisher, _): &mut Self::Publisher, event: &[u8]) -> Result<(), Failed> {
        Ok(publisher.put(event).wait().map_err(|error| error.to_string())?)
    }

    fn receive((subscriber, _): &mut Self::Subscriber) -> Result<Option<(usize, [u8; STAMP])>, Failed> {
        let sample = subscriber.recv_timeout(POLL_INTERVAL).map_err(|error| error.to_string())?;
        Ok(sample.map(|sample| {
            let event = sample.payload().to_bytes();
            (event.len(), stamp(&event))
        }))
    }

    fn close((_, session): Self::Publisher) -> Result<(), Failed> {
        Ok(session.close().wait().map_err(|error| error.to_string())?)
    }
}

fn main() -> std::process::ExitCode {
    rival::run::<Zenoh>()
}
