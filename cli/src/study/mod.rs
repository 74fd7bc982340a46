//! `unisono study`: runs studies, shows their progress and prints the result.

mod continued;
mod laboratory;
mod last_lines;
mod progress;

use crate::columns::fold;
use crate::exit::Failure;
use crate::help::Completed;
use crate::live_view::table_width;
use crate::machine_output;
use anyhow::Context as _;
use clap::builder::StringValueParser;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
pub use laboratory::STUDIES as LABORATORY_STUDIES;
pub(crate) use laboratory::become_laboratory;
use last_lines::{fitted, unmeasured_reasons};
use progress::Progress;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use unisono_linux::interrupt;
use unisono_linux::process::is_root;
use unisono_linux::user_namespace;
use unisono_measure::background::BackgroundLoad;
use unisono_measure::evidence::left_out;
use unisono_measure::record::{Line, Outcome};
use unisono_measure::units;
use unisono_study::driver::Context;
use unisono_study::file::StudyFile;
use unisono_study::peer::{self, PeerBench, PeerBuilds};
use unisono_study::plan::{RunPlan, plan};
use unisono_study::profile::Profile;
use unisono_study::record_file::{RecordError, RecordFile};
use unisono_study::runner::{self, Start, StudyOutcome};
use unisono_study::{host, library, summary};
use unisono_text::nearest;

/// A preparation that takes longer than this is announced.
const MIN_REPORTED_PREPARATION: Duration = Duration::from_secs(2);

/// In a list for a narrow terminal, the indentation of a study's question.
const LIST_INDENT: usize = 10;

/// Measure what waiting costs here and which mechanism is worth it
///
/// A study compares several ways to do one thing, its variants. For example, it runs the same programs under
/// plain Linux, pinned to processors ("spread"), with priorities, one after the other, and as gangs. Runs of
/// the variants alternate: if the machine gets slower during a study, this affects all variants alike. When a
/// run has ended, its record is written to DIR/records.jsonl. At the end the report is written to
/// DIR/report.html, and the terminal shows an answer for each topic, with the command to type. If this host
/// cannot run a variant, the study skips the variant and the report gives the reason. Ctrl-C ends the study;
/// the report then shows the runs that were made.
///
/// Run by root, some studies also make control groups, network namespaces and devices in these namespaces,
/// and load BPF programs there. They remove all of this when the run ends. Run by an ordinary user, a study
/// makes its network namespaces in a user namespace, if the kernel allows it; what needs BPF or control
/// groups is skipped. Beyond that, a study writes only DIR, and compiled programs into a cache directory.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  unisono study
      the default set, in two minutes
  unisono study barrier
      what barriers cost
  unisono study rma
      windows, beside the MPIs that are installed
  unisono study tree
      barriers in the switches of simulated networks: a few seconds
  unisono study gang --paper
      the gang studies with the paper's ten repetitions
  unisono study --file mine.toml
      a study of your own; start from what --show granularity prints
  unisono study --continue DIR
      more runs for the comparisons of DIR that are undecided
  unisono study --list
      all studies, and how long each takes

gang-map, ghost-hosts, middleware (except middleware-rpc), monitor and queue (except queue-decisions) are studies of \
unisono-laboratory. It is this program with more studies of the papers. No package has it: unpack the source archive of this release, or clone the repository, and type there \
`cargo build --release -p unisono-laboratory`. Put target/release/unisono-laboratory beside unisono, or on PATH.

A study first watches for three seconds how much of the processors others take. Steady load counts as part of the machine: the runs \
are made under that load, and the answers hold for it. On a quiet machine, and beside load that comes and goes, a run \
during which other programs or the hypervisor take more than 2 % of the processors is made again, up to three times; \
the records keep the disturbed run, and no statistic counts it.
A study has a time limit: two minutes, or 1.1 times its estimated time if that is longer (--paper: none). At the limit, \
repetitions after the first are left out, and the records say which.
Exit code: 0, although some runs failed, as long as each study has a measured run and one topic has an answer; \
the last lines name the failed runs and the command that measures their study again. 1 if all runs of a study failed, if runs failed and no topic has an answer, \
if no report could be drawn, and after Ctrl-C. 3 if this host can measure nothing.")]
pub(crate) struct Args {
    /// Topics, or ids of single studies; --list shows both. Without one, a default set of studies runs in two
    /// minutes. The studies that --list marks with * run only when they, or their topic, are named
    #[arg(value_name = "TOPIC", value_parser = Completed::new(topic_completions, StringValueParser::new()), hide_possible_values = true)]
    topics: Vec<String>,
    /// Few repetitions (the default): two minutes for the default set of studies
    #[arg(long, conflicts_with_all = ["paper", "smoke"])]
    quick: bool,
    /// The paper's ten repetitions and longer runs: three and a half hours for all studies
    #[arg(long, conflicts_with = "smoke")]
    paper: bool,
    /// One short run of each variant, a few seconds in all: shows that the studies work, and is no basis for
    /// conclusions
    #[arg(long)]
    smoke: bool,
    /// New directory for records and report [default: unisono-study-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run this study file instead of the built-in studies; may be repeated
    #[arg(long, value_name = "STUDY.toml", conflicts_with = "topics")]
    file: Vec<PathBuf>,
    /// Add runs to the records in DIR until each comparison is decided and each figure seen three times, or
    /// the time of --for is over; also completes a study that was stopped
    #[arg(
        long = "continue",
        value_name = "DIR",
        conflicts_with_all = ["topics", "quick", "paper", "smoke", "out", "list", "show"]
    )]
    continued: Option<PathBuf>,
    /// With --continue: the time for all further runs [default: 10min]
    #[arg(long = "for", value_name = "DURATION", value_parser = units::duration, requires = "continued")]
    time: Option<Duration>,
    /// Seed of all random choices: the order of runs, arrival times, networks
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// List the studies and how long they take; run nothing
    #[arg(long)]
    list: bool,
    /// Print the file of a built-in study, to start your own from
    #[arg(long, value_name = "ID", conflicts_with_all = ["list", "topics", "file"], add = ArgValueCandidates::new(id_completions))]
    show: Option<String>,
    /// Print the figures and verdicts of every study at the end, not only the answers
    #[arg(long)]
    tables: bool,
    /// Print each record on standard output as well, one JSON object on a line; with --list one for each
    /// study
    #[arg(long)]
    json: bool,
    /// With --list: print the studies as comma-separated values
    #[arg(long, requires = "list", conflicts_with = "json")]
    csv: bool,
}

/// Returns the ids of the built-in studies.
fn id_completions() -> Vec<CompletionCandidate> {
    library::studies().unwrap_or_default().into_iter().map(|file| CompletionCandidate::new(file.id)).collect()
}

/// Returns the completions for TOPIC: the topics, then the ids.
pub(crate) fn topic_completions() -> Vec<String> {
    let all = library::studies().unwrap_or_default();
    let topics: BTreeSet<String> = all.iter().map(|file| file.topic.clone()).collect();
    let own = topics.into_iter().chain(all.into_iter().map(|file| file.id));
    let mut seen = BTreeSet::new();
    own.chain(laboratory::names().map(str::to_owned)).filter(|name| seen.insert(name.clone())).collect()
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let named = args.topics.iter().chain(&args.show).map(String::as_str);
    if let Some(study) = laboratory::first_named(named) {
        return Err(become_laboratory(&laboratory::needed_for(study)));
    }
    if let Some(id) = &args.show {
        return show(id);
    }
    if let Some(directory) = &args.continued {
        return continued::run(&args, directory);
    }
    let profile = match (args.smoke, args.paper) {
        (true, _) => Profile::Smoke,
        (_, true) => Profile::Paper,
        _ => Profile::Quick,
    };
    let planned = chosen_studies(&args)?
        .into_iter()
        .map(|file| {
            let plan = plan(&file, profile, args.seed).map_err(Failure::Usage)?;
            Ok((file, plan))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    if args.list {
        return list(&planned, profile, &args);
    }
    measure(&args, profile, &planned)
}

/// Returns the chosen studies, in the order of the report.
fn chosen_studies(args: &Args) -> anyhow::Result<Vec<StudyFile>> {
    if !args.file.is_empty() {
        let read = |path: &PathBuf| StudyFile::read(path).map_err(|error| Failure::Usage(error.to_string()));
        let files = args.file.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let mut ids = BTreeSet::new();
        if let Some(twice) = files.iter().find(|f| !ids.insert(&f.id)) {
            return Err(Failure::Usage(format!(
                "two study files have the id {:?}; give each its own",
                twice.id
            ))
            .into());
        }
        return Ok(files);
    }
    let all = library::studies()?;
    if args.topics.is_empty() {
        return Ok(all.into_iter().filter(|file| args.list || !file.named_only).collect());
    }
    for name in &args.topics {
        if !all.iter().any(|file| file.is_named(name)) {
            let topics: BTreeSet<&str> = all.iter().map(|f| f.topic.as_str()).collect();
            let own = topics.into_iter().chain(all.iter().map(|f| f.id.as_str()));
            let known: Vec<&str> = own.chain(laboratory::names()).collect();
            let hint = nearest(name, known.iter().copied());
            let hint = hint.map_or(String::new(), |meant| format!("did you mean {meant:?}? "));
            return Err(Failure::Usage(format!(
                "there is no topic or study {name:?}; {hint}`unisono study --list` shows all"
            ))
            .into());
        }
    }
    Ok(all.into_iter().filter(|file| args.topics.iter().any(|name| file.is_named(name))).collect())
}

fn show(id: &str) -> anyhow::Result<ExitCode> {
    let Some(text) = library::study_text(id) else {
        return Err(
            Failure::Usage(format!("there is no study {id:?}; `unisono study --list` shows all")).into()
        );
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn listed((file, plan): &(StudyFile, RunPlan), profile: Profile) -> serde_json::Value {
    serde_json::json!({
        "study": file.id, "topic": file.topic, "title": file.title, "question": file.question,
        "named_only": file.named_only, "runs": plan.runs.len(), "estimate_s": plan.estimate.as_secs_f64(),
        "profile": profile.to_string(), "paper": file.paper.as_ref().map(|paper| &paper.place),
    })
}

fn list(planned: &[(StudyFile, RunPlan)], profile: Profile, args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let width = table_width();
    let mut total = Duration::ZERO;
    if args.csv {
        let rows: Vec<_> = planned.iter().map(|planned| listed(planned, profile)).collect();
        writeln!(out, "{}", machine_output::csv(&rows)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for each in planned {
        let (file, plan) = each;
        if !file.named_only || !args.topics.is_empty() || !args.file.is_empty() {
            total += plan.estimate;
        }
        if args.json {
            let object = listed(each, profile);
            writeln!(out, "{}", machine_output::json("unisono-study-list-1", &object)?)?;
        } else {
            let time = progress::time(plan.estimate);
            let mark = if file.named_only { "*" } else { " " };
            let head =
                format!("{:<9} {:<18} {:>4} runs {time:>8} {mark}", file.topic, file.id, plan.runs.len());
            let question = format!("{}{}", file.question, paper_figures(file));
            if head.chars().count() + 1 + question.chars().count() <= width {
                writeln!(out, "{head} {question}")?;
                continue;
            }
            // in a narrow terminal the question stands below
            writeln!(out, "{}", head.trim_end())?;
            for line in fold(&question, width.saturating_sub(LIST_INDENT).max(1)).lines() {
                writeln!(out, "{:LIST_INDENT$}{line}", "")?;
            }
        }
    }
    if !args.json {
        writeln!(out, "\ntogether about {} with --{profile}", progress::time(total))?;
        if planned.iter().any(|(file, _)| file.named_only) {
            let text = "* only when it or its topic is named: unisono study waits-crowded";
            writeln!(out, "{}", fold(text, width))?;
        }
        if args.topics.is_empty() && laboratory::names().next().is_some() {
            writeln!(out, "{}", fold(&laboratory::further_studies(), width))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the paper's authors and the figures and tables of it that a study repeats, such as ` [Moh et al.,
/// figure 6]`; empty if it repeats none.
fn paper_figures(file: &StudyFile) -> String {
    let texts = file.paper.iter().map(|paper| paper.place.as_str()).chain([file.title.as_str()]);
    let mut found: Vec<String> = Vec::new();
    for text in texts {
        let lower = text.to_lowercase();
        let words: Vec<&str> = lower.split([' ', ',', '(', ')']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let number: String = pair[1].chars().take_while(char::is_ascii_digit).collect();
            let kind = pair[0].trim_end_matches('s');
            let name = format!("{kind} {number}");
            if matches!(kind, "figure" | "table") && !number.is_empty() && !found.contains(&name) {
                found.push(name);
            }
        }
    }
    if found.is_empty() {
        return String::new();
    }
    let first = file.paper.iter().filter_map(|paper| paper.place.split(',').next());
    let authors = first.map(|author| format!("{} et al.", author.trim_end_matches(" et al.")));
    format!(" [{}]", authors.chain(found).collect::<Vec<_>>().join(", "))
}

fn measure(args: &Args, profile: Profile, planned: &[(StudyFile, RunPlan)]) -> anyhow::Result<ExitCode> {
    let now = jiff::Zoned::now();
    let out =
        args.out.clone().unwrap_or_else(|| now.strftime("unisono-study-%Y%m%d-%H%M%S").to_string().into());
    interrupt::catch().context("cannot catch Ctrl-C")?;
    let mut records = RecordFile::create(&out).map_err(|error| match error {
        RecordError::Exists(_) => anyhow::Error::from(Failure::Usage(error.to_string())),
        other => other.into(),
    })?;
    let mut progress = Progress::start(planned, profile, args.json);
    let prepared = Prepared::new(planned, profile, &mut progress)?;
    let start = prepared.start(prepared.began, Vec::new());
    let study_outcome =
        runner::run(planned, profile, start, prepared.context(), &mut records, &mut progress)?;
    progress.end();
    drop(prepared);
    let files: Vec<StudyFile> = planned.iter().map(|(file, _)| file.clone()).collect();
    report_outcome(args, profile, &study_outcome, &out, &files)
}

/// Everything that the runs need: the compiled programs of peers, a directory, and the background load that
/// was measured before the first run.
struct Prepared {
    unisono: PathBuf,
    bench: PeerBench,
    temporary: TempDir,
    cpus: Vec<usize>,
    began: Instant,
    background: Option<BackgroundLoad>,
}

impl Prepared {
    fn new(
        planned: &[(StudyFile, RunPlan)],
        profile: Profile,
        progress: &mut Progress,
    ) -> anyhow::Result<Self> {
        let unisono = std::env::current_exe().context("cannot find the unisono program itself")?;
        // Before any thread is started: a process with several threads cannot enter a user namespace.
        if let Some(why) = enter_user_namespace(planned) {
            progress.print_line(&why);
        }
        let wanted: BTreeSet<&str> = planned
            .iter()
            .flat_map(|(_, plan)| plan.runs.iter().flat_map(|run| run.driver.programs()))
            .map(peer::catalogue::canonical)
            .chain(["unisono"])
            .collect();
        let preparing = Instant::now();
        let builds = if profile == Profile::Smoke { PeerBuilds::Short } else { PeerBuilds::All };
        let bench = PeerBench::prepare(
            &peer::default_cache()?,
            builds,
            &unisono,
            &mut |text| progress.print_line(text),
            |name| wanted.contains(name),
        )?;
        let mut began = preparing;
        if preparing.elapsed() >= MIN_REPORTED_PREPARATION {
            began = Instant::now();
            let (took, left) =
                (progress::time(preparing.elapsed()), planned.iter().map(|(_, plan)| plan.estimate));
            progress.print_line(&format!(
                "programs built in {took}, once; about {} of runs follow",
                progress::time(left.sum())
            ));
        }
        let is_timed = profile != Profile::Smoke && planned.iter().any(|(file, _)| !file.driver.is_simulated);
        let background = is_timed.then(|| host::watch_background(&interrupt::caught)).flatten();
        let cpus = host::cpus();
        let words = background.and_then(|load| load.in_words(cpus.len().try_into().unwrap_or(u32::MAX)));
        words.iter().for_each(|words| progress.print_line(words));
        let prefix = format!("unisono-study-{}-", std::process::id());
        let temporary = tempfile::Builder::new().prefix(&prefix).tempdir();
        let temporary = temporary.context("cannot create a temporary directory")?;
        Ok(Self { unisono, bench, temporary, cpus, began, background })
    }

    /// Returns the start of runs whose time counts from `began` and that follow the lines already recorded.
    fn start(&self, began: Instant, recorded: Vec<Line>) -> Start {
        Start { began, background: self.background, recorded }
    }

    fn context(&self) -> Context<'_> {
        Context {
            bench: &self.bench,
            unisono: &self.unisono,
            directory: self.temporary.path(),
            cpus: &self.cpus,
            interrupted: &interrupt::caught,
        }
    }
}

/// Enters a user namespace, where an ordinary user can create network namespaces. Returns the reason if that
/// fails.
fn enter_user_namespace(planned: &[(StudyFile, RunPlan)]) -> Option<String> {
    let wanted =
        planned.iter().flat_map(|(_, plan)| &plan.runs).any(|run| run.driver.needs_network_namespaces());
    if !wanted || is_root() {
        return None;
    }
    let error = user_namespace::enter().err()?;
    Some(format!(
        "no user namespace here ({error}): what is measured over a link of its own needs root"
    ))
}

fn report_outcome(
    args: &Args,
    profile: Profile,
    study_outcome: &StudyOutcome,
    out: &Path,
    files: &[StudyFile],
) -> anyhow::Result<ExitCode> {
    let mut to: Box<dyn Write> =
        if args.json { Box::new(std::io::stderr()) } else { Box::new(std::io::stdout()) };
    if args.tables {
        write!(to, "{}", tables_text(&study_outcome.lines, table_width()))?;
    }
    let records = out.join("records.jsonl");
    let html = out.join("report.html");
    let drawn = unisono_report::render(&records, &html);
    writeln!(to)?;
    write!(to, "{}", crate::output::plain(&unisono_report::screen(&study_outcome.lines)))?;
    writeln!(to)?;
    if profile == Profile::Smoke {
        writeln!(
            to,
            "This was a smoke run: it shows that the studies work and is no basis for conclusions."
        )?;
    }
    if let Some(signal) = &study_outcome.stopped_by {
        writeln!(to, "{signal}: the runs made until then are kept and reported.")?;
    }
    let runs = || study_outcome.lines.iter().filter_map(Line::run);
    let count = |outcome: Outcome| runs().filter(|run| run.outcome == outcome).count();
    let measured = count(Outcome::Measured);
    let failed = count(Outcome::Failed);
    let disturbed = count(Outcome::Disturbed);
    let cut = left_out(runs());
    let background =
        runs().rev().find_map(|run| run.host.background.and_then(|load| load.in_words(run.host.cpus)));
    if let Some(words) = background {
        writeln!(to, "{}", fold(&words, table_width()))?;
    }
    let lost = [(disturbed, "disturbed"), (cut, "left out when the time was over"), (failed, "failed")];
    let lost: Vec<String> =
        lost.iter().filter(|(n, _)| *n > 0).map(|(n, how)| format!("{n} {how}")).collect();
    if !lost.is_empty() {
        writeln!(to, "runs not counted: {}", lost.join(", "))?;
    }
    let again = |study: &str| again_command(args, profile, study);
    for line in unmeasured_reasons(&study_outcome.lines, &records, &again) {
        writeln!(to, "{}", fold(&line, table_width()))?;
    }
    if profile != Profile::Smoke {
        let again = continued::next_round(args, profile, &study_outcome.lines, files)?;
        let line = continued::undecided_line(&study_outcome.lines, out, files, &again);
        line.map_or(Ok(()), |line| writeln!(to, "{}", fold(&line, table_width())))?;
    }
    writeln!(to, "figures: unisono report {} --text all", out.display())?;
    match &drawn {
        Ok(_) => writeln!(to, "report:  {}", html.display())?,
        Err(error) => writeln!(to, "report:  not drawn: {error}; try `unisono report {}`", out.display())?,
    }
    let studies_with = |outcome: Outcome| -> BTreeSet<&str> {
        runs().filter(|run| run.outcome == outcome).map(|run| run.study.as_str()).collect()
    };
    let is_study_lost = !studies_with(Outcome::Failed).is_subset(&studies_with(Outcome::Measured));
    let has_failed = failed > 0 && (is_study_lost || !unisono_report::has_answer(&study_outcome.lines));
    let is_good = !has_failed && drawn.is_ok() && study_outcome.stopped_by.is_none() && measured > 0;
    if measured == 0 && failed == 0 && study_outcome.stopped_by.is_none() {
        return Err(
            Failure::Host("nothing could be measured on this host; the reasons are above".into()).into()
        );
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Returns the command that measures one study of these anew.
fn again_command(args: &Args, profile: Profile, study: &str) -> String {
    let length = if profile == Profile::Quick { String::new() } else { format!(" --{profile}") };
    if library::study_text(study).is_some() {
        return format!("unisono study {study}{length}");
    }
    let files: String = args.file.iter().map(|path| format!(" --file {}", path.display())).collect();
    format!("unisono study{files}{length}")
}

/// Returns the figures and verdicts of every study, and the lessons of middleware studies, in lines of at
/// most `width` characters.
pub(crate) fn tables_text(lines: &[Line], width: usize) -> String {
    let mut text = summary::summary_text(lines, width);
    for lesson in unisono_report::lessons(lines) {
        let found = if lesson.found.is_empty() { " not answered by these runs" } else { "" };
        text += &format!("\n{}:{found}\n", lesson.name);
        for sentence in &lesson.found {
            text += &format!("  {sentence}\n");
        }
    }
    fitted(&text, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_studies_names_the_papers_figures() {
        let all = library::studies().expect("the built-in studies");
        let named = |id: &str| paper_figures(all.iter().find(|file| file.id == id).expect("a study"));
        for (id, figures) in [
            ("granularity", " [Peter et al., figure 2]"),
            ("tree-latency", " [Moh et al., figure 6]"),
            ("tree-traffic", " [Moh et al., figure 7, table 2]"),
            ("tree-connectivity", " [Moh et al., figure 8]"),
            ("waiting", ""),
        ] {
            assert_eq!(named(id), figures, "{id}");
        }
    }
}
