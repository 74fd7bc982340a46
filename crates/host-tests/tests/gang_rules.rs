//! Tests `unisono gang daemon --rules`: programs and control groups become gangs automatically, and the file
//! may change while the daemon runs.

use crate::gang_shared::served::{Program, SPIN, Served, daemon, second_version, top};
use crate::gang_shared::{gangs, journal_of, kill};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unisono_host_tests::processes::until;
use unisono_host_tests::{TestOutcome, host_tests, require};
use unisono_linux::process::Signal;

/// A short slice, so that a test's own commands need not wait long.
const SHORT: &str = "slice = \"5ms\"\n";

/// A file of rules, in a directory that also has a program that no other test runs.
struct Rules {
    directory: tempfile::TempDir,
    program: String,
}

impl Rules {
    fn new() -> Rules {
        let directory = tempfile::tempdir().expect("a directory");
        let program = format!("solver-{}", std::process::id());
        fs::copy("/bin/sh", directory.path().join(&program)).expect("sh is on every Linux");
        Rules { directory, program }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("gangs.toml")
    }

    /// Replaces the file atomically.
    fn write(&self, text: &str) {
        let beside = self.directory.path().join("new");
        fs::write(&beside, text).expect("room");
        fs::rename(&beside, self.file()).expect("room");
    }

    fn of_program(&self, more: &str) -> String {
        format!(
            "[[gang]]\nprogram = \"{}*\"\nname = \"solver\"\n{more}\n",
            &self.program[..self.program.len() - 1]
        )
    }

    fn start(&self, script: &str, processes: usize) -> Program {
        let mut command = Command::new(self.directory.path().join(&self.program));
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Program::of(command, processes)
    }

    fn served(&self) -> Served {
        Served::start(&["--rules", self.file().to_str().expect("letters")])
    }
}

fn weight(served: &Served, gang: &str) -> Option<u64> {
    served.gang(gang)["weight"].as_u64()
}

fn programs_become_gangs_as_the_rules_say_and_as_they_change() -> TestOutcome {
    require::nightly("gangs")?;
    gangs()?;
    let rules = Rules::new();
    rules.write(&format!("{SHORT}{}", rules.of_program("weight = 3")));
    let early = rules.start(SPIN, 2);
    let served = rules.served();
    until("a gang", || weight(&served, "solver") == Some(3));
    assert_eq!(served.gang("solver")["threads"].as_u64(), Some(2), "with what it has started");
    let late = rules.start(SPIN, 2);
    until("another gang", || weight(&served, "solver-2") == Some(3));
    until("turns", || served.gang("solver")["turns"].as_u64() > Some(20));
    rules.write(&format!("slice = \"3ms\"\n{}", rules.of_program("weight = 2")));
    until("the new weight", || {
        weight(&served, "solver") == Some(2) && weight(&served, "solver-2") == Some(2)
    });
    assert_eq!(served.list()["slice_ms"].as_f64(), Some(3.0));
    // a gang that was removed by command stays removed until the rules are read again
    served.told(&["remove", "solver-2"]);
    let third = rules.start(SPIN, 2);
    until("a round", || served.list()["gangs"].as_array().map(Vec::len) == Some(2));
    let target = |name: &str| served.gang(name)["target"]["process"]["number"].as_u64();
    assert_eq!(target("solver-2"), Some(third.shell.id().into()), "the third took its name");
    late.assert_free();
    kill(served.child.id().cast_signed(), Signal::Hangup);
    until("all again", || target("solver-3") == Some(late.shell.id().into()));
    // then no rule applies to them any more
    rules.write("");
    until("no gangs", || served.list()["gangs"].as_array().map(Vec::len) == Some(0));
    early.assert_free();
    late.assert_free();
    served.end();
    Ok(())
}

/// How long the file may be empty: less than the time for which the daemon waits for the rest of a file.
const MAX_EMPTY: Duration = Duration::from_millis(400);

fn an_editor_that_empties_the_file_before_it_writes_it_costs_no_gang() -> TestOutcome {
    gangs()?;
    let rules = Rules::new();
    rules.write(&format!("{SHORT}{}", rules.of_program("weight = 3")));
    let program = rules.start(SPIN, 2);
    let served = rules.served();
    let turns = || served.gang("solver")["turns"].as_u64();
    let kept = (1..20).find_map(|attempt| {
        until("turns", || turns() > Some(0));
        let before = turns();
        let emptied = Instant::now();
        fs::write(rules.file(), "").expect("room");
        let during = turns(); // the daemon checks the file at each request
        let slice = 5 + attempt;
        let text = format!("slice = \"{slice}ms\"\n{}", rules.of_program("weight = 2"));
        fs::write(rules.file(), text).expect("room");
        // on a busy machine the file may have been empty for longer; then this attempt proves nothing
        let is_quick = emptied.elapsed() < MAX_EMPTY;
        until("the new slice", || served.list()["slice_ms"].as_f64() == Some(f64::from(slice)));
        is_quick.then(|| during >= before && turns() >= before)
    });
    assert_eq!(kept, Some(true), "the same gang");
    served.end();
    program.assert_free();
    Ok(())
}

/// Starts a daemon whose messages can be read.
fn talking(socket: &Path, rules: &Path) -> Child {
    let mut command = crate::gang_shared::unisono(&["gang", "daemon", "--socket"]);
    command.arg(socket).arg("--rules").arg(rules).spawn().expect("unisono starts")
}

fn a_mistake_in_the_file_is_told_with_its_place_and_leaves_the_rules() -> TestOutcome {
    require::nightly("gangs")?;
    gangs()?;
    let rules = Rules::new();
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let wrong = format!("{SHORT}{}", rules.of_program("wieght = 3"));
    rules.write(&wrong);
    let refused = talking(&socket, &rules.file()).wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    let place = format!("{}:5:1: ", rules.file().display());
    assert!(said.contains(&place) && said.contains("did you mean `weight`?"), "{said}");
    rules.write(&format!("{SHORT}{}", rules.of_program("weight = 3")));
    let mut child = talking(&socket, &rules.file());
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let served = Served { child, directory };
    served.wait();
    let program = rules.start(SPIN, 2);
    until("a gang", || weight(&served, "solver") == Some(3));
    rules.write(&wrong);
    let said = lines.find_map(|line| line.ok().filter(|line| line.contains("wieght"))).expect("it is told");
    assert!(said.contains(&place) && said.contains("hold on"), "{said}");
    let late = rules.start(SPIN, 2);
    until("the old rules hold", || weight(&served, "solver-2") == Some(3));
    fs::remove_file(rules.file()).expect("it is there");
    let said =
        lines.find_map(|line| line.ok().filter(|line| line.contains("not there"))).expect("it is told");
    assert!(said.contains("hold on"), "{said}");
    assert_eq!(weight(&served, "solver"), Some(3));
    served.end();
    program.assert_free();
    late.assert_free();
    Ok(())
}

fn groups_of_a_pattern_become_gangs_and_a_killed_daemon_leaves_none() -> TestOutcome {
    second_version()?;
    let rules = Rules::new();
    let name = unisono_host_tests::groups::name("ruled");
    let group = top().create(&name).expect("root may");
    let jobs = ["job_1", "job_2", "other"].map(|name| group.create(name).expect("root may"));
    let programs = [Program::start(SPIN, 2), Program::start(SPIN, 2), Program::start(SPIN, 2)];
    for (job, program) in jobs.iter().zip(&programs) {
        program.move_to(job);
    }
    let below = group.path().strip_prefix(root_of(group.path())).expect("below the mount").display();
    // the file is written after the daemon has started
    let mut served = rules.served();
    rules.write(&format!("[[gang]]\ncgroup = \"/{below}/job_*\"\nweight = 2\n"));
    until("two gangs", || weight(&served, "job_1") == Some(2) && weight(&served, "job_2") == Some(2));
    until("turns", || served.gang("job_2")["turns"].as_u64() > Some(20));
    assert_eq!(served.list()["gangs"].as_array().map(Vec::len), Some(2), "the third fits no rule");
    let first = served.child.id();
    kill(first.cast_signed(), Signal::Kill);
    served.child.wait().expect("it was killed");
    until("the journal's end", || !journal_of(first).exists());
    programs.iter().for_each(Program::wait_for_progress);
    served.child = daemon(&served.socket(), &["--rules", rules.file().to_str().expect("letters")]);
    served.wait();
    until("both again", || served.list()["gangs"].as_array().map(Vec::len) == Some(2));
    rules.write("");
    until("no gangs", || served.list()["gangs"].as_array().map(Vec::len) == Some(0));
    served.end();
    programs.iter().for_each(Program::wait_for_progress);
    drop(programs);
    jobs.iter().for_each(|job| job.remove().expect("it is empty"));
    group.remove().expect("it is empty");
    Ok(())
}

/// Returns the mount point of the hierarchy that a group is in.
fn root_of(group: &Path) -> PathBuf {
    let all = unisono_linux::cgroup::hierarchies().expect("mounts");
    let around = all.into_iter().map(|hierarchy| hierarchy.root).filter(|root| group.starts_with(root));
    around.max_by_key(|root| root.components().count()).expect("a mount")
}

host_tests![needs Machine;
    programs_become_gangs_as_the_rules_say_and_as_they_change within 180,
    an_editor_that_empties_the_file_before_it_writes_it_costs_no_gang within 180,
    a_mistake_in_the_file_is_told_with_its_place_and_leaves_the_rules within 180,
    groups_of_a_pattern_become_gangs_and_a_killed_daemon_leaves_none within 180,
];
