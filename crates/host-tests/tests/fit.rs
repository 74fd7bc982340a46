//! `unisono fit` on this host: an OpenMP program in a group with a quota gets the right number of threads,
//! and the program replaces the command.

use serde_json::Value;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use unisono_host_tests::{Skipped, TestOutcome, groups, host_tests, program, require};
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, ControlGroup, hierarchies};
use unisono_linux::pidfd::PidFd;
use unisono_linux::process::Signal;

/// Prints how many threads its team has.
const TEAM: &str = "#include <omp.h>\n#include <stdio.h>\nint main(void)\n{\n\
    #pragma omp parallel\n#pragma omp master\nprintf(\"%d\\n\", omp_get_num_threads());\nreturn 0;\n}\n";

fn team(directory: &Path) -> Result<PathBuf, Skipped> {
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

/// A group with so much processor time in each 100,000 us, and one inside that has no quota of its own.
fn groups_with_a_quota(time_us: u32) -> Result<[ControlGroup; 2], Skipped> {
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

/// `unisono` without the variables that this test's own environment may have.
fn fit(arguments: &[&str]) -> Command {
    let mut command = Command::new(program::unisono());
    command.arg("fit").args(arguments);
    for name in ["OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES"] {
        command.env_remove(name);
    }
    command
}

fn joined(command: &mut Command, group: &ControlGroup) -> std::process::Output {
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
        assert!(said.contains("OMP_NUM_THREADS=1") && said.contains("has a quota of 1"), "{said}");
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
    // so little that it is used up on a loaded machine, too
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
    let first = unisono_linux::affinity::allowed(Tid::SELF).expect("own affinity");
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

host_tests![needs Machine;
    a_team_in_a_quota_of_one_processor_has_one_thread_also_where_a_group_around_has_the_quota within 300,
    advice_about_a_running_process_is_about_its_own_quota,
    a_team_bound_to_one_processor_has_one_thread within 300,
    signals_reach_the_program_and_its_exit_code_is_the_answer within 300,
    a_signal_to_the_one_that_stays_ends_all_of_several_programs within 300,
];
