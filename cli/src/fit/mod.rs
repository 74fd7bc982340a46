//! `unisono fit`: runs a program with as many threads as it may really use processors.

mod oci;

use crate::exit::{self, Failure};
use crate::machine_output;
use crate::output;
use crate::separators;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use unisono_fit::{FitHost, FittedProgram, MpiNames, ProcessorLease, ProgramTraits, Setting, ranks};
use unisono_launch::Error;
use unisono_launch::side_by_side::{self, Companion};
use unisono_linux::affinity::CpuSet;
use unisono_linux::terminal;
use unisono_mpi_preload::{HostMpi, is_launcher};
use unisono_text::counted;

/// Run a program with as many threads as there really are processors
///
/// In a container or a batch job, a program counts the processors of the machine and starts a thread for
/// each. The quota of its control group then stops some threads, and the others wait for them. This command
/// finds out how many processors the program really has, and sets the environment variables of all runtimes
/// that would count wrongly, for the program and for the programs that it starts. It prints what it sets, and
/// becomes the program: process number, signals and exit code are the program's.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono fit -- ./solver --size 1000
      the program, with as many threads as it has processors
  unisono fit --dry-run -- python3 train.py
      what would be set and why; nothing is started
  unisono fit -- ./a ::: ./b
      two programs, each on processors of its own
  unisono fit --oci-runtime runc -- create --bundle DIR ID
      as a container engine's runtime: the variables go into the container's
      configuration

How many: the smallest of these numbers, but at least 1: the processors that the process may use (affinity, cpuset), the \
quota of its control group, and the quota of every group around that one. A fraction of a processor counts as a whole one \
if it is worth more than stopping and starting the threads costs (1.5 is two, 1.04 is one).

What is set: OMP_NUM_THREADS and the variables of all known runtimes that would count too many, whatever the program's file \
shows (--dry-run prints them); GOMAXPROCS, unless the program is a Go program that counts right itself; for a program called \
java whose Java does not count the quota, the option -XX:ActiveProcessorCount; OMP_PROC_BIND for OpenMP programs whose \
team takes all processors; otherwise passive waiting (OMP_WAIT_POLICY, KMP_BLOCKTIME, and for MPI yielding) where there are \
more threads than processors, or other programs run now. If other programs run now, OPENBLAS_NUM_THREADS is the number of \
processors that they leave free, but at least 1. What you set yourself stays as it is.

Beside other programs no setting is best in every situation. For each setting it was measured how many \
times as long a program takes as with the best setting of the situation. `fit` uses the setting whose worst case was the smallest, \
and calls it the setting of least regret.

MPI: of the ranks on a host, each gets its part of the processors, whether this command starts mpiexec or mpiexec this command.

Leases: with --bind, a program with a quota below the processors that it may use is bound to as many as it has, so that \
runtimes without a variable (oneTBB, ffmpeg, x264) count right, too. Every `unisono fit --bind` of the host sees which \
processors are leased, and chooses others while there are any. A lease ends with the program. --bind is not the default: beside a program \
that is bound to the same processor, a bound program takes up to 1.9 times as long.

What is not done: a number in the program's code or arguments (-t 8) is not changed. The wait policy and the lease suit the machine \
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
    /// If a quota gives the program fewer processors than its affinity allows, bind it to that many (a lease)
    #[arg(long)]
    bind: bool,
    /// Set the variables in the configuration of the container that this OCI runtime creates, and become the
    /// runtime; CMD is the runtime's arguments
    #[arg(long, value_name = "RUNTIME", conflicts_with_all = ["bind", "json"])]
    oci_runtime: Option<PathBuf>,
    /// Do not print what is set
    #[arg(long, short)]
    quiet: bool,
    /// The program and its arguments; several programs: CMD ARGS ::: CMD ARGS ...
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Parses the programs of `CMD ARGS ::: CMD ARGS` and reads the traits of each program's file. `command` is
/// the subcommand for error messages. Fails if a program could not be started.
pub(crate) fn parse_programs(
    words: &[OsString],
    command: &str,
) -> anyhow::Result<Vec<(Vec<OsString>, ProgramTraits)>> {
    separators::check(words)?;
    let commands: Vec<&[OsString]> = words.split(|word| word == ":::").collect();
    if commands.iter().any(|command| command.is_empty()) {
        let text =
            format!("a program is missing beside `:::`; write: unisono {command} -- CMD ARGS ::: CMD ARGS");
        return Err(Failure::Usage(text).into());
    }
    let mpi = MpiNames {
        is_launcher,
        is_library: |name| HostMpi::of_library(name).is_some(),
        waits_awake: |name| HostMpi::of_library(name) == Some(HostMpi::Mpich),
    };
    let read_program = |command: &[OsString]| {
        let name = Path::new(&command[0]);
        let traits = ProgramTraits::from_command(command, mpi)
            .map_err(|error| usage_error(Error::start(name, format!("find {}", name.display()))(error)))?;
        Ok((command.to_vec(), traits))
    };
    commands.into_iter().map(read_program).collect()
}

/// Returns the value of an environment variable, if it is set.
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
    if let Some(runtime) = &args.oci_runtime {
        return oci::run(args, runtime);
    }
    let programs = parse_programs(&args.command, "fit")?;
    let host = FitHost::read()?;
    let mut fitted = host.fit(programs, environment_value);
    // a dry run takes a lease, too, to show its processors, and releases it
    let lease = if args.bind { take_lease(&mut fitted) } else { None };
    if args.json {
        let object = fit_json(&host, &fitted, lease.as_ref());
        output::answer(&machine_output::json("unisono-fit-1", &object)?)?;
    }
    // the ranks of a host have the same settings, so the first one prints them
    let says = !(args.quiet || args.dry_run && args.json) && ranks::is_first(environment_value);
    if says {
        let siblings = host.sibling_ranks(environment_value);
        let form = OutputForm::choose(args.dry_run);
        for line in output_lines(&host, &fitted, siblings, lease.as_ref(), args.dry_run, form) {
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

/// Takes a lease if there is a single program and its quota is below its affinity. If no lease can be taken,
/// because no directory is writable, the program starts unbound.
fn take_lease(fitted: &mut [FittedProgram]) -> Option<ProcessorLease> {
    let [one] = fitted else { return None };
    let lease = ProcessorLease::take(&one.part.cpus, one.lease?).ok()?;
    one.part.cpus = lease.cpus.clone();
    Some(lease)
}

fn usage_error(error: Error) -> anyhow::Error {
    match error {
        Error::Input(_) | Error::Program { .. } => Failure::Usage(error.to_string()).into(),
        error => error.into(),
    }
}

/// The form of the settings with one reason.
#[derive(Clone, Copy, Debug)]
enum OutputForm {
    /// All settings, in lines of at most this many characters, for a terminal.
    Folded(usize),
    /// All settings on one line, for programs that read a dry run.
    Whole,
    /// One line of at most [`LOG_COLUMNS`] characters, if the names in it leave room, for the log of a job.
    Log,
}

impl OutputForm {
    fn choose(dry_run: bool) -> Self {
        if dry_run {
            terminal::columns(std::io::stdout()).map_or(Self::Whole, Self::Folded)
        } else {
            let columns = terminal::columns(std::io::stderr());
            columns.map_or(Self::Log, |columns| Self::Folded(columns.saturating_sub(NAME.len())))
        }
    }
}

/// The words that `exit::print_error` puts before a line.
const NAME: &str = "unisono: ";

/// Together with [`NAME`] a line of a log has at most 100 columns.
const LOG_COLUMNS: usize = 100 - NAME.len();

/// Returns the command's output: a text for all settings with the same reason, then the settings that were
/// left alone. `siblings` is the number of ranks of this host that have the same settings.
fn output_lines(
    host: &FitHost,
    fitted: &[FittedProgram],
    siblings: Option<usize>,
    lease: Option<&ProcessorLease>,
    dry_run: bool,
    form: OutputForm,
) -> Vec<String> {
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
        let each = match siblings {
            Some(count @ 2..) => format!("{who}each of {count} ranks: "),
            _ => who.clone(),
        };
        let settings: Vec<_> = one.plan.set.iter().chain(&one.plan.options).collect();
        let mut rest = &settings[..];
        while let [first, ..] = rest {
            let same = rest.iter().take_while(|setting| setting.why == first.why).count();
            let words: Vec<String> = rest[..same].iter().map(|setting| assignment(setting)).collect();
            let (whole, brief) = (host.effective.to_string(), format!("{:#}", host.effective));
            lines.push(match form {
                OutputForm::Log => log_line(&each, &first.why.replacen(&whole, &brief, 1), &words),
                OutputForm::Whole => format!("{each}{}; set: {}", first.why, words.join(" ")),
                OutputForm::Folded(width) => {
                    reason_and_settings(&format!("{each}{}; set:", first.why), &words, width)
                }
            });
            rest = &rest[same..];
        }
        lines.extend(one.plan.remarks.iter().map(|remark| format!("{who}{remark}")));
        if dry_run && settings.is_empty() {
            lines.push(format!("{each}nothing to set: {}", host.effective));
        }
    }
    if let Some(lease) = lease {
        let cpus = processors_in_words(&lease.cpus);
        lines.push(format!("bound to {cpus}, which the fewest others use"));
    }
    lines
}

/// Returns a line for a log: the reason without its explanation, and the settings. If that is too long, the
/// line has the first setting and the number of others; and then, if need be, no limit behind *because*.
fn log_line(who: &str, why: &str, settings: &[String]) -> String {
    let fact = why.split([':', ';']).next().unwrap_or(why);
    let short = fact.split(", because ").next().unwrap_or(fact);
    let all = settings.join(" ");
    let first = match settings {
        [first, others @ ..] if !others.is_empty() => {
            format!("{first} and {} more (--dry-run)", others.len())
        }
        _ => all.clone(),
    };
    let forms = [(fact, &all), (fact, &first), (short, &first)];
    let lines = forms.map(|(why, set)| format!("{who}{why}; set: {set}"));
    let length = |line: &&String| line.chars().count();
    let fits = lines.iter().find(|line| length(line) <= LOG_COLUMNS);
    fits.or_else(|| lines.iter().min_by_key(length)).cloned().unwrap_or_default()
}

/// Returns the reason, which tells a reader more than the names, and then the settings, in lines of at most
/// `width` characters.
fn reason_and_settings(reason: &str, settings: &[String], width: usize) -> String {
    let settings = filled(settings.iter().map(String::as_str), width.saturating_sub(INDENT.len()));
    format!("{}\n{INDENT}{settings}", filled(reason.split(' '), width))
}

/// The beginning of a line that continues the line above it.
const INDENT: &str = "  ";

/// Joins words into lines of at most `width` characters. A word is not broken: a path or a setting is copied
/// as a whole.
fn filled<'a>(words: impl Iterator<Item = &'a str>, width: usize) -> String {
    let mut text = String::new();
    let mut used = 0;
    for word in words {
        let length = word.chars().count();
        if text.is_empty() {
            used = length;
        } else if used + 1 + length <= width {
            text.push(' ');
            used += 1 + length;
        } else {
            text.push('\n');
            text.push_str(INDENT);
            used = INDENT.len() + length;
        }
        text.push_str(word);
    }
    text
}

/// Returns `NAME=VALUE`, quoted for a shell.
fn assignment(Setting { name, value, .. }: &Setting) -> String {
    if value.contains(' ') { format!("{name}='{value}'") } else { format!("{name}={value}") }
}

fn processors_in_words(cpus: &CpuSet) -> String {
    format!("processor{} {cpus}", if cpus.len() == 1 { "" } else { "s" })
}

fn fit_json(host: &FitHost, fitted: &[FittedProgram], lease: Option<&ProcessorLease>) -> Value {
    let FitHost { limits, effective: there, .. } = host;
    let settings = |all: &[Setting]| -> Vec<Value> {
        let setting =
            |setting: &Setting| json!({ "name": setting.name, "value": setting.value, "why": setting.why });
        all.iter().map(setting).collect()
    };
    let set = |one: &FittedProgram| settings(&one.plan.set);
    let program = |one: &FittedProgram| {
        let words: Vec<_> = one.command.iter().map(|word| word.to_string_lossy()).collect();
        json!({
            "command": words.join(" "), "processors": one.part.cpus.to_string(), "threads": one.part.threads,
            "set": set(one), "options": settings(&one.plan.options), "remarks": one.plan.remarks,
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
        "others": host.others, "lease": lease.map(|lease| lease.cpus.to_string()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_linux::cgroup::CgroupVersion;
    use unisono_linux::quota::{GroupRelation, ProcessorLimits, Quota};

    #[test]
    fn the_settings_of_a_rank_are_those_of_all_ranks_of_the_host() {
        let affinity: CpuSet = (0..2).collect();
        let limits = ProcessorLimits { affinity: affinity.clone(), ..ProcessorLimits::default() };
        let effective = unisono_fit::effective(&limits);
        let host = FitHost { limits, effective, others: Some(0), launcher_cpus: Some(affinity) };
        let variable = |name: &str| (name == "MPI_LOCALNRANKS").then(|| "4".to_owned());
        let fitted = host.fit(vec![(vec!["./a".into()], ProgramTraits::default())], variable);
        let siblings = host.sibling_ranks(variable);
        let lines = output_lines(&host, &fitted, siblings, None, false, OutputForm::Whole);
        let first = "each of 4 ranks: 1 processor, because 4 ranks share";
        assert!(lines.iter().any(|line| line.starts_with(first)), "{lines:?}");
        let lines = output_lines(&host, &fitted, siblings, None, false, OutputForm::Log);
        let [line] = &lines[..] else { panic!("one reason, one line: {lines:?}") };
        assert!(line.starts_with("each of 4 ranks: 1 processor; set: OMP_NUM_THREADS=1 and "), "{line}");
    }

    #[test]
    fn a_log_has_one_line_of_100_columns_with_the_reason_and_the_first_setting() {
        let quota = Quota {
            time_us: 100_000,
            period_us: 100_000,
            group: format!("/sys/fs/cgroup/docker-{}.scope", "0".repeat(64)).into(),
            of: GroupRelation::Own,
            version: CgroupVersion::V2,
        };
        let affinity: CpuSet = (0..2).collect();
        let limits = ProcessorLimits { affinity, quota: Some(quota), ..ProcessorLimits::default() };
        let effective = unisono_fit::effective(&limits);
        let host = FitHost { limits, effective, others: Some(0), launcher_cpus: None };
        let fitted = host.fit(vec![(vec!["./a".into()], ProgramTraits::default())], |_| None);
        let lines = output_lines(&host, &fitted, None, None, false, OutputForm::Log);
        let [line] = &lines[..] else { panic!("one reason, one line: {lines:?}") };
        let begin = "1 processor, because a quota of 1 holds; set: OMP_NUM_THREADS=1 and ";
        assert!(line.starts_with(begin) && line.ends_with(" more (--dry-run)"), "{line}");
        assert!(line.chars().count() <= LOG_COLUMNS, "{line}");
        let whole = output_lines(&host, &fitted, None, None, true, OutputForm::Whole);
        assert!(whole[0].contains("0.scope; set: OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 "), "{whole:?}");
        let short = ["A=1", "B=1"].map(str::to_owned);
        let line = log_line("", "3 threads on 2 processors: they wait", &short);
        assert_eq!(line, "3 threads on 2 processors; set: A=1 B=1");
    }

    #[test]
    fn the_reason_comes_first_and_on_a_terminal_the_settings_follow_in_lines_that_fit() {
        let names = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"];
        let mut settings: Vec<String> = names.iter().map(|name| format!("{name}=1")).collect();
        settings.push("ERL_AFLAGS='+S 1:1 +sbwt none'".to_owned());
        let container = format!("/sys/fs/cgroup/docker-{}.scope", "0".repeat(64));
        for group in ["/job", container.as_str()] {
            let reason = format!("1 processor, because a quota of 1 holds in {group}; set:");
            let shown = reason_and_settings(&reason, &settings, 71);
            assert!(shown.starts_with("1 processor, because a quota of 1 holds in"), "{shown}");
            let fits = |line: &str| line.chars().count() <= 71 || line.trim_start().starts_with(&container);
            assert!(shown.lines().all(fits), "{shown}");
            assert!(shown.contains("\n  OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 "), "{shown}");
            assert!(shown.contains("ERL_AFLAGS='+S 1:1 +sbwt none'"), "a value is not broken: {shown}");
        }
    }
}
