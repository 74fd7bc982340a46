//! What it costs to wait: a hand-off between two threads and back, under each wait policy.

use super::figures::figure;
use super::launch::{self, App, StartedBy};
use super::{Context, Driver, NoOutcome, Outcome};
use crate::peer::{PeerFile, PeerKind};
use crate::settings::{HandOffPlacement, Settings};
use crate::workload::competitor::Competitors;
use crate::workload::{Options, Pin};
use std::time::Duration;
use unisono_measure::record::{Distribution, Figure};

const WARM_UP: Duration = Duration::from_millis(15);

#[derive(Debug)]
pub struct WaitCostDriver;

impl Driver for WaitCostDriver {
    fn name(&self) -> &'static str {
        "wait-cost"
    }

    fn reads(&self) -> &'static [&'static str] {
        &["wait", "spin_budget_us", "placement", "competitors"]
    }

    fn around(&self, _: &Settings, _: f64) -> Duration {
        Duration::from_millis(25)
    }

    fn run(
        &self,
        context: Context,
        settings: &Settings,
        seconds: f64,
        seed: u64,
    ) -> Result<Outcome, NoOutcome> {
        let cpus = match (settings.placement.unwrap_or(HandOffPlacement::Cross), context.cpus) {
            (HandOffPlacement::Free, _) => Vec::new(),
            (HandOffPlacement::Same, [first, ..]) => vec![*first],
            (HandOffPlacement::Cross, [first, second, ..]) => vec![*first, *second],
            (placement, cpus) => {
                let reason = format!(
                    "{placement:?} placement needs two processors; this process may use {}",
                    cpus.len()
                );
                return Err(NoOutcome::Skipped(reason.to_lowercase()));
            }
        };
        let pin = if cpus.is_empty() { Pin::None } else { Pin::List(cpus) };
        let mut arguments = vec!["workload".to_owned(), "hand-off".to_owned()];
        arguments.extend(["--wait".to_owned(), settings.wait.clone().unwrap_or_else(|| "spin-block".into())]);
        if let Some(us) = settings.spin_budget_us {
            arguments.extend(["--spin-budget".to_owned(), format!("{us}us")]);
        }
        let app = App {
            program: PeerFile::own(context.unisono, "hand-off", PeerKind::Barrier, arguments),
            options: Options { seconds, seed, warm_up: WARM_UP, pin: pin.clone(), ..Options::default() },
        };
        let competitors = settings.competitors.unwrap_or(0);
        let at = if pin == Pin::None { Pin::Spread } else { pin };
        let used = if let Pin::List(cpus) = &at { cpus.len() } else { context.cpus.len() };
        let beside = (competitors > 0)
            .then(|| Competitors::start(context.unisono, competitors * used, &at))
            .transpose()
            .map_err(|error| NoOutcome::Failed(error.to_string()))?;
        let prepared = launch::prepare(context, &app, StartedBy::Us);
        let expected = WARM_UP + Duration::from_secs_f64(seconds);
        let measured = launch::concurrently(context, vec![prepared], expected, |_, _| Ok(()))?;
        drop(beside);
        let mut outcome = Outcome::default();
        for m in &measured {
            let d = &m.ns_per_barrier;
            if d.n == 0 {
                return Err(NoOutcome::Failed(format!("no hand-off was completed within {seconds} s")));
            }
            outcome.figures.push(Figure {
                name: "round_trip_ns".into(),
                value: d.median,
                unit: "ns".into(),
                distribution: Some(Distribution {
                    n: d.n,
                    min: d.min,
                    p25: d.p25,
                    median: d.median,
                    p75: d.p75,
                    p99: d.p99,
                    max: d.max,
                }),
            });
            outcome.figures.push(figure("mean_round_trip_ns", d.mean, "ns"));
            outcome.figures.push(figure("longest_round_trip_us", d.max / 1e3, "us"));
            outcome.figures.push(figure("blocks_per_s", m.blocks_per_s, "1/s"));
        }
        Ok(outcome)
    }
}
