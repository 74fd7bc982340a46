//! Clusters a stream of points, after the paper's application (section 4).
//!
//! Points arrive in batches. For each batch, candidates are tried one after another as new centers. A
//! candidate becomes a center if this saves more than a center costs. A round (one candidate) has two
//! barriers: first all threads add up the saving for their points, then all adopt or reject the candidate.
//!
//! All numbers are integers, so the result does not depend on the number of threads. The same program in C
//! with OpenMP is `peers/clustering_openmp.c`.

use crate::barrier_choice::{BarrierChoice, BarrierMember};
use crate::{Error, Measurement, Options, barrier};
use crossbeam_utils::CachePadded;
use rand::RngCore;
use rand_pcg::Pcg32;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Points of a batch by default: the paper's 16,000 packets.
pub(crate) const DEFAULT_SIZE: usize = 16_000;

/// Candidates of a batch.
pub const ROUNDS: u64 = 64;

const DIMENSIONS: usize = 32;
const CLUSTERS: usize = 8;
const MAX_DISTANCE: i64 = 134_217_728;
const CENTRE_COST: i64 = 20_000_000;

/// A batch of points in a few clusters.
pub(crate) struct Batch {
    points: Vec<[i32; DIMENSIONS]>,
}

impl Batch {
    pub(crate) fn new(size: usize, seed: u64) -> Self {
        let mut generator = Pcg32::new(seed, 0);
        let mut draw = |mask: u32| (generator.next_u32() & mask).cast_signed();
        let base: [[i32; DIMENSIONS]; CLUSTERS] =
            std::array::from_fn(|_| std::array::from_fn(|_| draw(1023)));
        let points = (0..size).map(|p| std::array::from_fn(|d| base[p % CLUSTERS][d] + draw(127))).collect();
        Self { points }
    }

    /// Returns the candidate of a round, chosen by a multiplicative hash, so that rounds need no shared
    /// generator.
    fn candidate(&self, round: u64) -> &[i32; DIMENSIONS] {
        let hash = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        &self.points[(hash % self.points.len() as u64) as usize]
    }
}

/// One thread's points, and the current cost of each.
pub(crate) struct BatchPart<'a> {
    batch: &'a Batch,
    range: Range<usize>,
    cost: Vec<i64>,
    total: i64,
}

impl<'a> BatchPart<'a> {
    pub(crate) fn new(batch: &'a Batch, index: usize, threads: usize) -> Self {
        let size = batch.points.len();
        let range = size * index / threads..size * (index + 1) / threads;
        Self { batch, total: MAX_DISTANCE * range.len() as i64, cost: vec![MAX_DISTANCE; range.len()], range }
    }

    /// Removes all centers, because a new batch has arrived.
    pub(crate) fn reset(&mut self) {
        self.cost.fill(MAX_DISTANCE);
        self.total = MAX_DISTANCE * self.cost.len() as i64;
    }

    /// Returns the saving of the round's candidate for these points.
    pub(crate) fn saving(&self, round: u64) -> i64 {
        let candidate = self.batch.candidate(round);
        let points = &self.batch.points[self.range.clone()];
        points.iter().zip(&self.cost).map(|(point, cost)| (cost - distance(point, candidate)).max(0)).sum()
    }

    /// Adopts the round's candidate if it saves more than a center costs.
    pub(crate) fn decide(&mut self, round: u64, saving: i64) {
        if saving > CENTRE_COST {
            let candidate = self.batch.candidate(round);
            for (point, cost) in self.batch.points[self.range.clone()].iter().zip(&mut self.cost) {
                *cost = (*cost).min(distance(point, candidate));
            }
            self.total = self.cost.iter().sum();
        }
    }

    /// Returns the current cost of all these points.
    pub(crate) fn total(&self) -> i64 {
        self.total
    }
}

fn distance(a: &[i32; DIMENSIONS], b: &[i32; DIMENSIONS]) -> i64 {
    let sum: i32 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    i64::from(sum)
}

/// Runs with threads and one of Unisono's barriers.
pub fn run_unisono(choice: &BarrierChoice, options: &Options) -> Result<Measurement, Error> {
    options.check()?;
    let (group, chosen_because) = choice.group(options)?;
    let batch = Batch::new(options.size.unwrap_or(DEFAULT_SIZE), options.seed);
    let padded = |_| CachePadded::new(AtomicI64::new(0));
    let savings: Vec<_> = (0..options.threads).map(padded).collect();
    let totals: Vec<_> = (0..options.threads).map(padded).collect();
    let measured = barrier::run_iterations(options, 2, |index| {
        let mut share = BatchPart::new(&batch, index, options.threads);
        let mut seat = BarrierMember::join(&group, index);
        let (savings, totals) = (&savings, &totals);
        move |round| {
            if round % ROUNDS == 1 {
                share.reset();
            }
            savings[index].store(share.saving(round), Relaxed);
            seat.wait()?;
            share.decide(round, savings.iter().map(|saving| saving.load(Relaxed)).sum());
            // read only after the run: the last value is the result
            totals[index].store(share.total(), Relaxed);
            seat.wait()
        }
    })?;
    let checksum = Some(totals.iter().map(|total| total.load(Relaxed)).sum::<i64>() as f64);
    Ok(choice.label(&group, chosen_because, Measurement { checksum, ..measured }, "clustering-unisono"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_the_sequential_one_whatever_the_threads() {
        let batch = Batch::new(500, 1);
        let mut alone = BatchPart::new(&batch, 0, 1);
        for round in 1..=100 {
            if round % ROUNDS == 1 {
                alone.reset();
            }
            alone.decide(round, alone.saving(round));
        }
        let expected = alone.total() as f64;
        for threads in [1, 2, 3, 7] {
            let options = Options { threads, size: Some(500), iterations: Some(100), ..Options::default() };
            let measured = run_unisono(&BarrierChoice::default(), &options).expect("measured");
            assert_eq!(measured.checksum, Some(expected));
        }
    }

    #[test]
    fn opening_centres_lowers_what_points_pay() {
        let batch = Batch::new(800, 3);
        let mut share = BatchPart::new(&batch, 0, 1);
        let before = share.total();
        (1..=ROUNDS).for_each(|round| share.decide(round, share.saving(round)));
        assert!(share.total() < before / 10, "{} of {before}", share.total());
    }
}
