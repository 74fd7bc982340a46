//! Tests what every gang mechanism guarantees, on real processes, with one suite for all mechanisms.
//!
//! A [`Stage`] has gangs that run programs, and a mechanism that was built for them. It cleans up after
//! itself. Progress is measured in processor time, and the tests wait for a process that should run, so other
//! load makes these tests slower but does not make them fail. Mechanisms promise different things; each
//! states its [`Promise`](unisono_gang::mechanism::Promise), and the tests check that one.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use unisono_gang::cgroups::{CgroupPlan, GangCgroups, Weighing};
use unisono_gang::journal::{self, GangJournal, UndoEntry};
use unisono_gang::mechanism::{
    Fit, Freeze, Idle, Mechanism, MechanismKind, RealTime, SchedExt, Standing, Stop,
};
use unisono_gang::{Error, GangId};
use unisono_host_tests::disturbance::repeat_disturbed;
use unisono_host_tests::processes::{descendants, is_gone, until};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program, require};
use unisono_linux::affinity::{self, Tid};
use unisono_linux::cgroup::{CgroupVersion, hierarchies};
use unisono_linux::clock::Duration;
use unisono_linux::process::{self, Family, PidFd, Signal};
use unisono_linux::process_group::ProcessGroup;
use unisono_linux::process_stat::ProcessStat;
use unisono_linux::schedstat;
use unisono_linux::scheduling::{self, Children, SchedulingPolicy, Urgency};

/// The time over which progress is measured.
const WINDOW: Duration = Duration::from_millis(400);

/// A script of two processes that compute until they are ended.
const SPIN: &str = "while :; do :; done & while :; do :; done";

fn require_for(kind: MechanismKind) -> TestOutcome {
    require::cpus(2)?;
    if kind == MechanismKind::Stop {
        return Ok(());
    }
    require::root()?;
    if kind == MechanismKind::SchedExt {
        require::sched_ext()?;
    }
    let all = hierarchies().expect("mounts");
    let freezes =
        all.iter().any(|h| h.version == CgroupVersion::V2 || h.controllers.iter().any(|c| c == "freezer"));
    if freezes { Ok(()) } else { Err(Skipped::because("it needs a cgroup freezer; mount cgroup2")) }
}

/// Two gangs, and a mechanism for them.
struct Stage {
    mechanism: Option<Box<dyn Mechanism>>,
    leaders: Vec<Child>,
    /// All processes that were ever seen in a gang, to be killed at the end.
    seen: BTreeSet<i32>,
    journal: PathBuf,
    flag: PathBuf,
    cgroups: Option<Arc<GangCgroups>>,
    _directory: tempfile::TempDir,
}

impl Stage {
    /// Starts two gangs that run these scripts. `$FLAG` is a file that [`Stage::raise`] makes.
    fn new(kind: MechanismKind, scripts: [&str; 2]) -> Result<Stage, Skipped> {
        require_for(kind)?;
        // this thread must not wait for the gangs that it observes
        let above = SchedulingPolicy::Fifo(Urgency::new(45));
        if kind == MechanismKind::RealTime && scheduling::set_own(above, Children::Reset).is_err() {
            return Err(Skipped::because("real-time priorities are refused; it needs CAP_SYS_NICE"));
        }
        let directory = tempfile::tempdir().expect("a directory");
        let flag = directory.path().join("flag");
        let mut journal = GangJournal::create().expect("a journal");
        let path = journal.path().to_owned();
        let weighing = if kind == MechanismKind::Freeze { Weighing::Share(0.9) } else { Weighing::None };
        let cores = affinity::allowed(Tid::SELF).expect("own").len();
        let plan = CgroupPlan { gangs: scripts.len(), weighing, max_threads: 200, cores };
        let cgroups = (kind != MechanismKind::Stop)
            .then(|| Arc::new(GangCgroups::build(&plan, &mut journal).expect("control groups")));
        let mut stage = Stage {
            mechanism: None,
            leaders: Vec::new(),
            seen: BTreeSet::new(),
            journal: path,
            flag,
            cgroups: cgroups.clone(),
            _directory: directory,
        };
        for (gang, script) in scripts.iter().enumerate() {
            let procs_files =
                cgroups.as_ref().map(|cgroups| cgroups.get(GangId(gang)).procs_files().expect("doors"));
            let family = if cgroups.is_some() { Family::Same } else { Family::OwnGroup };
            let mut command = Command::new("sh");
            command.args(["-c", script]).env("FLAG", &stage.flag).env("UNISONO", program::unisono());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let child =
                process::start(&mut command, procs_files.unwrap_or_default(), family).expect("sh starts");
            if family == Family::OwnGroup {
                let leader = Tid(child.id() as i32);
                let started = journal::start_time(leader).expect("it runs");
                journal.write(&UndoEntry::Stopped { leader: leader.0, started }).expect("a journal");
            }
            stage.leaders.push(child);
        }
        let group = |child| ProcessGroup::of_child(child).expect("it is not waited for yet");
        let groups = || stage.leaders.iter().map(group).collect();
        stage.mechanism = Some(match (kind, &cgroups) {
            (MechanismKind::Freeze, Some(cgroups)) => Box::new(Freeze::new(cgroups).expect("freeze")),
            (MechanismKind::RealTime, Some(cgroups)) => {
                Box::new(RealTime::new(cgroups, &mut journal).expect("real-time"))
            }
            (MechanismKind::SchedExt, Some(cgroups)) => {
                Box::new(SchedExt::new(cgroups, &mut journal).expect("a scheduler in the kernel"))
            }
            _ => Box::new(Stop::new(groups())),
        });
        Ok(stage)
    }

    fn mechanism(&mut self) -> &mut dyn Mechanism {
        self.mechanism.as_deref_mut().expect("not dropped yet")
    }

    fn raise(&self) {
        fs::write(&self.flag, "").expect("the flag");
    }

    fn apply(&mut self, first: Standing, second: Standing) -> unisono_gang::Result<()> {
        self.mechanism().apply(&[(GangId(0), first), (GangId(1), second)])
    }

    /// Begins the turn of a gang.
    fn turn_of(&mut self, gang: usize) {
        let standing = |of| if of == gang { Standing::Running } else { Standing::Waiting };
        self.apply(standing(0), standing(1)).expect("applied");
    }

    /// Returns the processes of a gang: its leader and the leader's descendants.
    fn processes(&mut self, gang: usize) -> BTreeSet<i32> {
        let leader = self.leaders[gang].id();
        let mut processes = descendants(leader);
        processes.retain(|pid| !is_gone(*pid));
        processes.insert(leader as i32);
        self.seen.extend(&processes);
        processes
    }

    fn threads(&mut self, gang: usize) -> Vec<Tid> {
        let of = |pid: i32| fs::read_dir(format!("/proc/{pid}/task")).map(|dir| dir.flatten().collect());
        let names = self.processes(gang).into_iter().filter_map(|pid| of(pid).ok()).flat_map(|v: Vec<_>| v);
        names.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Tid)).collect()
    }

    /// Returns the processor time of all processes that are in a gang now.
    fn used(&mut self, gang: usize) -> Duration {
        let used = |pid| schedstat::refresh(Tid(pid)).unwrap_or(0);
        Duration::from_nanos(self.processes(gang).into_iter().map(used).sum())
    }

    fn wait_for_progress(&mut self, gang: usize) {
        let before = self.used(gang);
        until("progress", || self.used(gang) > before + Duration::from_millis(20));
    }

    /// Returns the processor time that a gang gets in a [`WINDOW`].
    fn gets(&mut self, gang: usize) -> Duration {
        let before = self.used(gang);
        std::thread::sleep(WINDOW.into());
        self.used(gang) - before
    }

    /// Gives a gang its turn, and asserts that it makes progress and that the other gang gets no more than
    /// was promised.
    fn assert_only(&mut self, running: usize, waiting: usize) {
        let promise = self.mechanism().promise();
        self.turn_of(running);
        let cores = affinity::allowed(Tid::SELF).expect("own").len() as u64;
        let (late, then) = (self.gets(waiting), self.gets(waiting));
        self.wait_for_progress(running);
        // four times the promise, because the kernel's reserve comes in pieces as long as the window; and a
        // thread that waits in a run queue stops only when it is picked
        let reserve = Duration::from_nanos((WINDOW.as_nanos() as f64 * promise.leftover * 4.0) as u64);
        let most = promise.overrun * cores + reserve * cores * 2;
        assert!(late + then <= most, "{late:?} after it was stopped, then {then:?}; {promise:?}");
    }

    /// Asserts that all gangs run as before the mechanism was built.
    fn assert_free(&mut self) {
        for gang in 0..self.leaders.len() {
            self.wait_for_progress(gang);
            for thread in self.threads(gang) {
                let class = scheduling::get(thread);
                // a thread that has ended has no class
                let is_fair = class.is_err() || matches!(class, Ok(SchedulingPolicy::Other { .. }));
                assert!(is_fair, "thread {thread} of gang {gang}: {class:?}");
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        drop(self.mechanism.take());
        // first all are stopped, because a stopped process cannot start another one that would be missed
        until("all are stopped", || {
            let processes: Vec<i32> = (0..self.leaders.len()).flat_map(|gang| self.processes(gang)).collect();
            processes.iter().for_each(|pid| send(*pid, Signal::Stop));
            processes.iter().all(|pid| is_stopped(*pid))
        });
        self.seen.iter().for_each(|pid| send(*pid, Signal::Kill));
        for leader in &mut self.leaders {
            let _ = leader.wait();
        }
        let restored = journal::restore(&self.journal);
        if !std::thread::panicking() {
            assert_eq!(restored.expect("a journal").unrestored, Vec::<String>::new());
        }
    }
}

fn send(pid: i32, signal: Signal) {
    // fails if the process has ended
    let _ = PidFd::open(Tid(pid)).and_then(|process| process.send(signal));
}

fn is_stopped(pid: i32) -> bool {
    ProcessStat::read(pid).is_none_or(|stat| matches!(stat.state, 'T' | 'Z' | 'X'))
}

fn a_waiting_gang_makes_no_progress(kind: MechanismKind) -> TestOutcome {
    let mut stage = Stage::new(kind, [SPIN, SPIN])?;
    stage.wait_for_progress(0);
    stage.wait_for_progress(1);
    for (running, waiting) in [(0, 1), (1, 0), (0, 1)] {
        stage.assert_only(running, waiting);
    }
    Ok(())
}

fn gangs_whose_threads_queue_are_stopped_too(kind: MechanismKind) -> TestOutcome {
    let many = "i=0; while [ $i -lt 12 ]; do while :; do :; done & i=$((i+1)); done; wait";
    let mut stage = Stage::new(kind, [many, many])?;
    for gang in 0..2 {
        until("all are born", || stage.processes(gang).len() == 13);
        stage.mechanism().fit(GangId(gang), Fit::Queues);
    }
    for (running, waiting) in [(0, 1), (1, 0), (0, 1)] {
        stage.assert_only(running, waiting);
    }
    Ok(())
}

fn children_born_later_are_stopped_with_their_gang(kind: MechanismKind) -> TestOutcome {
    let later = "until [ -e $FLAG ]; do :; done; (while :; do :; done) & while :; do :; done";
    let mut stage = Stage::new(kind, [later, SPIN])?;
    stage.turn_of(0);
    stage.raise();
    until("the child", || stage.processes(0).len() == 2);
    stage.wait_for_progress(0);
    stage.assert_only(1, 0);
    stage.assert_only(0, 1);
    Ok(())
}

fn threads_born_later_are_stopped_with_their_gang(kind: MechanismKind) -> TestOutcome {
    let later = "until [ -e $FLAG ]; do :; done; exec $UNISONO workload tight-loop --threads 3 --seconds 60";
    let mut stage = Stage::new(kind, [later, SPIN])?;
    stage.turn_of(0);
    stage.raise();
    until("its threads", || stage.threads(0).len() >= 4);
    stage.wait_for_progress(0);
    stage.assert_only(1, 0);
    Ok(())
}

fn cores_that_nobody_uses_are_used_or_left_as_promised(kind: MechanismKind) -> TestOutcome {
    let mut stage = Stage::new(kind, ["sleep 60", SPIN])?;
    stage.wait_for_progress(1);
    let promise = stage.mechanism().promise();
    let cores = affinity::allowed(Tid::SELF).expect("own").len() as u64;
    stage.turn_of(0);
    match promise.idle {
        Idle::Used => stage.wait_for_progress(1),
        Idle::Left => {
            let late = stage.gets(1);
            assert!(late <= promise.overrun * cores, "{late:?} after it was stopped, {promise:?}");
        }
    }
    Ok(())
}

fn a_gang_that_ends_during_a_switch_is_no_error(kind: MechanismKind) -> TestOutcome {
    let mut stage = Stage::new(kind, [SPIN, SPIN])?;
    stage.turn_of(1);
    for pid in stage.processes(0) {
        let process = PidFd::open(Tid(pid)).expect("it runs");
        process.send(Signal::Kill).expect("sent");
        // changes turns at any moment while the process ends
        stage.turn_of(0);
        stage.turn_of(1);
    }
    stage.wait_for_progress(1);
    stage.turn_of(0);
    stage.turn_of(1);
    stage.wait_for_progress(1);
    Ok(())
}

fn an_unknown_gang_is_an_error_and_changes_nothing(kind: MechanismKind) -> TestOutcome {
    let mut stage = Stage::new(kind, [SPIN, SPIN])?;
    stage.turn_of(0);
    let standings =
        [(GangId(0), Standing::Waiting), (GangId(1), Standing::Running), (GangId(7), Standing::Running)];
    let refused = stage.mechanism().apply(&standings);
    assert!(matches!(&refused, Err(Error::Input(why)) if why.contains("gang 8")), "{refused:?}");
    stage.wait_for_progress(0);
    Ok(())
}

fn a_release_frees_everybody_and_a_second_one_is_harmless(kind: MechanismKind) -> TestOutcome {
    let nice = "renice -n 5 $$ >/dev/null; while :; do :; done & while :; do :; done";
    let mut stage = Stage::new(kind, [SPIN, nice])?;
    until("the nice gang", || {
        let threads = stage.threads(1);
        threads.len() == 2 && threads.iter().all(|thread| scheduling::nice_of(*thread).is_ok_and(|n| n == 5))
    });
    stage.turn_of(1);
    stage.turn_of(0);
    stage.mechanism().release().expect("released");
    stage.assert_free();
    stage.mechanism().release().expect("released again");
    stage.assert_free();
    for thread in stage.threads(1) {
        assert_eq!(scheduling::nice_of(thread).expect("it runs"), 5, "thread {thread}");
        let class = scheduling::get(thread).expect("it runs");
        assert_eq!(class, SchedulingPolicy::Other { nice: 5, slice: None }, "thread {thread}");
    }
    Ok(())
}

fn a_released_mechanism_can_be_applied_again(kind: MechanismKind) -> TestOutcome {
    let mut stage = Stage::new(kind, [SPIN, SPIN])?;
    stage.turn_of(0);
    stage.mechanism().release().expect("released");
    stage.assert_only(0, 1);
    stage.assert_only(1, 0);
    Ok(())
}

fn dropping_it_frees_everybody(kind: MechanismKind) -> TestOutcome {
    let mut stage = Stage::new(kind, [SPIN, SPIN])?;
    stage.turn_of(0);
    stage.turn_of(1);
    drop(stage.mechanism.take());
    stage.assert_free();
    Ok(())
}

fn a_gang_that_left_runs_and_is_unknown(kind: MechanismKind) -> TestOutcome {
    let mut stage = Stage::new(kind, [SPIN, SPIN])?;
    stage.turn_of(0);
    stage.mechanism().remove(GangId(1));
    stage.wait_for_progress(1);
    let refused = stage.apply(Standing::Running, Standing::Waiting);
    assert!(matches!(&refused, Err(Error::Input(why)) if why.contains("gang 2")), "{refused:?}");
    stage.mechanism().apply(&[(GangId(0), Standing::Running)]).expect("the other one stays known");
    stage.mechanism().remove(GangId(1));
    stage.wait_for_progress(0);
    stage.wait_for_progress(1);
    Ok(())
}

fn a_gang_that_joins_later_takes_turns_or_is_refused(kind: MechanismKind) -> TestOutcome {
    let mut stage = Stage::new(kind, [SPIN, SPIN])?;
    let Some(cgroups) = stage.cgroups.clone() else {
        return Err(Skipped::because("without groups nobody can join; use another mechanism"));
    };
    stage.mechanism().remove(GangId(1));
    let joined = stage.mechanism().join(GangId(1), cgroups.get(GangId(1)));
    if kind == MechanismKind::Freeze {
        joined.expect("it joins");
        stage.assert_only(0, 1);
        stage.assert_only(1, 0);
    } else {
        assert!(joined.expect_err("it is refused").to_string().contains("use freeze"));
        stage.wait_for_progress(1);
    }
    Ok(())
}

/// Returns the summary of `gang run` about two programs.
fn summary(kind: MechanismKind, options: &[&str], programs: [&str; 2]) -> serde_json::Value {
    let mechanism = kind.to_string();
    let mut command = Command::new(program::unisono());
    command.args(["gang", "run", "--json", "--mechanism", &mechanism]).args(options).arg("--");
    command
        .args(["sh", "-c", programs[0], ":::", "sh", "-c", programs[1]])
        .env("UNISONO", program::unisono());
    let output = command.stdin(Stdio::null()).output().expect("unisono starts");
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// Returns the slice for `gang run`, and for how many seconds its programs compute. Kernels with sched_ext
/// are tested mostly in an emulated machine, where a switch takes milliseconds.
fn pace(kind: MechanismKind) -> (&'static str, u32) {
    if kind == MechanismKind::SchedExt { ("100ms", 4) } else { ("20ms", 2) }
}

fn time_follows_the_weights(kind: MechanismKind) -> TestOutcome {
    require_for(kind)?;
    // as many threads as there are cores, so that no two gangs fit beside each other
    let cores = affinity::allowed(Tid::SELF).expect("own").len();
    let (slice, seconds) = pace(kind);
    let work = format!("exec $UNISONO workload tight-loop --threads {cores} --seconds {seconds}");
    repeat_disturbed(|| {
        let answer = summary(kind, &["--slice", slice, "--weights", "1,3"], [&work, &work]);
        let cpu = |gang: usize| answer["gangs"][gang]["cpu_s"].as_f64().expect("a number");
        let ratio = cpu(1) / cpu(0);
        // a wide range, because other programs may take time from either gang; without weights the ratio
        // would be 1
        let weighted = (1.6..8.0).contains(&ratio);
        if weighted { Ok(()) } else { Err(format!("weights 1,3 gave {ratio}: {answer}")) }
    });
    Ok(())
}

fn gangs_that_fit_beside_each_other_share_a_slot(kind: MechanismKind) -> TestOutcome {
    require::nightly("gangs")?;
    require_for(kind)?;
    if kind == MechanismKind::Stop {
        return Err(Skipped::because(
            "without groups the threads of a gang are not known; use another mechanism",
        ));
    }
    // in each gang, one process uses a core, and the two that wait for it use none
    let work = "timeout 6 sh -c 'while :; do :; done'; exit 0";
    repeat_disturbed(|| {
        let answer = summary(kind, &["--slice", pace(kind).0], [work, work]);
        let number = |path: &str| answer.pointer(path).and_then(serde_json::Value::as_f64).expect("a number");
        // if each gang had turns of its own until the end, there would be a switch after each slice
        let apart = number("/switches") * number("/slice_ms") / 1e3;
        let shared = apart < number("/elapsed_s") / 2.0;
        if shared { Ok(()) } else { Err(format!("turns of their own till the end: {answer}")) }
    });
    Ok(())
}

macro_rules! mount {
    ($($name:ident = $case:ident($kind:ident)),* $(,)?) => {
        $(fn $name() -> TestOutcome { $case(MechanismKind::$kind) })*
        host_tests![needs Machine; $($name within 90),*];
    };
}

mount![
    freeze_a_waiting_gang_makes_no_progress = a_waiting_gang_makes_no_progress(Freeze),
    real_time_a_waiting_gang_makes_no_progress = a_waiting_gang_makes_no_progress(RealTime),
    stop_a_waiting_gang_makes_no_progress = a_waiting_gang_makes_no_progress(Stop),
    sched_ext_a_waiting_gang_makes_no_progress = a_waiting_gang_makes_no_progress(SchedExt),
    freeze_gangs_whose_threads_queue_are_stopped_too = gangs_whose_threads_queue_are_stopped_too(Freeze),
    real_time_gangs_whose_threads_queue_are_stopped_too = gangs_whose_threads_queue_are_stopped_too(RealTime),
    stop_gangs_whose_threads_queue_are_stopped_too = gangs_whose_threads_queue_are_stopped_too(Stop),
    sched_ext_gangs_whose_threads_queue_are_stopped_too = gangs_whose_threads_queue_are_stopped_too(SchedExt),
    freeze_children_born_later_are_stopped_with_their_gang =
        children_born_later_are_stopped_with_their_gang(Freeze),
    real_time_children_born_later_are_stopped_with_their_gang =
        children_born_later_are_stopped_with_their_gang(RealTime),
    stop_children_born_later_are_stopped_with_their_gang =
        children_born_later_are_stopped_with_their_gang(Stop),
    sched_ext_children_born_later_are_stopped_with_their_gang =
        children_born_later_are_stopped_with_their_gang(SchedExt),
    freeze_threads_born_later_are_stopped_with_their_gang =
        threads_born_later_are_stopped_with_their_gang(Freeze),
    real_time_threads_born_later_are_stopped_with_their_gang =
        threads_born_later_are_stopped_with_their_gang(RealTime),
    stop_threads_born_later_are_stopped_with_their_gang =
        threads_born_later_are_stopped_with_their_gang(Stop),
    sched_ext_threads_born_later_are_stopped_with_their_gang =
        threads_born_later_are_stopped_with_their_gang(SchedExt),
    freeze_cores_that_nobody_uses_are_used_or_left_as_promised =
        cores_that_nobody_uses_are_used_or_left_as_promised(Freeze),
    real_time_cores_that_nobody_uses_are_used_or_left_as_promised =
        cores_that_nobody_uses_are_used_or_left_as_promised(RealTime),
    stop_cores_that_nobody_uses_are_used_or_left_as_promised =
        cores_that_nobody_uses_are_used_or_left_as_promised(Stop),
    sched_ext_cores_that_nobody_uses_are_used_or_left_as_promised =
        cores_that_nobody_uses_are_used_or_left_as_promised(SchedExt),
    freeze_a_gang_that_ends_during_a_switch_is_no_error =
        a_gang_that_ends_during_a_switch_is_no_error(Freeze),
    real_time_a_gang_that_ends_during_a_switch_is_no_error =
        a_gang_that_ends_during_a_switch_is_no_error(RealTime),
    stop_a_gang_that_ends_during_a_switch_is_no_error = a_gang_that_ends_during_a_switch_is_no_error(Stop),
    sched_ext_a_gang_that_ends_during_a_switch_is_no_error =
        a_gang_that_ends_during_a_switch_is_no_error(SchedExt),
    freeze_an_unknown_gang_is_an_error_and_changes_nothing =
        an_unknown_gang_is_an_error_and_changes_nothing(Freeze),
    real_time_an_unknown_gang_is_an_error_and_changes_nothing =
        an_unknown_gang_is_an_error_and_changes_nothing(RealTime),
    stop_an_unknown_gang_is_an_error_and_changes_nothing =
        an_unknown_gang_is_an_error_and_changes_nothing(Stop),
    sched_ext_an_unknown_gang_is_an_error_and_changes_nothing =
        an_unknown_gang_is_an_error_and_changes_nothing(SchedExt),
    freeze_a_release_frees_everybody_and_a_second_one_is_harmless =
        a_release_frees_everybody_and_a_second_one_is_harmless(Freeze),
    real_time_a_release_frees_everybody_and_a_second_one_is_harmless =
        a_release_frees_everybody_and_a_second_one_is_harmless(RealTime),
    stop_a_release_frees_everybody_and_a_second_one_is_harmless =
        a_release_frees_everybody_and_a_second_one_is_harmless(Stop),
    sched_ext_a_release_frees_everybody_and_a_second_one_is_harmless =
        a_release_frees_everybody_and_a_second_one_is_harmless(SchedExt),
    freeze_a_released_mechanism_can_be_applied_again = a_released_mechanism_can_be_applied_again(Freeze),
    real_time_a_released_mechanism_can_be_applied_again = a_released_mechanism_can_be_applied_again(RealTime),
    stop_a_released_mechanism_can_be_applied_again = a_released_mechanism_can_be_applied_again(Stop),
    sched_ext_a_released_mechanism_can_be_applied_again = a_released_mechanism_can_be_applied_again(SchedExt),
    freeze_dropping_it_frees_everybody = dropping_it_frees_everybody(Freeze),
    real_time_dropping_it_frees_everybody = dropping_it_frees_everybody(RealTime),
    stop_dropping_it_frees_everybody = dropping_it_frees_everybody(Stop),
    sched_ext_dropping_it_frees_everybody = dropping_it_frees_everybody(SchedExt),
    freeze_a_gang_that_left_runs_and_is_unknown = a_gang_that_left_runs_and_is_unknown(Freeze),
    real_time_a_gang_that_left_runs_and_is_unknown = a_gang_that_left_runs_and_is_unknown(RealTime),
    stop_a_gang_that_left_runs_and_is_unknown = a_gang_that_left_runs_and_is_unknown(Stop),
    sched_ext_a_gang_that_left_runs_and_is_unknown = a_gang_that_left_runs_and_is_unknown(SchedExt),
    freeze_a_gang_that_joins_later_takes_turns_or_is_refused =
        a_gang_that_joins_later_takes_turns_or_is_refused(Freeze),
    real_time_a_gang_that_joins_later_takes_turns_or_is_refused =
        a_gang_that_joins_later_takes_turns_or_is_refused(RealTime),
    stop_a_gang_that_joins_later_takes_turns_or_is_refused =
        a_gang_that_joins_later_takes_turns_or_is_refused(Stop),
    sched_ext_a_gang_that_joins_later_takes_turns_or_is_refused =
        a_gang_that_joins_later_takes_turns_or_is_refused(SchedExt),
    freeze_time_follows_the_weights = time_follows_the_weights(Freeze),
    real_time_time_follows_the_weights = time_follows_the_weights(RealTime),
    stop_time_follows_the_weights = time_follows_the_weights(Stop),
    sched_ext_time_follows_the_weights = time_follows_the_weights(SchedExt),
    freeze_gangs_that_fit_beside_each_other_share_a_slot =
        gangs_that_fit_beside_each_other_share_a_slot(Freeze),
    real_time_gangs_that_fit_beside_each_other_share_a_slot =
        gangs_that_fit_beside_each_other_share_a_slot(RealTime),
    stop_gangs_that_fit_beside_each_other_share_a_slot = gangs_that_fit_beside_each_other_share_a_slot(Stop),
    sched_ext_gangs_that_fit_beside_each_other_share_a_slot =
        gangs_that_fit_beside_each_other_share_a_slot(SchedExt),
];
