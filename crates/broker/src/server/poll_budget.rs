//! The time that a broker polls for the next frame before it sleeps.
//!
//! A spinning broker serves each frame at once, and takes a processor. Where suppliers reach their consumers
//! through rings in shared memory, no event passes through the broker: there the broker would only take the
//! processor that the supplier or the consumer needs. So while rings are in use, the broker sleeps once no
//! frame has come for [`BESIDE_RINGS`], and spins again when the next frame comes.

use unisono_events_wire::ChannelWait;
use unisono_linux::clock::{Duration, Instant};
use unisono_sync::PollBudget;

/// While rings are in use, the broker sleeps after this time without a frame. For a program that sends 200
/// events per second or more through the broker, the broker stays awake. A program that uses rings reports
/// their counters to the broker ten times a second; polling for 5 ms after each report takes a twentieth of a
/// processor.
const BESIDE_RINGS: Duration = Duration::from_millis(5);

/// Whether suppliers use rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EventsPass {
    Broker,
    /// The events of some topics go through rings.
    Rings,
}

#[derive(Debug)]
pub(super) struct FramePollBudget {
    alone: PollBudget,
    /// The budget while rings are in use. `None`: the same as without rings, so it need not be determined
    /// whether there are rings.
    beside_rings: Option<PollBudget>,
}

impl FramePollBudget {
    pub(super) fn new(wait: ChannelWait) -> Self {
        let alone = wait.budget();
        // only an endless budget needs a limit while rings are in use; any other budget ends by itself
        let rests = alone == PollBudget::Endless;
        Self { alone, beside_rings: rests.then(|| PollBudget::lasting(BESIDE_RINGS)) }
    }

    /// Renews the budget, because a frame has come. The clock is read only if necessary.
    pub(super) fn renew(&mut self, pass: impl FnOnce() -> EventsPass, now: impl Fn() -> Instant) {
        self.alone.renew(&now);
        if let Some(beside_rings) = &mut self.beside_rings
            && pass() == EventsPass::Rings
        {
            beside_rings.renew(now);
        }
    }

    /// Returns whether to poll once more. The clock is read only if necessary.
    pub(super) fn is_left(&self, pass: impl FnOnce() -> EventsPass, now: impl Fn() -> Instant) -> bool {
        match &self.beside_rings {
            Some(beside_rings) if pass() == EventsPass::Rings => beside_rings.is_left(now),
            _ => self.alone.is_left(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// Returns the number of polls within a second, if a poll takes 1 us and a frame comes every
    /// `frame_every_us`.
    fn polls(wait: ChannelWait, pass: EventsPass, frame_every_us: u64) -> u64 {
        let mut budget = FramePollBudget::new(wait);
        let (mut now_us, mut looks) = (0, 0);
        while now_us < SECOND {
            let clock = || Instant::from_nanos(now_us * 1000);
            if now_us % frame_every_us == 0 {
                budget.renew(|| pass, clock);
            }
            if budget.is_left(|| pass, clock) {
                looks += 1;
                now_us += 1;
            } else {
                // it sleeps until the next frame
                now_us = (now_us / frame_every_us + 1) * frame_every_us;
            }
        }
        looks
    }

    #[test]
    fn a_spinning_broker_rests_beside_rings_while_no_frame_comes() {
        use ChannelWait::Spin;
        assert_eq!(polls(Spin, EventsPass::Broker, 100_000), SECOND, "without rings it spins");
        // ten frames a second, and 5 ms of polling after each
        assert_eq!(polls(Spin, EventsPass::Rings, 100_000), SECOND / 20);
        assert_eq!(polls(Spin, EventsPass::Rings, SECOND), 5_000);
    }

    #[test]
    fn a_broker_that_serves_other_topics_spins_beside_rings_too() {
        assert_eq!(polls(ChannelWait::Spin, EventsPass::Rings, 1_000), SECOND);
    }

    #[test]
    fn one_that_does_not_spin_looks_no_longer_beside_rings() {
        for wait in [ChannelWait::Sleep, ChannelWait::Adaptive] {
            for every in [10, 1_000, 100_000] {
                let alone = polls(wait, EventsPass::Broker, every);
                assert_eq!(polls(wait, EventsPass::Rings, every), alone, "{wait:?}, {every} us");
            }
        }
    }
}
