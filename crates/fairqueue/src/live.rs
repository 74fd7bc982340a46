//! The counters of a policy's classes while the policy is enforced.

use crate::discipline::Backlog;
use crate::policy::LinkFraming;
use crate::rate::Rate;
use serde::{Deserialize, Serialize};

/// The direction in which packets pass the device whose link is shared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrafficDirection {
    #[default]
    Out,
    In,
}

impl TrafficDirection {
    /// Both directions, each with its name on the command line and its help text.
    pub const ALL: [(Self, &str, &str); 2] =
        [(Self::Out, "out", "Packets that the device sends"), (Self::In, "in", "Packets that it receives")];

    pub fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
        }
    }
}

/// A reading of the counters of all classes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Live {
    pub backend: String,
    pub device: String,
    #[serde(default)]
    pub direction: TrafficDirection,
    /// The time of the reading, on the monotonic clock.
    pub at_ns: u64,
    /// The rate of the link; in JSON a number of bits a second.
    pub rate: Rate,
    /// The bytes that a packet is charged, here and in the classes.
    #[serde(default)]
    pub framing: LinkFraming,
    /// The classes, parents before children; without the root.
    pub classes: Vec<LiveClass>,
}

/// The counters of one class. The counters of an inner class are sums over all classes below it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LiveClass {
    pub name: String,
    /// The parent class; `None` if that is the root.
    pub parent: Option<String>,
    /// The guaranteed rate, in bits a second.
    pub guarantee: f64,
    pub packets: u64,
    pub bytes: u64,
    pub dropped: u64,
    pub backlog: Backlog,
    /// The kernel's name for the queue in which the class's packets wait, if they wait in a queue of the
    /// kernel.
    #[serde(default)]
    pub queue: Option<String>,
    /// The delays of the class's packets, or `None` if the backend does not measure them.
    pub delay: Option<DelayFigures>,
    /// The work of the kernel threads that receive for the class, or `None` if it has no such threads.
    #[serde(default)]
    pub receiving: Option<ReceivingFigures>,
}

/// The counters of the kernel threads that receive for a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReceivingFigures {
    /// Nanoseconds of processor time.
    pub ran_ns: u64,
    /// Frames that arrived for the class.
    pub frames: u64,
    /// Frames that a thread has taken from its queue. The others were dropped, or still wait there.
    pub accepted: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DelayFigures {
    pub min_ns: u64,
    /// At least half of the delays are at most this.
    pub median_ns: u64,
    pub mean_ns: u64,
    /// At least 99 of 100 delays are at most this.
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// The rates of a class between two readings.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Pace {
    /// Bits a second.
    pub rate: f64,
    /// The class's part, from 0 to 1, of the bytes of all top-level classes.
    pub share: f64,
    pub dropped: f64,
    /// The processor time of receiving for the class; 1 is all the time of one processor.
    pub receiving: f64,
    /// Frames a second that were dropped before the network stack saw them.
    pub dropped_early: f64,
}

impl Live {
    /// Returns the rates of each class since an earlier reading, in the order of the classes. For a new
    /// class, and for a class whose counters have restarted, the earlier counters count as zero.
    pub fn paces(&self, earlier: &Self) -> Vec<Pace> {
        let seconds = self.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9;
        let since = |class: &LiveClass| {
            let before = earlier.classes.iter().find(|before| before.name == class.name);
            let more = |of: &dyn Fn(&LiveClass) -> u64| {
                let now = of(class);
                now.checked_sub(before.map_or(0, of)).unwrap_or(now) as f64
            };
            let received =
                |of: fn(ReceivingFigures) -> u64| more(&|class| of(class.receiving.unwrap_or_default()));
            let early = received(|figures| figures.frames) - received(|figures| figures.accepted);
            // totals; divided by the time below
            Pace {
                rate: more(&|class| class.bytes) * 8.0,
                share: 0.0,
                dropped: more(&|class| class.dropped),
                receiving: received(|figures| figures.ran_ns) / 1e9,
                dropped_early: early.max(0.0),
            }
        };
        let counted: Vec<Pace> = self.classes.iter().map(since).collect();
        let top = self.classes.iter().zip(&counted).filter(|(class, _)| class.parent.is_none());
        let all: f64 = top.map(|(_, counted)| counted.rate).sum();
        let part = |of: f64, whole: f64| if whole > 0.0 { of / whole } else { 0.0 };
        counted
            .iter()
            .map(|counted| Pace {
                rate: part(counted.rate, seconds),
                share: part(counted.rate, all),
                dropped: part(counted.dropped, seconds),
                receiving: part(counted.receiving, seconds),
                dropped_early: part(counted.dropped_early, seconds),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, parent: Option<&str>, bytes: u64, dropped: u64) -> LiveClass {
        LiveClass {
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            bytes,
            dropped,
            ..LiveClass::default()
        }
    }

    fn reading(at_ns: u64, classes: Vec<LiveClass>) -> Live {
        let (backend, device) = ("kernel".to_owned(), "eth0".to_owned());
        Live {
            backend,
            device,
            direction: TrafficDirection::Out,
            at_ns,
            rate: Rate::new(1).expect("above zero"),
            framing: LinkFraming::default(),
            classes,
        }
    }

    #[test]
    fn two_readings_give_rates_and_shares() {
        let before =
            reading(0, vec![class("a", None, 0, 0), class("b", Some("a"), 0, 0), class("c", None, 500, 9)]);
        let classes = vec![
            class("a", None, 3000, 0),
            class("b", Some("a"), 3000, 4),
            class("c", None, 1000, 1),
            class("d", None, 500, 0),
        ];
        let paces = reading(2_000_000_000, classes).paces(&before);
        assert_eq!(
            paces.iter().map(|pace| pace.rate).collect::<Vec<_>>(),
            [12_000.0, 12_000.0, 2000.0, 2000.0]
        );
        assert_eq!(paces.iter().map(|pace| pace.share).collect::<Vec<_>>(), [0.75, 0.75, 0.125, 0.125]);
        assert_eq!((paces[1].dropped, paces[2].dropped), (2.0, 0.5), "c has begun again");
    }

    #[test]
    fn receiving_is_a_part_of_a_processor_and_frames_that_no_thread_took_were_dropped() {
        let receiving = |ran_ns, frames, accepted| LiveClass {
            receiving: Some(ReceivingFigures { ran_ns, frames, accepted }),
            ..class("a", None, 0, 0)
        };
        let before = reading(0, vec![receiving(1_000_000_000, 100, 90)]);
        let after = reading(2_000_000_000, vec![receiving(1_500_000_000, 1100, 590)]);
        let paces = after.paces(&before);
        assert_eq!((paces[0].receiving, paces[0].dropped_early), (0.25, 250.0));
        // frames that had waited were taken
        let later = reading(4_000_000_000, vec![receiving(1_500_000_000, 1100, 600)]);
        assert_eq!(later.paces(&after), [Pace::default()]);
    }

    #[test]
    fn without_traffic_or_time_there_are_no_rates() {
        let idle = reading(5, vec![class("a", None, 7, 0)]);
        assert_eq!(idle.paces(&idle), [Pace::default()]);
    }
}
