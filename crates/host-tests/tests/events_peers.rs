//! Tests the failure of a host, or of the path to it: both ends of a connection notice it, although no packet
//! tells them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use unisono_events_client::{
    Advertisement, Client, EventDraft, NoticeText, PublishOutcome, Reception, SubscriptionSpec,
};
use unisono_host_tests::hosts::Hosts;
use unisono_host_tests::processes::{Killed, until};
use unisono_host_tests::{TestOutcome, host_tests, program};

/// Consumers whose next events come after the cut, at different times between two checks of the broker: the
/// kernel's first attempt to send such an event (after 200 ms) comes before or after a check (every 400 ms).
const CONSUMERS: usize = 8;

fn start(mut command: Command) -> Killed {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    Killed(command.spawn().expect("it starts"))
}

/// Starts a broker on the first host, for programs of both hosts.
fn broker(hosts: &Hosts, directory: &Path) -> (Killed, PathBuf, String) {
    let (socket, address) = (directory.join("events"), format!("tcp:{}:7400", Hosts::address(0)));
    let mut serves = hosts.command(0, &program::unisono());
    serves.args(["events", "serve", "--user", "root", "--insecure", "--peer-timeout", "2"]);
    serves.arg("--listen").arg(&socket).args(["--listen", &address]);
    let broker = start(serves);
    until("the broker serves", || Client::connect_unix(&socket).is_ok());
    (broker, socket, address)
}

/// Starts, on the second host, the owner of an exclusive topic, which publishes each line of its input.
fn owner(hosts: &Hosts, address: &str) -> Killed {
    let mut owner = hosts.command(1, &program::unisono());
    owner.args(["events", "publish", "own", "--exclusive", "--strength", "9", "--at", address]);
    start(owner)
}

/// Connects a stand-by supplier on the first host, and waits until the owner is the supplier whose events
/// count.
fn standby(socket: &Path) -> (Client, unisono_events_client::TopicHandle) {
    let mut standby = Client::connect_unix(socket).expect("it serves");
    standby.subscribe(&SubscriptionSpec::new("own")).expect("it fits");
    let spec = Advertisement { exclusive: true, strength: 1, ..Advertisement::new("own") };
    let topic = standby.advertise(&spec).expect("a topic");
    until("the owner is heard", || outcome(&mut standby, topic) == PublishOutcome::Standby);
    (standby, topic)
}

fn outcome(standby: &mut Client, topic: unisono_events_client::TopicHandle) -> PublishOutcome {
    standby.try_publish(topic, &EventDraft::new(b"standby")).expect("the broker is there").outcome
}

/// Waits until the stand-by has taken over the topic and its consumer has the notice of the owner's end.
fn takes_over(standby: &mut Client, topic: unisono_events_client::TopicHandle) {
    until("the stand-by is heard", || outcome(standby, topic) != PublishOutcome::Standby);
    let told = std::iter::from_fn(|| standby.receive(Some(Duration::from_secs(20))).expect("it goes on"))
        .any(|reception| matches!(reception, Reception::Notice { notice: NoticeText::Gone { .. }, .. }));
    assert!(told, "the owner's end is a notice");
}

fn a_standby_is_heard_and_the_owner_told_when_the_cable_of_an_idle_owner_is_cut() -> TestOutcome {
    let hosts = Hosts::new()?;
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (_broker, socket, address) = broker(&hosts, directory.path());
    let mut owner = owner(&hosts, &address);
    let (mut standby, topic) = standby(&socket);
    hosts.cut();
    takes_over(&mut standby, topic);
    // the former owner learns of the takeover at its next event
    let mut input = owner.0.stdin.take().expect("piped");
    until("the owner is told", || {
        let _ = input.write_all(b"x\n"); // fails if the owner has ended already
        owner.0.try_wait().expect("it can be asked").is_some()
    });
    Ok(())
}

fn a_standby_is_heard_when_the_cable_of_an_owner_that_gets_events_is_cut() -> TestOutcome {
    let hosts = Hosts::new()?;
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (_broker, socket, address) = broker(&hosts, directory.path());
    let _owner = owner(&hosts, &address);
    let mut consumers: Vec<Killed> = (0..CONSUMERS)
        .map(|number| {
            let mut subscribes = hosts.command(1, &program::unisono());
            subscribes.args(["events", "subscribe", &format!("flow/{number}"), "--at", &address]);
            start(subscribes)
        })
        .collect();
    let (mut standby, topic) = standby(&socket);
    let flow = |number| Advertisement::new(&format!("flow/{number}"));
    let flows: Vec<_> =
        (0..CONSUMERS).map(|number| standby.advertise(&flow(number)).expect("a topic")).collect();
    let event = EventDraft::new(b"on its way");
    let count = |standby: &mut Client| standby.statistics().expect("it answers").consumers.len();
    until("all consumers are there", || count(&mut standby) == CONSUMERS + 1);
    hosts.cut();
    for flow in flows {
        standby.publish(flow, &event).expect("the broker is there");
        std::thread::sleep(Duration::from_millis(50));
    }
    takes_over(&mut standby, topic);
    until("the consumers are missed", || count(&mut standby) == 1);
    for consumer in &mut consumers {
        until("the consumer is told", || consumer.0.try_wait().expect("it can be asked").is_some());
    }
    Ok(())
}

fn root_without_the_right_to_raise_limits_serves_with_what_it_has_and_says_so() -> TestOutcome {
    unisono_host_tests::require::root()?;
    unisono_host_tests::require::program("setpriv", "apt-get install util-linux")?;
    let directory = tempfile::tempdir().expect("a scratch directory");
    let socket = directory.path().join("events");
    let script = "ulimit -n 512; exec setpriv --bounding-set -sys_resource --inh-caps -sys_resource \"$0\" \
                  events serve --user root --listen \"$1\" --clients 1000";
    let mut serves = Command::new("sh");
    serves.args(["-c", script]).arg(program::unisono()).arg(&socket);
    let mut broker = start(serves);
    let mut said = BufReader::new(broker.0.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(said.any(|line| line.starts_with("note: this process may open 512 files")));
    until("the broker serves", || Client::connect_unix(&socket).is_ok());
    Ok(())
}

host_tests![needs Nothing;
    a_standby_is_heard_and_the_owner_told_when_the_cable_of_an_idle_owner_is_cut within 120,
    a_standby_is_heard_when_the_cable_of_an_owner_that_gets_events_is_cut within 120,
    root_without_the_right_to_raise_limits_serves_with_what_it_has_and_says_so within 120,
];
