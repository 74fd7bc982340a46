//! One program alone, or beside busy loops: what a barrier costs.

use super::launch::{self, App, StartedBy};
use super::{Context, Driver, NoOutcome, Outcome, figures};
use crate::settings::Settings;
use crate::workload::Pin;
use crate::workload::competitor::Competitors;
use std::time::Duration;

const WARM_UP: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct SingleDriver;

impl Driver for SingleDriver {
    fn name(&self) -> &'static str {
        "single"
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
            "competitors",
            "pinned",
            "size",
        ]
    }

    fn around(&self, _: &Settings, _: f64) -> Duration {
        Duration::from_millis(40)
    }

    fn run(
        &self,
        context: Context,
        settings: &Settings,
        seconds: f64,
        seed: u64,
    ) -> Result<Outcome, NoOutcome> {
        let pin = if settings.pinned.unwrap_or(false) { Pin::Spread } else { Pin::None };
        let settings = Settings { threads: settings.threads.or(Some(2)), ..settings.clone() };
        let mut app = App::first(context, &settings, seed)?.pinned(pin);
        app.options.seconds = seconds;
        app.options.warm_up = WARM_UP;
        let competitors = settings.competitors.unwrap_or(0);
        let beside = (competitors > 0)
            .then(|| Competitors::start(context.unisono, competitors, &Pin::Spread))
            .transpose()
            .map_err(|error| NoOutcome::Failed(error.to_string()))?;
        let prepared = launch::prepare(context, &app, StartedBy::Us);
        let expected = WARM_UP + Duration::from_secs_f64(seconds);
        let measured = launch::concurrently(context, vec![prepared], expected, |_, _| Ok(()))?;
        drop(beside);
        Ok(Outcome {
            figures: measured.iter().flat_map(|m| figures::of_program("", m)).collect(),
            ..Outcome::default()
        })
    }
}
