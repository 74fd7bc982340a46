//! The pages of `unisono events serve --web`: their contents, and the names that they show.

use super::events_reload::{ALL, Serving};
use super::schema::formats_of;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;

/// Sends a request whose head has these lines. Returns the answer's head and its body.
fn ask(mut stream: impl Read + Write, lines: &[&str]) -> (String, String) {
    stream.write_all((lines.join("\r\n") + "\r\n\r\n").as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

/// Starts a broker that shows its page at a free port. Returns it with the page's address.
fn serve(files: &[(&str, &str)], options: &[&str]) -> (Serving, String) {
    let mut serving = Serving::start(files, &[&["--web", "127.0.0.1:0"], options].concat());
    let line = serving.line("the page for browsers is at");
    let place = line.split("http://").nth(1).expect("an address").trim_end_matches('/');
    (serving, place.to_owned())
}

fn get(place: &str, path: &str) -> (String, String) {
    let stream = TcpStream::connect(place).expect("it listens");
    ask(stream, &[&format!("GET {path} HTTP/1.1"), &format!("Host: {place}")])
}

fn publish(serving: &Serving) {
    let published = serving.events(&["publish", "plant/1", "x"]);
    assert!(published.status.success(), "{published:?}");
}

#[test]
fn a_page_its_counters_and_the_health_of_the_broker_are_at_one_address() {
    let (serving, place) = serve(&[], &[]);
    publish(&serving);
    let (head, json) = get(&place, "/statistics.json");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("application/json"), "{head}");
    assert_eq!(formats_of(&json), ["unisono-events-top-1"]);
    let statistics: Value = serde_json::from_str(&json).expect("an object");
    assert_eq!(statistics["published_by_topic"]["plant/1"], 1);
    assert_eq!(get(&place, "/healthz").1, "ok\n");
    assert!(get(&place, "/metrics").1.contains("unisono_events_programs "), "OpenMetrics");
    let (head, page) = get(&place, "/");
    assert!(page.contains("<title>unisono events</title>"), "{page}");
    assert!(head.contains("Content-Security-Policy: default-src 'none';"), "{head}");
    for part in ["/page.css", "/page.js"] {
        assert!(page.contains(&format!("\"{}\"", &part[1..])), "{page}");
        let (head, text) = get(&place, part);
        assert!(head.starts_with("HTTP/1.1 200 ") && !text.contains("//cdn"), "{part}: {head}");
    }
    assert!(get(&place, "/etc/passwd").0.starts_with("HTTP/1.1 404 "));
    let change =
        ask(TcpStream::connect(&place).expect("it listens"), &["POST / HTTP/1.1", "Host: 127.0.0.1"]);
    assert!(change.0.starts_with("HTTP/1.1 405 "), "{change:?}");
}

#[test]
fn a_page_of_another_site_that_has_a_name_of_its_own_for_this_host_gets_nothing() {
    let (_serving, place) = serve(&[], &[]);
    for path in ["/", "/statistics.json", "/metrics"] {
        let line = format!("GET {path} HTTP/1.1");
        let ask = |lines: &[&str]| ask(TcpStream::connect(&place).expect("it listens"), lines);
        let (head, body) = ask(&[&line, "Host: evil.example"]);
        assert!(head.starts_with("HTTP/1.1 421 ") && body.contains("http://127.0.0.1"), "{head} {body}");
        assert!(ask(&[&line]).0.starts_with("HTTP/1.1 400 "));
    }
}

#[test]
fn with_permissions_names_are_shown_at_a_unix_socket_and_not_to_every_user_of_the_host() {
    let files = [("permissions", ALL)];
    let (serving, place) = serve(&files, &["--permissions", "@permissions"]);
    publish(&serving);
    let hidden = get(&place, "/statistics.json").1;
    assert!(hidden.contains("(others)") && !hidden.contains("plant"), "{hidden}");
    drop(serving);
    let serving = Serving::start(&files, &["--web", "@page", "--permissions", "@permissions"]);
    publish(&serving);
    let stream = UnixStream::connect(serving.path("page")).expect("it listens");
    let (_, shown) = ask(stream, &["GET /statistics.json HTTP/1.1", "Host: localhost"]);
    assert!(shown.contains("plant/1"), "{shown}");
}

#[test]
fn an_address_that_other_hosts_reach_is_refused_unless_that_is_asked_for() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    // "0" is a name that resolves to 0.0.0.0
    for (option, place) in [("--web", "0.0.0.0:0"), ("--web", "0:0"), ("--metrics", "0:0")] {
        // a broker that serves would run for ever
        let mut serve = Command::new("timeout");
        serve.args(["10", env!("CARGO_BIN_EXE_unisono"), "events", "serve", option, place, "--listen"]);
        let refused = serve.arg(directory.path().join("events")).output().expect("it runs");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            refused.status.code() == Some(2) && said.contains("--insecure"),
            "{option} {place}: {said}"
        );
    }
}

#[test]
fn the_broker_says_where_its_metrics_are() {
    let mut serving = Serving::start(&[], &["--metrics", "127.0.0.1:0"]);
    let line = serving.line("metrics are at");
    let url = line.strip_prefix("metrics are at http://").and_then(|url| url.strip_suffix("/metrics"));
    let (_, counters) = get(url.unwrap_or_else(|| panic!("no URL: {line}")), "/metrics");
    assert!(counters.contains("unisono_events_programs "), "{counters}");
    let mut serving = Serving::start(&[], &["--metrics", "@counters"]);
    let line = serving.line("metrics are at");
    let path = serving.path("counters");
    let command = format!("curl --unix-socket {} http://localhost/metrics", path.display());
    assert!(line.contains(&command), "{line}");
}
