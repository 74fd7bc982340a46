//! What is scheduled, and where it waits.

use crate::discipline::Backlog;
use crate::hierarchy::Order;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A deadline later than all others.
pub const NO_DEADLINE: u64 = u64::MAX;

/// A packet, or a quantum of processor time, or a request to a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet<T> {
    /// How much service it needs: bytes, or microseconds; at most [`Packet::MOST_LENGTH`].
    pub length: u32,
    /// Packets of one flow never overtake each other, whatever their deadlines; any number of the caller's.
    pub flow: u32,
    /// By when it should have left, on the caller's clock, or [`NO_DEADLINE`]; heeded where the class orders by
    /// deadline.
    pub deadline: u64,
    /// What it carries.
    pub item: T,
}

impl<T> Packet<T> {
    /// The longest packet: 16 MiB less one byte.
    pub const MOST_LENGTH: u32 = (1 << 24) - 1;

    /// A packet without a deadline, of the flow 0.
    pub fn new(length: u32, item: T) -> Self {
        Self { length, flow: 0, deadline: NO_DEADLINE, item }
    }
}

/// The packets of one leaf.
#[derive(Clone, Debug)]
pub(crate) enum Line<T> {
    /// Memory grows with the most packets that have waited at a time, and is used again.
    Fifo(VecDeque<Packet<T>>),
    Deadline(Box<ByDeadline<T>>),
}

#[derive(Clone, Debug)]
pub(crate) struct ByDeadline<T> {
    /// By deadline, then by arrival.
    waiting: BTreeMap<(u64, u64), Packet<T>>,
    arrivals: u64,
    /// Per flow: the latest deadline waiting and how many packets wait. A packet never leaves before an
    /// earlier one of its flow because its deadline counts as at least that one's.
    flows: HashMap<u32, (u64, u32)>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self::new(Order::Fifo)
    }
}

impl<T> Line<T> {
    pub(crate) fn new(order: Order) -> Self {
        match order {
            Order::Fifo => Self::Fifo(VecDeque::new()),
            Order::Deadline => Self::Deadline(Box::new(ByDeadline {
                waiting: BTreeMap::new(),
                arrivals: 0,
                flows: HashMap::new(),
            })),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Fifo(line) => line.is_empty(),
            Self::Deadline(line) => line.waiting.is_empty(),
        }
    }

    pub(crate) fn waiting(&self) -> Backlog {
        let packets: &mut dyn Iterator<Item = &Packet<T>> = match self {
            Self::Fifo(line) => &mut line.iter(),
            Self::Deadline(line) => &mut line.waiting.values(),
        };
        packets.fold(Backlog::default(), |mut sum, packet| {
            sum += Backlog { packets: 1, bytes: u64::from(packet.length) };
            sum
        })
    }

    #[inline]
    pub(crate) fn push(&mut self, packet: Packet<T>) {
        match self {
            Self::Fifo(line) => line.push_back(packet),
            Self::Deadline(line) => line.push(packet),
        }
    }

    /// The packet that leaves next.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Packet<T>> {
        match self {
            Self::Fifo(line) => line.pop_front(),
            Self::Deadline(line) => {
                let (_, packet) = line.waiting.pop_first()?;
                Some(line.left(packet))
            }
        }
    }

    /// Takes the packets of another line behind its own, in the order in which they would have left that one.
    pub(crate) fn take_over(&mut self, mut other: Self) {
        match (&mut *self, &other) {
            (Self::Fifo(line), Self::Fifo(_)) if line.is_empty() => *self = other,
            (Self::Deadline(line), Self::Deadline(_)) if line.waiting.is_empty() => *self = other,
            _ => std::iter::from_fn(|| other.pop()).for_each(|packet| self.push(packet)),
        }
    }

    /// The packet that would leave last.
    pub(crate) fn pop_last(&mut self) -> Option<Packet<T>> {
        match self {
            Self::Fifo(line) => line.pop_back(),
            Self::Deadline(line) => {
                let (_, packet) = line.waiting.pop_last()?;
                Some(line.left(packet))
            }
        }
    }
}

impl<T> ByDeadline<T> {
    fn push(&mut self, packet: Packet<T>) {
        let (latest, packets) = self.flows.entry(packet.flow).or_default();
        *latest = packet.deadline.max(*latest);
        *packets += 1;
        self.waiting.insert((*latest, self.arrivals), packet);
        self.arrivals += 1;
    }

    fn left(&mut self, packet: Packet<T>) -> Packet<T> {
        if let Some((_, packets)) = self.flows.get_mut(&packet.flow) {
            *packets -= 1;
            if *packets == 0 {
                self.flows.remove(&packet.flow);
            }
        }
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(flow: u32, deadline: u64, item: u32) -> Packet<u32> {
        Packet { length: 1, flow, deadline, item }
    }

    #[test]
    fn the_earliest_deadline_leaves_first_and_no_flow_is_reordered() {
        let mut line = Line::new(Order::Deadline);
        for (flow, deadline, item) in [(1, NO_DEADLINE, 0), (2, 50, 1), (3, 20, 2), (2, 10, 3), (1, 5, 4)] {
            line.push(packet(flow, deadline, item));
        }
        let order: Vec<_> = std::iter::from_fn(|| line.pop().map(|packet| packet.item)).collect();
        assert_eq!(order, [2, 1, 3, 0, 4]);
    }

    #[test]
    fn what_would_leave_last_can_be_dropped_from_either_kind() {
        for mut line in [Line::new(Order::Fifo), Line::new(Order::Deadline)] {
            for item in 0..3 {
                line.push(packet(item, u64::from(item), item));
            }
            assert_eq!(line.waiting(), Backlog { packets: 3, bytes: 3 });
            assert_eq!(line.pop_last().expect("three wait").item, 2);
            assert_eq!(line.pop().expect("two wait").item, 0);
            assert_eq!(line.pop_last().expect("one waits").item, 1);
            assert!(line.is_empty() && line.pop().is_none() && line.pop_last().is_none());
        }
    }
}
