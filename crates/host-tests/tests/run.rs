//! Tests `unisono run` on this host: placement, output, signals, exit codes, and that no process is left
//! behind.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use unisono_host_tests::processes::{is_gone, send, text, until};
use unisono_host_tests::{TestOutcome, host_tests, program, require};
use unisono_linux::process::Signal;
use unisono_linux::process_stat::ProcessStat;

fn unisono(arguments: &[&str]) -> Command {
    let mut command = Command::new(program::unisono());
    command.arg("run").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    unisono(arguments).output().expect("unisono starts")
}

/// Starts a job whose script first prints its process number, and reads these numbers.
fn start(
    options: &[&str],
    script: &str,
    ranks: usize,
) -> (Child, Vec<i32>, BufReader<std::process::ChildStdout>) {
    let count = ranks.to_string();
    let mut arguments = vec!["-n", &count];
    arguments.extend(options);
    arguments.extend(["sh", "-c", script]);
    let mut child = unisono(&arguments).stderr(Stdio::null()).spawn().expect("unisono starts");
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut numbers = Vec::new();
    for _ in 0..ranks {
        let mut line = String::new();
        output.read_line(&mut line).expect("output can be read");
        numbers.push(line.trim().parse().expect("a process's number"));
    }
    (child, numbers, output)
}

fn ranks_have_different_places_in_one_job() -> TestOutcome {
    let output = run(&["-n", "5", "sh", "-c", "echo $UNISONO_RANK $UNISONO_SIZE $UNISONO_JOB"]);
    assert!(output.status.success(), "{output:?}");
    let lines: BTreeSet<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    let ranks: Vec<String> = lines.iter().map(|line| line[..1].to_owned()).collect();
    assert_eq!(ranks, ["0", "1", "2", "3", "4"]);
    let jobs: BTreeSet<&str> = lines.iter().map(|line| &line[2..]).collect();
    assert_eq!(jobs.len(), 1, "one size and one key: {jobs:?}");
    assert!(jobs.iter().all(|job| job.starts_with("5 ") && job.len() == 34), "{jobs:?}");
    Ok(())
}

fn lines_of_ranks_that_write_at_once_are_not_mixed() -> TestOutcome {
    let script = "for i in 1 2 3 4 5 6 7 8 9; do printf aaaa; printf bbbb; printf 'cccc %s\\n' $i; done";
    let output = run(&["-n", "8", "--prefix", "sh", "-c", script]);
    assert!(output.status.success(), "{output:?}");
    let all = text(&output.stdout);
    assert_eq!(all.lines().count(), 72);
    for rank in 0..8 {
        let own: Vec<&str> = all.lines().filter_map(|l| l.strip_prefix(&format!("[{rank}] "))).collect();
        let expected: Vec<String> = (1..10).map(|i| format!("aaaabbbbcccc {i}")).collect();
        assert_eq!(own, expected, "rank {rank}");
    }
    Ok(())
}

fn output_comes_while_the_job_runs() -> TestOutcome {
    // `start` has read lines of a job that is still running
    let (mut child, numbers, _output) = start(&[], "echo $$; exec sleep 100", 2);
    assert!(numbers.iter().all(|pid| !is_gone(*pid)));
    send(child.id() as i32, Signal::Terminate);
    assert_eq!(child.wait().expect("it ends").code(), Some(128 + 15));
    Ok(())
}

fn much_output_arrives_whole() -> TestOutcome {
    let output = run(&["-n", "3", "sh", "-c", "seq 1 20000; echo end of $UNISONO_RANK >&2"]);
    assert!(output.status.success(), "{output:?}");
    let sum: u64 = text(&output.stdout).lines().map(|line| line.parse::<u64>().expect("a number")).sum();
    assert_eq!(sum, 3 * 20_000 * 20_001 / 2);
    assert_eq!(text(&output.stderr).lines().count(), 3);
    Ok(())
}

fn a_window_of_another_size_loses_no_output_of_ranks_that_have_ended() -> TestOutcome {
    // 300,000 bytes: more than a pipe holds
    let script = "echo $$; yes 123456789 | head -n 30000";
    let (mut child, ranks, mut output) = start(&[], script, 1);
    // the rank has written its last byte, and the launcher waits for this reader
    until("the rank has ended", || is_gone(ranks[0]));
    for _ in 0..5 {
        send(child.id() as i32, Signal::WindowChange);
        std::thread::sleep(Duration::from_millis(5)); // so that the signals do not merge
    }
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).expect("it can be read");
    assert!(child.wait().expect("it is ours").success());
    assert_eq!(rest, b"123456789\n".repeat(30_000));
    Ok(())
}

fn standard_input_is_rank_zeros() -> TestOutcome {
    let mut child = unisono(&["-n", "3", "--prefix", "cat"]).stdin(Stdio::piped()).spawn().expect("starts");
    child.stdin.take().expect("piped").write_all(b"hello\n").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "[0] hello\n"));
    Ok(())
}

fn ranks_are_spread_where_there_are_processors_and_left_alone_elsewhere() -> TestOutcome {
    require::cpus(2)?;
    let cpus = |arguments: &[&str]| -> Vec<Value> {
        let output =
            run(&[&["--json"], arguments, &["grep", "Cpus_allowed_list", "/proc/self/status"]].concat());
        let last = text(&output.stdout).lines().last().unwrap_or_default().to_owned();
        let summary: Value = serde_json::from_str(&last).expect("one JSON object");
        // each rank's own output has to agree with the summary
        for rank in summary["ranks"].as_array().expect("ranks") {
            if let Some(cpu) = rank["cpu"].as_u64() {
                assert!(text(&output.stdout).contains(&format!("\t{cpu}\n")), "{output:?}");
            }
        }
        summary["ranks"].as_array().expect("ranks").iter().map(|rank| rank["cpu"].clone()).collect()
    };
    let spread = cpus(&["-n", "2"]);
    assert!(spread.iter().all(Value::is_u64) && spread[0] != spread[1], "{spread:?}");
    assert!(cpus(&["-n", "2", "--bind", "none"]).iter().all(Value::is_null));
    assert!(cpus(&["-n", "200", "--bind", "auto"]).iter().all(Value::is_null));
    assert!(cpus(&["-n", "9", "--bind", "core"]).iter().all(Value::is_u64));
    Ok(())
}

fn a_signal_reaches_every_rank_and_what_it_started_once() -> TestOutcome {
    // a process that the rank has started gets the signal, too, because it is in the rank's process group
    // it prints the number of the rank, which is $$ in a subshell, too, once both have set their traps
    let script = "trap 'echo told' TERM; (trap 'echo child told; exit 0' TERM; echo $$; while :; do sleep 0.02; done) & \
        while :; do wait && exit 0; done";
    let (mut child, _, output) = start(&["--grace", "20s"], script, 2);
    send(child.id() as i32, Signal::Terminate);
    let said: Vec<String> = output.lines().map_while(Result::ok).collect();
    assert_eq!(said.iter().filter(|line| *line == "told").count(), 2, "{said:?}");
    assert_eq!(said.iter().filter(|line| *line == "child told").count(), 2, "{said:?}");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "the ranks ended well in their own time");
    Ok(())
}

fn a_second_signal_kills() -> TestOutcome {
    let (mut child, numbers, _output) =
        start(&["--grace", "100s"], "trap '' INT TERM; echo $$; while :; do sleep 0.02; done", 2);
    send(child.id() as i32, Signal::Interrupt);
    std::thread::sleep(Duration::from_millis(200));
    assert!(numbers.iter().all(|pid| !is_gone(*pid)), "the first one is the program's to obey");
    send(child.id() as i32, Signal::Interrupt);
    assert_eq!(child.wait().expect("it ends").code(), Some(128 + 9));
    assert!(numbers.iter().all(|pid| is_gone(*pid)));
    Ok(())
}

fn ranks_die_with_a_launcher_that_is_killed() -> TestOutcome {
    let (mut child, numbers, _output) = start(&[], "echo $$; while :; do sleep 0.02; done", 3);
    send(child.id() as i32, Signal::Kill);
    assert_eq!(child.wait().expect("it was killed").signal(), Some(9));
    until("the ranks' end", || numbers.iter().all(|pid| is_gone(*pid)));
    Ok(())
}

fn what_ranks_leave_in_their_group_ends_with_the_job() -> TestOutcome {
    let output = run(&["-n", "2", "sh", "-c", "sleep 1000 & echo $!"]);
    assert!(output.status.success(), "{output:?}");
    let left: Vec<i32> = text(&output.stdout).lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(left.len(), 2);
    until("the end of what ranks left", || left.iter().all(|pid| is_gone(*pid)));
    Ok(())
}

fn a_rank_that_ends_while_others_hold_its_pipe_does_not_hold_up_the_launcher() -> TestOutcome {
    // many times, because the last output and the end of a rank come at almost the same moment
    for _ in 0..20 {
        let output = run(&["-n", "4", "--timeout", "20s", "sh", "-c", "setsid sleep 0.5 & echo last"]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(text(&output.stdout), "last\n".repeat(4));
    }
    Ok(())
}

fn a_stopped_job_goes_on_together() -> TestOutcome {
    // no loop of sleeps, because a shell in vfork is in state D, not T, if its child is stopped before it has
    // become sleep
    let (mut child, numbers, _output) = start(&[], "echo $$; exec sleep 100", 2);
    let is_stopped = |pid: i32| ProcessStat::read(pid).is_some_and(|stat| stat.state == 'T');
    let launcher = child.id() as i32;
    send(child.id() as i32, Signal::Suspend);
    let all = || numbers.iter().copied().chain([launcher]);
    until("everybody stopped", || all().all(&is_stopped));
    send(child.id() as i32, Signal::Continue);
    until("everybody goes on", || all().all(|pid| !is_stopped(pid)));
    send(child.id() as i32, Signal::Terminate);
    assert_eq!(child.wait().expect("it ends").code(), Some(128 + 15));
    Ok(())
}

fn a_reader_that_is_gone_ends_the_job_as_in_any_pipeline() -> TestOutcome {
    let mut child = unisono(&["-n", "2", "--grace", "100ms", "yes"]).spawn().expect("it starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it says yes");
    drop(output);
    // yes(1) exits with code 1 if a write fails, or is ended by SIGPIPE if that is not ignored
    assert!(child.wait().expect("it ends").code().is_some_and(|code| code == 1 || code == 128 + 13));
    Ok(())
}

fn nohup_protects_the_job_too() -> TestOutcome {
    require::program("nohup", "apt-get install coreutils")?;
    let mut command = Command::new("nohup");
    command.arg(program::unisono()).args(["run", "-n", "1", "sh", "-c", "echo on; read -r line; echo off"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("nohup starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it runs");
    send(child.id() as i32, Signal::Hangup);
    std::thread::sleep(Duration::from_millis(100));
    child.stdin.take().expect("piped").write_all(b"go\n").expect("it still reads");
    line.clear();
    output.read_line(&mut line).expect("it goes on");
    assert_eq!(line, "off\n");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    Ok(())
}

fn a_summary_says_how_each_rank_ended() -> TestOutcome {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("a path of letters");
    let script = "if [ $UNISONO_RANK = 1 ]; then kill -KILL $$; fi";
    let output = run(&["-n", "2", "--summary", path, "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(137), "{output:?}");
    let text = fs::read_to_string(Path::new(path)).expect("it was written");
    let summary: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&summary["exit_code"], &summary["first_failure"], &summary["size"]),
        (&137.into(), &1.into(), &2.into())
    );
    assert_eq!(
        (&summary["ranks"][1]["signal"], &summary["ranks"][0]["exit_code"]),
        (&9.into(), &0.into())
    );
    Ok(())
}

host_tests![needs Nothing;
    ranks_have_different_places_in_one_job,
    lines_of_ranks_that_write_at_once_are_not_mixed,
    output_comes_while_the_job_runs,
    much_output_arrives_whole,
    a_window_of_another_size_loses_no_output_of_ranks_that_have_ended,
    standard_input_is_rank_zeros,
    ranks_are_spread_where_there_are_processors_and_left_alone_elsewhere within 120,
    a_signal_reaches_every_rank_and_what_it_started_once,
    a_second_signal_kills,
    ranks_die_with_a_launcher_that_is_killed,
    what_ranks_leave_in_their_group_ends_with_the_job,
    a_rank_that_ends_while_others_hold_its_pipe_does_not_hold_up_the_launcher,
    a_stopped_job_goes_on_together,
    a_reader_that_is_gone_ends_the_job_as_in_any_pipeline,
    nohup_protects_the_job_too,
    a_summary_says_how_each_rank_ended,
];
