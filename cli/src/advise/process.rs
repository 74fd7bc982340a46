//! `unisono advise --pid`: observes a running process. The answer has the form of a trial's answer.

use super::Args;
use super::answer::AdviceAnswer;
use crate::exit::Failure;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unisono_advise::judge::Circumstances;
use unisono_advise::remedy::Programs;
use unisono_advise::switches::SwitchWatch;
use unisono_advise::trial::take_reading;
use unisono_advise::watch::RunWatch;
use unisono_advise::{TrialRuns, judge, tree};
use unisono_linux::affinity::Tid;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process_stat::ProcessStat;
use unisono_linux::{clock, interrupt, process as own, quota};

const READ_INTERVAL: Duration = Duration::from_millis(200);
/// The time for which a process is watched without `--for`.
const DEFAULT_TIME: Duration = Duration::from_secs(5);

pub(super) fn run(pid: i32, args: &Args) -> anyhow::Result<ExitCode> {
    let time = args.time.unwrap_or(DEFAULT_TIME);
    let cannot_gain = ProcessStat::read(pid).is_some_and(|stat| stat.is_kernel || stat.has_ended());
    if cannot_gain || tree::read(&[pid], clock::now()).threads.is_empty() {
        return Err(Failure::Usage(why_not_watched(pid, ProcessStat::read(pid))).into());
    }
    let process = Tid(pid);
    let there = unisono_fit::effective(&quota::limits_of(process)?);
    let command = PinnedProcess::now(pid.cast_unsigned()).and_then(|process| process.command_line());
    let command = command.map_err(|_| Failure::Usage(why_not_watched(pid, ProcessStat::read(pid))))?;
    let programs = Programs {
        commands: vec![command],
        unisono: std::env::current_exe()?,
        root: own::is_root(),
        parts: Vec::new(),
        rank_programs: Vec::new(),
    };
    let periods = || quota::limits_of(process).ok()?.quota?.periods();
    let before = periods();
    let (begin, mut watch, mut switches) = (Instant::now(), RunWatch::default(), SwitchWatch::start());
    while begin.elapsed() < time && interrupt::caught().is_none() {
        take_reading(&[pid], &mut watch, &mut switches);
        std::thread::sleep(READ_INTERVAL.min(time));
    }
    take_reading(&[pid], &mut watch, &mut switches);
    let periods = periods().zip(before).map(|(after, before)| after.since(before));
    let trials = TrialRuns::of_running(watch.since_first(), tree::loaded_runtimes(&[pid]), periods);
    let circumstances =
        Circumstances { programs: 1, processors: there.processors, ..Circumstances::default() };
    let advice = judge(&trials, &circumstances);
    let answer = AdviceAnswer {
        trials: &trials,
        programs: &programs,
        there: &there,
        advice: &advice,
        process: Some(pid),
    };
    super::print(args, &answer, None)?;
    Ok(ExitCode::SUCCESS)
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
