//! Long data into a user's memory: staged where the ring has room, otherwise copied by the kernel, in one
//! epoch.

use crate::{shared, watch};
use proptest::prelude::*;
use std::thread;
use unisono_rma::{Assert, Element, Error, Job, Lock, Operation, Rank, Source, Spec, Target};

/// Lengths around the limit of short data, around a page, and beyond the room of any ring (bytes).
const LENGTHS: [usize; 7] = [8, 1024, 1032, 5000, 70_000, 300_000, 2_200_000];
const PLACES: usize = 3;
const MAX_COUNT: usize = 2_200_000;

#[derive(Clone, Copy, Debug)]
enum How {
    Fence,
    Pscw,
    Lock,
}

/// Generates for each epoch its kind, its length at each place, and whether it accumulates.
fn epochs() -> impl Strategy<Value = Vec<(How, [usize; PLACES], bool)>> {
    let how = prop::sample::select(vec![How::Fence, How::Fence, How::Pscw, How::Lock]);
    let length = prop::sample::select(LENGTHS.to_vec());
    prop::collection::vec((how, prop::array::uniform3(length), any::<bool>()), 1..12)
}

/// Writes the epochs to the other member, and compares the other's writes here.
fn member(mut job: Job, epochs: &[(How, [usize; PLACES], bool)]) -> Result<(), Error> {
    let other = Rank(1 - job.rank().0);
    let mut memory = vec![0_u8; PLACES * MAX_COUNT];
    let mut expected = vec![0_u8; PLACES * MAX_COUNT];
    let base = memory.as_mut_ptr();
    // SAFETY: the vector outlives the window, and is read only between epochs.
    let mut window = unsafe { job.create(base, memory.len() as u64, Spec::new()) }?;
    for (number, (how, lengths, combines)) in (1_u8..).zip(epochs) {
        let value = |rank: Rank, place: usize| number.wrapping_mul(7) ^ (rank.0 as u8) << 4 ^ place as u8;
        match how {
            How::Fence => window.fence(Assert::NONE)?,
            How::Pscw => {
                window.post(&[other], Assert::NONE)?;
                window.start(&[other], Assert::NONE)?;
            }
            How::Lock => window.lock(other, Lock::Shared, Assert::NONE)?,
        }
        let layout = Element::U8.layout();
        let data: Vec<Vec<u8>> =
            (0..PLACES).map(|place| vec![value(job.rank(), place); lengths[place]]).collect();
        for (place, data) in data.iter().enumerate() {
            let count = data.len() as u64;
            let source = Source { address: data.as_ptr(), count, layout: &layout };
            let target =
                Target { rank: other, displacement: (place * MAX_COUNT) as i64, count, layout: &layout };
            if *combines {
                // SAFETY: the data lives until the epoch has ended, and no code writes it.
                unsafe { window.raw_accumulate(source, target, Operation::Sum) }?;
            } else {
                // SAFETY: the data lives until the epoch has ended, and no code writes it.
                unsafe { window.raw_put(source, target) }?;
            }
        }
        match how {
            How::Fence => window.fence(Assert::NO_SUCCEED)?,
            How::Pscw => {
                window.complete()?;
                window.wait()?;
            }
            How::Lock => window.unlock(other)?,
        }
        job.barrier()?;
        for place in 0..PLACES {
            let (came, changed) = (value(other, place), &mut expected[place * MAX_COUNT..][..lengths[place]]);
            if *combines {
                changed.iter_mut().for_each(|byte| *byte = byte.wrapping_add(came));
            } else {
                changed.fill(came);
            }
        }
        // SAFETY: no rank writes between the two barriers.
        let there = unsafe { std::slice::from_raw_parts(base, PLACES * MAX_COUNT) };
        assert!(there == expected, "rank {} after epoch {number}, {how:?}", job.rank());
        job.barrier()?;
    }
    window.free()?;
    job.finalize()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 16))]

    #[test]
    fn long_data_arrives_in_a_users_memory_whole_and_in_order(epochs in epochs()) {
        watch();
        thread::scope(|threads| {
            let epochs = &epochs;
            let members = shared(2).into_iter().map(|job| threads.spawn(move || member(job, epochs)));
            let members: Vec<_> = members.collect();
            for member in members {
                member.join().expect("no member panics").expect("no misuse here");
            }
        });
    }
}
