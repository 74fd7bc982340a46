//! The quality that suppliers offer and consumers request. The two are compared whenever an offer and a
//! request meet (DDS: requested versus offered, "RxO").
//!
//! | quality | offered by | requested by | fits if |
//! |---|---|---|---|
//! | history | the topic | the consumer | the topic keeps at least the requested depth |
//! | reliability | a supplier, for a topic | the consumer | at least as reliable |
//! | deadline | a supplier, for a topic | the consumer | events are due no later than requested |
//! | share | the policy, for a class | the consumer | the class is guaranteed the requested share |
//!
//! A mismatch names both values. A consumer that names a topic is refused if the topic does not meet its
//! request, or if the topic has offers and none of them does. Every other mismatch leads to a notice to the
//! consumer: one supplier must not be able to lock consumers out of all topics of a pattern, and a consumer
//! must not be able to lock out a topic or an offer that comes later.
//!
//! Reference: OMG Data Distribution Service 1.4, section 2.2.3.

use crate::ids::TopicId;
use crate::topic::HistoryDepth;
use std::fmt;
use unisono_time::{Duration, Instant};

/// Whether an event that was delivered may be lost if its consumer fails. `BestEffort` is the smaller value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Reliability {
    #[default]
    BestEffort,
    /// An event is kept and redelivered until it is acknowledged.
    AtLeastOnce,
}

/// The maximum rate of a supplier; events above it are refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SupplyRate {
    /// The minimum mean time between events, averaged over a burst.
    pub period: Duration,
    /// The maximum number of events in one burst; at least one.
    pub burst: u32,
}

/// Where a supplier's events come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum EventOrigin {
    /// From a program of this channel.
    #[default]
    Local,
    /// From another channel, forwarded by this supplier. Consumers with [`AcceptedOrigins::Local`] do not get
    /// these events, so that two channels that forward each other's events make no loop.
    Remote,
}

/// The owner of a supplier, as a number that the caller chooses; 0 if the caller does not distinguish owners.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SupplierOwner(pub u64);

/// The order in which an inbox dispatches events. A supplier asks for an order with its offer, and a consumer
/// with its inbox; of the two, the later one in this list applies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum DispatchOrder {
    /// The event with the earliest deadline first.
    #[default]
    Deadlines,
    /// Events of one supplier on one topic in the order of publication. An event waits for the earlier ones,
    /// however late these are due.
    Publication,
    /// All events of the inbox in order of arrival.
    Arrival,
}

/// Whether a supplier's offer upholds the declaration of its topic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OfferStanding {
    /// The supplier's program declared the topic as it is.
    #[default]
    Declares,
    /// The supplier takes the topic as others declare it.
    Conforms,
}

/// The suppliers that a full inbox blocks, if it blocks suppliers at all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum BlockedSuppliers {
    #[default]
    All,
    /// The suppliers of one owner. For an event of another supplier the inbox drops its oldest event.
    Of(SupplierOwner),
}

impl BlockedSuppliers {
    /// Returns whether the set has the suppliers of this owner.
    #[must_use]
    pub fn include(self, owner: SupplierOwner) -> bool {
        self == Self::All || self == Self::Of(owner)
    }
}

/// Why a supplier has departed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Departed {
    /// It ended without a failure; see [`withdraw`](crate::EventChannel::withdraw).
    Left,
    /// Its lease ran out, or the caller reported its death ([`bury`](crate::EventChannel::bury)).
    Died,
}

/// The suppliers whose events a consumer gets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AcceptedOrigins {
    #[default]
    All,
    /// Suppliers of [`EventOrigin::Local`] alone.
    Local,
}

impl AcceptedOrigins {
    pub(crate) fn accept(self, origin: EventOrigin) -> bool {
        self == Self::All || origin == EventOrigin::Local
    }
}

/// A supplier's offer for a topic.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Offer {
    pub topic: TopicId,
    /// The type name of the offered events, compared with the topic's.
    pub event_type: Option<std::sync::Arc<str>>,
    pub reliability: Reliability,
    /// The deadline after publication for an event without a deadline of its own. `None`: no deadline.
    pub deadline: Option<Duration>,
    /// The maximum rate of the supplier. `None`: no limit.
    pub rate: Option<SupplyRate>,
    /// The strength decides the owner of a topic with exclusive ownership: the strongest supplier owns it; of
    /// equally strong suppliers, the one with the earliest offer.
    pub strength: u32,
    /// The supplier's weight where a consumer divides its time among suppliers; 0 counts as 1.
    pub share: u32,
    pub order: DispatchOrder,
    pub origin: EventOrigin,
    pub owner: SupplierOwner,
    pub standing: OfferStanding,
}

impl Offer {
    /// Makes an offer with best effort, of any type, without a deadline and a rate, of strength 0.
    #[must_use]
    pub fn new(topic: TopicId) -> Self {
        Self {
            topic,
            event_type: None,
            reliability: Reliability::BestEffort,
            deadline: None,
            rate: None,
            strength: 0,
            share: 1,
            order: DispatchOrder::Deadlines,
            origin: EventOrigin::Local,
            owner: SupplierOwner::default(),
            standing: OfferStanding::Declares,
        }
    }
}

/// The quality that a consumer requests for all its subscriptions.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct QualityRequest {
    pub history: HistoryDepth,
    pub reliability: Reliability,
    /// The maximum time from an event's publication to its deadline. `None`: any deadline fits.
    pub deadline: Option<Duration>,
    /// The fraction of the whole service that the consumer's class must be guaranteed, from 0 to 1.
    pub share: Option<f64>,
}

/// An offer that does not meet a request.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    #[error("history: offered {offered}, requested {requested}")]
    History { offered: HistoryDepth, requested: HistoryDepth },
    #[error("reliability: offered {offered}, requested {requested}")]
    Reliability { offered: Reliability, requested: Reliability },
    #[error("deadline: offered {}, requested {} ns after publication", Due(*offered), requested.as_nanos())]
    Deadline { offered: Option<Duration>, requested: Duration },
    #[error("share: offered {offered:.4}, requested {requested:.4}")]
    Share { offered: f64, requested: f64 },
    /// The queue is shorter than the topic's history. The consumer gets the kept events in pieces, and may
    /// lose some if new events come in the meantime.
    #[error(
        "queue: the topic keeps {kept}, and the queue holds {events} events; ask for a longer queue, or let suppliers wait"
    )]
    Queue { kept: HistoryDepth, events: usize },
}

struct Due(Option<Duration>);

impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(deadline) => write!(f, "{} ns", deadline.as_nanos()),
        }
    }
}

impl fmt::Display for Reliability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BestEffort => "best effort",
            Self::AtLeastOnce => "at least once",
        })
    }
}

impl QualityRequest {
    /// Checks that a topic keeps the requested history.
    ///
    /// # Errors
    /// The topic keeps less.
    pub fn meets_topic(&self, offered: HistoryDepth) -> Result<(), Mismatch> {
        let fits = match (offered, self.history) {
            (_, HistoryDepth::None) => true,
            (HistoryDepth::LastValue { keys: offered }, HistoryDepth::LastValue { keys }) => offered >= keys,
            (HistoryDepth::Last { events: offered }, HistoryDepth::Last { events }) => offered >= events,
            _ => false,
        };
        match fits {
            true => Ok(()),
            false => Err(Mismatch::History { offered, requested: self.history }),
        }
    }

    /// Checks that a supplier offers the requested reliability and deadline.
    ///
    /// # Errors
    /// The supplier offers less.
    pub fn meets_offer(&self, offer: &Offer) -> Result<(), Mismatch> {
        if offer.reliability < self.reliability {
            return Err(Mismatch::Reliability { offered: offer.reliability, requested: self.reliability });
        }
        match self.deadline {
            Some(requested) if offer.deadline.is_none_or(|offered| offered > requested) => {
                Err(Mismatch::Deadline { offered: offer.deadline, requested })
            }
            _ => Ok(()),
        }
    }

    /// Checks that a class is guaranteed the requested share.
    ///
    /// # Errors
    /// The class is guaranteed less.
    pub fn meets_share(&self, offered: f64) -> Result<(), Mismatch> {
        match self.share {
            Some(requested) if requested > offered => Err(Mismatch::Share { offered, requested }),
            _ => Ok(()),
        }
    }
}

/// Enforces a supplier's rate by virtual scheduling, the generic cell rate algorithm of ITU-T I.371.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateMeter {
    /// The theoretical arrival time: when the next event would come if all events came evenly.
    expected: Instant,
}

impl RateMeter {
    /// Accepts an event. If the event exceeds the rate, leaves the meter unchanged and returns the earliest
    /// time for a new attempt as the error.
    pub(crate) fn admit(&mut self, now: Instant, rate: SupplyRate) -> Result<(), Instant> {
        let allowed = self.expected - rate.period * u64::from(rate.burst.max(1) - 1);
        if now < allowed {
            return Err(allowed);
        }
        self.expected = self.expected.max(now) + rate.period;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_may_come_at_once_and_then_the_period_holds() {
        let (mut meter, rate) =
            (RateMeter::default(), SupplyRate { period: Duration::from_nanos(100), burst: 3 });
        let mut admit = |now: u64| meter.admit(Instant::from_nanos(now), rate);
        assert_eq!([admit(1000), admit(1000), admit(1000)], [Ok(()); 3]);
        assert_eq!(admit(1000), Err(Instant::from_nanos(1100)));
        assert_eq!((admit(1100), admit(1150)), (Ok(()), Err(Instant::from_nanos(1200))));
    }

    #[test]
    fn a_mismatch_names_both_values() {
        let request = QualityRequest {
            history: HistoryDepth::Last { events: 10 },
            reliability: Reliability::AtLeastOnce,
            deadline: Some(Duration::from_nanos(500)),
            share: Some(0.5),
        };
        let mut offer = Offer::new(TopicId(0));
        let said = |of: Result<(), Mismatch>| of.expect_err("they do not fit").to_string();
        assert_eq!(
            said(request.meets_topic(HistoryDepth::Last { events: 9 })),
            "history: offered the last 9 events, requested the last 10 events"
        );
        assert_eq!(
            said(request.meets_offer(&offer)),
            "reliability: offered best effort, requested at least once"
        );
        offer.reliability = Reliability::AtLeastOnce;
        assert_eq!(
            said(request.meets_offer(&offer)),
            "deadline: offered none, requested 500 ns after publication"
        );
        offer.deadline = Some(Duration::from_nanos(501));
        assert_eq!(
            said(request.meets_offer(&offer)),
            "deadline: offered 501 ns, requested 500 ns after publication"
        );
        offer.deadline = Some(Duration::from_nanos(500));
        assert_eq!(request.meets_offer(&offer), Ok(()));
        assert_eq!(said(request.meets_share(0.25)), "share: offered 0.2500, requested 0.5000");
        assert_eq!(request.meets_share(0.5), Ok(()));
    }
}
