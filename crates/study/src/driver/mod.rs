//! What a run is: one file a driver.
//!
//! A driver turns settings into programs, runs them, and answers figures; it knows nothing of
//! repetitions, records or reports. All of them start programs through [`launch`], which owns deadlines,
//! interruption and cleaning up.

pub mod burst;
pub mod decisions;
pub mod disk;
mod figures;
pub mod gang_run;
pub mod ghost;
pub mod launch;
pub mod link;
pub mod pair;
pub mod processor;
pub mod single;
pub mod tree;
pub mod tree_plans;
pub mod wait_cost;

use crate::child::{ChildError, Interrupted};
use crate::peer::{self, Bench};
use crate::settings::Settings;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use unisono_measure::record::Figure;

/// What a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// One program alone, or beside busy loops.
    Single,
    /// Two or more programs under a regime.
    Pair,
    /// A hand-off between two threads.
    WaitCost,
    /// Streams of bursty requests under a regime.
    Burst,
    /// The exchange of ghost areas by processes, over windows and messages.
    Ghost,
    /// Barriers over networks of switches, simulated.
    Tree,
    /// Trees beyond the paper against the paper's, simulated.
    TreePlans,
    /// Decisions of queueing disciplines, in this process.
    Decisions,
    /// Busy loops that share a processor by weight.
    Processor,
    /// Classes of requests to a disk.
    Disk,
    /// Classes of traffic over a link, under each place where a policy can be enforced.
    Link,
}

/// What a driver is given.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The programs of this host.
    pub bench: &'a Bench,
    /// The `unisono` program itself.
    pub unisono: &'a Path,
    /// A directory for results, removed with the study.
    pub directory: &'a Path,
    /// The processors this process may use.
    pub cpus: &'a [usize],
    /// Whether the user wants to stop.
    pub interrupted: Interrupted<'a>,
}

/// What a run brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub figures: Vec<Figure>,
    /// What makes them doubtful.
    pub warnings: Vec<String>,
    /// What was measured at several places by one start, each a record of its own.
    pub places: Vec<Place>,
    /// Parts that should have been measured and were not, each with the reason.
    pub missing: Vec<(String, String)>,
}

/// A place that a run measured beside others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    /// What was measured: the ending of the variant's name.
    pub part: String,
    /// Where, beside the run's own parameters.
    pub parameters: BTreeMap<String, serde_json::Value>,
    pub figures: Vec<Figure>,
}

/// Why a run brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoOutcome {
    /// The host lacks something: what, and the remedy.
    Skipped(String),
    /// It was tried and failed.
    Failed(String),
    /// The user stopped it.
    Interrupted(String),
}

impl From<ChildError> for NoOutcome {
    fn from(error: ChildError) -> Self {
        match error {
            ChildError::Interrupted(_) => Self::Interrupted(error.to_string()),
            // code 3: this host cannot do it, and the last words say what is missing
            ChildError::Failed { code: Some(3), said, .. } => {
                Self::Skipped(said.trim_start_matches(": ").trim_start_matches("unisono: ").to_owned())
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<peer::Error> for NoOutcome {
    fn from(error: peer::Error) -> Self {
        match error {
            peer::Error::Unavailable { .. } => Self::Skipped(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl Driver {
    /// The settings that this driver reads; a study file that names another is refused.
    #[must_use]
    pub fn reads(self) -> &'static [&'static str] {
        match self {
            Driver::Single => single::READS,
            Driver::Pair => pair::READS,
            Driver::WaitCost => wait_cost::READS,
            Driver::Burst => burst::READS,
            Driver::Ghost => ghost::READS,
            Driver::Tree => tree::READS,
            Driver::TreePlans => tree_plans::READS,
            Driver::Link => link::READS,
            Driver::Disk => disk::READS,
            Driver::Processor => processor::READS,
            Driver::Decisions => decisions::READS,
        }
    }

    /// The parameters that its runs add to their records, beside settings.
    #[must_use]
    pub fn adds(self) -> &'static [&'static str] {
        match self {
            Driver::Ghost => ghost::ADDS,
            Driver::Tree => tree::ADDS,
            Driver::TreePlans => tree_plans::ADDS,
            _ => &[],
        }
    }

    /// The names under which a variant with these settings is recorded: its own, or one a part that its runs
    /// measure.
    #[must_use]
    pub fn recorded_as(self, variant: &str, settings: &Settings) -> Vec<String> {
        let parts = match self {
            Driver::Ghost => ghost::parts(settings),
            Driver::Tree => tree::parts(settings),
            Driver::TreePlans => tree_plans::parts(settings),
            Driver::Decisions => decisions::parts(),
            _ => return vec![variant.to_owned()],
        };
        parts.into_iter().map(|part| format!("{variant}-{part}")).collect()
    }

    /// Whether its figures depend on what else the machine does.
    #[must_use]
    pub fn measures_time(self) -> bool {
        !matches!(self, Driver::Tree | Driver::TreePlans)
    }

    /// Roughly how long a run takes, with everything around the measured seconds.
    #[must_use]
    pub fn estimate(self, settings: &Settings, seconds: f64) -> Duration {
        let around = match self {
            Driver::Single => single::AROUND,
            Driver::WaitCost => wait_cost::AROUND,
            Driver::Pair | Driver::Burst => pair::around(settings),
            Driver::Ghost => ghost::around(settings, seconds),
            Driver::Link => link::around(settings),
            Driver::Processor => processor::AROUND,
            Driver::Disk => disk::AROUND,
            Driver::Decisions => decisions::around(settings, seconds),
            Driver::Tree => return tree::around(settings),
            Driver::TreePlans => return tree_plans::around(settings),
        };
        Duration::from_secs_f64(seconds) + around + crate::host::GAP
    }

    /// Makes one run.
    ///
    /// # Errors
    /// Why there are no figures.
    pub fn run(
        self,
        context: Context,
        settings: &Settings,
        seconds: f64,
        seed: u64,
    ) -> Result<Outcome, NoOutcome> {
        match self {
            Driver::Single => single::run(context, settings, seconds, seed),
            Driver::Pair => pair::run(context, settings, seconds, seed),
            Driver::WaitCost => wait_cost::run(context, settings, seconds, seed),
            Driver::Burst => burst::run(context, settings, seconds, seed),
            // nothing in it is drawn
            Driver::Ghost => ghost::run(context, settings, seconds),
            // what is drawn there is when messages are sent: never the same twice
            Driver::Link => link::run(context, settings, seconds),
            Driver::Processor => processor::run(context, settings, seconds),
            Driver::Disk => disk::run(context, settings, seconds),
            Driver::Decisions => decisions::run(settings, seconds, seed),
            // nothing in it takes its time
            Driver::Tree => tree::run(context, settings, seed),
            Driver::TreePlans => tree_plans::run(context, settings, seed),
        }
    }

    /// The programs that a run with these settings starts, by name (to be built beforehand).
    pub fn programs(self, settings: &Settings) -> impl Iterator<Item = &str> {
        [settings.program.as_deref(), settings.other_program.as_deref()].into_iter().flatten()
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Driver::Single => "single",
            Driver::Pair => "pair",
            Driver::WaitCost => "wait-cost",
            Driver::Burst => "burst",
            Driver::Ghost => "ghost",
            Driver::Tree => "tree",
            Driver::TreePlans => "tree-plans",
            Driver::Link => "link",
            Driver::Disk => "disk",
            Driver::Processor => "processor",
            Driver::Decisions => "decisions",
        })
    }
}
