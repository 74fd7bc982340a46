//! Layouts whose descriptions are longer than a message, and more layouts than a target remembers: on every
//! path.

use crate::{shared, watch, wires};
use proptest::prelude::*;
use std::thread;
use unisono_linux::clock::Duration;
use unisono_rma::wire::tests::fault::FaultPlan;
use unisono_rma::{
    Assert, Element, Error, Job, Layout, Lock, Operation, Rank, Sink, Source, Spec, Style, Target, Window,
};

/// The number of elements of a window: room for the longest layout.
const SLOTS: u64 = 3 * MAX_BLOCKS;
/// The number of blocks whose description fits into no message.
const MAX_BLOCKS: u64 = 40_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Put,
    Get,
    Sum,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Fence,
    Pscw,
    Lock(Lock),
}

/// An epoch: its operation accesses `blocks` blocks, and block number `first` travels first.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    how: How,
    what: What,
    blocks: u64,
    first: u64,
    short_before: bool,
}

impl Epoch {
    /// Returns blocks of one or two elements, with gaps, in an order other than that of memory.
    fn blocks(&self) -> Vec<(i64, u64)> {
        let place = |block: u64| (block * 7 + self.first) % self.blocks;
        let block = |block: u64| (3 * place(block)) as i64;
        // No block touches the next, so that nothing can be simplified; 7 divides none of the numbers of
        // blocks used here.
        (0..self.blocks).map(|number| (block(number), 1 + number % 2)).collect()
    }
}

fn epochs() -> impl Strategy<Value = Vec<Epoch>> {
    let how = prop::sample::select(vec![
        How::Fence,
        How::Pscw,
        How::Lock(Lock::Shared),
        How::Lock(Lock::Exclusive),
    ]);
    let what = prop::sample::select(vec![What::Put, What::Get, What::Sum]);
    // One description fits into a message of any transport, one into no message, and one is near the limit of
    // the longest message.
    let blocks = prop::sample::select(vec![100_u64, MAX_BLOCKS, 32_768]);
    let epoch = (how, what, blocks, 0_u64..100, any::<bool>());
    let epoch = epoch.prop_map(|(how, what, blocks, first, short_before)| Epoch {
        how,
        what,
        blocks,
        first,
        short_before,
    });
    prop::collection::vec(epoch, 1..5)
}

/// Runs the epochs with the other member. Both do the same, so that one model holds for both.
fn member(mut job: Job, epochs: &[Epoch], style: Style) -> Result<(), Error> {
    let other = Rank(1 - job.rank().0);
    let mut memory: Vec<u32> = (0..SLOTS as u32).collect();
    let mut expected = memory.clone();
    let base = memory.as_mut_ptr();
    // SAFETY: the vector outlives the window, and is read only between epochs.
    let mut window = unsafe { job.create(base.cast(), 4 * SLOTS, Spec::new().unit(4).style(style)) }?;
    for (number, epoch) in (1_u32..).zip(epochs) {
        let blocks = epoch.blocks();
        let layout = Layout::indexed(Element::U32, &blocks)?;
        let elements: u64 = blocks.iter().map(|(_, length)| length).sum();
        let data: Vec<u32> = (0..elements as u32).map(|index| index.wrapping_mul(number)).collect();
        let mut came = vec![0_u32; elements as usize];
        let one = Element::U32.layout();
        epoch.how.begin(&mut window, other)?;
        let target = Target { rank: other, displacement: 0, count: 1, layout: &layout };
        let source = Source { address: data.as_ptr().cast(), count: elements, layout: &one };
        if epoch.short_before {
            window.put(&[number], other, SLOTS as i64 - 1)?;
        }
        match epoch.what {
            // SAFETY: the data lives until the epoch has ended, and no code writes it.
            What::Put => unsafe { window.raw_put(source, target) }?,
            // SAFETY: the data lives until the epoch has ended, and no code writes it.
            What::Sum => unsafe { window.raw_accumulate(source, target, Operation::Sum) }?,
            What::Get => {
                let sink = Sink { address: came.as_mut_ptr().cast(), count: elements, layout: &one };
                // SAFETY: the memory lives until the epoch has ended, and no code reads it before.
                unsafe { window.raw_get(sink, target) }?;
            }
        }
        epoch.how.end(&mut window, other)?;
        job.barrier()?;
        if epoch.short_before {
            expected[SLOTS as usize - 1] = number;
        }
        let mut values = data.iter();
        let mut read = came.iter();
        for (place, length) in blocks {
            for slot in &mut expected[place as usize..][..length as usize] {
                let value = values.next().expect("as many as elements");
                match epoch.what {
                    What::Put => *slot = *value,
                    What::Sum => *slot = slot.wrapping_add(*value),
                    What::Get => assert_eq!(read.next(), Some(&*slot), "epoch {number}, place {place}"),
                }
            }
        }
        // SAFETY: no rank writes between the two barriers.
        let there = unsafe { std::slice::from_raw_parts(base, SLOTS as usize) };
        assert!(there == expected, "rank {} after epoch {number}, {epoch:?}", job.rank());
        job.barrier()?;
    }
    window.free()?;
    job.finalize()
}

fn agree(jobs: Vec<Job>, epochs: &[Epoch], style: Style) {
    watch();
    together(jobs, |job| member(job, epochs, style));
}

fn together(jobs: Vec<Job>, member: impl Fn(Job) -> Result<(), Error> + Sync) {
    thread::scope(|threads| {
        let member = &member;
        let members: Vec<_> = jobs.into_iter().map(|job| threads.spawn(move || member(job))).collect();
        for member in members {
            member.join().expect("no member panics").expect("no misuse here");
        }
    });
}

fn delays(seed: u64) -> FaultPlan {
    FaultPlan::new(seed).delay(Duration::from_micros(300))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 32))]

    #[test]
    fn tens_of_thousands_of_runs_arrive_between_threads(epochs in epochs(), seed in any::<u64>()) {
        agree(Job::threads(2), &epochs, Style::Deferred);
        agree(wires::faulty_loopback(2, delays(seed)), &epochs, Style::Naive);
    }

    #[test]
    #[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
    fn tens_of_thousands_of_runs_arrive_over_tcp(epochs in epochs(), seed in any::<u64>()) {
        agree(wires::tcp(2), &epochs, Style::Deferred);
        agree(wires::faulty_tcp(2, delays(seed)), &epochs, Style::Deferred);
    }

    #[test]
    #[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
    fn tens_of_thousands_of_runs_arrive_through_shared_memory(epochs in epochs()) {
        agree(shared(2), &epochs, Style::Deferred);
        agree(shared(2), &epochs, Style::Direct);
    }
}

/// Runs one epoch with more layouts than a target remembers, and with short operations that share messages.
fn many_layouts(mut job: Job) -> Result<(), Error> {
    const LAYOUTS: i64 = 2500;
    let other = Rank(1 - job.rank().0);
    let values: Vec<[u8; 8]> = (0..LAYOUTS).map(i64::to_le_bytes).collect();
    let mut window = job.allocate(4 * LAYOUTS as u64, Spec::new().style(Style::Deferred))?;
    window.fence(Assert::NO_PRECEDE)?;
    for (number, value) in (0_i64..).zip(&values) {
        let layout = Layout::indexed(Element::U8, &[(0, 1), (2, 1)])?;
        let source = Source { address: value.as_ptr(), count: 2, layout: &Element::U8.layout() };
        let target = Target { rank: other, displacement: 4 * number, count: 1, layout: &layout };
        // SAFETY: the values live until the epoch has ended.
        unsafe { window.raw_put(source, target) }?;
    }
    window.fence(Assert::NO_SUCCEED)?;
    let mut found = vec![0_u8; 4 * LAYOUTS as usize];
    job.barrier()?;
    window.lock(job.rank(), Lock::Exclusive, Assert::NONE)?;
    window.load(0, &mut found)?;
    window.unlock(job.rank())?;
    for (value, slot) in values.iter().zip(found.chunks(4)) {
        assert_eq!(slot, [value[0], 0, value[1], 0]);
    }
    window.free()?;
    job.finalize()
}

#[test]
fn more_layouts_than_a_target_remembers_are_told_again() {
    watch();
    together(Job::threads(2), many_layouts);
    together(wires::tcp(2), many_layouts);
}

impl How {
    fn begin(self, window: &mut Window, other: Rank) -> Result<(), Error> {
        match self {
            Self::Fence => window.fence(Assert::NONE),
            Self::Pscw => {
                window.post(&[other], Assert::NONE)?;
                window.start(&[other], Assert::NONE)
            }
            Self::Lock(lock) => window.lock(other, lock, Assert::NONE),
        }
    }

    fn end(self, window: &mut Window, other: Rank) -> Result<(), Error> {
        match self {
            Self::Fence => window.fence(Assert::NO_SUCCEED),
            Self::Pscw => {
                window.complete()?;
                window.wait()
            }
            Self::Lock(_) => window.unlock(other),
        }
    }
}

/// Replaces, adds to and reads many blocks of the other rank's part, more than a ring has room for.
fn blocks_in_order(mut job: Job, how: How) -> Result<(), Error> {
    let other = Rank(1 - job.rank().0);
    let mut memory = vec![7_u32; SLOTS as usize];
    let base = memory.as_mut_ptr();
    // SAFETY: the vector outlives the window, and is read only between epochs.
    let mut window = unsafe { job.create(base.cast(), 4 * SLOTS, Spec::new().unit(4)) }?;
    let one = Element::U32.layout();
    let blocks = |count: i64| (0..count).map(|block| (4 * (block * 7 % count), 1)).collect::<Vec<_>>();
    let (all, few) = (blocks(30_000), blocks(100));
    let (all, few) = (Layout::indexed(Element::U32, &all)?, Layout::indexed(Element::U32, &few)?);
    let ones = vec![1_u32; 30_000];
    let mut came = vec![0_u32; 30_000];
    for epoch in 0..3 {
        let whole = Target { rank: other, displacement: 0, count: 1, layout: &all };
        let begin = Target { rank: other, displacement: 0, count: 1, layout: &few };
        let source = |count: u64| Source { address: ones.as_ptr().cast(), count, layout: &one };
        how.begin(&mut window, other)?;
        // SAFETY: the data lives until the epoch has ended, and no code writes it.
        unsafe { window.raw_accumulate(source(30_000), whole, Operation::Replace) }?;
        for _ in 0..3 {
            // SAFETY: the data lives until the epoch has ended, and no code writes it.
            unsafe { window.raw_accumulate(source(30_000), whole, Operation::Sum) }?;
        }
        window.put(&[epoch], other, SLOTS as i64 - 1)?;
        if epoch < 2 {
            let sink = Sink { address: came.as_mut_ptr().cast(), count: 30_000, layout: &one };
            // SAFETY: the memory lives until the epoch has ended, and no code reads or writes it before.
            unsafe { window.raw_get_accumulate(source(30_000), sink, whole, Operation::Sum) }?;
        }
        // SAFETY: the data lives until the epoch has ended, and no code writes it.
        unsafe { window.raw_accumulate(source(100), begin, Operation::Replace) }?;
        how.end(&mut window, other)?;
        job.barrier()?;
        // SAFETY: no rank writes between the two barriers.
        let there = unsafe { std::slice::from_raw_parts(base, SLOTS as usize) };
        for (slot, found) in there.iter().enumerate() {
            let expected = match slot as u64 {
                slot if slot == SLOTS - 1 => epoch,
                slot if slot % 4 != 0 || slot >= 120_000 => 7,
                slot if slot < 400 => 1,
                _ => 4 + u32::from(epoch < 2),
            };
            assert_eq!(*found, expected, "slot {slot}, {how:?}");
        }
        assert!(came.iter().all(|value| *value == 4), "{how:?}");
        job.barrier()?;
    }
    window.free()?;
    job.finalize()
}

#[test]
fn many_blocks_change_in_the_order_of_their_operations() {
    watch();
    for how in [How::Fence, How::Pscw, How::Lock(Lock::Shared), How::Lock(Lock::Exclusive)] {
        together(shared(2), |job| blocks_in_order(job, how));
        together(Job::threads(2), |job| blocks_in_order(job, how));
    }
}

/// Accumulates many blocks to the other rank's part, which is reached through the kernel.
fn many_blocks(mut job: Job, how: How) -> Result<(), Error> {
    let other = Rank(1 - job.rank().0);
    let mut memory = vec![1_u32; SLOTS as usize];
    let base = memory.as_mut_ptr();
    // SAFETY: the vector outlives the window, and is read only between epochs.
    let mut window = unsafe { job.create(base.cast(), 4 * SLOTS, Spec::new().unit(4)) }?;
    // the last block lies on the first, so both are added there
    let mut blocks: Vec<(i64, u64)> = (0..30_000).map(|block| (3 * block, 1)).collect();
    blocks.push((0, 1));
    let (layout, one) = (Layout::indexed(Element::U32, &blocks)?, Element::U32.layout());
    let data: Vec<u32> = (1..=blocks.len() as u32).collect();
    let target = Target { rank: other, displacement: 0, count: 1, layout: &layout };
    let source = Source { address: data.as_ptr().cast(), count: data.len() as u64, layout: &one };
    how.begin(&mut window, other)?;
    // SAFETY: the data lives until the epoch has ended, and no code writes it.
    unsafe { window.raw_accumulate(source, target, Operation::Sum) }?;
    how.end(&mut window, other)?;
    job.barrier()?;
    // SAFETY: no rank writes between the two barriers.
    let there = unsafe { std::slice::from_raw_parts(base, SLOTS as usize) };
    for (slot, found) in there[..90_000].iter().enumerate() {
        let added = if slot % 3 == 0 { slot as u32 / 3 + 1 } else { 0 };
        let again = if slot == 0 { blocks.len() as u32 } else { 0 };
        assert_eq!(*found, 1 + added + again, "slot {slot}");
    }
    job.barrier()?;
    window.free()?;
    job.finalize()
}

#[test]
fn a_block_that_an_accumulate_names_twice_is_added_twice() {
    watch();
    for how in [How::Fence, How::Pscw, How::Lock(Lock::Exclusive)] {
        together(shared(2), |job| many_blocks(job, how));
    }
}
