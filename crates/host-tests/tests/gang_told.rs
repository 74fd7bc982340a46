//! Tests what `unisono gang run` prints, what it passes on to the programs, and how it treats what an earlier
//! run has left.

use crate::gang_shared::{
    assert_nothing_is_left, end, gangs, groups_of, journal_of, kill, programs, summary, unisono,
};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;
use unisono_host_tests::disturbance::repeat_disturbed;
use unisono_host_tests::processes::{descendants, is_gone, until};
use unisono_host_tests::{Skipped, TestOutcome, groups, host_tests, program, quota, require};
use unisono_linux::affinity::{self, Tid};
use unisono_linux::cgroup::hierarchies;
use unisono_linux::process::{self, Family, Signal};
use unisono_linux::process_stat::ProcessStat;
use unisono_linux::schedstat;

const SPIN: &str = "while :; do :; done & while :; do :; done";

fn number(gang: &Value, key: &str) -> f64 {
    gang[key].as_f64().unwrap_or_else(|| panic!("{key} in {gang}"))
}

fn no_gang_used_more_processor_time_than_there_was_before_its_end() -> TestOutcome {
    gangs()?;
    let cores = affinity::allowed(Tid::SELF).expect("own").len() as f64;
    // short programs: the first may end before the last one is started
    let short = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
    let mut words = vec!["gang", "run", "--json", "--"];
    for _ in 0..20 {
        words.extend(["sh", "-c", short, ":::"]);
    }
    words.pop();
    let answer = summary(&unisono(&words).output().expect("unisono starts"));
    for gang in answer["gangs"].as_array().expect("gangs") {
        // a gang's processes are counted until they are gone, which may be a little after the end of its
        // program
        let there_was = cores * (number(gang, "elapsed_s") + 0.01);
        assert!(number(gang, "cpu_s") <= there_was, "more than {there_was} s: {answer}");
    }
    Ok(())
}

fn processor_time_without_privilege_includes_child_processes() -> TestOutcome {
    gangs()?;
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let outer = format!("sh -c '{script}'; true");
    let words =
        ["gang", "run", "--json", "--unprivileged", "--", "sh", "-c", &outer, ":::", "sh", "-c", script];
    let answer = summary(&unisono(&words).output().expect("unisono starts"));
    let (child, itself) = (number(&answer["gangs"][0], "cpu_s"), number(&answer["gangs"][1], "cpu_s"));
    assert!(child > itself / 4.0, "the same work, by a child {child} s, by the program {itself} s");
    Ok(())
}

fn the_next_run_puts_back_what_a_killed_scheduler_and_its_guardian_left_and_says_so() -> TestOutcome {
    gangs()?;
    let mut child = start(&[SPIN, SPIN], &[]);
    let scheduler = child.id();
    let left = programs(scheduler);
    let guardian: Vec<i32> = descendants(scheduler).difference(&left).copied().collect();
    assert_eq!(guardian.len(), 1, "one guardian beside {left:?}");
    kill(guardian[0], Signal::Kill);
    kill(scheduler as i32, Signal::Kill);
    child.wait().expect("reap");
    assert!(
        !groups_of(scheduler).is_empty() && journal_of(scheduler).exists(),
        "somebody else restored"
    );
    let output = unisono(&["gang", "run", "--", "true"]).output().expect("unisono starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("put back before the start what 1 killed scheduler had left"), "{errors}");
    assert_nothing_is_left(scheduler);
    for pid in &left {
        let ran = || schedstat::read(Tid(*pid)).expect("it runs").ran_ns;
        let before = ran();
        until("progress of a program that had been left frozen", || ran() > before);
    }
    end(&left);
    Ok(())
}

/// Starts gangs of one shell each, with these options, in a process group of their own, as from a shell.
fn start(scripts: &[&str], options: &[&str]) -> Child {
    let mut words = vec!["gang", "run", "--slice", "5ms"];
    words.extend(options);
    words.push("--");
    for script in scripts {
        words.extend(["sh", "-c", script, ":::"]);
    }
    words.pop();
    let mut command = unisono(&words);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0).spawn().expect("unisono starts")
}

fn an_alarm_and_a_new_size_of_the_terminal_are_passed_on() -> TestOutcome {
    gangs()?;
    let directory = tempfile::tempdir().expect("a directory");
    let (ready, resized) = (directory.path().join("ready"), directory.path().join("resized"));
    let script = format!(
        "trap 'touch {}' WINCH; trap 'exit 9' ALRM; touch {}; while :; do sleep 0.01; done",
        resized.display(),
        ready.display()
    );
    for options in [&[][..], &["--unprivileged"]] {
        let mut child = start(&[&script], options);
        until("the traps", || ready.exists());
        kill(child.id() as i32, Signal::WindowChange);
        until("the new size", || resized.exists());
        kill(child.id() as i32, Signal::Alarm);
        assert_eq!(child.wait().expect("reap").code(), Some(9), "{options:?}");
        for file in [&ready, &resized] {
            fs::remove_file(file).expect("it was made");
        }
    }
    Ok(())
}

/// Returns the letter of a process's state, as in /proc.
fn state(pid: i32) -> char {
    ProcessStat::read(pid).map_or('?', |stat| stat.state)
}

fn a_suspended_run_stops_its_programs_and_goes_on_when_it_is_continued() -> TestOutcome {
    gangs()?;
    for options in [&[][..], &["--unprivileged"], &["--isolate"]] {
        let mut child = start(&["while :; do :; done", "while :; do :; done"], options);
        let scheduler = child.id() as i32;
        let loops = || {
            let all = descendants(child.id());
            let name = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            all.into_iter().filter(|pid| name(pid).trim() == "sh").collect::<Vec<i32>>()
        };
        until("two loops", || loops().len() == 2);
        let loops = loops();
        let ran =
            || loops.iter().map(|pid| schedstat::read(Tid(*pid)).map_or(0, |t| t.ran_ns)).collect::<Vec<_>>();
        until("both have run", || ran().iter().all(|ns| *ns > 0));
        kill(scheduler, Signal::Suspend);
        until("the scheduler stops", || state(scheduler) == 'T');
        // the running gang stops by a signal, and gangs that were held stay held
        std::thread::sleep(Duration::from_millis(50));
        let before = ran();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(ran(), before, "{options:?}: programs of a suspended run go on");
        kill(scheduler, Signal::Continue);
        for turn in 0..3 {
            let before = ran();
            until(&format!("{options:?}: turn {turn} after it was continued"), || {
                ran().iter().zip(&before).all(|(now, before)| now > before)
            });
        }
        kill(scheduler, Signal::Terminate);
        child.wait().expect("reap");
        until("the loops' end", || loops.iter().all(|pid| is_gone(*pid)));
    }
    Ok(())
}

fn the_summary_is_short_says_what_others_keep_and_can_be_left_out() -> TestOutcome {
    gangs()?;
    let run = |options: &[&str]| {
        let mut words = vec!["gang", "run"];
        words.extend(options);
        words.extend(["--", "true", ":::", "true"]);
        unisono(&words).output().expect("unisono starts")
    };
    assert_eq!(run(&["--quiet"]).stderr, b"");
    let said = String::from_utf8_lossy(&run(&[]).stderr).into_owned();
    // at most: a blank line, the heading, a line for each of the two gangs, and two more
    assert!(said.lines().count() <= 6, "{said}");
    let weighed = hierarchies().expect("mounts").iter().any(|h| h.controllers.iter().any(|c| c == "cpu"));
    if !weighed {
        return Err(Skipped::because("a share for others needs a cgroup cpu controller"));
    }
    assert!(said.contains("keep 10 %"), "{said}");
    let spins =
        ["gang", "run", "--json", "--share", "0.7", "--", "timeout", "1", "sh", "-c", "while :; do :; done"];
    let answer = summary(&unisono(&spins).output().expect("unisono starts"));
    assert_eq!(answer["share"], 0.7);
    let (others, used) = (number(&answer, "others"), number(&answer["gangs"][0], "cpu_s"));
    let cores = affinity::allowed(Tid::SELF).expect("own").len() as f64;
    let by_gang = used / number(&answer, "elapsed_s") / cores;
    // a tolerance, because both are rounded to a hundredth of a second on each core
    assert!(others >= 0.0 && others + by_gang < 1.05, "{others} and {by_gang}: {answer}");
    Ok(())
}

/// Gangs of equal weight must get the same processor time in each turn, compared with the mean. Time that
/// other programs take falls on some gangs more than on others. An earlier version lent time that was not
/// idle, and a neighbour got a third of it.
fn equal_gangs_get_equal_time_in_their_turns_though_these_are_short() -> TestOutcome {
    require::nightly("gangs")?;
    gangs()?;
    // one thread for each core
    let program = program::unisono();
    let program = program.to_str().expect("a path in UTF-8");
    let cores = affinity::allowed(Tid::SELF).expect("own").len().to_string();
    let spin = [program, "barrier", "--json", "--threads", &cores, "--wait", "spin", "--seconds", "5"];
    // seven gangs, not ten: with ten, a round would last as long as two programs outside need for a turn, and
    // always the same gangs would wait
    let mut words = vec!["gang", "run", "--json", "--slice", "5ms", "--"];
    for _ in 0..7 {
        words.extend(spin);
        words.push(":::");
    }
    words.pop();
    repeat_disturbed(|| {
        let answer = summary(&unisono(&words).output().expect("unisono starts"));
        let all = answer["gangs"].as_array().expect("gangs");
        let each: Vec<f64> = all.iter().map(|gang| number(gang, "cpu_s") / number(gang, "slices")).collect();
        let mean = each.iter().sum::<f64>() / each.len() as f64;
        let unequal = each.iter().any(|each| !(0.8..1.2).contains(&(each / mean)));
        if unequal { Err(format!("{each:?}: {answer}")) } else { Ok(()) }
    });
    Ok(())
}

fn gangs_stay_in_the_group_with_the_quota_that_their_scheduler_is_in() -> TestOutcome {
    gangs()?;
    let group = quota::one_processor("gang-quota")?;
    let mut command = unisono(&["gang", "run", "--quiet", "--", "sh", "-c", "cat /proc/self/cgroup"]);
    let procs_files = vec![group.open_procs().expect("our own group")];
    let child =
        process::start(command.stdout(Stdio::piped()), procs_files, Family::Same).expect("unisono starts");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    let name = format!("/{}/unisono-", groups::name("gang-quota"));
    assert!(said.contains(&name), "a gang is outside of {}: {said}", group.path().display());
    Ok(())
}

host_tests![needs Machine;
    gangs_stay_in_the_group_with_the_quota_that_their_scheduler_is_in within 60,
    no_gang_used_more_processor_time_than_there_was_before_its_end within 60,
    processor_time_without_privilege_includes_child_processes within 60,
    the_next_run_puts_back_what_a_killed_scheduler_and_its_guardian_left_and_says_so within 60,
    an_alarm_and_a_new_size_of_the_terminal_are_passed_on within 60,
    a_suspended_run_stops_its_programs_and_goes_on_when_it_is_continued within 90,
    the_summary_is_short_says_what_others_keep_and_can_be_left_out within 60,
    equal_gangs_get_equal_time_in_their_turns_though_these_are_short within 60,
];
