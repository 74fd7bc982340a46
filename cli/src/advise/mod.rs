//! `unisono advise`: finds the setting that makes these programs fast on this host.

mod answer;
mod page;
mod process;
mod screen;

use crate::exit::{self, Failure};
use crate::fit;
use crate::machine_output;
use crate::output;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use unisono_advise::judge::Circumstances;
use unisono_advise::remedy::{Programs, StartedTogether};
use unisono_advise::trial::{self, TrialBudget};
use unisono_advise::{AdviceVerdict, FitPlan, Prediction, TrialRuns, TriedRemedy, judge, predict};
use unisono_fit::FitHost;
use unisono_launch::side_by_side::{self, Companion};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::topology::Topology;
use unisono_linux::{interrupt, process as own, quota};
use unisono_measure::units;
use unisono_study::record_file::{RecordError, RecordFile};

/// Find out which setting makes your programs fast on this machine
///
/// Runs the programs as they are, then with each remedy by turns: as many threads as processors, waiting
/// threads that sleep, waiting ranks that sleep (MPI), a processor for each thread, processors for each
/// program, one program after the other, a priority, gangs (with other slices, too, where gangs do well). It
/// compares the times round by round, and prints the command of the simplest remedy that is clearly faster.
/// While the programs run, it watches their threads. The answer fits a terminal of 80 columns and 24 lines:
/// what runs, what it waits for, what to type, what that gains, who pays, and how sure it is.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono advise -- ./solver 1000
      one program, beside whatever else runs now
  unisono advise -- ./a ::: ./b
      two programs that run at the same time
  unisono advise --apply -- ./a ::: ./b
      the same, then run them once more with the remedy
  unisono advise --details -- ./a ::: ./b
      all ways, and the conditions under which gangs can pay
  unisono advise --out advice -- ./a ::: ./b
      also write a page, advice/report.html
  unisono advise --pid 4711
      watch a program that runs already; the same screen, but nothing is
      started, so nothing is compared

The programs run many times, with empty input, and their output is discarded. All their other effects happen in each run: each \
run writes the programs' files again, and a run that is stopped half-way leaves them half-written. Do not use this for a program \
that must run only once, or that does not end: make its problem smaller, or use --pid.

As root it can try more: gangs by control groups, and a priority for a single program. For another user gangs are tried by \
stop signals, which act late.

In the first round, a run is stopped when it takes ten times as long as the best run so far, but not before 2 s. Any run is \
stopped after --limit. A remedy whose run was stopped or failed is not tried again; `>` in the table marks it. Each remedy is a \
command line that you can type without this command. The table has plain Linux first, then the fastest ways, as many as \
fit the screen.

A way is judged by the time that it would take without the processors that other programs lose under it. A way that gains \
only what others lose is named with their loss, and advised only with --selfish. No way is advised after fewer than three runs.

With --details the table also has what the simulator expects (unisono gang simulate), if the threads were seen to sleep \
while they wait.

Verdicts: too-many-threads (unisono fit), wait-policy (waiting threads should sleep), pin (a processor for each thread), \
partition (processors for each program), in-turn (one program after the other), priority (the first program before the \
others), gang (unisono gang run), nothing (as it is, it is as fast as with any remedy), \
undecided (the runs differ too much, or the programs fail; the answer names the --for that would decide).

Exit codes: 0 a verdict other than undecided, or the process was watched; 1 undecided; with --apply the programs' own; 2 bad usage, or a program cannot be started.")]
pub(crate) struct Args {
    /// After the verdict, run the programs once more as advised, with their input and output
    #[arg(long, conflicts_with_all = ["pid", "json"])]
    apply: bool,
    /// Watch a process that runs, and all that it started; try no remedies
    #[arg(long, conflicts_with = "command")]
    pid: Option<i32>,
    /// Limit for the trial (default 60s; one round of all ways, and three of the best, are always completed);
    /// with --pid, the time to watch (default 5s)
    #[arg(long = "for", value_name = "DURATION", value_parser = units::duration)]
    time: Option<Duration>,
    /// Stop a run that takes longer
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = units::duration)]
    limit: Duration,
    /// Also advise a way that is faster only because it takes processors from other programs
    #[arg(long, conflicts_with = "pid")]
    selfish: bool,
    /// Write the trial into this new or empty directory: records.jsonl and report.html
    #[arg(long, value_name = "DIR", conflicts_with = "pid")]
    out: Option<PathBuf>,
    /// Print all ways with the simulator's expectation, and the conditions under which gangs can pay
    #[arg(long, conflicts_with = "json")]
    details: bool,
    /// Print the answer as one JSON object on standard output
    #[arg(long)]
    json: bool,
    /// Do not print progress
    #[arg(long, short)]
    quiet: bool,
    /// The program and its arguments; several programs: CMD ARGS ::: CMD ARGS ...
    #[arg(required_unless_present = "pid", trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    interrupt::catch()?;
    if let Some(pid) = args.pid {
        return process::run(pid, args);
    }
    // a program that cannot be started is refused before any program runs
    let files = fit::parse_programs(&args.command, "advise")?;
    let programs = Programs {
        commands: files.iter().map(|(command, _)| command.clone()).collect(),
        unisono: std::env::current_exe()?,
        root: own::is_root(),
        parts: processor_parts(files.len())?,
        rank_programs: files.iter().map(|(_, traits)| traits.rank_programs.clone()).collect(),
    };
    // an existing directory is refused before the programs run in vain
    let mut records =
        args.out.as_deref().map(RecordFile::create).transpose().map_err(|error| match error {
            RecordError::Exists(_) => Failure::Usage(error.to_string()).into(),
            error => anyhow::Error::from(error),
        })?;
    let host = FitHost::read()?;
    let count = files.len();
    let plan = FitPlan::from_programs(&host.fit(files, fit::environment_value));
    let circumstances = |trials: &TrialRuns| Circumstances {
        programs: count,
        processors: host.effective.processors,
        fit: plan.clone().for_runtimes(&trials.runtimes),
        selfish: args.selfish,
    };
    let is_decided =
        |trials: &TrialRuns| judge(trials, &circumstances(trials)).verdict != AdviceVerdict::Undecided;
    let trials = run_trial(args, &programs, &is_decided)?;
    let circumstances = circumstances(&trials);
    let processors = &host.effective;
    let advice = judge(&trials, &circumstances);
    let prediction = predict::team_shape(&trials, &circumstances)
        .and_then(|shape| predict::predict(&shape, &circumstances, &programs.remedies()));
    let answer = answer::AdviceAnswer {
        trials: &trials,
        programs: &programs,
        there: processors,
        advice: &advice,
        process: None,
    };
    print(args, &answer, prediction.as_ref())?;
    if let (Some(file), Some(directory)) = (&mut records, &args.out) {
        page::write(file, &answer, prediction.as_ref())?;
        page::draw(directory)?;
        if !args.quiet {
            eprintln!("report: {}", directory.join("report.html").display());
        }
    }
    match advice.verdict {
        _ if args.apply => apply(&programs, advice.remedy),
        AdviceVerdict::Undecided => Ok(ExitCode::from(1)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints the answer in the form that the user chose.
fn print(
    args: &Args,
    answer: &answer::AdviceAnswer<'_>,
    prediction: Option<&Prediction>,
) -> anyhow::Result<()> {
    let text = if args.json {
        machine_output::json("unisono-advise-1", &answer.json(prediction))?
    } else if args.details {
        answer.details(prediction)
    } else {
        answer.screen()
    };
    Ok(output::answer(&text)?)
}

/// Divides the processors among the programs, so that each has its own. Empty for a single program, or if
/// there are fewer processors than programs.
fn processor_parts(programs: usize) -> anyhow::Result<Vec<CpuSet>> {
    let limits = quota::limits()?;
    if !(2..=limits.affinity.len()).contains(&programs) {
        return Ok(Vec::new());
    }
    let effective = unisono_fit::effective(&limits).processors;
    let all = unisono_fit::partition(&Topology::read(), &limits.affinity, effective, programs);
    Ok(all.into_iter().map(|part| part.cpus).collect())
}

fn run_trial(
    args: &Args,
    programs: &Programs,
    is_decided: &dyn Fn(&TrialRuns) -> bool,
) -> anyhow::Result<TrialRuns> {
    let budget =
        TrialBudget { total: args.time.unwrap_or(Duration::from_secs(60)).into(), run: args.limit.into() };
    let mut say = |round: usize, remedy: TriedRemedy| {
        if !args.quiet {
            eprintln!(
                "round {} of at most {}: {} ({})",
                round + 1,
                trial::MAX_ROUNDS,
                remedy.name(),
                remedy.words()
            );
        }
    };
    let trials = trial::run(programs, &programs.remedies(), budget, &mut say, is_decided, &interrupt::caught);
    trials.map_err(|error| match error {
        trial::Error::Start { .. } => Failure::Usage(error.to_string()).into(),
        error => error.into(),
    })
}

/// Runs the programs with the advised remedy. Returns early only if a program cannot be started.
fn apply(programs: &Programs, remedy: TriedRemedy) -> anyhow::Result<ExitCode> {
    interrupt::usual()?;
    let stages = programs.stages(remedy);
    if let [stage] = &stages[..]
        && let [one] = &companions(stage)?[..]
    {
        return Err(side_by_side::exec(one).into());
    }
    let mut worst = ExitCode::SUCCESS;
    for stage in &stages {
        let ended = side_by_side::run(&companions(stage)?, exit::print_error)?;
        if let Some((_, how)) = ended.iter().find(|(_, how)| how.is_failure()) {
            worst = ExitCode::from(how.code());
            break;
        }
    }
    Ok(worst)
}

fn companions(stage: &StartedTogether) -> anyhow::Result<Vec<Companion>> {
    let cpus = affinity::allowed(Tid::SELF)?;
    let one = |(words, variables): &(Vec<OsString>, Vec<(&'static str, &'static str)>)| Companion {
        command: words.clone(),
        environment: variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        cpus: cpus.clone(),
    };
    Ok(stage.iter().map(one).collect())
}
