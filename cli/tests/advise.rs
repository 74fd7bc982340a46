//! `unisono advise` on programs whose speed depends on how they run, so that the right answer is known.

use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Output};

/// Returns a shell script that is fast if this condition holds in a shell, and slow otherwise.
fn fast_if(condition: &str) -> String {
    format!("if {condition}; then sleep 0.05; else sleep 1; fi")
}

fn advise(options: &[&str], programs: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.args(["advise", "--quiet", "--for", "1s"]).args(options).arg("--");
    for (number, program) in programs.iter().enumerate() {
        if number > 0 {
            command.arg(":::");
        }
        command.args(["sh", "-c", program]);
    }
    // otherwise the command would keep settings that the caller has made
    for name in ["OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES", "KMP_BLOCKTIME"] {
        command.env_remove(name);
    }
    command.output().expect("unisono starts")
}

/// Watches a process for a second, kills it, and returns the output.
fn watch(mut child: Child) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_unisono"))
        .args(["advise", "--json", "--for", "1s", "--pid", &child.id().to_string()])
        .output();
    child.kill().expect("ours");
    child.wait().expect("it was killed");
    output.expect("unisono starts")
}

/// Watches a process for a second, kills it, and returns the report on it.
fn watched(child: Child) -> Value {
    object(&watch(child))
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn a_program_that_a_wait_policy_makes_fast_gets_that_policy() {
    let program = fast_if("[ \"$OMP_WAIT_POLICY\" = passive ]");
    // `fit` also sets the wait policy if other programs run
    let told = object(&advise(&["--json"], &[&program]));
    assert_eq!(told["verdict"], "wait-policy", "{told}");
    assert!(told["gain"]["median"].as_f64().expect("both ended") > 2.0, "{told}");
    assert_eq!(told["conditions"].as_array().expect("a list").len(), 6);
}

#[test]
fn a_program_that_binding_makes_fast_is_pinned() {
    let program = fast_if("[ \"$OMP_PROC_BIND\" = spread ]");
    let output = advise(&[], &[&program]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("\n  OMP_PROC_BIND=spread OMP_PLACES=threads sh -c "), "{said}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn programs_that_hinder_each_other_run_one_after_the_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let lock = directory.path().join("lock").display().to_string();
    let program = format!("if mkdir {lock} 2>/dev/null; then sleep 0.05; rmdir {lock}; else sleep 1; fi");
    let told = object(&advise(&["--json"], &[&program, &program]));
    assert_eq!(told["way"], "in-turn", "{told}");
    // where processes start slowly, as on an emulated processor, the runs may not decide
    if told["verdict"] != "undecided" {
        assert_eq!(told["verdict"], "in-turn", "{told}");
        assert!(told["command"].as_str().expect("a command").contains("; sh -c"), "{told}");
    }
}

#[test]
fn a_program_that_no_remedy_changes_is_left_alone() {
    let output = advise(&["--json"], &["sleep 0.3"]);
    let told = object(&output);
    // `sleep` takes the same time with every setting; under a heavy load, the times may differ too much to
    // decide even that
    assert!(["nothing", "undecided"].iter().any(|verdict| told["verdict"] == *verdict), "{told}");
    assert_eq!(told["command"], Value::Null, "{told}");
}

#[test]
fn a_program_that_fails_gets_no_verdict_but_its_last_words() {
    let output = advise(&[], &["echo first >&2; echo out of coffee >&2; exit 7"]);
    let said = String::from_utf8_lossy(&output.stdout);
    // joins the lines into which the screen has folded the text
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("exit code 7: out of coffee"), "{said}");
    assert!(said.contains("Undecided: the programs fail as they are."), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_program_that_does_not_end_is_stopped_with_what_it_started() {
    let directory = tempfile::tempdir().expect("a directory");
    let numbers = directory.path().join("numbers");
    let program = format!("sleep 1000 & echo $! >> {}; wait", numbers.display());
    let output = advise(&["--limit", "200ms"], &[&program]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("no run ended. Give a longer --limit"), "{said}");
    let numbers = fs::read_to_string(&numbers).expect("written by the program");
    for number in numbers.lines() {
        // an ended process stays visible until its new parent reaps it
        assert!(unisono_linux::process_stat::is_gone(number), "{number} goes on");
    }
}

#[test]
fn with_apply_the_program_runs_once_more_and_answers_its_exit_code() {
    let directory = tempfile::tempdir().expect("a directory");
    let runs = directory.path().join("runs");
    let fast = fast_if("[ \"$OMP_PROC_BIND\" = spread ]");
    let program = format!("{fast}; echo x >> {}; echo here", runs.display());
    let output = advise(&["--apply"], &[&program]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.lines().last(), Some("here"), "{said}");
    assert_eq!(output.status.code(), Some(0));
    assert!(fs::read_to_string(runs).expect("written by the program").lines().count() > 2);
}

#[test]
fn a_running_process_is_watched_and_nothing_is_started() {
    let loops = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
    let told = watched(loops);
    let [run] = &told["runs"].as_array().expect("runs")[..] else { panic!("{told}") };
    assert_eq!((&told["verdict"], &told["command"]), (&"undecided".into(), &Value::Null), "{told}");
    assert_eq!((&run["ended"], &run["threads"]), (&"watched".into(), &1.into()), "{told}");
    assert!(run["cpu_s"].as_f64().expect("a number") > 0.0, "{told}");
}

#[test]
fn behind_a_process_that_only_waits_the_program_is_judged() {
    // the inner shell computes until the outer one was killed and collected
    let script = "sh -c 'while kill -0 $PPID 2>/dev/null; do :; done'; true";
    let waits = Command::new("sh").args(["-c", script]).spawn().expect("a shell");
    let wrapper = waits.id();
    let output = watch(waits);
    let (told, said) = (object(&output), String::from_utf8_lossy(&output.stderr));
    assert!(told["process"].as_u64().is_some_and(|number| number != u64::from(wrapper)), "{told}");
    assert!(said.contains(&format!("process {wrapper} (sh) only waits for process ")), "{said}");
    assert!(told["runs"][0]["cpu_s"].as_f64().expect("a number") > 0.0, "{told}");
}

#[test]
fn the_work_between_two_sleeps_is_told_where_the_kernel_records_it() {
    // a shell that waits again and again, for 2 ms each, for input that never comes
    let script = "exec 3<> <(:); while :; do read -t 0.002 -u 3; done";
    let sleeps = Command::new("bash").args(["-c", script]).spawn().expect("bash");
    let told = watched(sleeps);
    let work = &told["runs"][0]["between_sleeps_ns"];
    if let Some(why) = told["runs"][0]["unrecorded"].as_str() {
        assert!(work.is_null() && !why.is_empty(), "{told}");
        eprintln!("skipped: {why}");
        return;
    }
    let [n, low, median, high] =
        ["n", "low", "median", "high"].map(|name| work[name].as_u64().expect("a number"));
    // The shell works for some microseconds between two waits. If the sampling ring is full or the machine is
    // busy, fewer are counted.
    assert!((20..1000).contains(&n), "{told}");
    assert!(0 < low && low <= median && median <= high && median < 2_000_000, "{told}");
}

#[test]
fn a_page_shows_what_was_tried_and_is_never_written_over() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("advice");
    let out = ["--out", directory.to_str().expect("text")];
    let output = advise(&out, &[&fast_if("[ \"$OMP_WAIT_POLICY\" = passive ]")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let page = fs::read_to_string(directory.join("report.html")).expect("a page");
    for part in [
        "Advice for these programs",
        "waiting threads sleep",
        "Let them sleep",
        "fine-grained synchronization",
    ] {
        assert!(page.contains(part), "no {part:?}");
    }
    let records = fs::read_to_string(directory.join("records.jsonl")).expect("records");
    let runs: Vec<Value> =
        records.lines().skip(1).map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(
        runs.iter().any(|run| run["variant"] == "passive" && run["outcome"] == "measured"),
        "{records}"
    );
    let again = advise(&out, &["true"]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    assert!(
        String::from_utf8_lossy(&again.stderr).contains("nothing measured is overwritten"),
        "{again:?}"
    );
}

#[test]
fn a_program_that_its_own_processors_make_fast_gets_them() {
    // fit, pin and gangs leave each program both processors or set a variable
    let script = "if [ \"$(nproc)\" = 1 ] && [ -z \"$OMP_NUM_THREADS\" ]; then sleep 0.05; else sleep 1; fi";
    let told = object(&advise(&["--json"], &[script, script]));
    let seconds = |way: &str| {
        let run = told["runs"].as_array().expect("runs").iter().find(|run| run["way"] == way)?;
        run["seconds"].as_f64()
    };
    match seconds("partition") {
        None => eprintln!("skipped: there is no processor for each of two programs"),
        Some(partition) => assert!(Some(partition) < seconds("plain"), "{told}"),
    }
}
