//! Other weights, and other classes, while packets wait.
//!
//! What a class has had in advance of its siblings is its *lead*: how far its tag is ahead of its parent's virtual
//! time. In bytes it is at most one packet, the longest of the class. A change keeps every class's lead in
//! bytes, whatever becomes of its weight and its place, and counts all virtual times from 0 again. So a class is
//! nowhere further ahead than it could have come by itself, the fairness bound holds from the change on for
//! the new weights, and nobody can get more by making changes. A class that is new has no lead.
//!
//! Tags are whole numbers in the unit of the siblings; in a new unit a lead loses the fraction of a unit, which is
//! less than a byte.
//!
//! Cost: as much as making a new scheduler, plus a move of every class's line (not of its packets, unless their
//! class is gone).

use super::{Inner, LEAF, MOST_NOW, ROOT, Scheduler, Served, State, number};
use crate::hierarchy::{ClassId, Hierarchy};
use crate::weight::{Scale, Weight};

/// What another hierarchy changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Classes that were not there before.
    pub added: Vec<ClassId>,
    /// Leaves that are gone, or have children now.
    pub closed: Vec<Closed>,
}

/// The account of a leaf that takes no packets any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Closed {
    /// Its name.
    pub name: String,
    /// What it got.
    pub served: Served,
    /// Its packets that wait elsewhere now.
    pub moved: u64,
}

/// Why the classes cannot be changed; they have not been then.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// Packets would be lost.
    #[error(
        "{packets} packets wait in class `{class}`, which is no leaf of the new tree, and that has no default \
         class for them; give it one"
    )]
    NoDefault {
        /// Where they wait.
        class: String,
        /// How many.
        packets: u64,
    },
}

impl<T> Scheduler<T> {
    /// Changes the weight of a class; nothing is lost. What the class has had in advance counts on, in bytes: with
    /// ten times the weight it is forgotten ten times as soon.
    pub fn set_weight(&mut self, class: ClassId, weight: Weight) {
        self.hierarchy.class_mut(class).weight = weight;
        if class == ClassId::ROOT {
            return;
        }
        let parent = self.hierarchy.class(class).parent;
        let siblings = &self.hierarchy.class(parent).children;
        let weights: Vec<Weight> = siblings.iter().map(|child| self.hierarchy.class(*child).weight).collect();
        let Scale { costs, exact } = Scale::of(&weights);
        let inner = &mut self.inner[self.classes[parent.index()].inner as usize];
        let mut waiting: Vec<u32> =
            std::iter::from_fn(|| inner.next.take()).map(|(child, _)| child).collect();
        for (child, cost) in inner.children.iter().zip(costs) {
            let class = &mut self.classes[*child as usize];
            class.tag = in_unit(class.tag.saturating_sub(inner.now), class.cost, cost);
            class.cost = cost;
        }
        let tags = inner.children.iter().map(|child| self.classes[*child as usize].tag);
        (inner.now, inner.last_finish, inner.exact) = (0, tags.max().unwrap_or(0), exact);
        inner.next.restart(0);
        waiting.sort_by_key(|child| self.classes[*child as usize].tag); // stable: who waited longer stays first
        for child in waiting {
            inner.next.insert(child, self.classes[child as usize].tag);
        }
    }

    /// Changes the classes while packets wait: weights, limits, orders, and the tree itself. Classes are known by
    /// their names; numbers are from now on those of the new hierarchy.
    ///
    /// No packet is lost. A class that is still a leaf keeps its packets in their order; those of a class that is
    /// none any more go behind those of the default class, in their order. More than a limit allows may wait
    /// then: nothing is dropped for that, but what comes drops itself or as much as it brings until enough has
    /// left. The packet in service stays in service.
    ///
    /// # Errors
    /// Packets wait in a class that is gone, and the new hierarchy has no default class.
    pub fn apply(&mut self, hierarchy: Hierarchy) -> Result<Changes, ChangeError> {
        let places = Places::of(&self.hierarchy, &hierarchy);
        for (at, class) in self.leaves() {
            let packets = self.classes[at].line.waiting().packets;
            if packets > 0 && places.home(at).is_none() {
                return Err(ChangeError::NoDefault { class: class.to_owned(), packets });
            }
        }
        let mut old = std::mem::replace(self, Self::new(hierarchy));
        let mut changes = Changes { added: places.added(&self.hierarchy), closed: vec![] };
        let ranks = self.take_leads(&mut old, &places);
        self.take_packets(&mut old, &places, &mut changes);
        self.in_service = old.in_service.and_then(|leaf| places.same[leaf as usize]);
        self.in_service = self.in_service.filter(|leaf| self.classes[*leaf as usize].inner == LEAF);
        for (at, new) in places.same.iter().enumerate().skip(1) {
            if let Some(new) = new
                && matches!(old.classes[at].state, State::Held | State::LastService)
            {
                self.classes[*new as usize].state = State::Held;
            }
        }
        self.want_service(&ranks);
        Ok(changes)
    }

    /// The leaves with their names.
    fn leaves(&self) -> impl Iterator<Item = (usize, &str)> {
        let leaves = self.hierarchy.classes().filter(|(id, _)| self.hierarchy.is_leaf(*id));
        leaves.map(|(id, class)| (id.index(), class.name.as_str()))
    }

    /// Takes over how far each class is ahead; answers in which order those that waited did.
    fn take_leads(&mut self, old: &mut Self, places: &Places) -> Vec<usize> {
        let mut ranks = vec![usize::MAX; self.classes.len()];
        for Inner { now, next, children, .. } in &mut old.inner {
            for child in children.iter() {
                let Some(new) = places.same[*child as usize] else { continue };
                let (from, to) = (&old.classes[*child as usize], &mut self.classes[new as usize]);
                to.tag = in_unit(from.tag.saturating_sub(*now), from.cost, to.cost);
            }
            for (rank, (child, _)) in std::iter::from_fn(|| next.take()).enumerate() {
                if let Some(new) = places.same[child as usize] {
                    ranks[new as usize] = rank;
                }
            }
        }
        ranks
    }

    /// Takes over the packets and the accounts of all leaves.
    fn take_packets(&mut self, old: &mut Self, places: &Places, changes: &mut Changes) {
        let leaves: Vec<(usize, String)> = old.leaves().map(|(at, name)| (at, name.to_owned())).collect();
        let stays = |at: usize| places.same[at].is_some() && places.same[at] == places.home(at);
        // first those that keep their class, so that the others come behind them
        for (at, _) in leaves.iter().filter(|(at, _)| stays(*at)) {
            let Some(to) = places.home(*at) else { continue };
            let line = std::mem::take(&mut old.classes[*at].line);
            self.classes[to as usize].line.take_over(line);
            self.served[to as usize] = old.served[*at];
        }
        for (at, name) in leaves.into_iter().filter(|(at, _)| !stays(*at)) {
            let moved = old.classes[at].line.waiting().packets;
            let line = std::mem::take(&mut old.classes[at].line);
            if let Some(to) = places.home(at) {
                self.classes[to as usize].line.take_over(line);
            }
            changes.closed.push(Closed { name, served: old.served[at], moved });
        }
        for at in 0..self.classes.len() {
            let waiting = self.classes[at].line.waiting();
            self.waiting += waiting;
            self.limits.start(at, waiting);
        }
        let class = |id: ClassId| places.same[id.index()].or(places.default).unwrap_or(ClassId::ROOT.0);
        self.dropped = old.dropped.drain(..).map(|(id, packet)| (ClassId(class(id)), packet)).collect();
    }

    /// Enters every class that wants service beside its siblings, and those in service nowhere.
    fn want_service(&mut self, ranks: &[usize]) {
        let mut at = self.in_service.map_or(ROOT, |leaf| leaf as usize);
        while at != ROOT {
            let class = &mut self.classes[at];
            class.state = if class.state == State::Held { State::LastService } else { State::Serving };
            at = self.classes[at].parent as usize;
        }
        // children come after their parents
        for at in (0..self.classes.len()).rev() {
            if self.classes[at].inner == LEAF {
                continue;
            }
            let children = &self.inner[self.classes[at].inner as usize].children;
            let tags = children.iter().map(|child| self.classes[*child as usize].tag);
            let last_finish = tags.max().unwrap_or(0);
            let mut waiting: Vec<u32> = children
                .iter()
                .copied()
                .filter(|child| self.classes[*child as usize].state == State::Idle)
                .filter(|child| self.has_more(*child as usize))
                .collect();
            waiting.sort_by_key(|child| (self.classes[*child as usize].tag, ranks[*child as usize]));
            let inner = &mut self.inner[self.classes[at].inner as usize];
            inner.last_finish = last_finish;
            for child in waiting {
                self.classes[child as usize].state = State::Waiting;
                inner.next.insert(child, self.classes[child as usize].tag);
            }
            self.end_unless_serving(at);
        }
    }
}

/// Where the classes of a hierarchy are in another one.
struct Places {
    /// For each class the one of the same name.
    same: Vec<Option<u32>>,
    /// Which classes of the new hierarchy are leaves.
    leaf: Vec<bool>,
    /// Where packets go whose class is gone.
    default: Option<u32>,
}

impl Places {
    fn of(old: &Hierarchy, new: &Hierarchy) -> Self {
        let same = old.classes().map(|(id, class)| match id {
            ClassId::ROOT => Some(ROOT),
            _ => new.find(&class.name).map(ClassId::index).filter(|at| *at != ROOT),
        });
        let same = same.map(|at| at.map(number)).collect();
        let leaf: Vec<bool> = new.classes().map(|(id, _)| new.is_leaf(id)).collect();
        let only = Some(ClassId::ROOT).filter(|root| new.is_leaf(*root));
        Self { same, leaf, default: new.default_class().or(only).map(|id| id.0) }
    }

    /// Where the packets of a leaf wait from now on.
    fn home(&self, leaf: usize) -> Option<u32> {
        self.same[leaf].filter(|at| self.leaf[*at as usize]).or(self.default)
    }

    fn added(&self, new: &Hierarchy) -> Vec<ClassId> {
        let mut known = vec![false; self.leaf.len()];
        for at in self.same.iter().flatten() {
            known[*at as usize] = true;
        }
        new.classes().map(|(id, _)| id).filter(|id| !known[id.index()]).collect()
    }
}

/// A distance between tags where a byte costs something else: the same bytes.
fn in_unit(ahead: u64, cost: u64, new_cost: u64) -> u64 {
    let ahead = u128::from(ahead) * u128::from(new_cost) / u128::from(cost);
    u64::try_from(ahead).unwrap_or(MOST_NOW).min(MOST_NOW)
}
