//! `unisono advise --pid`: observes a running process. The answer has the form of a trial's answer.

use super::Args;
use super::answer::AdviceAnswer;
use crate::columns::fold;
use crate::exit::Failure;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unisono_advise::judge::Circumstances;
use unisono_advise::remedy::Programs;
use unisono_advise::switches::SwitchWatch;
use unisono_advise::trial::take_reading;
use unisono_advise::watch::RunWatch;
use unisono_advise::{TrialRuns, judge, tree, wrapper};
use unisono_fit::Effective;
use unisono_linux::affinity::Tid;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process_stat::ProcessStat;
use unisono_linux::quota::QuotaPeriods;
use unisono_linux::{clock, interrupt, process as own, quota, terminal};

const READ_INTERVAL: Duration = Duration::from_millis(200);
/// The time for which a process is watched without `--for`.
const DEFAULT_TIME: Duration = Duration::from_secs(5);
/// The most children that are named; a terminal has no room for all ranks of a large job. Chosen, not
/// measured.
const MAX_NAMED: usize = 4;

/// The facts about a process that are read before it is watched, because it may end meanwhile.
struct WatchedProcess {
    number: i32,
    there: Effective,
    command: Vec<OsString>,
    periods: Option<QuotaPeriods>,
}

impl WatchedProcess {
    fn read(number: i32) -> anyhow::Result<Self> {
        let there = unisono_fit::effective(&quota::limits_of(Tid(number))?);
        let command = PinnedProcess::now(number.cast_unsigned()).and_then(|process| process.command_line());
        let command =
            command.map_err(|_| Failure::Usage(why_not_watched(number, ProcessStat::read(number))))?;
        Ok(Self { number, there, command, periods: periods(number) })
    }
}

fn periods(process: i32) -> Option<QuotaPeriods> {
    quota::limits_of(Tid(process)).ok()?.quota?.periods()
}

pub(super) fn run(pid: i32, args: &Args) -> anyhow::Result<ExitCode> {
    let time = args.time.unwrap_or(DEFAULT_TIME);
    let cannot_gain = ProcessStat::read(pid).is_some_and(|stat| stat.is_kernel || stat.has_ended());
    let first = tree::read(&[pid], clock::now());
    if cannot_gain || first.threads.is_empty() {
        return Err(Failure::Usage(why_not_watched(pid, ProcessStat::read(pid))).into());
    }
    let before = wrapper::living();
    let chain = wrapper::chain(pid, &before);
    let mut chained = vec![WatchedProcess::read(pid)?];
    chained.extend(chain[1..].iter().map_while(|number| WatchedProcess::read(*number).ok()));
    let (begin, mut watch, mut switches) = (Instant::now(), RunWatch::default(), SwitchWatch::start());
    while begin.elapsed() < time && interrupt::caught().is_none() {
        take_reading(&[pid], &mut watch, &mut switches);
        std::thread::sleep(READ_INTERVAL.min(time));
    }
    take_reading(&[pid], &mut watch, &mut switches);
    let (last, after) = (tree::read(&[pid], clock::now()), wrapper::living());
    let is_idle = |process| wrapper::is_idle(process, &first, &last);
    let at = wrapper::program_behind(&chain[..chained.len()], &before, &after, is_idle);
    let WatchedProcess { number, there, command, periods: earlier } = chained.swap_remove(at);
    let waited_for = if is_idle(number) { wrapper::children(&after, number) } else { Vec::new() };
    let waited_for: Vec<i32> = waited_for.iter().map(|child| child.number).collect();
    if let Some(remark) = wrapper_remark(pid, number, &waited_for, name).filter(|_| !args.quiet) {
        eprintln!("{}", fold(&remark, terminal::columns(std::io::stderr()).unwrap_or(usize::MAX)));
    }
    let programs = Programs {
        commands: vec![command],
        unisono: std::env::current_exe()?,
        root: own::is_root(),
        parts: Vec::new(),
        rank_programs: Vec::new(),
    };
    let periods = periods(number).zip(earlier).map(|(after, before)| after.since(before));
    let trials = TrialRuns::of_running(watch.since_first(), tree::loaded_runtimes(&[pid]), periods);
    let circumstances =
        Circumstances { programs: 1, processors: there.processors, ..Circumstances::default() };
    let advice = judge(&trials, &circumstances);
    let answer = AdviceAnswer {
        trials: &trials,
        programs: &programs,
        there: &there,
        advice: &advice,
        process: Some(number),
    };
    super::print(args, &answer, None)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a process's name, as the kernel shows it.
fn name(process: i32) -> String {
    let name = PinnedProcess::now(process.cast_unsigned()).and_then(|process| process.name());
    name.unwrap_or_else(|_| "has ended".to_owned())
}

/// Says that `pid` only waited: for `program`, which the answer is about, or for several processes, of which
/// the user may choose one.
fn wrapper_remark(
    pid: i32,
    program: i32,
    waited_for: &[i32],
    name: impl Fn(i32) -> String,
) -> Option<String> {
    let named = |process: i32| format!("{process} ({})", name(process));
    if let [one, _, ..] = waited_for {
        let shown: Vec<String> = waited_for.iter().take(MAX_NAMED).map(|process| named(*process)).collect();
        let more = match waited_for.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return Some(format!(
            "process {} only waits for processes that it started: {}{more}; all are watched together; to \
             watch one alone: unisono advise --pid {one}",
            named(program),
            shown.join(", ")
        ));
    }
    (program != pid).then(|| {
        format!(
            "process {} only waits for process {}; the answer is about the latter",
            named(pid),
            named(program)
        )
    })
}

fn why_not_watched(pid: i32, found: Option<ProcessStat>) -> String {
    match found {
        Some(stat) if stat.is_kernel => {
            format!("{pid} is a thread of the kernel; no setting of a program changes it")
        }
        Some(stat) if stat.has_ended() => {
            format!(
                "process {pid} has ended; it stays in the list until its parent {} collects it",
                stat.parent
            )
        }
        Some(_) => format!("this user may not watch process {pid}; its owner and root may"),
        None => format!("there is no process {pid}; ps -e lists the processes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_only_waits_is_named_with_those_that_it_waits_for() {
        let name = |process: i32| format!("p{process}");
        let remark = |program, waited_for: &[i32]| wrapper_remark(10, program, waited_for, name);
        assert_eq!(remark(10, &[]), None);
        assert_eq!(remark(10, &[11]), None, "a child that comes and goes");
        let one = remark(12, &[]).expect("a wrapper");
        assert_eq!(one, "process 10 (p10) only waits for process 12 (p12); the answer is about the latter");
        let ranks = remark(12, &[13, 14, 15, 16, 17]).expect("a launcher");
        assert!(ranks.starts_with("process 12 (p12) only waits for processes that it started: 13 (p13), 14"));
        assert!(ranks.contains("16 (p16) and 1 more") && ranks.ends_with("--pid 13"), "{ranks}");
    }
}
