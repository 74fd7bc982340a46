//! Tests the network monitor as a user starts it.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn monitor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_network-monitor")).args(arguments).output().expect("started")
}

/// Returns the objects that `--json` prints. The last one is the summary.
fn objects(arguments: &[&str]) -> Vec<Value> {
    let output = monitor(&[arguments, &["--json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

/// Returns the objects without the times.
fn found(mut objects: Vec<Value>) -> Vec<String> {
    let mut texts: Vec<String> = objects
        .iter_mut()
        .map(|object| {
            let object = object.as_object_mut().expect("an object");
            object.retain(|name, _| !name.starts_with("latency"));
            serde_json::to_string(object).expect("text")
        })
        .collect();
    // sorted, because streams are watched at the same time
    texts.sort();
    texts
}

const TRAFFIC: [&str; 9] =
    ["--streams", "2", "--chunk", "150", "--updates", "4", "--attack", "1", "--threads=2"];

#[test]
fn an_attack_is_found_in_the_stream_that_has_it() {
    let all = objects(&TRAFFIC);
    let (summary, updates) = all.split_last().expect("a summary");
    assert_eq!((&summary["updates"], &summary["alerts"]), (&8.into(), &1.into()), "{all:?}");
    let alarmed: Vec<&Value> =
        updates.iter().filter(|update| update["alerts"].as_array().is_some_and(|a| !a.is_empty())).collect();
    assert_eq!(alarmed.len(), 1);
    assert_eq!((&alarmed[0]["service"], &alarmed[0]["update"]), (&"10.8.0.1:80".into(), &3.into()));
    assert_eq!(alarmed[0]["alerts"][0]["what"], "SYN, from clients, without payload");
    assert!(updates.iter().all(|update| update["latency_ms"].as_f64().is_some_and(|ms| ms > 0.0)));
}

#[test]
fn a_capture_of_the_traffic_tells_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("try.pcap");
    let path = path.to_str().expect("text");
    let written = objects(&[&TRAFFIC[..], &["--write", path]].concat());
    assert_eq!(written[0]["packets"], 1200);
    let watched = objects(&[path, "--chunk", "150", "--threads", "2"]);
    assert_eq!(found(watched), found(objects(&TRAFFIC)));
}

#[test]
fn packets_come_at_their_times_if_asked() {
    let at = ["--streams", "1", "--chunk", "50", "--updates", "2", "--rate", "1000", "--burst", "1"];
    let begin = std::time::Instant::now();
    let output = monitor(&[&at[..], &["--pace", "recorded"]].concat());
    assert!(output.status.success());
    // a hundred packets at a thousand per second
    assert!(begin.elapsed().as_secs_f64() > 0.05, "{:?}", begin.elapsed());
    assert!(String::from_utf8_lossy(&output.stdout).contains("updates: 2, alerts: 0"));
}

#[test]
fn bad_input_is_refused_with_code_2_and_a_remedy() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = directory.path().join("text");
    std::fs::write(&text, "no capture").expect("written");
    let missing = directory.path().join("missing.pcap");
    let path = |path: &Path| path.display().to_string();
    let cases = [
        (vec![path(&text)], "is no pcap file; capture with `tcpdump -w FILE`"),
        (vec![path(&missing)], "cannot open the capture"),
        (vec!["--attack".to_owned(), "4".to_owned()], "there are 4 streams, counted from 0"),
        (vec!["--burst".to_owned(), "0.5".to_owned()], "write 1 (no bursts)"),
        (vec!["--chunk".to_owned(), "0".to_owned()], "0 is not in 1..=1048576"),
    ];
    for (arguments, wanted) in cases {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = monitor(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}
