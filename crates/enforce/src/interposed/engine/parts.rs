//! The parts of an engine that depend on the policy alone: they are made before a change of the policy, so
//! that the change stops the link only while the scheduler moves its packets.
//!
//! Cost of [`EngineChange::new`]: some 10 us a class, most of it for the histograms of delays.

use super::super::flows::{self, FlowTree};
use super::MAX_LATENESS;
use crate::delays;
use unisono_fairqueue::{Backlog, ClassId, Hierarchy, HierarchyError, LinkPace, LiveClass, Policy, Served};
use unisono_measure::Histogram;

/// The policy, and tables that are indexed by its class numbers.
#[derive(Debug)]
pub(super) struct EngineParts {
    pub(super) policy: Policy,
    /// Maps the policy's classes to the scheduler's.
    pub(super) layout: FlowTree,
    /// The clock of each class that has a ceiling.
    pub(super) ceilings: Vec<Option<LinkPace>>,
    pub(super) served: Vec<Served>,
    pub(super) delays: Vec<Histogram>,
}

/// Another policy for an engine, with everything that can be computed before it comes into force.
#[derive(Debug)]
pub struct EngineChange {
    pub(super) parts: EngineParts,
    pub(super) tree: Hierarchy,
}

impl EngineChange {
    /// Prepares a change to `policy`. Does not fail for a policy that [`Policy::parse`] returned.
    pub fn new(policy: Policy) -> Result<Self, HierarchyError> {
        let (parts, tree) = EngineParts::new(policy)?;
        Ok(Self { parts, tree })
    }
}

/// The parts of the previous policy, to be dropped in another thread: freeing thousands of classes takes
/// milliseconds.
#[derive(Debug)]
pub struct ReplacedParts(#[expect(dead_code, reason = "it is only freed")] pub(super) EngineParts);

impl EngineParts {
    /// Makes the parts for a policy, with empty statistics, and the scheduler's tree.
    pub(super) fn new(policy: Policy) -> Result<(Self, Hierarchy), HierarchyError> {
        let tree = flows::tree(&policy)?;
        let classes = policy.hierarchy.classes().count();
        let pacer = |(id, _): (ClassId, _)| {
            let ceiling = policy.ceilings.get(id.index()).copied().flatten()?;
            Some(LinkPace::new(ceiling, MAX_LATENESS))
        };
        let parts = Self {
            layout: FlowTree::new(&policy, &tree),
            ceilings: policy.hierarchy.classes().map(pacer).collect(),
            served: vec![Served::default(); classes],
            delays: (0..classes).map(|_| Histogram::coarse()).collect(),
            policy,
        };
        Ok((parts, tree))
    }

    /// Returns the statistics of each class. A class with children has the sums of its leaves. Cost: for each
    /// class some 10 us, and for each leaf a merge of histograms (some 5 us) at each level above it.
    pub(super) fn live(&self, backlog: impl Fn(ClassId) -> Backlog) -> Vec<LiveClass> {
        let (hierarchy, guarantees) = (&self.policy.hierarchy, self.policy.guarantees());
        let leaves = || hierarchy.classes().map(|(id, _)| id).filter(|id| hierarchy.is_leaf(*id));
        let mut served = self.served.clone();
        let mut backlogs = vec![Backlog::default(); served.len()];
        let mut merged: Vec<Option<Histogram>> = vec![None; served.len()];
        for leaf in leaves() {
            backlogs[leaf.index()] = backlog(leaf);
            let mut above = leaf;
            while hierarchy.class(above).parent != ClassId::ROOT {
                above = hierarchy.class(above).parent;
                served[above.index()] += self.served[leaf.index()];
                let waiting = backlogs[leaf.index()];
                backlogs[above.index()] += waiting;
                if !self.delays[leaf.index()].is_empty() {
                    let delays = merged[above.index()].get_or_insert_with(Histogram::coarse);
                    delays.merge(&self.delays[leaf.index()]);
                }
            }
        }
        let classes = hierarchy.classes().filter(|(id, _)| *id != ClassId::ROOT);
        classes
            .map(|(id, class)| LiveClass {
                name: class.name.clone(),
                parent: (class.parent != ClassId::ROOT).then(|| hierarchy.class(class.parent).name.clone()),
                guarantee: guarantees[id.index()],
                packets: served[id.index()].packets,
                bytes: served[id.index()].bytes,
                dropped: served[id.index()].dropped,
                backlog: backlogs[id.index()],
                queue: None,
                delay: delays::figures(merged[id.index()].as_ref().unwrap_or(&self.delays[id.index()])),
                receiving: None,
            })
            .collect()
    }
}
