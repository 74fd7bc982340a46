//! `unisono study --continue DIR`: adds runs to a directory until its comparisons are decided.
//!
//! Each round is one more repetition of the undecided comparisons, and of the runs that were repeated less
//! often than a conclusion needs. The rounds end when no such run is left, when the time of `--for` is over,
//! or at Ctrl-C.

use super::{Args, Prepared, become_laboratory, laboratory, progress, report_outcome};
use crate::exit::Failure;
use crate::output::answer;
use crate::study::progress::Progress;
use anyhow::Context as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unisono_linux::interrupt;
use unisono_measure::record::Line;
use unisono_study::continuation::{self, undecided};
use unisono_study::file::StudyFile;
use unisono_study::library;
use unisono_study::plan::RunPlan;
use unisono_study::profile::Profile;
use unisono_study::record_file::RecordFile;
use unisono_study::runner::{self, StudyOutcome};
use unisono_text::counted;

/// The limit on the time of all rounds, if `--for` does not set one.
const DEFAULT_LIMIT: Duration = Duration::from_secs(600);

pub(super) fn run(args: &Args, directory: &Path) -> anyhow::Result<ExitCode> {
    let path = directory.join("records.jsonl");
    let mut lines = unisono_report::lines(&path).map_err(|error| Failure::Usage(error.to_string()))?;
    let names = lines.iter().filter_map(Line::study).map(|head| head.study.as_str());
    if let Some(study) = laboratory::first_named(names) {
        return Err(become_laboratory(&laboratory::needed_for(study)));
    }
    let (files, profile) = recorded_studies(args, &lines)?;
    let mut planned = next_round(args, profile, &lines, &files)?;
    if planned.is_empty() {
        let decided = counted(undecided(&lines).1, "comparison");
        answer(&format!("each of {decided} is decided: unisono report {}", directory.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    interrupt::catch().context("cannot catch Ctrl-C")?;
    let mut records = RecordFile::continue_in(directory)?;
    let mut progress = Progress::start(&planned, profile, args.json);
    let prepared = Prepared::new(&planned, profile, &mut progress)?;
    let end = Instant::now() + args.time.unwrap_or(DEFAULT_LIMIT);
    let mut stopped_by = None;
    loop {
        let start = prepared.start(Instant::now(), std::mem::take(&mut lines));
        let ran = runner::run(&planned, profile, start, prepared.context(), &mut records, &mut progress)?;
        progress.end();
        (lines, stopped_by) = (ran.lines, ran.stopped_by.or(stopped_by));
        planned = next_round(args, profile, &lines, &files)?;
        let estimate: Duration = planned.iter().map(|(_, plan)| plan.estimate).sum();
        if planned.is_empty() || stopped_by.is_some() || Instant::now() + estimate > end {
            break;
        }
        progress = Progress::start(&planned, profile, args.json);
    }
    report_outcome(args, profile, &StudyOutcome { lines, stopped_by }, directory, &files)
}

/// Plans the next repetition of each study that needs one.
pub(super) fn next_round(
    args: &Args,
    profile: Profile,
    lines: &[Line],
    files: &[StudyFile],
) -> anyhow::Result<Vec<(StudyFile, RunPlan)>> {
    let (open, _) = undecided(lines);
    let mut planned = Vec::new();
    for file in files {
        let plan =
            continuation::next_repetition(file, profile, args.seed, lines, &open).map_err(Failure::Usage)?;
        if !plan.runs.is_empty() {
            planned.push((file.clone(), plan));
        }
    }
    Ok(planned)
}

/// Returns the files of the recorded studies that this program knows or `--file` names, and the profile of
/// the records.
fn recorded_studies(args: &Args, lines: &[Line]) -> anyhow::Result<(Vec<StudyFile>, Profile)> {
    let mut known = library::studies()?;
    for path in &args.file {
        known.insert(0, StudyFile::read(path).map_err(|error| Failure::Usage(error.to_string()))?);
    }
    let mut found: Option<Profile> = None;
    let mut files = Vec::new();
    for head in lines.iter().filter_map(Line::study) {
        let id = &head.study;
        let profiles = [Profile::Smoke, Profile::Quick, Profile::Paper];
        let profile =
            profiles.into_iter().find(|profile| head.profile.as_deref() == Some(&profile.to_string()));
        let Some(profile) = profile.filter(|profile| found.is_none_or(|found| found == *profile)) else {
            return Err(
                Failure::Usage(format!("the records of {id} do not say how long their runs are")).into()
            );
        };
        let Some(file) = known.iter().find(|file| file.id == *id) else {
            let text = format!("there is no study {id:?}; name its file with --file STUDY.toml");
            return Err(Failure::Usage(text).into());
        };
        if file.line(profile) != *head {
            let text = format!("the study {id} has changed since its records were made; measure it anew");
            return Err(Failure::Usage(text).into());
        }
        found = Some(profile);
        files.push(file.clone());
    }
    let Some(profile) = found else {
        return Err(Failure::Usage("the records contain no study".to_owned()).into());
    };
    Ok((files, profile))
}

/// Returns a line that says how much longer it takes to decide the first undecided comparison, and how long
/// the next round of all of them (`again`) takes, or how long it takes to repeat figures that were seen once;
/// `None` if nothing is left to do.
pub(super) fn undecided_line(
    lines: &[Line],
    directory: &Path,
    files: &[StudyFile],
    again: &[(StudyFile, RunPlan)],
) -> Option<String> {
    let (open, all) = undecided(lines);
    let Some(first) = open.iter().map(|one| one.needs).min() else {
        let needs = continuation::time_to_see_again(lines, files.iter())?;
        return Some(format!(
            "seen once or twice: some figures; about {} more would decide them: unisono study --continue {}",
            progress::time(needs),
            directory.display()
        ));
    };
    let round: Duration = again.iter().map(|(_, plan)| plan.estimate).sum();
    let time = match open.len() {
        1 => format!("about {} more would decide it", progress::time(first)),
        _ => format!(
            "about {} more would decide the first, each round of all takes {}",
            progress::time(first),
            progress::time(round)
        ),
    };
    Some(format!(
        "undecided: {} of {}; {time}: unisono study --continue {}",
        open.len(),
        counted(all, "comparison"),
        directory.display()
    ))
}
