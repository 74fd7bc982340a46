//! `unisono gang`: runs programs as gangs, serves gangs, simulates the policy, and undoes the changes of a
//! killed scheduler.

use crate::exit::Failure;
use crate::gang_install;
use crate::gang_service::{self, failure, not_restored};
use crate::gang_simulate;
use crate::gang_table;
use crate::help::{Completed, owned};
use crate::machine_output;
use crate::separators;
use anyhow::Context;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;
use unisono_gang::GangWeight;
use unisono_gang::host::{guardian, leftover, run as host};
use unisono_gang::mechanism::MechanismKind;
use unisono_gang::policy::Backfill;
use unisono_linux::affinity::Tid;
use unisono_linux::terminal;
use unisono_measure::units;
use unisono_text::counted;

/// Run programs as gangs
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo unisono gang run -- ./solver ::: make -j2
      two programs in turns of 20 ms each
  sudo unisono gang daemon
      serve gangs of programs that run already
  sudo unisono gang add --pid 4711
      make such a program a gang of the daemon
  unisono gang simulate --cores 64 --programs 64x50us,64x0us
      what gangs would gain on another machine
  sudo unisono gang restore
      when the scheduler and its guardian were killed

Privilege: `run`, `daemon`, `install` and `uninstall` need root; `run --unprivileged` does not, but switches late. `add`, \
`list`, `remove`, `set`, `top` and `metrics` talk to the daemon. The daemon answers only root, unless it was started with \
`--mode 666`. `simulate` needs no privilege. `restore` needs the privilege that the killed scheduler had.

The guardian is a process that `run` and `daemon` start. If the scheduler is killed, the guardian undoes the scheduler's \
changes and lets all programs run.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: GangCommand,
}

#[derive(Subcommand)]
enum GangCommand {
    Run(Box<RunArgs>),
    Daemon(gang_service::DaemonArgs),
    Add(gang_service::AddArgs),
    List(gang_service::ListArgs),
    Remove(gang_service::RemoveArgs),
    Set(gang_service::SetArgs),
    Top(gang_service::TopArgs),
    Metrics(gang_service::MetricsArgs),
    Install(gang_install::GangInstallArgs),
    Uninstall(gang_install::GangUninstallArgs),
    Simulate(gang_simulate::Args),
    Restore(RestoreArgs),
    #[command(hide = true)]
    Guard(GangGuardArgs),
}

/// Run unmodified programs as gangs: they take turns, and all threads of one run at the same time
///
/// Separate the programs by `:::`. A gang is one program with all its threads and child processes. The
/// programs' output is passed through. The exit code is taken from the first program that failed. A summary
/// follows on standard error.
#[derive(Parser)]
#[command(after_help = "Examples:
  sudo unisono gang run -- ./solver input ::: make -j2
      two programs in turns of 20 ms each
  sudo unisono gang run --slice 5ms --weights 1,2 -- ./background \\
          ::: ./interactive
      shorter turns; the second program gets two thirds of the time
  sudo unisono gang run --share 0.5 -- ./a ::: ./b
      all other programs together can have half of the processor time
  sudo unisono gang run --trace turns.json -- ./a ::: ./b
      a file that ui.perfetto.dev shows: processors, turns, leaks
  sudo unisono gang run --isolate -- ./a ::: ./b
      real-time priorities: other programs get only the part that the kernel
      reserves for them
  unisono gang run --unprivileged -- ./a ::: ./b
      without root: stop signals instead of control groups

Gangs help programs whose threads wait for each other often and briefly. They slow down programs that block often, \
and programs whose threads have unequal work. `unisono study gang` measures both on this machine. A gang that leaves most of \
its cores idle in its turns, or whose threads sleep after each moment of work, therefore rests: it runs without turns, whenever \
it likes, until it wants its cores again (--no-rest: never).

Other programs: when another program interrupts one thread, the whole gang waits. Therefore all other programs together get \
only a tenth of the processor time while gangs want the rest (--share 0.9).

The summary: a switch lasts from the planned moment until all cores run the new gang. `leaked` is the part of the processor \
time that gangs got outside their turns, including during switches. Both come from the kernel's records of context switches, \
which are read in the first ten turns, then in every 17th, and later in every 51st. If they cannot be read, or if a gang left a core idle, the \
summary says that they were not measured, and why. `ended s` is the time since the start of the run. The JSON (--json, --summary) also has \
the skew between the first core and the last, the reason for the mechanism, and the class of the scheduler's own thread.

What changes on the host: the command makes control groups named unisono-PID-RANDOM for the programs, freezes and thaws these groups, \
and sets their weights. It sets the processors of the programs' threads, and a priority above all programs for a thread of its \
own. With --isolate the programs get real-time priorities. Each change is written into a journal before it is made. The command \
undoes its changes when it ends. If it is killed, its guardian process undoes them. If both are killed, `sudo unisono gang \
restore` does.

Ctrl-Z, and every other signal that a process can catch, is passed on to the programs.")]
struct RunArgs {
    /// Length of a slice (1ms to 10s). A gang runs for as many slices as its weight, then the next gang runs
    #[arg(long, default_value = "20ms", value_parser = units::duration)]
    slice: Duration,
    /// Slices that each gang gets before the next gang runs: one number for each gang [default: 1 each]
    #[arg(long, value_delimiter = ',', value_name = "N,N,...")]
    weights: Vec<u32>,
    /// How gangs that wait for their turn are stopped: freeze (the cgroup freezer), real-time (priorities),
    /// sched-ext (a scheduler in the kernel; Linux 7.0, clang; other programs go first), stop (signals),
    /// auto (freeze; real-time with --isolate; stop with --unprivileged)
    #[arg(long, default_value = "auto", value_parser = Completed::new(|| owned(["auto", "freeze", "real-time", "sched-ext", "stop"]), mechanism), hide_possible_values = true)]
    mechanism: MechanismName,
    /// Keep all other programs off the processors by real-time priorities; they get only the time that the
    /// kernel reserves
    #[arg(long)]
    isolate: bool,
    /// Give each thread a core of its own while its gang runs (the default)
    #[arg(long, overrides_with = "no_spread")]
    spread: bool,
    /// Let Linux choose the core of each thread
    #[arg(long)]
    no_spread: bool,
    /// Leave a core idle if the gang whose turn it is does not use it
    #[arg(long)]
    no_backfill: bool,
    /// Let gangs that block take turns, too. Without this option such a gang rests: it runs without turns,
    /// until it uses its cores again
    #[arg(long)]
    no_rest: bool,
    /// The part of the processor time that gangs get while other programs want it, too. All other programs
    /// together get the rest
    #[arg(long, default_value_t = 0.9)]
    share: f64,
    /// The most threads and processes that a gang may have. With sched-ext all gangs together have at most
    /// 75 for each processor
    #[arg(long, default_value_t = 4096)]
    max_threads: u32,
    /// Use only stop signals, as an ordinary user may. They act late, so gangs overlap by up to milliseconds
    /// when they switch
    #[arg(long)]
    unprivileged: bool,
    /// Print the summary as one JSON object on standard output, after the programs' output
    #[arg(long)]
    json: bool,
    /// Print no summary, only warnings and errors
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Write the summary into this file as JSON
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Write into this file which gang ran on which processors and when, for trace viewers
    /// (ui.perfetto.dev, chrome://tracing)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The programs: CMD ARGS ::: CMD ARGS ...
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    commands: Vec<OsString>,
}

#[derive(Clone, Copy)]
struct MechanismName(Option<MechanismKind>);

fn mechanism(text: &str) -> Result<MechanismName, String> {
    if text == "auto" { Ok(MechanismName(None)) } else { text.parse().map(|kind| MechanismName(Some(kind))) }
}

/// Undo the changes of a killed scheduler: control groups, affinities, scheduling classes
///
/// A scheduler undoes its changes when it ends. If it is killed, its guardian undoes them. Use this command
/// when both were killed.
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
        GangCommand::Daemon(args) => gang_service::daemon(args),
        GangCommand::Add(args) => gang_service::add(args),
        GangCommand::List(args) => gang_service::list(&args),
        GangCommand::Remove(args) => gang_service::remove(args),
        GangCommand::Set(args) => gang_service::set(args),
        GangCommand::Top(args) => gang_service::top(&args),
        GangCommand::Metrics(args) => gang_service::metrics(&args),
        GangCommand::Install(args) => gang_install::install(&args),
        GangCommand::Uninstall(args) => gang_install::uninstall(&args),
        GangCommand::Simulate(args) => gang_simulate::run(&args),
        GangCommand::Restore(args) => restore(&args),
        GangCommand::Guard(args) => guard(&args),
    }
}

fn run_gangs(args: RunArgs) -> anyhow::Result<ExitCode> {
    separators::check(&args.commands)?;
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
        slice: args.slice.into(),
        weights,
        mechanism: args.mechanism.0,
        isolate: args.isolate,
        unprivileged: args.unprivileged,
        spread: !args.no_spread || args.spread,
        backfill: if args.no_backfill { Backfill::Never } else { Backfill::Offer },
        blocked: if args.no_rest { host::BlockedGangs::TakeTurns } else { host::BlockedGangs::Rest },
        share: args.share,
        max_threads: args.max_threads,
        trace: args.trace,
        guardian: Some(guardian),
    };
    let summary = host::run(options).map_err(failure)?;
    if let Some(file) = &args.summary {
        let text = machine_output::pretty_json(RUN_FORMAT, &summary)? + "\n";
        std::fs::write(file, text).with_context(|| format!("write the summary to {}", file.display()))?;
    }
    if args.json {
        writeln!(std::io::stdout(), "{}", machine_output::json(RUN_FORMAT, &summary)?)?;
    } else if args.summary.is_none() && !args.quiet {
        let width = terminal::columns(std::io::stderr()).unwrap_or(usize::MAX);
        eprint!("{}", gang_table::summary(&summary, width));
    }
    for warning in &summary.warnings {
        eprintln!("unisono: {warning}");
    }
    summary.not_restored.iter().for_each(|left| not_restored(left));
    match summary.first_failure() {
        Some((gang, code)) => {
            eprintln!("unisono: {gang} ({}) ended with exit code {code}", summary.gangs[gang.0].command);
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The name of the format of the summary that `gang run` writes.
const RUN_FORMAT: &str = "unisono-gang-run-1";

fn restore(args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let leftover::Leftover { restored, alive, unrestored } = leftover::restore();
    let mut out = std::io::stdout();
    if args.json {
        let answer = serde_json::json!({ "restored": restored, "still_running": alive, "left": unrestored });
        writeln!(out, "{}", machine_output::json("unisono-gang-restore-1", &answer)?)?;
    } else {
        let restored = counted(restored, "killed scheduler");
        writeln!(out, "{restored} undone, {alive} still running and left alone")?;
    }
    for what in &unrestored {
        eprintln!("unisono: not restored: {what}");
    }
    Ok(if unrestored.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn guard(args: &GangGuardArgs) -> anyhow::Result<ExitCode> {
    if let Some(done) = guardian::guard(&args.journal, Tid(args.scheduler)).map_err(failure)? {
        eprintln!("unisono: the gang scheduler was killed; its programs go on without gangs");
        for what in &done.unrestored {
            not_restored(what);
        }
    }
    Ok(ExitCode::SUCCESS)
}
