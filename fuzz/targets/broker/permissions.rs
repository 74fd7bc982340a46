//! Any file of permissions or of tokens is refused with a position in it, or read. A client that may
//! subscribe to a pattern may subscribe to each name that the pattern matches. The first two lines are a
//! pattern and a name, the others are the file.
#![no_main]

use unisono_events_wire::transport::TransportPeer;
use unisono_broker::{Broker, ClientId, Limits, Permissions, PermissionsError, Task, Tokens};
use unisono_events_wire::{Greeting, Instant, SubscriptionSpec, TopicPattern};
use unisono_events_wire::Frame;
use unisono_fairqueue::{ClassSpec, Hierarchy};

const CLIENT: ClientId = ClientId(1);
/// The user of the client; `unix:me` names it, too.
const USER: u32 = 7;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut parts = text.splitn(3, '\n');
    let (Some(pattern), Some(name), Some(file)) = (parts.next(), parts.next(), parts.next()) else { return };
    if let Err(error) = Tokens::parse(file, Instant::from_nanos(1), 0) {
        is_within(file, &error);
    }
    let permissions = match Permissions::parse(file, &|user| (user == "me").then_some(USER)) {
        Ok(permissions) => permissions,
        Err(error) => return is_within(file, &error),
    };
    if let Err(error) = permissions.check_classes(&["rest"]) {
        is_within(file, &error);
    }
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let mut broker = Broker::new(tree.expect("it is sound"), Limits::default()).with_permissions(permissions);
    assert!(broker.connected(Instant::from_nanos(1), CLIENT, TransportPeer::User(USER)));
    if !send(&mut broker, &Frame::Hello(Greeting::default())) {
        return;
    }
    let may_all = subscribes(&mut broker, 1, pattern);
    let may_one = subscribes(&mut broker, 2, name);
    let is_name = !name.contains(['+', '#']) && name.parse::<TopicPattern>().is_ok();
    if may_all && is_name && pattern.parse::<TopicPattern>().is_ok_and(|pattern| pattern.matches(name)) {
        // the class, the memory and the like are the same
        assert!(may_one, "{pattern} {name}");
    }
});

fn subscribes(broker: &mut Broker, number: u32, pattern: &str) -> bool {
    // small queues: both fit into any memory that the first one fits into
    let spec = SubscriptionSpec { queue_events: 1, queue_bytes: 1, ..SubscriptionSpec::new(pattern) };
    let accepted = send(broker, &Frame::Subscribe { number, spec: Box::new(spec) });
    if accepted {
        send(broker, &Frame::Unsubscribe { number });
    }
    accepted
}

/// Sends a frame to the broker; returns whether the broker accepts it.
fn send(broker: &mut Broker, frame: &Frame<'_>) -> bool {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    let _ = broker.received(Instant::from_nanos(1), CLIENT, &bytes, None);
    let mut agrees = false;
    while let Some(task) = broker.task() {
        if let Task::Answer { head, .. } = task {
            let answer = Frame::read(&head).expect("a program gets frames");
            agrees |= matches!(answer, Frame::Accepted { .. } | Frame::Welcome(_));
        }
    }
    agrees
}

/// Checks that an error's position is in the file.
fn is_within(file: &str, error: &PermissionsError) {
    assert!((1..=file.split('\n').count()).contains(&error.at.line), "{error}");
    assert!(error.at.column >= 1 && !error.what.is_empty(), "{error}");
}
