//! Runs classes that share a link of 100 Mbit/s, with each backend that can enforce a policy.
//!
//! ```text
//!   senders (a process a class) -- policy: none | kernel | tun | af-xdp | middleware -- cable -- receiver
//! ```
//! One run has two network namespaces with a cable, one sender for each class, and one receiver; all of them
//! are removed after the run. The policy is applied by `unisono queue apply`, as a user would do, or by a
//! broker. The kernel and the interposed backend limit the rate themselves. Without a policy, and with the
//! middleware, the cable itself has that rate, first in first out (TBF). A cable without policy and rate is
//! the baseline.

pub(super) mod backend;
mod figures;
mod probe;

use super::stage::{Cable, LinkStage, RECEIVER};
use crate::workload::traffic::{Scene, SentCount, SourceReceived, TrafficSource};
use backend::{AppliedPolicy, PolicyBackend};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::time::Duration;
use unisono_linux::clock;
use unisono_linux::process;
use unisono_study::child::{self, StudyChild};
use unisono_study::driver::run_host::{RunHost, run_in_thread};
use unisono_study::driver::{Context, Driver, DriverKind, NoResult, RunResult};

/// The names of the classes, in the order of the weights.
const CLASS_NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
/// The source that belongs to no class.
const LEGACY: &str = "legacy";
const FIRST_PORT: u16 = 5001;
/// The time in which connections reach their congestion windows before measuring begins.
const WARM_UP: Duration = Duration::from_millis(600);
/// The time for processes to start.
const START_TIME: Duration = Duration::from_millis(150);
/// The middleware's rate as a fraction of the link's rate: bytes above the link's rate would wait in the
/// kernel, beyond the broker's control.
const BROKER_SHARE: f64 = 0.98;

struct TransferPlan {
    backend: PolicyBackend,
    weights: Vec<u32>,
    bits_per_s: u64,
    sources: Vec<TrafficSource>,
    congestion: Option<String>,
    /// Whether only messages are sent, and both ends are in one thread.
    in_one_thread: bool,
}

impl TransferPlan {
    fn new(settings: &LinkDriver) -> Result<Self, NoResult> {
        let weights = settings.weights.clone();
        if weights.is_empty() || weights.len() > CLASS_NAMES.len() || weights.contains(&0) {
            return Err(NoResult::Failed(format!("weights {weights:?}; write 1 to 10 positive numbers")));
        }
        let of = |list: &Option<Vec<u32>>, at: usize, default: u32| {
            list.as_ref().map_or(default, |list| list.get(at).copied().unwrap_or(0))
        };
        let mut sources: Vec<TrafficSource> = (0..weights.len())
            .map(|at| TrafficSource {
                class: CLASS_NAMES[at].to_owned(),
                port: FIRST_PORT + at as u16,
                flows: of(&settings.flows, at, 2),
                messages_per_s: f64::from(of(&settings.messages_per_s, at, 0)),
                message_bytes: settings.message_bytes,
                deadline_ms: settings.deadline_ms,
                cooperates: true,
            })
            .collect();
        if settings.legacy_flows > 0 {
            sources.push(TrafficSource {
                class: LEGACY.to_owned(),
                port: FIRST_PORT + CLASS_NAMES.len() as u16,
                flows: settings.legacy_flows,
                messages_per_s: 0.0,
                message_bytes: 0,
                deadline_ms: None,
                cooperates: false,
            });
        }
        Ok(Self {
            backend: settings.backend,
            weights,
            bits_per_s: (settings.link_mbit * 1e6) as u64,
            sources,
            congestion: settings.congestion.clone(),
            in_one_thread: settings.one_thread,
        })
    }

    /// Returns the policy as a user would write it.
    fn policy(&self) -> String {
        let rate = if self.backend == PolicyBackend::Middleware {
            (self.bits_per_s as f64 * BROKER_SHARE) as u64 / 1000
        } else {
            self.bits_per_s / 1000
        };
        // a class without traffic would lend its share to the others, but this study is not about borrowing
        let others = if self.sources.len() > self.weights.len() {
            "rest"
        } else {
            CLASS_NAMES[self.weights.len() - 1]
        };
        let mut text = format!("rate = \"{rate}kbit\"\ndefault = \"{others}\"\n");
        for ((name, weight), source) in CLASS_NAMES.iter().zip(&self.weights).zip(&self.sources) {
            let port = source.port;
            let _ = write!(text, "\n[class.{name}]\nweight = {weight}\nmatch = [{{ port = {port} }}]\n");
        }
        text
    }
}

pub const LINK: DriverKind = DriverKind::new::<LinkDriver>("link");

#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkDriver {
    backend: PolicyBackend,
    /// The congestion control: `cubic` or `bbr`. `None`: the host's default.
    congestion: Option<String>,
    weights: Vec<u32>,
    /// The number of connections of each class that always have data to send. `None`: 2 for each class.
    flows: Option<Vec<u32>>,
    /// The number of messages per second of each class. `None`: no messages.
    messages_per_s: Option<Vec<u32>>,
    message_bytes: usize,
    /// A message should arrive within this time.
    deadline_ms: Option<f64>,
    /// The number of connections of a program that belongs to no class and does not cooperate.
    legacy_flows: u32,
    link_mbit: f64,
    /// Whether one thread has both ends of single messages, so that no thread must be woken.
    one_thread: bool,
}

impl Default for LinkDriver {
    fn default() -> Self {
        Self {
            backend: PolicyBackend::NoPolicy,
            congestion: None,
            weights: vec![60, 30, 10],
            flows: None,
            messages_per_s: None,
            message_bytes: 200,
            deadline_ms: None,
            legacy_flows: 0,
            link_mbit: 100.0,
            one_thread: false,
        }
    }
}

impl Driver for LinkDriver {
    fn estimated_overhead(&self, _: f64) -> Duration {
        let wait = if self.one_thread { Duration::ZERO } else { START_TIME + WARM_UP };
        let apply = match self.backend {
            PolicyBackend::Kernel | PolicyBackend::KernelBpf | PolicyBackend::KernelPlain => 100,
            backend if backend.is_interposed() => 400,
            _ => 20,
        };
        wait + Duration::from_millis(350 + apply)
    }

    fn needs_network_namespaces(&self) -> bool {
        true
    }

    fn run(&self, context: Context, seconds: f64, _: u64) -> Result<RunResult, NoResult> {
        let wanted = TransferPlan::new(self)?;
        run_in_thread(context, "link", |host, interrupted| transfer(host, &wanted, seconds, interrupted))
    }
}

fn transfer(
    host: &RunHost<'_>,
    wanted: &TransferPlan,
    seconds: f64,
    interrupted: child::Interrupted,
) -> Result<RunResult, NoResult> {
    let is_cable = matches!(wanted.backend, PolicyBackend::NoPolicy | PolicyBackend::Middleware);
    let stage = LinkStage::set(if is_cable { Cable::Link(wanted.bits_per_s) } else { Cable::Free })?;
    let mut applied = AppliedPolicy::apply(host, wanted.backend, &wanted.policy(), interrupted)?;
    let result = if wanted.in_one_thread {
        probe::measure(&stage, host.cpus, seconds, interrupted)
    } else {
        traffic(host, wanted, &stage, seconds, interrupted)
    };
    let cleared = applied.clear(interrupted);
    let result = result?;
    cleared?;
    Ok(result)
}

/// Starts the senders and the receiver, and reads their results.
fn traffic(
    host: &RunHost<'_>,
    wanted: &TransferPlan,
    stage: &LinkStage,
    seconds: f64,
    interrupted: child::Interrupted,
) -> Result<RunResult, NoResult> {
    let files = &host.files;
    let mut broker = None;
    if wanted.backend == PolicyBackend::Middleware {
        let mut command = host.unisono(&["queue", "broker"]);
        command.arg(files.write("policy.toml", &wanted.policy())?).arg("--listen").arg(files.path("broker"));
        if wanted.congestion.is_some() && process::is_root() {
            // runs as root, because the kernel lets only root choose any congestion control
            command.args(["--user", "root"]);
        }
        broker = Some(StudyChild::start(command)?);
    }
    let from = clock::now() + (START_TIME + WARM_UP).into();
    let until = from + Duration::from_secs_f64(seconds).into();
    let scene = Scene {
        from,
        until,
        receiver: RECEIVER.into(),
        congestion: wanted.congestion.clone(),
        broker: broker.as_ref().map(|_| files.path("broker")),
        sources: wanted.sources.clone(),
    };
    let text = serde_json::to_string(&scene).map_err(|error| NoResult::Failed(error.to_string()))?;
    let scene_file = files.write("scene.json", &text)?;
    let worker = |result: &str| {
        let mut command = host.unisono(&["workload", "traffic", "--scene"]);
        command.arg(&scene_file).arg("--result").arg(files.path(result));
        command
    };
    let mut children = vec![stage.at_the_receiver(|| Ok(StudyChild::start(worker("received"))?))?];
    for at in 0..wanted.sources.len() {
        let mut command = worker(&format!("sent-{at}"));
        command.args(["--source", &at.to_string()]);
        children.push(StudyChild::start(command)?);
    }
    let expected = START_TIME + WARM_UP + Duration::from_secs_f64(seconds);
    let ended = child::wait_all(&mut children, expected * 2 + Duration::from_secs(10), interrupted);
    drop(broker);
    ended?;
    let received: Vec<SourceReceived> = files.read("received")?;
    let sent = (0..wanted.sources.len()).map(|at| files.read(&format!("sent-{at}")));
    let sent: Vec<SentCount> = sent.collect::<Result<_, _>>()?;
    Ok(figures::result(&wanted.weights, &wanted.sources, &sent, &received, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_what_a_user_would_write_and_is_accepted() {
        let settings = LinkDriver { backend: PolicyBackend::Middleware, ..LinkDriver::default() };
        let wanted = TransferPlan::new(&settings).expect("it can be measured");
        let policy = unisono_fairqueue::Policy::parse(&wanted.policy()).expect("it is sound");
        assert_eq!(policy.rate.bits_per_second(), 98_000_000);
        let b = policy.hierarchy.find("b").expect("it is there");
        assert_eq!(policy.hierarchy.class(b).weight.fraction(), (30, 1));
        assert_eq!(policy.rules.len(), 3);
    }

    #[test]
    fn who_does_not_cooperate_has_no_class() {
        let settings = LinkDriver { legacy_flows: 4, ..LinkDriver::default() };
        let wanted = TransferPlan::new(&settings).expect("it can be measured");
        let last = wanted.sources.last().expect("there are some");
        assert!(!last.cooperates && last.flows == 4);
        assert!(!wanted.policy().contains(&last.port.to_string()));
        assert!(wanted.policy().contains("default = \"rest\""));
        let wanted = TransferPlan::new(&LinkDriver::default()).expect("it can be measured");
        assert!(wanted.policy().contains("default = \"c\""), "otherwise three classes are all there are");
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_the_value() {
        let said =
            |settings: LinkDriver| format!("{:?}", TransferPlan::new(&settings).err().expect("refused"));
        assert!(said(LinkDriver { weights: vec![1, 0], ..LinkDriver::default() }).contains("[1, 0]"));
    }
}
