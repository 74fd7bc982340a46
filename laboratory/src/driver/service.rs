//! Runs the paper's applications between two processes: on one host, or over a link between two network
//! namespaces.
//!
//! ```text
//!   server --- loopback, or: policy (none | kernel | tun | af-xdp), cable with a rate --- client
//! ```
//! The policy applies to the server's outgoing link, because the server sends the data. The applications are
//! described in [`workload::service`](crate::workload::service).

use super::http::{self, HttpLoad};
use super::link::backend::{AppliedPolicy, PolicyBackend, start_guard};
use super::stage::{Cable, LinkStage, SENDER};
use super::video;
use super::web::WebLoad;
use crate::workload::service::{Application, CLASS, ServiceScene};
use rustix::io::Errno;
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;
use unisono_events_client::ChannelWait;
use unisono_linux::clock::Instant;
use unisono_study::child;
use unisono_study::driver::conversation::{
    ANSWER_TIMEOUT, BROKER_PORT, ConversationRun, END_TIME, LEAD, MAX_DEFAULT_CLIENTS, PORT, START_TIME,
    ServerPlace,
};
use unisono_study::driver::run_host::{RunHost, run_in_thread};
use unisono_study::driver::{Context, Driver, DriverKind, NoResult, RunResult};
use unisono_workload::conversation::{ConversationCarrier, ConversationScene, Serving};

pub const SERVICE: DriverKind =
    DriverKind::new::<ServiceDriver>("service").with_curve_axes(&["elapsed_s", "after_ms"]);

/// The time to open a conversation. Conversations are opened one after the other, and an attempt that comes
/// too early is repeated after 10 ms.
const OPENING_TIME: Duration = Duration::from_millis(15);
/// The time to open a conversation with a running server: one request or connect. It takes longer if hundreds
/// of clients ask a broker.
const OPENING_TIME_OF_MANY: Duration = Duration::from_millis(2);
/// As `LEAD`, in runs with a web server: its clients have to fill the link first.
const LEAD_BESIDE_WEB: Duration = Duration::from_millis(400);
/// A download is aborted when it has taken this many times its measured seconds.
const MAX_DOWNLOAD_FACTOR: u32 = 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceDriver {
    application: Application,
    #[serde(rename = "over")]
    carrier: ConversationCarrier,
    /// How the server of null RPC and of `requests` serves requests.
    serving: Serving,
    /// The rate of the link between two namespaces, in Mbit/s. `None`: both ends are on this host and use
    /// loopback.
    link_mbit: Option<f64>,
    /// The backend of the link's policy. The policy has a class for the application and another one for all
    /// other traffic.
    backend: PolicyBackend,
    /// The weight of the application's class in that policy. All other traffic has weight 1.
    weight: u32,
    /// The bit rate of every second viewer's stream, as a part of the others' bit rate.
    slow_part: f64,
    /// Whether the socket of each stream has a weight of its own in that class, by the stream's bit rate.
    own_weights: bool,
    /// The congestion control of TCP connections. `None`: the host's default.
    congestion: Option<String>,
    message_bytes: usize,
    events_per_s: f64,
    file_mb: f64,
    /// The number of viewers of the stream, or of clients that send requests.
    clients: u16,
    /// The number of times that the server reads the whole file before it answers a request with it.
    passes: u32,
    round_ms: f64,
    /// Whether a sensor reports in addition to the console.
    sensor: bool,
    /// Whether a web server on hyper answers the requests of wrk.
    http: bool,
    /// How programs of the event channel, and its broker, wait.
    wait: ChannelWait,
    /// Whether the server and the client each have a processor of their own, and the broker, too, if there is
    /// a third one.
    pinned: bool,
    /// Whether busy loops run at the same time as the application, one for each processor.
    busy: bool,
    /// The number of requests in flight at a web server that does not cooperate and sends over the same link.
    web_connections: u32,
}

impl Default for ServiceDriver {
    fn default() -> Self {
        Self {
            application: Application::NullRpc,
            carrier: ConversationCarrier::Tcp,
            serving: Serving::OneThread,
            link_mbit: None,
            backend: PolicyBackend::NoPolicy,
            weight: 9,
            slow_part: 1.0,
            own_weights: false,
            congestion: None,
            message_bytes: 1024,
            events_per_s: 500.0,
            file_mb: 35.0,
            clients: 1,
            passes: 0,
            round_ms: 1000.0,
            sensor: false,
            http: false,
            wait: ChannelWait::Sleep,
            pinned: false,
            busy: false,
            web_connections: 0,
        }
    }
}

/// The server for requests over HTTP, built on demand.
const HTTP_SERVER: &str = "web-hyper";

impl Driver for ServiceDriver {
    fn estimated_overhead(&self, seconds: f64) -> Duration {
        let stage = Duration::from_millis(if self.link_mbit.is_some() { 400 } else { 50 });
        if self.http {
            return START_TIME + stage + Duration::from_secs_f64(HttpLoad::seconds(seconds) - seconds);
        }
        let download = match (self.application, self.link_mbit) {
            (Application::Download, Some(mbit)) => Duration::from_secs_f64(self.file_mb * 8.0 / mbit),
            _ => Duration::ZERO,
        };
        self.start() + END_TIME + stage + download.saturating_sub(Duration::from_secs_f64(seconds))
    }

    fn needs_network_namespaces(&self) -> bool {
        self.link_mbit.is_some()
    }

    fn programs(&self) -> Vec<&str> {
        if self.http { vec![HTTP_SERVER] } else { Vec::new() }
    }

    fn chosen_parameter(&self, _: Context) -> Option<(&'static str, Value)> {
        (self.application == Application::Streaming).then(|| ("video", video::source().into()))
    }

    fn run(&self, context: Context, seconds: f64, seed: u64) -> Result<RunResult, NoResult> {
        if self.backend != PolicyBackend::NoPolicy && self.link_mbit.is_none() {
            return Err(NoResult::Failed("a backend rules a link; give link_mbit too".to_owned()));
        }
        if self.own_weights
            && (self.application != Application::Streaming || self.backend != PolicyBackend::Kernel)
        {
            return Err(NoResult::Failed(
                "own_weights needs the application streaming and the backend kernel".to_owned(),
            ));
        }
        if !(0.01..=1.0).contains(&self.slow_part) {
            return Err(NoResult::Failed(format!("slow_part {}; write 0.01 to 1", self.slow_part)));
        }
        if self.web_connections > 0 && self.link_mbit.is_none() {
            return Err(NoResult::Failed("a web server needs a link to fill; give link_mbit too".to_owned()));
        }
        if self.http {
            return self.over_http(context, seconds);
        }
        if self.carrier == ConversationCarrier::Tcp
            && let Some(name) = &self.congestion
        {
            choose_congestion(name)?;
        }
        let video = match self.application {
            Application::Streaming => video::encoded(context)?,
            _ => None,
        };
        let scene = self.scene(seconds, seed, video);
        run_in_thread(context, "service", |host, interrupted| {
            self.staged(host, interrupted, |stage| self.between(host, stage, scene, interrupted))
        })
    }
}

impl ServiceDriver {
    fn over_http(&self, context: Context, seconds: f64) -> Result<RunResult, NoResult> {
        if self.application != Application::Requests || self.web_connections > 0 {
            return Err(NoResult::Failed("http serves requests, and no other web server".to_owned()));
        }
        let server = context.bench.program(HTTP_SERVER)?;
        run_in_thread(context, "http", |host, interrupted| {
            let load = HttpLoad {
                server,
                serving: self.serving,
                clients: self.clients,
                file_bytes: self.message_bytes,
                passes: self.passes,
            };
            self.staged(host, interrupted, |stage| {
                let figures = load.run(host, stage, seconds, interrupted)?;
                Ok(RunResult { figures, ..RunResult::default() })
            })
        })
    }

    /// Returns the expected time from the start of the processes to the start of measuring, for the progress
    /// display.
    fn start(&self) -> Duration {
        let conversations = match self.application {
            Application::Streaming | Application::Requests => self.clients,
            _ => 2,
        };
        let opening = match self.carrier {
            ConversationCarrier::Reply if self.clients > MAX_DEFAULT_CLIENTS => OPENING_TIME_OF_MANY * 3,
            ConversationCarrier::Reply | ConversationCarrier::Tcp => OPENING_TIME_OF_MANY,
            _ => OPENING_TIME,
        };
        START_TIME + opening * u32::from(conversations)
    }

    /// Calls `act` with the link and the policy of the settings, or without a link, on this host.
    fn staged(
        &self,
        host: &RunHost<'_>,
        interrupted: child::Interrupted,
        act: impl FnOnce(Option<&LinkStage>) -> Result<RunResult, NoResult>,
    ) -> Result<RunResult, NoResult> {
        let Some(mbit) = self.link_mbit else { return act(None) };
        let bits_per_s = (mbit * 1e6) as u64;
        let is_link = self.backend == PolicyBackend::NoPolicy;
        let stage = LinkStage::set(if is_link { Cable::Link(bits_per_s) } else { Cable::Free })?;
        let mut applied = AppliedPolicy::apply(host, self.backend, &self.policy(bits_per_s), interrupted)?;
        let result = act(Some(&stage));
        let cleared = applied.clear(interrupted);
        let result = result?;
        cleared?;
        Ok(result)
    }

    /// Makes the description of a run that is measured for `seconds` after its ends have met. The addresses
    /// of its parts and the guard are filled in later.
    fn scene(&self, seconds: f64, seed: u64, video: Option<PathBuf>) -> ServiceScene {
        let measured = Duration::from_secs_f64(seconds);
        let longest = match self.application {
            Application::Download => measured * MAX_DOWNLOAD_FACTOR,
            _ => measured,
        };
        let ends = ConversationScene {
            carrier: self.carrier,
            serving: self.serving,
            server: Ipv4Addr::LOCALHOST.into(),
            broker: None,
            port: PORT,
            congestion: self.congestion.clone(),
            from: Instant::ZERO,
            until: Instant::ZERO + longest.into(),
            rendezvous: None,
            timeout: ANSWER_TIMEOUT,
            conversations: self.application.conversations(self.clients, self.sensor),
            message_bytes: self.message_bytes,
            wait: self.wait,
        };
        ServiceScene {
            application: self.application,
            ends,
            events_per_s: self.events_per_s,
            file_bytes: (self.file_mb * 1e6) as u64,
            clients: self.clients,
            video,
            slow_part: self.slow_part,
            guard: None,
            passes: self.passes,
            round: Duration::from_secs_f64(self.round_ms / 1e3).into(),
            sensor: self.sensor,
            seed,
        }
    }

    /// Returns the policy: the application's class has `weight` parts of the link, and all other traffic has
    /// one part. Each of the two may borrow unused bandwidth of the other.
    fn policy(&self, bits_per_s: u64) -> String {
        // over UDP each conversation has a port of its own
        let own = if self.carrier == ConversationCarrier::Udp { self.clients.max(2) } else { 1 };
        let ports = [BROKER_PORT, http::PORT].into_iter().chain((0..own).map(|number| PORT + number));
        let ports: Vec<String> = ports.map(|port| format!("{{ port = {port} }}")).collect();
        // root may always have sockets in such a class, and `from` has to name a user
        let sockets = if self.own_weights { "sockets = { from = [0] }\n" } else { "" };
        format!(
            "rate = \"{}kbit\"\ndefault = \"rest\"\n\n[class.{CLASS}]\nweight = {}\nmatch = [{}]\n{sockets}\n[class.rest]\nweight = 1\n",
            bits_per_s / 1000,
            self.weight,
            ports.join(", ")
        )
    }

    fn between(
        &self,
        host: &RunHost<'_>,
        stage: Option<&LinkStage>,
        scene: ServiceScene,
        interrupted: child::Interrupted,
    ) -> Result<RunResult, NoResult> {
        let place = stage.map_or(ServerPlace::Here, |_| ServerPlace::Beyond(SENDER));
        let measured = Duration::from(scene.ends.until - scene.ends.from);
        let run = ConversationRun::prepare(host, place, self.pinned, scene.ends.clone(), interrupted)?;
        let socket = self.own_weights.then(|| host.files.path("guard"));
        let _guard = socket.as_deref().map(|socket| start_guard(host, socket, interrupted)).transpose()?;
        let scene = ServiceScene { ends: run.scene.clone(), guard: socket, ..scene };
        let _loops = self.busy.then(|| host.competitors()).transpose()?;
        // the web load fills the link only during the measurement, and not while conversations are opened
        let web = stage.filter(|_| self.web_connections > 0);
        let lead = if web.is_some() { LEAD_BESIDE_WEB } else { LEAD };
        let load = |stage| WebLoad::start(host, stage, self.web_connections, lead + measured + END_TIME);
        let (mut figures, web) = run.execute(
            "service",
            &scene,
            lead,
            |client| stage.map_or_else(client, |stage| stage.at_the_receiver(client)),
            || web.map(load).transpose(),
        )?;
        figures.extend(web.map_or(Ok(Vec::new()), WebLoad::end)?);
        Ok(RunResult { figures, ..RunResult::default() })
    }
}

/// Checks that this user's connections may use a congestion control.
fn choose_congestion(name: &str) -> Result<(), NoResult> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .map_err(|error| NoResult::Failed(format!("no socket: {error}")))?;
    sockopt::set_tcp_congestion(&socket, name).map_err(|error| refused_congestion(name, error))
}

fn refused_congestion(name: &str, error: Errno) -> NoResult {
    match error {
        Errno::PERM => NoResult::Skipped(format!(
            "only root may choose the congestion control {name} here; run it as root, or add {name} to \
             /proc/sys/net/ipv4/tcp_allowed_congestion_control"
        )),
        Errno::NOENT => NoResult::Skipped(format!(
            "this kernel has no congestion control {name}; load it: modprobe tcp_{name}"
        )),
        _ => NoResult::Failed(format!("congestion control {name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_control_that_this_user_cannot_have_skips_a_run() {
        for (error, remedy) in [(Errno::PERM, "run it as root"), (Errno::NOENT, "modprobe tcp_cubic")] {
            match refused_congestion("cubic", error) {
                NoResult::Skipped(said) => assert!(said.contains(remedy), "{said}"),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(refused_congestion("cubic", Errno::INVAL), NoResult::Failed(_)));
        assert!(matches!(choose_congestion("no-such-control"), Err(NoResult::Skipped(_))));
    }

    #[test]
    fn the_policy_gives_every_conversation_the_class_of_the_application() {
        let policy = |over| {
            let driver = ServiceDriver { carrier: over, clients: 3, ..ServiceDriver::default() };
            unisono_fairqueue::Policy::parse(&driver.policy(100_000_000)).expect("it is sound")
        };
        let over_udp = policy(ConversationCarrier::Udp);
        assert_eq!(over_udp.rules.len(), 5, "three conversations, the broker and the web server");
        assert_eq!(over_udp.rate.bits_per_second(), 100_000_000);
        assert_eq!(policy(ConversationCarrier::Tcp).rules.len(), 3, "all connections have one port");
    }

    #[test]
    fn sockets_may_have_weights_in_the_class_of_the_application_if_a_study_asks_for_them() {
        for own_weights in [false, true] {
            let driver = ServiceDriver { own_weights, ..ServiceDriver::default() };
            let policy =
                unisono_fairqueue::Policy::parse(&driver.policy(3_500_000)).expect("the policy is sound");
            let class = policy.hierarchy.find(CLASS).expect("the class is there");
            assert_eq!(policy.sockets(class).is_some(), own_weights);
        }
    }
}
