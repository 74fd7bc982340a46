//! Tests the study of a shared link on a real host: each backend that this host supports enforces policies in
//! namespaces of its own, and leaves nothing behind. Also tests the broker of paths as a process: it serves,
//! answers, survives clients that die, and leaves no socket.

use serde_json::Value;
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use unisono_events_client::{Client, Destination, NO_DEADLINE};
use unisono_host_tests::processes::{Killed, until};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program, require};

fn runs(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join("records.jsonl")).expect("records");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object a line"));
    lines.filter(|line| line["kind"] == "run").collect()
}

fn figure(run: &Value, name: &str) -> f64 {
    let figures = run["figures"].as_array().expect("figures");
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {run}"))["value"].as_f64().expect("a number")
}

fn study(ids: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(program::unisono());
    command.arg("study").args(ids).args(["--smoke", "--out"]).arg(directory);
    command.stdin(Stdio::null()).output().expect("unisono starts")
}

fn each_place_keeps_to_the_policy_and_leaves_nothing() -> TestOutcome {
    require::nightly("laboratory")?;
    require::root()?;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let out = scratch.path().join("study");
    let before = left_behind();
    let output = study(&["queue-shares", "queue-isolation"], &out);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let runs = runs(&out);
    for run in &runs {
        // a variant that this host does not support is skipped with the reason; all others are measured
        if run["outcome"] == "skipped" {
            eprintln!("skipped: {}: {}", run["variant"], run["reason"]);
            continue;
        }
        assert_eq!(run["outcome"], "measured", "{run}");
        let variant = run["variant"].as_str().expect("a name");
        if run["study"] == "queue-shares" && variant != "none" {
            // only the order of the classes, because a run takes a third of a second, beside other tests
            let share = |class: &str| figure(run, &format!("{class}_share_percent"));
            assert!(share("a") > share("b") && share("b") > share("c"), "{run}");
        }
        if run["study"] == "queue-isolation"
            && run["parameters"]["legacy_flows"] == 16
            && variant == "middleware"
        {
            assert!(
                figure(run, "a_missed_percent") > 20.0,
                "who does not cooperate is not controlled: {run}"
            );
        }
    }
    let measured = |variant: &str| runs.iter().any(|r| r["variant"] == variant && r["outcome"] == "measured");
    assert!(measured("none") && measured("middleware"));
    let after = left_behind();
    assert!(after.is_subset(&before), "{after:?} beside {before:?}");
    Ok(())
}

/// Returns the named network namespaces and the journals of policies that exist; everything else ends with
/// its process. There may be fewer after the study, because a journal of a namespace that no longer exists is
/// removed when a new namespace gets the same number.
fn left_behind() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for directory in ["/run/netns", "/run/unisono/queue"] {
        let Ok(entries) = std::fs::read_dir(directory) else { continue };
        found.extend(entries.flatten().map(|entry| entry.path().display().to_string()));
    }
    found
}

/// The study runs in a user namespace if the kernel permits it; otherwise the records have the reason.
fn without_root_the_study_makes_its_networks_in_a_user_namespace_or_says_why_not() -> TestOutcome {
    require::nightly("laboratory")?;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let out = scratch.path().join("study");
    let mut command = Command::new(program::unisono());
    if require::root().is_ok() {
        // an ordinary user has to reach the program and write its records
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(scratch.path(), mode).expect("ours");
        command = Command::new(program::copied_into(scratch.path()));
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
        std::os::unix::process::CommandExt::gid(&mut command, 65534);
    }
    command.args(["study", "queue-borrow", "--smoke", "--out"]).arg(&out);
    command.env("XDG_CACHE_HOME", scratch.path().join("cache")).stdin(Stdio::null());
    let before = left_behind();
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let runs = runs(&out);
    assert!(!runs.is_empty(), "{said}");
    let of = |run: &Value| (run["variant"].clone(), run["outcome"].clone(), run["reason"].clone());
    if said.contains("no user namespace here") {
        assert_eq!(output.status.code(), Some(3), "{said}");
        for run in &runs {
            assert_eq!(run["outcome"], "skipped", "{run}");
            assert!(run["reason"].as_str().expect("a reason").contains("needs root"), "{run}");
        }
        return Err(Skipped::because(said.lines().next().unwrap_or_default()));
    }
    for run in &runs {
        let is_reasoned = run["outcome"] == "skipped" && run["reason"].is_string();
        assert!(run["outcome"] == "measured" || is_reasoned, "{run}");
        assert_eq!(run["host"]["root"], false, "inside it is still an ordinary user: {run}");
    }
    let measured = |variant: &str| runs.iter().any(|r| r["variant"] == variant && r["outcome"] == "measured");
    // only the variant `none` is certain: the kernel's classes need a BPF program, which cannot be loaded in
    // a user namespace
    assert!(measured("none"), "{:?}", runs.iter().map(of).collect::<Vec<_>>());
    let after = left_behind();
    assert!(after.is_subset(&before), "{after:?} beside {before:?}");
    Ok(())
}

fn serve(directory: &Path) -> Killed {
    let policy = directory.join("policy.toml");
    std::fs::write(&policy, "rate = \"80mbit\"\ndefault = \"rest\"\n[class.video]\nweight = 3\n")
        .expect("written");
    let mut command = Command::new(program::unisono());
    command.args(["queue", "broker", "--json"]).arg(&policy).arg("--listen").arg(directory.join("broker"));
    Killed(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts"))
}

fn connect(directory: &Path) -> Client {
    let start = Instant::now();
    loop {
        match Client::connect_unix(&directory.join("broker")) {
            Ok(client) => return client,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn a_broker_serves_answers_and_ends_by_a_signal_without_a_trace() -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut broker = serve(scratch.path());
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    receiver.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    let mut client = connect(scratch.path());
    let channel = client
        .open("video", Destination::udp(receiver.local_addr().expect("bound")))
        .expect("the class is there");
    client.send(channel, b"hello", NO_DEADLINE).expect("taken");
    let mut bytes = [0; 16];
    assert_eq!(receiver.recv(&mut bytes).expect("it arrives"), 5);
    let mut status = Command::new(program::unisono());
    status.args(["queue", "broker", "--json", "--status"]).arg(scratch.path().join("broker"));
    let answer = status.output().expect("it starts");
    let formats = crate::schema::formats_of(&String::from_utf8_lossy(&answer.stdout));
    assert_eq!(formats, ["unisono-events-statistics-1"]);
    let answer: Value = serde_json::from_slice(&answer.stdout).expect("an object");
    assert_eq!(
        (&answer["classes"][0]["name"], &answer["classes"][0]["messages"]),
        (&"video".into(), &1.into())
    );
    let pid = rustix::process::Pid::from_child(&broker.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let ended = broker.0.wait().expect("it ends");
    assert!(ended.success(), "{ended}");
    assert!(!scratch.path().join("broker").exists());
    Ok(())
}

fn a_broker_that_was_killed_is_replaced_and_its_programs_are_told() -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let first = serve(scratch.path());
    let mut client = connect(scratch.path());
    drop(first); // kill -9
    assert!(client.statistics().is_err(), "nobody answers any more");
    // makes the socket as a killed broker leaves it: that of a broker that root has started is tidied up,
    // others stay
    let socket = scratch.path().join("broker");
    std::fs::remove_file(&socket).ok();
    drop(UnixListener::bind(&socket).expect("a free path"));
    let _second = serve(scratch.path());
    connect(scratch.path()).statistics().expect("it answers");
    Ok(())
}

fn a_program_that_knows_the_protocol_alone_is_served_and_told_when_the_broker_dies() -> TestOutcome {
    require::program("python3", "apt-get install python3")?;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let broker = serve(scratch.path());
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    receiver.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    let port = receiver.local_addr().expect("bound").port().to_string();
    drop(connect(scratch.path())); // it listens
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/python/stream.py");
    let run = |class: &str, count: &str| {
        let mut command = Command::new("python3");
        command.arg(program).arg(scratch.path().join("broker")).args([class, "127.0.0.1", &port, count]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    // more messages than its credit, so that the sender has to wait; the receiver reads late and loses some
    let output = run("video", "5000").wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let statistics = connect(scratch.path()).statistics().expect("it answers");
    assert_eq!((statistics.classes[0].name.as_str(), statistics.classes[0].messages), ("video", 5000));
    for number in 0..50 {
        let mut bytes = [0; 64];
        let length = receiver.recv(&mut bytes).expect("it has arrived");
        assert_eq!(&bytes[..length], format!("message {number}").as_bytes());
    }

    let output = run("nobody", "1").wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("nobody"), "{said}");

    let endless = run("video", "1000000000");
    let mut client = connect(scratch.path());
    until("its first message", || {
        client.statistics().expect("it answers").classes[0].messages > 5000
    });
    drop(broker); // kill -9
    let output = endless.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("the broker is gone") || said.contains("no broker at"), "{said}");
    Ok(())
}

host_tests![needs Machine;
    a_program_that_knows_the_protocol_alone_is_served_and_told_when_the_broker_dies within 300,
    each_place_keeps_to_the_policy_and_leaves_nothing within 600,
    without_root_the_study_makes_its_networks_in_a_user_namespace_or_says_why_not within 300,
    a_broker_serves_answers_and_ends_by_a_signal_without_a_trace within 300,
    a_broker_that_was_killed_is_replaced_and_its_programs_are_told within 300,
];
