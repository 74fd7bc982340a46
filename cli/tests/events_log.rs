//! `unisono events` with a log: acknowledged events survive `kill -9` of the broker, sessions are recorded
//! and replayed, and the broker reports its state.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A broker in a scratch directory; dropping this kills it.
struct Serving {
    directory: tempfile::TempDir,
    broker: Option<Child>,
}

impl Serving {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut serving = Self { directory, broker: None };
        serving.restart();
        serving
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Kills the broker, and starts another one with the same log.
    fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// Restarts the broker as [`Self::restart`] does, with options. Returns the broker's MQTT address, if it
    /// has one.
    fn restart_with(&mut self, options: &[&str]) -> Option<String> {
        self.kill();
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        command.args(["events", "serve", "--listen"]).arg(self.path("events")).args(options);
        command.arg("--log").arg(self.path("log")).arg("--metrics").arg(self.path("metrics"));
        let mut broker = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let said = broker.stderr.take().expect("a pipe");
        self.broker = Some(broker);
        let mut lines = BufReader::new(said).lines();
        let mut mqtt = None;
        let first = lines.by_ref().map_while(Result::ok).find(|line| {
            let serves = line.strip_prefix("serving MQTT at ");
            let address = serves.and_then(|serves| serves.split(';').next());
            mqtt = address.map(str::to_owned).or(mqtt.take());
            serves.is_none()
        });
        assert!(first.as_ref().is_some_and(|line| line.starts_with("serving at")), "{first:?}");
        // a thread reads the rest of the broker's output, so that the pipe does not fill up
        std::thread::spawn(move || lines.for_each(drop));
        mqtt
    }

    fn kill(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            broker.kill().expect("it runs");
            broker.wait().expect("it ends");
        }
    }

    /// Runs a subcommand of `unisono events` with this broker, and waits for its end.
    fn events(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        output
    }

    /// Waits until no consumer is connected, because the broker records a consumer's acknowledgements when
    /// the consumer leaves.
    fn wait_for_no_follower(&self) {
        let counts = ["top", "--once", "--json", "--interval", "10ms"];
        while lines(&self.events(&counts))[0]["log"]["consumers"] != serde_json::json!({}) {}
    }

    /// Waits until the broker counts a consumer, because only then has the program subscribed.
    fn wait_for_a_consumer(&self) {
        self.wait_for_consumers(1);
    }

    fn wait_for_consumers(&self, count: usize) {
        let counts = ["top", "--once", "--json", "--interval", "10ms"];
        while lines(&self.events(&counts))[0]["consumers"].as_array().map_or(0, Vec::len) != count {}
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        command.arg("events").args(arguments).arg("--at").arg(self.path("events"));
        command.current_dir(self.directory.path());
        command
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.kill();
    }
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn payloads(output: &Output) -> Vec<String> {
    lines(output).iter().map(|line| line["payload"].as_str().expect("a text").to_owned()).collect()
}

#[test]
#[allow(clippy::print_stderr, reason = "a skipped test says why")]
fn at_a_terminal_publish_says_that_it_reads_and_that_nobody_listens() {
    let serving = Serving::start();
    let socket = serving.path("events");
    // script(1) gives a program a terminal
    let line = format!("'{}' events publish t --at '{}'", env!("CARGO_BIN_EXE_unisono"), socket.display());
    let started = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        eprintln!("skipped: no script here: apt-get install bsdutils");
        return;
    };
    child.stdin.take().expect("a pipe").write_all(b"one\ntwo\n\x04").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("reading standard input: each line is an event of t; Ctrl-D ends it"),
        "{said}"
    );
    assert_eq!(
        said.matches("nobody subscribes to t; unisono events subscribe 't' does").count(),
        1,
        "{said}"
    );
    let redirected = serving.events(&["publish", "t", "x"]);
    assert!(redirected.stderr.is_empty(), "a program is not told");
}

#[test]
fn a_topic_that_is_no_longer_used_becomes_what_its_next_supplier_says() {
    let serving = Serving::start();
    serving.events(&["publish", "t", "hot"]);
    serving.events(&["publish", "t", "--keep", "1", "hot"]);
    let refused = serving.command(&["publish", "t", "--exclusive", "hot"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    let both =
        "declared: keeps the last event, shared, of any type; asked: keeps none, exclusive, of any type";
    assert!(!refused.status.success() && said.contains(both), "{said}");
}

#[test]
fn a_named_consumer_goes_on_after_kill_9_of_the_broker_and_a_writer_publishes_once() {
    let mut serving = Serving::start();
    let resume = ["subscribe", "orders/#", "--resume", "billing", "--json", "--timeout", "20s", "--count"];
    let subscribe = |serving: &Serving, count: &str| {
        let arguments: Vec<&str> = resume.iter().copied().chain([count]).collect();
        payloads(&serving.events(&arguments))
    };
    // the broker must know the name of the consumer before the first event is published
    let mut early = serving.command(&["subscribe", "orders/#", "--resume", "billing", "--timeout", "50ms"]);
    assert!(early.status().expect("it runs").success());
    let publish = |serving: &Serving, numbers: &str| {
        let arguments = ["publish", "orders/1", "--writer", "shop", "--durability", "synced", "--json"];
        let mut child = serving
            .command(&arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        child.stdin.take().expect("a pipe").write_all(numbers.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success());
        lines(&output)
            .iter()
            .map(|line| line["outcome"].as_str().expect("a word").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(publish(&serving, "1\n2\n3\n"), ["synced"; 3]);
    assert_eq!(subscribe(&serving, "2"), ["1", "2"]);
    serving.wait_for_no_follower();
    serving.restart();
    // publishes the whole file again, as a program does after a crash
    let outcomes = publish(&serving, "1\n2\n3\n4\n");
    assert_eq!(outcomes, ["duplicate", "duplicate", "duplicate", "synced"]);
    assert_eq!(subscribe(&serving, "2"), ["3", "4"]);
    serving.restart();
    let all =
        serving.events(&["subscribe", "#", "--resume", "all", "--after", "0", "--count", "4", "--json"]);
    assert_eq!(payloads(&all), ["1", "2", "3", "4"]);
}

#[test]
fn who_reconnects_goes_on_when_the_broker_was_killed_and_nothing_is_missing_or_in_another_order() {
    const EVENTS: u64 = 200;
    let mut serving = Serving::start();
    let reader = ["subscribe", "orders/#", "--resume", "billing", "--reconnect=50s", "--json"];
    let mut reader = serving.command(&reader).stdout(Stdio::piped()).spawn().expect("it starts");
    serving.wait_for_a_consumer();
    let supplier =
        ["publish", "orders/1", "--writer", "shop", "--durability", "synced", "--every", "5ms", "--json"];
    let mut supplier = serving.command(&[&supplier[..], &["--reconnect=50s"]].concat());
    let mut supplier = supplier.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let numbers: String = (1..=EVENTS).map(|number| format!("{number}\n")).collect();
    supplier.stdin.take().expect("a pipe").write_all(numbers.as_bytes()).expect("it reads");
    let mut lines = BufReader::new(reader.stdout.take().expect("a pipe")).lines();
    let (mut came, mut back) = (Vec::new(), 0);
    while came.last() != Some(&EVENTS) {
        let line: Value =
            serde_json::from_str(&lines.next().expect("it goes on").expect("a text")).expect("JSON");
        match line["payload"].as_str() {
            Some(payload) => {
                let number: u64 = payload.parse().expect("a number");
                // delivery is at least once, so an event may arrive twice
                if !came.contains(&number) {
                    came.push(number);
                }
                if [40, 80, 81].contains(&number) && came.last() == Some(&number) {
                    serving.restart();
                }
            }
            None => back += u64::from(line["notice"] == "reconnected"),
        }
    }
    reader.kill().expect("it runs");
    reader.wait().expect("it ends");
    assert_eq!(came, (1..=EVENTS).collect::<Vec<_>>());
    assert!(back >= 1, "it was away");
    let output = supplier.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let outcomes = String::from_utf8_lossy(&output.stdout);
    let count = |outcome: &str| outcomes.matches(&format!("\"outcome\":\"{outcome}\"")).count() as u64;
    assert_eq!(count("synced") + count("duplicate"), EVENTS, "{outcomes}");
    let all = ["subscribe", "#", "--resume", "all", "--after", "0", "--count", "200", "--json"];
    let kept = payloads(&serving.events(&all));
    assert_eq!(
        kept,
        (1..=EVENTS).map(|number| number.to_string()).collect::<Vec<_>>(),
        "the log has each once"
    );
}

#[test]
fn a_session_is_recorded_and_replayed() {
    let serving = Serving::start();
    let mut record = serving.command(&["record", "monday", "plant/#", "--count", "3", "--json"]);
    let record = record.stdout(Stdio::piped()).spawn().expect("it starts");
    serving.wait_for_a_consumer();
    let reading: &[&str] = &["--type", "reading"];
    for (topic, field, more) in [
        ("plant/1", "celsius=81.5", reading),
        ("other", "n=1", &[]),
        ("plant/1", "celsius=82", reading),
        ("plant/2", "site=roof", &[]),
    ] {
        let event = ["publish", topic, "--field", field, "--key", "k", "--deadline", "5s", topic];
        serving.events(&[&event[..], more].concat());
    }
    let said = record.wait_with_output().expect("it ends");
    assert_eq!(lines(&said)[0]["events"], 3);
    let listen = |arguments: &[&str], consumers: usize| {
        let mut subscriber = serving.command(&[&["subscribe", "#", "--json"], arguments].concat());
        let subscriber = subscriber.stdout(Stdio::piped()).spawn().expect("it starts");
        serving.wait_for_consumers(consumers);
        subscriber
    };
    let subscriber = listen(&["--count", "3"], 1);
    let typed = listen(&["--count", "2", "--type", "reading"], 2);
    let replayed = serving.events(&["replay", "monday", "--speed", "1000", "--json"]);
    assert_eq!(lines(&replayed).len(), 3);
    let got = lines(&subscriber.wait_with_output().expect("it ends"));
    let got: Vec<_> =
        got.iter().filter(|line| line["topic"].is_string() && line["payload"].is_string()).collect();
    assert_eq!((&got[0]["topic"], &got[0]["fields"]["celsius"]), (&"plant/1".into(), &81.5.into()));
    assert_eq!((&got[2]["topic"], &got[2]["key"]), (&"plant/2".into(), &"k".into()));
    // two suppliers published on one topic
    assert_eq!((&got[0]["sequence"], &got[1]["sequence"]), (&1.into(), &1.into()));
    assert_ne!(got[0]["supplier"], got[1]["supplier"]);
    let typed = lines(&typed.wait_with_output().expect("it ends"));
    assert_eq!(typed.iter().filter(|line| line["topic"] == "plant/1").count(), 2, "{typed:?}");
    let left = got[2]["due_in_us"].as_i64().expect("it is due");
    assert!((1..=5_000_000).contains(&left), "{left}");
    let one = serving.events(&["replay", "monday", "plant/2", "--at-once", "--json"]);
    assert_eq!(lines(&one).len(), 1);
}

#[test]
fn monitoring_programs_and_top_see_the_log() {
    let serving = Serving::start();
    serving.events(&["publish", "t", "--durability", "written", "x"]);
    let top = &lines(&serving.events(&["top", "--once", "--json", "--interval", "10ms"]))[0];
    assert_eq!((&top["log"]["written"], &top["log"]["next"]), (&1.into(), &2.into()));
    // the table fits the columns that are asked for where standard output is no terminal
    let table = |columns: &str| {
        let mut command = serving.command(&["top", "--once", "--interval", "10ms"]);
        let output = command.env("COLUMNS", columns).output().expect("it runs");
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(table("60").lines().all(|line| line.chars().count() <= 60), "{}", table("60"));
    assert!(table("60").contains(" delivered/s") && table("200").contains(" late"), "{}", table("200"));
    let text = scrape(&serving.path("metrics"));
    assert!(text.lines().any(|line| line == "unisono_events_log_written_total 1"), "{text}");
}

fn scrape(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

#[test]
fn a_service_takes_the_socket_that_was_opened_for_it_and_says_that_it_is_ready_and_alive() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (socket, notices) = (directory.path().join("events"), directory.path().join("notify"));
    let listener = UnixListener::bind(&socket).expect("it binds");
    let heard = UnixDatagram::bind(&notices).expect("it binds");
    heard.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    // the shell starts the broker as systemd does: the socket is descriptor 3, and LISTEN_PID names the
    // process
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" events serve --listen \"$1\" --listen \"$2\" 3<&0";
    let another = directory.path().join("another");
    let mut service = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_unisono")])
        .args([&socket, &another])
        .env("NOTIFY_SOCKET", &notices)
        .env("WATCHDOG_USEC", "200000")
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let next = || {
        let mut bytes = [0; 256];
        let length = heard.recv(&mut bytes).expect("it says something");
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    };
    assert_eq!(next(), "READY=1");
    assert_eq!([next(), next()], ["WATCHDOG=1"; 2]);
    // a service manager that reads nothing does not stop the broker: the queue is full for its next notices
    let other = UnixDatagram::unbound().expect("a socket");
    other.set_nonblocking(true).expect("a socket");
    while other.send_to(b"x", &notices).is_ok() {}
    std::thread::sleep(Duration::from_millis(500));
    for listens in [&socket, &another] {
        let mut publish = Command::new("timeout");
        publish.args(["60", env!("CARGO_BIN_EXE_unisono"), "events", "publish", "t", "x", "--at"]);
        let published = publish.arg(listens).status();
        assert!(published.expect("it runs").success());
    }
    service.kill().expect("it runs");
    service.wait().expect("it ends");
}

#[test]
#[allow(clippy::print_stderr, reason = "a skipped test says why")]
fn a_retained_mqtt_message_outlives_kill_9_of_the_broker_and_so_does_its_end() {
    let version =
        Command::new("mosquitto_pub").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if version.is_err() {
        eprintln!("skipped: mosquitto_pub and mosquitto_sub are not installed (Debian: mosquitto-clients)");
        return;
    }
    // each broker gets a free port, because another process might take a fixed port between two brokers
    let options = ["--mqtt", "127.0.0.1:0", "--log-topics", "lamp/#"];
    let mut serving = Serving::start();
    let restart = |serving: &mut Serving| {
        let address = serving.restart_with(&options).expect("it serves MQTT");
        address.rsplit_once(':').expect("an address").1.to_owned()
    };
    let publish = |port: &str, arguments: &[&str]| {
        let mut command = Command::new("mosquitto_pub");
        command.args(["-h", "127.0.0.1", "-p", port, "-q", "1"]).args(arguments);
        assert!(command.status().expect("it is installed").success(), "{arguments:?}");
    };
    let retained = |serving: &Serving, port: &str| {
        let mut command = Command::new("mosquitto_sub");
        command.args(["-h", "127.0.0.1", "-p", port, "-t", "#", "-F", "%t %r %p"]);
        let mut subscriber = command.stdout(Stdio::piped()).spawn().expect("it is installed");
        serving.wait_for_consumers(1);
        // retained events are delivered before events that are published after the subscription
        publish(port, &["-t", "end", "-m", "-"]);
        let lines = BufReader::new(subscriber.stdout.take().expect("a pipe")).lines();
        let lines = lines.map(|line| line.expect("a text"));
        let mut lines: Vec<_> = lines.take_while(|line| line != "end 0 -").collect();
        subscriber.kill().expect("our child");
        subscriber.wait().expect("it ends");
        lines.sort_unstable();
        lines
    };
    let port = restart(&mut serving);
    for (topic, payload) in [("lamp/1", "on"), ("lamp/1", "off"), ("lamp/2", "on"), ("other", "on")] {
        publish(&port, &["-r", "-t", topic, "-m", payload]);
    }
    let port = restart(&mut serving);
    assert_eq!(
        retained(&serving, &port),
        ["lamp/1 1 off", "lamp/2 1 on"],
        "what is not in the log is lost with the broker"
    );
    publish(&port, &["-r", "-t", "lamp/1", "-n"]);
    let port = restart(&mut serving);
    assert_eq!(retained(&serving, &port), ["lamp/2 1 on"]);
}
