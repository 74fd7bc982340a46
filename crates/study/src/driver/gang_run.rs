//! The regime `gang`: the programs run under `unisono gang run`, unmodified and unpinned.

use super::launch::{self, PreparedProgram, ProgramSpec, StartedBy};
use super::{Context, NoResult};
use crate::child::{self, StudyChild};
use serde_json::Value;
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;
use unisono_measure::record::Figure;
use unisono_workload::Measurement;

const END_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs the programs with the scheduler's `options`. Returns each program's measurement and the scheduler's
/// own figures. If the host lacks a requirement, the run is skipped with the scheduler's reason.
pub(crate) fn run(
    context: Context,
    options: &[String],
    apps: Vec<ProgramSpec>,
    seconds: f64,
    lead: Duration,
) -> Result<(Vec<Measurement>, Vec<Figure>), NoResult> {
    let summary = context.directory.join("gang-summary.json");
    let mut command = Command::new(context.unisono);
    command.args(["gang", "run"]).args(options).arg("--json").arg("--summary").arg(&summary).arg("--");
    let begin = launch::begin_after(lead);
    let mut prepared = Vec::new();
    for (i, mut app) in apps.into_iter().enumerate() {
        app.options.start_at = Some(begin);
        let one = launch::prepare(context, &app, StartedBy::Another);
        if i > 0 {
            command.arg(":::");
        }
        command.args(words(&one.command));
        prepared.push(one);
    }
    let mut children = [StudyChild::start(command)?];
    let expected = lead + Duration::from_secs_f64(seconds);
    child::wait_all(&mut children, expected + END_TIMEOUT, context.interrupted)?;
    let measured = prepared.iter().map(PreparedProgram::read).collect::<Result<Vec<_>, _>>()?;
    let figures = read_summary(&summary)?;
    Ok((measured, figures))
}

/// Returns a command as words, with its environment set by `env`, because all gangs of one scheduler inherit
/// the scheduler's environment.
fn words(command: &Command) -> Vec<OsString> {
    let mut words = Vec::new();
    let (set, unset): (Vec<_>, Vec<_>) = command.get_envs().partition(|(_, value)| value.is_some());
    // a variable needs `-u` only if it is set in this process
    let unset: Vec<_> = unset.into_iter().filter(|(name, _)| std::env::var_os(name).is_some()).collect();
    if !set.is_empty() || !unset.is_empty() {
        words.push("env".into());
        for (name, _) in unset {
            words.extend(["-u".into(), name.to_owned()]);
        }
        for (name, value) in set {
            let mut word = name.to_owned();
            word.push("=");
            word.push(value.unwrap_or_default());
            words.push(word);
        }
    }
    words.push(command.get_program().to_owned());
    words.extend(command.get_args().map(ToOwned::to_owned));
    words
}

fn read_summary(path: &std::path::Path) -> Result<Vec<Figure>, NoResult> {
    let failed = |why: String| NoResult::Failed(format!("the gang scheduler's summary: {why}"));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let removed = std::fs::remove_file(path);
    let summary: Value = serde_json::from_str(text.trim()).map_err(|error| failed(error.to_string()))?;
    removed.map_err(|error| failed(error.to_string()))?;
    Ok(figures_of(&summary))
}

/// Returns the scheduler's own figures; missing keys are left out.
fn figures_of(summary: &Value) -> Vec<Figure> {
    let number = |path: &str| summary.pointer(path).and_then(Value::as_f64);
    let mut figures = Vec::new();
    let mut add = |name: &str, unit: &str, value: Option<f64>| {
        figures.extend(value.map(|value| Figure::new(name, value, unit)));
    };
    add("switches", "1", number("/switches"));
    add("switch_us", "us", number("/switch_us/median").or_else(|| number("/switch_us")));
    add("switch_p99_us", "us", number("/switch_us/p99"));
    add("enforced_us", "us", number("/enforced_us/median"));
    add("skew_us", "us", number("/skew_us/median").or_else(|| number("/skew_us")));
    add("leak", "1", number("/leak"));
    add("overhead", "1", number("/overhead"));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedulers_figures_are_read_whether_plain_or_distributions() {
        let summary = serde_json::json!({"switches": 50, "switch_us": {"median": 21.5, "p99": 40}, "skew_us": 3.0, "leak": 0.0002});
        let got: Vec<(String, f64)> = figures_of(&summary).into_iter().map(|f| (f.name, f.value)).collect();
        let wanted = [
            ("switches", 50.0),
            ("switch_us", 21.5),
            ("switch_p99_us", 40.0),
            ("skew_us", 3.0),
            ("leak", 0.0002),
        ];
        assert_eq!(got, wanted.map(|(n, v)| (n.to_owned(), v)));
        assert_eq!(figures_of(&serde_json::json!({})), vec![]);
    }

    #[test]
    fn a_commands_environment_becomes_words() {
        let mut command = Command::new("prog");
        command.arg("--x").env("OMP_WAIT_POLICY", "active").env_remove("SURELY_NOT_SET_ANYWHERE");
        let words: Vec<String> =
            words(&command).into_iter().map(|w| w.to_string_lossy().into_owned()).collect();
        assert_eq!(words, ["env", "OMP_WAIT_POLICY=active", "prog", "--x"]);
        let words: Vec<OsString> = super::words(&Command::new("prog"));
        assert_eq!(words, ["prog"]);
    }
}
