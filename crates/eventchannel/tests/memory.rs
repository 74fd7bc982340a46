//! Compares the bytes of kept and of unacknowledged events with the sums over plain lists.

use crate::common::{Bench, Bytes, Dice, classes, event, sized};
use proptest::prelude::*;
use unisono_eventchannel::*;
use unisono_time::Instant;

const CLIENTS: usize = 3;
const MAX_PER_CLIENT: usize = 3000;
const MAX_PER_USER: usize = 4500;
const MAX_ALL: usize = 6000;

/// Returns the user of a client: clients 0 and 1 belong to one user, clients 2 and 3 to the next one, and so
/// on.
fn user(client: usize) -> usize {
    client / 2
}

fn terms(client: usize) -> KeepingTerms {
    let account = |number: usize| KeepingAccount(u32::try_from(number).expect("small"));
    KeepingTerms {
        client: (account(client), MAX_PER_CLIENT),
        user: (account(user(client)), MAX_PER_USER),
        all: MAX_ALL,
    }
}

const TOPICS: [HistoryDepth; 4] = [
    HistoryDepth::None,
    HistoryDepth::LastValue { keys: 2 },
    HistoryDepth::Last { events: 3 },
    HistoryDepth::LastValue { keys: 1 },
];

/// A kept event: key, cost in bytes, client.
type Kept = (u8, usize, usize);

/// The kept events of each topic.
#[derive(Clone, Default)]
struct Naive {
    history: [Vec<Kept>; TOPICS.len()],
    retained: [Option<Kept>; TOPICS.len()],
}

impl Naive {
    fn sum(&self, of: impl Fn(usize) -> bool) -> usize {
        let all = self.history.iter().flatten().chain(self.retained.iter().flatten());
        all.filter(|(_, _, client)| of(*client)).map(|(_, cost, _)| *cost).sum()
    }

    fn publish(&mut self, topic: usize, kept: Kept, retention: Retention) {
        let history = &mut self.history[topic];
        if let HistoryDepth::LastValue { .. } = TOPICS[topic] {
            history.retain(|(key, ..)| *key != kept.0);
        }
        history.push(kept);
        while history.len() > TOPICS[topic].max_events() {
            history.remove(0);
        }
        match retention {
            Retention::AsTopic => {}
            Retention::Retain => self.retained[topic] = Some(kept),
            Retention::Remove => self.retained[topic] = None,
        }
    }

    /// Returns the first bound that is exceeded and whose sum has grown, if any.
    fn refuses(&self, before: &Self, client: usize) -> Option<KeptBy> {
        let over = |of: &dyn Fn(usize) -> bool, most| self.sum(of) > most && self.sum(of) > before.sum(of);
        if over(&|other| other == client, MAX_PER_CLIENT) {
            Some(KeptBy::Client)
        } else if over(&|other| user(other) == user(client), MAX_PER_USER) {
            Some(KeptBy::User)
        } else {
            over(&|_| true, MAX_ALL).then_some(KeptBy::All)
        }
    }
}

proptest! {
    #[test]
    fn what_topics_keep_is_what_lists_add_up_to_and_never_above_any_bound(
        steps in prop::collection::vec(
            (0..TOPICS.len(), 0..CLIENTS, 0..4_u8, 0..1500_usize, 0..8_u8), 1..120,
        ),
    ) {
        let mut channel: EventChannel<Bytes> = EventChannel::new(classes(&[("rest", 1)]), ChannelLimits::default());
        let supplier = channel.supplier(Instant::ZERO, None).expect("room");
        let declare = |channel: &mut EventChannel<Bytes>, at: usize| {
            let spec = TopicSpec::new(&format!("t/{at}")).expect("a name").keeping(TOPICS[at]);
            let topic = channel.declare(spec).expect("room");
            channel.offer(supplier, Offer::new(topic)).expect("no type");
            topic
        };
        let topics: Vec<_> = (0..TOPICS.len()).map(|at| declare(&mut channel, at)).collect();
        let mut naive = Naive::default();
        for (at, client, key, bytes, how) in steps {
            let retention = match how {
                0 | 1 => Retention::Retain,
                2 => Retention::Remove,
                _ => Retention::AsTopic,
            };
            let key_text = "k".repeat(key.into());
            let fields = if how == 7 { FieldSet::new().with("name", "text") } else { FieldSet::new() };
            let field_bytes = if how == 7 { size_of::<(std::sync::Arc<str>, FieldValue)>() + 8 } else { 0 };
            let cost = KEPT_ENTRY + bytes + key_text.len() + field_bytes;
            let mut after = naive.clone();
            after.publish(at, (key, cost, client), retention);
            let expected = after.refuses(&naive, client);
            let keeping = KeepingTerms { all: MAX_ALL + channel.named(), ..terms(client) };
            let publication = Publication { retention, keeping, ..sized(bytes) };
            let publication = publication.keyed(key_text).with_fields(fields);
            match (channel.try_publish(Instant::ZERO, supplier, topics[at], publication), expected) {
                (Ok(_), None) => naive = after,
                (Err(PublishError::KeptFull { whose, .. }), Some(expected)) => prop_assert_eq!(whose, expected),
                (got, expected) => prop_assert!(false, "{got:?} where {expected:?} refuses"),
            }
            prop_assert_eq!(channel.kept(), naive.sum(|_| true));
            prop_assert!(channel.kept() <= MAX_ALL);
            for client in 0..CLIENTS {
                let kept = channel.kept_of(KeptBy::Client, terms(client).client.0);
                prop_assert_eq!(kept, naive.sum(|other| other == client));
                prop_assert!(kept <= MAX_PER_CLIENT);
                let kept = channel.kept_of(KeptBy::User, terms(client).user.0);
                prop_assert_eq!(kept, naive.sum(|other| user(other) == user(client)));
            }
        }
        channel.withdraw(supplier);
        topics.into_iter().for_each(|topic| channel.retire(topic).expect("nobody offers it"));
        prop_assert_eq!(channel.kept(), 0);
    }

    #[test]
    fn a_consumer_has_no_more_bytes_unacknowledged_than_its_queue_holds_and_one_event(
        seed: u64, window in 1..20_usize, capacity in 300..6000_usize,
    ) {
        const MAX_EVENT_BYTES: usize = 2000;
        let mut dice = Dice(seed);
        let mut bench = Bench::new(&[("rest", 1)]);
        let topic = bench.topic("t");
        let redelivery = Redelivery { after: Duration::from_nanos(50), attempts: 3, window };
        let inbox = InboxSpec {
            capacity: InboxCapacity { events: 100, bytes: capacity },
            redelivery: Some(redelivery),
            ..InboxSpec::default()
        };
        let reader = bench.reader("t", inbox);
        // delivered events, neither acknowledged nor due for redelivery: number, cost, time of redelivery
        let mut outstanding: Vec<(u64, usize, u64)> = Vec::new();
        let mut now = 1;
        for _ in 0..300 {
            match dice.below(5) {
                0 | 1 => bench.publish(now, topic, sized(dice.below(MAX_EVENT_BYTES as u64) as usize)),
                2 if !outstanding.is_empty() => {
                    let at = dice.below(outstanding.len() as u64) as usize;
                    let (number, ..) = outstanding.remove(at);
                    prop_assert_eq!(bench.channel.acknowledge(reader, number), Acknowledged::Done);
                }
                3 => {
                    now += dice.below(20);
                    bench.channel.advance(Instant::from_nanos(now));
                    outstanding.retain(|(.., again)| *again > now);
                }
                _ => {
                    let sum: usize = outstanding.iter().map(|(_, cost, _)| cost).sum();
                    let takes = outstanding.len() < window && (outstanding.is_empty() || sum < capacity);
                    let waits = bench.channel.waiting(reader) > 0;
                    let got = bench.next(now).and_then(|it| it.event);
                    prop_assert_eq!(got.is_some(), takes && waits);
                    outstanding.extend(got.map(|it| {
                        let cost = KEPT_ENTRY + it.event.payload.len();
                        (it.acknowledgement.expect("it redelivers"), cost, now + 50)
                    }));
                }
            }
            let sum: usize = outstanding.iter().map(|(_, cost, _)| cost).sum();
            prop_assert_eq!(bench.channel.unacknowledged_bytes(reader), sum);
            prop_assert!(sum < capacity + KEPT_ENTRY + MAX_EVENT_BYTES);
        }
    }
}

#[test]
fn who_keeps_too_much_is_refused_with_the_bound_and_others_go_on() {
    let mut channel: EventChannel<Bytes> =
        EventChannel::new(classes(&[("rest", 1)]), ChannelLimits::default());
    let supplier = channel.supplier(Instant::ZERO, None).expect("room");
    let spec = TopicSpec::new("t").expect("a name").keeping(HistoryDepth::Last { events: 100 });
    let topic = channel.declare(spec).expect("room");
    channel.offer(supplier, Offer::new(topic)).expect("no type");
    let mut publish = |client, bytes| {
        let publication = Publication { keeping: terms(client), ..sized(bytes) };
        channel.try_publish(Instant::ZERO, supplier, topic, publication).map(drop)
    };
    publish(0, 2000).expect("it fits");
    let refused = publish(0, 2000).expect_err("more than a client's");
    assert!(refused.to_string().contains("this client may have 3000 bytes kept"), "{refused}");
    publish(1, 1000).expect("another client of the user");
    let refused = publish(1, 1000).expect_err("more than a user's");
    assert!(refused.to_string().contains("the programs of one user may have 4500 bytes"), "{refused}");
    publish(2, 1000).expect("another user");
    let refused = publish(2, 1000).expect_err("more than all have");
    assert!(refused.to_string().contains("all together may have 6000 bytes"), "{refused}");
    let unbounded = channel.try_publish(Instant::ZERO, supplier, topic, event()).map(drop);
    unbounded.expect("terms of its own");
}

#[test]
fn a_topic_that_is_declared_anew_pays_for_its_new_type_on_the_account_of_the_new_declarer() {
    let mut channel: EventChannel<Bytes> =
        EventChannel::new(classes(&[("rest", 1)]), ChannelLimits::default());
    let (one, other) = (TenantId(1), TenantId(2));
    let spec = |bytes: usize| TopicSpec::new("t").expect("a name").typed(&"x".repeat(bytes));
    // the topic is declared provisionally, so a later declaration sets its parameters although a supplier
    // uses it
    let topic = channel.declare_for_now((one, &terms(0)), "t").expect("room");
    let supplier = channel.supplier(Instant::ZERO, None).expect("room");
    channel.offer(supplier, Offer::new(topic)).expect("no type");
    let short = channel.named();
    let refused = channel.declare_by((one, &terms(0)), spec(MAX_PER_CLIENT)).expect_err("too long");
    assert!(matches!(refused, ChannelError::NamesFull { whose: KeptBy::Client, .. }), "{refused}");
    assert_eq!((channel.named(), channel.kept_of(KeptBy::Client, terms(0).client.0)), (short, short));
    channel.declare_by((other, &terms(2)), spec(500)).expect("it fits");
    assert_eq!(channel.named(), short + 500);
    assert_eq!(channel.kept_of(KeptBy::Client, terms(0).client.0), 0);
    assert_eq!(channel.kept_of(KeptBy::Client, terms(2).client.0), short + 500);
    assert!(!channel.has_tenant(one) && channel.has_tenant(other));
    channel.withdraw(supplier);
    assert_eq!(channel.retire_unused(), 1);
    assert_eq!((channel.named(), channel.has_tenant(other)), (0, false));
}
