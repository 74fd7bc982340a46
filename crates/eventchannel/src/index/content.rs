//! Finds the filters that an event passes, among many filters on one topic pattern.
//!
//! ```text
//!   event's fields -> access paths (hash, interval tree) -> clauses that may hold
//!                  -> evaluated, parts shared -> subscriptions
//! ```
//! Idea: all clauses form one graph in which equal parts are the same node. So a part that many filters share
//! is evaluated at most once for each event: the event's number is stored with the result and shows whether
//! the result is known. Only clauses with an access path that the event meets are evaluated at all.
//! Subscriptions with equal filters share one node.
//!
//! If an event meets an access path of a clause but the clause does not hold, the clause was evaluated in
//! vain. After `MAX_FUTILE_EVALUATIONS` such evaluations the clause changes to its next way to be found
//! (`access.rs`). After the last way it returns to the first, and each way is then left only after twice as
//! many evaluations in vain. In each round, all ways are left after the same number of evaluations in vain,
//! however many events that takes. A clause therefore spends nearly all its time on the way that wastes
//! least, and wastes about k times as much as the best of its k ways would. Nothing needs to be measured.
//!
//! Cost: proportional to the fields of the event and the clauses met.
//!
//! When not to use it: for one filter, [`ContentFilter::matches`](crate::ContentFilter::matches).
//!
//! Reference: the same as for `access.rs`.

use super::access::{AccessIndex, AccessPath};
use super::intervals::ClauseId;
use super::subscribers::{AudienceChange, Subscribers};
use crate::filter::{Clause, Predicate};
use crate::member_list::MemberList;
use crate::number_map::NumberMap;
use crate::value::FieldSet;
use std::collections::{HashMap, VecDeque};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum ClauseNode {
    Always(bool),
    /// The parts in ascending order, each once, so that the order in which a filter names them does not
    /// matter.
    All(Box<[ClauseId]>),
    Any(Box<[ClauseId]>),
    Is(Predicate),
    IsNot(Predicate),
}

/// The result of a node for the last event.
#[derive(Clone, Copy, Debug, Default)]
struct ClauseVerdict {
    /// The number of the event for which the result is known.
    event: u64,
    holds: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ContentIndex {
    nodes: Vec<ClauseNode>,
    verdicts: Vec<ClauseVerdict>,
    /// For each node, the number of references to it from other nodes and from roots.
    needed: Vec<u32>,
    free: Vec<ClauseId>,
    ids: HashMap<ClauseNode, ClauseId>,
    roots: NumberMap<ClauseId, RootClause>,
    access: AccessIndex,
    /// The roots without an access path.
    always: MemberList,
    events: u64,
    /// The roots on paths that the present event meets; the buffer is reused to save an allocation.
    met: Vec<ClauseId>,
    /// The roots that change to their next way to be found.
    vain: Vec<ClauseId>,
}

/// The number of evaluations in vain after which a clause first changes its way. A change costs as much as
/// about ten evaluations.
const MAX_FUTILE_EVALUATIONS: u32 = 32;
/// Maximum number of clauses that change their way after one event: thousands at a time would hold up the
/// next event. Chosen, not measured.
const MAX_MOVES: usize = 16;

/// A whole filter.
#[derive(Debug, Default)]
struct RootClause {
    subscriptions: Subscribers,
    /// Its ways to be found, the present one first. Empty: evaluated for each event.
    ways: VecDeque<Vec<AccessPath>>,
    /// The number of evaluations in vain since the last change; and, in `max_vain`, the number that triggers
    /// a change.
    vain: u32,
    max_vain: u32,
    /// The number of ways that are left to try in this round.
    round: usize,
    /// The number of the last event that met a path of the clause.
    met: u64,
}

impl ContentIndex {
    pub(crate) fn insert(
        &mut self,
        (owner, subscription): (Option<u32>, u32),
        clause: &Clause,
    ) -> AudienceChange {
        let id = self.intern(clause);
        if let Some(root) = self.roots.get_mut(&id) {
            let changed = root.subscriptions.insert(owner, subscription);
            self.release(id); // a root counts only once for its node
            return changed;
        }
        let ways = VecDeque::from(self.access.ways(clause));
        match ways.front() {
            Some(paths) => paths.iter().for_each(|path| self.access.insert(path, id)),
            None => self.always.insert(id.0),
        }
        let mut subscriptions = Subscribers::default();
        let changed = subscriptions.insert(owner, subscription);
        let (max_vain, round) = (MAX_FUTILE_EVALUATIONS, ways.len());
        self.roots.insert(id, RootClause { subscriptions, ways, vain: 0, max_vain, round, met: 0 });
        changed
    }

    pub(crate) fn remove(
        &mut self,
        (owner, subscription): (Option<u32>, u32),
        clause: &Clause,
    ) -> AudienceChange {
        let id = self.intern(clause);
        self.release(id);
        let Some(root) = self.roots.get_mut(&id) else { return AudienceChange::Unchanged };
        let changed = root.subscriptions.remove(owner, subscription);
        if root.subscriptions.is_empty()
            && let Some(root) = self.roots.remove(&id)
        {
            match root.ways.front() {
                Some(paths) => paths.iter().for_each(|path| self.access.remove(path, id)),
                None => self.always.remove(id.0),
            }
            self.release(id);
        }
        changed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Returns the subscriptions that may match, whatever their filters; of an owner's equal subscriptions,
    /// only one.
    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = u32> {
        self.roots.values().flat_map(|root| root.subscriptions.as_slice()).copied()
    }

    /// Adds the subscriptions that an event with these fields matches to `found`. Returns the number of
    /// clauses on the paths that the event meets.
    pub(crate) fn matching(&mut self, fields: &FieldSet, found: &mut Vec<u32>) -> usize {
        self.events += 1;
        let mut met = std::mem::take(&mut self.met);
        met.extend(self.always.as_slice().iter().map(|id| ClauseId(*id)));
        self.access.met(fields, |clause| met.push(clause));
        let clauses = met.len();
        for id in met.drain(..) {
            let Some(root) = self.roots.get_mut(&id) else { continue };
            if std::mem::replace(&mut root.met, self.events) == self.events {
                continue; // the clause was found by another path already
            }
            if holds(&self.nodes, &mut self.verdicts, self.events, id, fields) {
                found.extend(root.subscriptions.as_slice());
            } else {
                root.vain = root.vain.saturating_add(1);
                if root.vain >= root.max_vain && root.ways.len() > 1 && self.vain.len() < MAX_MOVES {
                    self.vain.push(id);
                }
            }
        }
        self.met = met;
        while let Some(id) = self.vain.pop() {
            self.go_on(id);
        }
        clauses
    }

    /// Changes a clause to its next way to be found.
    fn go_on(&mut self, id: ClauseId) {
        let Some(root) = self.roots.get_mut(&id) else { return };
        if let Some(left) = root.ways.pop_front() {
            left.iter().for_each(|path| self.access.remove(path, id));
            root.ways.push_back(left);
        }
        root.ways.iter().take(1).flatten().for_each(|path| self.access.insert(path, id));
        root.vain = 0;
        root.round -= 1;
        if root.round == 0 {
            (root.round, root.max_vain) = (root.ways.len(), root.max_vain.saturating_mul(2));
        }
    }

    /// Returns the node of a clause, and adds one to its number of references. Makes the node if there is
    /// none.
    fn intern(&mut self, clause: &Clause) -> ClauseId {
        let node = match clause {
            Clause::Always(value) => ClauseNode::Always(*value),
            Clause::Is(predicate) => ClauseNode::Is(predicate.clone()),
            Clause::IsNot(predicate) => ClauseNode::IsNot(predicate.clone()),
            Clause::All(parts) => ClauseNode::All(self.intern_all(parts)),
            Clause::Any(parts) => ClauseNode::Any(self.intern_all(parts)),
        };
        if let Some(id) = self.ids.get(&node).copied() {
            self.needed[id.0 as usize] += 1;
            self.release_parts(&node); // the existing node has counted its parts already
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            let id = ClauseId(u32::try_from(self.nodes.len()).expect("memory ends before 2^32 nodes"));
            self.nodes.push(ClauseNode::Always(false));
            self.verdicts.push(ClauseVerdict::default());
            self.needed.push(0);
            id
        });
        let at = id.0 as usize;
        (self.nodes[at], self.verdicts[at], self.needed[at]) = (node.clone(), ClauseVerdict::default(), 1);
        self.ids.insert(node, id);
        id
    }

    fn intern_all(&mut self, parts: &[Clause]) -> Box<[ClauseId]> {
        let mut ids: Vec<ClauseId> = parts.iter().map(|part| self.intern(part)).collect();
        ids.sort_unstable();
        for at in (1..ids.len()).rev() {
            if ids[at] == ids[at - 1] {
                let twice = ids.remove(at);
                self.release(twice);
            }
        }
        ids.into()
    }

    /// Subtracts one from the number of references to a node, and removes the node if none is left.
    fn release(&mut self, id: ClauseId) {
        let at = id.0 as usize;
        self.needed[at] -= 1;
        if self.needed[at] == 0 {
            let node = std::mem::replace(&mut self.nodes[at], ClauseNode::Always(false));
            self.ids.remove(&node);
            self.free.push(id);
            self.release_parts(&node);
        }
    }

    fn release_parts(&mut self, node: &ClauseNode) {
        if let ClauseNode::All(parts) | ClauseNode::Any(parts) = node {
            parts.iter().for_each(|part| self.release(*part));
        }
    }

    /// Returns the number of clauses on the paths that an event with these fields meets.
    #[cfg(test)]
    fn met_by(&self, fields: &FieldSet) -> usize {
        let mut met = self.always.as_slice().len();
        self.access.met(fields, |_| met += 1);
        met
    }

    #[cfg(test)]
    fn nodes_in_use(&self) -> usize {
        self.nodes.len() - self.free.len()
    }
}

/// Returns whether a node's clause holds for the event. Each node is evaluated at most once per event.
fn holds(
    nodes: &[ClauseNode],
    verdicts: &mut [ClauseVerdict],
    event: u64,
    id: ClauseId,
    fields: &FieldSet,
) -> bool {
    let at = id.0 as usize;
    if verdicts[at].event == event {
        return verdicts[at].holds;
    }
    let holds = match &nodes[at] {
        ClauseNode::Always(value) => *value,
        ClauseNode::All(parts) => parts.iter().all(|part| holds(nodes, verdicts, event, *part, fields)),
        ClauseNode::Any(parts) => parts.iter().any(|part| holds(nodes, verdicts, event, *part, fields)),
        ClauseNode::Is(predicate) => predicate.holds(fields),
        ClauseNode::IsNot(predicate) => !predicate.holds(fields),
    };
    verdicts[at] = ClauseVerdict { event, holds };
    holds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ContentFilter;

    fn filter(text: &str) -> ContentFilter {
        text.parse().expect("a filter")
    }

    #[test]
    fn a_clause_that_is_met_in_vain_is_found_in_another_way() {
        let mut index = ContentIndex::default();
        let text = |at: u32| format!("site == \"roof\" and (sensor == {at} or level > 1000) and not closed");
        for at in 0..100 {
            index.insert((None, at), filter(&text(at)).clause());
        }
        let fields = FieldSet::new().with("site", "roof").with("sensor", 7).with("level", 3);
        let before = index.met_by(&fields);
        for _ in 0..4 * MAX_FUTILE_EVALUATIONS {
            let mut found = Vec::new();
            index.matching(&fields, &mut found);
            assert_eq!(found, [7]);
        }
        assert!(before > 10 && index.met_by(&fields) == 1, "{before}, then {}", index.met_by(&fields));
        for at in 0..100 {
            index.remove((None, at), filter(&text(at)).clause());
        }
        assert!(index.nodes_in_use() == 0 && index.access.is_empty());
    }

    #[test]
    fn filters_share_their_parts_and_leave_nothing_behind() {
        let filters = ["a == 1 and b > 2", "b > 2 and a == 1", "a == 1 or c", "a == 1 and a == 1", "not c"];
        let mut index = ContentIndex::default();
        for (subscription, text) in (0..).zip(filters) {
            index.insert((None, subscription), filter(text).clause());
        }
        // the nodes are a == 1, b > 2, one `and` of them for both orders, c, the `or`, `not c`, and an `and`
        // of one part for `a == 1 and a == 1`
        assert_eq!(index.nodes_in_use(), 7);
        let mut found = Vec::new();
        index.matching(&FieldSet::new().with("a", 1).with("b", 3), &mut found);
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 3, 4]);
        for (subscription, text) in (0..).zip(filters) {
            index.remove((None, subscription), filter(text).clause());
        }
        assert!(
            index.nodes_in_use() == 0 && index.ids.is_empty() && index.is_empty() && index.access.is_empty()
        );
    }
}
