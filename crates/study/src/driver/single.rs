//! The cost of a barrier in one program, alone or beside busy loops.

use super::launch::{self, ProgramSettings, ProgramSpec, StartedBy};
use super::{Context, Driver, DriverKind, NoResult, RunResult, figures};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use unisono_workload::Pin;

const WARM_UP: Duration = Duration::from_millis(20);

pub(crate) const SINGLE: DriverKind = DriverKind::new::<SingleDriver>("single");

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SingleDriver {
    /// The program; two threads by default.
    #[serde(flatten)]
    program: ProgramSettings,
    /// Number of busy loops beside the program, one for each processor in turn.
    competitors: usize,
    /// Whether each participant is bound to a processor, round-robin.
    pinned: bool,
}

impl Driver for SingleDriver {
    fn estimated_overhead(&self, _: f64) -> Duration {
        Duration::from_millis(40)
    }

    fn run(&self, context: Context, seconds: f64, seed: u64) -> Result<RunResult, NoResult> {
        let pin = if self.pinned { Pin::Spread } else { Pin::None };
        let program = ProgramSettings { threads: self.program.threads.or(Some(2)), ..self.program.clone() };
        let mut app = ProgramSpec::new(context, &program, seed)?.pinned(pin);
        app.options.seconds = seconds;
        app.options.warm_up = WARM_UP;
        let beside = launch::competitors(context, self.competitors, &Pin::Spread)?;
        let prepared = launch::prepare(context, &app, StartedBy::Us);
        let expected = WARM_UP + Duration::from_secs_f64(seconds);
        let measured = launch::concurrently(context, vec![prepared], expected, |_, _| Ok(()))?;
        drop(beside);
        let figures = measured.iter().flat_map(|m| figures::program_figures("", m)).collect();
        Ok(RunResult { figures, ..RunResult::default() })
    }

    fn programs(&self) -> Vec<&str> {
        self.program.program.iter().map(String::as_str).collect()
    }
}
