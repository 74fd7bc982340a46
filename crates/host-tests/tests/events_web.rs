//! Tests the page of `unisono events serve --web` in a real browser: its figures follow the events, and it
//! can be read at the width of a phone and of a desktop, in light and dark colours.

use super::browser::Browser;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unisono_events_client::{
    Advertisement, BrokerAddress, Client, ClientOptions, EventDraft, SubscriptionSpec,
};
use unisono_host_tests::processes::Killed;
use unisono_host_tests::{TestOutcome, host_tests, program};

const CLASSES: &str = "
rate = \"1gbit\"
default = \"rest\"
[class.control]
weight = 3
[class.rest]
weight = 1
";

/// Checks contrast and width; its last part, which the report needs, is left out.
const PROBE: &str = include_str!("browser/probe.js");

/// Returns the texts of a table's rows.
fn rows(browser: &mut Browser, table: &str) -> Vec<Vec<String>> {
    let rows = browser.value(&format!(
        "[...document.querySelectorAll('#{table} tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    ));
    serde_json::from_value(rows).expect("texts")
}

/// Waits until a row of a table, which is known by its first cell, fulfils a condition.
fn wait_for(browser: &mut Browser, (table, first): (&str, &str), is_it: impl Fn(&[String]) -> bool) {
    let start = Instant::now();
    loop {
        let rows = rows(browser, table);
        if rows.iter().any(|row| row[0] == first && is_it(row)) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{first} in {rows:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn number(text: &str) -> f64 {
    text.replace(',', "").parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

fn a_browser_sees_the_rate_of_a_topic_change_and_classes_and_slow_consumers() -> TestOutcome {
    let mut browser = Browser::start()?;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (socket, policy) = (scratch.path().join("bus"), scratch.path().join("classes.toml"));
    std::fs::write(&policy, CLASSES).expect("room for a policy");
    let mut command = Command::new(program::unisono());
    command.args(["events", "serve", "--web", "127.0.0.1:0", "--listen"]).arg(&socket).arg(&policy);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut broker = Killed(command.spawn().expect("unisono starts"));
    let mut said = BufReader::new(broker.0.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let url = said.find_map(|line| Some(line.strip_prefix("the page for browsers is at ")?.to_owned()));
    let url = url.expect("it says where the page is");
    std::thread::spawn(move || said.for_each(|line| eprintln!("{line}")));

    let connect = |name: &str| {
        let options = ClientOptions::new().named(name);
        options.connect(&BrokerAddress::Unix(socket.clone())).expect("it serves")
    };
    let subscribe = |name: &str, class: &str| -> Client {
        let mut client = connect(name);
        let spec = SubscriptionSpec { class: Some(class.to_owned()), ..SubscriptionSpec::new("plant/#") };
        client.subscribe(&spec).expect("it fits");
        client
    };
    let mut reader = subscribe("reader", "control");
    let _stopped = subscribe("stopped", "rest");
    let mut supplier = connect("supplier");
    let topic = supplier.advertise(&Advertisement::new("plant/heat")).expect("a topic");

    browser.view(1280, "light");
    browser.open(&url);
    wait_for(&mut browser, ("classes", "control"), |row| row[1] == "75 %");
    wait_for(&mut browser, ("classes", "rest"), |row| row[1] == "25 %");
    wait_for(&mut browser, ("consumers", "reader"), |row| row[1] == "control");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // large payloads fill the buffers of the consumer that reads nothing
            let payload = [b'x'; 4096];
            while !is_over.load(Ordering::Relaxed) {
                supplier.publish(topic, &EventDraft::new(&payload)).expect("it leaves");
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                reader.receive(Some(Duration::from_millis(10))).expect("it serves");
            }
        });
        let over = SetOnDrop(&is_over);
        wait_for(&mut browser, ("topics", "plant/heat"), |row| number(&row[1]) > 10.0);
        wait_for(&mut browser, ("consumers", "reader"), |row| number(&row[3]) > 10.0);
        wait_for(&mut browser, ("consumers", "stopped (reads nothing)"), |row| number(&row[4]) > 0.0);
        for (width, colours) in [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")] {
            browser.view(width, colours);
            let found = problems(&mut browser, width, &url);
            assert!(found.is_empty(), "{width} px, {colours}: {found:?}");
        }
        drop(over);
    });
    browser.view(1280, "light");
    wait_for(&mut browser, ("topics", "plant/heat"), |row| {
        number(&row[1]) == 0.0 && number(&row[2]) > 10.0
    });
    assert_eq!(browser.value("document.getElementById('state').textContent"), "live");
    drop(broker);
    let start = Instant::now();
    while browser.value("document.getElementById('state').className") != "bad" {
        assert!(start.elapsed() < Duration::from_secs(60), "the page does not say that the broker is gone");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Ends the threads of the test, even if it fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns what a reader could not read, and requests to other places than the broker.
fn problems(browser: &mut Browser, width: u32, url: &str) -> Vec<String> {
    let probe = PROBE.split("const frame =").next().expect("a part").replacen("\"use strict\";", "", 1);
    let asked = format!("(() => {{ {probe}; return probe(window, {width}); }})()");
    let answer = browser.value(&asked);
    assert!(answer["texts"].as_u64() > Some(20), "the page is empty: {answer}");
    let is_own = format!("the page asked for {url}");
    let found = answer["found"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let mut found: Vec<String> = found.filter(|one| !one.starts_with(&is_own)).map(str::to_owned).collect();
    let wide = browser.value(
        "[...document.querySelectorAll('.wide')].filter((box) => box.scrollWidth > box.clientWidth).length",
    );
    if wide != json!(0) {
        found.push(format!("{wide} tables have to be moved to be read"));
    }
    found
}

host_tests![needs Nothing;
    a_browser_sees_the_rate_of_a_topic_change_and_classes_and_slow_consumers within 300,
];
