//! `unisono study` from outside: records that conform to their schema, and are kept after Ctrl-C.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const STUDY: &str = r#"
id = "mine"
topic = "barrier"
title = "Mine"
question = "Does it run?"
method = "It is run."
driver = "single"
repetitions = { smoke = 2, quick = 50, paper = 50 }
seconds = { smoke = 0.01, quick = 1.0, paper = 1.0 }
[[variant]]
name = "ours"
settings = { wait = "spin-block" }
[[variant]]
name = "nowhere"
settings = { program = "no-such-program" }
[[chart]]
title = "c"
kind = "strip"
y = ["mean_ns_per_barrier"]
[[verdict]]
compare = "ours/nowhere.mean_ns_per_barrier"
sides = ["ours", "nobody"]
better = "lower"
"#;

fn study(directory: &Path, arguments: &[&str]) -> Command {
    let file = directory.join("mine.toml");
    std::fs::write(&file, STUDY).expect("a study file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.args(["study", "--file"]).arg(&file).arg("--out").arg(directory.join("out")).args(arguments);
    command
}

fn lines(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join("out/records.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn record_schema() -> Value {
    crate::schema::read("record-schema.json")
}

#[test]
fn a_study_of_ones_own_writes_records_that_conform_to_the_schema() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = study(directory.path(), &["--smoke", "--json"]).output().expect("it runs");
    // a variant whose program does not exist is a failed run, and the other runs are kept
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = lines(directory.path());
    assert_eq!(lines.len(), 1 + 4);
    let schema = record_schema();
    for line in &lines {
        crate::schema::validate(&schema, line).expect("it conforms");
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed.lines().count(), lines.len(), "--json prints the same lines");
    let outcomes: Vec<&str> = lines[1..].iter().filter_map(|l| l["outcome"].as_str()).collect();
    assert_eq!(outcomes.iter().filter(|o| **o == "measured").count(), 2, "{outcomes:?}");
    let failed = lines.iter().find(|l| l["outcome"] == "failed").expect("a failed run");
    assert!(failed["reason"].as_str().is_some_and(|r| r.contains("no-such-program")), "{failed}");
    assert!(directory.path().join("out/report.html").exists());
    let again = study(directory.path(), &["--smoke"]).output().expect("it runs");
    assert_eq!(again.status.code(), Some(2), "nothing measured is ever overwritten");
}

/// Runs a study beside a busy loop for each processor, which is a steady load on the whole machine.
#[test]
fn beside_steady_load_the_runs_count_and_the_records_and_the_answer_say_which_machine_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = study(directory.path(), &["--tables"]);
    let file = directory.path().join("mine.toml");
    let one = STUDY.replace("quick = 50", "quick = 1").replace("quick = 1.0", "quick = 0.2");
    std::fs::write(&file, one.replace("program = \"no-such-program\"", "wait = \"block\"")).expect("a study");
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh is everywhere");
    let mut strangers: Vec<_> = std::iter::repeat_with(busy).take(processors).collect();
    let output = command.output().expect("it runs");
    for stranger in &mut strangers {
        stranger.kill().and_then(|()| stranger.wait()).expect("it is ours");
    }
    let lines = lines(directory.path());
    let schema = record_schema();
    for line in &lines {
        crate::schema::validate(&schema, line).expect("it conforms");
    }
    assert_eq!(lines[0]["profile"], "quick");
    for variant in ["ours", "nowhere"] {
        let runs: Vec<&Value> = lines.iter().filter(|line| line["variant"] == variant).collect();
        assert!(runs.iter().all(|run| run["host"]["background"]["pattern"] == "steady"), "{runs:?}");
        // a run may be disturbed by the hypervisor at any time, but not by other programs
        let reasons: Vec<&str> = runs.iter().filter_map(|run| run["reason"].as_str()).collect();
        assert!(!reasons.iter().any(|why| why.contains("other programs")), "{reasons:?}");
    }
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("other programs steadily take"), "{said}");
    assert!(
        said.contains("not decided") && said.contains("more would decide"),
        "one pair decides nothing: {said}"
    );
    let command = format!("unisono study --continue {}", directory.path().join("out").display());
    assert!(said.contains("undecided: 1 of 1 comparison") && said.contains(&command), "{said}");
}

#[test]
fn more_runs_are_added_until_a_comparison_is_decided() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut first = study(directory.path(), &[]);
    let file = directory.path().join("mine.toml");
    let few = STUDY.replace("quick = 50", "quick = 1").replace("quick = 1.0", "quick = 0.05");
    std::fs::write(&file, few.replace("program = \"no-such-program\"", "wait = \"block\"")).expect("a study");
    first.output().expect("it runs");
    let before = lines(directory.path());
    let out = directory.path().join("out");
    let more = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        command.args(["study", "--continue"]).arg(&out).args(words).output().expect("it runs")
    };
    let unknown = more(&[]);
    assert_eq!(unknown.status.code(), Some(2), "the study is nobody's but the user's");
    assert!(
        String::from_utf8_lossy(&unknown.stderr).contains("name its file with --file"),
        "{unknown:?}"
    );
    let continued = more(&["--for", "30s", "--file", file.to_str().expect("letters")]);
    let after = lines(directory.path());
    assert_eq!(after[..before.len()], before[..], "nothing measured is overwritten");
    let repetitions = |variant: &str| -> Vec<u64> {
        let runs = after.iter().filter(|line| line["variant"] == variant);
        let mut all: Vec<u64> = runs.filter_map(|run| run["repetition"].as_u64()).collect();
        all.dedup();
        all
    };
    let rounds = repetitions("ours");
    assert!(rounds.len() >= 3, "one pair is never enough: {rounds:?}");
    assert_eq!(rounds, (0..rounds.len() as u64).collect::<Vec<_>>());
    let sequences: Vec<u64> = after.iter().filter_map(|line| line["sequence"].as_u64()).collect();
    assert!(sequences.is_sorted_by(|a, b| a < b), "{sequences:?}");
    assert_eq!(after.iter().filter(|line| line["kind"] == "study").count(), 1);
    let said = String::from_utf8_lossy(&continued.stdout);
    let is_decided = !said.contains("undecided: ");
    assert!(is_decided || rounds.len() > 10, "30 s are many rounds: {said}");
    std::fs::write(&file, few.replace("Does it run?", "Another?")).expect("a study");
    if !is_decided {
        let changed = more(&["--file", file.to_str().expect("letters")]);
        assert!(String::from_utf8_lossy(&changed.stderr).contains("has changed"), "{changed:?}");
    }
}

#[test]
fn every_built_in_study_conforms_to_the_schema() {
    let schema = record_schema();
    for file in unisono_study::library::studies().expect("good files") {
        let line =
            unisono_measure::record::Line::Study(Box::new(file.line(unisono_study::profile::Profile::Smoke)));
        let line = serde_json::to_value(&line).expect("JSON");
        crate::schema::validate(&schema, &line).expect("it conforms");
    }
}

#[test]
fn the_schema_refuses_what_is_no_record() {
    let schema = record_schema();
    let line = serde_json::json!({"kind": "run", "format": "unisono-record-1", "study": "s", "topic": "t"});
    let problem = crate::schema::validate(&schema, &line).expect_err("it lacks nearly everything");
    assert!(problem.contains("not valid under any"), "{problem}");
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_leaves_nothing_running() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut running = study(directory.path(), &["--quick"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    // the run counts here whether it was disturbed or not
    while !lines(directory.path()).iter().any(|line| line["figures"][0].is_object()) {
        assert!(Instant::now() < deadline, "no run was recorded within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
    // waits until the next measured second has begun
    std::thread::sleep(Duration::from_millis(300));
    let pid = running.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    let status = running.wait().expect("it ends");
    assert_eq!(status.code(), Some(1));
    let lines = lines(directory.path());
    let last = lines.last().expect("lines");
    assert_eq!(last["outcome"], "interrupted", "{last}");
    assert!(last["reason"].as_str().is_some_and(|r| r.contains("SIGINT")), "{last}");
    assert!(directory.path().join("out/report.html").exists(), "the report is written all the same");
    let left = std::fs::read_dir("/proc").expect("/proc").flatten().filter_map(|process| {
        let words = std::fs::read(process.path().join("cmdline")).ok()?;
        String::from_utf8_lossy(&words).contains(&format!("unisono-study-{pid}-")).then(|| process.path())
    });
    assert_eq!(left.collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_study_of_the_laboratory_is_handed_to_the_program_beside_or_the_command_that_builds_it_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let unisono = directory.path().join("unisono");
    crate::copy_program(&unisono);
    let study = |name: &str| {
        let mut command = Command::new(&unisono);
        command.args(["study", name, "--list", "--json"]).env("PATH", "/usr/bin:/bin");
        command.output().expect("it runs")
    };
    for name in ["middleware", "queue-shares"] {
        let output = study(name);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("cargo build --release -p unisono-laboratory"), "{said}");
        assert!(said.contains("no package has it") && said.contains("source archive"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let said = String::from_utf8(study("middleware").stderr).expect("text");
    assert!(said.contains("(except middleware-rpc, which is here)"), "{said}");
    assert!(study("middleware-rpc").status.success(), "it is the product's own");
    let laboratory = directory.path().join("unisono-laboratory");
    std::fs::write(&laboratory, "#!/bin/sh\necho \"$@\"\n").expect("a script");
    std::fs::set_permissions(&laboratory, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    let output = study("middleware");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "study middleware --list --json\n");
}
