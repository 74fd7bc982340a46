//! The record format `unisono-record-1`: what `study` writes to `records.jsonl` and the only thing
//! that `report` reads.
//!
//! One JSON object a line. A study announces itself with one [`Line::Study`] before its first run;
//! after every run one [`Line::Run`] is appended and flushed, so that an interrupted study keeps
//! what was measured. Unknown keys are ignored by readers; keys are added, never renamed.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The value of `format` in every line.
pub const FORMAT: &str = "unisono-record-1";

/// One line of `records.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    /// What a study asks, and how its runs are to be drawn and judged.
    Study(Box<StudyLine>),
    /// One run: measured, skipped, failed or interrupted.
    Run(Box<RunLine>),
}

/// A study as its readers need it: the claim, the paper's statement, the figure, the verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StudyLine {
    pub format: String,
    /// Identifier, unique within a records file, for example `granularity`.
    pub study: String,
    /// `barrier`, `gang`, ...
    pub topic: String,
    pub title: String,
    /// The question this study answers, in one sentence.
    pub question: String,
    /// Two or three sentences: what runs, beside what, and how often.
    pub method: String,
    /// Which of the paper's conditions it examines, if one: `fine-grained`, `balanced`,
    /// `latency-sensitive`, `several-important`, `changing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// What the paper says, in our words, with its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Paper>,
    /// What to draw, in order.
    pub charts: Vec<Chart>,
    /// What to judge, in order.
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
    /// What figures must not exceed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
    /// Position in the report (ascending).
    #[serde(default)]
    pub order: u32,
    /// What to call variants, figures and parameters in front of readers, for example `"spread": "spread
    /// Linux"`. A name that is missing here is shown as it is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Which of the report's opening questions the study as a whole answers, if one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Question>,
}

/// A question that the report's opening summary answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// What does it cost to wait: a hand-over by spinning, yielding, blocking?
    Waiting,
    /// What is it worth to give each thread a core of its own (spread against plain Linux)?
    Unstacking,
    /// What is it worth, beyond that, to run the threads of a program together (gangs against spread
    /// Linux)?
    Ganging,
    /// What is it worth to let threads sleep while they wait, by the setting of their runtime?
    PassiveWaiting,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// For example `Peter et al., ETH TR 745, section 3.2, Figure 2`.
    pub place: String,
    /// The statement, in our words.
    pub statement: String,
    /// Published or described points, drawn as the paper's shape beside ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<PaperPoint>,
    /// What the points are: read off the text, or a description of the shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points_note: Option<String>,
    /// How the points are to be read.
    #[serde(default)]
    pub points_are: PointsAre,
}

/// How the paper's points are to be read, and so where they may be drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointsAre {
    /// Only the shape is known: drawn in a small chart of its own, without a value axis.
    #[default]
    Shape,
    /// Ratios such as gang / Linux: drawn behind our ratios.
    Ratios,
    /// Values in the chart's unit: drawn behind ours.
    Values,
}

/// One published point: `y` may be relative (the text gives ratios, not values).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperPoint {
    /// The series it belongs to, for example `gang`.
    pub series: String,
    /// Position on the x axis, in the chart's unit.
    pub x: f64,
    /// Value, in the unit that `points_note` names.
    pub y: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    /// One line a series over a numeric parameter, with minimum and maximum as a band and a dot a run.
    Line,
    /// One row a variant: a dot a run, a median mark. Shows two modes as two clusters.
    #[default]
    Strip,
    /// One bar a variant and figure (for several applications side by side), whiskers from minimum to
    /// maximum.
    Bars,
    /// One row a variant (and combination of the other parameters), one column a value of `x`, in each cell
    /// a ratio: the darker, the farther from `reference`.
    Map,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Linear from zero.
    #[default]
    Linear,
    /// Logarithmic; a value of zero on the x axis gets a place of its own at the left.
    Log,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    pub title: String,
    pub kind: ChartKind,
    /// For [`ChartKind::Line`] and [`ChartKind::Map`]: the parameter on the x axis. For a line also what the
    /// curves of the figures are drawn over ([`Curve::over`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    /// Label and unit of the x axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_label: Option<String>,
    #[serde(default)]
    pub x_scale: Scale,
    /// Names of the figures drawn ([`Figure::name`]); one for lines and strips, any number for bars.
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
    /// Draw the paper's points as the pale shape behind ours.
    #[serde(default)]
    pub paper: bool,
}

/// A horizontal reference, for example a budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// What it is, for example `budget 50 ns`.
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

/// How an expected ratio is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectedKind {
    /// The ratio is to be as good, or better: a budget.
    #[default]
    Bound,
    /// The ratio is to be this one, neither less nor more: what a paper measured.
    Value,
}

impl ExpectedKind {
    fn is_bound(&self) -> bool {
        *self == Self::Bound
    }
}

/// A comparison that the report turns into words: `variant` against `against` on `figure`, per
/// value of `by` if given. Ratios are formed within a repetition (paired) and bootstrapped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    pub variant: String,
    pub against: String,
    pub figure: String,
    /// The figure is divided by this one, for example work by the processor time that it obtained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<String>,
    /// Processors that the programs beside the judged one obtained. Their loss is told with the gain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bystanders: Option<String>,
    #[serde(default)]
    pub better: Better,
    /// A parameter by whose values the comparison is split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Only runs with these parameter values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, serde_json::Value>,
    /// The ratio (variant / against) that this project or the paper expects, if one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_from: Option<String>,
    #[serde(default, skip_serializing_if = "ExpectedKind::is_bound")]
    pub expected_kind: ExpectedKind,
    /// What to call the comparison in words, for example `gangs against pinned threads`.
    pub words: String,
    /// Which of the report's opening questions this comparison answers, if one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Question>,
}

/// A figure's upper limit, which the report marks as reached or missed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// What to call it, for example `16 B step, fence`.
    pub label: String,
    pub variant: String,
    pub figure: String,
    /// Only runs with these parameter values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, serde_json::Value>,
    /// Compared with the figure of this variant in the same repetition: the quotient counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Compared with the figure of this variant in the same repetition: the difference counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// What it must not exceed, in the figure's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
    /// What it must reach, in the figure's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// Whether every run must keep to it; otherwise the median must.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub every: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    #[default]
    Measured,
    /// Measured while somebody else took processors; `reason` says who. Its figures count nowhere.
    Disturbed,
    /// The host lacks something; `reason` names it. No figures.
    Skipped,
    /// It was tried and failed; `reason` says how. No figures.
    Failed,
    /// Stopped by the user while it ran. No figures.
    Interrupted,
    /// Planned, but the study's time was over; `reason` says so. No figures.
    Cut,
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
    /// Place in the order in which the runs were made, over the whole file.
    pub sequence: u32,
    pub seed: u64,
    pub outcome: Outcome,
    /// Why it is no data.
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
    /// Anything that makes the figures doubtful, in words, with the remedy where there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Name, for example `barriers_per_s`, `app1_barriers_per_s`, `ns_per_barrier`.
    pub name: String,
    /// The value (the median where a distribution was measured).
    pub value: f64,
    /// Unit: `ns`, `us`, `ms`, `s`, `1/s`, `1` (a ratio or count), `%`.
    pub unit: String,
    /// The distribution within this run, where one was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// How it went within this run, where that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<Box<Curve>>,
}

/// A figure within one run: bytes over time, frames over their delay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// What it is drawn over, with its unit, for example `elapsed_s`. A chart of the kind `line` with this
    /// `x` draws it.
    pub over: String,
    /// Place and value, ascending in place. The nth points of several runs belong together.
    pub points: Vec<(f64, f64)>,
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64, unit: &str) -> Self {
        Self { name: name.into(), value, unit: unit.to_owned(), ..Self::default() }
    }

    /// The same with its curve over something.
    #[must_use]
    pub fn along(self, over: &str, points: Vec<(f64, f64)>) -> Self {
        Self { curve: Some(Box::new(Curve { over: over.to_owned(), points })), ..self }
    }

    /// The median of a distribution, with the distribution.
    pub fn median(name: impl Into<String>, unit: &str, of: Distribution) -> Self {
        Self { distribution: Some(of), ..Self::new(name, of.median, unit) }
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
    /// Processors this process may use.
    pub cpus: u32,
    /// Virtual machine, container or neither, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtualization: Option<String>,
    /// Whether it ran with root's privilege.
    pub root: bool,
    /// Share of processor time (0 to 1) that other programs took just before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_load: Option<f64>,
    /// Share of processor time that programs took during the run which ran before it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strangers: Option<f64>,
    /// Share of processor time that the hypervisor took during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
}
