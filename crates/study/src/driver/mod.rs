//! The kinds of runs: one file for each driver.
//!
//! A driver is a struct of its settings. It starts programs (or simulates) according to the settings and
//! returns figures. It knows nothing of repetitions, records or reports. A new driver is one file in this
//! folder and one line in [`DRIVERS`]:
//!
//! ```text
//!   #[derive(Debug, Default, Serialize, Deserialize)]
//!   #[serde(default)]
//!   pub struct MyDriver { pub rate: Option<f64>, ... }   // every setting has a default
//!   impl Driver for MyDriver { ... }
//!   pub const MY: DriverKind = DriverKind::new::<MyDriver>("my");
//! ```
//! Settings that several drivers share are a struct that each driver flattens (`#[serde(flatten)]`). All
//! drivers start programs through [`launch`], which handles deadlines, interruption and cleanup.

pub(crate) mod burst;
pub(crate) mod bystander;
pub mod conversation;
pub(crate) mod decisions;
pub mod exchange_hosts;
mod figures;
pub(crate) mod gang_run;
pub mod ghost;
pub mod launch;
pub(crate) mod null_rpc;
pub(crate) mod pair;
pub mod regime;
pub mod run_host;
pub(crate) mod single;
pub(crate) mod tree;
pub(crate) mod tree_plans;
pub(crate) mod wait_cost;

use crate::child::{ChildError, Interrupted};
use crate::peer::{self, PeerBench};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;
use unisono_linux::process::is_root;
use unisono_measure::record::Figure;

/// The drivers of this crate; another program may add more.
pub static DRIVERS: [DriverKind; 9] = [
    single::SINGLE,
    pair::PAIR,
    wait_cost::WAIT_COST,
    burst::BURST,
    ghost::GHOST,
    tree::TREE,
    tree_plans::TREE_PLANS,
    decisions::DECISIONS,
    null_rpc::NULL_RPC,
];

/// Returns all drivers that a study file can name.
fn drivers() -> impl Iterator<Item = &'static DriverKind> {
    DRIVERS.iter().chain(ADDED.get().copied().unwrap_or_default())
}

static ADDED: OnceLock<&'static [DriverKind]> = OnceLock::new();

pub(crate) fn add(drivers: &'static [DriverKind]) {
    ADDED.get_or_init(|| drivers);
}

/// Settings by name, as written in a study file.
pub type Settings = Map<String, Value>;

pub trait Driver: fmt::Debug {
    /// Returns the estimated time in addition to the measured seconds; for a simulation, the whole time.
    fn estimated_overhead(&self, seconds: f64) -> Duration;

    fn run(&self, context: Context, seconds: f64, seed: u64) -> Result<RunResult, NoResult>;

    /// Returns the suffixes of the variant's name, if a run records several measurements.
    fn parts(&self) -> Option<Vec<String>> {
        None
    }

    /// Returns the programs that a run starts, by name. The study builds them before its first run.
    fn programs(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Whether a run creates network namespaces; an ordinary user does that inside a user namespace.
    fn needs_network_namespaces(&self) -> bool {
        false
    }

    /// Returns a parameter that the driver chooses on this host if no setting gives it, for the record.
    fn chosen_parameter(&self, _: Context) -> Option<(&'static str, Value)> {
        None
    }
}

impl dyn Driver {
    /// Returns the names that records use for a variant with these settings: its own, or one for each part.
    pub(crate) fn record_names(&self, variant: &str) -> Vec<String> {
        match self.parts() {
            Some(parts) => parts.into_iter().map(|part| format!("{variant}-{part}")).collect(),
            None => vec![variant.to_owned()],
        }
    }
}

/// A driver as study files know it.
#[derive(Debug)]
pub struct DriverKind {
    pub name: &'static str,
    /// Parameters of its records that are no settings.
    pub added_parameters: &'static [&'static str],
    /// Quantities on the x axis of its figures' curves.
    pub curve_axes: &'static [&'static str],
    /// Whether its figures are computed, so that other load on the machine does not affect them.
    pub is_simulated: bool,
    build_fn: fn(Settings) -> serde_json::Result<BuiltDriver>,
}

/// A driver with all its settings, defaults included.
type BuiltDriver = (Box<dyn Driver>, Settings);

impl DriverKind {
    /// Makes a driver that measures and adds no parameters.
    pub const fn new<D: Driver + Default + Serialize + DeserializeOwned + 'static>(
        name: &'static str,
    ) -> Self {
        Self {
            name,
            added_parameters: &[],
            curve_axes: &[],
            is_simulated: false,
            build_fn: read_settings::<D>,
        }
    }

    /// Returns the same driver, with these quantities on the x axis of its figures' curves.
    #[must_use]
    pub const fn with_curve_axes(self, axes: &'static [&'static str]) -> Self {
        Self { curve_axes: axes, ..self }
    }

    /// The same driver, whose records have these parameters beside its settings.
    #[must_use]
    pub const fn with_added_parameters(self, parameters: &'static [&'static str]) -> Self {
        Self { added_parameters: parameters, ..self }
    }

    /// Marks the driver as a simulation: its figures are computed and not measured.
    #[must_use]
    pub const fn simulated(self) -> Self {
        Self { is_simulated: true, ..self }
    }

    pub fn build(&self, settings: Settings) -> Result<Box<dyn Driver>, String> {
        (self.build_fn)(settings).map(|(driver, _)| driver).map_err(|error| error.to_string())
    }

    pub fn settings(&self) -> Vec<String> {
        (self.build_fn)(Settings::new())
            .map(|(_, all)| all.into_iter().map(|(name, _)| name).collect())
            .unwrap_or_default()
    }

    /// Returns a setting's value as the driver reads it: `20` becomes `20.0` if the setting has fractions.
    /// The name must be one of [`Self::settings`].
    pub(crate) fn normalize(&self, name: &str, value: &Value) -> serde_json::Result<Value> {
        let (_, mut all) = (self.build_fn)(Settings::from_iter([(name.to_owned(), value.clone())]))?;
        Ok(all.remove(name).unwrap_or_default())
    }
}

fn read_settings<D: Driver + Default + Serialize + DeserializeOwned + 'static>(
    settings: Settings,
) -> serde_json::Result<BuiltDriver> {
    let driver: D = serde_json::from_value(Value::Object(settings))?;
    let all = match serde_json::to_value(&driver)? {
        Value::Object(all) => all,
        _ => Settings::new(),
    };
    Ok((Box::new(driver), all))
}

impl<'de> Deserialize<'de> for &'static DriverKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| drivers().map(|driver| driver.name).collect());
        let name = String::deserialize(deserializer)?;
        let found = drivers().find(|driver| driver.name == name);
        found.ok_or_else(|| D::Error::unknown_variant(&name, &NAMES))
    }
}

#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub bench: &'a PeerBench,
    /// The `unisono` program.
    pub unisono: &'a Path,
    /// Directory for results; removed with the study.
    pub directory: &'a Path,
    /// The processors that this process may use.
    pub cpus: &'a [usize],
    pub interrupted: Interrupted<'a>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunResult {
    /// Figures of the whole run; empty if `parts` has them.
    pub figures: Vec<Figure>,
    /// Reasons to doubt the figures.
    pub warnings: Vec<String>,
    /// Measurements of one start that are recorded separately.
    pub parts: Vec<MeasuredPart>,
    /// Parts that were not measured, each with the reason.
    pub missing: Vec<(String, String)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasuredPart {
    /// The suffix of the variant's name.
    pub name: String,
    /// Parameters in addition to the run's own.
    pub parameters: BTreeMap<String, Value>,
    pub figures: Vec<Figure>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoResult {
    /// The host lacks a requirement: the text names it and the remedy.
    Skipped(String),
    Failed(String),
    Interrupted(String),
}

impl From<ChildError> for NoResult {
    fn from(error: ChildError) -> Self {
        match error {
            ChildError::Interrupted(_) => Self::Interrupted(error.to_string()),
            // exit code 3: this host cannot run the program; the last line of standard error names the
            // missing part
            ChildError::Failed { code: Some(3), last_line, .. } => {
                Self::Skipped(last_line.trim_start_matches(": ").trim_start_matches("unisono: ").to_owned())
            }
            // an ordinary user may choose only some congestion controls, even in a namespace
            ChildError::Failed { last_line, .. }
                if last_line.ends_with("operation not permitted") && !is_root() =>
            {
                Self::Skipped(format!("{}; this needs root", last_line.trim_start_matches(": ")))
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<peer::Error> for NoResult {
    fn from(error: peer::Error) -> Self {
        match error {
            peer::Error::Unavailable { .. } => Self::Skipped(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}
