//! Tests gangs in a scheduler of the kernel (sched_ext), beyond the suite for all mechanisms
//! (`mechanism.rs`).

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};
use unisono_gang::GangId;
use unisono_gang::cgroups::{CgroupPlan, GangCgroups, Weighing};
use unisono_gang::journal::{self, GangJournal};
use unisono_gang::mechanism::sched_ext::KernelExceptions;
use unisono_gang::mechanism::{Mechanism, SchedExt, Standing};
use unisono_host_tests::processes::{descendants, is_gone, until};
use unisono_host_tests::{TestOutcome, host_tests, program, quota, require};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::clock::Duration;
use unisono_linux::pinned::PinnedThread;
use unisono_linux::process::{self, Family, PidFd, Signal};
use unisono_linux::schedstat;
use unisono_linux::scheduling::{self, SchedulingPolicy};

/// The kernel's timeout for threads that wait: short enough for a test, but long enough for the kernel's own
/// check to run in time on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A script of two processes that compute until they are ended.
const SPIN: &str = "while :; do :; done & while :; do :; done";

fn here() -> TestOutcome {
    require::root()?;
    require::cpus(2)?;
    require::sched_ext()
}

fn gangs(options: &[&str], programs: [&str; 2]) -> Command {
    let mut command = Command::new(program::unisono());
    command.args(["gang", "run", "--mechanism", "sched-ext"]).args(options).arg("--");
    command.args(["sh", "-c", programs[0], ":::", "sh", "-c", programs[1]]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

fn kill(pid: i32) {
    send(pid, Signal::Kill);
}

fn send(pid: i32, signal: Signal) {
    // fails if the process has ended already
    let _ = PidFd::open(Tid(pid)).and_then(|process| process.send(signal));
}

fn used(pid: i32) -> Duration {
    Duration::from_nanos(schedstat::refresh(Tid(pid)).unwrap_or(0))
}

fn state() -> String {
    fs::read_to_string("/sys/kernel/sched_ext/state").unwrap_or_default().trim().to_owned()
}

/// Returns how many of these processes have the policy `SCHED_EXT`.
fn extensible(processes: &BTreeSet<i32>) -> usize {
    let is = |pid: &&i32| matches!(scheduling::get(Tid(**pid)), Ok(SchedulingPolicy::Extensible { .. }));
    processes.iter().filter(is).count()
}

fn all_make_progress(processes: &BTreeSet<i32>) {
    let before: Vec<Duration> = processes.iter().map(|pid| used(*pid)).collect();
    until("progress of all", || {
        let more = |(pid, before): (&i32, &Duration)| used(*pid) > *before + Duration::from_millis(20);
        processes.iter().zip(&before).all(more)
    });
}

/// Starts a busy loop in the fair class on each processor, bound to it.
fn loops_on_each_processor() -> Vec<Child> {
    let on_each = |cpu| {
        let other = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh starts");
        PinnedThread::now(Tid(other.id() as i32))
            .and_then(|thread| thread.restrict(&CpuSet::single(cpu)))
            .expect("it runs");
        other
    };
    affinity::allowed(Tid::SELF).expect("own").iter().map(on_each).collect()
}

fn end(child: &mut Child) {
    // fails if the process has ended already
    let _ = child.kill();
    let _ = child.wait();
}

/// The scheduler process and its guardian, which would restore everything, are killed: the kernel alone frees
/// the gangs.
fn the_kernel_frees_the_gangs_when_scheduler_and_guardian_are_killed() -> TestOutcome {
    here()?;
    let mut child = gangs(&[], [SPIN, SPIN]).stdout(Stdio::null()).spawn().expect("unisono starts");
    let scheduler = child.id();
    let mut programs = BTreeSet::new();
    until("four loops in the kernel's scheduler", || {
        programs = descendants(scheduler);
        extensible(&programs) == 4
    });
    assert_eq!(state(), "enabled");
    let guardian: Vec<i32> =
        programs.iter().copied().filter(|pid| extensible(&BTreeSet::from([*pid])) == 0).collect();
    assert_eq!(guardian.len(), 1, "one guardian among {programs:?}");
    programs.remove(&guardian[0]);
    // first stops both, because each restores everything as soon as it notices the end of the other
    for signal in [Signal::Stop, Signal::Kill] {
        send(scheduler as i32, signal);
        send(guardian[0], signal);
    }
    child.wait().expect("reap");
    until("the kernel has unloaded it", || state() == "disabled");
    all_make_progress(&programs);
    assert_eq!(extensible(&programs), 4, "nobody has put the policy back so far");

    let mut restore = Command::new(program::unisono());
    let output = restore.args(["gang", "restore"]).output().expect("unisono starts");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(extensible(&programs), 0);
    programs.iter().for_each(|pid| kill(*pid));
    until("all have ended", || programs.iter().all(|pid| is_gone(*pid)));
    Ok(())
}

/// The kernel's bandwidth control does not apply to these threads, so the turns have to keep to the quota.
fn gangs_keep_to_the_quota_of_the_group_that_they_are_started_in() -> TestOutcome {
    here()?;
    let group = quota::one_processor("sched-ext")?;
    // turns of 0.2 s, because a switch takes milliseconds in an emulated machine
    group.write("cpu.max", "1000000 1000000").expect("root may change it");
    let work = "timeout 4 sh -c 'while :; do :; done' & timeout 4 sh -c 'while :; do :; done'; wait; exit 0";
    let mut command = gangs(&["--json", "--slice", "300ms"], [work, work]);
    command.stdout(Stdio::piped());
    let procs_file = group.open_procs().expect("root may enter it");
    let child = process::start(&mut command, vec![procs_file], Family::Same).expect("unisono starts");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    let answer: serde_json::Value =
        serde_json::from_str(text.lines().last().unwrap_or_default()).expect("a summary");
    let number = |path: &str| answer.pointer(path).and_then(serde_json::Value::as_f64).expect("a number");
    let cpu = number("/gangs/0/cpu_s") + number("/gangs/1/cpu_s");
    let wall = number("/elapsed_s");
    // one of two processors; without the quota both would be used
    assert!(cpu < 1.1 * wall && cpu > 0.5 * wall, "{cpu} s of processor time in {wall} s: {answer}");
    Ok(())
}

/// The programs of two gangs, their control groups, and the journal. The tests change turns by calls.
struct Stage {
    mechanism: Option<SchedExt>,
    leaders: Vec<Child>,
    cgroups: GangCgroups,
    journal: std::path::PathBuf,
}

impl Stage {
    fn new(timeout: Duration) -> Stage {
        Stage::of(timeout, [SPIN, SPIN], [2, 2])
    }

    /// Starts gangs that run these scripts, and waits until each has so many processes.
    fn of(timeout: Duration, scripts: [&str; 2], processes: [usize; 2]) -> Stage {
        let mut journal = GangJournal::create().expect("a journal");
        let plan = CgroupPlan { gangs: 2, weighing: Weighing::None, max_threads: 200, cores: 2 };
        let cgroups = GangCgroups::build(&plan, &mut journal).expect("control groups");
        let mechanism = SchedExt::with_timeout(&cgroups, &mut journal, timeout).expect("a scheduler");
        let path = journal.path().to_owned();
        let mut stage = Stage { mechanism: Some(mechanism), leaders: Vec::new(), cgroups, journal: path };
        for (gang, script) in scripts.iter().enumerate() {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::null());
            let procs_files = stage.cgroups.get(GangId(gang)).procs_files().expect("doors");
            stage.leaders.push(process::start(&mut command, procs_files, Family::Same).expect("sh starts"));
        }
        until("all processes", || (0..2).all(|gang| stage.processes(gang).len() == processes[gang]));
        stage
    }

    fn processes(&self, gang: usize) -> BTreeSet<i32> {
        let mut processes = descendants(self.leaders[gang].id());
        processes.insert(self.leaders[gang].id() as i32);
        processes
    }

    fn used(&self, gang: usize) -> Duration {
        self.processes(gang).into_iter().map(used).sum()
    }

    fn exceptions(&self) -> KernelExceptions {
        self.mechanism.as_ref().expect("there").exceptions().expect("counted")
    }

    fn turn_of(&mut self, gang: usize) -> unisono_gang::Result<()> {
        let standing = |of| if of == gang { Standing::Running } else { Standing::Waiting };
        let standings = [(GangId(0), standing(0)), (GangId(1), standing(1))];
        self.mechanism.as_mut().expect("there").apply(&standings)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        drop(self.mechanism.take());
        for gang in 0..2 {
            self.processes(gang).into_iter().for_each(kill);
            let _ = self.leaders[gang].wait();
        }
        let restored = journal::restore(&self.journal);
        if !std::thread::panicking() {
            assert_eq!(restored.expect("a journal").unrestored, Vec::<String>::new());
        }
    }
}

/// If a thread waits for longer than its timeout, the kernel treats the scheduler as stalled and unloads it.
fn a_gang_may_wait_for_longer_than_the_kernel_allows() -> TestOutcome {
    here()?;
    let timeout = TIMEOUT;
    let mut stage = Stage::new(timeout);
    let waiting = stage.processes(1);
    // binds each process to one processor, as `gang run` does, so that the first process in the queue cannot
    // run on every processor
    let processors: Vec<usize> = affinity::allowed(Tid::SELF).expect("own").iter().collect();
    for (process, processor) in waiting.iter().zip(processors.iter().cycle()) {
        PinnedThread::now(Tid(*process))
            .and_then(|thread| thread.restrict(&CpuSet::single(*processor)))
            .expect("it runs");
    }
    stage.turn_of(0).expect("applied");
    std::thread::sleep(Duration::from_millis(200).into());
    let before: Vec<Duration> = waiting.iter().map(|process| used(*process)).collect();
    std::thread::sleep((timeout * 2).into());
    let each: Vec<Duration> =
        waiting.iter().zip(before).map(|(process, before)| used(*process) - before).collect();
    assert!(each.iter().all(|got| !got.is_zero()), "{each:?} while they waited");
    let got: Duration = each.iter().copied().sum();
    assert_eq!(state(), "enabled");
    // in each tenth of the timeout, each of its two threads gets one slice; in the virtual machine that was
    // 0.5 s in all
    assert!(got < timeout / 2, "{got:?} while it waited");
    assert!(stage.exceptions().breaths >= 6, "{:?}", stage.exceptions());
    stage.turn_of(1).expect("applied");
    let before = stage.used(1);
    until("progress", || stage.used(1) > before + Duration::from_millis(50));
    Ok(())
}

/// The gang whose turn it is sleeps, and the turn does not change: idle processors also let waiting threads
/// run for a moment, so that the kernel's timeout does not expire.
fn a_gang_may_wait_long_while_nobody_runs() -> TestOutcome {
    here()?;
    let timeout = TIMEOUT;
    let mut stage = Stage::of(timeout, ["sleep 1000 & exec sleep 1000", SPIN], [2, 2]);
    stage.turn_of(0).expect("applied");
    std::thread::sleep((timeout * 2).into());
    assert_eq!(state(), "enabled");
    let breaths = stage.exceptions().breaths;
    assert!(breaths >= 6, "{breaths} in twice the timeout");
    Ok(())
}

/// Loops that look up paths, which the kernel does under RCU, are preempted again and again, while other
/// threads wait for an RCU grace period.
fn nobody_waits_for_a_turn_while_others_wait_for_rcu() -> TestOutcome {
    here()?;
    let look = "while :; do [ -e /sys/fs/cgroup/a/b/c ]; done";
    let both = format!("{look} & {look}");
    let mut stage = Stage::of(Duration::from_secs(30), [&both, &both], [2, 2]);
    let mut entering = Vec::new();
    for turn in 0..30 {
        stage.turn_of(turn % 2).expect("applied");
        std::thread::sleep(Duration::from_millis(3).into());
        entering.retain_mut(|child: &mut Child| child.try_wait().expect("its state").is_none());
        if entering.is_empty() {
            let mut command = Command::new("true");
            let procs_files = stage.cgroups.get(GangId(0)).procs_files().expect("doors");
            // moving a process into a group waits for an RCU grace period
            entering.push(process::start(&mut command, procs_files, Family::Same).expect("true starts"));
        }
    }
    for mut child in entering {
        child.wait().expect("reap");
    }
    let exceptions = stage.exceptions();
    assert_eq!(state(), "enabled");
    assert!(exceptions.went_on > 0, "{exceptions:?}");
    Ok(())
}

/// There are too many threads for the time that other programs leave: the scheduler gives up before the
/// kernel treats it as stalled.
fn it_gives_up_before_a_thread_starves() -> TestOutcome {
    here()?;
    let loops = "while :; do :; done & ".repeat(50);
    let mut stage = Stage::of(TIMEOUT, [SPIN, &format!("{loops} wait")], [2, 51]);
    let one = affinity::allowed(Tid::SELF).expect("own").iter().next().expect("a processor");
    for process in stage.processes(1) {
        PinnedThread::now(Tid(process))
            .and_then(|thread| thread.restrict(&CpuSet::single(one)))
            .expect("it runs");
    }
    let mut others = loops_on_each_processor();
    stage.turn_of(0).expect("applied");
    until("it has given up", || state() == "disabled");
    others.iter_mut().for_each(end);
    let refused = stage.turn_of(1).expect_err("there is no scheduler").to_string();
    // the message says which thread waits, and for how long
    assert!(refused.contains("too many threads wait: ") && refused.contains(" ticks"), "{refused}");
    all_make_progress(&stage.processes(0));
    Ok(())
}

/// After the kernel has ended the scheduler, a change of turns fails, and all programs run.
fn a_scheduler_that_the_kernel_ends_is_an_error_and_everybody_runs() -> TestOutcome {
    here()?;
    let mut stage = Stage::new(Duration::from_secs(30));
    stage.turn_of(0).expect("applied");
    // the SysRq command that ends a sched_ext scheduler
    fs::write("/proc/sysrq-trigger", "S").expect("root may");
    until("the kernel has unloaded it", || state() == "disabled");
    let refused = stage.turn_of(1).expect_err("there is no scheduler").to_string();
    assert!(refused.contains("the kernel has ended the scheduler of gangs"), "{refused}");
    all_make_progress(&stage.processes(0));
    all_make_progress(&stage.processes(1));
    Ok(())
}

/// Other programs stay in the fair class, which has precedence on each processor. (Linux decides on which
/// processors they are. It counts all threads alike, so two threads that may run anywhere may share one
/// processor while two threads of a gang have the other.)
fn other_programs_go_first_where_they_run() -> TestOutcome {
    here()?;
    // shorter than the test: the kernel's reserve lets waiting threads run before the timeout
    let mut stage = Stage::new(TIMEOUT);
    stage.turn_of(0).expect("applied");
    let mut others = loops_on_each_processor();
    std::thread::sleep(Duration::from_millis(500).into());
    let theirs = |others: &[Child]| others.iter().map(|one| used(one.id() as i32)).sum::<Duration>();
    let (before, gang) = (theirs(&others), stage.used(0));
    std::thread::sleep(Duration::from_secs(3).into());
    let (got, gang) = (theirs(&others) - before, stage.used(0) - gang);
    assert_eq!(state(), "enabled");
    others.iter_mut().for_each(end);
    assert!(got > gang * 5, "others got {got:?}, the gang {gang:?}");
    let before = stage.used(0);
    until("progress", || stage.used(0) > before + Duration::from_millis(50));
    Ok(())
}

host_tests![needs Machine;
    the_kernel_frees_the_gangs_when_scheduler_and_guardian_are_killed within 90,
    gangs_keep_to_the_quota_of_the_group_that_they_are_started_in within 90,
    a_gang_may_wait_for_longer_than_the_kernel_allows within 90,
    a_gang_may_wait_long_while_nobody_runs within 90,
    nobody_waits_for_a_turn_while_others_wait_for_rcu within 90,
    it_gives_up_before_a_thread_starves within 240,
    a_scheduler_that_the_kernel_ends_is_an_error_and_everybody_runs within 90,
    other_programs_go_first_where_they_run within 90,
];
