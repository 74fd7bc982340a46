//! For `unisono tree generate`: random networks with a given number of switches, ports and nodes, and a given
//! connectivity (paper, section 5.1).
//!
//! The idea: first a tree that keeps the network connected, then links between free ports until the
//! connectivity is reached, then the nodes at remaining ports, then members among the nodes.
//! - The tree is uniform among all ways to plug q-1 cables into switches of k ports so that they are
//!   connected. A sequence of q-2 numbers stands for each labelled tree (Prüfer). Drawing the sequence from a
//!   bag that holds each switch k-1 times weighs each tree by the number of ways to plug it.
//! - Links and nodes are uniformly distributed over the free ports; no cable leads from a switch to itself.
//!
//! So all pairs of a wiring and one of its spanning trees are equally likely. The probability of a wiring is
//! proportional to the number of its spanning trees; bare trees are all equally likely.
//!
//! Cost: linear in the number of ports; 100,000 switches and a million nodes take less than a second.

mod tree;

use crate::{
    BarrierGroup, End, Generated, GroupId, NetworkFile, NodeId, Port, SwitchId, SwitchLink, SwitchNetwork,
};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use unisono_text::counted;

/// The wanted properties of a random network.
///
/// ```
/// use unisono_btin::generate::{NetworkOptions, generate};
///
/// let options = NetworkOptions { switches: 4, nodes: 8, members: 8, ..NetworkOptions::default() };
/// let network = generate(&options)?.network;
/// assert_eq!((network.switch_count(), network.nodes().len()), (4, 8));
/// # Ok::<(), unisono_btin::generate::GenerateError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct NetworkOptions {
    /// The number of switches (the paper's q).
    pub switches: u32,
    /// The number of ports of each switch (k).
    pub ports: u16,
    /// The number of nodes (p).
    pub nodes: u32,
    /// The fraction of all ports that is in use, on average (f), from 0 to 1.
    pub connectivity: f64,
    pub members: u32,
    /// The seed of the random numbers: equal options give equal networks.
    pub seed: u64,
    /// The result if the connectivity is too small for a connected network.
    pub sparse: Sparse,
}

impl Default for NetworkOptions {
    /// Returns the options of the smaller of the paper's two systems.
    fn default() -> Self {
        Self {
            switches: 75,
            ports: 8,
            nodes: 256,
            connectivity: 0.75,
            members: 64,
            seed: 1,
            sparse: Sparse::Refuse,
        }
    }
}

/// The result if the connectivity is too small for a connected network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sparse {
    /// An error that names a sufficient connectivity.
    Refuse,
    /// The bare spanning tree, with the fewest links, marked as such.
    BareTree,
}

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    #[error("a network needs at least one switch")]
    NoSwitches,
    #[error("a connectivity of {} % is not between 0 and 100 %", percent(*.0))]
    Connectivity(f64),
    #[error(
        "{} of {} with {} cannot be connected at {} %: that takes at least {} % \
         (or the bare tree: --at-least-tree)",
        counted(switches, "switch"), counted(ports, "port"), counted(nodes, "node"), percent(*connectivity), enough(*switches, *ports, *nodes)
    )]
    TooSparse { switches: u32, ports: u16, nodes: u32, connectivity: f64, min: f64 },
    #[error(
        "{} of {} have {have} in all, but {} and a tree of {} need {needed}",
        counted(switches, "switch"),
        counted(ports, "port"),
        counted(nodes, "node"),
        counted(links, "link")
    )]
    TooFewPorts { switches: u32, ports: u16, nodes: u32, links: u64, have: u64, needed: u64 },
    #[error("{switches} switches of one port each cannot be connected; give them at least 2")]
    OnePort { switches: u32 },
    #[error("{}, but only {}", counted(members, "member"), counted(nodes, "node"))]
    TooManyMembers { members: u32, nodes: u32 },
    #[error("{switches} switches of {ports} ports have more ports than can be counted in 32 bits")]
    TooLarge { switches: u32, ports: u16 },
}

fn percent(part: f64) -> String {
    let text = format!("{:.2}", part * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the smallest sufficient connectivity in steps of 0.1 %. The number of used ports is rounded to a
/// whole number, so the step below the exact minimum can be sufficient.
fn enough(switches: u32, ports: u16, nodes: u32) -> String {
    let all = f64::from(switches) * f64::from(ports);
    let min = min_connectivity(switches, ports, nodes);
    let tenths = (min * 1000.0).floor();
    let enough = (tenths / 1000.0 * all).round() >= (min * all).round();
    percent(if enough { tenths } else { tenths + 1.0 } / 1000.0)
}

/// Returns the smallest connectivity at which such a network can be connected.
pub fn min_connectivity(switches: u32, ports: u16, nodes: u32) -> f64 {
    let all = f64::from(switches) * f64::from(ports);
    let needed = 2.0 * (f64::from(switches) - 1.0) + f64::from(nodes);
    if all > 0.0 { needed / all } else { f64::INFINITY }
}

pub fn generate(options: &NetworkOptions) -> Result<NetworkFile, GenerateError> {
    let (links, bare_tree) = link_count(options)?;
    let mut random = Pcg64Mcg::seed_from_u64(options.seed);
    let mut free = FreePorts::new(options.switches, options.ports, &mut random);
    let mut cables: Vec<SwitchLink> = Vec::with_capacity(links);
    for (a, b) in tree::draw(options.switches, options.ports, &mut random) {
        cables.push(SwitchLink { a: free.take(a), b: free.take(b) });
    }
    let mut pool = free.free_ports();
    pool.shuffle(&mut random);
    more_links(&mut cables, &mut pool, links, &mut random);
    let nodes = pool.split_off(pool.len() - options.nodes as usize);
    let network = SwitchNetwork::new(vec![options.ports; options.switches as usize], cables, nodes)
        .expect("each port was taken once because the pool held it once");

    let mut all: Vec<NodeId> = (0..options.nodes).map(NodeId).collect();
    let (chosen, _) = all.partial_shuffle(&mut random, options.members as usize);
    let members = chosen.to_vec();
    let groups = match BarrierGroup::new(&network, GroupId(0), members) {
        Ok(group) => vec![group],
        Err(_) => vec![], // no members are wanted
    };
    let mut topology = NetworkFile::new(network, groups);
    topology.generated =
        Some(Generated { connectivity: options.connectivity, seed: options.seed, bare_tree });
    Ok(topology)
}

/// Returns the number of links in the network, and whether these are only the links of the bare tree.
fn link_count(options: &NetworkOptions) -> Result<(usize, bool), GenerateError> {
    let NetworkOptions { switches, ports, nodes, connectivity, members, .. } = *options;
    if switches == 0 {
        return Err(GenerateError::NoSwitches);
    }
    if !(0.0..=1.0).contains(&connectivity) {
        return Err(GenerateError::Connectivity(connectivity));
    }
    if members > nodes {
        return Err(GenerateError::TooManyMembers { members, nodes });
    }
    let have = u64::from(switches) * u64::from(ports);
    if have > u64::from(u32::MAX) {
        return Err(GenerateError::TooLarge { switches, ports });
    }
    let tree = u64::from(switches - 1);
    let needed = 2 * tree + u64::from(nodes);
    if needed > have {
        return Err(GenerateError::TooFewPorts { switches, ports, nodes, links: tree, have, needed });
    }
    if ports == 1 && switches > 2 {
        return Err(GenerateError::OnePort { switches });
    }
    let used = (connectivity * have as f64).round() as u64;
    let links = used.saturating_sub(u64::from(nodes)) / 2;
    // a single switch has no neighbor
    let links = if switches == 1 { 0 } else { links };
    if used >= needed || switches == 1 && used >= u64::from(nodes) {
        return Ok((links as usize, false));
    }
    match options.sparse {
        Sparse::BareTree => Ok((tree as usize, true)),
        Sparse::Refuse => {
            let min = min_connectivity(switches, ports, nodes);
            Err(GenerateError::TooSparse { switches, ports, nodes, connectivity, min })
        }
    }
}

/// The free ports of each switch, in random order.
struct FreePorts {
    /// For each switch its ports, shuffled; the last ones are taken first.
    shuffled: Vec<u16>,
    left: Vec<u16>,
    ports: usize,
}

impl FreePorts {
    fn new(switches: u32, ports: u16, random: &mut Pcg64Mcg) -> Self {
        let each = usize::from(ports);
        let mut shuffled: Vec<u16> = (0..switches).flat_map(|_| 0..ports).collect();
        for mine in shuffled.chunks_mut(each.max(1)) {
            mine.shuffle(random);
        }
        Self { shuffled, left: vec![ports; switches as usize], ports: each }
    }

    fn take(&mut self, switch: u32) -> End {
        let at = switch as usize;
        self.left[at] -= 1;
        let port = self.shuffled[at * self.ports + usize::from(self.left[at])];
        End { switch: SwitchId(switch), port: Port(port) }
    }

    fn free_ports(self) -> Vec<End> {
        let of = |(switch, left): (u32, &u16)| {
            let first = switch as usize * self.ports;
            let mine = self.shuffled[first..first + usize::from(*left)].iter();
            mine.map(move |port| End { switch: SwitchId(switch), port: Port(*port) }).collect::<Vec<_>>()
        };
        (0..).zip(&self.left).flat_map(of).collect()
    }
}

/// Adds cables between ports from the end of the pool until there are `links` cables. No cable leads from a
/// switch to itself.
fn more_links(cables: &mut Vec<SwitchLink>, pool: &mut Vec<End>, links: usize, random: &mut Pcg64Mcg) {
    while cables.len() < links {
        let Some(a) = pool.pop() else { return };
        // the pool is shuffled, so the next port at another switch is a uniform choice among such ports
        let Some(at) = pool.iter().rposition(|b| b.switch != a.switch) else {
            // only this switch has free ports left, so an earlier link has to give up its ports
            let Some(b) = pool.pop() else { return };
            rewire(cables, a, b, random);
            continue;
        };
        let b = pool.remove(at);
        cables.push(SwitchLink { a, b });
    }
}

/// Gives two free ports of one switch a link each, by replacing a link between two other switches. Those
/// switches stay connected, by way of this switch.
fn rewire(cables: &mut Vec<SwitchLink>, a: End, b: End, random: &mut Pcg64Mcg) {
    let apart = |link: &SwitchLink| link.a.switch != a.switch && link.b.switch != a.switch;
    let candidates: Vec<usize> = (0..cables.len()).filter(|at| apart(&cables[*at])).collect();
    if candidates.is_empty() {
        // every link ends at this switch, so its last two ports can only be joined to each other
        cables.push(SwitchLink { a, b });
        return;
    }
    let at = candidates[random.random_range(0..candidates.len())];
    let SwitchLink { a: one, b: other } = cables[at];
    cables[at] = SwitchLink { a, b: one };
    cables.push(SwitchLink { a: b, b: other });
}

#[cfg(test)]
mod tests;
