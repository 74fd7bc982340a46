//! Tests `unisono gang daemon` on this host: gangs are added and removed while they run, only permitted users
//! change them, and no end of the daemon leaves a program stopped.

use crate::gang_shared::served::{Program, SPIN, Served, daemon, homes_of, second_version, top};
use crate::gang_shared::{gangs, journal_of, kill, turns_in, unisono};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use unisono_host_tests::processes::{descendants, until};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, quota, require};
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::{CgroupVersion, hierarchies};
use unisono_linux::privilege::NOBODY;
use unisono_linux::process::Signal;
use unisono_linux::quota::limits_of;

/// Samples whether each of two groups is stopped, in moments in which neither changed.
fn moments(groups: [&Path; 2]) -> Vec<[bool; 2]> {
    let is_stopped = |group: &Path| {
        let text = fs::read_to_string(group.join("cgroup.freeze"));
        text.or_else(|_| fs::read_to_string(group.join("freezer.self_freezing"))).expect("its file").trim()
            == "1"
    };
    let mut moments = Vec::new();
    while moments.len() < 300 {
        let (first, second) = (groups.map(is_stopped), groups.map(is_stopped));
        if first == second {
            moments.push(first);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    moments
}

fn gangs_that_are_added_while_they_run_take_turns_and_one_that_is_removed_is_free() -> TestOutcome {
    gangs()?;
    let (one, two) = (Program::start(SPIN, 2), Program::start(SPIN, 2));
    let served = Served::start(&[]);
    served.told(&["add", "--pid", &one.pid(), "--name", "one"]);
    one.wait_for_progress();
    let lone = served.list();
    assert_eq!(
        (&lone["gangs"][0]["state"], lone["gangs"][0]["threads"].as_u64()),
        (&"running".into(), Some(2))
    );
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(lone["switches"], served.list()["switches"], "nobody has to wait, so nothing is switched");
    served.told(&["add", "--pid", &two.pid()]);
    until("a hundred turns", || served.gang("sh")["turns"].as_u64() > Some(100));
    let homes = homes_of(served.child.id());
    let seen = moments([&homes[0], &homes[1]]);
    let times = |what: [bool; 2]| seen.iter().filter(|moment| **moment == what).count();
    let (together, turns) = (times([false, false]), (times([true, false]), times([false, true])));
    assert!(
        together < 30 && turns.0 > 60 && turns.1 > 60,
        "{together} of 300 together, {turns:?} alone"
    );
    one.wait_for_progress();
    two.wait_for_progress();
    served.told(&["remove", "one"]);
    one.assert_free();
    two.wait_for_progress();
    assert_eq!(served.list()["gangs"].as_array().map(Vec::len), Some(1));
    served.end();
    two.assert_free();
    Ok(())
}

fn a_trace_has_the_turns_of_gangs_that_come_and_go() -> TestOutcome {
    gangs()?;
    let refused = daemon(Path::new("/nobody/listens/here"), &["--trace", "/no/such/directory/t"]).wait();
    assert_eq!(refused.expect("it ends").code(), Some(2));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("turns.json");
    let (one, two) = (Program::start(SPIN, 2), Program::start(SPIN, 2));
    let served = Served::start(&["--trace", path.to_str().expect("letters")]);
    served.told(&["add", "--pid", &one.pid(), "--name", "one"]);
    served.told(&["add", "--pid", &two.pid(), "--name", "two"]);
    until("turns", || served.gang("two")["turns"].as_u64() > Some(20));
    served.told(&["remove", "one"]);
    served.end();
    let text = fs::read_to_string(&path).expect("it was written");
    let turns = turns_in(&text);
    for gang in ["gang 1: one", "gang 2: two"] {
        assert!(turns.get(gang) > Some(&10), "{gang} is not often in {turns:?}");
    }
    assert!(text.contains("gang 1: one is no gang any more") && !text.contains("gang 2: two is no gang"));
    Ok(())
}

fn weights_and_slices_change_while_gangs_run() -> TestOutcome {
    gangs()?;
    let (one, two) = (Program::start(SPIN, 2), Program::start(SPIN, 2));
    let served = Served::start(&[]);
    served.told(&["add", "--pid", &one.pid(), "--name", "one"]);
    served.told(&["add", "--pid", &two.pid(), "--name", "two", "--weight", "4"]);
    let ratio = |for_a_while: Duration| {
        // both numbers from one answer, because an answer takes time
        let had = || {
            let list = served.list();
            ["one", "two"].map(|name| {
                let gangs = list["gangs"].as_array().expect("a list");
                let gang = gangs.iter().find(|gang| gang["name"] == name).expect("it was added");
                gang["had_s"].as_f64().expect("a time")
            })
        };
        let before = had();
        std::thread::sleep(for_a_while);
        let after = had();
        (after[1] - before[1]) / (after[0] - before[0])
    };
    let heavy = ratio(Duration::from_secs(1));
    assert!((2.5..6.0).contains(&heavy), "1 to 4 gave {heavy}");
    served.told(&["set", "two", "--weight", "1"]);
    served.told(&["set", "--slice", "2ms"]);
    assert_eq!(served.list()["slice_ms"].as_f64(), Some(2.0));
    let even = ratio(Duration::from_secs(1));
    assert!((0.6..1.6).contains(&even), "1 to 1 gave {even}");
    served.end();
    Ok(())
}

fn a_control_group_becomes_a_gang_and_stays_where_it_is() -> TestOutcome {
    second_version()?;
    let group = top().create(&unisono_host_tests::groups::name("daemon")).expect("root may");
    let inner = group.create("inner").expect("root may");
    let (one, two) = (Program::start(SPIN, 2), Program::start(SPIN, 2));
    one.move_to(&inner);
    let served = Served::start(&[]);
    served.told(&["add", "--cgroup", group.path().to_str().expect("letters"), "--name", "service"]);
    served.told(&["add", "--pid", &two.pid()]);
    let twice = served.ask(&["add", "--pid", &one.pid()]);
    assert_eq!(twice.status.code(), Some(2), "{twice:?}");
    assert!(
        String::from_utf8_lossy(&twice.stderr).contains("in the gang service already"),
        "{twice:?}"
    );
    until("turns", || served.gang("service")["turns"].as_u64() > Some(50));
    let homes = homes_of(served.child.id());
    let seen = moments([group.path(), &homes[0]]);
    let together = seen.iter().filter(|moment| **moment == [false, false]).count();
    assert!(together < 30, "{together} of 300 together");
    served.told(&["remove", "service"]);
    assert_eq!(group.read("cgroup.freeze").expect("it is there").trim(), "0");
    one.wait_for_progress();
    assert!(inner.processes().expect("it is there").len() == 2, "nobody was moved");
    served.end();
    drop(one);
    inner.remove().expect("it is empty");
    group.remove().expect("it is empty");
    Ok(())
}

fn a_group_of_the_first_freezer_becomes_a_gang_beside_version_2() -> TestOutcome {
    second_version()?;
    let all = hierarchies().expect("mounts");
    let first = all.iter().find(|tree| tree.controllers.iter().any(|name| name == "freezer"));
    let freezer = first.filter(|tree| tree.version == CgroupVersion::V1).ok_or_else(|| {
        Skipped::because("it needs the freezer of cgroup version 1 beside version 2, as on Ubuntu 20.04")
    })?;
    let group = freezer.top().create(&unisono_host_tests::groups::name("v1")).expect("root may");
    let (one, two) = (Program::start(SPIN, 2), Program::start(SPIN, 2));
    one.move_to(&group);
    let served = Served::start(&[]);
    served.told(&["add", "--cgroup", group.path().to_str().expect("letters"), "--name", "container"]);
    served.told(&["add", "--pid", &two.pid()]);
    until("turns", || served.gang("container")["turns"].as_u64() > Some(50));
    let homes = homes_of(served.child.id());
    let seen = moments([group.path(), &homes[0]]);
    let together = seen.iter().filter(|moment| **moment == [false, false]).count();
    assert!(together < 30, "{together} of 300 together");
    served.told(&["remove", "container"]);
    assert_eq!(group.read("freezer.state").expect("it is there").trim(), "THAWED");
    one.wait_for_progress();
    served.end();
    drop(one);
    group.remove().expect("it is empty");
    Ok(())
}

fn a_killed_daemon_leaves_nobody_stopped_and_the_next_one_takes_over() -> TestOutcome {
    gangs()?;
    let (one, two) = (Program::start(SPIN, 2), Program::start(SPIN, 2));
    let mut served = Served::start(&[]);
    served.told(&["add", "--pid", &one.pid(), "--name", "one", "--weight", "3"]);
    served.told(&["add", "--pid", &two.pid(), "--name", "two"]);
    until("turns", || served.gang("two")["turns"].as_u64() > Some(20));
    let first = served.child.id();
    kill(first.cast_signed(), Signal::Kill);
    served.child.wait().expect("it was killed");
    // the guardian restores everything, and removes the journal
    until("the journal's end", || !journal_of(first).exists());
    one.assert_free();
    two.assert_free();
    served.child = daemon(&served.socket(), &[]);
    served.wait();
    assert_eq!(
        (served.gang("one")["weight"].as_u64(), served.gang("two")["user"].as_u64()),
        (Some(3), Some(0))
    );
    let before = served.gang("two")["turns"].as_u64();
    until("turns", || served.gang("two")["turns"].as_u64() > before.map(|turns| turns + 20));
    served.end();
    one.assert_free();
    // a daemon that ended normally leaves nothing to take over
    let served = Served::start(&[]);
    assert_eq!(served.list()["gangs"].as_array().map(Vec::len), Some(0));
    served.end();
    Ok(())
}

fn what_a_daemon_and_its_guardian_left_is_restored_by_the_next_one() -> TestOutcome {
    gangs()?;
    let (one, two) = (Program::start(SPIN, 2), Program::start(SPIN, 2));
    let mut served = Served::start(&[]);
    served.told(&["add", "--pid", &one.pid(), "--name", "one"]);
    served.told(&["add", "--pid", &two.pid(), "--name", "two"]);
    until("turns", || served.gang("two")["turns"].as_u64() > Some(20));
    let first = served.child.id();
    // the guardian first, because otherwise it would restore everything
    descendants(first).into_iter().for_each(|pid| kill(pid, Signal::Kill));
    kill(first.cast_signed(), Signal::Kill);
    served.child.wait().expect("it was killed");
    assert!(journal_of(first).exists() && !homes_of(first).is_empty(), "somebody restored");
    served.child = daemon(&served.socket(), &[]);
    served.wait();
    assert!(!journal_of(first).exists() && homes_of(first).is_empty());
    assert_eq!(served.list()["gangs"].as_array().map(Vec::len), Some(2));
    served.end();
    one.assert_free();
    two.assert_free();
    Ok(())
}

fn other_users_may_add_only_what_is_theirs() -> TestOutcome {
    gangs()?;
    let as_nobody = |mut command: Command| {
        command.uid(NOBODY).gid(NOBODY);
        command
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", SPIN]).stdin(Stdio::null()).stdout(Stdio::null());
    let (roots, theirs) = (Program::start(SPIN, 2), Program::of(as_nobody(shell), 2));
    let refused = |served: &Served, words: &[&str], why: &str| {
        let output = as_nobody(served.command(words)).output().expect("unisono starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(why), "{words:?}: {output:?}");
    };
    let closed = Served::start(&[]);
    open(closed.directory.path());
    refused(&closed, &["list"], "may not connect");
    closed.end();
    let served = Served::start(&["--mode", "666"]);
    open(served.directory.path());
    refused(&served, &["add", "--pid", &roots.pid()], "does not belong to user 65534");
    refused(&served, &["add", "--pid", &theirs.pid(), "--weight", "2"], "only root may");
    refused(&served, &["set", "--slice", "1ms"], "only root may");
    let added = as_nobody(served.command(&["add", "--pid", &theirs.pid(), "--name", "theirs"])).output();
    assert!(added.expect("unisono starts").status.success());
    served.told(&["add", "--pid", &roots.pid(), "--name", "roots"]);
    refused(&served, &["remove", "roots"], "added by user 0");
    assert_eq!(served.gang("theirs")["user"].as_u64(), Some(NOBODY.into()));
    until("turns", || served.gang("theirs")["turns"].as_u64() > Some(20));
    let removed = as_nobody(served.command(&["remove", "theirs"])).output().expect("unisono starts");
    assert!(removed.status.success(), "{removed:?}");
    served.end();
    Ok(())
}

/// Lets other users enter a directory.
fn open(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

fn a_gang_that_blocks_rests_and_one_that_ends_is_gone() -> TestOutcome {
    second_version()?;
    let (sleeps, spins) = (Program::start("sleep 600; true", 2), Program::start(SPIN, 2));
    let served = Served::start(&[]);
    served.told(&["add", "--pid", &sleeps.pid(), "--name", "sleeps"]);
    served.told(&["add", "--pid", &spins.pid(), "--name", "spins"]);
    until("rest", || served.gang("sleeps")["state"] == "resting");
    let before = served.list()["switches"].clone();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(served.list()["switches"], before, "the other one is alone");
    assert_eq!(served.gang("spins")["state"], "running");
    drop(sleeps);
    until("its end", || served.gang("sleeps").is_null());
    served.end();
    spins.assert_free();
    Ok(())
}

fn a_gang_with_a_quota_is_stopped_as_a_whole_before_the_kernel_stops_its_threads() -> TestOutcome {
    gangs()?;
    let group = quota::one_processor("daemon")?;
    let program = Program::start(SPIN, 2);
    program.move_to(&group);
    let periods = || {
        let limits = limits_of(Tid(program.shell.id().cast_signed())).expect("it runs");
        limits.quota.and_then(|quota| quota.periods()).expect("its group has a quota")
    };
    let in_a_while = || {
        let (before, used) = (periods(), program.used());
        std::thread::sleep(Duration::from_secs(2));
        (periods().since(before), program.used() - used)
    };
    let (alone, used) = in_a_while();
    if alone.throttled * 10 < alone.all * 9 || used < 1_800_000_000 {
        return Err(Skipped::because("others used the processors, so that the quota was not used up"));
    }
    let served = Served::start(&[]);
    served.told(&["add", "--pid", &program.pid(), "--name", "one"]);
    until("turns", || served.gang("one")["turns"].as_u64() > Some(20));
    let (in_turns, used) = in_a_while();
    eprintln!(
        "stopped in {} of {} periods, as a gang in {}",
        alone.throttled, alone.all, in_turns.throttled
    );
    assert!(in_turns.throttled * 4 < in_turns.all, "{in_turns:?}, and {alone:?} without turns");
    assert!(used > 1_000_000_000, "{used} ns of a quota of 2 s");
    served.end();
    program.assert_free();
    Ok(())
}

fn slices_grow_for_gangs_that_meet_seldom_unless_the_user_has_said_how_long() -> TestOutcome {
    require::nightly("gangs")?;
    gangs()?;
    let words = ["barrier", "--threads", "2", "--interval", "10ms", "--wait", "block", "--seconds", "600"];
    let meets = || {
        let mut command = unisono(&words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("unisono starts")
    };
    let served = Served::with(&[]);
    assert_eq!(served.list()["slice_ms"].as_f64(), Some(20.0));
    let mut programs = [meets(), meets()];
    for program in &programs {
        served.told(&["add", "--pid", &program.id().to_string()]);
    }
    until("longer slices", || served.list()["slice_ms"].as_f64() > Some(40.0));
    served.told(&["set", "--slice", "7ms"]);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(served.list()["slice_ms"].as_f64(), Some(7.0));
    for program in &mut programs {
        descendants(program.id()).into_iter().for_each(|pid| kill(pid, Signal::Kill));
        program.kill().expect("ours");
        program.wait().expect("ours");
    }
    served.end();
    Ok(())
}

host_tests![needs Machine;
    gangs_that_are_added_while_they_run_take_turns_and_one_that_is_removed_is_free within 120,
    a_trace_has_the_turns_of_gangs_that_come_and_go within 60,
    weights_and_slices_change_while_gangs_run within 120,
    a_control_group_becomes_a_gang_and_stays_where_it_is within 120,
    a_group_of_the_first_freezer_becomes_a_gang_beside_version_2 within 120,
    a_killed_daemon_leaves_nobody_stopped_and_the_next_one_takes_over within 120,
    what_a_daemon_and_its_guardian_left_is_restored_by_the_next_one within 120,
    other_users_may_add_only_what_is_theirs within 120,
    a_gang_that_blocks_rests_and_one_that_ends_is_gone within 180,
    a_gang_with_a_quota_is_stopped_as_a_whole_before_the_kernel_stops_its_threads within 120,
    slices_grow_for_gangs_that_meet_seldom_unless_the_user_has_said_how_long within 180,
];
