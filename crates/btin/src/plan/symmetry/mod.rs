//! For `unisono tree plan` with either kind of ties, in regular networks such as tori and fat trees: finds
//! roots with equal trees, because the network looks the same from many of its switches.
//!
//! A symmetry of the network maps the ways from a root onto the ways from the root's image. It need not map
//! the tree: if several neighbors are nearer, the tree takes the neighbor with the lowest id, and the
//! symmetry may change the order of ids. It does map the tree, and so keeps height and leaves, if it maps
//! every choice of the tree onto the choice that the tree of the root's image makes. By level order the tree
//! around r chooses at every switch w among the neighbors of w that are nearer to r. By queue it chooses, for
//! every u, at every w on the way from r to u, among the neighbors that are nearer to u (see
//! [`branches`](super::branches)). So a symmetry fails only for roots r for which some w has a target (r
//! itself; by queue also a u behind w) in several directions, and the symmetry does not keep the choice among
//! those directions.
//!
//! The competing directions are the same for all switches that symmetries map onto each other, so one search
//! from one switch of each [kind](SymmetricDigits::kinds) finds them for all. If a symmetry changes the order
//! of ids, and those directions compete, the affected roots are listed and left out. In a torus of even width
//! a row forms two classes, in a torus of odd width it forms one. In a k-ary fat tree the roots of one level
//! whose digits are 0 in the same places form one class. [`numbers`] guesses symmetries; every link is then
//! checked.
//!
//! Cost: O(links) for each symmetry and each kind. When not to use it: in irregular networks, and in regular
//! networks that are numbered at random. There it finds no symmetry, after it has visited some hundred
//! switches for each way to split the numbers into digits.

mod numbers;
mod shortest_paths;

use super::Scan;
use super::graph::Graph;
use super::workers::{Workers, unwatched};
use numbers::SymmetricDigits;
use shortest_paths::{ShortestPathTables, ShortestPaths, Slots};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// With more kinds than this, one search for each kind costs more than symmetries save.
const MAX_KINDS: u32 = 64;

/// The list of roots for which a symmetry fails may have this many entries for each switch of the network. If
/// it is longer, the symmetry does not help.
const MAX_LEFT_OUT: usize = 4;

/// If a single switch rules out more than 1/`HOPELESS` of the roots, the symmetry does not help.
const HOPELESS: usize = 32;

/// The effect of symmetries on trees of groups with members at every switch.
pub(super) struct Symmetries {
    lowest: Vec<u32>,
    kind: Vec<u8>,
    /// By kind and depth: a lower bound of a tree's leaves at that depth and below.
    leaves_at_least: Vec<Vec<u32>>,
}

impl Symmetries {
    /// Returns `None` if the network has no symmetries that help.
    pub(super) fn find(graph: &Graph, scan: Scan, workers: Workers) -> Option<Self> {
        let numbers = SymmetricDigits::guess(graph)?;
        if numbers.kinds() > MAX_KINDS {
            return None;
        }
        let count = graph.len() as u32;
        let moves = &numbers.moves;
        let workers = workers.for_steps(graph.edge_ends() * moves.len());
        let sound = AtomicBool::new(true);
        let prove = |(): &mut (), at: usize| {
            if sound.load(Ordering::Relaxed)
                && !SymmetricDigits::is_automorphism(graph, &moves[at].images(count))
            {
                sound.store(false, Ordering::Relaxed);
            }
        };
        workers.run_pieces(moves.len(), &mut unwatched, || (), prove);
        if !sound.into_inner() {
            return None;
        }
        let kinds: Option<Vec<ShortestPaths>> =
            numbers.origins().map(|origin| ShortestPaths::new(graph, origin)).collect();
        let paths = ShortestPathTables { graph, numbers: &numbers, kinds: &kinds? };
        let places = NeighbourOrder::new(&paths);
        let judge = |found: &mut Vec<(Vec<u32>, Vec<bool>)>, at: usize| {
            let images = moves[at].images(count);
            found.extend(
                SymmetryJudge::new(&paths, &places, scan).fails_for(&images).map(|fails| (images, fails)),
            );
        };
        let judged = workers.run_pieces(moves.len(), &mut unwatched, Vec::new, judge);
        let mut classes = Classes((0..count).collect());
        for (images, fails) in judged.into_iter().flatten() {
            let kept = (0..).zip(&images).filter(|&(root, &image)| root != image && !fails[root as usize]);
            kept.for_each(|(root, &image)| classes.join(root, image));
        }
        let lowest = (0..count).map(|root| classes.lowest(root)).collect();
        let leaves_at_least = paths.kinds.iter().map(ShortestPaths::leaves_at_least).collect();
        Some(Self { lowest, kind: places.kind, leaves_at_least })
    }

    /// Returns the lowest root whose tree is known by symmetries to have the same height and leaves.
    pub(super) fn lowest(&self, root: u32) -> u32 {
        self.lowest[root as usize]
    }

    /// Returns, for each depth, a lower bound of the number of leaves of a root's tree from that depth on.
    pub(super) fn leaves_at_least(&self, root: u32) -> &[u32] {
        &self.leaves_at_least[usize::from(self.kind[root as usize])]
    }
}

/// Returns, by switch, the lowest switch that symmetries map onto it, and the number of edges that the proof
/// visited. The symmetries map members onto members, so that both switches have the same distances to the
/// members. Returns `None` if there are no symmetries, or if the proof would visit more than `max_edges`
/// edges.
pub(super) fn orbits(
    graph: &Graph,
    is_member: &[bool],
    workers: Workers,
    max_edges: usize,
) -> Option<(Vec<u32>, usize)> {
    let moves = SymmetricDigits::guess(graph)?.moves;
    let count = graph.len() as u32;
    let degree = (0..count).map(|switch| graph.near(switch).len()).max().unwrap_or(0);
    let edges_visited = graph.edge_ends() * moves.len() * degree;
    if edges_visited > max_edges {
        return None;
    }
    let proved = |found: &mut Vec<Vec<u32>>, at: usize| {
        let images = moves[at].images(count);
        let keeps_members =
            (0..).zip(&images).all(|(from, &to): (usize, _)| is_member[from] == is_member[to as usize]);
        if keeps_members && SymmetricDigits::is_automorphism(graph, &images) {
            found.push(images);
        }
    };
    let proved = workers.for_steps(edges_visited).run_pieces(moves.len(), &mut unwatched, Vec::new, proved);
    let mut classes = Classes((0..count).collect());
    for images in proved.into_iter().flatten() {
        (0..).zip(images).for_each(|(switch, image)| classes.join(switch, image));
    }
    Some(((0..count).map(|switch| classes.lowest(switch)).collect(), edges_visited))
}

/// By switch and slot: the place of the neighbor in that slot among the switch's neighbors, in order of id.
struct NeighbourOrder {
    first: Vec<usize>,
    place: Vec<u8>,
    kind: Vec<u8>,
}

impl NeighbourOrder {
    fn new(paths: &ShortestPathTables) -> Self {
        let ShortestPathTables { graph, numbers, kinds } = *paths;
        let (mut first, mut place, mut kind) =
            (Vec::new(), Vec::with_capacity(graph.edge_ends()), Vec::new());
        for switch in 0..graph.len() as u32 {
            first.push(place.len());
            let here = paths.kind(switch);
            kind.push(here as u8);
            let own = graph.near(switch);
            for &near in graph.near(kinds[here].origin) {
                let there = numbers.shifted(near, switch);
                let at = own.iter().position(|&own| own == there);
                place.push(at.expect("it is a neighbour because shifts are symmetries") as u8);
            }
        }
        first.push(place.len());
        Self { first, place, kind }
    }

    fn neighbours(&self, switch: u32) -> &[u8] {
        &self.place[self.first[switch as usize]..self.first[switch as usize + 1]]
    }
}

struct SymmetryJudge<'a> {
    paths: &'a ShortestPathTables<'a>,
    places: &'a NeighbourOrder,
    scan: Scan,
    /// By a key of the kind, the places of the neighbors and the places of their images: the sets of
    /// directions for which the symmetry does not keep the choice.
    broken: HashMap<Vec<u8>, Vec<Slots>>,
    /// By kind and set of directions: the affected roots, relative to the origin of the kind. `None`: there
    /// are too many.
    concerned: HashMap<(u8, Slots), Option<Vec<u32>>>,
}

impl<'a> SymmetryJudge<'a> {
    fn new(paths: &'a ShortestPathTables<'a>, places: &'a NeighbourOrder, scan: Scan) -> Self {
        Self { paths, places, scan, broken: HashMap::new(), concerned: HashMap::new() }
    }

    /// Returns, by root, whether the symmetry may fail to map the root's tree onto the tree of its image, or
    /// `None` if there are too many such roots.
    fn fails_for(mut self, images: &[u32]) -> Option<Vec<bool>> {
        let ShortestPathTables { graph, numbers, kinds } = *self.paths;
        let mut fails = vec![false; graph.len()];
        let mut left = MAX_LEFT_OUT * graph.len();
        let mut key = Vec::new();
        for (switch, &image) in (0..).zip(images) {
            let near = graph.near(switch);
            if near.windows(2).all(|pair| images[pair[0] as usize] < images[pair[1] as usize]) {
                continue;
            }
            let (kind, here, there) =
                (self.places.kind[switch as usize], self.places.neighbours(switch), graph.near(image));
            key.clear();
            key.push(kind);
            key.extend(here);
            for &place in here {
                let image = images[near[usize::from(place)] as usize];
                let at = there.iter().position(|&there| there == image);
                key.push(at.expect("it is a neighbour because links are mapped onto links") as u8);
            }
            if !self.broken.contains_key(&key) {
                let (before, after) = key[1..].split_at(here.len());
                let keeps = |paths: &&Slots| lowest(before, **paths) != lowest(after, **paths);
                let broken = kinds[usize::from(kind)].firsts.iter().filter(keeps).copied().collect();
                self.broken.insert(key.clone(), broken);
            }
            for &first in &self.broken[&key] {
                let (paths, scan) = (self.paths, self.scan);
                let concerned = self
                    .concerned
                    .entry((kind, first))
                    .or_insert_with(|| concerned(paths, scan, kind, first));
                let concerned = concerned.as_ref()?;
                left = left.checked_sub(concerned.len())?;
                concerned.iter().for_each(|&root| fails[numbers.shifted(root, switch) as usize] = true);
            }
        }
        Some(fails)
    }
}

/// Returns the slot in `slots` whose neighbor has the lowest place.
fn lowest(places: &[u8], slots: Slots) -> Option<usize> {
    (0..places.len()).filter(|slot| slots >> slot & 1 == 1).min_by_key(|&slot| places[slot])
}

/// Returns the roots in whose trees the origin of a kind chooses among exactly these directions, or `None` if
/// there are too many.
fn concerned(paths: &ShortestPathTables, scan: Scan, kind: u8, first: Slots) -> Option<Vec<u32>> {
    let kind = usize::from(kind);
    let targets = paths.kinds[kind].towards(first);
    // If each switch at which the symmetry changes the order ruled out more roots than this, soon all roots
    // would be listed.
    if targets.len() > (paths.graph.len() / HOPELESS).max(HOPELESS) {
        return None;
    }
    match scan {
        Scan::Level => Some(targets),
        Scan::Queue => paths.over(kind, targets, MAX_LEFT_OUT * paths.graph.len()),
    }
}

/// Disjoint sets of switches, each represented by its lowest switch.
struct Classes(Vec<u32>);

impl Classes {
    fn lowest(&mut self, mut switch: u32) -> u32 {
        while self.0[switch as usize] != switch {
            let up = self.0[switch as usize];
            self.0[switch as usize] = self.0[up as usize];
            switch = up;
        }
        switch
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.lowest(a), self.lowest(b));
        self.0[a.max(b) as usize] = a.min(b);
    }
}

#[cfg(test)]
mod tests;
