//! `unisono advise --pid`: observes a running process.

use super::answer;
use crate::exit::Failure;
use crate::machine_output;
use crate::output;
use serde_json::json;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unisono_advise::judge::{Circumstances, conditions_of_one_run};
use unisono_advise::switches::SwitchWatch;
use unisono_advise::tree;
use unisono_advise::trial::take_reading;
use unisono_advise::watch::RunWatch;
use unisono_linux::affinity::Tid;
use unisono_linux::process_stat::ProcessStat;
use unisono_linux::{clock, interrupt, quota};

const READ_INTERVAL: Duration = Duration::from_millis(200);

pub(super) fn run(pid: i32, time: Duration, as_json: bool) -> anyhow::Result<ExitCode> {
    let cannot_gain = ProcessStat::read(pid).is_some_and(|stat| stat.is_kernel || stat.has_ended());
    if cannot_gain || tree::read(&[pid], clock::now()).threads.is_empty() {
        return Err(Failure::Usage(why_not_watched(pid, ProcessStat::read(pid))).into());
    }
    let process = Tid(pid);
    let there = unisono_fit::effective(&quota::limits_of(process)?);
    let periods = || quota::limits_of(process).ok()?.quota?.periods();
    let before = periods();
    let (begin, mut watch, mut switches) = (Instant::now(), RunWatch::default(), SwitchWatch::start());
    while begin.elapsed() < time && interrupt::caught().is_none() {
        take_reading(&[pid], &mut watch, &mut switches);
        std::thread::sleep(READ_INTERVAL.min(time));
    }
    take_reading(&[pid], &mut watch, &mut switches);
    let periods = periods().zip(before).map(|(after, before)| after.since(before));
    let circumstances =
        Circumstances { programs: 1, processors: there.processors, ..Circumstances::default() };
    let seen = watch.since_first();
    let conditions = conditions_of_one_run(&seen, periods, &circumstances);
    let runtimes = tree::loaded_runtimes(&[pid]);
    if as_json {
        let object = json!({
            "verdict": "undecided", "command": null, "gain": null, "conditions": answer::conditions_json(&conditions),
            "effective_processors": there.processors, "runtimes": runtimes, "threads": seen.threads,
            "cpu_s": seen.ran_s, "waited_s": seen.waited_s, "others": seen.others.max(0.0),
            "between_sleeps_ns": answer::between_sleeps(&seen), "unrecorded": seen.unrecorded,
        });
        output::answer(&machine_output::json("unisono-advise-process-1", &object)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let names: Vec<&str> = runtimes.iter().map(String::as_str).collect();
    let uses = if names.is_empty() { String::new() } else { format!("; it uses {}", names.join(", ")) };
    output::answer(&format!(
        "{there}{uses}\n\nIn {:.1} s at most {} threads of process {pid} worked at a time. They ran {:.2} s and waited \
         {:.2} s for a processor.\n\n{}\nTo compare remedies, start it anew: unisono advise -- CMD ARGS",
        seen.seconds,
        seen.threads,
        seen.ran_s,
        seen.waited_s,
        answer::conditions_text(&conditions)
    ))?;
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
