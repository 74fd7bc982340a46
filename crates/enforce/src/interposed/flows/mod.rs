//! Translates the policy's classes into the scheduler's: every leaf gets a limit, and flows become one more
//! level of the tree.
//!
//! ```text
//!   policy:     class a            class b, flows = "fair"
//!   scheduler:  a                  b --> b/0, b/1, ... b/1023     frames wait in the bucket of their hash
//! ```
//! With `fair = "host"`, all flows of a host are one flow: their frames wait in the bucket of the host's
//! hash.
//!
//! Flows are a level of the tree so that the order stays start-time fair queuing: classes get the same
//! bandwidth as without flows, and the bound between two classes also holds between two flows of one class. A
//! flow that begins to send waits for one frame of each busy flow, not for all frames that wait in its class.
//! Flows with the same hash share a bucket; the hash is seeded, so that senders cannot choose to collide.
//!
//! Cost: 1,024 leaves of the scheduler (some 100 KiB) for each class with fair flows, and one more level for
//! each of their frames. Reference: McKenney, "Stochastic Fairness Queueing" (INFOCOM 1990) for the buckets;
//! RFC 8290 for the reasons to separate flows.

use super::parse::ParsedPacket;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use unisono_fairqueue::{ClassId, ClassSpec, Flows, Hierarchy, HierarchyError, Limit, Overflow, Policy};

/// The buckets of a class, as many as `fq_codel` has by default. With 32 busy flows, a flow shares its bucket
/// with another one with a probability of 1/33.
const BUCKETS: usize = 1024;
/// A leaf without a limit of its own may hold its share of the link's bytes in this time (s): a round trip
/// inside a continent, so that one TCP connection can fill its share. Half as much would slow down
/// connections over longer distances; twice as much would double the delay of all packets of a full class.
/// The kernel backend uses the same time. Chosen, not measured.
const DELAY: f64 = 0.020;
/// The least limit of a leaf, because programs send this much at once.
const MIN_LIMIT: u64 = 64 * 1024;

/// The hash of a frame's flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowNumber(u64);

/// Distinguishes flows by addresses, protocol and ports, and hosts by their address.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowHash(RandomState);

impl FlowHash {
    /// Returns the flow of a packet. The ports of fragments are ignored, because later fragments carry none.
    pub(super) fn flow(&self, packet: &ParsedPacket) -> FlowNumber {
        let ports = packet.ports.filter(|_| packet.fragment.is_none());
        FlowNumber(self.0.hash_one((packet.source, packet.destination, packet.protocol, ports)))
    }

    /// Returns the flow of all packets of a host.
    pub(super) fn host(&self, host: IpAddr) -> FlowNumber {
        FlowNumber(self.0.hash_one(host))
    }
}

/// Maps classes of the policy to classes of the scheduler's tree, and back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FlowTree {
    places: Vec<ClassId>,
    owners: Vec<ClassId>,
}

impl FlowTree {
    /// Returns the mapping for a scheduler whose tree is the policy's own: each class to itself.
    pub(super) fn plain(policy: &Policy) -> Self {
        let places: Vec<ClassId> = policy.hierarchy.classes().map(|(id, _)| id).collect();
        Self { owners: places.clone(), places }
    }

    /// Returns the mapping for a `tree` that [`tree`] made from the policy.
    pub(super) fn new(policy: &Policy, tree: &Hierarchy) -> Self {
        let mut owners = vec![ClassId::ROOT; tree.classes().count()];
        let place = |(id, class): (ClassId, &unisono_fairqueue::Class)| {
            let place =
                tree.find(&class.name).expect("present because the tree has all of the policy's classes");
            owners[place.index()] = id;
            if policy.hierarchy.is_leaf(id) {
                for bucket in &tree.class(place).children {
                    owners[bucket.index()] = id;
                }
            }
            place
        };
        Self { places: policy.hierarchy.classes().map(place).collect(), owners }
    }

    /// Returns the scheduler's class for a class of the policy.
    pub(super) fn place(&self, class: ClassId) -> ClassId {
        self.places[class.index()]
    }

    /// Returns the scheduler's leaf for frames of a class and flow.
    pub(super) fn leaf(&self, tree: &Hierarchy, class: ClassId, flow: FlowNumber) -> ClassId {
        let place = self.place(class);
        match &tree.class(place).children[..] {
            [] => place,
            buckets => buckets[(flow.0 % buckets.len() as u64) as usize],
        }
    }

    /// Returns the policy's class for a class of the scheduler.
    pub(super) fn owner(&self, class: ClassId) -> ClassId {
        self.owners[class.index()]
    }
}

/// Makes the scheduler's tree for a policy. A leaf gets a limit unless it or a class above it has one; a
/// class with fair flows gets buckets.
pub(super) fn tree(policy: &Policy) -> Result<Hierarchy, HierarchyError> {
    let default = &policy.hierarchy.class(policy.default).name;
    let default = match policy.flows(policy.default) {
        Flows::Together => default.clone(),
        Flows::Fair | Flows::Hosts | Flows::Receivers => bucket(default, 0),
    };
    let shares = policy.hierarchy.shares();
    Hierarchy::new(spec(policy, &shares, ClassId::ROOT, LimitedFlows::No))?.with_default(&default)
}

/// Returns the limit of a leaf with this share of the link, if the policy sets none.
fn default_limit(policy: &Policy, share: f64) -> Limit {
    let bytes = policy.rate.bytes_per_second() * share * DELAY;
    Limit { packets: u64::MAX, bytes: (bytes as u64).max(MIN_LIMIT), overflow: Overflow::DropTail }
}

/// Returns the leaves at or below a class whose limits depend on their shares of the link, with these limits.
/// How the packets to drop are chosen is not part of the result.
pub(super) fn default_limits(policy: &Policy, above: ClassId) -> Vec<(ClassId, Limit)> {
    let tree = &policy.hierarchy;
    let parent = |class: &ClassId| Some(tree.class(*class).parent).filter(|_| *class != ClassId::ROOT);
    let line: Vec<ClassId> = std::iter::successors(Some(above), parent).collect();
    if line.iter().skip(1).any(|class| tree.class(*class).limit.is_some()) {
        return Vec::new();
    }
    // from the link down, as `tree` computes it, so that both round alike
    let share = line.iter().rev().fold(1.0, |share, class| share * tree.part(*class));
    let (mut open, mut limits) = (vec![(above, share)], Vec::new());
    while let Some((id, share)) = open.pop() {
        let class = tree.class(id);
        if class.limit.is_some() {
            continue; // it also holds for all classes below
        }
        if class.children.is_empty() {
            limits.push((id, default_limit(policy, share)));
        }
        let weight = |child: &ClassId| tree.class(*child).weight.to_f64();
        let all: f64 = class.children.iter().map(weight).sum();
        open.extend(class.children.iter().map(|child| (*child, share * (weight(child) / all))));
    }
    limits
}

/// Returns the name of a bucket. It is unique because no class of a policy has a slash in its name.
fn bucket(class: &str, number: usize) -> String {
    format!("{class}/{number}")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LimitedFlows {
    Yes,
    No,
}

fn spec(policy: &Policy, shares: &[f64], id: ClassId, above: LimitedFlows) -> ClassSpec {
    let class = policy.hierarchy.class(id);
    let limited = if class.limit.is_some() { LimitedFlows::Yes } else { above };
    let mut limit = class.limit.or_else(|| {
        let wanted = limited == LimitedFlows::No && class.children.is_empty();
        wanted.then(|| default_limit(policy, shares[id.index()]))
    });
    let mut children: Vec<ClassSpec> =
        class.children.iter().map(|child| spec(policy, shares, *child, limited)).collect();
    if children.is_empty() && policy.flows(id) != Flows::Together {
        children.extend((0..BUCKETS).map(|number| ClassSpec::new(bucket(&class.name, number))));
        // when the class is full, the longest flow loses a frame, not the flow of the arriving frame
        if let Some(limit) = &mut limit {
            limit.overflow = Overflow::DropLongest;
        }
    }
    ClassSpec { name: class.name.clone(), weight: class.weight, order: class.order, limit, children }
}

#[cfg(test)]
mod tests;
