//! Correlation: several events that are delivered together (Shenoy et al., section 2.3.2; conjunction and
//! disjunction groups in TAO's event service).
//!
//! A correlation has parts, each an interest of its own. The event that completes it is delivered, together
//! with the events of the other parts. Then the correlation begins anew: no event is part of two deliveries.
//!
//! | rule | complete when |
//! |---|---|
//! | any | one part has come |
//! | all | all parts have come within the time, in any order; only the latest event of each part counts |
//! | sequence | all parts have come within the time, in their order |
//!
//! Cost: for a sequence one chain of events for each of its parts. Of several chains of equal length, the
//! channel keeps only the chain that began last: any event that could complete an earlier chain completes
//! this one, too. Reference: Chakravarthy, Mishra, "Snoop" (1994), its recent context.

use crate::event::{ChannelEvent, EventPayload};
use crate::index::Interest;
use std::sync::Arc;
use unisono_time::{Duration, Instant};

/// Maximum number of parts. Each costs a subscription, and a matching event is compared with all of them.
/// Chosen, not measured.
pub const MAX_PARTS: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CorrelationRule {
    Any,
    All,
    Sequence,
}

/// Whether a consumer gets a notice when a correlation times out incomplete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Incomplete {
    Forget,
    Report,
}

/// A set of interests whose events a consumer wants together.
///
/// ```
/// use unisono_eventchannel::{
///     ChannelLimits, ClassSpec, ConsumerSpec, Correlation, CorrelationRule, Duration, EventChannel,
///     Hierarchy, Incomplete, Instant, Interest, Offer, Publication, TopicSpec,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let classes = Hierarchy::new(ClassSpec::new("all"))?.with_default("rest")?;
/// let mut channel: EventChannel<Vec<u8>> = EventChannel::new(classes, ChannelLimits::default());
/// let heat = channel.declare(TopicSpec::new("heat")?)?;
/// let smoke = channel.declare(TopicSpec::new("smoke")?)?;
/// let supplier = channel.supplier(Instant::ZERO, None)?;
/// channel.offer(supplier, Offer::new(heat))?;
/// channel.offer(supplier, Offer::new(smoke))?;
/// let reader = channel.connect(Instant::ZERO, ConsumerSpec::new("fire"))?;
/// channel.correlate(
///     reader,
///     Correlation {
///         parts: vec![Interest::in_topics("heat".parse()?), Interest::in_topics("smoke".parse()?)],
///         rule: CorrelationRule::All,
///         within: Duration::SECOND,
///         incomplete: Incomplete::Forget,
///     },
/// )?;
/// channel.try_publish(Instant::from_nanos(1), supplier, heat, Publication::new(b"hot".to_vec()))?;
/// assert!(channel.next(Instant::from_nanos(2)).is_none());
/// channel.try_publish(Instant::from_nanos(3), supplier, smoke, Publication::new(b"grey".to_vec()))?;
/// let delivery = channel.next(Instant::from_nanos(4)).ok_or("both have come")?;
/// let fire = delivery.event.ok_or("an event")?;
/// assert_eq!(fire.with.len(), 1, "the other event comes with it");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Correlation {
    /// From one to [`MAX_PARTS`].
    pub parts: Vec<Interest>,
    pub rule: CorrelationRule,
    /// The maximum time from the first event to the last.
    pub within: Duration,
    pub incomplete: Incomplete,
}

/// Events in the order of the parts.
type Chain<P> = Vec<Arc<ChannelEvent<P>>>;

#[derive(Debug)]
pub(crate) struct Correlator<P> {
    rule: CorrelationRule,
    within: Duration,
    /// For the rule `All`: the last event of each part, as a chain of length one. For `Sequence`: for each
    /// part, the chain that ends with an event of that part.
    chains: Vec<Option<Chain<P>>>,
}

impl<P> Correlator<P> {
    pub(crate) fn new(correlation: &Correlation) -> Self {
        let chains = correlation.parts.iter().map(|_| None).collect();
        Self { rule: correlation.rule, within: correlation.within, chains }
    }

    /// Returns whether the rule and the time equal the rule and the time of a correlation.
    pub(crate) fn follows(&self, correlation: &Correlation) -> bool {
        self.rule == correlation.rule && self.within == correlation.within
    }

    /// Adds an event that matches `parts`, which are in ascending order. Returns the complete correlation if
    /// the event completes it.
    pub(crate) fn feed(&mut self, event: &Arc<ChannelEvent<P>>, parts: &[usize]) -> Option<Chain<P>> {
        self.expire(event.published);
        let complete = match self.rule {
            CorrelationRule::Any => Some(vec![Arc::clone(event)]),
            CorrelationRule::All => {
                for part in parts {
                    self.chains[*part] = Some(vec![Arc::clone(event)]);
                }
                self.chains.iter().all(Option::is_some).then(|| {
                    let others =
                        self.chains.iter().flatten().flatten().filter(|other| !Arc::ptr_eq(other, event));
                    others.chain([event]).map(Arc::clone).collect()
                })
            }
            CorrelationRule::Sequence => {
                // the last part first, so that the event cannot be its own predecessor
                for part in parts.iter().rev() {
                    let before = match part {
                        0 => Some(Vec::new()),
                        part => {
                            self.chains[part - 1].as_ref().map(|chain| chain.iter().map(Arc::clone).collect())
                        }
                    };
                    if let Some(mut chain) = before {
                        chain.push(Arc::clone(event));
                        self.chains[*part] = Some(chain);
                    }
                }
                self.chains.last_mut().and_then(Option::take)
            }
        };
        if complete.is_some() {
            self.chains.iter_mut().for_each(|chain| *chain = None);
        }
        complete
    }

    /// Returns the events of all incomplete chains.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Arc<ChannelEvent<P>>> {
        self.chains.iter().flatten().flatten()
    }

    /// Drops the oldest chains until the waiting events take at most `bytes` bytes of a queue; returns
    /// whether it dropped a chain.
    pub(crate) fn drop_beyond(&mut self, bytes: usize) -> bool
    where
        P: EventPayload,
    {
        let mut dropped = false;
        while self.weight() > bytes {
            let began = |chain: &Option<Chain<P>>| chain.as_ref()?.first().map(|event| event.published);
            let waiting = self.chains.iter_mut().filter(|chain| chain.is_some());
            let Some(oldest) = waiting.min_by_key(|chain| began(chain)) else { break };
            *oldest = None;
            dropped = true;
        }
        dropped
    }

    /// Returns how many bytes of a queue the events of incomplete chains take, each event counted once.
    pub(crate) fn weight(&self) -> usize
    where
        P: EventPayload,
    {
        let mut events: Vec<_> = self.events().collect();
        events.sort_unstable_by_key(|event| Arc::as_ptr(event));
        events.dedup_by_key(|event| Arc::as_ptr(event));
        events.into_iter().map(|event| event.weight()).fold(0, usize::saturating_add)
    }

    /// Returns the last time at which a chain that began at `began` can be completed.
    pub(crate) fn end(&self, began: Instant) -> Instant {
        began + self.within
    }

    /// Drops timed-out chains. Returns the start time of the oldest remaining chain.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Instant> {
        let mut oldest = None;
        let within = self.within;
        for chain in &mut self.chains {
            let Some(began) = chain.as_ref().and_then(|chain| chain.first()).map(|event| event.published)
            else {
                continue;
            };
            if began + within < now {
                *chain = None;
            } else {
                oldest = Some(oldest.map_or(began, |oldest: Instant| oldest.min(began)));
            }
        }
        oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Criticality, NO_DEADLINE};
    use crate::ids::{SupplierId, TopicId};
    use crate::quality::{DispatchOrder, EventOrigin};
    use crate::value::FieldSet;
    use proptest::prelude::*;

    fn event(sequence: u64, published: u64) -> Arc<ChannelEvent<Vec<u8>>> {
        Arc::new(ChannelEvent {
            topic: TopicId(0),
            key: None,
            fields: FieldSet::new(),
            payload: Vec::new(),
            supplier: SupplierId(0),
            origin: EventOrigin::Local,
            share: 1,
            order: DispatchOrder::Deadlines,
            sequence,
            published: Instant::from_nanos(published),
            deadline: NO_DEADLINE,
            criticality: Criticality::default(),
        })
    }

    /// The time of each event and the parts that it matches.
    type Past = [(u64, Vec<usize>)];

    /// Returns whether events at or after the time `from` match the parts `0..=part` in order, with the event
    /// at index `last` for the last of them.
    fn follows(past: &Past, last: usize, part: usize, from: u64) -> bool {
        past[last].0 >= from
            && past[last].1.contains(&part)
            && (part == 0 || (0..last).any(|before| follows(past, before, part - 1, from)))
    }

    proptest! {
        #[test]
        fn a_correlation_is_complete_when_a_search_through_the_past_finds_its_parts(
            sequence: bool, parts in 1..4_usize, within in 0..12_u64,
            events in prop::collection::vec((0..4_u64, prop::collection::btree_set(0..3_usize, 0..3)), 0..40),
        ) {
            let rule = if sequence { CorrelationRule::Sequence } else { CorrelationRule::All };
            let interest = Interest::in_topics("t".parse().expect("a pattern"));
            let correlation = Correlation { parts: vec![interest; parts], rule, within: Duration::from_nanos(within), incomplete: Incomplete::Forget };
            let mut correlator = Correlator::new(&correlation);
            let (mut now, mut past) = (100, Vec::new());
            for (at, (later, matched)) in (0..).zip(events) {
                now += later;
                let matched: Vec<usize> = matched.into_iter().filter(|part| *part < parts).collect();
                if matched.is_empty() {
                    continue;
                }
                past.push((now, matched.clone()));
                let from = now - within;
                let expected = match sequence {
                    true => follows(&past, past.len() - 1, parts - 1, from),
                    false => (0..parts).all(|part| past.iter().any(|(at, matched)| *at >= from && matched.contains(&part))),
                };
                let got = correlator.feed(&event(at, now), &matched);
                prop_assert_eq!(got.is_some(), expected);
                if let Some(got) = got {
                    prop_assert!(got.iter().all(|event| event.published.as_nanos() >= from));
                    prop_assert_eq!(got.last().map(|event| event.sequence), Some(at));
                    past.clear();
                }
            }
        }
    }
}
