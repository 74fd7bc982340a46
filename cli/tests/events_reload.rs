//! `unisono events reload` and SIGHUP: which files are read again, and what the operator is told. Also `serve
//! --print-limits`, and the effect of a limit.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;
use unisono_events_client::{
    Advertisement, BrokerAddress, Client, Error, EventDraft, Reception, SubscriptionSpec,
};

/// A broker in a scratch directory, and the lines that it prints; dropping this kills the broker.
pub(super) struct Serving {
    directory: tempfile::TempDir,
    broker: Child,
    lines: std::io::Lines<BufReader<ChildStderr>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // the broker may have ended already
        let _ = self.broker.kill();
        let _ = self.broker.wait();
    }
}

fn unisono(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.arg("events").args(arguments);
    command
}

impl Serving {
    /// Starts a broker with these files, which are written into the scratch directory; `@NAME` in an option
    /// is the path of a file there.
    pub(super) fn start(files: &[(&str, &str)], options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        for (name, text) in files {
            write(directory.path(), name, text);
        }
        let user = unisono_linux::local_socket::own_user().to_string();
        let mut command = unisono(&["serve", "--user", &user, "--listen"]);
        command.arg(directory.path().join("events"));
        for option in options {
            match option.strip_prefix('@') {
                Some(name) => command.arg(directory.path().join(name)),
                None => command.arg(option),
            };
        }
        let mut broker = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(broker.stderr.take().expect("a pipe")).lines();
        let mut serving = Self { directory, broker, lines };
        serving.line("serving at");
        serving
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        write(self.directory.path(), name, text);
    }

    /// Returns the next line of the broker that contains this text.
    pub(super) fn line(&mut self, part: &str) -> String {
        let found = self.lines.by_ref().map_while(Result::ok).find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("no line with `{part}`"))
    }

    pub(super) fn events(&self, arguments: &[&str]) -> Output {
        unisono(arguments).arg("--at").arg(self.path("events")).output().expect("it runs")
    }

    fn connect(&self) -> Client {
        Client::connect_shared(&self.path("events")).expect("it serves")
    }

    fn hang_up(&self) {
        let line = format!("kill -HUP {}", self.broker.id());
        assert!(Command::new("sh").args(["-c", &line]).status().expect("it runs").success());
    }
}

/// Replaces a file as editors do: a complete new file is renamed to the name of the old one.
fn write(directory: &Path, name: &str, text: &str) {
    let new = directory.join("new");
    let user = unisono_linux::local_socket::own_user();
    std::fs::write(&new, text.replace("unix:me", &format!("unix:{user}"))).expect("a scratch directory");
    std::fs::rename(new, directory.join(name)).expect("a scratch directory");
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

pub(super) const ALL: &str = "[[allow]]\nwho = [\"unix:me\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]\n";
const NARROW: &str = "[[allow]]\nwho = [\"unix:me\"]\npublish = [\"#\"]\nsubscribe = [\"y\"]\n";
const POLICY: &str =
    "rate = \"1gbit\"\ndefault = \"rest\"\n[class.control]\nweight = 3\n[class.rest]\nweight = 1\n";

#[test]
fn a_reload_is_all_or_nothing_and_ends_whom_the_new_files_do_not_allow() {
    let files = [("policy", POLICY), ("permissions", ALL)];
    let serving = Serving::start(&files, &["@policy", "--permissions", "@permissions"]);
    let (mut kept, mut ended) = (serving.connect(), serving.connect());
    kept.subscribe(&SubscriptionSpec { class: Some("control".to_owned()), ..SubscriptionSpec::new("y") })
        .expect("it may");
    ended.subscribe(&SubscriptionSpec::new("x")).expect("it may");
    // a good file and a bad file: neither comes into force
    serving.write("permissions", NARROW);
    serving.write("policy", "rate = \"1gbit\"\n[class.control]\nweight = -3\n");
    let refused = serving.events(&["reload"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("policy:3:") && said.contains("nothing was changed"), "{said}");
    ended.statistics().expect("it goes on");
    let again: Value =
        serde_json::from_slice(&serving.events(&["reload", "--json"]).stdout).expect("an object");
    assert!(again["refused"].as_str().is_some_and(|why| why.contains("policy:3:")), "{again}");
    // the permissions name a class that the policy lacks
    serving.write("policy", POLICY);
    serving.write("permissions", &format!("{NARROW}class = \"video\"\n"));
    let said = serving.events(&["reload"]);
    assert!(
        text(&said.stderr).contains("permissions:5:9: `video` is no class"),
        "{}",
        text(&said.stderr)
    );
    // the new policy lacks a class: the class's consumer goes on in the default class
    serving.write("policy", "rate = \"1gbit\"\ndefault = \"rest\"\n[class.rest]\nweight = 1\n");
    serving.write("permissions", NARROW);
    let done = serving.events(&["reload"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let mut lines = text(&done.stdout).lines();
    assert_eq!(lines.next(), Some("read again: policy and permissions; connections ended: 1"));
    let end = lines.next().expect("a line");
    assert!(
        end.starts_with("ended unix:") && end.contains("may not subscribe to `x` any more"),
        "{end}"
    );
    let why = ended.statistics().expect_err("it is ended");
    assert!(
        matches!(&why, Error::SentAway(why) if why.contains("may not subscribe to `x` any more")),
        "{why}"
    );
    let mut supplier = serving.connect();
    let topic = supplier.advertise(&Advertisement::new("y")).expect("it may");
    supplier.publish(topic, &EventDraft::new(b"")).expect("it leaves");
    let got = kept.receive(Some(Duration::from_secs(60))).expect("it goes on");
    assert!(matches!(got, Some(Reception::Event(event)) if &*event.topic == "y"));
}

#[test]
fn a_hangup_does_the_same_says_it_on_standard_error_and_enters_it_in_the_audit() {
    let files = [("permissions", ALL), ("tokens", "")];
    let options = ["--permissions", "@permissions", "--tokens", "@tokens", "--audit", "@audit"];
    let mut serving = Serving::start(&files, &options);
    let mut ended = serving.connect();
    ended.subscribe(&SubscriptionSpec::new("x")).expect("it may");
    serving.write("tokens", "[[token]]\nname = \"t\"\nsha256 = \"12\"\n");
    serving.hang_up();
    let refused = serving.line("reload (SIGHUP of unix:");
    assert!(
        refused.contains("tokens:3:10: no SHA-256") && refused.contains("nothing was changed"),
        "{refused}"
    );
    serving.write("tokens", "");
    serving.write("permissions", NARROW);
    serving.hang_up();
    let done = serving.line("reload (SIGHUP of unix:");
    assert!(done.ends_with("read again: permissions and tokens; connections ended: 1"), "{done}");
    assert!(serving.line("reload ended unix:").contains("may not subscribe to `x` any more"));
    ended.statistics().expect_err("it is ended");
    // the audit is written in the same iteration of the broker's loop as the reload, before another program
    // is answered
    serving.connect().statistics().expect("it serves");
    let audit = std::fs::read_to_string(serving.path("audit")).expect("text");
    let lines: Vec<Value> =
        audit.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let has = |action: &str, outcome: &str, part: &str| {
        lines.iter().any(|line| {
            (&line["action"], &line["outcome"]) == (&action.into(), &outcome.into())
                && line["who"].as_str().is_some_and(|who| who.starts_with("unix:"))
                && line.to_string().contains(part)
        })
    };
    assert!(
        has("reload", "refused", "no SHA-256") && has("reload", "done", "permissions, tokens"),
        "{audit}"
    );
    assert!(has("disconnect", "done", "may not subscribe to `x` any more"), "{audit}");
}

#[test]
fn a_broker_without_files_goes_on_after_a_hangup() {
    let mut serving = Serving::start(&[], &[]);
    serving.hang_up();
    serving.line("the broker was started without files");
    serving.connect().statistics().expect("it serves");
}

#[test]
fn limits_are_printed_with_their_options_and_reasons_and_a_larger_payload_passes() {
    let printed = unisono(&["serve", "--print-limits"]).output().expect("it runs");
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    let table = text(&printed.stdout);
    for part in
        ["payload", "4194304 bytes  --max-payload", "4096  --max-suppliers", "65536  --max-subscriptions"]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
    let set =
        ["--clients", "1000", "--max-payload", "8MiB", "--max-sessions", "7", "--print-limits", "--json"];
    let printed = unisono(&[&["serve"][..], &set].concat()).output().expect("it runs");
    let printed: Value = serde_json::from_slice(&printed.stdout).expect("an object");
    let limits = printed["limits"].as_array().expect("a list");
    for (name, value) in [("clients", 1000), ("payload", 8 << 20), ("suppliers", 16_000), ("sessions", 7)] {
        let line = limits.iter().find(|line| line["name"] == name).expect("it is listed");
        assert_eq!(line["value"], value, "{name}");
        assert!(line["why"].is_string() && line["option"].is_string());
    }
    let wrong = unisono(&["serve", "--max-payload", "100MiB"]).output().expect("it runs");
    assert!(
        text(&wrong.stderr).contains("a payload has from 1KiB to 63MiB"),
        "{}",
        text(&wrong.stderr)
    );

    let serving = Serving::start(&[], &["--max-payload", "63MiB"]);
    let at = serving.path("events");
    let mut supplier = serving.connect();
    let unix = Client::at(&BrokerAddress::Unix(at.clone())).expect("it serves");
    let topic = supplier.advertise(&Advertisement::new("image")).expect("a topic");
    for mut consumer in [serving.connect(), unix] {
        consumer.subscribe(&SubscriptionSpec::new("image")).expect("it fits");
        // an uncompressed image of 1080p, and the largest payload
        for bytes in [1920 * 1080 * 3, 63 << 20] {
            let image: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            supplier.publish(topic, &EventDraft::new(&image)).expect("it fits");
            match consumer.receive(Some(Duration::from_secs(60))).expect("it goes on") {
                Some(Reception::Event(event)) => assert!(*event.payload.bytes() == *image, "{bytes}"),
                other => panic!("{bytes}: {other:?}"),
            }
        }
    }
    let refused = supplier.publish(topic, &EventDraft::new(&vec![0; (63 << 20) + 1])).expect_err("too large");
    assert!(matches!(refused, Error::TooLong { .. }), "{refused}");
}
