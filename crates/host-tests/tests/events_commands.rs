//! Tests what can be asked for with the commands of `unisono events`: names, leases, replies, and a flag for
//! each feature of the channel.

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};
use unisono_events_client::{AgainSpec, Client, ConsumerStatistics, Reception, SubscriptionSpec, WhenFull};
use unisono_host_tests::ports::free_ports;
use unisono_host_tests::processes::{Killed, text};
use unisono_host_tests::{TestOutcome, host_tests, program};

/// A broker in a scratch directory.
struct Site {
    directory: tempfile::TempDir,
    _broker: Killed,
}

impl Site {
    fn new(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let socket = directory.path().join("events");
        let mut command = Command::new(program::unisono());
        command.args(["events", "serve", "--listen"]).arg(&socket).args(options);
        let broker = Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts"));
        let start = Instant::now();
        while Client::connect_unix(&socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "no broker");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { directory, _broker: broker }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("events")
    }

    fn client(&self) -> Client {
        Client::connect_unix(&self.socket()).expect("it listens")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program::unisono());
        command.arg("events").args(arguments).arg("--at").arg(self.socket()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it starts")
    }

    /// Runs a command, which must fail. Returns its error message.
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?} does it: {}", text(&output.stdout));
        text(&output.stderr)
    }

    /// Runs a command, which must succeed. Returns its output.
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Starts a command that subscribes under a name, and waits until the broker knows the subscription.
    fn start(&self, arguments: &[&str], name: &str) -> Killed {
        let mut command = self.command(arguments);
        let started = command.args(["--name", name]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let started = Killed(started.expect("it starts"));
        let (mut client, start) = (self.client(), Instant::now());
        let is_it = |consumer: &ConsumerStatistics| {
            consumer.name == name || consumer.programs.iter().flatten().any(|program| program == name)
        };
        while !client.statistics().expect("it answers").consumers.iter().any(is_it) {
            assert!(start.elapsed() < Duration::from_secs(60), "{arguments:?} does not subscribe");
            std::thread::sleep(Duration::from_millis(5));
        }
        started
    }

    /// Starts a supplier that keeps offering a topic, and waits until the broker knows the offer.
    fn offer(&self, topic: &str, flags: &[&str]) -> (Killed, ChildStdin) {
        let (arguments, start) = ([&["publish", topic, "--json"], flags].concat(), Instant::now());
        loop {
            let mut command = self.command(&arguments);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut supplier = Killed(command.spawn().expect("it starts"));
            let mut lines = supplier.0.stdin.take().expect("piped");
            let mut answer = String::new();
            // fails if this supplier has ended, because until the broker notices the end of the previous
            // supplier, the topic has that one's qualities
            let _ = lines.write_all(b"x\n");
            BufReader::new(supplier.0.stdout.take().expect("piped")).read_line(&mut answer).expect("text");
            if answer.contains("taken") {
                return (supplier, lines);
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{arguments:?} is not taken");
        }
    }
}

fn a_command_answers_requests_some_at_once_and_says_when_it_fails() -> TestOutcome {
    let site = Site::new(&[]);
    // if nobody subscribes, the request fails at its timeout; on a loaded machine a short timeout may expire
    // before the broker answers at all
    let mut said = String::new();
    for timeout in ["50ms", "1s", "30s"] {
        said = site.fails(&["request", "sums", "1", "--timeout", timeout]);
        if said.contains("nobody subscribes") {
            break;
        }
    }
    assert!(said.contains("nobody subscribes to sums") && said.contains("--reply COMMAND"), "{said}");
    let answer = "read a; case $a in slow) sleep 60;; bad) exit 3;; *) \
                  echo \"$UNISONO_TOPIC $UNISONO_KEY $UNISONO_FIELD_x: $a\";; esac";
    let replier = ["subscribe", "sums", "--reply", answer, "--reply-jobs", "2", "--reply-limit", "2s"];
    let _replier = site.start(&replier, "replier");
    let asked = ["request", "sums", "hello", "--key", "k", "--field", "x=7", "--timeout", "60s", "--json"];
    let reply: Value = serde_json::from_str(&site.says(&asked)).expect("an object");
    assert_eq!(reply["payload"], "sums k 7: hello\n");
    let said = site.fails(&["request", "sums", "bad", "--timeout", "60s"]);
    assert!(said.contains("the request failed: `read a") && said.contains("exit status: 3"), "{said}");
    // two slow requests occupy both workers; the third request waits for one of them
    let slow: Vec<Child> = (0..2)
        .map(|_| {
            let mut asking = site.command(&["request", "sums", "slow", "--timeout", "60s"]);
            asking.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        })
        .collect();
    for asking in slow {
        let output = asking.wait_with_output().expect("our child");
        let said = text(&output.stderr);
        assert!(said.contains("took longer than 2s and was ended"), "{said}");
    }
    // a program reads the payload and nothing else
    assert_eq!(site.says(&["request", "sums", "again", "--timeout", "60s"]), "sums  : again\n");
    Ok(())
}

fn a_replier_ends_after_its_count_and_prints_what_it_answered() -> TestOutcome {
    let site = Site::new(&[]);
    let replier = ["subscribe", "echo", "--reply", "cat", "--count", "2", "--json", "--acknowledge", "30s"];
    let mut replier = site.start(&replier, "replier");
    for payload in ["one", "two"] {
        let said = site.says(&["request", "echo", payload, "--timeout", "60s"]);
        assert_eq!(said, format!("{payload}\n"));
    }
    assert!(replier.0.wait().expect("our child").success());
    let mut printed = String::new();
    replier.0.stdout.take().expect("piped").read_to_string(&mut printed).expect("text");
    assert_eq!(printed.lines().filter(|line| line.contains("\"reply_to\"")).count(), 2, "{printed}");
    Ok(())
}

fn a_program_that_is_stopped_longer_than_its_lease_is_told_when_it_goes_on() -> TestOutcome {
    let site = Site::new(&[]);
    let mut leased = site.start(&["subscribe", "feed", "--lease", "1s"], "line 1");
    let mut command = site.command(&["publish", "speed", "--lease", "1s", "--json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut supplier = Killed(command.spawn().expect("it starts"));
    let (mut lines, answers) = (supplier.0.stdin.take(), supplier.0.stdout.take());
    let mut client = site.client();
    // a consumer that waits keeps its lease, and so does a supplier that only waits for its next line
    std::thread::sleep(Duration::from_secs(2));
    lines.as_mut().expect("piped").write_all(b"fast\n").expect("it reads");
    let mut answer = String::new();
    BufReader::new(answers.expect("piped")).read_line(&mut answer).expect("text");
    assert!(answer.contains("\"taken\""), "{answer}");
    drop(lines);
    assert!(supplier.0.wait().expect("our child").success());
    assert_eq!(client.statistics().expect("it answers").consumers[0].name, "line 1");
    let pid = rustix::process::Pid::from_child(&leased.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it runs");
    let start = Instant::now();
    while !client.statistics().expect("it answers").consumers.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "its lease does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("it is stopped");
    assert!(!leased.0.wait().expect("our child").success());
    let mut said = String::new();
    leased.0.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(said.contains("the lease of 1s ran out"), "{said}");
    Ok(())
}

fn names_misses_refusals_and_groups_are_in_top_and_in_the_metrics() -> TestOutcome {
    let [metrics] = free_ports().map(|port| port.to_string());
    let site = Site::new(&["--metrics", &metrics]);
    let group = ["subscribe", "jobs", "--group", "workers"];
    let _one = site.start(&group, "one");
    let _two = site.start(&group, "two");
    let _alone = site.start(&["subscribe", "plant/#"], "alone");
    site.says(&["publish", "plant/1", "x"]);
    // this topic has a ring, at which the supplier's library refuses late events
    let late = site.run(&["publish", "plant/2", "x", "--count", "3", "--deadline", "0us"]);
    assert_eq!(late.status.code(), Some(1), "{}", text(&late.stderr));
    let refused = ["subscribe", "jobs", "--period", "1ms", "--due", "1ms", "--execution", "2ms"];
    assert!(site.fails(&refused).contains("would need"), "by how much");
    let table = site.says(&["top", "--once", "--interval", "10ms"]);
    for word in ["workers x2", "alone", "(admission 1, deadline 3)", "lost", "missed"] {
        assert!(table.contains(word), "{word} in\n{table}");
    }
    assert_eq!(table.matches("workers").count(), 1, "{table}");
    let mut scrape = TcpStream::connect(&metrics).expect("it listens");
    scrape.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut text = String::new();
    scrape.read_to_string(&mut text).expect("text");
    for line in [
        "unisono_events_matched_total{consumer=\"alone\"} 1",
        "unisono_events_matched_total{consumer=\"workers\"} 0",
        "unisono_events_lost_total{consumer=\"(departed)\"} 0",
        "unisono_events_refusals_total{reason=\"admission\"} 1",
        "unisono_events_refusals_total{reason=\"deadline\"} 3",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    Ok(())
}

/// A request that an offer does not meet is refused, with both values in the message; one that it meets is
/// admitted.
fn each_quality_can_be_asked_for_and_offered_by_a_flag() -> TestOutcome {
    let site = Site::new(&[]);
    let asks: [(&[&str], &[&str], &str); 4] = [
        (&["--keep", "10"], &["--last", "10"], "history: offered none"),
        (&["--keep-values", "10"], &["--last-values", "10"], "history: offered none"),
        (&["--reliable"], &["--reliable"], "reliability: offered best effort"),
        (&["--offer-deadline", "5ms"], &["--deadline", "10ms"], "deadline: offered none"),
    ];
    for (number, (offered, asked, why)) in asks.into_iter().enumerate() {
        // each case has a topic of its own, because the events that a topic keeps, and the offer with them,
        // outlive the supplier
        let topic = format!("state/{number}");
        let once = [&["subscribe", &topic, "--timeout", "1ms"], asked].concat();
        let plain = site.offer(&topic, &[]);
        let said = site.fails(&once);
        assert!(said.contains(why) && said.contains("requested"), "{asked:?}: {said}");
        drop(plain);
        let start = Instant::now();
        let _supplier = site.offer(&topic, offered);
        // until the broker has noticed the end of the plain supplier
        while !site.run(&once).status.success() {
            assert!(start.elapsed() < Duration::from_secs(60), "{asked:?} is refused");
        }
    }
    site.says(&["subscribe", "all", "--timeout", "1ms", "--share", "0.5"]);
    // with a single class, a share of at most 1 can be guaranteed
    assert!(site.fails(&["subscribe", "all", "--share", "1.5"]).contains("from 0 to 1"));
    Ok(())
}

fn what_waits_what_is_acknowledged_and_what_time_does_can_be_said_by_flags() -> TestOutcome {
    let site = Site::new(&[]);
    let mut listener = site.client();
    listener.subscribe(&SubscriptionSpec::new("fast")).expect("it fits");
    // the rate: of five events at once, three are within the burst
    let output = site.run(&["publish", "fast", "x", "--count", "5", "--period", "1h", "--burst", "3"]);
    let said = text(&output.stderr);
    let summary = "published 3 of 5 events; 2 refused: more than the rate offered";
    assert!(output.status.success() && said.contains(summary), "{said}");
    // late events are refused one by one, and each has its line
    let output = site.run(&["publish", "fast", "x", "--count", "2", "--deadline", "0us", "--json"]);
    let (said, lines) = (text(&output.stderr), text(&output.stdout));
    assert!(said.contains("published 0 of 2 events; 2 refused: the deadline had passed"), "{said}");
    assert!(output.status.code() == Some(1) && lines.matches("\"refused\"").count() == 2, "{lines}");
    for _ in 0..3 {
        let came = listener.receive(Some(Duration::from_secs(60))).expect("it serves");
        assert!(matches!(came, Some(Reception::Event(_))), "{came:?}");
    }
    // time
    let tick = site.says(&["subscribe", "t", "--every", "10ms", "--timeout", "500ms", "--json"]);
    assert!(tick.contains("\"notice\":\"tick\""), "{tick}");
    let silence = site.says(&["subscribe", "t", "--silence", "10ms", "--timeout", "500ms"]);
    assert!(silence.contains("nothing has come"), "{silence}");
    // the reservation: an event that is too large becomes a gap
    let reserved =
        ["subscribe", "big", "--period", "10ms", "--due", "10ms", "--largest", "4", "--json", "--count", "1"];
    let mut small = site.start(&reserved, "small");
    site.says(&["publish", "big", "too large"]);
    site.says(&["publish", "big", "fits"]);
    assert!(small.0.wait().expect("our child").success());
    let mut said = String::new();
    small.0.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(said.contains("\"too-large\"") && said.contains("\"fits\""), "{said}");
    assert!(
        site.fails(&["subscribe", "big", "--period", "1ms", "--due", "1ms", "--execution-per-kib", "1ms"])
            .contains("would need"),
        "the time for each KiB counts"
    );
    // a group's queue outlives its last consumer; with `any`, an event of one pattern comes alone
    let group =
        ["subscribe", "jobs", "--group", "g", "--linger", "60s", "--acknowledge", "60s", "--attempts", "2"];
    drop(site.start(&[&group[..], &["--window", "1"]].concat(), "worker"));
    site.says(&["publish", "jobs", "kept"]);
    let got = site.says(&[&group[..], &["--window", "1", "--count", "1", "--timeout", "60s"]].concat());
    assert!(got.contains("kept"), "{got}");
    let any = ["subscribe", "a", "b", "--together", "any", "--within", "1s", "--count", "1", "--json"];
    let mut any = site.start(&any, "any");
    site.says(&["publish", "b", "one"]);
    assert!(any.0.wait().expect("our child").success());
    let queue = site.fails(&["subscribe", "a", "--queue-bytes", "1024GiB"]);
    assert!(queue.contains("more than the broker gives to all programs together"), "{queue}");
    site.says(&["subscribe", "a", "--local-only", "--timeout", "1ms"]);
    Ok(())
}

fn suppliers_share_a_consumer_and_events_may_be_lost_on_the_way_by_flags() -> TestOutcome {
    let rules = tempfile::NamedTempFile::new().expect("a scratch file");
    let rule = "[[allow]]\nwho = [\"*\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]\nshare = 3\n";
    std::fs::write(rules.path(), rule).expect("room on the disk");
    let site = Site::new(&["--permissions", &rules.path().display().to_string()]);
    assert!(site.fails(&["publish", "feed", "x", "--share", "4"]).contains("a share of 4"));
    site.says(&["publish", "feed", "x", "--share", "3"]);
    let shares = ["subscribe", "feed", "--between", "shares", "--timeout", "1ms"];
    site.says(&shares);
    let reserved = [&shares[..], &["--period", "10ms", "--due", "10ms"]].concat();
    assert!(site.fails(&reserved).contains("leave out one of the two"));
    let loose = ["subscribe", "feed", "--best-effort", "--timeout", "1ms"];
    site.says(&loose);
    assert!(site.fails(&[&loose[..], &["--reliable"]].concat()).contains("leave out one of the two"));
    Ok(())
}

fn who_publishes_or_replays_waits_for_a_consumer_whose_suppliers_wait() -> TestOutcome {
    let site = Site::new(&[]);
    let recording = site.directory.path().join("recording").display().to_string();
    let mut record = site.start(&["record", &recording, "feed", "--count", "20", "--json"], "record");
    let mut blocking = site.client();
    let again = AgainSpec { after_ns: u64::MAX, attempts: 1, window: 1 };
    let (queue_events, full) = (1, WhenFull::BlockSupplier);
    let spec = SubscriptionSpec { queue_events, full, again: Some(again), ..SubscriptionSpec::new("feed") };
    blocking.subscribe(&spec).expect("it fits");
    let mut take = |supplier: &mut Killed| {
        // the queue of one event blocks the supplier, so it does not end before the consumer takes events
        std::thread::sleep(Duration::from_millis(300));
        assert!(supplier.0.try_wait().expect("our child").is_none(), "it does not wait");
        for number in 1..=20 {
            match blocking.receive(Some(Duration::from_secs(60))).expect("it serves") {
                Some(Reception::Event(event)) => {
                    assert_eq!(event.sequence, number);
                    blocking.acknowledge(&event).expect("it serves");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(supplier.0.wait().expect("our child").success());
        assert!(matches!(
            blocking.receive(Some(Duration::from_secs(60))).expect("it serves"),
            Some(Reception::Notice { .. })
        ));
        let mut printed = String::new();
        supplier.0.stdout.take().expect("piped").read_to_string(&mut printed).expect("text");
        printed
    };
    let mut publish = site.command(&["publish", "feed", "x", "--count", "20", "--json"]);
    let mut publish = Killed(publish.stdout(Stdio::piped()).spawn().expect("it starts"));
    assert_eq!(take(&mut publish).matches("\"taken\"").count(), 20);
    assert!(record.0.wait().expect("our child").success());
    let mut replay = site.command(&["replay", &recording, "--at-once", "--json"]);
    let mut replay = Killed(replay.stdout(Stdio::piped()).spawn().expect("it starts"));
    assert_eq!(take(&mut replay).matches("\"sequence\"").count(), 20);
    Ok(())
}

fn a_replay_counts_what_is_rejected_and_goes_on() -> TestOutcome {
    let site = Site::new(&[]);
    let recording = site.directory.path().join("recording").display().to_string();
    let mut record = site.start(&["record", &recording, "--count", "4", "--json"], "record");
    for (topic, payload) in
        [("small", "one"), ("small", "more than four"), ("typed", "two"), ("small", "two")]
    {
        site.says(&["publish", topic, payload]);
    }
    assert!(record.0.wait().expect("our child").success());
    let rules = tempfile::NamedTempFile::new().expect("a scratch file");
    let rule = "[[allow]]\nwho = [\"*\"]\npublish = [\"small\"]\nsize = 4\n";
    std::fs::write(rules.path(), rule).expect("room on the disk");
    let strict = Site::new(&["--permissions", &rules.path().display().to_string()]);
    let output = strict.run(&["replay", &recording, "--at-once"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout).trim_end(), "2 events, 2 rejected, 0 missing in the recording");
    assert!(
        text(&output.stderr).contains("position 2, small: a payload of 14 bytes"),
        "{}",
        text(&output.stderr)
    );
    let lines = strict.says(&["replay", &recording, "--at-once", "--json"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let rejected: Vec<_> = lines.iter().map(|line| line["rejected"].is_string()).collect();
    assert_eq!(rejected, [false, true, true, false], "{lines:?}");
    assert!(strict.fails(&["replay", &recording, "typed", "--at-once"]).contains("rejected all 1 events"));
    Ok(())
}

fn a_shell_completes_the_topics_of_the_users_broker() -> TestOutcome {
    let site = Site::new(&[]);
    let _supplier = site.offer("plant/1/heat", &["--keep", "1"]);
    std::os::unix::fs::symlink(site.socket(), site.directory.path().join("unisono-events")).expect("a link");
    let mut shell = Command::new(program::unisono());
    shell.env("UNISONO_COMPLETE", "fish").env("XDG_RUNTIME_DIR", site.directory.path());
    let offered = shell.args(["--", "unisono", "events", "hz", "pl"]).output().expect("it starts");
    assert_eq!(text(&offered.stdout).trim_end(), "plant/1/heat", "{}", text(&offered.stderr));
    Ok(())
}

host_tests![needs Nothing;
    a_shell_completes_the_topics_of_the_users_broker within 240,
    who_publishes_or_replays_waits_for_a_consumer_whose_suppliers_wait within 240,
    a_replay_counts_what_is_rejected_and_goes_on within 240,
    a_command_answers_requests_some_at_once_and_says_when_it_fails within 240,
    a_replier_ends_after_its_count_and_prints_what_it_answered within 240,
    a_program_that_is_stopped_longer_than_its_lease_is_told_when_it_goes_on within 240,
    names_misses_refusals_and_groups_are_in_top_and_in_the_metrics within 240,
    each_quality_can_be_asked_for_and_offered_by_a_flag within 240,
    what_waits_what_is_acknowledged_and_what_time_does_can_be_said_by_flags within 240,
    suppliers_share_a_consumer_and_events_may_be_lost_on_the_way_by_flags within 240,
];
