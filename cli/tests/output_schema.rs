//! The output of `--json` conforms to `docs/output.schema.json`, and every command's output has a schema
//! there. The host tests check commands that need root.

use crate::schema::formats_of;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn unisono(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_unisono")).args(arguments).output().expect("it starts")
}

/// Checks the output of a command against the schema; returns its formats, each once.
fn judged(arguments: &[&str]) -> String {
    let output = unisono(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let printed = String::from_utf8(output.stdout).expect("text");
    assert!(!printed.is_empty(), "{arguments:?}: {said}");
    let mut formats = formats_of(&printed);
    formats.dedup();
    formats.join(" ")
}

fn transcripts(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(name);
    path.to_str().expect("plain").to_owned()
}

#[test]
fn measuring_commands_print_objects_of_the_schema() {
    let study = transcripts("report.in/study");
    let barrier = ["barrier", "--json", "--seconds", "0.02", "--threads", "2"];
    let simulate =
        ["gang", "simulate", "--json", "--seconds", "0.05", "--cores", "2", "--programs", "2x50us"];
    for (arguments, format) in [
        (&["--version", "--json"][..], "unisono-version-1"),
        (&["doctor", "--json", "--without-compiling"], "unisono-doctor-1"),
        (&["study", "--list", "--json"], "unisono-study-list-1"),
        (&barrier, "unisono-barrier-run-1"),
        (&[&barrier[..], &["--runs", "2"]].concat(), "unisono-barrier-runs-1"),
        (&simulate, "unisono-gang-simulate-1"),
        (&[&simulate[..], &["--scheduler", "gang"]].concat(), "unisono-gang-simulate-1"),
        (&["gang", "restore", "--json"], "unisono-gang-restore-1"),
        (&["fit", "--dry-run", "--json", "--", "true"], "unisono-fit-1"),
        (&["run", "-n", "2", "--json", "true"], "unisono-run-1"),
        (&["advise", "--json", "--quiet", "--for", "1s", "--", "true"], "unisono-advise-1"),
        (
            &["advise", "--json", "--for", "10ms", "--pid", &std::process::id().to_string()],
            "unisono-advise-1",
        ),
        (&["report", "--json", &study], "unisono-report-1"),
        (&["report", "--json", &study, &study], "unisono-report-changes-1"),
    ] {
        assert_eq!(judged(arguments), format, "{arguments:?}");
    }
}

#[test]
fn commands_about_networks_and_queues_print_objects_of_the_schema() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = |name: &str| scratch.path().join(name).to_str().expect("plain").to_owned();
    let (net, tree) = (path("net.json"), path("tree.json"));
    let write = |file: &str, arguments: &[&str]| {
        let output = unisono(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::write(file, output.stdout).expect("it is written");
    };
    write(&net, &["tree", "generate", "--switches", "6", "--nodes", "12"]);
    write(&tree, &["tree", "plan", &net, "--members", "all", "--json"]);
    let check = ["tree", "check", &net, &tree, "--json"];
    let simulate = ["tree", "simulate", &net, "--members", "all", "--json"];
    let (policy, trace) = (transcripts("queue-policy.in/sound.toml"), transcripts("queue.in/trace.json"));
    for (arguments, format) in [
        (&["tree", "plan", &net, "--members", "all", "--json"][..], "btin-tree-1"),
        (&check, "unisono-tree-check-1"),
        (&[&check[..], &["--deadlock"]].concat(), "unisono-tree-check-1"),
        (&["tree", "check", &net, &tree, "--json", "--members", "0,1"], "unisono-tree-check-1"),
        (&simulate, "unisono-tree-simulate-1"),
        (&[&simulate[..], &["--collectives", "--per-link"]].concat(), "unisono-tree-simulate-1"),
        (&["queue", "apply", &policy, "--check", "--json"], "unisono-queue-apply-1"),
        (&["queue", "simulate", "--json", &trace], "unisono-queue-simulate-1"),
    ] {
        assert_eq!(judged(arguments), format, "{arguments:?}");
    }
    let report = unisono(&["tree", "convert", &net, "--json"]).stderr;
    assert_eq!(formats_of(&String::from_utf8_lossy(&report)), ["unisono-tree-convert-1"]);
}

/// A broker in a scratch directory; dropping this kills it.
struct Broker {
    directory: tempfile::TempDir,
    process: Child,
}

impl Broker {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        command.args(["events", "serve", "--json", "--listen"]).arg(directory.path().join("events"));
        let process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        while UnixStream::connect(directory.path().join("events")).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { directory, process }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        command.arg("events").args(arguments).arg("--json").current_dir(&self.directory);
        command.arg("--at").arg(self.directory.path().join("events"));
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// Returns the output of a command.
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("it starts");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns the output of a command that runs while events of a topic are published, until it ends.
    fn hears(&self, arguments: &[&str], topic: &str) -> String {
        let mut child = self.command(arguments).spawn().expect("it starts");
        while child.try_wait().expect("it is ours").is_none() {
            let publish = ["publish", topic, "x", "--field", "celsius=81.5", "--deadline", "1s"];
            assert_eq!(formats_of(&self.says(&publish)), ["unisono-events-publish-1"]);
        }
        let output = child.wait_with_output().expect("it ends");
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // the broker may have ended already
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn commands_about_events_print_objects_of_the_schema() {
    let mut broker = Broker::start();
    let received = formats_of(&broker.hears(&["subscribe", "feed/#", "--count", "2"], "feed/a"));
    assert!(received.len() >= 2 && received.iter().all(|format| format == "unisono-events-received-1"));
    for (arguments, format) in [
        (&["hz", "feed/#", "--time", "1s"][..], "unisono-events-hz-1"),
        (&["record", "recording", "feed/#", "--count", "1"], "unisono-events-record-1"),
    ] {
        assert_eq!(formats_of(&broker.hears(arguments, "feed/a")), [format]);
    }
    for (arguments, format) in [
        (&["replay", "recording", "--at-once"][..], "unisono-events-replay-1"),
        (&["top", "--once", "--interval", "10ms"], "unisono-events-top-1"),
    ] {
        assert_eq!(formats_of(&broker.says(arguments)), [format]);
    }
    let mut reply = broker.command(&["subscribe", "sums", "--reply", "cat", "--count", "1"]);
    let mut reply = reply.spawn().expect("it starts");
    let mut answer = String::new();
    while answer.is_empty() {
        answer = broker.says(&["request", "sums", "hello", "--timeout", "20s"]);
    }
    assert_eq!(formats_of(&answer), ["unisono-events-received-1"]);
    // its standard output needs no further reader
    let _ = reply.wait();
    assert_eq!(
        judged(&["events", "bench", "--transport", "unix", "--seconds", "0.2", "--json"]),
        "unisono-events-bench-1"
    );
    let id = rustix::process::Pid::from_child(&broker.process);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
    let mut totals = String::new();
    broker.process.stdout.take().expect("piped").read_to_string(&mut totals).expect("text");
    assert_eq!(formats_of(&totals), ["unisono-events-statistics-1"]);
}

#[test]
fn a_table_of_values_has_the_names_of_the_keys() {
    let table = |arguments: &[&str]| String::from_utf8(unisono(arguments).stdout).expect("text");
    let studies = table(&["study", "--list", "--csv"]);
    assert!(studies.starts_with("study,topic,title,question,named_only,runs,estimate_s,profile,paper\n"));
    let listed = table(&["study", "--list", "--json"]);
    assert_eq!(studies.lines().count(), 1 + listed.lines().count());
    let rows = table(&["barrier", "--seconds", "0.02", "--threads", "2", "--csv"]);
    let [head, row] = rows.lines().collect::<Vec<_>>()[..] else { panic!("{rows}") };
    assert_eq!(head.split(',').count(), row.split(',').count());
    let verdicts = table(&["report", &transcripts("report.in/study"), "--csv"]);
    assert!(
        verdicts.starts_with("study,variant,against,figure,") && verdicts.contains(",better,"),
        "{verdicts}"
    );
    let both = unisono(&["doctor", "--json", "--csv"]);
    assert_eq!(both.status.code(), Some(2));
}
