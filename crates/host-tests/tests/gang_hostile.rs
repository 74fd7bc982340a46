//! Tests `unisono gang daemon` against hostile users: names that are taken in advance, tiny quotas, paths
//! that do not answer, names of programs that are not UTF-8, many processes.

use crate::gang_shared::served::{Program, SPIN, Served, second_version, top};
use crate::gang_shared::{gangs, kill, unisono};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use unisono_host_tests::processes::until;
use unisono_host_tests::{Skipped, TestOutcome, groups, host_tests, quota};
use unisono_linux::cgroup::ControlGroup;
use unisono_linux::privilege::NOBODY;
use unisono_linux::process::Signal;

/// Starts a daemon to which every user may connect.
fn open_to_all(options: &[&str]) -> Served {
    let served = Served::start(&[&["--mode", "666"], options].concat());
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(served.directory.path(), open).expect("it is ours");
    served
}

/// Makes a control group of version 2 that is delegated to the user `nobody`.
fn handed_over(what: &str) -> ControlGroup {
    let group = top().create(&groups::name(what)).expect("root may");
    for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "cgroup.kill"] {
        chown(group.path().join(file), Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    group
}

fn nobodys(script: &str, processes: usize) -> Program {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).uid(NOBODY).gid(NOBODY).stdin(Stdio::null()).stdout(Stdio::null());
    Program::of(shell, processes)
}

/// Sends a line. Returns the reply and how long it took.
fn ask(served: &Served, line: &str) -> (Value, Duration) {
    let begun = Instant::now();
    let mut stream = UnixStream::connect(served.socket()).expect("it listens");
    stream.write_all(format!("{line}\n").as_bytes()).expect("it reads");
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).expect("it answers");
    (
        serde_json::from_str(&reply).unwrap_or_else(|error| panic!("{error}: {reply}")),
        begun.elapsed(),
    )
}

fn a_user_who_makes_groups_of_names_like_ours_ends_nothing_and_evades_nothing() -> TestOutcome {
    second_version()?;
    let group = handed_over("names");
    let served = open_to_all(&[]);
    // the names that the daemon would give to the next gangs here
    for number in 1..20 {
        let taken = group.path().join(format!("unisono-{}-gang-{number}", served.child.id()));
        fs::create_dir_all(taken.join("inside")).expect("root may");
        for directory in [&taken, &taken.join("inside")] {
            chown(directory, Some(NOBODY), Some(NOBODY)).expect("root may");
        }
    }
    let program = nobodys(SPIN, 2);
    program.move_to(&group);
    served.told(&["add", "--pid", &program.pid(), "--name", "one"]);
    until("turns", || served.gang("one")["threads"].as_u64() == Some(2));
    served.told(&["remove", "one"]);
    // a group with such a name that a user has made is treated as any other group
    let like_ours = group.path().join(format!("unisono-{}-gang-1/inside", served.child.id()));
    let like_ours = ControlGroup::at(like_ours, group.version());
    program.move_to(&like_ours);
    served.told(&["add", "--pid", &program.pid(), "--name", "two"]);
    served.told(&["remove", "two"]);
    assert_eq!(like_ours.processes().expect("it is there").len(), 2, "they are where they were");
    served.end();
    drop(program);
    remove_all(group.path());
    Ok(())
}

fn remove_all(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_all(&entry.path());
        }
    }
    until("an empty group", || fs::remove_dir(path).is_ok());
}

fn a_program_of_a_user_comes_into_its_gang_and_back_by_the_rights_of_that_user() -> TestOutcome {
    second_version()?;
    let group = handed_over("rights");
    let served = open_to_all(&[]);
    let program = nobodys(SPIN, 2);
    program.move_to(&group);
    served.told(&["add", "--pid", &program.pid(), "--name", "one"]);
    let mut home = fs::read_dir(group.path()).expect("it is there").flatten().map(|entry| entry.path());
    let home = home.find(|path| path.is_dir()).expect("a home");
    let owner = |path: &Path| std::os::unix::fs::MetadataExt::uid(&fs::metadata(path).expect("it is there"));
    for file in ["", "cgroup.procs", "cgroup.freeze", "cgroup.kill"] {
        assert_eq!(owner(&home.join(file)), 0, "{file} is root's");
    }
    served.told(&["remove", "one"]);
    assert_eq!(group.processes().expect("it is there").len(), 2);
    // if users take the right to move their processes away from themselves, only they are refused
    fs::set_permissions(group.path().join("cgroup.procs"), fs::Permissions::from_mode(0o444))
        .expect("root may");
    let refused = served.ask(&["add", "--pid", &program.pid()]);
    assert!(!refused.status.success(), "{refused:?}");
    served.end();
    drop(program);
    remove_all(group.path());
    Ok(())
}

fn a_quota_in_tiny_periods_does_not_set_how_often_the_machine_is_switched() -> TestOutcome {
    gangs()?;
    let group = quota::one_processor("tiny")?;
    let (time, period) = ("cpu.cfs_quota_us", "cpu.cfs_period_us");
    if group.has(time) {
        group.write(time, "1000").and_then(|()| group.write(period, "1000")).expect("root may");
    } else {
        group.write("cpu.max", "1000 1000").expect("root may");
    }
    let served = Served::with(&["--slice", "20ms"]);
    let programs: Vec<Program> = (0..8).map(|_| nobodys(SPIN, 2)).collect();
    for (number, program) in programs.iter().enumerate() {
        program.move_to(&group);
        served.told(&["add", "--pid", &program.pid(), "--name", &format!("g{number}")]);
    }
    until("turns", || served.list()["switches"].as_u64() > Some(20));
    let switches = || (Instant::now(), served.list()["switches"].as_u64().expect("a number"));
    let before = switches();
    std::thread::sleep(Duration::from_secs(3));
    let after = switches();
    let rate = (after.1 - before.1) as f64 / (after.0 - before.0).as_secs_f64();
    // turns last at least 5 ms; without a shortest turn there would be 17,000 switches a second or more
    assert!(rate < 400.0, "{rate} switches a second");
    served.end();
    programs.iter().for_each(Program::assert_free);
    Ok(())
}

fn a_path_that_does_not_answer_stops_nobody() -> TestOutcome {
    gangs()?;
    // a FUSE file system whose server never answers, so every access to it waits
    let place = tempfile::tempdir().expect("a directory");
    let Ok(device) = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") else {
        return Err(Skipped::because("it needs /dev/fuse; modprobe fuse"));
    };
    let number = std::os::fd::AsRawFd::as_raw_fd(&device);
    let options = format!("fd={number},rootmode=40000,user_id=0,group_id=0,allow_other");
    let options = std::ffi::CString::new(options).expect("no zero");
    let flags = rustix::mount::MountFlags::empty();
    let mounted = rustix::mount::mount("unisono-test", place.path(), "fuse", flags, options.as_c_str());
    if let Err(error) = mounted {
        return Err(Skipped::because(format!("a file system in user space cannot be mounted here: {error}")));
    }
    let served = open_to_all(&[]);
    let hung = place.path().join("x");
    let line =
        format!("{{\"add\":{{\"target\":{{\"group\":{{\"path\":{:?}}}}}}}}}", hung.display().to_string());
    let (refused, _) = ask(&served, &line);
    let unmounted = rustix::mount::unmount(place.path(), rustix::mount::UnmountFlags::DETACH);
    assert_eq!(refused["refused"]["kind"], "bad-request", "{refused}");
    let (list, _) = ask(&served, "{\"list\":{}}");
    assert_eq!(list["gangs"]["gangs"].as_array().map(Vec::len), Some(0));
    served.end();
    drop(device);
    unmounted.expect("it was mounted");
    Ok(())
}

fn a_program_whose_name_is_cut_inside_a_letter_is_a_program_like_others() -> TestOutcome {
    gangs()?;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("aaaaaaaaaaaaaa\u{fc}bung"); // the 15th byte is half a letter
    fs::copy("/bin/sleep", &path).expect("sleep is on every Linux");
    let served = Served::start(&[]);
    let mut alone = Command::new(&path).arg("600").spawn().expect("it starts");
    let name = || fs::read(format!("/proc/{}/comm", alone.id())).unwrap_or_default();
    until("its name", || String::from_utf8(name()).is_err());
    served.told(&["add", "--pid", &alone.id().to_string(), "--name", "alone"]);
    let parent = Program::start(&format!("'{}' 600 & sleep 600", path.display()), 3);
    served.told(&["add", "--pid", &parent.pid(), "--name", "parent"]);
    until("all of them", || served.gang("parent")["threads"].as_u64() == Some(3));
    served.end();
    alone.kill().expect("ours");
    alone.wait().expect("ours");
    drop(parent);
    Ok(())
}

fn a_list_is_answered_while_a_program_with_many_processes_comes_and_goes() -> TestOutcome {
    second_version()?;
    const MANY: usize = 800;
    let served = Served::start(&[]);
    let script = format!("i=0; while [ $i -lt {MANY} ]; do sleep 600 & i=$((i+1)); done; wait");
    let program = Program::start(&script, MANY + 1);
    let slowest = |command: &[&str]| {
        let mut child = served.command(command).spawn().expect("unisono starts");
        let (mut slowest, mut lists) = (Duration::ZERO, 0);
        while child.try_wait().expect("ours").is_none() {
            slowest = slowest.max(ask(&served, "{\"list\":{}}").1);
            lists += 1;
        }
        assert!(child.wait().expect("ours").success());
        (slowest, lists)
    };
    let added = slowest(&["add", "--pid", &program.pid(), "--name", "many"]);
    until("all of them", || served.gang("many")["threads"].as_u64() == Some(MANY as u64 + 1));
    let removed = slowest(&["remove", "many"]);
    eprintln!("lists while {MANY} processes came: {added:?}, and went: {removed:?} (slowest, how many)");
    // the daemon answers between pieces of its work; without pieces there would be one answer before and one
    // after
    assert!(added.1 >= 4 && removed.1 >= 3, "came {added:?}, went {removed:?}");
    served.end();
    Ok(())
}

fn the_unit_of_the_daemon_is_in_a_sandbox() -> TestOutcome {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("unisono-gang.service");
    let printed = unisono(&["gang", "install", "--print"]).output().expect("unisono starts");
    assert!(printed.status.success(), "{printed:?}");
    fs::write(&file, &printed.stdout).expect("room");
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=true", "--no-pager", "--threshold=40"]).arg(&file);
    let Ok(output) = analyze.output() else {
        return Err(Skipped::because("it needs systemd-analyze; apt-get install systemd"));
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if said.is_empty() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Skipped::because(format!("this systemd-analyze cannot look at a file: {why}")));
    }
    let level = said.lines().last().unwrap_or_default();
    assert!(output.status.success(), "more than 4.0: {level}\n{said}");
    eprintln!("{level}");
    Ok(())
}

fn a_signal_ends_a_daemon_while_it_works() -> TestOutcome {
    second_version()?;
    let served = Served::start(&[]);
    let script = "i=0; while [ $i -lt 300 ]; do sleep 600 & i=$((i+1)); done; wait";
    let program = Program::start(script, 301);
    let mut add = served.command(&["add", "--pid", &program.pid()]).spawn().expect("unisono starts");
    kill(served.child.id().cast_signed(), Signal::Terminate);
    let _ = add.wait(); // the command may have succeeded or not
    served.end();
    program.all.iter().for_each(|pid| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it runs");
        assert!(!groups.contains("-gang-"), "{pid} is in {groups}");
    });
    Ok(())
}

host_tests![
    needs Machine;
    a_user_who_makes_groups_of_names_like_ours_ends_nothing_and_evades_nothing within 120,
    a_program_of_a_user_comes_into_its_gang_and_back_by_the_rights_of_that_user within 120,
    a_quota_in_tiny_periods_does_not_set_how_often_the_machine_is_switched within 180,
    a_path_that_does_not_answer_stops_nobody within 60,
    a_program_whose_name_is_cut_inside_a_letter_is_a_program_like_others within 60,
    a_list_is_answered_while_a_program_with_many_processes_comes_and_goes within 180,
    the_unit_of_the_daemon_is_in_a_sandbox within 60,
    a_signal_ends_a_daemon_while_it_works within 120,
];
