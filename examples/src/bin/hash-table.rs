//! A hash table spread over all ranks: a rank claims a slot for a key by compare-and-swap, on any rank. The
//! slot's owner does nothing.
//!
//! ```text
//!   slot = hash(key) modulo all slots    owner = slot / slots of a rank    window: [ key value | key value |
//!   claim: compare-and-swap(empty -> key)
//!     lost to another key: the next slot        lost to the same key: it is there
//! ```
//! All ranks insert their own keys, and at the same time a few keys common to all. In the end the table holds
//! every key exactly once.
#![forbid(unsafe_code)]

use anyhow::{bail, ensure};
use clap::Parser;
use std::time::Instant;
use unisono_examples::{combined, join};
use unisono_rma::{Assert, Job, Operation, Rank, Spec, Window};

/// Fill a distributed hash table by compare-and-swap, and look every key up
#[derive(Parser)]
#[command(after_help = "Example: unisono run -n 4 hash-table --keys 20000")]
struct Args {
    /// Keys that each rank inserts
    #[arg(long, default_value_t = 20_000)]
    keys: u64,
    /// Keys that all ranks insert at the same time
    #[arg(long, default_value_t = 1_000)]
    common: u64,
}

const EMPTY: u64 = 0;
/// Elements per slot.
const SLOT: u64 = 2;

/// Mixes the bits of a number one to one (David Stafford's thirteenth mixer).
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Returns key number `index` of rank `rank`: all keys are different, and none is empty.
fn key(rank: u64, index: u64) -> u64 {
    mix(((rank + 1) << 40) + index + 1)
}

/// Returns the value of a key, by which a wrong entry is noticed.
fn value(key: u64) -> u64 {
    mix(!key)
}

struct Table {
    window: Window,
    ranks: u64,
    /// Slots of each rank.
    slots: u64,
}

impl Table {
    fn new(job: &mut Job, slots: u64) -> Result<Self, unisono_rma::Error> {
        let window = job.allocate(slots * SLOT * 8, Spec::new().unit(8))?;
        Ok(Self { window, ranks: job.size() as u64, slots })
    }

    /// Returns the places to search for a key, the most likely first: owner and offset.
    fn places(&self, key: u64) -> impl Iterator<Item = (Rank, i64)> + use<> {
        let (slots, all) = (self.slots, self.slots * self.ranks);
        let first = mix(key) % all;
        (0..all)
            .map(move |probe| (first + probe) % all)
            .map(move |slot| (Rank::at((slot / slots) as usize), (slot % slots * SLOT) as i64))
    }

    /// Whether this call has inserted the key; `false` if it was there already.
    fn insert(&mut self, key: u64) -> anyhow::Result<bool> {
        for (owner, place) in self.places(key) {
            let found = self.window.compare_and_swap(EMPTY, key, owner, place)?;
            if found == EMPTY {
                self.window.put(&[value(key)], owner, place + 1)?;
                return Ok(true);
            }
            if found == key {
                return Ok(false);
            }
        }
        bail!("the table is full")
    }

    fn find(&mut self, key: u64) -> anyhow::Result<Option<u64>> {
        let mut slot = [EMPTY; SLOT as usize];
        for (owner, place) in self.places(key) {
            self.window.get_now(&mut slot, owner, place)?;
            if slot[0] == key {
                return Ok(Some(slot[1]));
            }
            if slot[0] == EMPTY {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Returns the number of this rank's slots that hold a key.
    fn occupied(&self) -> Result<u64, unisono_rma::Error> {
        let mut slots = vec![0_u64; (self.slots * SLOT) as usize];
        self.window.load(0, &mut slots)?;
        Ok(slots.iter().step_by(SLOT as usize).filter(|key| **key != EMPTY).count() as u64)
    }
}

#[allow(clippy::print_stdout, reason = "a program speaks")]
fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut job = join()?;
    let (rank, ranks) = (u64::from(job.rank().0), job.size() as u64);
    // all keys together fill at most two thirds of the table
    let distinct = args.keys * ranks + args.common;
    let mut table = Table::new(&mut job, (distinct * 3 / 2 / ranks + 1).max(2))?;
    job.barrier()?;

    table.window.lock_all(Assert::NONE)?;
    let start = Instant::now();
    let mut inserted = 0;
    for index in 0..args.keys.max(args.common) {
        if index < args.common {
            inserted += u64::from(table.insert(key(ranks, index))?);
        }
        if index < args.keys {
            let new = table.insert(key(rank, index))?;
            ensure!(new, "key {index} of rank {rank} was there before it was inserted");
            inserted += 1;
        }
    }
    table.window.flush_all()?;
    let seconds = start.elapsed().as_secs_f64();
    job.barrier()?;

    // the keys that the next rank has inserted, and those common to all
    let neighbour = (rank + 1) % ranks;
    let theirs = (0..args.keys).map(|index| key(neighbour, index));
    for (index, key) in theirs.chain((0..args.common).map(|index| key(ranks, index))).enumerate() {
        let found = table.find(key)?;
        ensure!(found == Some(value(key)), "key {index} of rank {neighbour} has {found:?} for its value");
    }
    ensure!(table.find(key(ranks + 1, 0))?.is_none(), "a key was found that nobody inserted");
    table.window.unlock_all()?;

    let occupied = table.occupied()?;
    let (inserted, occupied) = (
        combined(&mut job, inserted, Operation::Sum)?,
        combined(&mut job, occupied, Operation::Sum)?,
    );
    ensure!(
        inserted == distinct && occupied == distinct,
        "{distinct} different keys were inserted {inserted} times, and fill {occupied} slots"
    );
    if job.rank() == Rank(0) {
        let each = seconds * 1e6 / (args.keys + args.common).max(1) as f64;
        println!(
            "hash table: {distinct} keys inserted by {ranks} ranks, each found exactly once: {seconds:.3} s, {each:.2} us an insertion"
        );
    }
    table.window.free()?;
    job.finalize()?;
    Ok(())
}
