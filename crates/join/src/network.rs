//! The zenoh session of a class: its publications and subscriptions.
//!
//! Keys: events travel on `unisono/join/CLASS/HOST`. The liveliness token
//! `unisono/joined/CLASS/HOST/RUN/SESSION` announces a host; RUN is the run of its broker and SESSION zenoh's
//! number of the join's session, because a host may have several joins. Rules of zenoh's access control refer
//! to these keys.

use crate::state::{JoinExposure, JoinState};
use anyhow::anyhow;
use std::path::Path;
use std::sync::Arc;
use unisono_broker::join::{ArrivalQueue, JoinPriority, JoinProof, JoinedHost, check_join_exposure};
use unisono_events_client::now;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::{CongestionControl, Priority};
use zenoh::sample::{Locality, Sample, SampleKind};
use zenoh::{Config, Session, Wait};

pub(crate) struct ClassNetwork {
    class: String,
    host: String,
    session: Session,
    pub(crate) publisher: Publisher<'static>,
    /// Holds the subscribers, because a dropped subscriber receives nothing.
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

/// Returns the value of a configuration key, or `None` if the key has none.
fn value(config: &Config, key: &str) -> Option<serde_json::Value> {
    let text = config.get_json(key).ok()?;
    serde_json::from_str(&text).ok().filter(|value: &serde_json::Value| !value.is_null())
}

/// Returns the endpoints at which a session of this configuration listens.
fn listening(config: &Config) -> Vec<String> {
    let mode = value(config, "mode").and_then(|mode| mode.as_str().map(str::to_owned));
    let mode = mode.unwrap_or_else(|| "peer".to_owned());
    let endpoints = match value(config, "listen/endpoints") {
        // each mode may have endpoints of its own
        Some(serde_json::Value::Object(of_modes)) => of_modes.get(&mode).cloned(),
        other => other,
    };
    let endpoints = match endpoints {
        Some(serde_json::Value::Array(endpoints)) => endpoints,
        Some(endpoint) => vec![endpoint],
        None if mode == "client" => Vec::new(),
        // the default of zenoh
        None => vec!["tcp/[::]:0".into()],
    };
    let text = |endpoint: serde_json::Value| match endpoint {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    endpoints.into_iter().map(text).collect()
}

/// Returns whether a session of this configuration requires a certificate or a password from other hosts.
fn proof(config: &Config) -> JoinProof {
    let certificates = value(config, "transport/link/tls/enable_mtls") == Some(true.into());
    let passwords = value(config, "transport/auth/usrpwd/dictionary_file").is_some();
    if certificates || passwords { JoinProof::Asked } else { JoinProof::NotAsked }
}

fn network_error(error: zenoh::Error) -> anyhow::Error {
    anyhow!("zenoh: {error}")
}

impl ClassNetwork {
    pub(crate) fn open(state: &JoinState, class: usize, file: Option<&Path>) -> anyhow::Result<Self> {
        let settings = &state.settings.classes[class];
        let mut config = match file {
            Some(path) => Config::from_file(path).map_err(|error| anyhow!("{}: {error}", path.display()))?,
            None => {
                let mut config = Config::default();
                config.insert_json5("mode", "\"peer\"").map_err(network_error)?;
                config.insert_json5("scouting/multicast/enabled", "false").map_err(network_error)?;
                // removes zenoh's default endpoint, a port at every address, so that the session listens only
                // at the endpoints in the settings
                config.insert_json5("listen/endpoints", "[]").map_err(network_error)?;
                config
            }
        };
        for (key, endpoints) in
            [("listen/endpoints", &settings.listen), ("connect/endpoints", &settings.connect)]
        {
            if !endpoints.is_empty() {
                config.insert_json5(key, &serde_json::to_string(endpoints)?).map_err(network_error)?;
            }
        }
        if file.is_none() && settings.listen.is_empty() && settings.connect.is_empty() {
            anyhow::bail!(
                "the class {} reaches nobody: give --listen or --connect, `listen` or `connect` in the file of --config, or --zenoh-config",
                settings.name
            );
        }
        if state.exposure == JoinExposure::Protected {
            check_join_exposure(listening(&config).iter().map(String::as_str), proof(&config))?;
        }
        let session = zenoh::open(config).wait().map_err(network_error)?;
        let (name, host) = (settings.name.clone(), state.host.clone());
        let publisher = session
            .declare_publisher(format!("unisono/join/{name}/{host}"))
            .congestion_control(CongestionControl::Block)
            .priority(priority(settings.priority));
        let publisher = publisher.wait().map_err(network_error)?;
        let envelopes =
            session.declare_subscriber(format!("unisono/join/{name}/*")).allowed_origin(Locality::Remote);
        let hosts =
            session.liveliness().declare_subscriber(format!("unisono/joined/{name}/*/*/*")).history(true);
        let to = Arc::clone(&state.arrivals[class]);
        let envelopes = envelopes.callback(move |sample| envelope(&to, &sample)).wait().map_err(network_error)?;
        let to = Arc::clone(&state.arrivals[class]);
        let hosts = hosts.callback(move |sample| host_changed(&to, &sample)).wait().map_err(network_error)?;
        Ok(Self { class: name, host, session, publisher, _subscribers: [envelopes, hosts] })
    }

    /// Announces this host and the run of its broker to the other hosts until the token is dropped.
    pub(crate) fn announce(&self, run: u64) -> anyhow::Result<LivelinessToken> {
        let key = format!("unisono/joined/{}/{}/{run:x}/{}", self.class, self.host, self.session.zid());
        self.session.liveliness().declare_token(key).wait().map_err(network_error)
    }

    pub(crate) fn close(&self) {
        // the other hosts notice the end even if closing fails
        let _ = self.session.close().wait();
    }
}

fn envelope(to: &ArrivalQueue, sample: &Sample) {
    if sample.kind() == SampleKind::Put {
        to.push(now(), sample.payload().to_bytes().into_owned());
    }
}

fn host_changed(to: &ArrivalQueue, sample: &Sample) {
    let mut chunks = sample.key_expr().as_str().rsplit('/');
    let [session, run, name] = std::array::from_fn(|_| chunks.next().unwrap_or_default());
    if let Ok(run) = u64::from_str_radix(run, 16) {
        let (name, session) = (name.to_owned(), session.to_owned());
        to.push_host(JoinedHost { name, run, session }, sample.kind() == SampleKind::Put);
    }
}
