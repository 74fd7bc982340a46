//! For `unisono tree plan --ties exact` with many tied roots: finds, in one [`walk`](super::walk), the
//! heights of the trees of hundreds of roots, and the leaves of their trees by level order.
//!
//! In the tree by level order the parent of a switch is its neighbor of lowest id that is nearer to the root.
//! The walk finds that neighbor for every switch and every root, and so also distinguishes parents from
//! leaves. In a tree by queue, parents depend on the order within the level, which differs from root to root:
//! see [`branches`](super::branches).

use super::bits::{Bits, LaneCounter};
use super::graph::Graph;
use super::lean::TreeSize;
use super::walk::{NoRecorder, Walk, WalkRecorder};

/// By switch: the searches in whose trees the switch is a parent.
pub(super) struct Parents(Vec<Bits>);

impl Parents {
    pub(super) fn new(graph: &Graph) -> Self {
        Self(vec![Bits::NONE; graph.len()])
    }
}

impl WalkRecorder for Parents {
    type Gathered = ();

    fn begin(&mut self, _: &Graph, _: &[u32]) {
        self.0.fill(Bits::NONE);
    }

    fn gather(&self) {}

    #[inline(always)]
    fn take(&mut self, (): &mut (), near: usize, claim: Bits) {
        self.0[near] = self.0[near].or(claim);
    }

    #[inline(always)]
    fn put(&mut self, _: usize, (): ()) {}
}

pub(super) trait CountLeaves: WalkRecorder {
    /// Returns, for each lane, the number of leaves among these switches, or 1 if the walk does not record
    /// parents.
    fn leaves(&self, switches: &[u32], lanes: usize) -> Vec<u32>;
}

impl CountLeaves for NoRecorder {
    fn leaves(&self, _: &[u32], lanes: usize) -> Vec<u32> {
        vec![1; lanes]
    }
}

impl CountLeaves for Parents {
    fn leaves(&self, switches: &[u32], lanes: usize) -> Vec<u32> {
        let inner = LaneCounter::sum(switches.iter().map(|&switch| &self.0[switch as usize]));
        let all = u32::try_from(switches.len()).expect("fits because switches are counted in 32 bits");
        (0..lanes).map(|lane| (all - inner.count(lane)).max(1)).collect()
    }
}

/// Returns, for each root, the height of its tree over the members and the leaves of its tree by level order,
/// or `None` if the height exceeds `max_height`. The leaves are valid only if `K` records parents and every
/// reached switch has a member.
pub(super) fn measure<K: CountLeaves>(
    walk: &mut Walk<K>,
    graph: &Graph,
    roots: &[u32],
    members: &[u32],
    is_member: &[bool],
    max_height: u32,
) -> Vec<Option<TreeSize>> {
    let heights = walk.run(graph, roots, is_member, max_height);
    let mut complete = Bits::first(roots.len());
    for &member in members {
        complete = complete.and(walk.seen[member as usize]);
    }
    let leaves = walk.keep.leaves(members, roots.len());
    let result =
        |(lane, height): (usize, u32)| complete.has(lane).then(|| TreeSize { height, leaves: leaves[lane] });
    heights.into_iter().enumerate().map(result).collect()
}
