//! The cost of waiting: a hand-off between two threads and back, under each wait policy.

use super::launch::{self, ProgramSpec, StartedBy};
use super::{Context, Driver, DriverKind, NoResult, RunResult};
use crate::peer::{PeerFile, PeerKind};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use unisono_measure::record::Figure;
use unisono_workload::{Options, Pin};

const WARM_UP: Duration = Duration::from_millis(15);

pub(crate) const WAIT_COST: DriverKind = DriverKind::new::<WaitCostDriver>("wait-cost");

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WaitCostDriver {
    wait: Option<String>,
    /// Time that `spin-block` spins.
    spin_budget_us: Option<f64>,
    placement: HandOffPlacement,
    /// Number of busy loops on each processor that the two threads use.
    competitors: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HandOffPlacement {
    Same,
    #[default]
    Cross,
    /// The kernel places the threads.
    Free,
}

impl Driver for WaitCostDriver {
    fn estimated_overhead(&self, _: f64) -> Duration {
        Duration::from_millis(25)
    }

    fn run(&self, context: Context, seconds: f64, seed: u64) -> Result<RunResult, NoResult> {
        let cpus = match (self.placement, context.cpus) {
            (HandOffPlacement::Free, _) => Vec::new(),
            (HandOffPlacement::Same, [first, ..]) => vec![*first],
            (HandOffPlacement::Cross, [first, second, ..]) => vec![*first, *second],
            (placement, cpus) => {
                let reason = format!(
                    "{placement:?} placement needs two processors; this process may use {}",
                    cpus.len()
                );
                return Err(NoResult::Skipped(reason.to_lowercase()));
            }
        };
        let pin = if cpus.is_empty() { Pin::None } else { Pin::List(cpus) };
        let mut arguments = vec!["workload".to_owned(), "hand-off".to_owned()];
        arguments.extend(["--wait".to_owned(), self.wait.clone().unwrap_or_else(|| "spin-block".into())]);
        if let Some(us) = self.spin_budget_us {
            arguments.extend(["--spin-budget".to_owned(), format!("{us}us")]);
        }
        let app = ProgramSpec {
            program: PeerFile::own(context.unisono, "hand-off", PeerKind::Barrier, arguments),
            options: Options { seconds, seed, warm_up: WARM_UP, pin: pin.clone(), ..Options::default() },
        };
        let at = if pin == Pin::None { Pin::Spread } else { pin };
        let used = if let Pin::List(cpus) = &at { cpus.len() } else { context.cpus.len() };
        let beside = launch::competitors(context, self.competitors * used, &at)?;
        let prepared = launch::prepare(context, &app, StartedBy::Us);
        let expected = WARM_UP + Duration::from_secs_f64(seconds);
        let measured = launch::concurrently(context, vec![prepared], expected, |_, _| Ok(()))?;
        drop(beside);
        let mut result = RunResult::default();
        for m in &measured {
            let d = &m.ns_per_barrier;
            if d.n == 0 {
                return Err(NoResult::Failed(format!("no hand-off was completed within {seconds} s")));
            }
            result.figures.push(Figure::from_distribution("round_trip_ns", "ns", d.distribution()));
            result.figures.push(Figure::new("mean_round_trip_ns", d.mean, "ns"));
            result.figures.push(Figure::new("longest_round_trip_us", d.max / 1e3, "us"));
            result.figures.push(Figure::new("blocks_per_s", m.blocks_per_s, "1/s"));
        }
        Ok(result)
    }
}
