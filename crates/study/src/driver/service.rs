//! The paper's applications between two processes: on one host, or over a link between two network
//! namespaces.
//!
//! ```text
//!   server --- loopback, or: policy (none | kernel | tun | af-xdp), cable with a rate --- client
//! ```
//! The policy rules the server's outgoing link, because the server sends the data. The applications are
//! described in [`workload::service`](crate::workload::service).

use super::http::{self, HttpLoad};
use super::link::backend::{AppliedPolicy, PolicyBackend};
use super::run_host::{MeasuredParty, RunHost, run_in_thread};
use super::stage::{Cable, LinkStage, SENDER};
use super::web::WebLoad;
use super::{Context, Driver, DriverKind, NoResult, RunResult, video};
use crate::child::{self, ChildError, StudyChild};
use crate::workload::service::{
    Application, BrokerAddresses, ServiceCarrier, ServiceMeeting, ServiceScene, Serving,
};
use rustix::io::Errno;
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use unisono_broker::ChannelWait;
use unisono_linux::clock::{self, Nanos};
use unisono_linux::programs::on_path;
use unisono_measure::record::Figure;

pub const SERVICE: DriverKind =
    DriverKind { curve_axes: &["elapsed_s", "after_ms"], ..DriverKind::new::<ServiceDriver>("service") };

/// Expected time for processes to start and to find each other; for the progress display.
const START_TIME: Duration = Duration::from_millis(150);
/// Time to open a conversation: they are opened one after the other, and an attempt that comes too early is
/// repeated after 10 ms.
const OPENING_TIME: Duration = Duration::from_millis(15);
/// Time to open a conversation with a running server, which takes one request or connect; longer if hundreds
/// ask a broker.
const OPENING_TIME_OF_MANY: Duration = Duration::from_millis(2);
/// Time for a late round, and for the processes to end.
const END_TIME: Duration = Duration::from_millis(100);
/// Time from the moment both ends are ready to the start of measuring: they poll every millisecond.
const LEAD: Duration = Duration::from_millis(50);
/// `LEAD` beside a web server, whose clients must fill the link first.
const LEAD_BESIDE_WEB: Duration = Duration::from_millis(400);
/// Time for an end of a conversation to appear and to answer. A busy machine may take seconds to start a
/// program.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for opening all conversations.
const OPENING_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for making a certificate, which usually takes some milliseconds.
const OPENSSL_TIMEOUT: Duration = Duration::from_secs(30);
const PORT: u16 = 5101;
const BROKER_PORT: u16 = 5100;
/// The rule of the measured broker. The two ends come by different sockets, so they are two identities, and a
/// consumer may block another identity's supplier only where a rule allows it.
const EVERYTHING: &str = "[[allow]]\nwho = [\"*\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]\nblock = true\npaths = true\nconnections = 65536\n";
/// The broker accepts 128 programs of one user by default, and a conversation has two.
const MAX_DEFAULT_CLIENTS: u16 = 60;
/// A download that takes this many times its measured seconds is aborted.
const MAX_DOWNLOAD_FACTOR: u32 = 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceDriver {
    application: Application,
    #[serde(rename = "over")]
    carrier: ServiceCarrier,
    /// How the server of null RPC and of requests serves them.
    serving: Serving,
    /// The rate of the link between two namespaces (Mbit/s). `None`: both ends are on this host, over
    /// loopback.
    link_mbit: Option<f64>,
    /// The backend of the link's policy, which gives all traffic but the application's the rest.
    backend: PolicyBackend,
    /// Weight of the application's class in that policy. All other traffic has weight 1.
    weight: u32,
    /// The congestion control of TCP connections. `None`: the host's default.
    congestion: Option<String>,
    message_bytes: usize,
    events_per_s: f64,
    file_mb: f64,
    /// Viewers of the stream, or clients that send requests.
    clients: u16,
    /// Number of times that the server reads the whole file before it answers a request with it.
    passes: u32,
    round_ms: f64,
    /// Whether a sensor reports beside the console.
    sensor: bool,
    /// Whether a web server on hyper answers the requests of wrk.
    http: bool,
    /// How programs of the event channel, and its broker, wait.
    wait: ChannelWait,
    /// Whether the server and the client, and the broker if there is a third processor, have a processor
    /// each.
    pinned: bool,
    /// Whether busy loops run beside the application, one for each processor.
    busy: bool,
    /// Requests in flight at a web server that does not cooperate and sends over the same link.
    web_connections: u32,
}

impl Default for ServiceDriver {
    fn default() -> Self {
        Self {
            application: Application::NullRpc,
            carrier: ServiceCarrier::Tcp,
            serving: Serving::OneThread,
            link_mbit: None,
            backend: PolicyBackend::NoPolicy,
            weight: 9,
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

/// Built on demand, for requests over HTTP.
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
        if self.web_connections > 0 && self.link_mbit.is_none() {
            return Err(NoResult::Failed("a web server needs a link to fill; give link_mbit too".to_owned()));
        }
        if self.http {
            return self.over_http(context, seconds);
        }
        if self.carrier == ServiceCarrier::Tcp
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

    /// Expected time from the start of the processes to the start of measuring; for the progress display.
    fn start(&self) -> Duration {
        let conversations = match self.application {
            Application::Streaming | Application::Requests => self.clients,
            _ => 2,
        };
        let opening = match self.carrier {
            ServiceCarrier::Reply if self.clients > MAX_DEFAULT_CLIENTS => OPENING_TIME_OF_MANY * 3,
            ServiceCarrier::Reply | ServiceCarrier::Tcp => OPENING_TIME_OF_MANY,
            _ => OPENING_TIME,
        };
        START_TIME + opening * u32::from(conversations)
    }

    /// Calls `act` with the link and under the policy of the settings, or without a link on this host.
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

    /// The description of a run that is measured for `seconds` after its ends have met. The addresses of its
    /// parts are filled in later.
    fn scene(&self, seconds: f64, seed: u64, video: Option<PathBuf>) -> ServiceScene {
        let measured = Duration::from_secs_f64(seconds);
        let longest = match self.application {
            Application::Download => measured * MAX_DOWNLOAD_FACTOR,
            _ => measured,
        };
        ServiceScene {
            application: self.application,
            carrier: self.carrier,
            serving: self.serving,
            server: Ipv4Addr::LOCALHOST.into(),
            broker: None,
            port: PORT,
            congestion: self.congestion.clone(),
            from: Nanos::ZERO,
            until: longest.into(),
            meeting: None,
            timeout: ANSWER_TIMEOUT,
            message_bytes: self.message_bytes,
            events_per_s: self.events_per_s,
            file_bytes: (self.file_mb * 1e6) as u64,
            clients: self.clients,
            video,
            passes: self.passes,
            round: Duration::from_secs_f64(self.round_ms / 1e3).into(),
            sensor: self.sensor,
            seed,
            wait: self.wait,
        }
    }

    /// The policy: the application's class has `weight` parts of the link, all other traffic has one part.
    /// Unused bandwidth of one may be borrowed by the other.
    fn policy(&self, bits_per_s: u64) -> String {
        // over UDP each conversation has its own port
        let own = if self.carrier == ServiceCarrier::Udp { self.clients.max(2) } else { 1 };
        let ports = [BROKER_PORT, http::PORT].into_iter().chain((0..own).map(|number| PORT + number));
        let ports: Vec<String> = ports.map(|port| format!("{{ port = {port} }}")).collect();
        format!(
            "rate = \"{}kbit\"\ndefault = \"rest\"\n\n[class.service]\nweight = {}\nmatch = [{}]\n\n[class.rest]\nweight = 1\n",
            bits_per_s / 1000,
            self.weight,
            ports.join(", ")
        )
    }

    /// The broker's addresses: it listens beside the server, as the paper's event channel did.
    fn broker(
        &self,
        host: &RunHost<'_>,
        stage: Option<&LinkStage>,
        certified: Option<&BrokerCertificate>,
    ) -> BrokerAddresses {
        let shared = host.files.path("broker").display().to_string();
        let unix = format!("unix:{shared}");
        let address = stage.map_or(Ipv4Addr::LOCALHOST, |_| SENDER);
        let tcp = format!("tcp:{address}:{BROKER_PORT}");
        if let Some(BrokerCertificate { certificate, .. }) = certified {
            let udp = format!("udp:{address}:{BROKER_PORT}?authority={}", certificate.display());
            let for_server = if stage.is_some() { unix } else { udp.clone() };
            return BrokerAddresses { for_server, for_client: udp };
        }
        match (self.carrier, stage) {
            (ServiceCarrier::ChannelTcp, _) => BrokerAddresses { for_server: tcp.clone(), for_client: tcp },
            (ServiceCarrier::ChannelShm, _) => {
                BrokerAddresses { for_server: shared.clone(), for_client: shared }
            }
            (_, Some(_)) => BrokerAddresses { for_server: unix, for_client: tcp },
            (_, None) => BrokerAddresses { for_server: unix.clone(), for_client: unix },
        }
    }

    fn between(
        &self,
        host: &RunHost<'_>,
        stage: Option<&LinkStage>,
        scene: ServiceScene,
        interrupted: child::Interrupted,
    ) -> Result<RunResult, NoResult> {
        let measured = Duration::from(scene.until.since(scene.from));
        let meeting = host.files.path("meeting");
        let meeting = ServiceMeeting::at(&meeting)
            .map_err(|error| NoResult::Failed(format!("{}: {error}", meeting.display())))?;
        let certified = match self.carrier {
            ServiceCarrier::ChannelUdp => {
                let address = stage.map_or(Ipv4Addr::LOCALHOST, |_| SENDER);
                Some(BrokerCertificate::create(host, address, interrupted)?)
            }
            _ => None,
        };
        let scene = ServiceScene {
            server: stage.map_or(Ipv4Addr::LOCALHOST, |_| SENDER).into(),
            broker: self.carrier.is_channel().then(|| self.broker(host, stage, certified.as_ref())),
            meeting: Some(meeting.clone()),
            ..scene
        };
        // before the broker starts, because its socket is in the directory created here
        let text = serde_json::to_string(&scene).map_err(|error| NoResult::Failed(error.to_string()))?;
        let file = host.files.write("scene.json", &text)?;
        let permissions = host.files.write("permissions.toml", EVERYTHING)?;
        let broker = scene.broker.as_ref().map(|places| {
            let mut command =
                host.unisono(&["events", "serve", "--json", "--insecure", "--wait", self.wait.name()]);
            command.arg("--permissions").arg(&permissions);
            // the part after a question mark is for clients only
            let listened = |place: &str| place.split('?').next().unwrap_or(place).to_owned();
            command.args(["--listen", &listened(&places.for_server)]);
            if places.for_client != places.for_server {
                command.args(["--listen", &listened(&places.for_client)]);
            }
            if let Some(BrokerCertificate { certificate, key }) = &certified {
                command.arg("--certificate").arg(certificate).arg("--key").arg(key);
            }
            if self.clients > MAX_DEFAULT_CLIENTS {
                // both ends of each conversation, and the server's others; one user has half of the places
                command.args(["--clients", &(u32::from(self.clients) * 4 + 16).to_string()]);
            }
            host.start(MeasuredParty::Broker, self.pinned, command)
        });
        let mut broker = broker.transpose()?;
        let process = |end: &str| {
            let mut command = host.unisono(&["workload", "service", "--end", end, "--scene"]);
            command.arg(&file).arg("--result").arg(host.files.path(end));
            command
        };
        let _loops = self.busy.then(|| host.competitors()).transpose()?;
        let server = host.start(MeasuredParty::Sender, self.pinned, process("server"))?;
        let client = || host.start(MeasuredParty::Receiver, self.pinned, process("client"));
        let client = stage.map_or_else(client, |stage| stage.at_the_receiver(client))?;
        let mut ends = [server, client];
        let ended = opened(&meeting, &mut ends, interrupted).and_then(|()| {
            // the web load fills the link only while it is measured, not while conversations are opened
            let web = stage.filter(|_| self.web_connections > 0);
            let lead = if web.is_some() { LEAD_BESIDE_WEB } else { LEAD };
            let load = |stage| WebLoad::start(host, stage, self.web_connections, lead + measured + END_TIME);
            let web = web.map(load).transpose()?;
            let told = meeting.begin_at(Nanos::from(lead).after(clock::now()));
            told.map_err(|error| NoResult::Failed(error.to_string()))?;
            let longest = lead + measured * 2 + ANSWER_TIMEOUT;
            child::wait_all(&mut ends, longest, interrupted)?;
            web.map_or(Ok(Vec::new()), WebLoad::end)
        });
        drop(ends);
        // if the broker failed, that is why its programs failed
        let failed = broker.as_mut().filter(|_| ended.is_err()).and_then(StudyChild::failure);
        drop(broker);
        if let Some(failed) = failed {
            return Err(failed.into());
        }
        let of_web = ended?;
        let mut figures: Vec<Figure> = host.files.read("client")?;
        figures.extend(host.files.read::<Vec<Figure>>("server")?);
        if figures.is_empty() {
            return Err(NoResult::Failed("the client measured nothing".to_owned()));
        }
        figures.extend(of_web);
        Ok(RunResult { figures, ..RunResult::default() })
    }
}

/// A certificate for the broker of one run, which its clients trust.
struct BrokerCertificate {
    certificate: PathBuf,
    key: PathBuf,
}

impl BrokerCertificate {
    /// Lets `openssl` make a certificate for an address.
    fn create(
        host: &RunHost<'_>,
        address: Ipv4Addr,
        interrupted: child::Interrupted,
    ) -> Result<Self, NoResult> {
        let Some(openssl) = on_path("openssl") else {
            return Err(NoResult::Skipped(
                "UDP is encrypted, and openssl, which makes the broker's certificate, is not installed; \
                 Debian: apt-get install openssl"
                    .to_owned(),
            ));
        };
        let made = Self { certificate: host.files.path("broker.crt"), key: host.files.path("broker.key") };
        let mut command = Command::new(openssl);
        command.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split(' '));
        command.args(["-subj", "/CN=unisono study", "-addext", "basicConstraints=critical,CA:FALSE"]);
        command.arg("-addext").arg(format!("subjectAltName=IP:{address}"));
        command.arg("-keyout").arg(&made.key).arg("-out").arg(&made.certificate);
        child::wait_all(&mut [StudyChild::start(command)?], OPENSSL_TIMEOUT, interrupted)?;
        Ok(made)
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

/// Waits until both ends have opened their conversations.
fn opened(
    meeting: &ServiceMeeting,
    ends: &mut [StudyChild],
    interrupted: child::Interrupted,
) -> Result<(), NoResult> {
    let start = Instant::now();
    while !meeting.is_complete() {
        if let Some(signal) = interrupted() {
            return Err(ChildError::Interrupted(signal).into());
        }
        if let Some(failed) = ends.iter_mut().find_map(StudyChild::failure) {
            return Err(failed.into());
        }
        if start.elapsed() > OPENING_TIMEOUT {
            return Err(NoResult::Failed(format!(
                "the ends have not opened their conversations within {OPENING_TIMEOUT:?}; let the machine rest"
            )));
        }
        std::thread::sleep(child::POLL_INTERVAL);
    }
    Ok(())
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
        let over_udp = policy(ServiceCarrier::Udp);
        assert_eq!(over_udp.rules.len(), 5, "three conversations, the broker and the web server");
        assert_eq!(over_udp.rate.bits_per_second(), 100_000_000);
        assert_eq!(policy(ServiceCarrier::Tcp).rules.len(), 3, "all connections have one port");
    }
}
