//! mosquitto's own clients with this broker: an independent implementation of MQTT. Skipped where they are
//! not installed.

use crate::common::{Addresses, with_broker, with_this_broker};
use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use unisono_broker::{Broker, Limits, Permissions};
use unisono_eventchannel::FieldSet;
use unisono_events_client::{Advertisement, Client, EventDraft, ReceivedEvent, Reception, SubscriptionSpec};
use unisono_fairqueue::{ClassSpec, Hierarchy};

fn are_there() -> bool {
    let answers = |program: &str| {
        let version =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok()
    };
    let found = answers("mosquitto_pub") && answers("mosquitto_sub");
    if !found {
        eprintln!("skipped: mosquitto_pub and mosquitto_sub are not installed (Debian: mosquitto-clients)");
    }
    found
}

/// A client that prints the received messages; killed on drop.
struct Reader {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// Messages before the confirmation of the subscription: those of a present session.
    early: VecDeque<String>,
}

impl Reader {
    fn new(at: &Addresses, arguments: &[&str]) -> Self {
        // line-buffered, even into a pipe
        let mut command = Command::new("stdbuf");
        command
            .args(["-oL", "mosquitto_sub"])
            .args(["-h", "127.0.0.1", "-p", &at.mqtt.port().to_string()])
            .args(arguments);
        // -d prints the confirmation of the subscription; the test publishes nothing before it
        let mut child = command.arg("-d").stdout(Stdio::piped()).spawn().expect("it is installed");
        let lines = BufReader::new(child.stdout.take().expect("a pipe, as asked for above"));
        let mut reader = Self { child, lines, early: VecDeque::new() };
        let mut early = VecDeque::new();
        loop {
            let line = reader.line();
            if line.starts_with("Subscribed") {
                reader.early = early;
                return reader;
            }
            early.push_back(line);
        }
    }

    /// Returns the next line with a message, or with the confirmation of the subscription.
    fn line(&mut self) -> String {
        if let Some(line) = self.early.pop_front() {
            return line;
        }
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.lines.read_line(&mut line).expect("text") > 0, "it ended");
            if !line.starts_with("Client ") {
                return line.trim_end().to_owned();
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the next event; a notice about a departed supplier is skipped.
fn next_event(program: &mut Client) -> ReceivedEvent {
    loop {
        match program.receive(Some(Duration::from_secs(20))).expect("it goes on") {
            Some(Reception::Event(event)) => return event,
            Some(_) => {}
            None => panic!("no event came"),
        }
    }
}

fn publish(at: &Addresses, arguments: &[&str]) {
    let mut command = Command::new("mosquitto_pub");
    command.args(["-h", "127.0.0.1", "-p", &at.mqtt.port().to_string()]).args(arguments);
    assert!(command.status().expect("it is installed").success(), "{arguments:?}");
}

#[test]
fn mosquitto_s_clients_exchange_messages_of_every_quality_with_each_other_and_with_programs() {
    if !are_there() {
        return;
    }
    with_broker(|at| {
        let mut program = at.client();
        program.subscribe(&SubscriptionSpec::new("plant/#")).expect("it fits");
        for version in ["mqttv311", "mqttv5"] {
            for qos in ["0", "1", "2"] {
                let mut reader =
                    Reader::new(at, &["-V", version, "-q", qos, "-t", "plant/+/heat", "-F", "%t %q %r %p"]);
                publish(at, &["-V", version, "-q", qos, "-t", "plant/1/heat", "-m", "hot"]);
                assert_eq!(reader.line(), format!("plant/1/heat {qos} 0 hot"));
                assert_eq!(&*next_event(&mut program).payload.bytes(), b"hot");
            }
        }
        let mut reader = Reader::new(at, &["-V", "mqttv5", "-t", "plant/#", "-F", "%P %p"]);
        let topic = program.advertise(&Advertisement::new("plant/2/heat")).expect("a topic");
        let draft = EventDraft::new(b"warm").with_fields(FieldSet::new().with("celsius", 40.5));
        program.publish(topic, &draft).expect("it leaves");
        assert_eq!(reader.line(), "celsius:40.5 warm");
        next_event(&mut program);
        let property = ["-D", "publish", "user-property", "celsius", "81.5"];
        let expiry = ["-D", "publish", "message-expiry-interval", "60"];
        let message = ["-V", "mqttv5", "-t", "plant/1/heat", "-m", "x"];
        publish(at, &[&message[..], &property, &expiry].concat());
        let got = next_event(&mut program);
        assert_eq!(got.fields, FieldSet::new().with("celsius", 81.5));
        assert!(got.deadline.is_some());
    });
}

#[test]
fn mosquitto_s_clients_retain_share_leave_wills_and_resume() {
    if !are_there() {
        return;
    }
    with_broker(|at| {
        publish(at, &["-r", "-q", "1", "-t", "lamp", "-m", "on"]);
        assert_eq!(Reader::new(at, &["-t", "lamp", "-F", "%r %p"]).line(), "1 on");

        let mut worker = Reader::new(at, &["-V", "mqttv5", "-q", "1", "-t", "$share/g/job"]);
        publish(at, &["-q", "1", "-t", "job", "-m", "a"]);
        publish(at, &["-q", "1", "-t", "job", "-m", "b"]);
        assert_eq!([worker.line(), worker.line()], ["a", "b"]);

        let mut watcher = Reader::new(at, &["-t", "will"]);
        drop(Reader::new(at, &["--will-topic", "will", "--will-payload", "gone", "-t", "x"]));
        assert_eq!(watcher.line(), "gone");

        // a session of 3.1.1 that is not clean waits for its client
        drop(Reader::new(at, &["-c", "-i", "sleeper", "-q", "2", "-t", "news"]));
        publish(at, &["-q", "2", "-t", "news", "-m", "first"]);
        assert_eq!(Reader::new(at, &["-c", "-i", "sleeper", "-q", "2", "-t", "news"]).line(), "first");
    });
}

#[test]
fn mosquitto_sub_is_of_the_class_that_its_rule_says() {
    if !are_there() {
        return;
    }
    let rules = "[[allow]]\nwho = [\"anonymous\"]\nsubscribe = [\"plant/#\"]\nclass = \"control\"\n\
                 [[allow]]\nwho = [\"*\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]";
    let tree = Hierarchy::new(ClassSpec::new("all").with([ClassSpec::new("control")]))
        .and_then(|tree| tree.with_default("rest"))
        .expect("it is sound");
    let permissions = Permissions::parse(rules, &|_| None).expect("it is sound");
    let broker = Broker::new(tree, Limits::default()).with_permissions(permissions);
    with_this_broker(broker, |at| {
        let mut reader = Reader::new(at, &["-V", "5", "-t", "plant/#", "-q", "1", "-i", "mosquitto"]);
        let mut supplier = at.client();
        supplier.subscribe(&SubscriptionSpec::new("plant/#")).expect("it may");
        let consumers = supplier.statistics().expect("it goes on").consumers;
        let mut classes: Vec<_> = consumers.iter().map(|of| (&*of.class, &*of.name == "mosquitto")).collect();
        classes.sort_unstable();
        assert_eq!(classes, [("control", true), ("rest", false)]);
        let heat = supplier.advertise(&Advertisement::new("plant/heat")).expect("it may");
        supplier.publish(heat, &EventDraft::new(b"hot")).expect("it leaves");
        assert_eq!(reader.line(), "hot");
    });
}
