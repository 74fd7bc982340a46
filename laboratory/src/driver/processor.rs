//! Compares two ways to share processor time by weight: turns that are granted by the same fair-queuing
//! scheduler that orders packets (`core`), and the kernel's cpu controller.
//!
//! Each class is a busy loop in a control group of its own, and all are on the same processor. With `kernel`,
//! the groups have weights; with `core`, they take turns, as with `unisono queue cpu`.

use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration as StdDuration;
use unisono_enforce::cpu::{Keeper, Options};
use unisono_fairqueue::Policy;
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::{self, ControlGroup, unguessable};
use unisono_linux::clock::{self, Duration};
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process::Signal;
use unisono_linux::{schedstat, timer};
use unisono_measure::record::Figure;
use unisono_study::driver::{Context, Driver, DriverKind, NoResult, RunResult};
use unisono_workload::Pin;
use unisono_workload::competitor::Competitors;

const CLASS_NAMES: [&str; 4] = ["a", "b", "c", "d"];
const WARM_UP: StdDuration = StdDuration::from_millis(100);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ProcessorBackend {
    /// The kernel's scheduler without weights.
    #[default]
    #[serde(rename = "none")]
    Unweighted,
    Kernel,
    /// Start-time fair queuing grants the turns.
    Core,
}

pub const PROCESSOR: DriverKind = DriverKind::new::<ProcessorDriver>("processor");

#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessorDriver {
    backend: ProcessorBackend,
    /// The weights of the classes: two to four weights.
    weights: Vec<u32>,
    /// The length of the core's turns.
    slice_ms: f64,
}

impl Default for ProcessorDriver {
    fn default() -> Self {
        Self { backend: ProcessorBackend::Unweighted, weights: vec![60, 30, 10], slice_ms: 1.0 }
    }
}

impl Driver for ProcessorDriver {
    fn estimated_overhead(&self, _: f64) -> StdDuration {
        StdDuration::from_millis(150)
    }

    fn run(&self, context: Context, seconds: f64, _: u64) -> Result<RunResult, NoResult> {
        let (backend, weights) = (self.backend, &self.weights);
        if weights.len() < 2 || weights.len() > CLASS_NAMES.len() || weights.contains(&0) {
            return Err(NoResult::Failed(format!("weights {weights:?}; write 2 to 4 positive numbers")));
        }
        // the last processor usually handles the fewest interrupts
        let cpu = context.cpus.last().copied().unwrap_or_default();
        let loops = Competitors::start(context.unisono, weights.len(), &Pin::List(vec![cpu]))
            .map_err(|error| NoResult::Failed(error.to_string()))?;
        let groups = if backend == ProcessorBackend::Unweighted {
            None
        } else {
            Some(LoopGroups::make(&loops, backend, weights)?)
        };
        let mut start_keeper = match (&groups, backend) {
            (Some(groups), ProcessorBackend::Core) => {
                Some(start_keeper(context.unisono, groups, weights, self.slice_ms)?)
            }
            _ => None,
        };
        let total = WARM_UP + StdDuration::from_secs_f64(seconds);
        let mut before = Vec::new();
        let (start, mut switches) = (clock::now(), 0_u32);
        let mut began = start;
        let from = start + WARM_UP.into();
        let until = start + total.into();
        loop {
            let now = clock::now();
            if before.is_empty() && now >= from {
                (before, switches, began) = (used_times(&loops)?, 0, now);
            }
            if now >= until {
                break;
            }
            if let Some(signal) = (context.interrupted)() {
                return Err(NoResult::Interrupted(format!("stopped by {signal}")));
            }
            if let Some(start_keeper) = &mut start_keeper {
                timer::sleep_until(start_keeper.turn().min(until));
                switches += 1;
            } else {
                timer::sleep_until((now + Duration::from_millis(10)).min(until));
            }
        }
        let used: Vec<u64> =
            used_times(&loops)?.iter().zip(&before).map(|(after, before)| after - before).collect();
        let seconds = (clock::now() - began).as_secs_f64();
        Ok(result(weights, &used, seconds, (backend == ProcessorBackend::Core).then_some(switches)))
    }
}

fn result(weights: &[u32], used: &[u64], seconds: f64, switches: Option<u32>) -> RunResult {
    let (all, wanted) = (used.iter().sum::<u64>().max(1) as f64, weights.iter().sum::<u32>());
    let mut result = RunResult::default();
    let mut worst = 0.0_f64;
    for ((name, used), weight) in CLASS_NAMES.iter().zip(used).zip(weights) {
        let (got, ideal) = (*used as f64 / all, f64::from(*weight) / f64::from(wanted));
        worst = worst.max((got / ideal - 1.0).abs() * 100.0);
        result.figures.push(Figure::new(format!("{name}_share_percent"), got * 100.0, "%"));
    }
    result.figures.push(Figure::new("share_off_percent", worst, "%"));
    result.figures.push(Figure::new("used_percent", all / seconds / 1e7, "%"));
    if let Some(switches) = switches {
        result.figures.push(Figure::new("quanta_per_s", f64::from(switches) / seconds, "1/s"));
    }
    result
}

/// Returns the processor time of each loop so far.
fn used_times(loops: &Competitors) -> Result<Vec<u64>, NoResult> {
    let used = |child: &Child| schedstat::refresh(Tid(i32::try_from(child.id()).unwrap_or_default()));
    let times: Result<Vec<u64>, _> = loops.children().iter().map(used).collect();
    times.map_err(|error| NoResult::Skipped(format!("this kernel does not tell processor time: {error}")))
}

/// A control group for each loop. The drop removes the groups after the loops have ended.
struct LoopGroups(Vec<ControlGroup>);

impl LoopGroups {
    fn make(loops: &Competitors, backend: ProcessorBackend, weights: &[u32]) -> Result<Self, NoResult> {
        let skipped = |why: String| NoResult::Skipped(format!("no control groups for processor time: {why}"));
        let all = cgroup::hierarchies().map_err(|error| skipped(error.to_string()))?;
        let (tree, lacking) = match backend {
            ProcessorBackend::Core => (
                cgroup::CgroupHierarchy::of_version(&all, cgroup::CgroupVersion::V2),
                "no cgroup2 is mounted",
            ),
            _ => (cgroup::CgroupHierarchy::with(&all, "cpu"), "no tree has the cpu controller"),
        };
        let top = tree.ok_or_else(|| skipped(lacking.to_owned()))?.top();
        let mut groups = Self(Vec::new());
        for ((child, weight), name) in loops.children().iter().zip(weights).zip(CLASS_NAMES) {
            let name = unguessable(&format!("unisono-study-{}-{name}", std::process::id()));
            let name = name.map_err(|error| skipped(error.to_string()))?;
            let group = top.create(&name).map_err(|error| skipped(error.to_string()))?;
            groups.0.push(group.clone());
            if backend == ProcessorBackend::Kernel {
                group.set_weight(f64::from(*weight) / 10.0).map_err(|error| skipped(error.to_string()))?;
            }
            let pinned = PinnedProcess::of_child(child).map_err(|error| skipped(error.to_string()))?;
            group.add(&pinned).map_err(|error| skipped(error.to_string()))?;
        }
        Ok(groups)
    }
}

impl Drop for LoopGroups {
    fn drop(&mut self) {
        for group in &self.0 {
            // the loops have to leave first, and the kernel takes a moment until it considers a group empty
            let processes = group.processes().unwrap_or_default();
            for process in processes {
                let pinned = PinnedProcess::now(process);
                // the list is read again once the process is held, because the number may have been reused
                // for another process in between
                if let Ok(pinned) = pinned
                    && group.processes().is_ok_and(|now| now.contains(&process))
                {
                    let _ = pinned.send(Signal::Kill); // an error means that it has just ended
                }
            }
            for _ in 0..100 {
                if group.remove().is_ok() {
                    break;
                }
                std::thread::sleep(StdDuration::from_millis(2));
            }
        }
    }
}

fn start_keeper(
    unisono: &Path,
    groups: &LoopGroups,
    weights: &[u32],
    quantum_ms: f64,
) -> Result<Keeper, NoResult> {
    let failed = |error: String| NoResult::Failed(format!("the core cannot share the processor: {error}"));
    let named = || groups.0.iter().zip(CLASS_NAMES);
    let class = |(group, name): (&ControlGroup, &str)| {
        let path = group.path().file_name().unwrap_or_default().to_string_lossy();
        format!("[class.{name}]\nmatch = [{{ cgroup = \"/{path}\" }}]\n")
    };
    let share = |(name, weight): (&str, &u32)| format!("{name} = {weight}\n");
    let text = [
        "rate = \"1gbit\"\n".to_owned(),
        named().map(class).collect(),
        "[cpu]\n".to_owned(),
        CLASS_NAMES.into_iter().zip(weights).map(share).collect(),
    ];
    let policy = Policy::parse(&text.concat()).map_err(|error| failed(error.to_string()))?;
    let mut guard = Command::new(unisono);
    guard.args(["queue", "cpu-guard"]);
    let options = Options { quantum: StdDuration::from_secs_f64(quantum_ms / 1e3), ..Options::default() };
    Keeper::start(&policy, &options, guard).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_compared_with_weights() {
        let result = result(&[3, 1], &[600, 400], 1.0, None);
        let value = |name: &str| result.figures.iter().find(|f| f.name == name).expect("it is there").value;
        assert_eq!((value("a_share_percent"), value("b_share_percent")), (60.0, 40.0));
        assert!((value("share_off_percent") - 60.0).abs() < 1e-9);
    }
}
