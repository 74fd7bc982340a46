//! Passive puts on a user's memory are done when the call that completes them returns, whoever copies the
//! data: a target that is in the library, or else the kernel.

use crate::{shared, watch};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use unisono_rma::{Assert, Error, Job, Lock, Rank, Spec};

const ROUNDS: u64 = 3000;
/// Numbers of values in a put: few enough for the line of an offer, the most for which the line has room, one
/// more, a few cache lines, more than a short entry holds, more than the kernel copies page by page, so many
/// that a few puts fill the ring, and so many that one part of the put is handed off and one part left to the
/// kernel.
const LENGTHS: [usize; 8] = [1, 5, 6, 24, 300, 1500, 40_000, 140_000];
/// Up to this number all values travel in one put. More values travel in two puts.
const ONE_PUT: usize = 6;
const SLOTS: usize = 140_001;

/// A generator of pseudo-random numbers (xorshift64*), so that a failing run can be repeated by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }
}

/// Puts, completes in one of several ways, informs the other member through a channel outside the engine, and
/// checks the other's values here.
fn member(
    mut job: Job,
    seed: u64,
    tell: &Sender<(u64, usize)>,
    told: &Receiver<(u64, usize)>,
) -> Result<(), Error> {
    let other = Rank(1 - job.rank().0);
    let mut dice = Dice(seed ^ u64::from(job.rank().0) << 40 | 1);
    let mut memory = vec![0_u64; SLOTS];
    let base = memory.as_mut_ptr();
    // SAFETY: the vector outlives the window, and is read only after the other has reported that it is done.
    let mut window = unsafe { job.create(base.cast(), 8 * SLOTS as u64, Spec::new().unit(8)) }?;
    for round in 1..=ROUNDS {
        // Long puts are rare.
        let sides = if dice.roll(16) == 0 { LENGTHS.len() as u64 } else { 6 };
        let length = LENGTHS[dice.roll(sides) as usize];
        let data: Vec<u64> = (0..length as u64).map(|at| round << 16 | at).collect();
        let first = match length {
            ..=ONE_PUT => 0,
            100_000.. => length / 20,
            _ => length / 2,
        };
        let (half, lock) = (first, if dice.roll(2) == 0 { Lock::Shared } else { Lock::Exclusive });
        let how = dice.roll(4);
        if how == 3 {
            window.lock_all(Assert::NONE)?;
        } else {
            window.lock(other, lock, Assert::NONE)?;
        }
        if half > 0 {
            window.put(&data[..half], other, 0)?;
        }
        window.put(&data[half..], other, half as i64)?;
        match how {
            0 => window.unlock(other)?,
            1 => {
                // Later operations of the same origin come after staged ones.
                let read = window.get::<u64>(1, other, 0)?;
                window.flush(other)?;
                assert_eq!(window.take(read)?, [data[0]], "seed {seed}, round {round}");
                window.put(&[7_u64], other, SLOTS as i64 - 1)?;
                window.unlock(other)?;
            }
            2 => {
                window.flush(other)?;
                tell.send((round, length)).expect("the other listens");
                window.unlock(other)?;
            }
            _ => window.unlock_all()?,
        }
        if how != 2 {
            tell.send((round, length)).expect("the other listens");
        }
        match dice.roll(8) {
            0 => thread::sleep(Duration::from_micros(dice.roll(30))),
            1 => {
                let start = Instant::now();
                while start.elapsed() < Duration::from_micros(3) {}
            }
            _ => {}
        }
        let (its_round, its_length) = told.recv().expect("the other says so");
        assert_eq!(its_round, round);
        for at in 0..its_length {
            // SAFETY: inside the vector; the other member has put this, and waits for a report before it puts
            // again.
            let found = unsafe { base.wrapping_add(at).read_volatile() };
            assert_eq!(found, round << 16 | at as u64, "seed {seed}, round {round}, slot {at}");
        }
        tell.send((round, 0)).expect("the other listens");
        told.recv().expect("the other has looked");
    }
    window.free()?;
    job.finalize()
}

#[test]
fn passive_puts_on_a_users_memory_are_there_when_they_are_complete() {
    watch();
    for seed in 1..4 {
        let ((to_zero, from_one), (to_one, from_zero)) = (channel(), channel());
        let ends = [(to_one, from_one), (to_zero, from_zero)];
        thread::scope(|threads| {
            let members = shared(2).into_iter().zip(ends);
            let running: Vec<_> = members
                .map(|(job, (tell, told))| threads.spawn(move || member(job, seed, &tell, &told)))
                .collect();
            for member in running {
                member.join().expect("no member panics").expect("no misuse here");
            }
        });
    }
}
