//! Tests commands that change the queue of a device and are interrupted. After a kill, a stop, a renaming, a
//! removal or a full disk, the device is as before when the next command has answered.

use crate::queue_shared::{
    DEVICE, THREE, applied, apply, cleared, file, journal, looks, name, on_a_host, seen, unisono,
    wait_until_it_looks,
};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use unisono_enforce::journal::Journal;
use unisono_host_tests::hosts::ip;
use unisono_host_tests::processes::words;
use unisono_host_tests::{Skipped, TestOutcome, host_tests, one_in, program, require};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::process_stat::is_gone;

const JOURNALS: &str = "/run/unisono/queue";

/// Returns the files about this namespace's devices in the directory of journals, including unfinished ones.
fn files() -> Vec<String> {
    let namespace =
        fs::metadata("/proc/thread-self/ns/net").map(|found| std::os::unix::fs::MetadataExt::ino(&found));
    let namespace = format!("{}-", namespace.expect("proc is mounted"));
    let entries = fs::read_dir(JOURNALS).map(|all| all.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let names = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&namespace)).collect()
}

/// Returns the processes of the queue: the guard, and the worker that frames pass through.
fn processes() -> [u32; 2] {
    let journal = Journal::for_device(DEVICE).expect("proc is mounted");
    let record = journal.read::<serde_json::Value>().expect("sound").expect("a policy holds");
    let children = format!("/proc/{0}/task/{0}/children", record.author.process);
    let worker = fs::read_to_string(children).expect("it runs").trim().parse().expect("it has one child");
    [record.author.process, worker]
}

fn kill(process: u32, signal: &str) {
    let killed =
        Command::new("kill").args([signal, &process.to_string()]).status().expect("kill is everywhere");
    assert!(killed.success(), "{process} runs");
}

/// Returns the processes of queues in this namespace that have not ended.
fn serving() -> Vec<u32> {
    let own = fs::read_link("/proc/thread-self/ns/net").expect("proc is mounted");
    let entries = fs::read_dir("/proc").expect("proc is mounted").flatten();
    let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let serves = |process: &u32| {
        let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).any(|word| word == b"interpose")
            && fs::read_link(format!("/proc/{process}/ns/net")).is_ok_and(|namespace| namespace == own)
    };
    all.filter(serves).filter(|process| !is_gone(*process)).collect()
}

fn a_command_that_is_killed_anywhere_has_no_effect_once_clear_has_answered() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let policy = file(THREE);
    let before = looks();
    for options in [&[][..], &["--backend", "interposed"]] {
        // measures how long the command takes here, so that it can be killed at every stage
        let begin = std::time::Instant::now();
        applied(&policy, options)?;
        let whole = begin.elapsed();
        cleared(&["--dev", DEVICE]);
        for part in (0..24).step_by(one_in(4)) {
            let mut command = Command::new(program::unisono())
                .args(["queue", "apply", name(&policy), "--dev", DEVICE])
                .args(options)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("it starts");
            thread::sleep(whole * part / 20);
            command.kill().expect("it is ours");
            command.wait().expect("it is ours");
            cleared(&["--dev", DEVICE]);
            assert_eq!(serving(), [0; 0], "killed after {part} twentieths of {whole:?}");
            wait_until_it_looks(&before);
            assert_eq!(files(), [""; 0], "killed after {part} twentieths of {whole:?}");
            thread::sleep(whole / 2);
            assert_eq!(looks(), before, "it came up later: killed after {part} twentieths of {whole:?}");
        }
    }
    Ok(())
}

fn a_policy_follows_its_device_to_another_name_and_goes_by_either() -> TestOutcome {
    let hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let policy = file(THREE);
    let rename = |from: &str, to: &str| {
        ip(&["-n", hosts.name(0), "link", "set", from, "down"]).expect("it is there");
        ip(&["-n", hosts.name(0), "link", "set", from, "name", to]).expect("the name is free");
        ip(&["-n", hosts.name(0), "link", "set", to, "up"]).expect("it is there");
    };
    let before = looks();
    for options in [&[][..], &["--backend", "interposed"]] {
        for by in [DEVICE, "renamed"] {
            applied(&policy, options)?;
            rename(DEVICE, "renamed");
            let shown = unisono(&["queue", "show", "--dev", by, "--once", "--interval", "10ms"]);
            assert!(shown.status.success(), "{}", words(&shown));
            assert!(cleared(&["--dev", by]).contains("renamed: as before the policy"));
            rename("renamed", DEVICE);
            wait_until_it_looks(&before);
            assert_eq!(files(), [""; 0]);
        }
    }
    Ok(())
}

fn a_device_with_the_name_that_another_one_had_is_left_alone() -> TestOutcome {
    let hosts = on_a_host()?;
    let on_host = |words: &[&str]| ip(&[&["-n", hosts.name(0)], words].concat()).expect("it can");
    drop(apply(THREE)?);
    on_host(&["link", "set", DEVICE, "down"]);
    on_host(&["link", "set", DEVICE, "name", "first"]);
    on_host(&["link", "add", DEVICE, "type", "veth", "peer", "name", "far"]);
    let other = seen();
    let nothing = unisono(&["queue", "clear", "--dev", DEVICE]);
    assert!(words(&nothing).contains("no policy, nothing to put back"), "{}", words(&nothing));
    assert_eq!(seen(), other);
    on_host(&["link", "del", DEVICE]);
    assert!(cleared(&["--dev", "first"]).contains("first: as before"));
    let qdiscs = Command::new("tc").args(["qdisc", "show", "dev", "first"]).output().expect("tc starts");
    assert!(!String::from_utf8_lossy(&qdiscs.stdout).contains("htb"));
    Ok(())
}

fn without_room_for_the_journal_the_policy_before_goes_on() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    require::program("unshare", "apt-get install util-linux")?;
    let (first, second) = (file(THREE), file(&THREE.replace("gold", "platinum")));
    for options in ["", "--backend interposed"] {
        let script = format!(
            "mount -t tmpfs -o size=64k,mode=0755 tmpfs /run && set -- {} queue || exit 3
             \"$@\" apply {} --dev {DEVICE} {options} >/dev/null || exit $?
             dd if=/dev/zero of=/run/full bs=512 >/dev/null 2>&1
             \"$@\" apply {} --dev {DEVICE} {options} >/dev/null && echo applied
             \"$@\" show --dev {DEVICE} --once --json --interval 10ms
             \"$@\" clear --dev {DEVICE} && find /run -type f",
            program::unisono().display(),
            name(&first),
            name(&second)
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        let output = command.output().expect("unshare starts");
        if output.status.code() == Some(3) {
            return Err(Skipped::because(words(&output)));
        }
        let said = words(&output);
        assert!(said.contains("no space left") && !said.contains("applied"), "{said}");
        assert!(said.contains("\"gold\"") && !said.contains("\"platinum\""), "{said}");
        assert!(said.ends_with("/run/full\n"), "nothing else is left: {said}");
    }
    Ok(())
}

fn the_processes_of_a_queue_end_when_their_namespace_is_deleted() -> TestOutcome {
    let home = NetworkNamespace::current().expect("proc is mounted");
    let hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let policy = file(THREE);
    applied(&policy, &["--backend", "interposed"])?;
    let (processes, journal) = (processes(), journal());
    // the namespace's name still exists in mount namespaces that were made meanwhile; this must not count
    home.enter().expect("root may");
    thread::sleep(Duration::from_secs(5));
    assert!(processes.into_iter().all(|process| !is_gone(process)), "the namespace has a name");
    ip(&["netns", "delete", hosts.name(0)]).expect("it is there");
    while processes.into_iter().any(|process| !is_gone(process)) {
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!journal.exists());
    Ok(())
}

fn a_queue_with_a_stopped_process_is_cleared() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let policy = file(THREE);
    let before = looks();
    for stopped in [1, 0] {
        applied(&policy, &["--backend", "interposed"])?;
        let processes = processes();
        kill(processes[stopped], "-STOP");
        let said = cleared(&["--dev", DEVICE]);
        assert_eq!(said.contains("did not answer"), stopped == 0, "{said}");
        wait_until_it_looks(&before);
        assert!(processes.into_iter().all(is_gone));
        assert_eq!(files(), [""; 0]);
    }
    Ok(())
}

fn the_next_command_of_whatever_kind_puts_back_what_two_killed_processes_left() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let policy = file(THREE);
    let before = looks();
    for command in [&["show", "--once"][..], &["show", "--dev", DEVICE], &["clear"], &["metrics"]] {
        applied(&policy, &["--backend", "interposed"])?;
        let processes = processes();
        processes.into_iter().for_each(|process| kill(process, "-KILL"));
        while processes.into_iter().any(|process| !is_gone(process)) {
            thread::sleep(Duration::from_millis(5));
        }
        let output = unisono(&[&["queue"][..], command].concat());
        assert!(words(&output).contains("put back what the queue at cable had left"), "{}", words(&output));
        // `show` fails, because no policy is in force; the other commands have nothing left to do
        assert_eq!(output.status.success(), command[0] != "show");
        assert!(!words(&output).contains("unisono_queue_up"), "{}", words(&output));
        wait_until_it_looks(&before);
        assert_eq!(files(), [""; 0]);
    }
    Ok(())
}

fn what_a_killed_command_was_writing_goes_with_the_next_one() -> TestOutcome {
    let _hosts = on_a_host()?;
    drop(apply(THREE)?);
    let unfinished = Path::new(JOURNALS).join("1-1.json.0.new");
    fs::write(&unfinished, "{").expect("root may");
    cleared(&["--dev", DEVICE]);
    assert!(!unfinished.exists());
    Ok(())
}

host_tests![needs OwnQueues;
    a_command_that_is_killed_anywhere_has_no_effect_once_clear_has_answered within 300,
    a_policy_follows_its_device_to_another_name_and_goes_by_either within 120,
    a_device_with_the_name_that_another_one_had_is_left_alone,
    without_room_for_the_journal_the_policy_before_goes_on within 120,
    the_processes_of_a_queue_end_when_their_namespace_is_deleted within 120,
    a_queue_with_a_stopped_process_is_cleared within 120,
    the_next_command_of_whatever_kind_puts_back_what_two_killed_processes_left within 120,
    what_a_killed_command_was_writing_goes_with_the_next_one,
];
