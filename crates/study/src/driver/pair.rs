//! Two or more programs under a regime: plain Linux, spread Linux, priorities, batch, partitions, gangs.
//!
//! Rates are per second of the *whole* run in every regime, so that they compare: under `batch` each of
//! two programs runs half of the time and is credited with half of its rate.

use super::launch::{self, App, StartedBy};
use super::{Context, Driver, NoOutcome, Outcome, figures, gang_run};
use crate::settings::{Regime, Settings};
use crate::workload::{Measurement, Pin};
use std::time::Duration;
use unisono_measure::record::Figure;

/// Most programs beside the first.
const MOST_OTHERS: usize = 64;

/// From starting the first program to the moment all begin to measure.
const LEAD: Duration = Duration::from_millis(30);

/// The same where a gang scheduler starts them.
const GANG_LEAD: Duration = Duration::from_millis(75);

/// Warm-up of a program that runs alone.
const WARM_UP: Duration = Duration::from_millis(25);

#[derive(Debug)]
pub struct PairDriver;

impl Driver for PairDriver {
    fn name(&self) -> &'static str {
        "pair"
    }

    fn reads(&self) -> &'static [&'static str] {
        &[
            "program",
            "threads",
            "interval_us",
            "variance_us",
            "algorithm",
            "wait",
            "spin_budget_us",
            "size",
            "regime",
            "slice_ms",
            "weights",
            "mechanism",
            "nice",
            "favoured",
            "others",
            "other_program",
            "other_threads",
            "other_interval_us",
            "other_variance_us",
            "other_wait",
            "other_spin_budget_us",
        ]
    }

    fn around(&self, settings: &Settings, _: f64) -> Duration {
        match settings.regime.unwrap_or(Regime::Linux) {
            Regime::Gang => GANG_LEAD + Duration::from_millis(20),
            Regime::Batch => (WARM_UP + Duration::from_millis(15)) * 2,
            _ => LEAD + Duration::from_millis(10),
        }
    }

    fn beside_others(&self) -> bool {
        true
    }

    fn run(
        &self,
        context: Context,
        settings: &Settings,
        seconds: f64,
        seed: u64,
    ) -> Result<Outcome, NoOutcome> {
        let others = settings.others.unwrap_or(1);
        if !(1..=MOST_OTHERS).contains(&others) {
            return Err(NoOutcome::Failed(format!(
                "{others} programs beside the first; 1 to {MOST_OTHERS} are possible"
            )));
        }
        let mut apps = vec![App::first(context, settings, seed)?];
        for other in 1..=others as u64 {
            apps.push(App::other(context, settings, seed.wrapping_add(other))?);
        }
        let (measured, mut more) = under(context, settings, apps, seconds)?;
        let mut outcome = Outcome { figures: together(&measured), ..Outcome::default() };
        outcome.figures.append(&mut more);
        outcome.warnings.extend(launch::late_warning(&measured));
        Ok(outcome)
    }
}

/// Runs the programs under the settings' regime; what each measured, and the regime's own figures.
///
/// # Errors
/// Why there is nothing.
pub fn under(
    context: Context,
    settings: &Settings,
    mut apps: Vec<App>,
    seconds: f64,
) -> Result<(Vec<Measurement>, Vec<Figure>), NoOutcome> {
    let regime = settings.regime.unwrap_or(Regime::Linux);
    for app in &mut apps {
        app.options.seconds = seconds;
    }
    match regime {
        Regime::Batch => return Ok((batch(context, apps, seconds)?, Vec::new())),
        Regime::Gang => return gang_run::run(context, settings, apps, seconds, GANG_LEAD),
        Regime::Spread => apps.iter_mut().for_each(|app| app.options.pin = Pin::Spread),
        Regime::Partition => partition(context, &mut apps)?,
        Regime::Linux | Regime::Nice => {}
    }
    let begin = launch::begin_after(LEAD);
    let prepared = apps.iter_mut().map(|app| {
        app.options.start_at = Some(begin);
        launch::prepare(context, app, StartedBy::Us)
    });
    let (nice, favoured) = (settings.nice.unwrap_or(-20), settings.favoured.unwrap_or(2));
    let measured = launch::concurrently(
        context,
        prepared.collect(),
        LEAD + Duration::from_secs_f64(seconds),
        |i, child| {
            if regime != Regime::Nice || i + 1 != favoured {
                return Ok(());
            }
            let set = child.group().map_or(Ok(()), |group| group.set_nice(nice));
            set.map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => NoOutcome::Skipped(format!(
                "nice {nice} needs the privilege CAP_SYS_NICE; run as root, or raise the limit with `ulimit -e`"
            )),
            _ => NoOutcome::Failed(format!("cannot give nice {nice}: {error}")),
        })
        },
    )?;
    Ok((measured, Vec::new()))
}

/// One after the other, each for its share of the time on all processors; rates are per second of the whole.
fn batch(context: Context, apps: Vec<App>, seconds: f64) -> Result<Vec<Measurement>, NoOutcome> {
    let n = apps.len() as f64;
    let mut all = Vec::new();
    for app in apps {
        let mut app = app.pinned(Pin::Spread);
        app.options.seconds = seconds / n;
        app.options.warm_up = WARM_UP;
        let prepared = launch::prepare(context, &app, StartedBy::Us);
        let expected = WARM_UP + Duration::from_secs_f64(seconds);
        for mut measured in launch::concurrently(context, vec![prepared], expected, |_, _| Ok(()))? {
            for rate in [
                &mut measured.barriers_per_s,
                &mut measured.iterations_per_s,
                &mut measured.blocks_per_s,
                &mut measured.preemptions_per_s,
                &mut measured.cpu_s,
            ] {
                *rate /= n;
            }
            all.push(measured);
        }
    }
    Ok(all)
}

/// Processors for each program, as even as possible.
fn partition(context: Context, apps: &mut [App]) -> Result<(), NoOutcome> {
    let (cpus, n) = (context.cpus.len(), apps.len());
    if cpus < n {
        return Err(NoOutcome::Skipped(format!(
            "a partition needs a processor for each of the {n} programs; this process may use {cpus}"
        )));
    }
    for (i, app) in apps.iter_mut().enumerate() {
        app.options.pin = Pin::List(context.cpus[i * cpus / n..(i + 1) * cpus / n].to_vec());
    }
    Ok(())
}

/// Figures of the first, of the others together, and of all.
fn together(measured: &[Measurement]) -> Vec<Figure> {
    let sum = |of: fn(&Measurement) -> f64| measured.iter().map(of).sum::<f64>();
    let mut figures = vec![
        figures::figure("barriers_per_s", sum(|m| m.barriers_per_s), "1/s"),
        figures::figure("iterations_per_s", sum(|m| m.iterations_per_s), "1/s"),
        figures::figure("blocks_per_s", sum(|m| m.blocks_per_s), "1/s"),
        figures::figure("processors", sum(Measurement::cpu_share), "1"),
    ];
    let Some((first, others)) = measured.split_first() else { return figures };
    figures.extend(figures::of_program("app1_", first));
    match others {
        [] => {}
        [second] => figures.extend(figures::of_program("app2_", second)),
        others => {
            let sum = |of: fn(&Measurement) -> f64| others.iter().map(of).sum::<f64>();
            figures.push(figures::figure("app2_barriers_per_s", sum(|m| m.barriers_per_s), "1/s"));
            figures.push(figures::figure("app2_iterations_per_s", sum(|m| m.iterations_per_s), "1/s"));
            figures.push(figures::figure("app2_blocks_per_s", sum(|m| m.blocks_per_s), "1/s"));
        }
    }
    figures
}
