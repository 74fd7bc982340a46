//! First in, first out: one queue for all classes. The baseline without fairness.

use crate::discipline::{Backlog, Discipline, EnqueueError};
use crate::hierarchy::ClassId;
use crate::packet::Packet;
use std::collections::VecDeque;
use unisono_time::Instant;

#[derive(Clone, Debug)]
pub struct Fifo<T> {
    waiting: VecDeque<(ClassId, Packet<T>)>,
    bytes: u64,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Discipline<T> for Fifo<T> {
    fn enqueue(&mut self, _now: Instant, class: ClassId, packet: Packet<T>) -> Result<(), EnqueueError> {
        self.bytes += u64::from(packet.length);
        self.waiting.push_back((class, packet));
        Ok(())
    }

    fn finish(&mut self, _now: Instant) {}

    fn dequeue(&mut self, _now: Instant) -> Option<(ClassId, Packet<T>)> {
        let next = self.waiting.pop_front()?;
        self.bytes -= u64::from(next.1.length);
        Some(next)
    }

    fn dropped(&mut self) -> Option<(ClassId, Packet<T>)> {
        None
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.waiting.len() as u64, bytes: self.bytes }
    }
}
