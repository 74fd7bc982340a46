//! Textbook start-time fair queuing: one heap of (start tag, arrival), and a queue of packets for each class.

use super::DecisionQueue;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use unisono_fairqueue::Packet;

/// Divisible by the weights 1, 2, 3 and 6, so that tags are integers.
const UNIT: u64 = 6;

struct HeapClass {
    finish: u64,
    cost: u64,
    waiting: VecDeque<Packet<u32>>,
}

pub(super) struct HeapQueue {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    classes: Vec<HeapClass>,
    now: u64,
    last_finish: u64,
    inserted: u64,
    in_service: Option<u32>,
}

impl HeapQueue {
    pub(super) fn new(weights: impl Iterator<Item = u32>) -> Self {
        let class =
            |weight| HeapClass { finish: 0, cost: UNIT / u64::from(weight), waiting: VecDeque::new() };
        Self {
            heap: BinaryHeap::new(),
            classes: weights.map(class).collect(),
            now: 0,
            last_finish: 0,
            inserted: 0,
            in_service: None,
        }
    }

    fn insert(&mut self, class: u32, tag: u64) {
        self.heap.push(Reverse((tag, self.inserted, class)));
        self.inserted += 1;
    }
}

impl DecisionQueue for HeapQueue {
    fn enqueue(&mut self, class: u32, length: u32) {
        let to = &mut self.classes[class as usize];
        to.waiting.push_back(Packet::new(length, class));
        if to.waiting.len() == 1 && self.in_service != Some(class) {
            let tag = self.now.max(to.finish);
            self.insert(class, tag);
        }
    }

    fn dequeue(&mut self) -> Option<u32> {
        if let Some(class) = self.in_service.take() {
            let served = &self.classes[class as usize];
            if !served.waiting.is_empty() {
                let tag = served.finish;
                self.insert(class, tag);
            }
            if self.heap.is_empty() {
                self.now = self.last_finish;
            }
        }
        let Reverse((tag, _, class)) = self.heap.pop()?;
        self.now = tag;
        let served = &mut self.classes[class as usize];
        let packet = served.waiting.pop_front()?;
        served.finish = tag + u64::from(packet.length) * served.cost;
        self.last_finish = self.last_finish.max(served.finish);
        self.in_service = Some(class);
        Some(packet.item)
    }
}
