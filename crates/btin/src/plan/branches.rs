//! For `unisono tree plan --ties exact --scan queue` with very many tied roots: counts the leaves of the
//! trees by queue around hundreds of roots at once.
//!
//! The idea: the trees by level order around all switches determine these leaves. In the tree by queue around
//! r, the way from r to u is lexicographically the first of the shortest ways: each switch on it is followed
//! by the neighbor of lowest id that is nearer to u. For all r together, these steps are the links of the
//! tree by level order around u. So the parent of u in the tree by queue around r is the neighbor of u whose
//! subtree contains r in the tree by level order around u. The number of that neighbor is the *branch* of r
//! around u.
//!
//! One [`walk`](super::walk) finds the branches of all r around 512 switches u: each switch inherits its
//! branch, a few bits for each search, from its parent. A switch v is a parent in the tree by queue around r
//! if r lies in the branch of v around some neighbor u of v. All other switches are leaves.
//!
//! ```text
//!   rows: r, lanes: u       --transposed-->   rows: u, lanes: r   --all near u of v-->   rows: v, lanes: r
//!   branch of r around u    (512 by 512)      v is a parent around r                     counted: leaves
//! ```
//!
//! Cost: the time of the walk, plus the bits of a branch to read at each visited edge; and one bit of memory
//! for each pair of root and switch. Therefore, in large networks the roots are divided into portions, with
//! one walk over all switches for each portion. When not to use it: with few tied roots, one search for each
//! root costs less.

use super::bits::{Bits, LANES, LaneCounter, WORDS, transpose};
use super::graph::Graph;
use super::lean::TreeSize;
use super::walk::{Walk, WalkRecorder};
use super::workers::{PlanWatch, Workers, unwatched};
use std::sync::{Mutex, PoisonError};
use unisono_intrinsics::{Wide, vectorized};

/// The maximum number of bits (roots times switches) in memory: 2 GiB.
const MAX_BITS: usize = 16 << 30;

/// By switch and lane: the number of the branch. Each of its D binary digits has a row.
struct Branch<const D: usize>(Vec<[Bits; D]>);

impl<const D: usize> WalkRecorder for Branch<D> {
    type Gathered = [Bits; D];

    fn begin(&mut self, graph: &Graph, from: &[u32]) {
        self.0.fill([Bits::NONE; D]);
        for (lane, &around) in from.iter().enumerate() {
            for (number, &near) in graph.near(around).iter().enumerate() {
                for (place, digit) in self.0[near as usize].iter_mut().enumerate() {
                    if number >> place & 1 == 1 {
                        digit.put(lane);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn gather(&self) -> [Bits; D] {
        [Bits::NONE; D]
    }

    #[inline(always)]
    fn take(&mut self, gathered: &mut [Bits; D], near: usize, claim: Bits) {
        if claim.is_none() {
            return;
        }
        for (digit, theirs) in gathered.iter_mut().zip(&self.0[near]) {
            *digit = digit.or(claim.and(*theirs));
        }
    }

    #[inline(always)]
    fn put(&mut self, switch: usize, gathered: [Bits; D]) {
        for (digit, gathered) in self.0[switch].iter_mut().zip(gathered) {
            *digit = digit.or(gathered);
        }
    }
}

/// Returns the number of binary digits that the branch numbers of this network need, or `None` if they need
/// more than a walk supports.
pub(super) fn digits(graph: &Graph) -> Option<usize> {
    let max_degree = (0..).take(graph.len()).map(|switch| graph.near(switch).len()).max().unwrap_or(0);
    [1, 2, 3, 4, 5, 6].into_iter().find(|digits| max_degree <= 1 << digits)
}

/// Returns the number of walks over the whole network that this many roots need.
pub(super) fn walks(graph: &Graph, roots: usize) -> usize {
    roots.div_ceil(portion(graph))
}

/// Returns the number of roots that one walk over the whole network serves.
pub(super) fn portion(graph: &Graph) -> usize {
    (MAX_BITS / graph.len() / LANES).max(1) * LANES
}

/// Measures the height and the leaves by queue of each root's tree, if all reached switches have members.
pub(super) struct QueueLeaves<'a> {
    pub(super) graph: &'a Graph,
    /// All reached switches, in an order in which neighbors in the network are close to each other.
    pub(super) all: &'a [u32],
    pub(super) workers: Workers,
    /// The number of roots to measure at a time.
    pub(super) portion: usize,
}

impl QueueLeaves<'_> {
    /// Returns the measures of each root's tree, or `None` if a switch has too many neighbors for the digits
    /// or if the caller stopped the measurement.
    pub(super) fn measure(&self, roots: &[u32], watch: &mut PlanWatch) -> Option<Vec<TreeSize>> {
        let mut found = Vec::with_capacity(roots.len());
        for portion in roots.chunks(self.portion) {
            found.extend(match digits(self.graph)? {
                1 => self.together::<1>(portion, watch),
                2 => self.together::<2>(portion, watch),
                3 => self.together::<3>(portion, watch),
                4 => self.together::<4>(portion, watch),
                5 => self.together::<5>(portion, watch),
                _ => self.together::<6>(portion, watch),
            });
            if watch.stopped {
                return None;
            }
        }
        Some(found)
    }

    fn together<const D: usize>(&self, roots: &[u32], watch: &mut PlanWatch) -> Vec<TreeSize> {
        let Self { graph, all, workers, .. } = *self;
        let everywhere = vec![true; graph.len()];
        let mut column = vec![usize::MAX; graph.len()];
        roots.iter().enumerate().for_each(|(at, &root)| column[root as usize] = at);
        // For each block of 512 roots, by switch: the roots in whose trees the switch is a parent.
        let parents: Vec<Mutex<Vec<Bits>>> = roots.chunks(LANES).map(|_| Mutex::new(Vec::new())).collect();
        let open = |chunk: usize| parents[chunk].lock().unwrap_or_else(PoisonError::into_inner);

        let blocks = all.len().div_ceil(LANES);
        let state = || {
            let walk = Walk::new(graph, Branch(vec![[Bits::NONE; D]; graph.len()]));
            (walk, vec![[Bits::NONE; D]; LANES], Vec::new())
        };
        let each = workers.run_pieces(
            blocks,
            &mut |block| watch.report(block, blocks),
            state,
            |(walk, turned, heights), block| {
                let around = &all[block * LANES..all.len().min((block + 1) * LANES)];
                let found = walk.run(graph, around, &everywhere, u32::MAX);
                heights.extend(around.iter().copied().zip(found));
                // Every thread starts at a different chunk of roots, so that threads seldom wait for each
                // other's lock.
                let chunks = roots.len().div_ceil(LANES);
                for chunk in (0..chunks).map(|chunk| (chunk + block) % chunks) {
                    let mut parents = open(chunk);
                    if parents.is_empty() {
                        parents.resize(graph.len(), Bits::NONE);
                    }
                    let roots = &roots[chunk * LANES..roots.len().min((chunk + 1) * LANES)];
                    vectorized(Transpose { branch: &walk.keep.0, roots, turned });
                    let first = chunk * LANES;
                    vectorized(MarkParents {
                        graph,
                        around,
                        turned,
                        parents: &mut parents,
                        column: &column,
                        first,
                    });
                }
            },
        );
        let mut height = vec![0; graph.len()];
        for (around, found) in each.into_iter().flat_map(|(_, _, heights)| heights) {
            height[around as usize] = found;
        }
        let count = u32::try_from(all.len()).expect("fits because switches are counted in 32 bits");
        let mut inner = vec![0; roots.len()];
        let counted = workers.run_pieces(parents.len(), &mut unwatched, Vec::new, |counted, chunk| {
            counted.push((chunk, LaneCounter::sum(open(chunk).iter())));
        });
        for (chunk, counter) in counted.into_iter().flatten() {
            let chunk = inner.iter_mut().skip(chunk * LANES).take(LANES);
            chunk.enumerate().for_each(|(lane, inner)| *inner = counter.count(lane));
        }
        let limit = |(&root, inner): (&u32, u32)| TreeSize {
            height: height[root as usize],
            leaves: (count - inner).max(1),
        };
        roots.iter().zip(inner).map(limit).collect()
    }
}

/// Turns rows by root into rows by lane.
struct Transpose<'a, const D: usize> {
    branch: &'a [[Bits; D]],
    roots: &'a [u32],
    turned: &'a mut [[Bits; D]],
}

impl<const D: usize> Wide for Transpose<'_, D> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (word, roots) in self.roots.chunks(64).enumerate() {
            for digit in 0..D {
                let mut square = [Bits::NONE; 64];
                for (row, &root) in square.iter_mut().zip(roots) {
                    *row = self.branch[root as usize][digit];
                }
                transpose(&mut square);
                for (bit, row) in square.iter().enumerate() {
                    for (part, bits) in row.0.iter().enumerate() {
                        self.turned[part * 64 + bit][digit].0[word] = *bits;
                    }
                }
            }
        }
    }
}

/// Marks parents in the trees around up to 512 roots, the first of which has the index `first`. The branches
/// around the switches of one block show which switches are parents.
struct MarkParents<'a, const D: usize> {
    graph: &'a Graph,
    around: &'a [u32],
    turned: &'a [[Bits; D]],
    parents: &'a mut [Bits],
    /// By switch: its index among the roots.
    column: &'a [usize],
    first: usize,
}

impl<const D: usize> Wide for MarkParents<'_, D> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (&around, digits) in self.around.iter().zip(self.turned) {
            // A switch is in no branch around itself.
            let mut others = Bits([u64::MAX; WORDS]);
            let lane = self.column[around as usize].wrapping_sub(self.first);
            if lane < LANES {
                others.0[lane / 64] ^= 1 << (lane % 64);
            }
            for (number, &near) in self.graph.near(around).iter().enumerate() {
                let mut here = others;
                for (place, digit) in digits.iter().enumerate() {
                    here = if number >> place & 1 == 1 { here.and(*digit) } else { here.and_not(*digit) };
                }
                let parents = &mut self.parents[near as usize];
                *parents = parents.or(here);
            }
        }
    }
}
