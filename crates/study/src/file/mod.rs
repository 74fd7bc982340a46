//! Study files: one claim each, in TOML.
//!
//! ```toml
//! id = "granularity"
//! topic = "gang"
//! title = "..."
//! question = "..."
//! method = "..."
//! driver = "pair"                   # the kind of run
//! repetitions = { smoke = 1, quick = 3, paper = 10 }
//! seconds = { smoke = 0.03, quick = 0.2, paper = 2.0 }
//!
//! [settings]                        # settings of every run
//! threads = 2
//!
//! [[variant]]                       # the variants to compare; runs of one repetition are neighbors in time
//! name = "gang"
//! settings = { regime = "gang", slice_ms = 20 }
//!
//! [[sweep]]                         # parameters to vary; several sweeps: every combination
//! parameter = "interval_us"
//! values = { smoke = [0], quick = [0, 10], paper = [0, 10, 100] }
//!
//! [labels]                          # names of variants, figures, parameters, and values of parameters
//! gang = "gangs"
//! "program=libgomp" = "barriers of OpenMP"
//! ```
//! A line chart's `x` is a swept parameter, or the quantity on the x axis of a figure's curve (`elapsed_s`,
//! if the driver has such curves).
//!
//! Charts have the record format ([`unisono_measure::record`]); verdicts and budgets name the values that
//! they judge by a [`unisono_measure::Selector`]. All are copied into the records, so a report needs no other
//! file. An invalid file is refused with line and column; for an unknown key, with the nearest known key.

mod judged;
mod settings;

use crate::driver::{Driver, DriverKind, Settings};
use crate::profile::{PerProfile, Profile};
use serde::Deserialize;
use serde_json::Value;
pub use settings::WrittenSettings;
use std::collections::BTreeMap;
use std::path::Path;
use unisono_linux::read::HAND_WRITTEN;
use unisono_measure::record::{Budget, Chart, FORMAT, Paper, Question, StudyLine, Verdict};
use unisono_text::{Position, explain_unknown, nearest};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyFile {
    /// Unique among studies.
    pub id: String,
    /// `barrier`, `gang`, ...
    pub topic: String,
    /// Further topics that include this study when they are named.
    #[serde(default)]
    pub also: Vec<String>,
    pub title: String,
    pub question: String,
    /// The programs that run, the programs beside them, the number of runs.
    pub method: String,
    /// The paper's condition that the study examines, if any.
    pub condition: Option<String>,
    /// Position in the report.
    #[serde(default)]
    pub order: u32,
    /// Whether the study runs only if its topic or id is named, because it takes too long for a run of all
    /// studies.
    #[serde(default)]
    pub named_only: bool,
    /// The opening question of the report that the study answers, if any.
    pub answers: Option<Question>,
    /// Readable names of variants, figures and parameters, and of values of a parameter (`PARAMETER=VALUE`).
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    pub paper: Option<Paper>,
    pub driver: &'static DriverKind,
    pub repetitions: PerProfile<u32>,
    /// Measured seconds of a run.
    pub seconds: PerProfile<f64>,
    /// Settings of every run.
    #[serde(default)]
    pub settings: WrittenSettings,
    #[serde(rename = "variant")]
    pub variants: Vec<Variant>,
    #[serde(default, rename = "sweep")]
    pub sweeps: Vec<Sweep>,
    #[serde(default, rename = "chart")]
    pub charts: Vec<Chart>,
    #[serde(default, rename = "verdict", deserialize_with = "judged::verdicts")]
    pub verdicts: Vec<Verdict>,
    /// Limits of figures.
    #[serde(default, rename = "budget", deserialize_with = "judged::budgets")]
    pub budgets: Vec<Budget>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// The variant's name in records, for example `gang`.
    pub name: String,
    /// Settings that override the study's.
    #[serde(default)]
    pub settings: WrittenSettings,
    /// Number of starts for each start of another variant. A variant with two modes needs more starts.
    #[serde(default = "once")]
    pub starts: u32,
    /// The first profile that includes the variant.
    pub from: Option<Profile>,
    /// Restricts the variant to points of the sweeps with these values.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<serde_json::Value>>,
}

fn once() -> u32 {
    1
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    pub parameter: String,
    pub values: PerProfile<Vec<serde_json::Value>>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadStudy {
    #[error("cannot read the study file {path}: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{path}:{line}:{column}: {problem}")]
    Wrong {
        path: String,
        line: usize,
        column: usize,
        /// The problem, and the expected form.
        problem: String,
    },
}

impl StudyFile {
    /// Whether `name` selects this study: its id, its topic, or a topic that also includes it.
    pub fn is_named(&self, name: &str) -> bool {
        self.id == name || self.topic == name || self.also.iter().any(|topic| topic == name)
    }

    pub fn read(path: &Path) -> Result<Self, BadStudy> {
        let name = path.display().to_string();
        let text = unisono_linux::read::text(path, HAND_WRITTEN)
            .map_err(|source| BadStudy::Unreadable { path: name.clone(), source })?;
        Self::parse(&name, &text)
    }

    /// Parses a study file; `path` is for messages only.
    pub fn parse(path: &str, text: &str) -> Result<Self, BadStudy> {
        let wrong = |at: usize, problem: String| {
            let Position { line, column } = Position::at_offset(text, at);
            BadStudy::Wrong { path: path.to_owned(), line, column, problem }
        };
        let mut file: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            wrong(at, explain_unknown(error.message()))
        })?;
        let written = file.variants.iter_mut().map(|variant| &mut variant.settings);
        for settings in std::iter::once(&mut file.settings).chain(written) {
            settings.normalize(file.driver).map_err(|(at, problem)| wrong(at, problem))?;
        }
        file.check().map_err(|(needle, problem)| wrong(find_value(text, &needle), problem))?;
        Ok(file)
    }

    /// Checks conditions that types cannot express. The error holds the text to point at, and the problem.
    fn check(&self) -> Result<(), (String, String)> {
        let is_name = |s: &str| {
            !s.is_empty() && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        if !is_name(&self.id) {
            return Err((self.id.clone(), format!("{:?} is no identifier; use a-z, 0-9 and -", self.id)));
        }
        if self.variants.is_empty() {
            return Err((
                "variant".into(),
                "a study compares variants; write at least one [[variant]]".into(),
            ));
        }
        for (profile, n) in [
            ("smoke", self.repetitions.smoke),
            ("quick", self.repetitions.quick),
            ("paper", self.repetitions.paper),
        ] {
            if !(1..=1000).contains(&n) {
                return Err(("repetitions".into(), format!("{profile}: {n} repetitions; write 1 to 1000")));
            }
        }
        for (profile, s) in
            [("smoke", self.seconds.smoke), ("quick", self.seconds.quick), ("paper", self.seconds.paper)]
        {
            if !(0.001..=600.0).contains(&s) {
                return Err(("seconds".into(), format!("{profile}: {s} seconds; write 0.001 to 600")));
            }
        }
        self.check_variants()?;
        self.check_names()
    }

    fn check_variants(&self) -> Result<(), (String, String)> {
        for (i, variant) in self.variants.iter().enumerate() {
            if !is_variant_name(&variant.name) {
                return Err((
                    variant.name.clone(),
                    format!("{:?} is no variant name; use letters, digits, - and .", variant.name),
                ));
            }
            if self.variants[..i].iter().any(|other| other.name == variant.name) {
                return Err((variant.name.clone(), format!("the variant {:?} is there twice", variant.name)));
            }
            if !(1..=100).contains(&variant.starts) {
                return Err(("starts".into(), format!("{} starts; write 1 to 100", variant.starts)));
            }
            for name in variant.only.keys() {
                if !self.sweeps.iter().any(|s| &s.parameter == name) {
                    return Err((name.clone(), format!("`only` names {name:?}, which is not swept")));
                }
            }
        }
        for sweep in &self.sweeps {
            settings::known(self.driver, &sweep.parameter)
                .map_err(|problem| (sweep.parameter.clone(), problem))?;
            for (profile, values) in [
                ("smoke", &sweep.values.smoke),
                ("quick", &sweep.values.quick),
                ("paper", &sweep.values.paper),
            ] {
                if values.is_empty() {
                    return Err((
                        sweep.parameter.clone(),
                        format!("the sweep of {} has no value for {profile}", sweep.parameter),
                    ));
                }
                for value in values {
                    self.driver.normalize(&sweep.parameter, value).map_err(|e| {
                        (sweep.parameter.clone(), format!("{value} is no {}: {e}", sweep.parameter))
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Checks that verdicts and charts name existing variants: a typing error would leave them empty.
    fn check_names(&self) -> Result<(), (String, String)> {
        let mut recorded = Vec::new();
        for variant in &self.variants {
            let driver = self.run_of(variant, Settings::new());
            let driver = driver.map_err(|problem| (variant.name.clone(), problem))?;
            recorded.extend(driver.record_names(&variant.name));
        }
        let names: Vec<&str> = recorded.iter().map(String::as_str).collect();
        let asked = self.verdicts.iter().flat_map(|v| [&v.variant, &v.against]);
        let drawn = self.charts.iter().flat_map(|c| &c.variants);
        let limited =
            self.budgets.iter().flat_map(|b| [Some(&b.variant), b.divisor.as_ref(), b.subtrahend.as_ref()]);
        let limited = limited.flatten();
        for name in asked.chain(drawn).chain(limited) {
            if !names.contains(&name.as_str()) {
                let hint = match nearest(name, names.iter().copied()) {
                    Some(meant) => format!("did you mean {meant:?}?"),
                    None => format!("there are {}", names.join(", ")),
                };
                return Err((name.clone(), format!("there is no variant {name:?}; {hint}")));
            }
        }
        if let Some(budget) = self.budgets.iter().find(|b| b.most.is_none() && b.least.is_none()) {
            return Err((budget.label.clone(), "a budget needs a limit; write `most` or `least`".to_owned()));
        }
        let over = self.charts.iter().filter_map(|c| c.x.as_ref());
        let over = over.filter(|x| !self.driver.curve_axes.contains(&x.as_str()));
        for by in self.verdicts.iter().filter_map(|v| v.by.as_ref()).chain(over) {
            let is_added = self.driver.added_parameters.contains(&by.as_str());
            if !is_added && !self.sweeps.iter().any(|s| &s.parameter == by) {
                return Err((by.clone(), format!("{by:?} is not swept; write a [[sweep]] of it")));
            }
        }
        Ok(())
    }

    /// Makes the driver of a run: a variant at a point of the sweeps. Does not fail for a file that
    /// [`Self::parse`] accepted.
    pub(crate) fn run_of(&self, variant: &Variant, point: Settings) -> Result<Box<dyn Driver>, String> {
        let mut settings = self.settings.values();
        settings.extend(point);
        settings.extend(variant.settings.values());
        self.driver.build(settings)
    }

    pub fn line(&self, profile: Profile) -> StudyLine {
        let label = |variant: &String| self.labels.get(variant).unwrap_or(variant).clone();
        let named = |verdict: Verdict| {
            let labels = || [&verdict.variant, &verdict.against].map(label);
            let sides = Some(verdict.sides.clone().unwrap_or_else(labels));
            let words = Verdict { sides, ..verdict.clone() }.in_words();
            Verdict { words, ..verdict }
        };
        StudyLine {
            format: FORMAT.to_owned(),
            study: self.id.clone(),
            topic: self.topic.clone(),
            title: self.title.clone(),
            question: self.question.clone(),
            method: self.method.clone(),
            condition: self.condition.clone(),
            paper: self.paper.clone(),
            charts: self.charts.clone(),
            verdicts: self.verdicts.iter().flat_map(|v| self.split(v, profile)).map(named).collect(),
            budgets: self.budgets.clone(),
            order: self.order,
            labels: self.labels.clone(),
            answers: self.answers,
            profile: Some(profile.to_string()),
        }
    }

    /// Splits a verdict into one for each value of the sweeps that it neither fixes nor is split by, so that
    /// one ratio never mixes different points. Points without one of its variants are left out.
    fn split(&self, verdict: &Verdict, profile: Profile) -> Vec<Verdict> {
        let mut split = vec![verdict.clone()];
        for sweep in &self.sweeps {
            let name = &sweep.parameter;
            let values = sweep.values.value_for(profile);
            if values.len() < 2 || verdict.by.as_ref() == Some(name) || verdict.only.contains_key(name) {
                continue;
            }
            let runs_at = |value: &Value| {
                let is_side = |v: &&Variant| {
                    let sides = [&verdict.variant, &verdict.against];
                    // the parts of a variant are recorded under names that begin with the variant's own
                    let parts = |side: &&String| {
                        side.strip_prefix(&v.name).is_some_and(|rest| rest.starts_with('-'))
                            && !self.driver.added_parameters.is_empty()
                    };
                    sides.contains(&&v.name) || sides.iter().any(parts)
                };
                let sides = self.variants.iter().filter(is_side);
                sides.filter_map(|v| v.only.get(name)).all(|known| known.contains(value))
            };
            let at = |verdict: &Verdict, value: &Value| {
                let mut verdict = verdict.clone();
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let words = self.labels.get(&format!("{name}={text}")).cloned().unwrap_or_else(|| {
                    let label = self.labels.get(name).unwrap_or(name);
                    format!("{label} = {text}")
                });
                let before = verdict.circumstance.map(|before| format!("{before}, ")).unwrap_or_default();
                verdict.circumstance = Some(before + &words);
                verdict.only.insert(name.clone(), value.clone());
                verdict
            };
            split = split
                .iter()
                .flat_map(|v| values.iter().filter(|value| runs_at(value)).map(|value| at(v, value)))
                .collect();
        }
        split
    }
}

fn is_variant_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
}

/// Finds the position of `needle` as a value or key, for problems found after parsing. The last occurrence is
/// the likeliest: a duplicate, or a verdict after the variants.
fn find_value(text: &str, needle: &str) -> usize {
    text.rfind(&format!("\"{needle}\"")).or_else(|| text.rfind(needle)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
