//! Hundreds of breadth-first searches in one walk over the network: a bit a root (multi-source search, Then et
//! al., "The more the merrier", 2014), with the heights and, for [`Scan::Level`](super::Scan), the leaves of
//! all of them.
//!
//! At each switch lies a row of bits, one a root: whom the search has reached, and whom in this very level. A
//! switch is reached, by all roots at once, from the bits of its neighbours; taken in order of id, the first
//! that brings a root's bit is the parent in that root's tree by level, so who is a parent, and so who is a
//! leaf, comes out on the way. In a tree by queue parents depend on the order within the level, which differs
//! from root to root, and bits cannot hold it: there this gives heights alone.
//!
//! Cost: for each switch, as many looks at its neighbours as there are levels in which some root reaches it:
//! all of a random network's dozen levels, whatever the roots; in a torus about the width of the area that
//! the roots lie in, which is why [`blocks`] takes roots that lie together.

use super::graph::Graph;
use super::lean::Limit;

/// Searches from 64 times W roots at once.
pub(super) struct Lanes<const W: usize> {
    seen: Vec<[u64; W]>,
    now: Vec<[u64; W]>,
    next: Vec<[u64; W]>,
    /// Of whose trees a switch is a parent.
    inner: Vec<[u64; W]>,
    mark: Vec<Mark>,
    front: Vec<u32>,
    reach: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Open,
    /// Beside the front, and to be looked at.
    Listed,
    /// Reached from all roots.
    Full,
}

impl<const W: usize> Lanes<W> {
    pub(super) const ROOTS: usize = 64 * W;

    pub(super) fn new(graph: &Graph) -> Self {
        let rows = || vec![[0; W]; graph.len()];
        let (seen, now, next, inner) = (rows(), rows(), rows(), rows());
        Self {
            seen,
            now,
            next,
            inner,
            mark: vec![Mark::Open; graph.len()],
            front: Vec::new(),
            reach: Vec::new(),
        }
    }

    /// The height of each root's tree over the members, none where it exceeds the most, and its leaves by
    /// level order, which mean something only if every switch that is reached has a member.
    pub(super) fn measure(
        &mut self,
        graph: &Graph,
        roots: &[u32],
        members: &[u32],
        is_member: &[bool],
        most: u32,
    ) -> Vec<Option<Limit>> {
        let all: [u64; W] = std::array::from_fn(|word| {
            let lanes = roots.len().saturating_sub(64 * word);
            if lanes >= 64 { u64::MAX } else { (1 << lanes) - 1 }
        });
        self.begin(roots);
        let mut heights = vec![0; roots.len()];
        let mut level = 0;
        while !self.front.is_empty() && level < most {
            level += 1;
            let moved = self.grow(graph, &all, is_member);
            for (lane, height) in heights.iter_mut().enumerate() {
                if moved[lane / 64] >> (lane % 64) & 1 == 1 {
                    *height = level;
                }
            }
        }
        let mut complete = all;
        for &member in members {
            and(&mut complete, &self.seen[member as usize]);
        }
        let leaves = self.leaves(members);
        let result = |(lane, height): (usize, u32)| {
            let whole = complete[lane / 64] >> (lane % 64) & 1 == 1;
            whole.then(|| Limit { height, leaves: leaves[lane].max(1) })
        };
        heights.into_iter().enumerate().map(result).collect()
    }

    fn begin(&mut self, roots: &[u32]) {
        for row in [&mut self.seen, &mut self.now, &mut self.next, &mut self.inner] {
            row.fill([0; W]);
        }
        self.mark.fill(Mark::Open);
        self.front.clear();
        for (lane, &root) in roots.iter().enumerate() {
            self.seen[root as usize][lane / 64] |= 1 << (lane % 64);
            self.now[root as usize][lane / 64] |= 1 << (lane % 64);
            self.front.push(root);
        }
    }

    /// One more level of all searches; which of them reached a member.
    fn grow(&mut self, graph: &Graph, all: &[u64; W], is_member: &[bool]) -> [u64; W] {
        self.reach.clear();
        for &switch in &self.front {
            for &near in graph.near(switch) {
                if self.mark[near as usize] == Mark::Open {
                    self.mark[near as usize] = Mark::Listed;
                    self.reach.push(near);
                }
            }
        }
        let mut moved = [0; W];
        let mut kept = 0;
        for at in 0..self.reach.len() {
            let switch = self.reach[at];
            let seen = &mut self.seen[switch as usize];
            let before: [u64; W] = std::array::from_fn(|word| all[word] & !seen[word]);
            let mut open = before;
            for &near in graph.near(switch) {
                let (now, inner) = (&self.now[near as usize], &mut self.inner[near as usize]);
                for word in 0..W {
                    let claim = now[word] & open[word];
                    inner[word] |= claim;
                    open[word] ^= claim;
                }
            }
            let new: [u64; W] = std::array::from_fn(|word| before[word] ^ open[word]);
            let full = open.iter().all(|word| *word == 0);
            self.mark[switch as usize] = if full { Mark::Full } else { Mark::Open };
            if new.iter().all(|word| *word == 0) {
                continue;
            }
            for word in 0..W {
                seen[word] |= new[word];
                moved[word] |= if is_member[switch as usize] { new[word] } else { 0 };
            }
            self.next[switch as usize] = new;
            self.reach[kept] = switch;
            kept += 1;
        }
        self.reach.truncate(kept);
        for &switch in &self.front {
            self.now[switch as usize] = [0; W];
        }
        std::mem::swap(&mut self.now, &mut self.next);
        std::mem::swap(&mut self.front, &mut self.reach);
        moved
    }

    /// For each lane, how many of the switches are no parent: counted in binary, a row of bits a digit.
    fn leaves(&self, switches: &[u32]) -> Vec<u32> {
        let mut digits: Vec<[u64; W]> = Vec::new();
        for &switch in switches {
            let mut carry = self.inner[switch as usize].map(|word| !word);
            for digit in &mut digits {
                let both: [u64; W] = std::array::from_fn(|word| digit[word] & carry[word]);
                for word in 0..W {
                    digit[word] ^= carry[word];
                }
                carry = both;
                if carry.iter().all(|word| *word == 0) {
                    break;
                }
            }
            if carry.iter().any(|word| *word != 0) {
                digits.push(carry);
            }
        }
        let count = |lane: usize| {
            let bits = (0..).zip(&digits).filter(|(_, digit)| digit[lane / 64] >> (lane % 64) & 1 == 1);
            bits.map(|(place, _)| 1 << place).sum()
        };
        (0..Self::ROOTS).map(count).collect()
    }
}

fn and<const W: usize>(row: &mut [u64; W], other: &[u64; W]) {
    for (word, other) in row.iter_mut().zip(other) {
        *word &= other;
    }
}

/// Puts roots into an order in which those that lie together follow each other: balls of so many around the
/// first that is left.
pub(super) fn blocks(graph: &Graph, roots: &[u32], size: usize) -> Vec<u32> {
    let mut wanted = vec![false; graph.len()];
    roots.iter().for_each(|&root| wanted[root as usize] = true);
    let mut ordered = Vec::with_capacity(roots.len());
    let mut queue = std::collections::VecDeque::new();
    for &first in roots {
        if !wanted[first as usize] {
            continue;
        }
        queue.clear();
        queue.push_back(first);
        wanted[first as usize] = false;
        while let Some(root) = queue.pop_front() {
            ordered.push(root);
            if ordered.len() % size == 0 {
                queue.drain(..).for_each(|root| wanted[root as usize] = true);
                break;
            }
            for &near in graph.near(root) {
                if std::mem::take(&mut wanted[near as usize]) {
                    queue.push_back(near);
                }
            }
        }
    }
    // Who was put back into the queue's place after its turn had gone by.
    ordered.extend(roots.iter().copied().filter(|&root| wanted[root as usize]));
    ordered
}
