//! Measures the cost of an event in the channel, from its publication to the end of its delivery, as a
//! function of the number of subscriptions, two of which match.

use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration as StdDuration;
use unisono_eventchannel::{
    ChannelLimits, ConsumerSpec, EventChannel, FieldSet, Interest, Offer, Publication, TopicSpec,
};
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_linux::clock::{self, Duration, Instant};

/// The filter of the subscriptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubscriptionKind {
    /// Every pair of consecutive subscriptions has a topic of its own.
    Topic,
    /// `sensor == 7 and site == "roof"`
    #[default]
    Equal,
    /// `level >= 7 and level < 8`
    Range,
    /// `level > 2000007`, and `level > 0` for two of them: a range without an upper end
    Half,
    /// `name starts_with "n7-"`
    Prefix,
    /// `site == "roof" and (sensor == 7 or level > 1000000) and not closed`
    Mixed,
}

/// The number of subscriptions of one consumer.
const SUBSCRIPTIONS_PER_CONSUMER: u32 = 10;
/// The number of events between two readings of the clock.
const BATCH: u32 = 1000;
const TOPIC: &str = "plant/0/hot";

/// Makes the topic and filter of subscription `at`. Every pair of consecutive subscriptions has the same
/// topic and filter.
fn build_interest(kind: SubscriptionKind, at: u32) -> Result<Interest, String> {
    let at = at / 2;
    let (pattern, filter) = match kind {
        SubscriptionKind::Topic => (format!("plant/{at}/hot"), None),
        SubscriptionKind::Equal => {
            ("plant/#".to_owned(), Some(format!("sensor == {at} and site == \"roof\"")))
        }
        SubscriptionKind::Range => {
            ("plant/#".to_owned(), Some(format!("level >= {at} and level < {}", at + 1)))
        }
        SubscriptionKind::Half => {
            let least = if at == 0 { 0 } else { 2_000_000 + at };
            ("plant/#".to_owned(), Some(format!("level > {least}")))
        }
        SubscriptionKind::Prefix => ("plant/#".to_owned(), Some(format!("name starts_with \"n{at}-\""))),
        SubscriptionKind::Mixed => (
            "plant/#".to_owned(),
            Some(format!("site == \"roof\" and (sensor == {at} or level > 1000000) and not closed")),
        ),
    };
    let pattern = pattern.parse().map_err(|error: unisono_eventchannel::NameError| error.to_string())?;
    let interest = Interest::in_topics(pattern);
    let Some(filter) = filter else { return Ok(interest) };
    let filter = filter.parse().map_err(|error: unisono_eventchannel::FilterError| error.to_string())?;
    Ok(interest.filtered(filter))
}

/// Measures the nanoseconds per event among `subscriptions` subscriptions for the duration `time`.
///
/// # Errors
/// The channel refuses a subscription, or the number of matching subscriptions is not two.
pub fn measure(kind: SubscriptionKind, subscriptions: u32, time: StdDuration) -> Result<f64, String> {
    let said = |error: unisono_eventchannel::ChannelError| error.to_string();
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let mut channel = EventChannel::new(tree.map_err(|error| error.to_string())?, ChannelLimits::default());
    let supplier = channel.supplier(Instant::ZERO, None).map_err(said)?;
    let topic = TopicSpec::new(TOPIC).map_err(|error| error.to_string())?;
    let topic = channel.declare(topic).map_err(said)?;
    channel.offer(supplier, Offer::new(topic)).map_err(said)?;
    let mut consumer = None;
    for at in 0..subscriptions {
        let of = match consumer.filter(|_| at % SUBSCRIPTIONS_PER_CONSUMER != 0) {
            Some(of) => of,
            None => channel.connect(Instant::ZERO, ConsumerSpec::new(&at.to_string())).map_err(said)?,
        };
        consumer = Some(of);
        channel.subscribe(Instant::ZERO, of, build_interest(kind, at)?).map_err(said)?;
    }
    let payload: Arc<[u8]> = vec![0; 1024].into();
    let fields =
        FieldSet::new().with("sensor", 0).with("site", "roof").with("level", 0.5).with("name", "n0-x");
    let fields = fields.with("closed", false);
    let (mut now, mut delivered) = (Instant::ZERO, 0_u64);
    let mut batch = || -> Result<(), String> {
        for _ in 0..BATCH {
            now += Duration::from_nanos(100);
            let event = Publication::new(Arc::clone(&payload)).with_fields(fields.clone());
            channel.try_publish(now, supplier, topic, event).map_err(|error| error.to_string())?;
            while let Some(delivery) = channel.next(now) {
                black_box(delivery);
                channel.finish(now, None);
                delivered += 1;
            }
        }
        Ok(())
    };
    batch()?;
    let (start, mut events) = (clock::now(), 0_u64);
    while clock::now() - start < time.into() {
        batch()?;
        events += u64::from(BATCH);
    }
    let took = (clock::now() - start).as_nanos() as f64 / events.max(1) as f64;
    // both matching subscriptions belong to the first consumer, which gets each event once
    if delivered != events + u64::from(BATCH) {
        return Err(format!("{delivered} of {} events were delivered", events + u64::from(BATCH)));
    }
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_consumer_gets_every_event_whatever_the_number_of_subscriptions() {
        use SubscriptionKind::{Equal, Half, Mixed, Prefix, Range, Topic};
        for kind in [Topic, Equal, Range, Half, Prefix, Mixed] {
            for subscriptions in [10, 200] {
                let took = measure(kind, subscriptions, StdDuration::from_micros(1)).expect("measured");
                assert!(took > 0.0, "{kind:?} {subscriptions}");
            }
        }
    }
}
