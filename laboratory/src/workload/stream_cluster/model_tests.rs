//! A slow sequential version of the search, to compare with: it has one thread and sets of points, and
//! computes every cost from its definition. It shares only the random numbers with the search.

use super::points::{Coordinates, WeightedPoints, distance};
use super::search::{CentreRange, LocalSearch, candidates, opens, shuffled};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Barrier};
use std::thread;

struct SlowSearch<'a> {
    points: &'a WeightedPoints,
    range: CentreRange,
    seed: u64,
    z: i64,
    /// The points of each center.
    clusters: BTreeMap<usize, BTreeSet<usize>>,
    attempts: u64,
    passes: u64,
}

impl<'a> SlowSearch<'a> {
    /// Returns the center of each point.
    fn run(points: &'a WeightedPoints, range: CentreRange, seed: u64) -> Vec<usize> {
        let clusters = BTreeMap::new();
        let mut slow = Self { points, range, seed, z: 0, clusters, attempts: 0, passes: 0 };
        slow.search();
        let mut centres = vec![usize::MAX; points.len()];
        for (centre, members) in &slow.clusters {
            members.iter().for_each(|point| centres[*point] = *centre);
        }
        centres
    }

    fn pays(&self, point: usize, centre: usize) -> i64 {
        distance(self.points.coordinates(point), self.points.coordinates(centre)) * self.points.weight(point)
    }

    fn total(&self, clusters: &BTreeMap<usize, BTreeSet<usize>>) -> i128 {
        let points = clusters.iter().flat_map(|(centre, members)| members.iter().map(|p| (*p, *centre)));
        points.map(|(point, centre)| i128::from(self.pays(point, centre))).sum::<i128>()
            + i128::from(self.z) * clusters.len() as i128
    }

    fn search(&mut self) {
        let n = self.points.len();
        if n <= self.range.most {
            self.clusters = (0..n).map(|point| (point, BTreeSet::from([point]))).collect();
            return;
        }
        let mut interval = (0, (0..n).map(|point| self.pays(point, 0)).sum::<i64>());
        loop {
            self.z = i64::midpoint(interval.0, interval.1);
            self.first_centres();
            if self.clusters.len() >= self.range.fewest || interval.1 - interval.0 <= 1 {
                break;
            }
            interval.1 = self.z;
        }
        loop {
            self.improve(0.1);
            let k = self.clusters.len();
            let (most, fewest) = (self.range.most, self.range.fewest);
            let is_near = k as f64 <= 1.1 * most as f64 && k as f64 >= 0.9 * fewest as f64;
            if is_near || (k <= most + 2 && k + 2 >= fewest) {
                self.improve(0.001);
            }
            let k = self.clusters.len();
            if k > most {
                interval.0 = self.z;
            }
            if k < fewest {
                interval.1 = self.z;
            }
            if (fewest..=most).contains(&k) || interval.1 - interval.0 <= (interval.1 / 1000).max(1) {
                return;
            }
            self.z = i64::midpoint(interval.0, interval.1);
        }
    }

    fn first_centres(&mut self) {
        self.attempts += 1;
        let n = self.points.len();
        self.clusters = BTreeMap::from([(0, (0..n).collect())]);
        for candidate in 1..n {
            let centre = *self.clusters.iter().find(|(_, p)| p.contains(&candidate)).expect("assigned").0;
            if !opens(self.seed, self.attempts, candidate, self.pays(candidate, centre), self.z) {
                continue;
            }
            let mut moved = BTreeSet::new();
            for (centre, members) in self.clusters.clone() {
                for point in members {
                    if self.pays(point, candidate) < self.pays(point, centre) {
                        moved.insert(point);
                        self.clusters.get_mut(&centre).expect("a centre").remove(&point);
                    }
                }
            }
            self.clusters.insert(candidate, moved);
        }
    }

    fn improve(&mut self, enough: f64) {
        loop {
            self.passes += 1;
            let before = self.total(&self.clusters);
            let list = candidates(self.points, self.range, self.seed);
            let order = shuffled(&list, self.seed, self.passes);
            for i in 0..self.range.evaluations() {
                self.evaluate(order[i % order.len()] as usize);
            }
            let after = self.total(&self.clusters);
            if (before - after) as f64 <= enough * after as f64 {
                return;
            }
        }
    }

    /// Builds the clusters that include the candidate as a center, and keeps them if they cost less.
    fn evaluate(&mut self, candidate: usize) {
        let mut with = BTreeMap::from([(candidate, BTreeSet::new())]);
        for (centre, members) in &self.clusters {
            let is_nearer = |point: &usize| self.pays(*point, candidate) < self.pays(*point, *centre);
            let (moving, staying): (BTreeSet<_>, BTreeSet<_>) = members.iter().copied().partition(is_nearer);
            let sum = |to: usize| staying.iter().map(|point| self.pays(*point, to)).sum::<i64>();
            let closes = *centre == candidate || sum(candidate) < sum(*centre) + self.z;
            let joined: &mut BTreeSet<usize> = with.get_mut(&candidate).expect("inserted");
            joined.extend(moving);
            if closes {
                joined.extend(staying);
            } else {
                with.insert(*centre, staying);
            }
        }
        if self.total(&with) < self.total(&self.clusters) {
            self.clusters = with;
        }
    }
}

/// Returns the center of each point, found by `members` threads.
fn by_team(points: &Arc<WeightedPoints>, range: CentreRange, seed: u64, members: usize) -> Vec<usize> {
    let search = LocalSearch::new(points.clone(), range, seed, members);
    let barrier = Barrier::new(members);
    thread::scope(|scope| {
        for index in 0..members {
            let (search, barrier) = (&search, &barrier);
            scope.spawn(move || {
                let wait = || {
                    barrier.wait();
                    Ok(())
                };
                search.run(index, wait).expect("no barrier fails");
            });
        }
    });
    search.assignment()
}

/// Generates points that differ only in the first few dimensions; some of them are equal.
fn any_points() -> impl Strategy<Value = WeightedPoints> {
    let point = (prop::array::uniform3(0..40i16), 1..5i64);
    prop::collection::vec(point, 1..60).prop_map(|all| {
        let mut points = WeightedPoints::default();
        for (few, weight) in all {
            let coordinates = std::array::from_fn(|d| few.get(d).copied().unwrap_or(0) * 25);
            points.push(coordinates, weight);
        }
        points
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_team_finds_what_the_slow_sequential_version_finds(
        points in any_points(), members in 1..5usize, fewest in 1..6usize, more in 0..4usize, seed in 0..u64::MAX,
    ) {
        let range = CentreRange { fewest, most: fewest + more };
        let slow = SlowSearch::run(&points, range, seed);
        prop_assert_eq!(by_team(&Arc::new(points), range, seed, members), slow);
    }
}

/// Makes points around this many random places, in turn.
pub(super) fn known_clusters(size: usize, places: usize, spread: u32, seed: u64) -> WeightedPoints {
    use rand::RngCore;
    let mut generator = rand_pcg::Pcg32::new(seed, 0);
    let mut draw = |most: u32| (generator.next_u32() % most) as i16;
    let bases: Vec<Coordinates> = (0..places).map(|_| std::array::from_fn(|_| 100 + draw(800))).collect();
    let mut points = WeightedPoints::default();
    for i in 0..size {
        points.push(bases[i % places].map(|c| c + draw(spread) - (spread / 2) as i16), 1);
    }
    points
}

#[test]
fn known_clusters_are_found_and_kept_apart() {
    let places = 14;
    let points = Arc::new(known_clusters(420, places, 60, 5));
    let centre_of = by_team(&points, CentreRange::default(), 7, 3);
    let centres: BTreeSet<usize> = centre_of.iter().copied().collect();
    assert!((10..=20).contains(&centres.len()), "{} centres", centres.len());
    // if there are at least as many centers as places, no center has points of two places
    let mixed = centre_of.iter().enumerate().filter(|(point, centre)| point % places != **centre % places);
    assert!(centres.len() < places || mixed.count() == 0, "{centres:?}");
    assert!(centres.len() >= places, "{} centres for {places} places", centres.len());
}
