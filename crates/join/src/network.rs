//! The zenoh session of a class: what it publishes, and what comes from it.
//!
//! Keys: events travel on `unisono/join/CLASS/HOST`; that a host is there says the liveliness token
//! `unisono/joined/CLASS/HOST/RUN`, where RUN is the run of its broker. Rules of zenoh's access control name
//! these.

use crate::sight::Sight;
use anyhow::anyhow;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use unisono_broker::join::JoinPriority;
use unisono_broker::{Nanos, now};
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::{CongestionControl, Priority};
use zenoh::sample::{Locality, Sample, SampleKind};
use zenoh::{Config, Session, Wait};

/// What waits for the receiving thread, at most. While it is full, zenoh waits, and so do those who send.
const MOST_WAITING: usize = 256;

/// Something that came.
pub(crate) enum FromNetwork {
    Envelope {
        at: Nanos,
        bytes: Vec<u8>,
    },
    /// Another host's join is there, or no longer.
    Host {
        name: String,
        run: u64,
        there: bool,
    },
}

pub(crate) struct ClassNetwork {
    class: String,
    host: String,
    session: Session,
    pub(crate) publisher: Publisher<'static>,
    /// The receiving thread's.
    pub(crate) came: Mutex<Receiver<FromNetwork>>,
    /// Kept: dropped, they hear no more.
    _subscribers: [Subscriber<()>; 2],
}

fn priority(of: JoinPriority) -> Priority {
    match of {
        JoinPriority::RealTime => Priority::RealTime,
        JoinPriority::InteractiveHigh => Priority::InteractiveHigh,
        JoinPriority::InteractiveLow => Priority::InteractiveLow,
        JoinPriority::DataHigh => Priority::DataHigh,
        JoinPriority::Data => Priority::Data,
        JoinPriority::DataLow => Priority::DataLow,
        JoinPriority::Background => Priority::Background,
    }
}

fn told(error: zenoh::Error) -> anyhow::Error {
    anyhow!("zenoh: {error}")
}

impl ClassNetwork {
    pub(crate) fn open(sight: &Sight, class: usize, file: Option<&Path>) -> anyhow::Result<Self> {
        let settings = &sight.settings.classes[class];
        let mut config = match file {
            Some(path) => Config::from_file(path).map_err(|error| anyhow!("{}: {error}", path.display()))?,
            None => {
                let mut config = Config::default();
                config.insert_json5("mode", "\"peer\"").map_err(told)?;
                config.insert_json5("scouting/multicast/enabled", "false").map_err(told)?;
                // only what the settings say: zenoh would listen at a port of its own at every address
                config.insert_json5("listen/endpoints", "[]").map_err(told)?;
                config
            }
        };
        for (key, endpoints) in
            [("listen/endpoints", &settings.listen), ("connect/endpoints", &settings.connect)]
        {
            if !endpoints.is_empty() {
                config.insert_json5(key, &serde_json::to_string(endpoints)?).map_err(told)?;
            }
        }
        if file.is_none() && settings.listen.is_empty() && settings.connect.is_empty() {
            anyhow::bail!(
                "the class {} reaches nobody: give --listen or --connect, `listen` or `connect` in the file of --config, or --zenoh-config",
                settings.name
            );
        }
        let session = zenoh::open(config).wait().map_err(told)?;
        let (name, host) = (settings.name.clone(), sight.host.clone());
        let publisher = session
            .declare_publisher(format!("unisono/join/{name}/{host}"))
            .congestion_control(CongestionControl::Block)
            .priority(priority(settings.priority));
        let publisher = publisher.wait().map_err(told)?;
        let (sender, came) = sync_channel(MOST_WAITING);
        let envelopes =
            session.declare_subscriber(format!("unisono/join/{name}/*")).allowed_origin(Locality::Remote);
        let hosts =
            session.liveliness().declare_subscriber(format!("unisono/joined/{name}/*/*")).history(true);
        let to = sender.clone();
        let envelopes = envelopes.callback(move |sample| envelope(&to, &sample)).wait().map_err(told)?;
        let hosts = hosts.callback(move |sample| host_changed(&sender, &sample)).wait().map_err(told)?;
        Ok(Self {
            class: name,
            host,
            session,
            publisher,
            came: Mutex::new(came),
            _subscribers: [envelopes, hosts],
        })
    }

    /// Says that this host is there, with a broker of this run, until the token is dropped.
    pub(crate) fn announce(&self, run: u64) -> anyhow::Result<LivelinessToken> {
        let key = format!("unisono/joined/{}/{}/{run:x}", self.class, self.host);
        self.session.liveliness().declare_token(key).wait().map_err(told)
    }

    pub(crate) fn close(&self) {
        // who has gone is noticed all the same
        let _ = self.session.close().wait();
    }
}

fn envelope(to: &SyncSender<FromNetwork>, sample: &Sample) {
    if sample.kind() == SampleKind::Put {
        let bytes = sample.payload().to_bytes().into_owned();
        // a receiving thread that has ended needs nothing
        let _ = to.send(FromNetwork::Envelope { at: now(), bytes });
    }
}

fn host_changed(to: &SyncSender<FromNetwork>, sample: &Sample) {
    let mut chunks = sample.key_expr().as_str().rsplit('/');
    let (run, name) = (chunks.next().unwrap_or_default(), chunks.next().unwrap_or_default());
    if let Ok(run) = u64::from_str_radix(run, 16) {
        let there = sample.kind() == SampleKind::Put;
        let _ = to.send(FromNetwork::Host { name: name.to_owned(), run, there });
    }
}
