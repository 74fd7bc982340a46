//! The reference: one thread has the windows of all members and does the operations one after the other. It
//! is slow and obviously right.
//!
//! A program is a list of epochs; each has operations whose result does not depend on their order: puts write
//! slots that only their origin writes, gets read slots that no put of this epoch writes, and all accumulates
//! combine into common slots by the epoch's one commutative operation.

use proptest::prelude::*;
use unisono_rma::Operation;

/// The number of slots (of eight bytes) that an origin may write in one epoch. A window has two sets of these
/// slots for each origin, one for even and one for odd epochs, and then [`COMMON`] slots for accumulates.
pub(crate) const PUTS: usize = 4;
pub(crate) const COMMON: usize = 4;

/// Returns the number of slots of a window in a job of `size`.
pub(crate) const fn slots(size: usize) -> usize {
    2 * size * PUTS + COMMON
}

/// Returns the first slot of `origin`'s puts in epoch `number`.
pub(crate) const fn own(size: usize, origin: usize, number: usize) -> usize {
    (number % 2) * size * PUTS + origin * PUTS
}

/// Returns the first slot of all members' accumulates.
pub(crate) const fn common(size: usize) -> usize {
    2 * size * PUTS
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// Put `values` values, starting at slot `slot` of the origin's own slots.
    Put { slot: usize, values: usize },
    /// Get from the slots into which `origin` put in the previous epoch.
    Get { origin: usize, slot: usize, values: usize },
    /// Combine into the common slots.
    Accumulate { slot: usize, values: usize },
    /// Combine one value, made from the step's `seed`, by the epoch's operation, and fetch the old value. The
    /// test checks that a result arrives, but not its value, which depends on the order of the origins.
    Fetch { slot: usize },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) origin: usize,
    pub(crate) target: usize,
    pub(crate) what: What,
    pub(crate) seed: u64,
}

impl Step {
    pub(crate) fn values(&self) -> Vec<u64> {
        let count = match self.what {
            What::Put { values, .. } | What::Get { values, .. } | What::Accumulate { values, .. } => values,
            What::Fetch { .. } => 1,
        };
        (0..count as u64).map(|index| self.seed.wrapping_mul(2 * index + 1)).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Synchronization {
    Fence,
    /// Fences with asserts: `NO_PRECEDE` before the operations, `NO_STORE` and `NO_SUCCEED` after them.
    FenceAsserted,
    Pscw,
    LockShared,
    LockExclusive,
    LockAll,
}

#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    pub(crate) synchronization: Synchronization,
    pub(crate) operation: Operation,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) size: usize,
    pub(crate) epochs: Vec<Epoch>,
}

/// Runs the program. Returns the final contents of every member's window, and the values of each get, in the
/// order of steps.
pub(crate) fn run(program: &Program) -> (Vec<Vec<u64>>, Vec<Vec<Vec<u64>>>) {
    let size = program.size;
    let mut memory = vec![vec![0_u64; slots(size)]; size];
    let mut read = vec![Vec::new(); size];
    for (number, epoch) in program.epochs.iter().enumerate() {
        for step in &epoch.steps {
            let window = &mut memory[step.target];
            match step.what {
                What::Put { slot, .. } => {
                    let start = own(size, step.origin, number) + slot;
                    window[start..start + step.values().len()].copy_from_slice(&step.values());
                }
                What::Get { origin, slot, values } => {
                    let start = own(size, origin, number + 1) + slot;
                    read[step.origin].push(window[start..start + values].to_vec());
                }
                What::Accumulate { slot, .. } | What::Fetch { slot } => {
                    let start = common(size) + slot;
                    for (index, value) in step.values().into_iter().enumerate() {
                        let there = &mut window[start + index];
                        *there = match epoch.operation {
                            Operation::Sum => there.wrapping_add(value),
                            Operation::Product => there.wrapping_mul(value),
                            Operation::Min => (*there).min(value),
                            Operation::Max => (*there).max(value),
                            Operation::BitAnd => *there & value,
                            Operation::BitXor => *there ^ value,
                            Operation::LogicalXor => u64::from((*there != 0) != (value != 0)),
                            _ => *there | value,
                        };
                    }
                }
            }
        }
    }
    (memory, read)
}

fn what(size: usize) -> impl Strategy<Value = What> {
    let span = |slots: usize| (0..slots).prop_flat_map(move |slot| (Just(slot), 1..=slots - slot));
    prop_oneof![
        span(PUTS).prop_map(|(slot, values)| What::Put { slot, values }),
        (0..size, span(PUTS)).prop_map(|(origin, (slot, values))| What::Get { origin, slot, values }),
        span(COMMON).prop_map(|(slot, values)| What::Accumulate { slot, values }),
        (0..COMMON).prop_map(|slot| What::Fetch { slot }),
    ]
}

fn epoch(size: usize) -> impl Strategy<Value = Epoch> {
    let step = (0..size, 0..size, what(size), any::<u64>()).prop_map(|(origin, target, what, seed)| Step {
        origin,
        target,
        what,
        seed,
    });
    let synchronization = prop_oneof![
        Just(Synchronization::Fence),
        Just(Synchronization::FenceAsserted),
        Just(Synchronization::Pscw),
        Just(Synchronization::LockShared),
        Just(Synchronization::LockExclusive),
        Just(Synchronization::LockAll),
    ];
    // All of them commute, so that the order of origins makes no difference.
    let operation = prop::sample::select(vec![
        Operation::Sum,
        Operation::Product,
        Operation::Min,
        Operation::Max,
        Operation::BitAnd,
        Operation::BitXor,
        Operation::BitOr,
        Operation::LogicalXor,
    ]);
    (synchronization, operation, proptest::collection::vec(step, 0..12)).prop_map(
        |(synchronization, operation, steps)| Epoch { synchronization, operation, steps: once(steps) },
    )
}

/// Keeps only the first of several puts of one origin to one slot in one epoch, because such puts have no
/// order.
fn once(steps: Vec<Step>) -> Vec<Step> {
    let mut written = std::collections::HashSet::new();
    let fresh = |step: &Step| match step.what {
        What::Put { slot, values } => {
            let slots: Vec<_> = (slot..slot + values).map(|at| (step.origin, step.target, at)).collect();
            let free = slots.iter().all(|at| !written.contains(at));
            if free {
                written.extend(slots);
            }
            free
        }
        _ => true,
    };
    steps.into_iter().filter(fresh).collect()
}

pub(crate) fn program() -> impl Strategy<Value = Program> {
    (1_usize..5).prop_flat_map(|size| {
        proptest::collection::vec(epoch(size), 1..7).prop_map(move |epochs| Program { size, epochs })
    })
}
