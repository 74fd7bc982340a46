//! Tests `unisono run --hosts`: one job in two network namespaces, which the launch command enters.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use unisono_host_tests::hosts::Hosts;
use unisono_host_tests::processes::{is_gone, send, text, until};
use unisono_host_tests::{TestOutcome, host_tests, program};
use unisono_linux::process::Signal;

const ENTER: &str = "ip netns exec {host} {args}";

/// Returns the value of `--hosts` for both hosts with `each` ranks each.
fn list(hosts: &Hosts, each: usize) -> String {
    let host = |number| format!("{}={}:{each}", hosts.name(number), Hosts::address(number));
    format!("{},{}", host(0), host(1))
}

fn unisono(arguments: &[&str]) -> Command {
    let mut command = Command::new(program::unisono());
    command.args(["run", "--timeout", "50s"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn across(hosts: &Hosts, each: usize, arguments: &[&str]) -> Command {
    let list = list(hosts, each);
    unisono(&[&["--hosts", &list, "--launch", ENTER], arguments].concat())
}

/// Asserts exit code 0, and returns the standard output.
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

/// Starts ranks that first print "rank process helper", the number of the rank, of its process and of its
/// parent. Reads these lines.
fn start(
    command: &mut Command,
    ranks: usize,
) -> (Child, Vec<[i32; 3]>, BufReader<std::process::ChildStdout>) {
    let mut child = command.spawn().expect("unisono starts");
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut numbers = Vec::new();
    for _ in 0..ranks {
        let mut line = String::new();
        output.read_line(&mut line).expect("output can be read");
        let words: Vec<i32> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        numbers.push(words.try_into().expect("three numbers"));
    }
    numbers.sort_unstable();
    (child, numbers, output)
}

const SAYS_WHO: &str = "echo $UNISONO_RANK $$ $PPID; exec sleep 100";

fn a_program_that_ran_on_one_host_runs_unchanged_on_two() -> TestOutcome {
    let hosts = Hosts::new()?;
    let (heat, table) = ["heat", "hash-table"].map(|name| program::directory().join(name)).into();
    let (heat, table) = (heat.to_str().expect("letters"), table.to_str().expect("letters"));
    let sweeps: &[&[&str]] = &[
        &[heat, "--size", "48", "--steps", "30"],
        &[heat, "--size", "48", "--steps", "30", "--synchronization", "pscw"],
        &[table, "--keys", "60"],
    ];
    for words in sweeps {
        // compares the results without the times
        let said = |output: &Output| {
            let all = succeeded(output);
            let before = all.split([',', ':']).take(3).collect::<Vec<_>>().join(",");
            (
                before,
                all.contains("equal to the sequential solution") || all.contains("found exactly once"),
            )
        };
        let one = said(&unisono(&[&["-n", "4"], *words].concat()).output().expect("unisono starts"));
        let two = said(&across(&hosts, 2, words).output().expect("unisono starts"));
        assert!(one.1, "{one:?}");
        assert_eq!(one, two);
    }
    Ok(())
}

fn the_key_is_on_no_command_line_and_in_no_environment_but_the_ranks() -> TestOutcome {
    let hosts = Hosts::new()?;
    let script = "tr '\\0' ' ' </proc/$PPID/cmdline; tr '\\0' ' ' </proc/$PPID/environ; echo; echo \"key $UNISONO_JOB\"";
    let output = succeeded(&across(&hosts, 2, &["sh", "-c", script]).output().expect("unisono starts"));
    let keys: BTreeSet<&str> = output.lines().filter_map(|line| line.strip_prefix("key ")).collect();
    let key = keys.first().expect("a key");
    assert!(keys.len() == 1 && key.len() == 32, "one key: {keys:?}");
    let helpers: Vec<&str> = output.lines().filter(|line| line.contains("run --helper")).collect();
    assert_eq!(helpers.len(), 4, "{output}");
    assert!(
        helpers.iter().all(|helper| !helper.contains(key) && !helper.contains("UNISONO_JOB")),
        "{output}"
    );
    Ok(())
}

fn standard_input_reaches_rank_zero_on_the_first_host_whole() -> TestOutcome {
    let hosts = Hosts::new()?;
    let script = "if [ $UNISONO_RANK = 0 ]; then exec cksum; fi";
    let sent: Vec<u8> =
        (0..1_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let sum = |mut command: Command| {
        let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("piped").write_all(&sent).expect("it reads");
        succeeded(&child.wait_with_output().expect("it ends"))
    };
    assert_eq!(sum(across(&hosts, 1, &["sh", "-c", script])), sum(unisono(&["-n", "1", "cksum"])));
    Ok(())
}

fn a_rank_that_reads_nothing_does_not_hold_up_a_signal() -> TestOutcome {
    let hosts = Hosts::new()?;
    let mut command = across(&hosts, 1, &["sh", "-c", SAYS_WHO]);
    let (mut child, ranks, _output) = start(command.stdin(Stdio::piped()), 2);
    let mut input = child.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || drop(input.write_all(&vec![b'x'; 4 << 20])));
    std::thread::sleep(Duration::from_millis(300));
    send(child.id() as i32, Signal::Terminate);
    assert_eq!(child.wait().expect("it ends").code(), Some(128 + 15));
    assert!(ranks.iter().all(|[_, process, _]| is_gone(*process)));
    writer.join().expect("the pipe has ended");
    Ok(())
}

fn the_first_failing_rank_decides_on_any_host() -> TestOutcome {
    let hosts = Hosts::new()?;
    let script = "if [ $UNISONO_RANK = 3 ]; then exit 7; fi; exec sleep 100";
    let output = across(&hosts, 2, &["--grace", "100ms", "--json", "sh", "-c", script]).output();
    let output = output.expect("unisono starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(said.contains("rank 3 (process ") && said.contains("ended with exit code 7"), "{said}");
    let summary: serde_json::Value =
        serde_json::from_str(text(&output.stdout).lines().last().unwrap_or_default()).expect("JSON");
    assert_eq!((&summary["first_failure"], &summary["size"]), (&3.into(), &4.into()));
    assert_eq!(summary["ranks"][3]["host"], hosts.name(1));
    Ok(())
}

fn a_time_limit_ends_the_ranks_of_all_hosts() -> TestOutcome {
    let hosts = Hosts::new()?;
    let list = list(&hosts, 2);
    let mut command = Command::new(program::unisono());
    command.args(["run", "--timeout", "2s", "--hosts", &list, "--launch", ENTER, "sh", "-c", SAYS_WHO]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let (mut child, ranks, _output) = start(&mut command, 4);
    assert_eq!(child.wait().expect("it ends").code(), Some(124));
    assert!(ranks.iter().all(|[_, process, _]| is_gone(*process)));
    Ok(())
}

fn a_host_that_dies_ends_the_job_and_everybody_is_told() -> TestOutcome {
    let hosts = Hosts::new()?;
    // far more steps than the test has time for
    let heat = program::directory().join("heat");
    let heat = heat.to_str().expect("letters");
    let script = format!("echo $UNISONO_RANK $$ $PPID; exec {heat} --size 64 --steps 100000000");
    let mut command = across(&hosts, 2, &["sh", "-c", &script]);
    let (child, ranks, _output) = start(&mut command, 4);
    std::thread::sleep(Duration::from_millis(700));
    let [_, _, helper] = ranks[3];
    send(helper, Signal::Kill);
    let output = child.wait_with_output().expect("it ends");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let lost = format!("host {} (process ", hosts.name(1));
    assert!(said.contains(&lost) && said.contains(" is lost: its launch command "), "{said}");
    assert!(said.contains("the launch command was: ip netns exec"), "{said}");
    // the ranks of the other host say which rank is gone
    assert!(said.contains("rank 2") || said.contains("rank 3"), "{said}");
    until("all ranks have ended", || ranks.iter().all(|[_, process, _]| is_gone(*process)));
    Ok(())
}

fn a_rank_that_is_killed_is_named_by_the_launcher_and_by_the_ranks_of_the_other_host() -> TestOutcome {
    let hosts = Hosts::new()?;
    let scratch = tempfile::tempdir().expect("a directory");
    let heat = program::directory().join("heat");
    // far more steps than the test has time for; each rank's messages go into a file of its own
    let script = format!(
        "echo $UNISONO_RANK $$ $PPID; exec {} --size 64 --steps 100000000 2>{}/$UNISONO_RANK",
        heat.to_str().expect("letters"),
        scratch.path().display()
    );
    let mut command = across(&hosts, 2, &["sh", "-c", &script]);
    let (child, ranks, _output) = start(&mut command, 4);
    std::thread::sleep(Duration::from_millis(700));
    let [_, process, _] = ranks[3];
    send(process, Signal::Kill);
    let output = child.wait_with_output().expect("it ends");
    let said = text(&output.stderr);
    assert!(said.contains("rank 3 (process ") && said.contains("was ended by SIGKILL"), "{said}");
    // the first rank of the other host that ends may be named by the second
    let of_other_host: String = (0..2)
        .map(|rank| fs::read_to_string(scratch.path().join(rank.to_string())).expect("written"))
        .collect();
    assert!(of_other_host.contains("rank 3 is gone"), "{of_other_host}; {said}");
    Ok(())
}

fn ranks_of_all_hosts_end_with_a_launcher_that_is_killed() -> TestOutcome {
    let hosts = Hosts::new()?;
    let (mut child, ranks, _output) = start(&mut across(&hosts, 2, &["sh", "-c", SAYS_WHO]), 4);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    until("all ranks have ended", || ranks.iter().all(|[_, process, _]| is_gone(*process)));
    Ok(())
}

fn a_launch_command_that_fails_is_quoted_with_its_own_words() -> TestOutcome {
    let hosts = Hosts::new()?;
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("shell");
    fs::write(&path, "#!/bin/sh\necho \"no route to $1\" >&2\nexit 255\n").expect("a script");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
    let launch = format!("{} {{host}} {{args}}", path.display());
    let list = list(&hosts, 1);
    let output = unisono(&["--hosts", &list, "--launch", &launch, "true"]).output().expect("it starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains(&format!("no route to {}", hosts.name(1))), "{said}");
    assert!(
        said.contains("ended with exit code 255") && said.contains(&launch[..launch.len() - 14]),
        "{said}"
    );
    // a host that the launch command does not know, after a host that it knows
    let unknown = format!("{}={},nobody", hosts.name(0), Hosts::address(0));
    let output =
        unisono(&["--hosts", &unknown, "--launch", ENTER, "--grace", "100ms", "sleep", "100"]).output();
    let output = output.expect("it starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        said.contains("host nobody (process ") && said.contains("Cannot open network namespace"),
        "{said}"
    );
    Ok(())
}

fn what_cannot_be_started_is_refused_before_anything_runs() -> TestOutcome {
    let refused = |arguments: &[&str], words: &[&str]| {
        let output = unisono(arguments).output().expect("unisono starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    };
    let here = "a=127.0.0.1,b=127.0.0.1";
    refused(
        &["--hosts", here, "--launch", "/no/such/shell {host} {args}", "true"],
        &["/no/such/shell"],
    );
    refused(&["--hosts", "no-such-host.invalid,b", "true"], &["no-such-host.invalid=ADDRESS:1"]);
    refused(&["--hosts", "a=127.0.0.1:2,b=10.77.0.2:2", "true"], &["127.0.0.1", "a=ADDRESS:2"]);
    refused(&["--hosts", "a:0", "true"], &["a host without ranks"]);
    refused(&["--hosts", here, "--launch", "rsh {host}", "true"], &["{args}"]);
    refused(&["--hosts", here, "-n", "2", "true"], &["--ranks"]);
    refused(
        &["--hosts", here, "--launch", "env {args}", "./no/such/program"],
        &["host a: ", "./no/such/program"],
    );
    refused(&["--helper"], &["--hosts"]);
    Ok(())
}

fn a_port_in_use_is_named_with_the_remedy() -> TestOutcome {
    let hosts = Hosts::new()?;
    let heat = program::directory().join("heat");
    // starts rank 0 of another job, which waits for a rank that never comes and so occupies the port
    let mut holder = hosts.command(0, &heat);
    let root = format!("{}:7117", Hosts::address(0));
    holder.envs([
        ("UNISONO_RANK", "0"),
        ("UNISONO_SIZE", "2"),
        ("UNISONO_HERE", "0"),
        ("UNISONO_ROOT", &root),
    ]);
    holder.env("UNISONO_JOB", "00112233445566778899aabbccddeeff").stdout(Stdio::null()).stderr(Stdio::null());
    let mut holder = holder.spawn().expect("it starts");
    // port 7117 among the sockets that listen (state 0A) in the namespace of this process
    let sockets = format!("/proc/{}/net/tcp", holder.id());
    let listens = |table: String| table.contains(":1BCD 00000000:0000 0A");
    until("it has the port", || fs::read_to_string(&sockets).is_ok_and(listens));
    let output = across(&hosts, 1, &["--port", "7117", heat.to_str().expect("letters")]).output();
    holder.kill().expect("it still waits");
    holder.wait().expect("it ends");
    let output = output.expect("unisono starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains(&format!("{root}: the port is in use")) && said.contains("--port"), "{said}");
    Ok(())
}

fn tasks_of_srun_find_each_other_by_its_variables() -> TestOutcome {
    let hosts = Hosts::new()?;
    let heat = program::directory().join("heat");
    let task = |rank: usize, key: Option<&str>| {
        let mut command = hosts.command(rank / 2, Path::new(&heat));
        command.args(["--size", "48", "--steps", "30"]);
        let here = if rank < 2 { "0,1" } else { "2,3" };
        command.envs([("SLURM_PROCID", rank.to_string().as_str()), ("SLURM_GTIDS", here)]);
        command.envs([("SLURM_NTASKS", "4"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_JOB_ID", "77")]);
        command.envs([("SLURM_STEP_ID", "0"), ("SLURM_STEP_NODELIST", "10.77.0.[1-2]")]);
        command.envs(key.map(|key| ("UNISONO_JOB", key)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        command.spawn().expect("it starts")
    };
    let tasks: Vec<Child> = (0..4).map(|rank| task(rank, Some("00112233445566778899aabbccddeeff"))).collect();
    let outputs = tasks.into_iter().map(|task| succeeded(&task.wait_with_output().expect("it ends")));
    let said: String = outputs.collect();
    assert!(said.contains("4 ranks") && said.contains("equal to the sequential solution"), "{said}");
    let alone = task(1, None).wait_with_output().expect("it ends");
    let said = text(&alone.stderr);
    assert!(
        !alone.status.success() && said.contains("task 1 of 4") && said.contains("export UNISONO_JOB="),
        "{said}"
    );
    Ok(())
}

host_tests![needs Nothing;
    a_program_that_ran_on_one_host_runs_unchanged_on_two within 120,
    the_key_is_on_no_command_line_and_in_no_environment_but_the_ranks,
    standard_input_reaches_rank_zero_on_the_first_host_whole,
    a_rank_that_reads_nothing_does_not_hold_up_a_signal,
    the_first_failing_rank_decides_on_any_host,
    a_time_limit_ends_the_ranks_of_all_hosts,
    a_host_that_dies_ends_the_job_and_everybody_is_told,
    a_rank_that_is_killed_is_named_by_the_launcher_and_by_the_ranks_of_the_other_host,
    ranks_of_all_hosts_end_with_a_launcher_that_is_killed,
    a_launch_command_that_fails_is_quoted_with_its_own_words,
    what_cannot_be_started_is_refused_before_anything_runs,
    a_port_in_use_is_named_with_the_remedy,
    tasks_of_srun_find_each_other_by_its_variables,
];
