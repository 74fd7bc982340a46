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
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;
use unisono_measure::record::Figure;

/// What a run is.
pub trait Driver: fmt::Debug + Sync {
    /// What study files call it.
    fn name(&self) -> &'static str;

    /// The settings that it reads; a study file that names another is refused.
    fn reads(&self) -> &'static [&'static str];

    /// The parameters that its runs add to their records, beside settings.
    fn adds(&self) -> &'static [&'static str] {
        &[]
    }

    /// The endings of the variant's names under which a run records several measurements.
    fn parts(&self, _: &Settings) -> Option<Vec<String>> {
        None
    }

    /// Whether its figures are calculated: what else the machine does changes nothing.
    fn is_simulated(&self) -> bool {
        false
    }

    /// Whether its programs run at the same time, each with a thread for every processor if the study names
    /// no number.
    fn beside_others(&self) -> bool {
        false
    }

    /// Roughly the time around the measured seconds; of a simulation all of it.
    fn around(&self, settings: &Settings, seconds: f64) -> Duration;

    /// Makes one run.
    ///
    /// # Errors
    /// Why there are no figures.
    fn run(
        &self,
        context: Context,
        settings: &Settings,
        seconds: f64,
        seed: u64,
    ) -> Result<Outcome, NoOutcome>;
}

static ALL: [&dyn Driver; 11] = [
    &single::SingleDriver,
    &pair::PairDriver,
    &wait_cost::WaitCostDriver,
    &burst::BurstDriver,
    &ghost::GhostDriver,
    &tree::TreeDriver,
    &tree_plans::TreePlansDriver,
    &decisions::DecisionsDriver,
    &processor::ProcessorDriver,
    &disk::DiskDriver,
    &link::LinkDriver,
];

impl dyn Driver {
    /// The names under which a variant with these settings is recorded: its own, or one for each part.
    #[must_use]
    pub fn recorded_as(&self, variant: &str, settings: &Settings) -> Vec<String> {
        match self.parts(settings) {
            Some(parts) => parts.into_iter().map(|part| format!("{variant}-{part}")).collect(),
            None => vec![variant.to_owned()],
        }
    }

    /// Roughly how long a run takes, with everything around the measured seconds.
    #[must_use]
    pub fn estimate(&self, settings: &Settings, seconds: f64) -> Duration {
        let around = self.around(settings, seconds);
        if self.is_simulated() {
            return around;
        }
        Duration::from_secs_f64(seconds) + around + crate::host::GAP
    }

    /// The programs that a run with these settings starts, by name (to be built beforehand).
    pub fn programs<'a>(&self, settings: &'a Settings) -> impl Iterator<Item = &'a str> + use<'a> {
        [settings.program.as_deref(), settings.other_program.as_deref()].into_iter().flatten()
    }
}

impl<'de> Deserialize<'de> for &'static dyn Driver {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        static NAMES: LazyLock<Vec<&str>> =
            LazyLock::new(|| ALL.iter().map(|driver| driver.name()).collect());
        let name = String::deserialize(deserializer)?;
        let found = ALL.into_iter().find(|driver| driver.name() == name);
        found.ok_or_else(|| D::Error::unknown_variant(&name, &NAMES))
    }
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
