//! `unisono gang`: run programs as gangs, simulate the policy, restore what a killed scheduler left.

use crate::exit::Failure;
use crate::gang_table;
use crate::help::{Completed, owned};
use crate::output;
use anyhow::Context;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;
use unisono_gang::host::{guardian, leftover, run as host};
use unisono_gang::mechanism::MechanismKind;
use unisono_gang::policy::Backfill;
use unisono_gang::simulate::{SimulationSpec, simulate};
use unisono_gang::{Error, GangWeight};
use unisono_linux::affinity::Tid;
use unisono_linux::counted::counted;
use unisono_linux::read::HAND_WRITTEN;
use unisono_measure::units;
use unisono_study::peer::nearest;

/// Run programs as gangs
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo unisono gang run -- ./solver ::: make -j2     two programs in turns of 20 ms each
  unisono gang simulate spec.json                    the same policy on simulated cores
  sudo unisono gang restore                          when both scheduler and guardian were killed")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: GangCommand,
}

#[derive(Subcommand)]
enum GangCommand {
    Run(Box<RunArgs>),
    Simulate(SimulateArgs),
    Restore(RestoreArgs),
    #[command(hide = true)]
    Guard(GangGuardArgs),
}

/// Run unmodified programs as gangs: all threads of one run at the same time, the programs take turns
///
/// Programs are separated by `:::`. All their threads and child processes belong to the gang. Their
/// output and the first failing exit code are passed through; a summary follows on standard error.
#[derive(Parser)]
#[command(after_help = "Examples:
  unisono gang run -- ./solver input ::: make -j2
      two programs in turns of 20 ms each
  unisono gang run --slice 5ms --weights 1,2 -- ./background ::: ./interactive
      shorter turns; the second program gets two thirds of the time
  unisono gang run --share 0.5 -- ./a ::: ./b
      other programs keep half of the processor time while they want it, all of them together
  unisono gang run --isolate -- ./a ::: ./b
      real-time priorities: other programs get only the system's reserve

Gangs help programs whose threads wait for each other often and briefly. For programs that block often, \
or whose threads have unequal work, they cost time: try `unisono study gang`.

Other programs: a gang waits as a whole when one of its threads is interrupted, so others keep only a tenth of \
the processor time (--share 0.9), all of them together, and more while no gang wants it.

Summary: a switch takes from the planned moment until all cores run the new gang; what leaked is the part of processor \
time that waiting gangs got, switches included. Both are read from the kernel's own records of context switches \
in some turns (the first ten, then every 17th); where those cannot be made, or a gang left a core idle, the summary says \
that they were not measured and why. `ended s` counts from the start of the run. More is in the JSON (--json, --summary):
the skew between the first core and the last, why this mechanism, the class of the scheduler's own thread.

Ctrl-Z and other signals that a process can catch are passed on to the programs.")]
struct RunArgs {
    /// Length of a turn (1ms to 10s)
    #[arg(long, default_value = "20ms", value_parser = units::duration)]
    slice: Duration,
    /// How many slices each gang gets in its turn, one number a gang
    #[arg(long, value_delimiter = ',', value_name = "N,N,...")]
    weights: Vec<u32>,
    /// How gangs are held back: auto, freeze (the cgroup freezer), real-time (priorities), stop (signals)
    #[arg(long, default_value = "auto", value_parser = Completed::new(|| owned(["auto", "freeze", "real-time", "stop"]), mechanism), hide_possible_values = true)]
    mechanism: MechanismName,
    /// Keep all other programs off the processors (real-time priorities; they get the system's reserve)
    #[arg(long)]
    isolate: bool,
    /// Give each thread a core of its own while its gang runs (the default)
    #[arg(long, overrides_with = "no_spread")]
    spread: bool,
    /// Leave threads where Linux puts them
    #[arg(long)]
    no_spread: bool,
    /// Leave cores idle that the gang in turn does not use
    #[arg(long)]
    no_backfill: bool,
    /// Part of the processor time that gangs get while other programs want it, too; those keep the rest,
    /// together
    #[arg(long, default_value_t = 0.9)]
    share: f64,
    /// The most threads and processes that a gang may have
    #[arg(long, default_value_t = 4096)]
    max_threads: u32,
    /// Do with what an ordinary user may: stop signals, with later switches
    #[arg(long)]
    unprivileged: bool,
    /// Print the summary as one JSON object on standard output, after the programs' output
    #[arg(long)]
    json: bool,
    /// Print no summary, only warnings and errors
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Write the summary as JSON into a file
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// The programs: CMD ARGS ::: CMD ARGS ...
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    commands: Vec<OsString>,
}

#[derive(Clone, Copy)]
struct MechanismName(Option<MechanismKind>);

fn mechanism(text: &str) -> Result<MechanismName, String> {
    if text == "auto" { Ok(MechanismName(None)) } else { text.parse().map(|kind| MechanismName(Some(kind))) }
}

/// Run the gang policy on simulated cores
///
/// SPEC is a JSON file: {"cores":1000,"slice":"20ms","switch":"50us","backfill":true,"gangs":[
/// {"name":"a","threads":700,"work":"2s","weight":1,"arrives":"0","count":20}]}
#[derive(Parser)]
#[command(after_help = "Examples:
  unisono gang simulate spec.json
  unisono gang simulate spec.json --json")]
struct SimulateArgs {
    /// The simulation, a JSON file
    spec: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Put back what killed schedulers left: groups, affinities, classes
///
/// A scheduler that ends restores the machine itself, and its guardian does when it is killed. This is for
/// the case that both were killed.
#[derive(Parser)]
#[command(after_help = "Examples:
  sudo unisono gang restore
  sudo unisono gang restore --json")]
struct RestoreArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Parser)]
struct GangGuardArgs {
    journal: PathBuf,
    scheduler: i32,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        GangCommand::Run(args) => run_gangs(*args),
        GangCommand::Simulate(args) => simulate_spec(&args),
        GangCommand::Restore(args) => restore(&args),
        GangCommand::Guard(args) => guard(&args),
    }
}

fn failure(error: Error) -> anyhow::Error {
    match error {
        Error::Input(text) => Failure::Usage(text).into(),
        Error::Host(text) => Failure::Host(text).into(),
        Error::Start { .. } => Failure::Usage(error.to_string()).into(),
        other => other.into(),
    }
}

fn run_gangs(args: RunArgs) -> anyhow::Result<ExitCode> {
    let commands: Vec<Vec<OsString>> =
        args.commands.split(|word| word == ":::").map(<[OsString]>::to_vec).collect();
    let weights = if args.weights.is_empty() { vec![1; commands.len()] } else { args.weights };
    let weight = |number: &u32| {
        GangWeight::new(*number).ok_or_else(|| {
            Failure::Usage(format!("a weight of {number} is out of range; choose 1 to {}", GangWeight::MAX))
        })
    };
    let weights = weights.iter().map(weight).collect::<Result<Vec<_>, _>>()?;
    if args.unprivileged && (args.isolate || args.mechanism.0.is_some_and(|kind| kind != MechanismKind::Stop))
    {
        let text = "--unprivileged means stop signals; leave out --isolate and --mechanism";
        return Err(Failure::Usage(text.into()).into());
    }
    let mut guardian = Command::new(std::env::current_exe().context("find this program for the guardian")?);
    guardian.args(["gang", "guard"]);
    let options = host::Options {
        commands,
        slice: args.slice,
        weights,
        mechanism: args.mechanism.0,
        isolate: args.isolate,
        unprivileged: args.unprivileged,
        spread: !args.no_spread || args.spread,
        backfill: if args.no_backfill { Backfill::Never } else { Backfill::Offer },
        share: args.share,
        max_threads: args.max_threads,
        guardian: Some(guardian),
    };
    let summary = host::run(options).map_err(failure)?;
    if let Some(file) = &args.summary {
        let text = serde_json::to_string_pretty(&summary)? + "\n";
        std::fs::write(file, text).with_context(|| format!("write the summary to {}", file.display()))?;
    }
    if args.json {
        writeln!(std::io::stdout(), "{}", serde_json::to_string(&summary)?)?;
    } else if args.summary.is_none() && !args.quiet {
        eprint!("{}", gang_table::summary(&summary));
    }
    for warning in &summary.warnings {
        eprintln!("unisono: {warning}");
    }
    match summary.first_failure() {
        Some((gang, code)) => {
            eprintln!("unisono: {gang} ({}) ended with exit code {code}", summary.gangs[gang.0].command);
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// What is wrong with a simulation's file, and where; of an unknown key, which one was meant.
fn bad_spec(name: &str, error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    // serde_json appends the position, and lists the keys between backquotes
    let what = text.split(" at line ").next().unwrap_or(&text);
    let mut quoted = what.split('`').skip(1).step_by(2);
    let what = match (what.starts_with("unknown field"), quoted.next()) {
        (true, Some(key)) => {
            let meant = nearest(key, &quoted.collect::<Vec<_>>()).unwrap_or("gangs");
            format!("unknown key `{key}`; did you mean `{meant}`?")
        }
        _ => format!("{what};"),
    };
    format!("{name}:{line}:{column}: {what} see unisono gang simulate --help")
}

fn simulate_spec(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    let name = args.spec.display();
    let text = unisono_linux::read::text(&args.spec, HAND_WRITTEN)
        .map_err(|error| Failure::Usage(format!("cannot read {name}: {error}")))?;
    let spec: SimulationSpec =
        serde_json::from_str(&text).map_err(|error| Failure::Usage(bad_spec(&name.to_string(), &error)))?;
    let report = simulate(&spec).map_err(failure)?;
    let mut out = std::io::stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        write!(out, "{}", output::plain(&gang_table::simulation(&report)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn restore(args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let leftover::Leftover { restored, alive, left } = leftover::restore();
    let mut out = std::io::stdout();
    if args.json {
        let answer = serde_json::json!({ "restored": restored, "still_running": alive, "left": left });
        writeln!(out, "{answer}")?;
    } else {
        let restored = counted(restored, "killed scheduler");
        writeln!(out, "{restored} undone, {alive} still running and left alone")?;
    }
    for what in &left {
        eprintln!("unisono: not restored: {what}");
    }
    Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn guard(args: &GangGuardArgs) -> anyhow::Result<ExitCode> {
    if let Some(done) = guardian::guard(&args.journal, Tid(args.scheduler)).map_err(failure)? {
        eprintln!("unisono: the gang scheduler was killed; its programs go on without gangs");
        for what in &done.left {
            eprintln!("unisono: not restored: {what}; try: unisono gang restore");
        }
    }
    Ok(ExitCode::SUCCESS)
}
