//! Tests `unisono gang run` on this host: the time that gangs get, and that every kind of end leaves the host
//! unchanged.

use crate::gang_shared::{
    assert_nothing_is_left, end, gangs, groups_of, journal_of, kill, programs, summary, turns_in, unisono,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use unisono_host_tests::disturbance::repeat_disturbed;
use unisono_host_tests::processes::{descendants, is_gone, until};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program, require};
use unisono_linux::affinity::{self, Tid};
use unisono_linux::cgroup::hierarchies;
use unisono_linux::process::Signal;
use unisono_linux::schedstat;
use unisono_linux::scheduling::{self, SchedulingPolicy};

/// A script of two processes that spin until they are ended.
const SPIN: &str = "while :; do :; done & while :; do :; done";

fn start(options: &[&str]) -> Child {
    let mut arguments = vec!["gang", "run", "--slice", "5ms"];
    arguments.extend(options);
    arguments.extend(["--", "sh", "-c", SPIN, ":::", "sh", "-c", SPIN]);
    let mut command = unisono(&arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    // a process group of its own, as a shell gives to a job
    command.process_group(0).spawn().expect("unisono starts")
}

/// Asserts that a program runs freely: outside our control groups, on all processors, in the default
/// scheduling class, and using processor time.
fn assert_free(pid: i32) {
    let group = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it runs");
    assert!(!group.contains("unisono-"), "process {pid} is still in {group}");
    assert_eq!(
        affinity::allowed(Tid(pid)).expect("runs"),
        affinity::allowed(Tid::SELF).expect("own"),
        "{pid}"
    );
    assert!(
        matches!(scheduling::get(Tid(pid)).expect("runs"), SchedulingPolicy::Other { .. }),
        "class of {pid}"
    );
    let ran = || unisono_linux::schedstat::read(Tid(pid)).expect("runs").ran_ns;
    let before = ran();
    until("progress of a released program", || ran() > before);
}

fn finish(child: Child) -> Output {
    child.wait_with_output().expect("unisono ends")
}

fn an_orderly_end_leaves_nothing_and_passes_output_and_exit_codes() -> TestOutcome {
    gangs()?;
    // this directory also has the broker's socket, so others must be able to enter it
    let shared = Path::new("/run/unisono");
    fs::create_dir_all(shared).expect("root may");
    fs::set_permissions(shared, Permissions::from_mode(0o755)).expect("root may");
    // a file in it, because an empty directory would be removed with the journals
    let of_others = shared.join("test-gang");
    fs::write(&of_others, "").expect("root may");
    let script = "unisono gang run --json -- sh -c 'echo one; exit 0' ::: sh -c 'echo two >&2; exit 7'";
    let words =
        ["gang", "run", "--json", "--", "sh", "-c", "echo one", ":::", "sh", "-c", "echo two >&2; exit 7"];
    let child = unisono(&words).spawn().expect("unisono starts");
    let scheduler = child.id();
    let output = finish(child);
    assert_eq!(output.status.code(), Some(7), "{script}: {output:?}");
    assert!(output.stdout.starts_with(b"one\n"), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("two\n") && errors.contains("gang 2"), "{errors}");
    let answer = summary(&output);
    assert_eq!(answer["gangs"][0]["exit_code"], 0);
    assert_eq!(answer["gangs"][1]["exit_code"], 7);
    assert_nothing_is_left(scheduler);
    let mode = fs::metadata(shared).expect("it stays").permissions().mode();
    fs::remove_file(of_others).expect("it is there");
    assert_eq!(mode & 0o777, 0o755, "others cannot reach what lies in {}", shared.display());
    Ok(())
}

fn a_trace_shows_one_gang_at_a_time_on_each_processor() -> TestOutcome {
    gangs()?;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("turns.json");
    let file = path.to_str().expect("letters");
    let refused = unisono(&["gang", "run", "--trace", "/no/such/directory/t", "--", "true"]).output();
    let refused = refused.expect("unisono starts");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let spin = "end=$(($(date +%s) + 2)); while [ $(date +%s) -lt $end ]; do :; done";
    // `--no-rest`, because the shells wait for date(1), and a gang that waits for long would rest and have no
    // turns
    let words = ["gang", "run", "--quiet", "--no-rest", "--slice", "5ms", "--trace", file, "--"];
    let words = [&words[..], &["sh", "-c", spin, ":::", "sh", "-c", spin]].concat();
    let output = unisono(&words).output().expect("unisono starts");
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&path).expect("it was written");
    let turns = turns_in(&text);
    for gang in ["gang 1: sh", "gang 2: sh"] {
        assert!(turns.get(gang) > Some(&20), "{gang} is not often in {turns:?}");
        assert!(text.contains(&format!("{gang} has ended")), "the end of {gang}");
    }
    Ok(())
}

fn ended_by(signal: Signal, options: &[&str]) {
    let child = start(options);
    let scheduler = child.id();
    let programs = programs(scheduler);
    kill(scheduler as i32, signal);
    let output = finish(child);
    assert_eq!(output.status.code(), Some(128 + signal.number()), "{output:?}");
    assert_nothing_is_left(scheduler);
    // the shells have ended; their background loops, to which no signal was sent, go on
    let survivors: Vec<i32> = programs.iter().copied().filter(|pid| !is_gone(*pid)).collect();
    assert!(!survivors.is_empty(), "somebody to look at among {programs:?}");
    survivors.iter().for_each(|pid| assert_free(*pid));
    end(&programs);
}

fn an_interrupt_reaches_the_programs_and_everything_is_put_back() -> TestOutcome {
    gangs()?;
    // a background child of a shell ignores SIGINT, so it outlives its shell and has to be released
    ended_by(Signal::Interrupt, &[]);
    Ok(())
}

fn a_request_to_end_reaches_the_programs_and_everything_is_put_back() -> TestOutcome {
    gangs()?;
    ended_by(Signal::Terminate, &[]);
    Ok(())
}

fn a_request_to_end_puts_real_time_classes_back() -> TestOutcome {
    gangs()?;
    ended_by(Signal::Terminate, &["--isolate"]);
    Ok(())
}

fn a_request_to_end_continues_programs_that_were_stopped() -> TestOutcome {
    gangs()?;
    let child = start(&["--unprivileged"]);
    let scheduler = child.id();
    let mut started = BTreeSet::new();
    until("two shells and their loops", || {
        started = descendants(scheduler);
        started.len() == 5
    });
    kill(scheduler as i32, Signal::Terminate);
    finish(child);
    assert_nothing_is_left(scheduler);
    let survivors: Vec<i32> = started.iter().copied().filter(|pid| !is_gone(*pid)).collect();
    assert!(!survivors.is_empty(), "somebody to look at among {started:?}");
    survivors.iter().for_each(|pid| assert_free(*pid));
    end(&started);
    Ok(())
}

fn the_guardian_frees_the_programs_when_the_scheduler_is_killed() -> TestOutcome {
    gangs()?;
    let mut child = start(&[]);
    let scheduler = child.id();
    let programs = programs(scheduler);
    std::thread::sleep(Duration::from_millis(300));
    kill(scheduler as i32, Signal::Kill);
    assert_eq!(child.wait().expect("reap").signal(), Some(Signal::Kill.number()));
    assert_nothing_is_left(scheduler);
    programs.iter().for_each(|pid| assert_free(*pid));
    end(&programs);
    Ok(())
}

fn the_guardian_puts_real_time_classes_back_when_the_scheduler_is_killed() -> TestOutcome {
    gangs()?;
    let mut child = start(&["--isolate"]);
    let scheduler = child.id();
    let programs = programs(scheduler);
    let promoted = |pid: &i32| matches!(scheduling::get(Tid(*pid)), Ok(SchedulingPolicy::RoundRobin(_)));
    until("promotion", || programs.iter().all(promoted));
    kill(scheduler as i32, Signal::Kill);
    child.wait().expect("reap");
    assert_nothing_is_left(scheduler);
    programs.iter().for_each(|pid| assert_free(*pid));
    end(&programs);
    Ok(())
}

fn gang_restore_frees_the_programs_when_scheduler_and_guardian_were_killed() -> TestOutcome {
    gangs()?;
    let mut child = start(&[]);
    let scheduler = child.id();
    let programs = programs(scheduler);
    std::thread::sleep(Duration::from_millis(300));
    let guardian: Vec<i32> = descendants(scheduler).difference(&programs).copied().collect();
    assert_eq!(guardian.len(), 1, "one guardian beside {programs:?}");
    kill(guardian[0], Signal::Kill);
    kill(scheduler as i32, Signal::Kill);
    child.wait().expect("reap");
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        !groups_of(scheduler).is_empty() && journal_of(scheduler).exists(),
        "somebody else restored"
    );
    let output = unisono(&["gang", "restore"]).output().expect("unisono starts");
    assert!(output.status.success(), "{output:?}");
    assert!(groups_of(scheduler).is_empty(), "groups are left");
    assert!(!journal_of(scheduler).exists(), "the journal is left");
    programs.iter().for_each(|pid| assert_free(*pid));
    end(&programs);
    Ok(())
}

fn gang_restore_leaves_living_schedulers_alone() -> TestOutcome {
    gangs()?;
    let mut child = start(&[]);
    let scheduler = child.id();
    let programs = programs(scheduler);
    let output = unisono(&["gang", "restore"]).output().expect("unisono starts");
    assert!(output.status.success(), "{output:?}");
    assert!(journal_of(scheduler).exists() && !groups_of(scheduler).is_empty());
    kill(scheduler as i32, Signal::Terminate);
    child.wait().expect("reap");
    assert_nothing_is_left(scheduler);
    end(&programs);
    Ok(())
}

fn time_follows_the_weights_and_waiting_gangs_get_none() -> TestOutcome {
    gangs()?;
    let spin = "timeout 2 sh -c 'while :; do :; done' & timeout 2 sh -c 'while :; do :; done'; wait; exit 0";
    let words =
        ["gang", "run", "--json", "--weights", "1,3", "--", "sh", "-c", spin, ":::", "sh", "-c", spin];
    repeat_disturbed(|| {
        let answer = summary(&unisono(&words).output().expect("unisono starts"));
        let cpu = |gang: usize| answer["gangs"][gang]["cpu_s"].as_f64().expect("a number");
        let ratio = cpu(1) / cpu(0);
        let switch = answer["switch_us"]["median"].as_f64().expect("both cores ran both gangs");
        assert_eq!(answer["not_measured"], Value::Null);
        // a wide range, because a rare late switch costs the short slices most; without weights the ratio
        // would be 1
        let weighted = (1.8..8.0).contains(&ratio);
        let within_a_turn = switch > 0.0 && switch < 20_000.0;
        let right = weighted && within_a_turn && answer["leak"].as_f64().expect("watched") < 0.2;
        if right { Ok(()) } else { Err(format!("weights 1,3 gave {ratio}: {answer}")) }
    });
    Ok(())
}

fn a_gang_that_sleeps_lends_its_cores_to_the_next() -> TestOutcome {
    require::nightly("gangs")?;
    gangs()?;
    if !hierarchies().expect("mounts").iter().any(|h| h.controllers.iter().any(|c| c == "cpu")) {
        return Err(Skipped::because("backfill needs a cgroup cpu controller"));
    }
    // the second gang, which could use all cores, is entitled to a twentieth of the time
    let cores = affinity::allowed(Tid::SELF).expect("own").len();
    let spin = format!("{} wait", "while :; do :; done & ".repeat(cores));
    let run = |option: &str| {
        let weights = ["gang", "run", "--json", "--no-rest", "--weights", "19,1", option, "--", "sleep", "5"];
        let output = unisono(&weights).args([":::", "timeout", "4", "sh", "-c", &spin]).output();
        let own = &summary(&output.expect("unisono starts"))["gangs"][1];
        let number = |key: &str| own[key].as_f64().expect("a number");
        number("cpu_s") / number("elapsed_s") / cores as f64
    };
    repeat_disturbed(|| {
        let (with, without) = (run("--spread"), run("--no-backfill"));
        // without backfill it gets only its own turns, a twentieth
        let right = (0.03..0.15).contains(&without) && with > 0.3;
        if right { Ok(()) } else { Err(format!("{with} of the cores with backfill, {without} without")) }
    });
    Ok(())
}

fn a_gang_that_blocks_rests_and_takes_turns_again_when_it_wants_its_cores() -> TestOutcome {
    require::nightly("gangs")?;
    gangs()?;
    let cores = affinity::allowed(Tid::SELF).expect("own").len();
    let spin = format!("{} wait", "while :; do :; done & ".repeat(cores));
    // each turn of the loop starts a program, which takes about a millisecond
    let blocks = "i=0; while [ $i -lt 120 ]; do sleep 0.01; i=$((i+1)); done";
    let both = format!("{blocks}; timeout 5 sh -c '{spin}'; exit 0");
    let start = |option: &str| {
        let mut command = unisono(&["gang", "run", "--json", option, "--", "sh", "-c", &both]);
        command.args([":::", "timeout", "6", "sh", "-c", &spin]).spawn().expect("unisono starts")
    };
    let first = |child: Child| summary(&child.wait_with_output().expect("it ends"))["gangs"][0].clone();
    let may = start("--spread");
    if weighed().is_ok() {
        until("half the weight", || {
            let [one, two] = ["gang-1", "gang-2"].map(|gang| weight_of(&may, gang));
            one.is_some_and(|one| Some(2.0 * one) == two)
        });
    }
    let (may, may_not) = (first(may), first(start("--no-rest")));
    let rested = |gang: &Value| gang["rested_s"].as_f64().expect("a number");
    assert!((0.5..5.5).contains(&rested(&may)), "it blocks for about 1.5 of 6.5 s: {may}");
    assert_eq!(rested(&may_not), 0.0);
    Ok(())
}

/// Returns the weight of a gang's control group, if it has one.
fn weight_of(scheduler: &Child, gang: &str) -> Option<f64> {
    let groups = groups_of(scheduler.id());
    let mut files = groups.iter().flat_map(|group| ["cpu.shares", "cpu.weight"].map(|file| (group, file)));
    files.find_map(|(group, file)| fs::read_to_string(group.join(gang).join(file)).ok()?.trim().parse().ok())
}

/// Returns the seconds so far in which the processors that this test may use were busy.
fn busy() -> f64 {
    let allowed = affinity::allowed(Tid::SELF).expect("own");
    let text = fs::read_to_string("/proc/stat").expect("proc");
    let mut sum = 0.0;
    for cpu in allowed.iter() {
        let name = format!("cpu{cpu} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name)).expect("its line");
        // hundredths of a second: user, nice, system, idle, iowait, irq, softirq, steal
        let times: Vec<f64> =
            line.split_whitespace().filter_map(|n| n.parse::<f64>().ok()).map(|n| n / 100.0).collect();
        sum += times[0] + times[1] + times[2] + times[5] + times[6] + times[7];
    }
    sum
}

/// Requires that gangs can have a weight here.
fn weighed() -> TestOutcome {
    gangs()?;
    if hierarchies().expect("mounts").iter().any(|h| h.controllers.iter().any(|c| c == "cpu")) {
        return Ok(());
    }
    Err(Skipped::because("a share needs a cgroup cpu controller"))
}

fn a_new_process_runs_while_gangs_spin_on_all_cores() -> TestOutcome {
    weighed()?;
    let mut child = start(&[]);
    let scheduler = child.id();
    let programs = programs(scheduler);
    std::thread::sleep(Duration::from_millis(500));
    // a session of its own, so that the kernel does not group it with other programs of this machine
    let work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; cat /proc/$$/schedstat";
    let used = || programs.iter().map(|pid| processor_time(*pid)).sum::<f64>();
    let (before, used_before) = (busy(), used());
    let output = Command::new("setsid").args(["--wait", "sh", "-c", work]).output().expect("setsid starts");
    let (all, by_gangs) = (busy() - before, used() - used_before);
    kill(scheduler as i32, Signal::Terminate);
    child.wait().expect("reap");
    end(&programs);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(|n| n.parse::<f64>().expect("a number"));
    let (ran, waited) = (numbers.next().expect("ran"), numbers.next().expect("waited"));
    // the gangs leave a tenth of the processors to all other programs together; real-time gangs would leave
    // them only the twentieth that the kernel reserves
    let cores = affinity::allowed(Tid::SELF).expect("own").len() as f64;
    let others = (all - by_gangs) / (cores * (ran + waited) / 1e9);
    let own = ran / (ran + waited);
    assert!(
        own > 0.1 || others > 0.075,
        "it ran {own} of the time; it and others {others} of the processors"
    );
    Ok(())
}

/// Returns the processor time that a process has used so far, in seconds.
fn processor_time(pid: i32) -> f64 {
    // a process that has just ended counts as zero
    schedstat::read(Tid(pid)).map_or(0.0, |time| time.ran_ns as f64 / 1e9)
}

fn a_larger_share_is_more_time_beside_other_programs() -> TestOutcome {
    weighed()?;
    let spin = "timeout 2 sh -c 'while :; do :; done' & timeout 2 sh -c 'while :; do :; done'; wait; exit 0";
    let of = |share: &str| {
        let mut loops = Command::new("setsid");
        loops.args(["--wait", "timeout", "2", "sh", "-c", SPIN]);
        let mut loops = loops.spawn().expect("setsid starts");
        let words =
            ["gang", "run", "--json", "--share", share, "--", "sh", "-c", spin, ":::", "sh", "-c", spin];
        let output = unisono(&words).output().expect("unisono starts");
        loops.wait().expect("reap");
        let answer = summary(&output);
        (0..2).map(|gang| answer["gangs"][gang]["cpu_s"].as_f64().expect("a number")).sum::<f64>()
    };
    let (large, small) = (of("0.95"), of("0.3"));
    assert!(large > small * 1.2, "{large} s with a share of 0.95, {small} s with 0.3");
    Ok(())
}

fn too_many_threads_are_refused_and_the_summary_says_so() -> TestOutcome {
    gangs()?;
    if !hierarchies().expect("mounts").iter().any(|h| h.controllers.iter().any(|c| c == "pids")) {
        return Err(Skipped::because("the bound needs a cgroup pids controller"));
    }
    let many = "i=0; while [ $i -lt 60 ]; do sleep 1 & i=$((i+1)); done 2>/dev/null; wait";
    let words = ["gang", "run", "--max-threads", "20", "--", "sh", "-c", many, ":::", "true"];
    let child = unisono(&words).spawn().expect("unisono starts");
    let scheduler = child.id();
    let errors = String::from_utf8_lossy(&finish(child).stderr).into_owned();
    assert!(errors.contains("gang 1 was refused a new thread"), "{errors}");
    assert_nothing_is_left(scheduler);
    Ok(())
}

fn without_privilege_it_says_what_is_missing_or_does_what_it_can() -> TestOutcome {
    gangs()?;
    let directory = tempfile::tempdir().expect("a directory");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(directory.path(), open).expect("permissions");
    let copy = directory.path().join("unisono");
    fs::copy(program::unisono(), &copy).expect("a copy");
    let run = |options: &[&str]| {
        let mut command = Command::new(Path::new(&copy));
        command.args(["gang", "run"]).args(options).args(["--", "true", ":::", "true"]);
        command.env_remove("XDG_RUNTIME_DIR").current_dir("/").uid(65534).gid(65534).stdin(Stdio::null());
        command.output().expect("unisono starts")
    };
    let refused = run(&[]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(errors.contains("run as root") && errors.contains("--unprivileged"), "{errors}");
    let tried = run(&["--unprivileged", "--json"]);
    assert_eq!(tried.status.code(), Some(0), "{tried:?}");
    assert_eq!(summary(&tried)["mechanism"], "stop");
    assert!(!Path::new("/tmp/unisono-65534").exists(), "an empty directory is left");
    Ok(())
}

fn bad_input_starts_nothing() -> TestOutcome {
    gangs()?;
    let dir = tempfile::tempdir().expect("a directory");
    let mark = dir.path().join("started");
    let touch = mark.to_str().expect("a path");
    for (options, words, expected) in [
        (vec![], vec!["touch", touch, ":::", "no-such-program"], "no-such-program"),
        (vec!["--slice", "500us"], vec!["touch", touch], "1ms to 10s"),
        (vec!["--slice", "11s"], vec!["touch", touch], "1ms to 10s"),
        (vec!["--weights", "0,1"], vec!["touch", touch, ":::", "true"], "weight of 0"),
        (vec!["--weights", "1"], vec!["touch", touch, ":::", "true"], "1 weight for 2 gangs"),
        (vec!["--share", "1.5"], vec!["touch", touch], "share of 1.5"),
        (vec![], vec!["touch", touch, ":::"], "no command"),
    ] {
        let mut arguments = vec!["gang", "run"];
        arguments.extend(&options);
        arguments.push("--");
        arguments.extend(&words);
        let output = unisono(&arguments).output().expect("unisono starts");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
        assert!(!mark.exists(), "{arguments:?} started a program");
    }
    Ok(())
}

fn one_program_and_one_that_ends_at_once_are_gangs_too() -> TestOutcome {
    gangs()?;
    let output = unisono(&["gang", "run", "--json", "--", "true"]).output().expect("unisono starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(summary(&output)["gangs"].as_array().map(Vec::len), Some(1));
    Ok(())
}

host_tests![needs Machine;
    an_orderly_end_leaves_nothing_and_passes_output_and_exit_codes,
    a_trace_shows_one_gang_at_a_time_on_each_processor within 60,
    an_interrupt_reaches_the_programs_and_everything_is_put_back within 60,
    a_request_to_end_reaches_the_programs_and_everything_is_put_back within 60,
    a_request_to_end_puts_real_time_classes_back within 60,
    a_request_to_end_continues_programs_that_were_stopped within 60,
    the_guardian_frees_the_programs_when_the_scheduler_is_killed within 60,
    the_guardian_puts_real_time_classes_back_when_the_scheduler_is_killed within 60,
    gang_restore_frees_the_programs_when_scheduler_and_guardian_were_killed within 60,
    gang_restore_leaves_living_schedulers_alone within 60,
    time_follows_the_weights_and_waiting_gangs_get_none within 60,
    a_gang_that_sleeps_lends_its_cores_to_the_next within 60,
    a_gang_that_blocks_rests_and_takes_turns_again_when_it_wants_its_cores within 120,
    a_new_process_runs_while_gangs_spin_on_all_cores within 60,
    a_larger_share_is_more_time_beside_other_programs within 60,
    too_many_threads_are_refused_and_the_summary_says_so within 60,
    without_privilege_it_says_what_is_missing_or_does_what_it_can within 60,
    bad_input_starts_nothing within 60,
    one_program_and_one_that_ends_at_once_are_gangs_too within 60,
];
