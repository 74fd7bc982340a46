//! `unisono advise --out DIR`: writes the trial as records, and draws the report from them.
//!
//! Each remedy becomes a variant of one study, and each round of the trial a repetition. The observations of
//! the programs and the simulator's predictions become the study's description of its method, because a
//! report is drawn from its records alone.

use super::answer::{self, AdviceAnswer};
use std::collections::BTreeMap;
use std::path::Path;
use unisono_advise::{Prediction, RunEnd, TrialRun, TriedRemedy};
use unisono_measure::record::{
    Better, Chart, ChartKind, FORMAT, Figure, HostFacts, Line, Outcome, RunLine, Scale, StudyLine, Verdict,
};
use unisono_study::record_file::RecordFile;

const STUDY: &str = "advice";

/// Writes `records.jsonl`. The directory must be empty or not exist.
pub(super) fn write(
    file: &mut RecordFile,
    answer: &AdviceAnswer<'_>,
    prediction: Option<&Prediction>,
) -> anyhow::Result<()> {
    file.append(&Line::Study(Box::new(study(answer, prediction))))?;
    let host = unisono_study::host::facts();
    for (sequence, run) in (0..).zip(&answer.trials.runs) {
        file.append(&Line::Run(Box::new(line(run, sequence, prediction, &host))))?;
    }
    Ok(())
}

/// Draws `report.html` beside the records.
pub(super) fn draw(directory: &Path) -> anyhow::Result<()> {
    unisono_report::render(&directory.join("records.jsonl"), &directory.join("report.html"))?;
    Ok(())
}

fn study(answer: &AdviceAnswer<'_>, prediction: Option<&Prediction>) -> StudyLine {
    let chart = |title: &str, figure: &str, label: &str| Chart {
        title: title.to_owned(),
        kind: ChartKind::Strip,
        y: vec![figure.to_owned()],
        y_label: Some(label.to_owned()),
        y_scale: Scale::Log,
        ..Chart::default()
    };
    let mut charts = vec![chart("How long the programs took", "seconds", "seconds until the last one ended")];
    if prediction.is_some() {
        charts.push(chart("What the simulator expects", "simulated_gain", "plain Linux / this way"));
    }
    let against = |remedy: TriedRemedy| Verdict {
        variant: remedy.name().to_owned(),
        against: TriedRemedy::Plain.name().to_owned(),
        figure: "seconds".to_owned(),
        better: Better::Lower,
        sides: Some([remedy.words(), "the programs as they are"].map(str::to_owned)),
        words: format!("{} against the programs as they are", remedy.words()),
        ..Verdict::default()
    };
    let tried = |remedy: &TriedRemedy| answer.trials.runs.iter().any(|run| run.remedy == *remedy);
    let remedies = TriedRemedy::ALL.into_iter().filter(tried);
    let mut labels: BTreeMap<String, String> =
        remedies.clone().map(|remedy| (remedy.name().to_owned(), remedy.words().to_owned())).collect();
    labels.insert("seconds".into(), "time".into());
    labels.insert("simulated_gain".into(), "times as fast as plain Linux, simulated".into());
    StudyLine {
        format: FORMAT.to_owned(),
        study: STUDY.to_owned(),
        topic: STUDY.to_owned(),
        title: "Advice for these programs".to_owned(),
        question: format!("Which setting makes {} fast here?", answer.programs.command(TriedRemedy::Plain)),
        method: answer::method(answer, prediction),
        charts,
        verdicts: remedies.filter(|remedy| *remedy != TriedRemedy::Plain).map(against).collect(),
        labels,
        ..StudyLine::default()
    }
}

fn line(run: &TrialRun, sequence: u32, prediction: Option<&Prediction>, host: &HostFacts) -> RunLine {
    let (outcome, reason) = match &run.ended {
        RunEnd::Succeeded => (Outcome::Measured, None),
        RunEnd::Stopped => (Outcome::Failed, Some(format!("stopped after {:.1} s", run.seconds))),
        RunEnd::Watched => (Outcome::Skipped, Some("it was watched and not started".to_owned())),
        RunEnd::Failed { code, last_line: said } => {
            (Outcome::Failed, Some(format!("exit code {code}: {said}")))
        }
    };
    let mut figures = Vec::new();
    if outcome == Outcome::Measured {
        figures.push(Figure::new("seconds", run.seconds, "s"));
        figures.push(Figure::new("cpu_s", run.observation.ran_s, "s"));
        figures.push(Figure::new("waited_s", run.observation.waited_s, "s"));
        let remedies = prediction.map_or(&[][..], |prediction| &prediction.remedies);
        let gain = remedies.iter().find(|(remedy, _)| *remedy == run.remedy).map(|(_, gain)| *gain);
        figures.extend(gain.map(|gain| Figure::new("simulated_gain", gain, "1")));
    }
    RunLine {
        format: FORMAT.to_owned(),
        study: STUDY.to_owned(),
        topic: STUDY.to_owned(),
        variant: run.remedy.name().to_owned(),
        repetition: u32::try_from(run.round).unwrap_or(u32::MAX),
        sequence,
        outcome,
        reason,
        figures,
        elapsed_s: run.seconds,
        host: HostFacts { foreign_load: None, ..host.clone() },
        commit: unisono_study::COMMIT.to_owned(),
        ..RunLine::default()
    }
}
