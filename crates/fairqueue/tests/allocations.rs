//! Checks that no enqueue and no dequeue allocates, in trees of one level and of four, in order of arrival
//! and by deadline, once the greatest backlog has been reached.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use unisono_fairqueue::{ClassId, ClassSpec, Discipline, Hierarchy, Order, Packet, Scheduler};
use unisono_time::Instant;

struct Counting;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes every call on to the system's allocator, unchanged
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        // SAFETY: the caller keeps the contract of the same method
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of the same method
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns a tree of `levels` levels, with `fan_out` children for each class and weights from 1 to `weights`.
fn tree(levels: u32, fan_out: u32, weights: u32, order: Order) -> Hierarchy {
    fn below(name: &str, levels: u32, fan_out: u32, weights: u32, order: Order) -> ClassSpec {
        let mut class = ClassSpec::new(name);
        class.order = order;
        for child in 0..if levels == 0 { 0 } else { fan_out } {
            let weight = (child % weights + 1).to_string().parse().expect("a weight");
            let child = below(&format!("{name}.{child}"), levels - 1, fan_out, weights, order);
            class.children.push(child.weighing(weight));
        }
        class
    }
    Hierarchy::new(below("link", levels, fan_out, weights, order)).expect("names are unique")
}

fn allocations_of_decisions(hierarchy: &Hierarchy) -> u64 {
    let leaves: Vec<ClassId> =
        hierarchy.classes().map(|(id, _)| id).filter(|id| hierarchy.is_leaf(*id)).collect();
    let mut scheduler = Scheduler::new(hierarchy.clone());
    let mut random = 1_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % below
    };
    let packet = |next: &mut dyn FnMut(usize) -> usize| {
        let leaf = leaves[next(leaves.len())];
        let length = u32::try_from(1 + next(1500)).expect("it is small");
        (
            leaf,
            Packet {
                length,
                flow: length % 4,
                deadline: Instant::from_nanos(next(1000) as u64),
                item: length,
            },
        )
    };
    for _ in 0..2 * leaves.len() {
        let (leaf, packet) = packet(&mut next);
        scheduler.enqueue(Instant::ZERO, leaf, packet).expect("a leaf");
    }
    let mut run = |steps: usize| {
        let before = ALLOCATED.get();
        for _ in 0..steps {
            scheduler.dequeue(Instant::ZERO).expect("packets wait");
            let (leaf, packet) = packet(&mut next);
            scheduler.enqueue(Instant::ZERO, leaf, packet).expect("a leaf");
        }
        ALLOCATED.get() - before
    };
    run(50_000);
    run(50_000)
}

#[test]
fn no_decision_allocates() {
    for (levels, fan_out, weights) in
        [(1, 5, 3), (1, 1000, 6), (1, 300, 17), (1, 200, 1000), (4, 5, 6), (2, 40, 6)]
    {
        let count = allocations_of_decisions(&tree(levels, fan_out, weights, Order::Fifo));
        assert_eq!(count, 0, "{levels} levels of {fan_out}");
    }
}

#[test]
fn nor_does_one_by_deadline_once_its_lines_have_been_as_long_as_they_get() {
    // few leaves, whose queues soon reach their greatest length
    let count = allocations_of_decisions(&tree(1, 1, 1, Order::Deadline));
    assert_eq!(count, 0);
    assert!(ALLOCATED.get() > 0, "allocations are counted");
}
