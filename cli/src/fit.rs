//! `unisono fit`: runs a program with as many threads as it really has processors.

use crate::exit::{self, Failure};
use crate::output;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use unisono_fit::{FitHost, FittedProgram, MpiNames, ProgramTraits};
use unisono_launch::Error;
use unisono_launch::side_by_side::{self, Companion};
use unisono_linux::affinity::CpuSet;
use unisono_mpi_preload::{HostMpi, is_launcher};
use unisono_text::counted;

/// Run a program with as many threads as there really are processors
///
/// In a container or a batch job, a program counts the processors of the machine and starts a thread for
/// each. The quota of its control group then stops some threads, and the others wait for them. This command
/// finds out how many processors the program really has, and sets the environment variables of the runtimes
/// that would count wrongly. It prints what it sets, and becomes the program: process number, signals and
/// exit code are the program's.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono fit -- ./solver --size 1000
      the program, with as many threads as it has processors
  unisono fit --dry-run -- python3 train.py
      what would be set and why; nothing is started
  unisono fit -- ./a ::: ./b
      two programs, each on processors of its own

How many: the smallest of these numbers, but at least 1: the processors that the process may use (affinity, cpuset), the \
quota of its control group, and the quota of every group around that one. A fraction of a processor counts as a whole one \
if it is worth more than stopping and starting the threads costs (1.5 is two, 1.04 is one).

What is set: OMP_NUM_THREADS and the variables of OpenBLAS, MKL, BLIS, NumExpr, Rayon and llama.cpp; GOMAXPROCS and \
JAVA_TOOL_OPTIONS where the program's Go or Java does not read the quota itself; OMP_PROC_BIND for OpenMP programs whose \
team takes all processors; otherwise passive waiting (OMP_WAIT_POLICY, KMP_BLOCKTIME, and for MPI yielding) where there are \
more threads than processors, or other programs run now. If other programs run now, OPENBLAS_NUM_THREADS is the number of \
processors that they leave free, but at least 1. What you set yourself stays as it is.

Beside other programs no setting is best in every situation. For each setting it was measured how many \
times as long a program takes as with the best setting of the situation. `fit` uses the setting whose worst case was the smallest, \
and calls it the setting of least regret.

What is not done: a number in the program's code or arguments (-t 8) is not changed; oneTBB reads no variable; a single \
program is not bound to certain processors, because another `unisono fit` might choose the same ones. The wait policy suits the machine \
as it is now: programs that start later are not considered.

Several programs (A ::: B): each gets its part of the cores, or of the processors if there are too few cores. With more \
programs than processors, all share all processors and wait passively. This process stays, passes signals on, and ends \
with the exit code of the program that failed first.

Exit codes: the program's own (128 + N if signal N ended one of several); 2 bad usage, or the program cannot be started.")]
pub(crate) struct Args {
    /// Print what would be set and why; start nothing
    #[arg(long)]
    dry_run: bool,
    /// Print limits and settings as one JSON object on standard output, before the program starts
    #[arg(long)]
    json: bool,
    /// Do not print what is set
    #[arg(long, short)]
    quiet: bool,
    /// The program and its arguments; several programs: CMD ARGS ::: CMD ARGS ...
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The programs of `CMD ARGS ::: CMD ARGS`, each with the traits of its file; `command` is the subcommand for
/// error messages. Fails if a program could not be started.
pub(crate) fn parse_programs(
    words: &[OsString],
    command: &str,
) -> anyhow::Result<Vec<(Vec<OsString>, ProgramTraits)>> {
    let commands: Vec<&[OsString]> = words.split(|word| word == ":::").collect();
    if commands.iter().any(|command| command.is_empty()) {
        let text =
            format!("a program is missing beside `:::`; write: unisono {command} -- CMD ARGS ::: CMD ARGS");
        return Err(Failure::Usage(text).into());
    }
    let mpi = MpiNames { is_launcher, is_library: |name| HostMpi::of_library(name).is_some() };
    let read_program = |command: &[OsString]| {
        let name = Path::new(&command[0]);
        let traits = ProgramTraits::from_command(command, mpi)
            .map_err(|error| usage_error(Error::start(name, format!("find {}", name.display()))(error)))?;
        Ok((command.to_vec(), traits))
    };
    commands.into_iter().map(read_program).collect()
}

/// The value of an environment variable, if it is set.
pub(crate) fn environment_value(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn companion(fitted: &FittedProgram) -> Companion {
    Companion {
        command: fitted.command.clone(),
        environment: fitted.plan.set.iter().map(|setting| (setting.name, setting.value.clone())).collect(),
        cpus: fitted.part.cpus.clone(),
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let programs = parse_programs(&args.command, "fit")?;
    let host = FitHost::read()?;
    let fitted = host.fit(programs, environment_value);
    if args.json {
        output::answer(&fit_json(&host, &fitted).to_string())?;
    }
    let says = !(args.quiet || args.dry_run && args.json);
    if says {
        for line in output_lines(&host, &fitted, args.dry_run) {
            if args.dry_run { output::answer(&line)? } else { exit::print_error(&line) }
        }
    }
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    match &fitted.iter().map(companion).collect::<Vec<_>>()[..] {
        [one] => Err(usage_error(side_by_side::exec(one))),
        several => run_side_by_side(several),
    }
}

fn usage_error(error: Error) -> anyhow::Error {
    match error {
        Error::Input(_) | Error::Program { .. } => Failure::Usage(error.to_string()).into(),
        error => error.into(),
    }
}

/// The command's output: one line for all settings with the same reason, then the settings left alone.
fn output_lines(host: &FitHost, fitted: &[FittedProgram], dry_run: bool) -> Vec<String> {
    let mut lines: Vec<String> = host
        .limits
        .unread
        .iter()
        .map(|file| format!("no limit is read from {file}, because no kernel writes that"))
        .collect();
    for one in fitted {
        let name = Path::new(&one.command[0]).display();
        let who = if fitted.len() == 1 { String::new() } else { format!("{name}: ") };
        if fitted.len() > 1 {
            let threads = counted(one.part.threads, "thread");
            lines.push(format!("{who}{threads} on {}", processors_in_words(&one.part.cpus)));
        }
        let mut rest = &one.plan.set[..];
        while let [first, ..] = rest {
            let same = rest.iter().take_while(|setting| setting.why == first.why).count();
            let words: Vec<String> =
                rest[..same].iter().map(|setting| format!("{}={}", setting.name, setting.value)).collect();
            lines.push(format!("{who}{}: {}", words.join(" "), first.why));
            rest = &rest[same..];
        }
        lines.extend(one.plan.remarks.iter().map(|remark| format!("{who}{remark}")));
        if dry_run && one.plan.set.is_empty() {
            lines.push(format!("{who}nothing to set: {}", host.effective));
        }
    }
    lines
}

fn processors_in_words(cpus: &CpuSet) -> String {
    format!("processor{} {cpus}", if cpus.len() == 1 { "" } else { "s" })
}

fn fit_json(host: &FitHost, fitted: &[FittedProgram]) -> Value {
    let FitHost { limits, effective: there, .. } = host;
    let set = |one: &FittedProgram| -> Vec<Value> {
        let setting = |setting: &unisono_fit::Setting| json!({ "name": setting.name, "value": setting.value, "why": setting.why });
        one.plan.set.iter().map(setting).collect()
    };
    let program = |one: &FittedProgram| {
        let words: Vec<_> = one.command.iter().map(|word| word.to_string_lossy()).collect();
        json!({
            "command": words.join(" "), "processors": one.part.cpus.to_string(), "threads": one.part.threads,
            "set": set(one), "remarks": one.plan.remarks,
        })
    };
    let quota = limits.quota.as_ref();
    json!({
        "effective_processors": there.processors, "because": there.limited_by.to_string(),
        "limits": {
            "affinity": limits.affinity.len(),
            "cpuset": limits.cpuset.as_ref().map(CpuSet::len),
            "quota": quota.map(unisono_linux::quota::Quota::processors),
        },
        "quota_group": quota.map(|quota| quota.group.display().to_string()), "unread": limits.unread,
        "set": fitted.iter().flat_map(set).collect::<Vec<_>>(),
        "programs": fitted.iter().map(program).collect::<Vec<_>>(),
    })
}

fn run_side_by_side(several: &[Companion]) -> anyhow::Result<ExitCode> {
    let ended = side_by_side::run(several, exit::print_error).map_err(usage_error)?;
    let failed = ended.iter().find(|(_, how)| how.is_failure());
    Ok(failed.map_or(ExitCode::SUCCESS, |(_, how)| ExitCode::from(how.code())))
}
