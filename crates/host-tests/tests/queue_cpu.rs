//! Tests shares of processor time by turns: they are enforced, and if the process that enforces them ends,
//! all groups run again.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use unisono_enforce::cpu::{Keeper, Options};
use unisono_fairqueue::Policy;
use unisono_host_tests::hosts::Hosts;
use unisono_host_tests::processes::text;
use unisono_host_tests::{Skipped, TestOutcome, groups, host_tests, program, require};
use unisono_linux::affinity::{Tid, allowed};
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, ControlGroup, hierarchies};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::process::{Family, PidFd, Signal, start};

const NAMES: [&str; 2] = ["three", "one"];

/// Two control groups with a busy loop each, on one processor. Dropping this value ends the loops and removes
/// the groups.
struct Two {
    version: CgroupVersion,
    /// The parent group: one, or with version 1 one in each of two hierarchies.
    tops: Vec<ControlGroup>,
    /// The groups in which the loops are frozen.
    groups: Vec<ControlGroup>,
    /// The groups that count their time.
    counted: Vec<ControlGroup>,
    loops: Vec<Child>,
}

impl Two {
    fn new(version: CgroupVersion) -> Result<Self, Skipped> {
        require::root()?;
        let all = hierarchies().expect("mounts can be read");
        let with = |name: &str| {
            let of = |tree: &&CgroupHierarchy| tree.controllers.iter().any(|controller| controller == name);
            all.iter().filter(|tree| tree.version == CgroupVersion::V1).find(of)
        };
        let trees = match version {
            CgroupVersion::V2 => vec![CgroupHierarchy::of_version(&all, CgroupVersion::V2)],
            CgroupVersion::V1 => vec![with("freezer"), with("cpuacct")],
        };
        let Some(trees) = trees.into_iter().collect::<Option<Vec<_>>>() else {
            return Err(Skipped::because(match version {
                CgroupVersion::V2 => "no cgroup2 is mounted",
                CgroupVersion::V1 => "no control groups of version 1 with freezer and cpuacct are mounted",
            }));
        };
        let name = groups::name("cpu");
        let mut two =
            Self { version, tops: Vec::new(), groups: Vec::new(), counted: Vec::new(), loops: Vec::new() };
        for tree in trees {
            let top = tree.top().create(&name).map_err(|error| Skipped::because(error.to_string()))?;
            two.tops.push(top);
        }
        if version == CgroupVersion::V2 && !two.tops[0].has("cgroup.freeze") {
            return Err(Skipped::because("control groups cannot be frozen: Linux before 5.2"));
        }
        let cpu = allowed(Tid::SELF).expect("our own").iter().next().expect("a processor");
        for name in NAMES {
            let made: Vec<ControlGroup> =
                two.tops.iter().map(|top| top.create(name).expect("root may")).collect();
            let procs_files = made.iter().map(|group| group.open_procs().expect("root may")).collect();
            two.groups.push(made[0].clone());
            two.counted.push(made[made.len() - 1].clone());
            let mut command = Command::new(program::unisono());
            command.args(["workload", "busy-loop", "--parent", &std::process::id().to_string()]);
            command.args(["--cpu", &cpu.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
            two.loops.push(start(&mut command, procs_files, Family::Same).expect("it starts"));
        }
        Ok(two)
    }

    fn policy(&self) -> String {
        let name = self.tops[0].path().file_name().expect("it has a name").to_str().expect("a plain name");
        let class = |class: &str| format!("[class.{class}]\nmatch = [{{ cgroup = \"/{name}/{class}\" }}]\n");
        format!("rate = \"100mbit\"\n{}{}[cpu]\nthree = 3\none = 1\n", class(NAMES[0]), class(NAMES[1]))
    }

    fn file(&self) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("there is room");
        fs::write(&file, self.policy()).expect("there is room");
        file
    }

    fn stopped(&self) -> usize {
        let (file, word) = match self.version {
            CgroupVersion::V2 => ("cgroup.freeze", "1"),
            CgroupVersion::V1 => ("freezer.state", "FROZEN"),
        };
        let is = |group: &&ControlGroup| group.read(file).expect("it is there").trim() == word;
        self.groups.iter().filter(is).count()
    }

    fn used(&self) -> Vec<f64> {
        self.counted.iter().map(|group| group.used_ns().expect("it is counted") as f64).collect()
    }

    /// Asserts that both groups run: each gets processor time.
    fn assert_all_run(&self, after: &str) {
        assert_eq!(self.stopped(), 0, "after {after}");
        let before = self.used();
        let ran = || self.used().iter().zip(&before).all(|(now, before)| now > before);
        while !ran() {
            std::thread::sleep(Duration::from_millis(5)); // the harness's watchdog limits this wait
        }
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        for child in &mut self.loops {
            let _ = child.kill();
            let _ = child.wait();
        }
        let both = self.groups.iter().chain(&self.counted).filter(|group| group.path().exists());
        for group in both.chain(&self.tops) {
            while group.path().exists() && group.remove().is_err() {
                std::thread::sleep(Duration::from_millis(2)); // a killed process leaves a moment later
            }
        }
    }
}

fn unisono(arguments: &[&str]) -> Output {
    Command::new(program::unisono()).args(arguments).stdin(Stdio::null()).output().expect("it starts")
}

/// Starts `unisono queue cpu`, and waits until the shares are enforced and a group is frozen.
fn keeping(two: &Two, file: &tempfile::NamedTempFile) -> Child {
    started(two, Command::new(program::unisono()), file)
}

fn started(two: &Two, mut command: Command, file: &tempfile::NamedTempFile) -> Child {
    let path = file.path().to_str().expect("a plain name");
    command.args(["queue", "cpu", path]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().expect("it starts");
    let mut line = String::new();
    let output = child.stdout.as_mut().expect("it is a pipe");
    BufReader::new(output).read_line(&mut line).expect("it speaks");
    assert!(line.contains("take turns"), "{line:?}");
    while two.stopped() == 0 {
        std::thread::yield_now();
    }
    child
}

fn what_each_group_used_is_an_object_at_the_end() -> TestOutcome {
    let two = Two::new(CgroupVersion::V2)?;
    let file = two.file();
    let mut command = Command::new(program::unisono());
    command.args(["queue", "cpu", "--json"]).arg(file.path()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
    let kept = lines.next().expect("a line").expect("it speaks");
    assert!(kept.contains("\"kept\":true"), "{kept}");
    let before: f64 = two.used().iter().sum();
    while two.used().iter().sum::<f64>() - before < 5e8 {
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(child.id(), Signal::Interrupt);
    let ended = lines.next().expect("a line").expect("it speaks");
    assert_eq!(crate::schema::formats_of(&format!("{kept}\n{ended}")), ["unisono-queue-cpu-1"; 2]);
    let answer: serde_json::Value = serde_json::from_str(&ended).expect("JSON");
    assert!(child.wait().expect("it is ours").success());
    let groups = answer["groups"].as_array().expect("a list");
    let weights: Vec<&str> = groups.iter().filter_map(|group| group["weight"].as_str()).collect();
    assert_eq!(weights.len(), 2, "{answer}");
    assert!(weights.contains(&"3") && weights.contains(&"1"), "{answer}");
    let used: u64 = groups.iter().filter_map(|group| group["used_us"].as_u64()).sum();
    assert!(used > 300_000, "half a second was used, except for the last turn: {answer}");
    let shares: f64 = groups.iter().filter_map(|group| group["share"].as_f64()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{answer}");
    Ok(())
}

fn journal(process: u32) -> PathBuf {
    format!("/run/unisono/queue/cpu-{process}.json").into()
}

/// Returns the processes that keep shares of processor time, by their journals.
fn keepers() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/run/unisono/queue") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("cpu-")?.strip_suffix(".json")?.parse().ok()).collect()
}

fn signal(process: u32, signal: Signal) {
    PidFd::open(process).expect("it runs").send(signal).expect("root may");
}

/// Returns the guard of a process, which is its only child.
fn guard_of(process: u32) -> u32 {
    let path = format!("/proc/{process}/task/{process}/children");
    loop {
        let children = fs::read_to_string(&path).expect("it runs");
        if let Some(child) = children.split_whitespace().next().and_then(|child| child.parse().ok()) {
            return child;
        }
    }
}

fn time_by_weight(version: CgroupVersion) -> TestOutcome {
    let two = Two::new(version)?;
    let file = two.file();
    let mut child = keeping(&two, &file);
    let before = two.used();
    let used = || two.used().iter().zip(&before).map(|(now, before)| now - before).collect::<Vec<f64>>();
    // Waits for time that the groups used, not for time that passed: beside other load there would be so few
    // turns that the current one would decide the result.
    while used().iter().sum::<f64>() < 3e9 {
        std::thread::sleep(Duration::from_millis(5)); // the harness's watchdog limits this wait
    }
    let got = used();
    signal(child.id(), Signal::Interrupt);
    assert!(child.wait().expect("it is ours").success());
    // the weights are 3 to 1; without turns the ratio would be 1; the last turn may not have ended
    assert!((2.5..3.6).contains(&(got[0] / got[1])), "{got:?}");
    two.assert_all_run("Ctrl-C");
    Ok(())
}

fn whatever_ends_it(version: CgroupVersion) -> TestOutcome {
    let two = Two::new(version)?;
    let file = two.file();
    for how in [Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Quit] {
        let mut child = keeping(&two, &file);
        assert!(journal(child.id()).exists());
        signal(child.id(), how);
        assert!(child.wait().expect("it is ours").success(), "{how:?}");
        assert!(!journal(child.id()).exists(), "{how:?}");
        two.assert_all_run(&format!("{how:?}"));
    }
    for _ in 0..10 {
        let mut child = keeping(&two, &file);
        signal(child.id(), Signal::Kill);
        child.wait().expect("it is ours");
        while journal(child.id()).exists() {
            std::thread::sleep(Duration::from_millis(1)); // until the guard has restored everything
        }
        two.assert_all_run("kill -9");
    }
    Ok(())
}

/// The first process of a PID namespace, as in a container, cannot see its session: `getsid` returns 0.
fn a_hangup_ends_it_where_its_session_is_outside_its_namespace() -> TestOutcome {
    require::unshare(&["--pid", "--fork", "--mount-proc"])?;
    let two = Two::new(CgroupVersion::V2)?;
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(program::unisono());
    let mut child = started(&two, command, &two.file());
    // the child of `unshare` is the command under test
    signal(guard_of(child.id()), Signal::Hangup);
    assert!(child.wait().expect("it is ours").success());
    two.assert_all_run("Hangup");
    Ok(())
}

fn after_the_death_of_its_guard(version: CgroupVersion) -> TestOutcome {
    let two = Two::new(version)?;
    let file = two.file();
    for next in [&["queue", "clear"][..], &["queue", "show", "--once"]] {
        let mut child = keeping(&two, &file);
        signal(guard_of(child.id()), Signal::Kill);
        signal(child.id(), Signal::Stop); // so that it is killed while a group is frozen
        while two.stopped() == 0 {
            signal(child.id(), Signal::Continue);
            std::thread::sleep(Duration::from_millis(1));
            signal(child.id(), Signal::Stop);
        }
        signal(child.id(), Signal::Kill);
        child.wait().expect("it is ours");
        assert!(two.stopped() > 0 && journal(child.id()).exists(), "nobody has put it right yet");
        let output = unisono(next);
        assert!(
            text(&output.stderr).contains("let run on what process"),
            "{next:?}: {}",
            text(&output.stderr)
        );
        assert!(!journal(child.id()).exists(), "{next:?}: {}", text(&output.stderr));
        two.assert_all_run(&format!("{next:?}"));
    }
    Ok(())
}

fn it_comes_with_a_policy_of_a_device_and_goes_with_it() -> TestOutcome {
    let two = Two::new(CgroupVersion::V2)?;
    let hosts = Hosts::new()?;
    let first = NetworkNamespace::named(hosts.name(0)).expect("it was just made");
    first.enter().map_err(|error| Skipped::because(format!("no namespace can be entered: {error}")))?;
    let file = two.file();
    let path = file.path().to_str().expect("a plain name");
    let apply = ["queue", "apply", path, "--dev", "cable", "--cpu-shares", "core"];
    let before = keepers();
    let output = unisono(&apply);
    if output.status.code() == Some(3) {
        return Err(Skipped::because(text(&output.stderr)));
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    while two.stopped() == 0 {
        std::thread::yield_now();
    }
    // in the background: a hangup of the terminal does not end it
    let keeper = keepers().into_iter().find(|process| !before.contains(process)).expect("it keeps a journal");
    for _ in 0..3 {
        for process in [keeper, guard_of(keeper)] {
            signal(process, Signal::Hangup);
        }
        for is_stopped in [false, true] {
            while (two.stopped() > 0) != is_stopped {
                std::thread::yield_now();
            }
        }
        assert!(journal(keeper).exists(), "it ended by SIGHUP");
    }
    // a new policy replaces the process; a policy that is refused leaves it running
    assert!(unisono(&apply).status.success());
    let mut refused = apply;
    refused[4] = "nosuch0";
    assert_eq!(unisono(&refused).status.code(), Some(2));
    while two.stopped() == 0 {
        std::thread::yield_now();
    }
    let output = unisono(&["queue", "clear", "--dev", "cable"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    two.assert_all_run("clear");
    Ok(())
}

fn who_would_stop_itself_or_what_is_shared_already_is_refused() -> TestOutcome {
    let two = Two::new(CgroupVersion::V2)?;
    let file = two.file();
    let mut command = Command::new(program::unisono());
    command.args(["queue", "cpu"]).arg(file.path()).stdin(Stdio::null()).stderr(Stdio::piped());
    let procs_file = two.groups[1].open_procs().expect("root may");
    let output = start(&mut command, vec![procs_file], Family::Same).expect("it starts").wait_with_output();
    let output = output.expect("it is ours");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("would stop itself"), "{}", text(&output.stderr));

    let policy = Policy::parse(&two.policy()).expect("it is sound");
    let mut guard = Command::new(program::unisono());
    guard.args(["queue", "cpu-guard"]);
    let mut keeper = Keeper::start(&policy, &Options::default(), guard).expect("root may");
    keeper.turn();
    let output = unisono(&["queue", "cpu", file.path().to_str().expect("a plain name")]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("shares out the time of"), "{}", text(&output.stderr));
    drop(keeper);
    fs::write(two.groups[0].path().join("cgroup.freeze"), "1").expect("root may");
    let output = unisono(&["queue", "cpu", file.path().to_str().expect("a plain name")]);
    fs::write(two.groups[0].path().join("cgroup.freeze"), "0").expect("root may");
    assert!(
        text(&output.stderr).contains(":3:10: ")
            && text(&output.stderr).contains("is frozen by somebody else"),
        "{}",
        text(&output.stderr)
    );
    two.assert_all_run("two refusals");
    Ok(())
}

fn busy_groups_get_time_by_weight() -> TestOutcome {
    time_by_weight(CgroupVersion::V2)
}

fn busy_groups_of_version_1_get_time_by_weight() -> TestOutcome {
    time_by_weight(CgroupVersion::V1)
}

fn whatever_ends_it_everybody_runs_on_and_nothing_is_left() -> TestOutcome {
    whatever_ends_it(CgroupVersion::V2)
}

fn whatever_ends_it_groups_of_version_1_run_on_and_nothing_is_left() -> TestOutcome {
    whatever_ends_it(CgroupVersion::V1)
}

fn after_the_death_of_its_guard_too_the_next_command_lets_everybody_run() -> TestOutcome {
    after_the_death_of_its_guard(CgroupVersion::V2)
}

fn after_the_death_of_its_guard_the_next_command_lets_groups_of_version_1_run() -> TestOutcome {
    after_the_death_of_its_guard(CgroupVersion::V1)
}

host_tests![needs Machine;
    busy_groups_of_version_1_get_time_by_weight within 300,
    whatever_ends_it_groups_of_version_1_run_on_and_nothing_is_left,
    after_the_death_of_its_guard_the_next_command_lets_groups_of_version_1_run,
    busy_groups_get_time_by_weight within 300,
    what_each_group_used_is_an_object_at_the_end,
    whatever_ends_it_everybody_runs_on_and_nothing_is_left,
    a_hangup_ends_it_where_its_session_is_outside_its_namespace,
    after_the_death_of_its_guard_too_the_next_command_lets_everybody_run,
    it_comes_with_a_policy_of_a_device_and_goes_with_it,
    who_would_stop_itself_or_what_is_shared_already_is_refused,
];
