//! Classes that share a link of 100 Mbit/s, under each place where a policy can be enforced.
//!
//! ```text
//!   senders (a process a class) -- policy: none | kernel | tun | af-xdp | middleware -- cable -- receiver
//! ```
//! One run: two network namespaces and their cable, the policy applied by `unisono queue apply` as a user
//! would (or a broker started), one sender a class, one receiver; all of it is gone when the run is. Without
//! a policy and with the middleware, the cable itself is a link of that rate, first in first out (TBF); the
//! kernel and the interposed place make the link themselves. A cable alone, without policy and rate, is there
//! to compare with.

mod figures;
mod place;
mod probe;
mod stage;

use super::{Context, Driver, NoOutcome, Outcome};
use crate::child::{self, StudyChild};
use crate::settings::Settings;
use crate::workload::traffic::{Scene, SentBy, SourceReceived, TrafficSource};
use place::EnforcedAt;
use serde::de::DeserializeOwned;
use stage::{CABLE, Cable, LinkStage, RECEIVER};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use unisono_linux::timer;

/// The classes' names, by weight's place in the list.
const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
/// What belongs to no class.
const LEGACY: &str = "legacy";
const FIRST_PORT: u16 = 5001;
/// Connections have to find their windows.
const WARM_UP: Duration = Duration::from_millis(600);
/// Processes have to start.
const START: Duration = Duration::from_millis(150);
/// The middleware's rate is this part of the link's: what the link cannot carry would wait behind the broker.
const BROKER_PART: f64 = 0.98;

/// What one run transfers.
struct TransferPlan {
    place: EnforcedAt,
    weights: Vec<u32>,
    bits_per_s: u64,
    sources: Vec<TrafficSource>,
    congestion: Option<String>,
    /// Messages alone, both of whose ends one thread holds.
    in_one_thread: bool,
}

impl TransferPlan {
    fn new(settings: &Settings) -> Result<Self, NoOutcome> {
        let weights = settings.weights.clone().unwrap_or_else(|| vec![60, 30, 10]);
        if weights.is_empty() || weights.len() > NAMES.len() || weights.contains(&0) {
            return Err(NoOutcome::Failed(format!("weights {weights:?}; write 1 to 10 positive numbers")));
        }
        let of = |list: &Option<Vec<u32>>, at: usize, default: u32| {
            list.as_ref().map_or(default, |list| list.get(at).copied().unwrap_or(0))
        };
        let mut sources: Vec<TrafficSource> = (0..weights.len())
            .map(|at| TrafficSource {
                class: NAMES[at].to_owned(),
                port: FIRST_PORT + at as u16,
                flows: of(&settings.flows, at, 2),
                messages_per_s: f64::from(of(&settings.messages_per_s, at, 0)),
                message_bytes: settings.message_bytes.unwrap_or(200),
                deadline_ms: settings.deadline_ms,
                cooperates: true,
            })
            .collect();
        if let Some(flows) = settings.legacy_flows.filter(|flows| *flows > 0) {
            sources.push(TrafficSource {
                class: LEGACY.to_owned(),
                port: FIRST_PORT + NAMES.len() as u16,
                flows,
                messages_per_s: 0.0,
                message_bytes: 0,
                deadline_ms: None,
                cooperates: false,
            });
        }
        Ok(Self {
            place: EnforcedAt::of(settings)?,
            weights,
            bits_per_s: (settings.link_mbit.unwrap_or(100.0) * 1e6) as u64,
            sources,
            congestion: settings.congestion.clone(),
            in_one_thread: settings.one_thread == Some(true),
        })
    }

    /// The policy as a user would write it.
    fn policy(&self) -> String {
        let rate = if self.place == EnforcedAt::Middleware {
            (self.bits_per_s as f64 * BROKER_PART) as u64 / 1000
        } else {
            self.bits_per_s / 1000
        };
        // a class that nobody is in would leave its part to be lent, which is a question of its own
        let others =
            if self.sources.len() > self.weights.len() { "rest" } else { NAMES[self.weights.len() - 1] };
        let mut text = format!("rate = \"{rate}kbit\"\ndefault = \"{others}\"\n");
        for ((name, weight), source) in NAMES.iter().zip(&self.weights).zip(&self.sources) {
            let port = source.port;
            let _ = write!(text, "\n[class.{name}]\nweight = {weight}\nmatch = [{{ port = {port} }}]\n");
        }
        text
    }
}

#[derive(Debug)]
pub struct LinkDriver;

impl Driver for LinkDriver {
    fn name(&self) -> &'static str {
        "link"
    }

    fn reads(&self) -> &'static [&'static str] {
        &[
            "backend",
            "congestion",
            "weights",
            "flows",
            "messages_per_s",
            "message_bytes",
            "deadline_ms",
            "legacy_flows",
            "link_mbit",
            "one_thread",
        ]
    }

    fn around(&self, settings: &Settings, _: f64) -> Duration {
        let wait = if settings.one_thread == Some(true) { Duration::ZERO } else { START + WARM_UP };
        let apply = match EnforcedAt::of(settings) {
            Ok(EnforcedAt::Kernel | EnforcedAt::KernelPlain) => 100,
            Ok(place) if place.is_interposed() => 400,
            _ => 20,
        };
        wait + Duration::from_millis(350 + apply)
    }

    fn run(&self, context: Context, settings: &Settings, seconds: f64, _: u64) -> Result<Outcome, NoOutcome> {
        let wanted = TransferPlan::new(settings)?;
        let files = Files::new(context.directory);
        // what is asked for while it waits may belong to this thread alone
        let interrupted = &std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let wanted = &wanted;
            let host = Host { unisono: context.unisono, files: &files, cpus: context.cpus };
            let run = scope.spawn(move || {
                let asked = || interrupted.load(Ordering::Relaxed).then_some("a signal");
                transfer(&host, wanted, seconds, &asked)
            });
            let mut signal = None;
            while !run.is_finished() {
                if signal.is_none() {
                    signal = (context.interrupted)();
                    interrupted.store(signal.is_some(), Ordering::Relaxed);
                }
                std::thread::sleep(child::STEP);
            }
            match (run.join(), signal) {
                (Ok(Err(NoOutcome::Interrupted(_))), Some(signal)) => {
                    Err(NoOutcome::Interrupted(format!("stopped by {signal}")))
                }
                (Ok(done), _) => done,
                (Err(_), _) => Err(NoOutcome::Failed("the run panicked".to_owned())),
            }
        })
    }
}

/// What a run has of this host.
struct Host<'a> {
    unisono: &'a Path,
    files: &'a Files,
    cpus: &'a [usize],
}

impl Host<'_> {
    fn unisono(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.unisono);
        command.args(arguments);
        command
    }
}

/// The files of one run.
struct Files(PathBuf);

impl Files {
    fn new(directory: &Path) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(directory.join(format!("link-{number}")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, NoOutcome> {
        let path = self.path(name);
        std::fs::create_dir_all(&self.0)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|error| NoOutcome::Failed(format!("cannot write {}: {error}", path.display())))?;
        Ok(path)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, NoOutcome> {
        let path = self.path(name);
        let failed = |error: String| NoOutcome::Failed(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // the directory that it lies in goes with the study in any case
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn transfer(
    host: &Host<'_>,
    wanted: &TransferPlan,
    seconds: f64,
    interrupted: child::Interrupted,
) -> Result<Outcome, NoOutcome> {
    let is_cable = matches!(wanted.place, EnforcedAt::Nowhere | EnforcedAt::Middleware);
    let stage = LinkStage::set(if is_cable { Cable::Link(wanted.bits_per_s) } else { Cable::Free })?;
    let mut applied = Applied::put(host, wanted, interrupted)?;
    let outcome = if wanted.in_one_thread {
        probe::measure(&stage, host.cpus, seconds, interrupted)
    } else {
        traffic(host, wanted, &stage, seconds, interrupted)
    };
    let cleared = applied.clear(interrupted);
    let outcome = outcome?;
    cleared?;
    Ok(outcome)
}

/// Programs that send, a program that receives, and what came.
fn traffic(
    host: &Host<'_>,
    wanted: &TransferPlan,
    stage: &LinkStage,
    seconds: f64,
    interrupted: child::Interrupted,
) -> Result<Outcome, NoOutcome> {
    let files = host.files;
    let mut broker = None;
    if wanted.place == EnforcedAt::Middleware {
        let mut command = host.unisono(&["queue", "broker"]);
        command.arg(files.write("policy.toml", &wanted.policy())?).arg("--listen").arg(files.path("broker"));
        broker = Some(StudyChild::start(command)?);
    }
    let from = timer::now() + nanos(START + WARM_UP);
    let until = from + nanos(Duration::from_secs_f64(seconds));
    let scene = Scene {
        from,
        until,
        receiver: RECEIVER.into(),
        congestion: wanted.congestion.clone(),
        broker: broker.as_ref().map(|_| files.path("broker")),
        sources: wanted.sources.clone(),
    };
    let text = serde_json::to_string(&scene).map_err(|error| NoOutcome::Failed(error.to_string()))?;
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
    let expected = START + WARM_UP + Duration::from_secs_f64(seconds);
    let ended = child::wait_all(&mut children, expected * 2 + Duration::from_secs(10), interrupted);
    drop(broker);
    ended?;
    let received: Vec<SourceReceived> = files.read("received")?;
    let sent = (0..wanted.sources.len()).map(|at| files.read(&format!("sent-{at}")));
    let sent: Vec<SentBy> = sent.collect::<Result<_, _>>()?;
    Ok(figures::outcome(&wanted.weights, &wanted.sources, &sent, &received, seconds))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A policy that is enforced, until this is dropped.
struct Applied(Option<Command>);

impl Applied {
    /// Has the place enforce the policy, if it is one on this host's device.
    fn put(
        host: &Host<'_>,
        wanted: &TransferPlan,
        interrupted: child::Interrupted,
    ) -> Result<Self, NoOutcome> {
        if wanted.place == EnforcedAt::KernelPlain {
            place::apply_plain(&wanted.policy())?;
        } else if let Some(arguments) = wanted.place.arguments(host.cpus) {
            let mut command = host.unisono(&["queue", "apply"]);
            command.arg(host.files.write("policy.toml", &wanted.policy())?).args(arguments);
            command.args(["--dev", CABLE]);
            child::wait_all(&mut [StudyChild::start(command)?], Duration::from_secs(20), interrupted)?;
        } else {
            return Ok(Self(None));
        }
        Ok(Self(Some(host.unisono(&["queue", "clear", "--dev", CABLE]))))
    }

    fn clear(&mut self, interrupted: child::Interrupted) -> Result<(), NoOutcome> {
        let Some(command) = self.0.take() else { return Ok(()) };
        Ok(child::wait_all(&mut [StudyChild::start(command)?], Duration::from_secs(20), interrupted)?)
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        // the first failure is what is told
        let _ = self.clear(&|| None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_what_a_user_would_write_and_is_accepted() {
        let settings = Settings {
            weights: Some(vec![60, 30, 10]),
            backend: Some("middleware".into()),
            ..Settings::default()
        };
        let wanted = TransferPlan::new(&settings).expect("it can be measured");
        let policy = unisono_fairqueue::Policy::parse(&wanted.policy()).expect("it is sound");
        assert_eq!(policy.rate.bits_per_second(), 98_000_000);
        let b = policy.hierarchy.find("b").expect("it is there");
        assert_eq!(policy.hierarchy.class(b).weight.fraction(), (30, 1));
        assert_eq!(policy.rules.len(), 3);
    }

    #[test]
    fn who_does_not_cooperate_has_no_class() {
        let settings = Settings { legacy_flows: Some(4), ..Settings::default() };
        let wanted = TransferPlan::new(&settings).expect("it can be measured");
        let last = wanted.sources.last().expect("there are some");
        assert!(!last.cooperates && last.flows == 4);
        assert!(!wanted.policy().contains(&last.port.to_string()));
        assert!(wanted.policy().contains("default = \"rest\""));
        let wanted = TransferPlan::new(&Settings::default()).expect("it can be measured");
        assert!(wanted.policy().contains("default = \"c\""), "otherwise three classes are all there are");
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_the_value() {
        let said = |settings: Settings| format!("{:?}", TransferPlan::new(&settings).err().expect("refused"));
        assert!(said(Settings { weights: Some(vec![1, 0]), ..Settings::default() }).contains("[1, 0]"));
        assert!(said(Settings { backend: Some("htb".into()), ..Settings::default() }).contains("htb"));
    }
}
