//! Measures the cost of a decision: of the scheduler, of a start-time fair queue on a binary heap, and of
//! four levels against one.
//!
//! ```text
//! cargo bench -p unisono-fairqueue --bench decisions -- [samples=12] [packets=300000] [classes=1000]
//! ```
//! `classes=` is 10, 1000 or 100000; all three by default. Each step dequeues a packet and enqueues a new
//! one: in the class just served (*saturated*: every class is always backlogged) or in a random class
//! (*random*: classes fall idle and wake), the same sequence for all variants. Variants are interleaved, A B
//! C C B A. The program prints the nanoseconds to enqueue and dequeue one packet, as the median with the
//! interval of the middle 80 % of the samples, and whether the variants' orders of departure were equal.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hint::black_box;
use std::time::Instant as StdInstant;
use unisono_fairqueue::{ClassId, ClassSpec, Discipline, Hierarchy, Packet, Scheduler, Weight};
use unisono_time::Instant;

/// The textbook version of a start-time fair queue: one heap of (start tag, arrival), and a queue of packets
/// for each flow.
struct HeapSfq {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    flows: Vec<HeapFlow>,
    now: u64,
    last_finish: u64,
    inserted: u64,
    in_service: Option<u32>,
}

struct HeapFlow {
    finish: u64,
    cost: u64,
    waiting: VecDeque<Packet<u32>>,
}

impl HeapSfq {
    fn new(costs: &[u64]) -> Self {
        let flow = |cost: &u64| HeapFlow { finish: 0, cost: *cost, waiting: VecDeque::new() };
        Self {
            heap: BinaryHeap::new(),
            flows: costs.iter().map(flow).collect(),
            now: 0,
            last_finish: 0,
            inserted: 0,
            in_service: None,
        }
    }

    fn insert(&mut self, flow: u32, tag: u64) {
        self.heap.push(Reverse((tag, self.inserted, flow)));
        self.inserted += 1;
    }

    fn enqueue(&mut self, flow: u32, packet: Packet<u32>) {
        let to = &mut self.flows[flow as usize];
        to.waiting.push_back(packet);
        if to.waiting.len() == 1 && self.in_service != Some(flow) {
            let tag = self.now.max(to.finish);
            self.insert(flow, tag);
        }
    }

    fn dequeue(&mut self) -> Option<(u32, Packet<u32>)> {
        if let Some(flow) = self.in_service.take() {
            let served = &self.flows[flow as usize];
            if !served.waiting.is_empty() {
                let tag = served.finish;
                self.insert(flow, tag);
            }
            if self.heap.is_empty() {
                self.now = self.last_finish;
            }
        }
        let Reverse((tag, _, flow)) = self.heap.pop()?;
        self.now = tag;
        let served = &mut self.flows[flow as usize];
        let packet = served.waiting.pop_front()?;
        served.finish = tag + u64::from(packet.length) * served.cost;
        self.last_finish = self.last_finish.max(served.finish);
        self.in_service = Some(flow);
        Some((flow, packet))
    }
}

/// A pseudo-random sequence, the same for every variant.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let high = u32::try_from(self.0 >> 32).expect("32 bits are left");
        u32::try_from((u64::from(high) * u64::from(most)) >> 32).expect("below a number of 32 bits")
    }
}

const WEIGHTS: [&str; 4] = ["1", "2", "3", "6"];
const COSTS: [u64; 4] = [6, 3, 2, 1];

trait Queue {
    fn put(&mut self, flow: u32, packet: Packet<u32>);
    fn take(&mut self) -> Packet<u32>;
}

impl Queue for HeapSfq {
    fn put(&mut self, flow: u32, packet: Packet<u32>) {
        self.enqueue(flow, packet);
    }

    fn take(&mut self) -> Packet<u32> {
        self.dequeue().expect("packets wait").1
    }
}

struct Ours {
    scheduler: Scheduler<u32>,
    leaves: Vec<ClassId>,
}

impl Queue for Ours {
    fn put(&mut self, flow: u32, packet: Packet<u32>) {
        self.scheduler
            .enqueue(Instant::ZERO, self.leaves[flow as usize], packet)
            .expect("a leaf takes packets");
    }

    fn take(&mut self) -> Packet<u32> {
        self.scheduler.dequeue(Instant::ZERO).expect("packets wait").1
    }
}

/// Returns the scheduler with `flows` leaves in `levels` levels of equal fan-out.
fn ours(flows: u32, levels: u32) -> Ours {
    fn level(name: &str, fan_out: u32, levels: u32, left: &mut u32) -> ClassSpec {
        if levels == 0 {
            *left -= 1;
            return ClassSpec::new(name);
        }
        let mut class = ClassSpec::new(name);
        for child in 0..fan_out {
            if *left == 0 {
                break;
            }
            let weight: Weight = WEIGHTS[child as usize % 4].parse().expect("a weight");
            let child = level(&format!("{name}.{child}"), fan_out, levels - 1, left).weighing(weight);
            class.children.push(child);
        }
        class
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small root")]
    let fan_out = f64::from(flows).powf(1.0 / f64::from(levels)).ceil() as u32;
    let hierarchy = Hierarchy::new(level("link", fan_out, levels, &mut flows.clone())).expect("it is sound");
    let leaves = hierarchy.classes().map(|(id, _)| id).filter(|id| hierarchy.is_leaf(*id)).collect();
    Ours { scheduler: Scheduler::new(hierarchy), leaves }
}

#[derive(Clone, Copy, PartialEq)]
enum Pattern {
    Saturated,
    Random,
}

/// Runs `packets` steps. A packet's item is its flow, so that orders can be compared by their hash. Returns
/// the nanoseconds of a step.
fn run(queue: &mut dyn Queue, pattern: Pattern, flows: u32, packets: u32, hash: &mut u64) -> f64 {
    let mut random = Random(u64::from(flows));
    let lengths: Vec<(u32, u32)> =
        (0..packets).map(|_| (random.below(flows), 64 + random.below(1437))).collect();
    let start = StdInstant::now();
    for (flow, length) in lengths {
        let packet = queue.take();
        *hash = hash.wrapping_mul(31).wrapping_add(u64::from(packet.item));
        let flow = if pattern == Pattern::Saturated { packet.item } else { flow };
        queue.put(flow, Packet::new(length, flow));
    }
    black_box(hash);
    start.elapsed().as_secs_f64() * 1e9 / f64::from(packets)
}

fn fill(queue: &mut dyn Queue, flows: u32) {
    let mut random = Random(u64::from(flows) + 1);
    for flow in (0..flows).chain(0..flows) {
        queue.put(flow, Packet::new(64 + random.below(1437), flow));
    }
}

fn option(name: &str, default: u32) -> u32 {
    let given = std::env::args().find_map(|argument| argument.strip_prefix(name)?.parse().ok());
    given.unwrap_or(default)
}

fn main() {
    let (samples, packets) = (option("samples=", 12), option("packets=", 300_000));
    println!("{samples} samples of {packets} packets; ns a packet: median (10 % to 90 %)");
    let only = option("classes=", 0);
    let variant = option("variant=", 0);
    let sizes = [10, 1_000, 100_000].into_iter().filter(|flows| only == 0 || only == *flows);
    for (flows, pattern) in sizes.flat_map(|flows| [(flows, Pattern::Saturated), (flows, Pattern::Random)]) {
        let costs: Vec<u64> = (0..flows as usize).map(|flow| COSTS[flow % 4]).collect();
        let mut heap = HeapSfq::new(&costs);
        let (mut flat, mut four) = (ours(flows, 1), ours(flows, 4));
        let mut variants: [(&str, &mut dyn Queue, Vec<f64>, u64); 3] = [
            ("binary heap", &mut heap, vec![], 0),
            ("start-time fair queue", &mut flat, vec![], 0),
            ("four levels", &mut four, vec![], 0),
        ];
        for (_, queue, ..) in &mut variants {
            fill(*queue, flows);
        }
        for sample in 0..samples + 1 {
            let mut order: Vec<usize> = (0..variants.len()).collect();
            if sample % 2 == 1 {
                order.reverse();
            }
            for at in order {
                if variant > 0 && variant as usize != at + 1 {
                    continue;
                }
                let (_, queue, times, hash) = &mut variants[at];
                let time = run(*queue, pattern, flows, packets, hash);
                if sample > 0 {
                    times.push(time); // the first sample warms up
                }
            }
        }
        let said = if pattern == Pattern::Saturated { "saturated" } else { "random" };
        let first = variants[0].3;
        let mut medians = vec![];
        for (name, _, times, hash) in &mut variants {
            if times.is_empty() {
                continue;
            }
            times.sort_by(f64::total_cmp);
            let at = |part: usize| times[(times.len() - 1) * part / 10];
            let same = if *hash == first { "order as the heap's" } else { "another order" };
            println!(
                "{flows:>7} {said:<9}  {name:<22} {:>7.1} ({:.1} to {:.1})  {same}",
                at(5),
                at(1),
                at(9)
            );
            medians.push(at(5));
        }
        if variant > 0 {
            continue;
        }
        println!(
            "{flows:>7} {said:<9}  {:.2} of the heap's time; four levels {:.2} of one",
            medians[1] / medians[0],
            medians[2] / medians[1]
        );
    }
}
