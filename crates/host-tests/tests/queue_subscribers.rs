//! Tests a router with thousands of subscribers from a table, with each backend.

use crate::queue_shared::{
    DEVICE, THREE, applied, cleared, file, journal, looks, on_a_host, unisono, wait_until_it_looks,
};
use crate::schema::formats_of;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use unisono_host_tests::hosts::{Hosts, ip};
use unisono_host_tests::processes::{text, until, words};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, is_long, program};

/// More than a list of comparisons may have. Where one of so many comes or goes, the shares of the others
/// change by too little to be sent again.
const MANY: u32 = 4200;
const DATAGRAMS: u64 = 10;
const POLICY: &str = "rate = \"1gbit\"\ndefault = \"rest\"\nsubscribers = \"subscribers.csv\"\n\
    [class.tower0]\nweight = 400\n[class.tower1]\nweight = 400\n\
    [class.names]\nmatch = [{ port = 53 }]\n";

fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a58_0000 + number)
}

/// Returns the table; the first subscriber has this ceiling. The last one has a network.
fn table(subscribers: u32, ceiling: u32) -> String {
    let mut table = String::from("Name,Parent,Addresses,Rate,Ceiling\r\n");
    for number in 0..subscribers {
        let ceiling = if number == 0 { ceiling } else { 20 };
        let _ = write!(table, "s{number},tower{},\"{}\",0.1,{ceiling}\r\n", number % 2, address(number));
    }
    table + "school,tower1,\"10.89.0.0/24,2001:db8::/48\",0.1,30\r\n"
}

/// Returns the number of packets that a class has sent.
fn packets(class: &str) -> u64 {
    let output = unisono(&["queue", "metrics", "--dev", DEVICE]);
    assert!(output.status.success(), "{output:?}");
    let all = text(&output.stdout);
    let line = all.lines().find(|line| {
        line.starts_with("unisono_queue_class_packets_total") && line.contains(&format!("class=\"{class}\""))
    });
    let number = line.and_then(|line| line.rsplit_once(' ')).unwrap_or_else(|| panic!("no {class} in {all}"));
    number.1.parse().expect("a whole number")
}

fn send(to: &str) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
    for _ in 0..DATAGRAMS {
        socket.send_to(b"hello", to).expect("the cable is up");
    }
}

fn apply(directory: &Path, backend: &str) -> TestOutcome {
    let policy = directory.join("policy.toml");
    let policy = policy.to_str().expect("a plain name");
    let applied = unisono(&["queue", "apply", policy, "--dev", DEVICE, "--backend", backend]);
    match applied.status.code() {
        Some(0) => Ok(()),
        Some(3) => Err(Skipped::because(text(&applied.stderr))),
        _ => panic!("{}", text(&applied.stderr)),
    }
}

fn write_table(directory: &TempDir, table: &str) {
    std::fs::write(directory.path().join("subscribers.csv"), table).expect("there is room");
}

/// Leads the addresses of the subscribers to the device, and writes the policy and its table, in which the
/// first subscriber has this ceiling.
fn subscribers_of(hosts: &Hosts, subscribers: u32, first_ceiling: u32) -> TempDir {
    let directory = tempfile::tempdir().expect("there is room");
    ip(&["-n", hosts.name(0), "route", "add", "10.88.0.0/15", "via", "10.77.0.2"]).expect("root may");
    std::fs::write(directory.path().join("policy.toml"), POLICY).expect("there is room");
    write_table(&directory, &table(subscribers, first_ceiling));
    directory
}

fn each_gets_its_class(backend: &str) -> TestOutcome {
    let subscribers = if is_long() { MANY } else { 600 };
    let hosts: Hosts = on_a_host()?;
    let directory = subscribers_of(&hosts, subscribers, 20);
    apply(directory.path(), backend)?;
    let check = |class: &str, to: &str| {
        let before = packets(class);
        send(to);
        // the interposed queue sends a moment later
        while packets(class) < before + DATAGRAMS {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(packets(class), before + DATAGRAMS, "{class}");
    };
    let last = &*format!("s{}", subscribers - 1);
    check("s0", &format!("{}:9", address(0)));
    check(last, &format!("{}:9", address(subscribers - 1)));
    check("school", "10.89.0.77:9");
    check(last, &format!("{}:9", address(subscribers - 1)));
    // the classes stand before the subscribers, and the first match in the file decides
    check("names", &format!("{}:53", address(7)));
    let before = packets(last);
    write_table(&directory, &table(subscribers, 40));
    apply(directory.path(), backend)?;
    assert_eq!(packets(last), before, "a change of one leaves the others alone");
    check("s0", &format!("{}:9", address(0)));
    assert!(unisono(&["queue", "clear", "--dev", DEVICE]).status.success());
    Ok(())
}

/// What `tc monitor` reports about classes and queues, from its start to [`Self::end`].
struct TrafficControlMonitor {
    child: Child,
    reported: tempfile::NamedTempFile,
}

impl TrafficControlMonitor {
    /// Starts the monitor. Returns when it reports a change of another device.
    fn start() -> Self {
        let reported = tempfile::NamedTempFile::new().expect("there is room");
        let output = reported.reopen().expect("it was just made");
        let child = Command::new("tc")
            .arg("monitor")
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let monitor = Self { child, reported };
        until("the monitor listens", || monitor.has_reported_a_marker());
        monitor
    }

    /// Changes the loopback device, and returns whether the monitor reports it before long.
    fn has_reported_a_marker(&self) -> bool {
        let before = self.read().len();
        for what in ["replace", "del"] {
            let _ = Command::new("tc")
                .args(["qdisc", what, "dev", "lo", "root", "handle", "9:", "pfifo"])
                .status();
        }
        std::thread::sleep(Duration::from_millis(20));
        self.read().len() > before
    }

    fn read(&self) -> String {
        std::fs::read_to_string(self.reported.path()).expect("it is there")
    }

    /// Returns the lines about the device of the policy.
    fn end(mut self) -> Vec<String> {
        until("the monitor reports all", || self.has_reported_a_marker());
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
        self.read()
            .lines()
            .filter(|line| line.contains(&format!("dev {DEVICE}")))
            .map(str::to_owned)
            .collect()
    }
}

/// Returns the lines of `tc -s class` and `tc -s qdisc`, without those of the class `but`.
fn classes_but(but: &str) -> BTreeSet<String> {
    let ask = |what| {
        let output =
            Command::new("tc").args(["-s", what, "show", "dev", DEVICE]).output().expect("it starts");
        text(&output.stdout)
    };
    let all = ask("class") + &ask("qdisc");
    // an entry begins at the left margin; its counters are on the next lines
    let mut entries: Vec<String> = Vec::new();
    for line in all.lines() {
        match entries.last_mut() {
            Some(entry) if line.starts_with([' ', '\t']) => entry.push_str(line),
            _ => entries.push(line.to_owned()),
        }
    }
    // the classes at the top also count the packets of the class, and packets that no test sent, such as ARP
    let is_at_top = |entry: &&String| entry.contains(" root ") || entry.contains(" parent 556e:1 ");
    let mut left_out: BTreeSet<&str> =
        entries.iter().filter(is_at_top).map(|entry| class_of(entry)).collect();
    left_out.insert(but);
    entries.iter().filter(|entry| !left_out.contains(class_of(entry))).cloned().collect()
}

/// Returns the number of the class that a line of `tc class` or `tc qdisc` describes; empty for the root
/// discipline.
fn class_of(entry: &str) -> &str {
    let words: Vec<&str> = entry.split_whitespace().collect();
    match words[..] {
        ["class", _, number, ..] | ["qdisc", _, _, "parent", number, ..] => number,
        _ => "",
    }
}

/// Returns the number of a subscriber's class, as tc(8) writes it.
fn class_number(ceiling: &str) -> String {
    let output = Command::new("tc").args(["class", "show", "dev", DEVICE]).output().expect("it starts");
    let all = text(&output.stdout);
    let found: Vec<&str> = all.lines().filter(|line| line.contains(&format!("ceil {ceiling} "))).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].split_whitespace().nth(2).expect("class htb NUMBER").to_owned()
}

fn a_change_of_one_subscriber_of_thousands_touches_no_other() -> TestOutcome {
    let hosts: Hosts = on_a_host()?;
    let directory = subscribers_of(&hosts, MANY, 21);
    apply(directory.path(), "kernel")?;
    for number in [0, 1, MANY - 1] {
        send(&format!("{}:9", address(number)));
    }
    let own = class_number("21Mbit");
    let before = classes_but(&own);

    let monitor = TrafficControlMonitor::start();
    write_table(&directory, &table(MANY, 41));
    apply(directory.path(), "kernel")?;
    let changed = monitor.end();
    assert_eq!(class_number("41Mbit"), own, "it keeps its number");
    assert_eq!(classes_but(&own), before);
    let others: Vec<&String> = changed
        .iter()
        .filter(|line| !line.contains(&format!(" {own} ")) && !line.contains("filter"))
        .collect();
    assert!(
        others.len() < 3,
        "{} classes and queues were sent again: {:?}",
        others.len(),
        others.first()
    );

    // the table has a mistake: nothing changes
    let monitor = TrafficControlMonitor::start();
    write_table(&directory, &(table(MANY, 61) + "s7,tower1,10.88.0.9,0.1,20\r\n"));
    let policy = directory.path().join("policy.toml");
    let refused = unisono(&["queue", "apply", policy.to_str().expect("a plain name"), "--dev", DEVICE]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert_eq!(monitor.end(), Vec::<String>::new());
    assert_eq!(class_number("41Mbit"), own);

    // one comes, one goes, and one gets another address
    let lines: Vec<String> = table(MANY, 41).lines().map(str::to_owned).collect();
    let kept = lines.iter().filter(|line| !line.starts_with("s5,"));
    let mut moved: Vec<String> = kept.map(|line| line.replace("\"10.88.0.7\"", "10.88.200.7")).collect();
    moved.push("new,tower0,10.88.200.9,0.1,77".to_owned());
    let monitor = TrafficControlMonitor::start();
    write_table(&directory, &moved.join("\n"));
    apply(directory.path(), "kernel")?;
    let changed = monitor.end();
    assert!(changed.len() < 20, "{} changes: {:?}", changed.len(), changed.first());
    let after = classes_but(&own);
    assert!(before.difference(&after).count() <= 2, "the class that went, and its queue");
    let sent = ["new", "s7"].map(packets);
    send("10.88.200.9:9");
    send("10.88.200.7:9");
    assert_eq!(["new", "s7"].map(packets), sent.map(|before| before + DATAGRAMS));
    assert!(unisono(&["queue", "clear", "--dev", DEVICE]).status.success());
    Ok(())
}

fn change(class: &str, terms: &[&str]) -> Output {
    unisono(&[&["queue", "change", class][..], terms].concat())
}

/// Changes a class, and returns the printed object.
fn changed(class: &str, terms: &[&str]) -> Value {
    let output = change(class, &[terms, &["--json"]].concat());
    assert!(output.status.success(), "{}", words(&output));
    let printed = text(&output.stdout);
    assert_eq!(formats_of(&printed), ["unisono-queue-change-1"]);
    serde_json::from_str(&printed).expect("one object")
}

/// Returns the guaranteed rate of each class, as `queue show` has them.
fn guarantees(direction: &str) -> BTreeMap<String, f64> {
    let options = ["--once", "--json", "--interval", "10ms", "--dev", DEVICE, "--direction", direction];
    let output = unisono(&[&["queue", "show"][..], &options].concat());
    assert!(output.status.success(), "{}", words(&output));
    let shown: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let class = |class: &Value| Some((class["name"].as_str()?.to_owned(), class["guarantee"].as_f64()?));
    shown["classes"].as_array().into_iter().flatten().filter_map(class).collect()
}

/// Returns the changes of classes that a monitor reports.
fn classes_of(monitor: TrafficControlMonitor) -> Vec<String> {
    let mut lines = monitor.end();
    lines.retain(|line| line.starts_with("class "));
    lines
}

fn a_subscriber_is_changed_by_name_and_the_kernel_hears_of_no_other() -> TestOutcome {
    let hosts: Hosts = on_a_host()?;
    let directory = subscribers_of(&hosts, 600, 21);
    apply(directory.path(), "kernel")?;
    for number in [0, 1, 599] {
        send(&format!("{}:9", address(number)));
    }
    let own = class_number("21Mbit");
    let before = classes_but(&own);

    let monitor = TrafficControlMonitor::start();
    let terms = changed("s0", &["--ceiling", "41mbit"]);
    let lines = classes_of(monitor);
    assert_eq!(terms["ceiling"], 41_000_000);
    assert_eq!(class_number("41Mbit"), own, "it keeps its number");
    assert_eq!(classes_but(&own), before);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains(&format!(" {own} ")), "{lines:?}");
    assert_eq!(packets("s0"), DATAGRAMS, "it counts on");

    let journal = fs::read(journal()).expect("a policy holds");
    let monitor = TrafficControlMonitor::start();
    for (class, terms, why) in [
        ("s0", ["--ceiling", "2gbit"], "over the link's rate"),
        ("s0", ["--rate", "42mbit"], "the guaranteed rate 42mbit is above the ceiling 41mbit"),
        ("s1", ["--weight", "3"], "`s1` is a subscriber"),
        ("tower0", ["--rate", "3mbit"], "not from a table"),
        ("scool", ["--rate", "3mbit"], "did you mean `school`?"),
    ] {
        let output = change(class, &terms);
        assert_eq!(output.status.code(), Some(2), "{terms:?}");
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
    assert_eq!(classes_of(monitor), Vec::<String>::new());
    assert_eq!(fs::read(self::journal()).expect("a policy holds"), journal);

    // the table says the same now, so that no subscriber is sent; the class of the link always is
    let monitor = TrafficControlMonitor::start();
    write_table(&directory, &table(600, 41));
    apply(directory.path(), "kernel")?;
    let lines = classes_of(monitor);
    assert!(lines.iter().all(|line| line.contains(" 556e:1 ")), "{lines:?}");
    cleared(&[]);
    Ok(())
}

fn a_changed_subscriber_has_what_the_changed_table_gives() -> TestOutcome {
    let hosts: Hosts = on_a_host()?;
    let directory = subscribers_of(&hosts, 60, 9);
    for backend in ["kernel", "interposed"] {
        write_table(&directory, &table(60, 9));
        apply(directory.path(), backend)?;
        send(&format!("{}:9", address(0)));
        until("the packets are counted", || packets("s0") == DATAGRAMS);
        let record = fs::read(journal()).expect("a policy holds");
        let terms = changed("s0", &["--rate", "3mbit", "--ceiling", "7mbit"]);
        changed("s1", &["--rate", "200kbit"]);
        changed("tower1", &["--weight", "300"]);
        let written = fs::read(journal()).expect("a policy holds");
        assert!(written.starts_with(&record), "{backend}: the journal was written anew");
        assert_eq!(written[record.len()..].split_inclusive(|byte| *byte == b'\n').count(), 3, "{backend}");
        let now = guarantees("out");
        assert_eq!(now.get("s0").copied(), terms["guarantee"].as_f64(), "{backend}");
        assert_eq!(packets("s0"), DATAGRAMS, "{backend}");
        send(&format!("{}:9", address(0)));
        until("the packets are counted", || packets("s0") == 2 * DATAGRAMS);

        let policy = directory.path().join("policy.toml");
        fs::write(&policy, POLICY.replace("[class.tower1]\nweight = 400", "[class.tower1]\nweight = 300"))
            .expect("there is room");
        let table = table(60, 7).replace("\",0.1,7\r", "\",3,7\r");
        write_table(&directory, &table.replace("10.88.0.1\",0.1", "10.88.0.1\",0.2"));
        apply(directory.path(), backend)?;
        assert_eq!(guarantees("out"), now, "{backend}");
        cleared(&[]);
        fs::write(&policy, POLICY).expect("there is room");
    }
    Ok(())
}

fn a_class_is_changed_at_each_place_and_in_each_direction() -> TestOutcome {
    let _hosts = on_a_host()?;
    let policy = file(THREE);
    let mut skipped = None;
    for (options, direction) in [
        (&["--backend", "kernel"][..], "out"),
        (&["--direction", "in"], "in"),
        (&["--kernel-queue", "bpf"], "out"),
        (&["--backend", "interposed"], "out"),
    ] {
        if let Err(why) = applied(&policy, options) {
            skipped = Some(why);
            continue;
        }
        changed("gold", &["--weight", "10", "--direction", direction]);
        let guarantees = guarantees(direction);
        for (class, expected) in [("gold", 2e7), ("silver", 6e7), ("rest", 2e7)] {
            assert!((guarantees[class] - expected).abs() < 1.0, "{options:?}: {guarantees:?}");
        }
        cleared(&[]);
        let output = change("gold", &["--weight", "10"]);
        assert_eq!(output.status.code(), Some(3), "there is no policy: {}", words(&output));
    }
    skipped.map_or(Ok(()), Err)
}

fn a_change_that_is_killed_anywhere_leaves_one_of_both_and_the_next_one_holds() -> TestOutcome {
    let hosts: Hosts = on_a_host()?;
    let directory = subscribers_of(&hosts, 300, 21);
    let as_it_was = looks();
    for backend in ["kernel", "interposed"] {
        apply(directory.path(), backend)?;
        let begin = Instant::now();
        changed("s0", &["--ceiling", "41mbit"]);
        let whole = begin.elapsed();
        for part in 0..20 {
            let (rate, ceiling) = if part % 2 == 0 { ("3mbit", "31mbit") } else { ("1mbit", "41mbit") };
            let terms = ["queue", "change", "s0", "--rate", rate, "--ceiling", ceiling];
            let mut command = Command::new(program::unisono())
                .args(terms)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("it starts");
            std::thread::sleep(whole * part / 16);
            command.kill().expect("it is ours");
            command.wait().expect("it is ours");
            let guarantee = guarantees("out")["s0"];
            assert!(guarantee > 0.0, "{backend}: the policy holds after {part}");
            if backend == "kernel" {
                let all =
                    Command::new("tc").args(["class", "show", "dev", DEVICE]).output().expect("it starts");
                let of_both = ["31Mbit", "41Mbit"]
                    .map(|ceiling| text(&all.stdout).contains(&format!("ceil {ceiling} ")));
                assert!(of_both[0] != of_both[1], "{part}: {of_both:?}");
            }
            let done = changed("s0", &terms[3..]);
            assert_eq!(guarantees("out").get("s0").copied(), done["guarantee"].as_f64(), "{backend}");
        }
        cleared(&[]);
        wait_until_it_looks(&as_it_was);
    }
    Ok(())
}

fn the_kernels_place_finds_each_of_thousands_of_subscribers() -> TestOutcome {
    each_gets_its_class("kernel")
}

fn the_interposed_place_finds_each_of_thousands_of_subscribers() -> TestOutcome {
    each_gets_its_class("interposed")
}

host_tests![needs OwnQueues;
    a_change_of_one_subscriber_of_thousands_touches_no_other,
    a_changed_subscriber_has_what_the_changed_table_gives,
    a_change_that_is_killed_anywhere_leaves_one_of_both_and_the_next_one_holds within 120,
    a_class_is_changed_at_each_place_and_in_each_direction,
    a_subscriber_is_changed_by_name_and_the_kernel_hears_of_no_other,
    the_kernels_place_finds_each_of_thousands_of_subscribers,
    the_interposed_place_finds_each_of_thousands_of_subscribers,
];
