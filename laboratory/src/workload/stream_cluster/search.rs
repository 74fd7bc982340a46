//! A local search over a set of points, by a team of threads.
//!
//! Each member owns a range of the points. [`SearchMember::sum`] computes sums over all points, with one
//! barrier. All members get the same sums, so all take the same decisions without more communication.

use super::points::{Coordinates, DIMENSIONS, WeightedPoints};
use super::table::SavingsTable;
use crossbeam_utils::CachePadded;
use rand::{RngCore, SeedableRng};
use rand_pcg::Pcg32;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering::Relaxed};

/// The effort of a search: the numbers of evaluations and of candidates are this factor times k ln k, as in
/// streamcluster.
const EFFORT_FACTOR: f64 = 3.0;

/// A pass that lowers the cost by less than this share is the last one. `FINE_IMPROVEMENT` applies if the
/// number of centers is nearly right. Both are as in streamcluster.
const COARSE_IMPROVEMENT: f64 = 0.1;
const FINE_IMPROVEMENT: f64 = 0.001;

/// The wanted number of centers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CentreRange {
    pub fewest: usize,
    pub most: usize,
}

impl Default for CentreRange {
    /// The default is the range of PARSEC's inputs.
    fn default() -> Self {
        Self { fewest: 10, most: 20 }
    }
}

impl CentreRange {
    fn contains(self, centres: usize) -> bool {
        (self.fewest..=self.most).contains(&centres)
    }

    fn is_nearly(self, centres: usize) -> bool {
        let (k, fewest, most) = (centres as f64, self.fewest as f64, self.most as f64);
        (k <= 1.1 * most && k >= 0.9 * fewest) || (centres <= self.most + 2 && centres + 2 >= self.fewest)
    }

    fn effort(k: usize) -> usize {
        (EFFORT_FACTOR * k as f64 * (k as f64).ln()) as usize
    }

    /// Returns the number of evaluations in one pass.
    pub(super) fn evaluations(self) -> usize {
        Self::effort(self.most).max(1)
    }

    /// Returns the number of points that are tried as centers.
    pub(super) fn candidates(self) -> usize {
        Self::effort(self.fewest).max(self.fewest + 1)
    }
}

/// The state that the members of a team share.
#[derive(Debug)]
pub struct LocalSearch {
    pub(super) points: Arc<WeightedPoints>,
    range: CentreRange,
    seed: u64,
    members: usize,
    candidates: Vec<u32>,
    /// The current cost of each point, and in `assigned` the point that is its center. Both are written by
    /// the member that owns the point.
    pub(super) cost: Vec<AtomicI64>,
    pub(super) assigned: Vec<AtomicU32>,
    pub(super) is_centre: Vec<AtomicBool>,
    pub(super) table: SavingsTable,
    /// The members' values for sums: two sets, used in turn, so that a member that is one barrier ahead
    /// writes to the other set.
    sums: [Vec<CachePadded<AtomicI64>>; 2],
}

impl LocalSearch {
    /// Makes a search over at least one point, by `members` threads.
    pub fn new(points: Arc<WeightedPoints>, range: CentreRange, seed: u64, members: usize) -> Self {
        let n = points.len();
        let slots = || (0..members).map(|_| CachePadded::new(AtomicI64::new(0))).collect();
        Self {
            candidates: candidates(&points, range, seed),
            cost: (0..n).map(|_| AtomicI64::new(0)).collect(),
            assigned: (0..n).map(|_| AtomicU32::new(0)).collect(),
            is_centre: (0..n).map(|_| AtomicBool::new(false)).collect(),
            table: SavingsTable::new(n, members),
            sums: [slots(), slots()],
            points,
            range,
            seed,
            members,
        }
    }

    /// Runs the part of member `index`. Every member calls this once; `wait` is the team's barrier. The
    /// result may be read after all members have returned and have passed another barrier.
    pub fn run(&self, index: usize, wait: impl FnMut() -> Result<(), String>) -> Result<(), String> {
        if self.points.is_empty() {
            return Ok(());
        }
        SearchMember::new(self, index, wait).search()
    }

    /// Returns the centroid of each cluster, with the cluster's weight.
    pub fn centres(&self) -> WeightedPoints {
        let n = self.points.len();
        let mut place = vec![None; n];
        let mut sums: Vec<([i64; DIMENSIONS], i64)> = Vec::new();
        for (point, (coordinates, weight)) in self.points.iter().enumerate() {
            let centre = self.assigned[point].load(Relaxed) as usize;
            let place = *place[centre].get_or_insert_with(|| {
                sums.push(([0; DIMENSIONS], 0));
                sums.len() - 1
            });
            let (sum, total) = &mut sums[place];
            *total += weight;
            for (sum, coordinate) in sum.iter_mut().zip(coordinates) {
                *sum += i64::from(*coordinate) * weight;
            }
        }
        let mut centres = WeightedPoints::default();
        for (sum, total) in sums {
            // the mean of numbers up to 1023 is at most 1023
            let mean: Coordinates = sum.map(|sum| ((sum + total / 2) / total) as i16);
            centres.push(mean, total);
        }
        centres
    }

    #[cfg(test)]
    pub(super) fn assignment(&self) -> Vec<usize> {
        self.assigned.iter().map(|centre| centre.load(Relaxed) as usize).collect()
    }
}

/// Draws points in proportion to their weights, or returns all points if there are few.
pub(super) fn candidates(points: &WeightedPoints, range: CentreRange, seed: u64) -> Vec<u32> {
    let n = points.len();
    if n <= range.candidates() {
        return (0..n as u32).collect();
    }
    let mut until = 0;
    let sums: Vec<i64> = points.iter().map(|(_, weight)| (until += weight, until).1).collect();
    let mut generator = Pcg32::seed_from_u64(seed);
    let mut draw = || {
        let at = (u128::from(generator.next_u64()) * until as u128) >> 64;
        sums.partition_point(|sum| *sum as u128 <= at) as u32
    };
    (0..range.candidates()).map(|_| draw()).collect()
}

/// Returns the order of a pass's candidates.
pub(super) fn shuffled(candidates: &[u32], seed: u64, pass: u64) -> Vec<u32> {
    let mut generator = Pcg32::new(seed, pass);
    let mut order = candidates.to_vec();
    for i in (1..order.len()).rev() {
        order.swap(i, ((u64::from(generator.next_u32()) * (i as u64 + 1)) >> 32) as usize);
    }
    order
}

/// Returns whether Meyerson's rule opens a center at a point with this `cost`: it does with the probability
/// cost / z.
pub(super) fn opens(seed: u64, attempt: u64, point: usize, cost: i64, z: i64) -> bool {
    let mut hash = seed ^ (attempt << 32) ^ point as u64;
    for _ in 0..2 {
        hash = (hash ^ (hash >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    i128::from(hash >> 32) * i128::from(z) < i128::from(cost) << 32
}

/// One thread's part of a search.
pub(super) struct SearchMember<'a, W> {
    pub(super) search: &'a LocalSearch,
    pub(super) index: usize,
    pub(super) own: Range<usize>,
    pub(super) wait: W,
    /// The current cost of a center.
    pub(super) z: i64,
    /// The current number of centers.
    pub(super) centres: usize,
    /// For each own point, whether it would move to the candidate.
    pub(super) moves: Vec<bool>,
    parity: usize,
    attempts: u64,
    passes: u64,
}

impl<'a, W: FnMut() -> Result<(), String>> SearchMember<'a, W> {
    fn new(search: &'a LocalSearch, index: usize, wait: W) -> Self {
        let (n, members) = (search.points.len(), search.members);
        let own = n * index / members..n * (index + 1) / members;
        let moves = vec![false; own.len()];
        Self { search, index, own, wait, z: 0, centres: 0, moves, parity: 0, attempts: 0, passes: 0 }
    }

    fn search(&mut self) -> Result<(), String> {
        let (points, range) = (&self.search.points, self.search.range);
        if points.len() <= range.most {
            for point in self.own.clone() {
                self.open(point);
                self.assign(point, point, 0);
            }
            return Ok(());
        }
        let own = self.own.clone().map(|point| points.cost(point, 0)).sum();
        let (mut low, mut high) = (0, self.sum(own)?);
        self.z = i64::midpoint(low, high);
        let mut cost = self.first_centres()?;
        while self.centres < range.fewest && high - low > 1 {
            high = self.z;
            self.z = i64::midpoint(low, high);
            cost = self.first_centres()?;
        }
        loop {
            cost = self.improve(cost, COARSE_IMPROVEMENT)?;
            if range.is_nearly(self.centres) {
                cost = self.improve(cost, FINE_IMPROVEMENT)?;
            }
            let before = self.z;
            if self.centres > range.most {
                low = self.z;
            } else if self.centres < range.fewest {
                high = self.z;
            }
            // the interval is halved in each step, so the loop ends
            if range.contains(self.centres) || high - low <= (high / 1000).max(1) {
                return Ok(());
            }
            self.z = i64::midpoint(low, high);
            cost += i128::from(self.z - before) * self.centres as i128;
        }
    }

    /// Opens centers by Meyerson's rule. Returns the total cost.
    fn first_centres(&mut self) -> Result<i128, String> {
        let search = self.search;
        let n = search.points.len();
        self.attempts += 1;
        for point in self.own.clone() {
            search.is_centre[point].store(false, Relaxed);
            self.assign(point, 0, search.points.cost(point, 0));
        }
        let (mut centre, mut from) = (0, 1);
        self.centres = 0;
        while centre < n {
            self.centres += 1;
            self.open(centre);
            for point in self.own.clone() {
                let cost = search.points.cost(point, centre);
                if cost < search.cost[point].load(Relaxed) {
                    self.assign(point, centre, cost);
                }
            }
            let opens = |point: &usize| {
                opens(search.seed, self.attempts, *point, search.cost[*point].load(Relaxed), self.z)
            };
            let mine = (self.own.start.max(from)..self.own.end).find(opens).unwrap_or(n);
            centre = self.min(mine)?;
            from = centre + 1;
        }
        let own = self.own.clone().map(|point| search.cost[point].load(Relaxed)).sum();
        Ok(i128::from(self.sum(own)?) + i128::from(self.z) * self.centres as i128)
    }

    /// Runs passes of evaluations until a pass lowers the cost by no more than the share `enough`. Returns
    /// the new cost.
    fn improve(&mut self, mut cost: i128, enough: f64) -> Result<i128, String> {
        loop {
            self.passes += 1;
            let order = shuffled(&self.search.candidates, self.search.seed, self.passes);
            let mut saved = 0;
            for candidate in order.iter().cycle().take(self.search.range.evaluations()) {
                saved += i128::from(self.evaluate(*candidate as usize)?);
            }
            cost -= saved;
            if saved as f64 <= enough * cost as f64 {
                return Ok(cost);
            }
        }
    }

    pub(super) fn open(&self, centre: usize) {
        if self.own.contains(&centre) {
            self.search.is_centre[centre].store(true, Relaxed);
        }
    }

    pub(super) fn assign(&self, point: usize, centre: usize, cost: i64) {
        self.search.assigned[point].store(centre as u32, Relaxed);
        self.search.cost[point].store(cost, Relaxed);
    }

    /// Returns the sum of all members' values.
    fn sum(&mut self, own: i64) -> Result<i64, String> {
        Ok(self.exchange(own)?.map(|sum| sum.load(Relaxed)).sum())
    }

    /// Returns the minimum of all members' values.
    fn min(&mut self, own: usize) -> Result<usize, String> {
        let min = self.exchange(own as i64)?.map(|own| own.load(Relaxed)).min();
        Ok(min.map_or(own, |min| min as usize))
    }

    fn exchange(&mut self, own: i64) -> Result<impl Iterator<Item = &'a CachePadded<AtomicI64>>, String> {
        let sums = &self.search.sums[self.parity];
        self.parity = 1 - self.parity;
        // SYNC(member-sum) release: arriving at the barrier publishes it
        sums[self.index].store(own, Relaxed);
        (self.wait)()?;
        // SYNC(member-sum) acquire: leaving the barrier orders the caller's loads after all stores
        Ok(sums.iter())
    }
}
