//! Tests `unisono fit` on this host. An OpenMP program in a control group with a quota gets the right number
//! of threads, and so do programs that the program starts and the ranks of MPI programs. Programs are bound
//! to the processors of their leases. And the program replaces the `unisono` process.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unisono_host_tests::processes::until;
use unisono_host_tests::{Skipped, TestOutcome, groups, host_tests, program, require};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, ControlGroup, hierarchies};
use unisono_linux::clock;
use unisono_linux::pidfd::PidFd;
use unisono_linux::process::Signal;
use unisono_linux::process_stat::ProcessStat;
use unisono_linux::record_lock;

/// The source of a program that prints the number of threads in its team.
const TEAM: &str = "#include <omp.h>\n#include <stdio.h>\nint main(void)\n{\n\
    #pragma omp parallel\n#pragma omp master\nprintf(\"%d\\n\", omp_get_num_threads());\nreturn 0;\n}\n";

pub(crate) fn team(directory: &Path) -> Result<PathBuf, Skipped> {
    require::program("gcc", "apt-get install gcc")?;
    let (source, program) = (directory.join("team.c"), directory.join("team"));
    fs::write(&source, TEAM).expect("a temporary file");
    let built = Command::new("gcc").arg("-fopenmp").arg("-o").args([&program, &source]).output();
    let built = built.expect("gcc starts");
    if built.status.success() {
        Ok(program)
    } else {
        let why = String::from_utf8_lossy(&built.stderr).trim().to_owned();
        Err(Skipped::because(format!("gcc -fopenmp fails here: {why}")))
    }
}

/// Makes a control group with `time_us` of processor time in each 100,000 us, and a group inside it that has
/// no quota of its own.
pub(crate) fn groups_with_a_quota(time_us: u32) -> Result<[ControlGroup; 2], Skipped> {
    require::root()?;
    let all = hierarchies().expect("mounts can be read");
    let tree = CgroupHierarchy::with(&all, "cpu")
        .ok_or_else(|| Skipped::because("no cgroup tree has the cpu controller here; mount one"))?;
    let refused = |error| Skipped::because(format!("no group with a quota can be made here: {error}"));
    let around = tree.top().create(&groups::name("fit")).map_err(refused)?;
    let inside = around.create("inside").map_err(refused)?;
    let (file, value) = match tree.version {
        CgroupVersion::V1 => ("cpu.cfs_quota_us", time_us.to_string()),
        CgroupVersion::V2 => ("cpu.max", format!("{time_us} 100000")),
    };
    around.write(file, &value).map_err(refused)?;
    Ok([around, inside])
}

/// Returns the command `unisono fit`, without variables that this test's own environment may have.
pub(crate) fn fit(arguments: &[&str]) -> Command {
    let mut command = Command::new(program::unisono());
    command.arg("fit").args(arguments);
    for name in ["OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES"] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn joined(command: &mut Command, group: &ControlGroup) -> std::process::Output {
    let procs_files = vec![group.open_procs().expect("our own group")];
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = unisono_linux::process::start(command, procs_files, unisono_linux::process::Family::Same);
    child.expect("it starts").wait_with_output().expect("it ends")
}

fn a_team_in_a_quota_of_one_processor_has_one_thread_also_where_a_group_around_has_the_quota() -> TestOutcome
{
    require::cpus(2)?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let team = team(directory.path())?;
    let quota = groups_with_a_quota(100_000)?;
    let plain = joined(Command::new(&team).env_remove("OMP_NUM_THREADS"), &quota[1]);
    assert_ne!(String::from_utf8_lossy(&plain.stdout).trim(), "1", "without help it counts the affinity");
    for group in &quota {
        let output = joined(fit(&["--"]).arg(&team), group);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1", "{said}");
        let brief = "unisono: 1 processor, because a quota of 1 holds; set: OMP_NUM_THREADS=1 and ";
        let line = said.lines().find(|line| line.starts_with(brief)).unwrap_or_else(|| panic!("{said}"));
        assert!(line.ends_with(" more (--dry-run)") && line.chars().count() <= 100, "{said}");
        let output = joined(fit(&["--dry-run", "--"]).arg(&team), group);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("1 processor, because a quota of 1 holds in /"), "{said}");
        assert!(said.contains("; set: OMP_NUM_THREADS=1 "), "{said}");
        let output = joined(fit(&["--dry-run", "--json", "--"]).arg(&team), group);
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(answer["effective_processors"], 1);
        assert_eq!(answer["limits"]["quota"], 1.0);
        assert!(
            answer["set"]
                .as_array()
                .is_some_and(|set| set.iter().any(|one| one["name"] == "OMP_NUM_THREADS"))
        );
    }
    let user = joined(fit(&["--quiet", "--"]).arg(&team).env("OMP_NUM_THREADS", "3"), &quota[0]);
    assert_eq!((&user.stdout[..], &user.stderr[..]), (&b"3\n"[..], &b""[..]), "the user's number stays");
    Ok(())
}

fn advice_about_a_running_process_is_about_its_own_quota() -> TestOutcome {
    require::cpus(2)?;
    // a quota so small that it is used up even on a loaded machine
    let [around, inside] = groups_with_a_quota(10_000)?;
    let mut loops = Command::new("sh");
    loops.args(["-c", "while :; do :; done & while :; do :; done"]).stdin(Stdio::null());
    let procs_files = vec![inside.open_procs().expect("our own group")];
    let child =
        unisono_linux::process::start(&mut loops, procs_files, unisono_linux::process::Family::OwnGroup);
    let mut child = child.expect("it starts");
    let mut advise = Command::new(program::unisono());
    advise.args(["advise", "--json", "--for", "2s", "--pid", &child.id().to_string()]);
    let output = advise.output().expect("it starts");
    for process in inside.processes().expect("our own group") {
        let _ = PidFd::open(process).and_then(|process| process.send(Signal::Kill));
    }
    child.wait().expect("it was killed");
    drop((inside, around));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["effective_processors"], 1, "{answer}");
    let conditions = answer["conditions"].as_array().expect("a list").iter();
    let quota = conditions.filter(|condition| condition["evidence"].to_string().contains("of their quota"));
    assert!(quota.count() == 1, "the kernel stopped both loops in each period: {answer}");
    Ok(())
}

fn a_team_bound_to_one_processor_has_one_thread() -> TestOutcome {
    require::program("taskset", "apt-get install util-linux")?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let team = team(directory.path())?;
    let first = affinity::allowed(Tid::SELF).expect("own affinity");
    let first = first.iter().next().expect("some processor").to_string();
    let mut bound = Command::new("taskset");
    bound.args(["-c", &first]).arg(program::unisono()).args(["fit", "--"]).arg(&team);
    let output = bound.output().expect("taskset starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1");
    Ok(())
}

fn signals_reach_the_program_and_its_exit_code_is_the_answer() -> TestOutcome {
    let mut child = fit(&["--quiet", "--", "sh", "-c", "echo $$; exec sleep 100"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("unisono starts");
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().expect("a pipe")),
        &mut line,
    )
    .expect("the program speaks");
    assert_eq!(line.trim(), child.id().to_string(), "the program has our process number");
    PidFd::open(child.id()).expect("a child").send(Signal::Terminate).expect("a child");
    assert_eq!(child.wait().expect("a child").signal(), Some(15));
    Ok(())
}

fn a_signal_to_the_one_that_stays_ends_all_of_several_programs() -> TestOutcome {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script = |name: &str| {
        let file = directory.path().join(name).display().to_string();
        format!("trap 'echo ended >{file}.told; exit 9' TERM; echo $$ >{file}; while :; do sleep 0.05; done")
    };
    let (one, two) = (script("one"), script("two"));
    let mut child = fit(&["--quiet", "--", "sh", "-c", &one, ":::", "sh", "-c", &two])
        .process_group(0)
        .stderr(Stdio::null())
        .spawn()
        .expect("unisono starts");
    let ready = || ["one", "two"].iter().all(|name| directory.path().join(name).exists());
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(60), "both programs start");
        std::thread::sleep(Duration::from_millis(20));
    }
    PidFd::open(child.id()).expect("a child").send(Signal::Terminate).expect("a child");
    assert_eq!(child.wait().expect("a child").code(), Some(9));
    for name in ["one.told", "two.told"] {
        assert!(directory.path().join(name).exists(), "{name}");
    }
    Ok(())
}

fn programs_that_a_shell_starts_get_the_number_of_every_runtime() -> TestOutcome {
    require::cpus(2)?;
    let [around, inside] = groups_with_a_quota(100_000)?;
    let script = "exec sh -c 'echo $OMP_NUM_THREADS $GOMAXPROCS $NUMBA_NUM_THREADS $DOTNET_PROCESSOR_COUNT'";
    let mut command = fit(&["--quiet", "--", "nice", "sh", "-c", script]);
    let output = joined(command.env_remove("GOMAXPROCS").env_remove("NUMBA_NUM_THREADS"), &inside);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1 1 1 1");
    drop((inside, around));
    Ok(())
}

/// Returns the answer of a dry run with `--json`.
fn dry_run(command: &mut Command) -> Value {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn threads_on_processors_that_the_program_may_not_use_do_not_count() -> TestOutcome {
    const LOOPS: u64 = 30;
    require::cpus(2)?;
    require::program("taskset", "apt-get install util-linux")?;
    let all = affinity::allowed(Tid::SELF).expect("own affinity");
    let (first, last) = (all.iter().next().expect("two"), all.iter().next_back().expect("two"));
    let start = |_| {
        let script = "echo; while :; do :; done";
        let mut command = Command::new("taskset");
        command.args(["-c", &first.to_string(), "sh", "-c", script]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("taskset starts");
        wait_for_a_line(&mut child);
        child
    };
    let mut loops: Vec<Child> = (0..LOOPS).map(start).collect();
    let mut bound = Command::new("taskset");
    bound.args(["-c", &last.to_string()]).arg(program::unisono());
    let answer = dry_run(bound.args(["fit", "--dry-run", "--json", "--", "true"]));
    for child in &mut loops {
        child.kill().expect("a child");
        child.wait().expect("a child");
    }
    // other programs of the host may count, too, but not all of our loops
    assert!(answer["others"].as_u64().is_some_and(|others| others < LOOPS), "{answer}");
    Ok(())
}

fn wait_for_a_line(child: &mut Child) -> String {
    let mut line = String::new();
    let output = child.stdout.as_mut().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("the program speaks");
    line.trim().to_owned()
}

fn ranks_share_the_processors_also_on_an_idle_host() -> TestOutcome {
    require::cpus(2)?;
    require::program("mpiexec.mpich", "apt-get install mpich")?;
    let part = (affinity::allowed(Tid::SELF).expect("own affinity").len() / 2).to_string();
    let started = fit(&["--quiet", "--", "mpiexec.mpich", "-n", "2", "sh", "-c", "echo $OMP_NUM_THREADS"])
        .output()
        .expect("it starts");
    assert_eq!(String::from_utf8_lossy(&started.stdout), format!("{part}\n{part}\n"));
    let mut launcher = Command::new("mpiexec.mpich");
    launcher.args(["-n", "2"]).arg(program::unisono()).env_remove("OMP_NUM_THREADS");
    let inside = launcher.args(["fit", "--quiet", "--", "sh", "-c", "echo $OMP_NUM_THREADS"]).output();
    assert_eq!(String::from_utf8_lossy(&inside.expect("it starts").stdout), format!("{part}\n{part}\n"));
    let mut launcher = Command::new("mpiexec.mpich");
    launcher.args(["-n", "2"]).arg(program::unisono()).args(["fit", "--", "true"]);
    let told = launcher.env_remove("OMP_NUM_THREADS").output().expect("it starts").stderr;
    let told = String::from_utf8_lossy(&told);
    let settings: Vec<_> = told.lines().filter(|line| line.contains("set: OMP_NUM_THREADS=")).collect();
    assert!(settings.len() == 1 && settings[0].contains("each of 2 ranks: "), "{told}");
    Ok(())
}

fn an_ignored_broken_pipe_stays_ignored_and_another_does_not() -> TestOutcome {
    const SIGPIPE: u32 = 13;
    let ignored = |before: &str, programs: &str| {
        let script = format!("{before} exec \"$0\" fit --quiet -- {programs}");
        let output = Command::new("sh").args(["-c", &script]).arg(program::unisono()).output();
        let text = String::from_utf8(output.expect("sh starts").stdout).expect("text");
        let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a line");
        u64::from_str_radix(mask.trim(), 16).expect("a mask") >> (SIGPIPE - 1) & 1 == 1
    };
    const GREP: &str = "grep SigIgn /proc/self/status";
    let several = format!("true ::: {GREP}");
    assert!(ignored("trap '' PIPE;", GREP) && ignored("trap '' PIPE;", &several));
    assert!(!ignored("", GREP) && !ignored("", &several));
    Ok(())
}

fn several_programs_end_where_the_ends_of_children_are_ignored() -> TestOutcome {
    const SIGCHLD: u32 = 17;
    require::program("perl", "apt-get install perl")?;
    let started_so = |programs: &str| {
        let program = program::unisono().display().to_string();
        let script = "$SIG{CHLD} = 'IGNORE'; exec @ARGV";
        let mut words = vec!["-e", script, &program, "fit", "--quiet", "--"];
        words.extend(programs.split(' '));
        Command::new("perl").args(words).output().expect("perl starts")
    };
    let several = started_so("false ::: true");
    assert_eq!(several.status.code(), Some(1), "{several:?}");
    assert_eq!(String::from_utf8_lossy(&several.stderr), "unisono: false ended with exit code 1\n");
    let one = started_so("grep SigIgn /proc/self/status");
    let mask = String::from_utf8(one.stdout).expect("text");
    let mask = u64::from_str_radix(mask.rsplit('\t').next().expect("a word").trim(), 16).expect("a mask");
    assert_eq!(mask >> (SIGCHLD - 1) & 1, 1, "a single program inherits it");
    Ok(())
}

fn advice_says_why_it_watches_neither_a_zombie_nor_a_thread_of_the_kernel() -> TestOutcome {
    let watch = |pid: &str| {
        let output = Command::new(program::unisono()).args(["advise", "--for", "1s", "--pid", pid]).output();
        let output = output.expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let mut zombie = Command::new("true").spawn().expect("true starts");
    let number = zombie.id().to_string();
    while !ProcessStat::read(&number).is_some_and(ProcessStat::has_ended) {
        std::thread::yield_now();
    }
    let said = watch(&number);
    zombie.wait().expect("a child");
    assert!(said.contains(&format!("process {number} has ended")), "{said}");
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        assert!(watch("2").contains("2 is a thread of the kernel"));
    }
    Ok(())
}

/// Starts a program with a lease of one processor, and returns it with its processors once it runs.
fn leased(group: &ControlGroup) -> (Child, CpuSet) {
    let script = "grep Cpus_allowed_list /proc/self/status; read -r line";
    let mut command = fit(&["--quiet", "--bind", "--", "sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let procs_files = vec![group.open_procs().expect("our own group")];
    let child =
        unisono_linux::process::start(&mut command, procs_files, unisono_linux::process::Family::Same);
    let mut child = child.expect("it starts");
    let line = wait_for_a_line(&mut child);
    let cpus = line.rsplit('\t').next().expect("a word").parse().expect("a list");
    (child, cpus)
}

/// Returns the number of locked bytes in the file of all users: one for each processor of each lease.
fn leased_processors() -> u64 {
    let Ok(file) = record_lock::open(Path::new("/run/unisono/leases")) else { return 0 };
    let until = clock::now() + Duration::from_secs(60).into();
    let ranges = record_lock::locked(&file, 0..1 << 40, until).expect("our own file");
    ranges.iter().map(|range| range.end - range.start).sum()
}

fn programs_that_start_together_are_bound_to_different_processors_until_they_are_killed() -> TestOutcome {
    let all = affinity::allowed(Tid::SELF).expect("own affinity");
    require::cpus(2)?;
    let [around, inside] = groups_with_a_quota(100_000)?;
    let before = leased_processors();
    let count = 2 * all.len();
    let mut running: Vec<(Child, CpuSet)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(|| leased(&inside))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it starts")).collect()
    });
    for cpu in all.iter() {
        let there = running.iter().filter(|(_, cpus)| *cpus == CpuSet::single(cpu)).count();
        assert_eq!(there, 2, "on processor {cpu}: {running:?}");
    }
    assert_eq!(leased_processors(), before + count as u64);
    for (child, _) in &mut running {
        child.kill().expect("a child");
        child.wait().expect("a child");
    }
    // a command that the killed shell had started holds the lease until it ends, a moment later
    until("a killed program has no lease", || leased_processors() == before);
    let mut unbound = fit(&["--quiet", "--", "grep", "Cpus_allowed_list", "/proc/self/status"]);
    let output = joined(&mut unbound, &inside);
    assert!(String::from_utf8_lossy(&output.stdout).trim().ends_with(&format!("\t{all}")));
    drop((inside, around));
    Ok(())
}

fn a_user_leases_processors_in_a_file_of_root_and_may_not_write_it() -> TestOutcome {
    require::cpus(2)?;
    require::program("setpriv", "apt-get install util-linux")?;
    let [around, inside] = groups_with_a_quota(100_000)?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
    let unisono = program::copied_into(directory.path());
    let fit = ["fit", "--quiet", "--bind", "--"];
    let by_root = joined(Command::new(&unisono).args(fit).arg("true"), &inside);
    assert!(by_root.status.success(), "{by_root:?}");
    let facts = fs::metadata("/run/unisono/leases").expect("root's first lease makes it");
    assert_eq!((facts.uid(), facts.mode() & 0o777, facts.len()), (0, 0o644, 0));
    let before = leased_processors();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&unisono).args(fit);
    // the shell says whether it could fill root's file system
    command.args([
        "sh",
        "-c",
        "echo x 2>&1 >/run/unisono/leases; echo x 2>&1 >/run/unisono/mine; echo; read -r line",
    ]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let procs_files = vec![inside.open_procs().expect("our own group")];
    let child =
        unisono_linux::process::start(&mut command, procs_files, unisono_linux::process::Family::Same);
    let mut child = child.expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let refused =
        lines.by_ref().take(2).filter(|line| line.as_ref().is_ok_and(|line| line.contains("denied")));
    assert_eq!(refused.count(), 2, "no write is possible");
    assert!(lines.next().is_some_and(|line| line.is_ok()), "it runs");
    assert_eq!(leased_processors(), before + 1);
    drop(child.stdin.take());
    child.wait().expect("a child");
    until("a program that ended has no lease", || leased_processors() == before);
    drop((inside, around));
    Ok(())
}

fn a_lease_stays_inside_the_processors_that_the_program_may_use() -> TestOutcome {
    require::cpus(2)?;
    require::program("taskset", "apt-get install util-linux")?;
    let [around, inside] = groups_with_a_quota(100_000)?;
    let last = affinity::allowed(Tid::SELF).expect("own affinity").iter().next_back().expect("two");
    let mut bound = Command::new("taskset");
    bound.args(["-c", &last.to_string()]).arg(program::unisono());
    bound.args(["fit", "--quiet", "--bind", "--", "grep", "Cpus_allowed_list", "/proc/self/status"]);
    let output = joined(&mut bound, &inside);
    assert!(String::from_utf8_lossy(&output.stdout).trim().ends_with(&format!("\t{last}")));
    drop((inside, around));
    Ok(())
}

host_tests![needs Machine;
    programs_that_a_shell_starts_get_the_number_of_every_runtime within 300,
    threads_on_processors_that_the_program_may_not_use_do_not_count within 300,
    ranks_share_the_processors_also_on_an_idle_host within 300,
    an_ignored_broken_pipe_stays_ignored_and_another_does_not within 300,
    several_programs_end_where_the_ends_of_children_are_ignored within 300,
    advice_says_why_it_watches_neither_a_zombie_nor_a_thread_of_the_kernel within 300,
    programs_that_start_together_are_bound_to_different_processors_until_they_are_killed within 300,
    a_lease_stays_inside_the_processors_that_the_program_may_use within 300,
    a_user_leases_processors_in_a_file_of_root_and_may_not_write_it within 300,
    a_team_in_a_quota_of_one_processor_has_one_thread_also_where_a_group_around_has_the_quota within 300,
    advice_about_a_running_process_is_about_its_own_quota,
    a_team_bound_to_one_processor_has_one_thread within 300,
    signals_reach_the_program_and_its_exit_code_is_the_answer within 300,
    a_signal_to_the_one_that_stays_ends_all_of_several_programs within 300,
];
