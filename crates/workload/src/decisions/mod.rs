//! The cost of a decision: one packet out and one in, under each discipline, within this process.
//!
//! Each step dequeues a packet and enqueues a new one in a class: in the class just served (*saturated*:
//! every class is always backlogged) or in a random class (*random*: classes become idle and backlogged
//! again). The sequence is the same for all disciplines. Time is measured over a batch, so that reading the
//! clock costs next to nothing.

mod heap;

use heap::HeapQueue;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::Duration as StdDuration;
use unisono_fairqueue::{
    ClassId, ClassSpec, Discipline, Fifo, Hierarchy, Packet, Rate, RoundRobin, Scheduler, Weight, Weighted,
};
use unisono_linux::clock::{self, Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Decider {
    /// Textbook start-time fair queuing: a binary heap of start tags.
    Heap,
    /// Unisono's scheduler, with all classes directly below the root.
    StartTime,
    /// Unisono's scheduler, with the same classes in four levels.
    FourLevels,
    Fifo,
    RoundRobin,
    Weighted,
}

impl Decider {
    /// All deciders; the first is the baseline of the comparison.
    pub const ALL: [Self; 6] =
        [Self::Heap, Self::StartTime, Self::FourLevels, Self::Fifo, Self::RoundRobin, Self::Weighted];

    pub fn name(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::StartTime => "start-time",
            Self::FourLevels => "four-levels",
            Self::Fifo => "fifo",
            Self::RoundRobin => "round-robin",
            Self::Weighted => "weighted",
        }
    }
}

/// The class of the next packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    Saturated,
    Random,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeciderResult {
    pub decider: Decider,
    /// Time for one packet out and one in.
    pub ns_per_packet: f64,
    /// A hash of the order of departures.
    pub order: u64,
}

const WEIGHTS: [u32; 4] = [1, 2, 3, 6];
const LINK_BYTES_PER_S: u64 = 100_000_000;
const QUANTUM: u32 = 1500;

/// The number of packets between two readings of the clock.
const BATCH: u32 = 4096;

/// A source of the same packets for every decider: a linear congruential generator, so that drawing costs
/// next to nothing.
#[derive(Clone)]
struct PacketSource(u64);

impl PacketSource {
    fn below(&mut self, most: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 32) * u64::from(most)) >> 32) as u32
    }
}

trait DecisionQueue {
    fn enqueue(&mut self, class: u32, length: u32);
    fn dequeue(&mut self) -> Option<u32>;
}

struct DisciplineQueue<D> {
    discipline: D,
    leaves: Vec<ClassId>,
    /// The current time of a link, for disciplines that need the time.
    now: Instant,
}

impl<D: Discipline<u32>> DecisionQueue for DisciplineQueue<D> {
    fn enqueue(&mut self, class: u32, length: u32) {
        let packet = Packet::new(length, class);
        // a leaf and a short packet: never refused
        let _ = self.discipline.enqueue(self.now, self.leaves[class as usize], packet);
    }

    fn dequeue(&mut self) -> Option<u32> {
        let (_, packet) = self.discipline.dequeue(self.now)?;
        self.now += Duration::from_nanos(u64::from(packet.length) * 8_000_000_000 / LINK_BYTES_PER_S);
        Some(packet.item)
    }
}

fn class_tree(classes: u32, levels: u32) -> (Hierarchy, Vec<ClassId>) {
    fn level(name: &str, fan_out: u32, levels: u32, left: &mut u32) -> ClassSpec {
        let mut class = ClassSpec::new(name);
        if levels == 0 {
            *left -= 1;
            return class;
        }
        for child in 0..fan_out {
            if *left == 0 {
                break;
            }
            let weight = std::num::NonZeroU32::new(WEIGHTS[child as usize % 4]).map(Weight::from_integer);
            let below = level(&format!("{name}.{child}"), fan_out, levels - 1, left);
            class.children.push(below.weighing(weight.unwrap_or(Weight::ONE)));
        }
        class
    }
    let fan_out = f64::from(classes).powf(1.0 / f64::from(levels)).ceil() as u32;
    let spec = level("link", fan_out, levels, &mut classes.clone());
    let hierarchy = Hierarchy::new(spec).expect("names differ because each has its place in it");
    let leaves = hierarchy.classes().map(|(id, _)| id).filter(|id| hierarchy.is_leaf(*id)).collect();
    (hierarchy, leaves)
}

fn build_queue(decider: Decider, classes: u32) -> Box<dyn DecisionQueue> {
    let levels = if decider == Decider::FourLevels { 4 } else { 1 };
    let (hierarchy, leaves) = class_tree(classes, levels);
    let now = Instant::ZERO;
    match decider {
        Decider::Heap => Box::new(HeapQueue::new((0..classes).map(|class| WEIGHTS[class as usize % 4]))),
        Decider::StartTime | Decider::FourLevels => {
            Box::new(DisciplineQueue { discipline: Scheduler::new(hierarchy), leaves, now })
        }
        Decider::Fifo => Box::new(DisciplineQueue { discipline: Fifo::default(), leaves, now }),
        Decider::RoundRobin => {
            Box::new(DisciplineQueue { discipline: RoundRobin::new(hierarchy, QUANTUM), leaves, now })
        }
        Decider::Weighted => Box::new(DisciplineQueue {
            discipline: Weighted::new(hierarchy, Rate::new(LINK_BYTES_PER_S).expect("a positive constant")),
            leaves,
            now,
        }),
    }
}

/// Measures every decider with this many classes, each for the time `each`. Records the order in which the
/// first packets depart, the same number of packets for each decider.
pub fn measure(classes: u32, pattern: Pattern, each: StdDuration, seed: u64) -> Vec<DeciderResult> {
    let mut results: Vec<DeciderResult> = Vec::new();
    let source = PacketSource(seed);
    // a run with an odd seed measures the deciders in reverse order, so that none profits from its position
    let mut order = Decider::ALL;
    if seed % 2 == 1 {
        order.reverse();
    }
    for decider in order {
        let mut queue = build_queue(decider, classes);
        let mut source = source.clone();
        for class in (0..classes).chain(0..classes) {
            queue.enqueue(class, 64 + source.below(1437));
        }
        let mut hash = 0;
        let warm = classes.max(BATCH);
        run(queue.as_mut(), pattern, classes, warm, &mut source, &mut hash);
        let order = hash;
        let (start, mut packets) = (clock::now(), 0_u64);
        while clock::now() - start < each.into() {
            run(queue.as_mut(), pattern, classes, BATCH, &mut source, &mut hash);
            packets += u64::from(BATCH);
        }
        let ns_per_packet = (clock::now() - start).as_nanos() as f64 / packets.max(1) as f64;
        black_box(hash);
        results.push(DeciderResult { decider, ns_per_packet, order });
    }
    results.sort_by_key(|results| results.decider);
    results
}

fn run(
    queue: &mut dyn DecisionQueue,
    pattern: Pattern,
    classes: u32,
    packets: u32,
    source: &mut PacketSource,
    hash: &mut u64,
) {
    for _ in 0..packets {
        let Some(served) = queue.dequeue() else { return };
        *hash = hash.wrapping_mul(31).wrapping_add(u64::from(served));
        let drawn = source.below(classes);
        let class = if pattern == Pattern::Saturated { served } else { drawn };
        queue.enqueue(class, 64 + source.below(1437));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_decides_as_the_textbook_does_and_fifo_does_not() {
        for pattern in [Pattern::Saturated, Pattern::Random] {
            for classes in [1, 10, 1000] {
                let results = measure(classes, pattern, StdDuration::from_micros(10), 5);
                let order = |decider| {
                    results.iter().find(|results| results.decider == decider).expect("all are there").order
                };
                assert_eq!(order(Decider::Heap), order(Decider::StartTime), "{classes} {pattern:?}");
                if classes > 1 {
                    assert_ne!(order(Decider::Heap), order(Decider::Fifo), "{classes} {pattern:?}");
                }
                assert!(results.iter().all(|results| results.ns_per_packet > 0.0));
            }
        }
    }
}
