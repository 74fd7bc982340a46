//! The record format `unisono-record-1`. `study` writes it to `records.jsonl`; `report` reads nothing else.
//!
//! One JSON object a line. A study writes one [`Line::Study`] before its first run. After every run it
//! appends and flushes one [`Line::Run`], so an interrupted study keeps its measurements. Readers ignore
//! unknown keys; new versions may add keys but never rename them.

use crate::background::BackgroundLoad;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The value of `format` in every line.
pub const FORMAT: &str = "unisono-record-1";

/// One line of `records.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    /// A study's question, and how the report draws and judges its runs.
    Study(Box<StudyLine>),
    /// One run: measured, skipped, failed or interrupted.
    Run(Box<RunLine>),
}

impl Line {
    pub fn study(&self) -> Option<&StudyLine> {
        if let Self::Study(study) = self { Some(study) } else { None }
    }

    pub fn run(&self) -> Option<&RunLine> {
        if let Self::Run(run) = self { Some(run) } else { None }
    }
}

/// A study as its readers need it: the question, the paper's statement, the charts, the verdicts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StudyLine {
    pub format: String,
    /// Identifier, unique within a records file, for example `granularity`.
    pub study: String,
    /// `barrier`, `gang`, ...
    pub topic: String,
    pub title: String,
    /// The question that this study answers, in one sentence.
    pub question: String,
    /// Two or three sentences: the programs measured, the programs beside them, the number of runs.
    pub method: String,
    /// The paper's condition that the study examines, if any: `fine-grained`, `balanced`,
    /// `latency-sensitive`, `several-important`, `changing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// The paper's statement in our words, with its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Paper>,
    /// The charts of the report, in order.
    pub charts: Vec<Chart>,
    /// The comparisons of the report, in order.
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
    /// The limits that figures must keep, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
    /// Position in the report, ascending.
    #[serde(default)]
    pub order: u32,
    /// Readable names of variants, figures and parameters, for example `"spread": "spread Linux"`. The report
    /// shows a name without an entry as it is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The opening question of the report that the study as a whole answers, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Question>,
    /// The profile of the runs: `smoke`, `quick` or `paper`. `None` in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

/// A question that the report's opening summary answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// The cost of waiting: of a hand-over by spinning, by yielding, by blocking.
    Waiting,
    /// The gain if each thread has a core of its own (spread against plain Linux).
    Unstacking,
    /// The further gain if the threads of a program run together (gangs against spread Linux).
    Ganging,
    /// The gain if the runtime's setting lets waiting threads sleep.
    PassiveWaiting,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// For example `Peter et al., ETH TR 745, section 3.2, Figure 2`.
    pub place: String,
    /// The statement, in our words.
    pub statement: String,
    /// Published or described points, drawn as the paper's shape beside our values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<PaperPoint>,
    /// Where the points come from: read off the text, or a description of the shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points_note: Option<String>,
    /// How the points are to be read.
    #[serde(default)]
    pub points_are: PointsAre,
}

/// How the paper's points are to be read, and therefore in which chart they may be drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointsAre {
    /// Only the shape is known: drawn in a small separate chart without a value axis.
    #[default]
    Shape,
    /// Ratios such as gang / Linux: drawn behind our ratios.
    Ratios,
    /// Values in the chart's unit: drawn behind ours.
    Values,
}

/// One published point. `y` may be relative, because some texts give ratios and no values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperPoint {
    /// The series of the point, for example `gang`.
    pub series: String,
    /// Position on the x axis, in the chart's unit.
    pub x: f64,
    /// Value, in the unit that `points_note` names.
    pub y: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    /// One line per series over a numeric parameter, with a band from minimum to maximum and a dot per run.
    Line,
    /// One row per variant: a dot per run and a mark at the median. Two modes show as two clusters.
    #[default]
    Strip,
    /// One bar per variant and figure (for several applications side by side); whiskers from minimum to
    /// maximum.
    Bars,
    /// One row per variant (and combination of the other parameters), one column per value of `x`, a ratio in
    /// each cell: the darker, the farther from `reference`.
    Map,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Linear from zero.
    #[default]
    Linear,
    /// Logarithmic; zero on the x axis has a place of its own at the left.
    Log,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    pub title: String,
    pub kind: ChartKind,
    /// For [`ChartKind::Line`] and [`ChartKind::Map`]: the parameter on the x axis. A line chart draws a
    /// figure's curve if this name equals [`Curve::x`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    /// Label and unit of the x axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_label: Option<String>,
    #[serde(default)]
    pub x_scale: Scale,
    /// Names of the figures drawn ([`Figure::name`]): one for lines and strips, any number for bars.
    pub y: Vec<String>,
    /// Label and unit of the value axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y_label: Option<String>,
    #[serde(default)]
    pub y_scale: Scale,
    /// Only runs whose parameters have these values are drawn.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, serde_json::Value>,
    /// Only these variants are drawn, in this order; empty: all, in order of appearance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<String>,
    /// A budget or reference value drawn as a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    /// Whether the paper's points are drawn as a pale shape behind our values.
    #[serde(default)]
    pub paper: bool,
}

/// A horizontal reference, for example a budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The label, for example `budget 50 ns`.
    pub label: String,
    /// Value in the chart's unit.
    pub value: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    #[default]
    Higher,
    Lower,
}

impl Verdict {
    /// Returns `at most ` or `at least ` if the expected ratio is a limit, otherwise an empty text.
    pub fn bound_in_words(&self) -> &'static str {
        match (self.expected_kind, self.better) {
            (ExpectedKind::Value, _) => "",
            (ExpectedKind::Bound, Better::Lower) => "at most ",
            (ExpectedKind::Bound, Better::Higher) => "at least ",
        }
    }
}

/// How an expected ratio is meant: as a limit or as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectedKind {
    /// The ratio is to be at least as good as expected: a budget.
    #[default]
    Bound,
    /// The ratio is to equal the expected ratio within a tolerance: a paper's measured value.
    Value,
}

impl ExpectedKind {
    fn is_bound(&self) -> bool {
        *self == Self::Bound
    }
}

/// A comparison that the report puts into words: `variant` against `against` by `figure`, for each value of
/// `by` if given. Ratios are formed within a repetition (paired).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub variant: String,
    pub against: String,
    pub figure: String,
    /// The divisor of the figure, for example the processor time obtained if the figure is work.
    #[serde(rename = "per", default, skip_serializing_if = "Option::is_none")]
    pub divisor: Option<String>,
    /// The figure with the processors that the programs beside the judged one obtained. The report states
    /// their loss beside the gain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bystanders: Option<String>,
    #[serde(default)]
    pub better: Better,
    /// The parameter by whose values the comparison is split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Only runs with these parameter values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, serde_json::Value>,
    /// The ratio (variant / against) that this project or the paper expects, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_from: Option<String>,
    #[serde(default, skip_serializing_if = "ExpectedKind::is_bound")]
    pub expected_kind: ExpectedKind,
    /// The name of the comparison in words, for example `gangs against pinned threads, no busy loop`.
    pub words: String,
    /// The names of both sides in the words. Without them, readers show the labels of the variants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sides: Option<[String; 2]>,
    /// The part of the words behind the sides: the circumstances of the runs compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circumstance: Option<String>,
    /// The opening question of the report that this comparison answers, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Question>,
}

/// A limit of a figure; the report marks it as kept or missed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// The label, for example `16 B step, fence`.
    pub label: String,
    pub variant: String,
    pub figure: String,
    /// Only runs with these parameter values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, serde_json::Value>,
    /// A variant whose figure in the same repetition is the divisor; the budget then limits the quotient.
    #[serde(rename = "of", default, skip_serializing_if = "Option::is_none")]
    pub divisor: Option<String>,
    /// A variant whose figure in the same repetition is subtracted; the budget then limits the difference.
    #[serde(rename = "over", default, skip_serializing_if = "Option::is_none")]
    pub subtrahend: Option<String>,
    /// The upper limit, in the figure's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
    /// The lower limit, in the figure's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// Whether every run must keep the budget; otherwise the median must.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub every: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    #[default]
    Measured,
    /// Measured while other programs or the hypervisor took processors; `reason` says which. Its figures
    /// count nowhere.
    Disturbed,
    /// The host lacks something; `reason` names it. No figures.
    Skipped,
    /// The run started and failed; `reason` says how. No figures.
    Failed,
    /// The user stopped the run. No figures.
    Interrupted,
    /// Planned, but the study's time was over before the run began; `reason` says so. No figures.
    Cut,
}

impl Outcome {
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Disturbed => "disturbed",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Cut => "left out",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunLine {
    pub format: String,
    pub study: String,
    pub topic: String,
    /// The variant, for example `gang`.
    pub variant: String,
    /// Parameters, for example `{"interval_us": 10, "threads": 2}`.
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// Repetition, from 0; runs of one repetition are neighbours in time and form pairs.
    pub repetition: u32,
    /// Position of the run in the order of measurement, over the whole file.
    pub sequence: u32,
    pub seed: u64,
    pub outcome: Outcome,
    /// Why the run is no data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// RFC 3339 start time.
    pub started: String,
    /// Wall-clock seconds that the run took.
    pub elapsed_s: f64,
    pub host: HostFacts,
    /// The commit of Unisono, or `unknown`.
    pub commit: String,
    /// Reasons to doubt the figures, in words, with the remedy if there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Name, for example `barriers_per_s`, `app1_barriers_per_s`, `ns_per_barrier`.
    pub name: String,
    /// The value; of a distribution, the median.
    pub value: f64,
    /// Unit: `ns`, `us`, `ms`, `s`, `1/s`, `1` (a ratio or count), `%`.
    pub unit: String,
    /// The distribution within this run, if the run measured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// The curve within this run, if the run recorded one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<Box<Curve>>,
}

/// The course of a figure within one run: bytes over time, frames over their delay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Quantity and unit of the x axis, for example `elapsed_s`. A chart of the kind `line` with this `x`
    /// draws the curve.
    #[serde(rename = "over")]
    pub x: String,
    /// Points (x, value), ascending in x. The nth points of several runs belong together.
    pub points: Vec<(f64, f64)>,
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64, unit: &str) -> Self {
        Self { name: name.into(), value, unit: unit.to_owned(), ..Self::default() }
    }

    /// Adds a curve over the x axis `x`.
    #[must_use]
    pub fn with_curve(self, x: &str, points: Vec<(f64, f64)>) -> Self {
        Self { curve: Some(Box::new(Curve { x: x.to_owned(), points })), ..self }
    }

    /// Makes a figure whose value is the distribution's median; keeps the distribution.
    pub fn from_distribution(name: impl Into<String>, unit: &str, distribution: Distribution) -> Self {
        Self { distribution: Some(distribution), ..Self::new(name, distribution.median, unit) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    pub n: u64,
    pub min: f64,
    pub p25: f64,
    pub median: f64,
    pub p75: f64,
    pub p99: f64,
    pub max: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    pub kernel: String,
    pub cpu: String,
    /// Processors that this process may use.
    pub cpus: u32,
    /// Virtual machine, container or neither, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtualization: Option<String>,
    /// Whether the study ran with root's privilege.
    pub root: bool,
    /// Share of processor time (0 to 1) that other programs took just before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_load: Option<f64>,
    /// Share of processor time (0 to 1) that was taken during the run by programs that started before it.
    #[serde(rename = "strangers", default, skip_serializing_if = "Option::is_none")]
    pub foreign_load_during: Option<f64>,
    /// Share of processor time (0 to 1) that the hypervisor took during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    /// The load of other programs before the study. `None` if the study did not watch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundLoad>,
}
