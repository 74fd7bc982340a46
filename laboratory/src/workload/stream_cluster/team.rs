//! Updates a stream's clusters chunk by chunk, by a team of threads.

use super::points::WeightedPoints;
use super::search::{CentreRange, LocalSearch};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The maximum number of centers that are kept before they are merged: the centers of ten chunks or more.
/// Each merge loses a little precision, and a search over the kept centers takes longer, the more there are.
const MAX_KEPT: usize = 200;

/// The maximum weight. Above it, weights are halved, so that sums of costs fit in 64 bits, however long the
/// stream is.
const MAX_WEIGHT: i64 = 1 << 32;

/// The clusters after a chunk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamClusters {
    /// The clusters of this chunk alone.
    pub of_chunk: WeightedPoints,
    /// The clusters of the stream so far.
    pub of_stream: WeightedPoints,
}

/// The state that the members of a team share over all chunks.
#[derive(Debug)]
pub struct ClusterTeam {
    members: usize,
    range: CentreRange,
    seed: u64,
    /// The current search. `None` at the end of the stream.
    search: RwLock<Option<Arc<LocalSearch>>>,
    /// The clusters of the stream so far. Only member 0 uses them.
    stream: Mutex<KeptCentres>,
}

#[derive(Debug, Default)]
struct KeptCentres {
    chunks: u64,
    centres: WeightedPoints,
}

impl ClusterTeam {
    pub fn new(members: usize, range: CentreRange, seed: u64) -> Self {
        Self { members, range, seed, search: RwLock::default(), stream: Mutex::default() }
    }

    /// Runs member `index`'s part of the next chunk. Every member must call this equally often. Only member 0
    /// calls `next`. It waits for a chunk and returns `None` at the end of the stream. Returns the clusters
    /// to member 0, empty clusters to the others, and `Ok(None)` to all at the end of the stream.
    pub fn update(
        &self,
        index: usize,
        mut wait: impl FnMut() -> Result<(), String>,
        next: impl FnOnce() -> Option<Arc<WeightedPoints>>,
    ) -> Result<Option<StreamClusters>, String> {
        if index == 0 {
            self.begin(next().filter(|chunk| !chunk.is_empty()));
        }
        wait()?;
        let search = self.search.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(search) = search else { return Ok(None) };
        search.run(index, &mut wait)?;
        wait()?;
        if index > 0 {
            return Ok(Some(StreamClusters::default()));
        }
        let of_chunk = search.centres();
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let of_stream = stream.update(&of_chunk, self.range, self.seed);
        Ok(Some(StreamClusters { of_chunk, of_stream }))
    }

    fn begin(&self, points: Option<Arc<WeightedPoints>>) {
        let chunks = self.stream.lock().unwrap_or_else(PoisonError::into_inner).chunks;
        let search = |points| LocalSearch::new(points, self.range, self.seed ^ (chunks << 20), self.members);
        let search = points.map(|points| Arc::new(search(points)));
        *self.search.write().unwrap_or_else(PoisonError::into_inner) = search;
    }
}

impl KeptCentres {
    /// Returns the stream's clusters after a chunk with the clusters `of_chunk`. A single thread searches the
    /// kept centers, because there are far fewer of them than points in a chunk, and a barrier would take
    /// longer than the work before it.
    fn update(&mut self, of_chunk: &WeightedPoints, range: CentreRange, seed: u64) -> WeightedPoints {
        self.chunks += 1;
        self.centres.extend(of_chunk);
        let search = LocalSearch::new(Arc::new(self.centres.clone()), range, seed ^ self.chunks, 1);
        // a barrier of one member never fails
        let found = search.run(0, || Ok(())).map_or_else(|_| of_chunk.clone(), |()| search.centres());
        self.fold(&found);
        found
    }

    /// Replaces the kept centers by their clusters if there are too many, and halves weights that are too
    /// large.
    fn fold(&mut self, clusters: &WeightedPoints) {
        if self.centres.len() > MAX_KEPT {
            self.centres.clone_from(clusters);
        }
        if self.centres.total_weight() > MAX_WEIGHT {
            self.centres.halve();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model_tests::known_clusters;
    use super::super::points::distance;
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    /// Returns the updates of member 0 after each chunk.
    fn updates(members: usize, chunks: &[Arc<WeightedPoints>]) -> Vec<StreamClusters> {
        let team = ClusterTeam::new(members, CentreRange::default(), 3);
        let barrier = Barrier::new(members);
        let found = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for index in 0..members {
                let (team, barrier, found) = (&team, &barrier, &found);
                scope.spawn(move || {
                    let mut chunks = chunks.iter().cloned();
                    let wait = || {
                        barrier.wait();
                        Ok(())
                    };
                    while let Some(clusters) =
                        team.update(index, wait, || chunks.next()).expect("no barrier fails")
                    {
                        if index == 0 {
                            found.lock().expect("nobody panicked").push(clusters);
                        }
                    }
                });
            }
        });
        found.into_inner().expect("nobody panicked")
    }

    #[test]
    fn chunks_fold_into_weighted_centres_that_stand_for_all_points() {
        let chunk = |seed| Arc::new(known_clusters(120, 12, 40, seed));
        let chunks: Vec<_> = (0..4).map(|i| chunk(i % 2)).collect();
        let found = updates(2, &chunks);
        assert_eq!(found.len(), chunks.len());
        for (i, clusters) in found.iter().enumerate() {
            assert_eq!(clusters.of_chunk.total_weight(), 120);
            assert_eq!(clusters.of_stream.total_weight(), 120 * (i as i64 + 1), "after {i} chunks");
        }
        // 24 places are too many for 20 centers; each center of a chunk is in the middle of its place
        let first = &found[0].of_chunk;
        assert_eq!(first.len(), 12, "{} centres", first.len());
        for (point, _) in chunks[0].iter() {
            let nearest = first.iter().map(|(centre, _)| distance(point, centre)).min();
            assert!(nearest.is_some_and(|d| d < 128 * 40 * 40), "{nearest:?}");
        }
    }

    #[test]
    fn the_clusters_do_not_depend_on_the_number_of_threads() {
        let chunks: Vec<_> = (0..2).map(|seed| Arc::new(known_clusters(100, 30, 300, seed))).collect();
        let alone = updates(1, &chunks);
        assert_eq!(updates(2, &chunks), alone);
        assert_eq!(updates(5, &chunks), alone);
    }

    #[test]
    fn old_weights_are_halved_before_they_grow_too_large() {
        let mut kept = KeptCentres::default();
        kept.centres.push([1; 128], MAX_WEIGHT);
        kept.centres.push([2; 128], 3);
        kept.fold(&WeightedPoints::default());
        assert_eq!(kept.centres.total_weight(), MAX_WEIGHT / 2 + 1);
    }

    #[test]
    fn what_is_kept_is_folded_when_there_is_too_much_of_it() {
        let mut clusters = WeightedPoints::default();
        clusters.push([1; 128], 1000);
        let mut kept = KeptCentres::default();
        for (centres, expected) in [(MAX_KEPT, MAX_KEPT), (1, 1)] {
            (0..centres).for_each(|_| kept.centres.push([1; 128], 5));
            kept.fold(&clusters);
            assert_eq!(kept.centres.len(), expected);
        }
        assert_eq!(kept.centres, clusters);
    }
}
