//! The tree of classes and their weights.
//!
//! The root is the link (or the processor, or the disk). Siblings share the bandwidth of their parent in
//! proportion to their weights. Bandwidth that one sibling leaves unused goes to the others in the same
//! proportion. Packets wait at the leaves.

use crate::weight::{Weight, WeightScale};
use std::collections::HashMap;

/// The number of a class in the order of the tree (parents before children); the root is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClassId(pub(crate) u32);

impl ClassId {
    /// The root, which is the whole link.
    pub const ROOT: Self = Self(0);

    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The order in which the packets of a leaf leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    #[default]
    Fifo,
    /// Earliest deadline first. Packets of one flow keep their order; packets without a deadline go last. The
    /// order does not change the bandwidth of the class.
    Deadline,
}

/// The packet that is dropped when a class exceeds its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overflow {
    /// The arriving packet.
    #[default]
    DropTail,
    /// The last packet of the leaf with the most waiting bytes below the class, so that a flood in one leaf
    /// does not cost its siblings packets.
    DropLongest,
}

/// The most packets and bytes that may wait in a class and in all classes below it.
///
/// ```
/// use unisono_fairqueue::{ClassSpec, Discipline, Hierarchy, Instant, Limit, Overflow, Packet, Scheduler};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut web = ClassSpec::new("web");
/// web.limit = Some(Limit { packets: 1, bytes: u64::MAX, overflow: Overflow::DropTail });
/// let mut link = Scheduler::new(Hierarchy::new(ClassSpec::new("link").with([web]))?);
/// let web = link.hierarchy().find("web").ok_or("?")?;
/// link.enqueue(Instant::ZERO, web, Packet::new(1500, "first"))?;
/// link.enqueue(Instant::ZERO, web, Packet::new(1500, "second"))?;
/// assert_eq!(link.dropped().map(|(_, packet)| packet.item), Some("second"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    pub packets: u64,
    pub bytes: u64,
    pub overflow: Overflow,
}

/// The description of a class and of all classes below it, before they are checked.
#[derive(Clone, PartialEq, Debug)]
pub struct ClassSpec {
    /// Unique in the tree.
    pub name: String,
    /// The weight relative to the siblings; ignored at the root.
    pub weight: Weight,
    /// The order in which packets leave; used at leaves.
    pub order: Order,
    pub limit: Option<Limit>,
    /// A class without children is a leaf.
    pub children: Vec<ClassSpec>,
}

impl ClassSpec {
    /// Returns a leaf of weight 1, first in first out, without a limit.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), weight: Weight::ONE, order: Order::Fifo, limit: None, children: Vec::new() }
    }

    #[must_use]
    pub fn weighing(mut self, weight: Weight) -> Self {
        self.weight = weight;
        self
    }

    #[must_use]
    pub fn with(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children.extend(children);
        self
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HierarchyError {
    #[error("two classes are called `{name}`; names are unique in the whole tree")]
    NameTwice { name: String },
    #[error("there are more than {max} classes")]
    TooMany { max: u32 },
    /// The default class is not a leaf of the tree.
    #[error("the default class `{name}` is not a leaf of the tree")]
    Default { name: String },
}

#[derive(Clone, Debug)]
pub struct Class {
    pub name: String,
    pub weight: Weight,
    pub order: Order,
    pub limit: Option<Limit>,
    /// The parent class; the root is its own parent.
    pub parent: ClassId,
    pub children: Vec<ClassId>,
}

/// A tree of classes that has been checked.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    classes: Vec<Class>,
    names: HashMap<String, ClassId>,
    default: Option<ClassId>,
}

/// The most classes. Larger numbers have other uses: one bit marks inner classes, and `NONE` is the greatest
/// number.
const MAX_CLASSES: u32 = 1 << 30;

impl Hierarchy {
    /// Checks a tree and numbers its classes. Fails if a name comes twice, or if there are too many classes.
    pub fn new(root: ClassSpec) -> Result<Self, HierarchyError> {
        let mut classes: Vec<Class> = Vec::new();
        let mut names = HashMap::new();
        let mut open = vec![(ClassId::ROOT, root)];
        while let Some((parent, spec)) = open.pop() {
            let id = u32::try_from(classes.len()).ok().filter(|id| *id < MAX_CLASSES).map(ClassId);
            let id = id.ok_or(HierarchyError::TooMany { max: MAX_CLASSES })?;
            if names.insert(spec.name.clone(), id).is_some() {
                return Err(HierarchyError::NameTwice { name: spec.name });
            }
            if id != ClassId::ROOT {
                classes[parent.index()].children.push(id);
            }
            let ClassSpec { name, weight, order, limit, children } = spec;
            classes.push(Class { name, weight, order, limit, parent, children: Vec::new() });
            open.extend(children.into_iter().rev().map(|child| (id, child)));
        }
        Ok(Self { classes, names, default: None })
    }

    /// Adds a default class, for packets that belong to no other class: an existing leaf of this name, or a
    /// new leaf under the root, first in first out, of weight 1. Fails if a class of this name has children,
    /// or if there are too many classes.
    pub fn with_default(mut self, name: &str) -> Result<Self, HierarchyError> {
        let id = match self.names.get(name) {
            Some(id) if self.is_leaf(*id) => *id,
            Some(_) => return Err(HierarchyError::Default { name: name.to_owned() }),
            None => {
                let id = u32::try_from(self.classes.len()).ok().filter(|id| *id < MAX_CLASSES).map(ClassId);
                let id = id.ok_or(HierarchyError::TooMany { max: MAX_CLASSES })?;
                let ClassSpec { name, weight, order, limit, .. } = ClassSpec::new(name);
                self.names.insert(name.clone(), id);
                self.classes.push(Class {
                    name,
                    weight,
                    order,
                    limit,
                    parent: ClassId::ROOT,
                    children: vec![],
                });
                self.classes[0].children.push(id);
                id
            }
        };
        self.default = Some(id);
        Ok(self)
    }

    /// Sets the order in which packets of a class leave. Does nothing if there is no such class.
    #[must_use]
    pub fn ordering(mut self, name: &str, order: Order) -> Self {
        if let Some(id) = self.find(name) {
            self.class_mut(id).order = order;
        }
        self
    }

    /// Returns the class for packets that belong to no other class, if there is one.
    pub fn default_class(&self) -> Option<ClassId> {
        self.default
    }

    pub fn find(&self, name: &str) -> Option<ClassId> {
        self.names.get(name).copied()
    }

    pub fn classes(&self) -> impl Iterator<Item = (ClassId, &Class)> {
        (0..).map(ClassId).zip(&self.classes)
    }

    pub fn class(&self, id: ClassId) -> &Class {
        &self.classes[id.index()]
    }

    pub(crate) fn class_mut(&mut self, id: ClassId) -> &mut Class {
        &mut self.classes[id.index()]
    }

    /// Returns the cost of a byte for each child of a class.
    pub(crate) fn scale(&self, id: ClassId) -> WeightScale {
        let weights: Vec<Weight> =
            self.class(id).children.iter().map(|child| self.class(*child).weight).collect();
        WeightScale::from_weights(&weights)
    }

    /// Returns whether a class has no children. The root of a tree without any other class is a leaf.
    pub fn is_leaf(&self, id: ClassId) -> bool {
        self.classes[id.index()].children.is_empty()
    }

    /// Returns the cost of a byte of each class in its parent's virtual time, by class number. The kernel's
    /// discipline computes its tags from these. The root's cost is unused.
    pub fn costs(&self) -> Vec<u64> {
        let mut costs = vec![1; self.classes.len()];
        for class in &self.classes {
            let weights: Vec<Weight> = class.children.iter().map(|child| self.class(*child).weight).collect();
            for (child, cost) in class.children.iter().zip(WeightScale::from_weights(&weights).costs) {
                costs[child.index()] = cost;
            }
        }
        costs
    }

    /// Returns the [`share`](Self::share) of every class, by class number. Visits each class once, which for
    /// many siblings is much cheaper than calling `share` for each of them.
    pub fn shares(&self) -> Vec<f64> {
        let mut shares = vec![1.0; self.classes.len()];
        for (id, class) in self.classes() {
            let weight = |child: &ClassId| self.class(*child).weight.to_f64();
            let all: f64 = class.children.iter().map(weight).sum();
            for child in &class.children {
                shares[child.index()] = shares[id.index()] * (weight(child) / all);
            }
        }
        shares
    }

    /// Returns the part of the link, from 0 to 1, that a class gets while all classes are backlogged.
    pub fn share(&self, mut id: ClassId) -> f64 {
        let mut share = 1.0;
        while id != ClassId::ROOT {
            share *= self.part(id);
            id = self.class(id).parent;
        }
        share
    }

    /// Returns the part of its parent's bandwidth, from 0 to 1, that a class gets while all its siblings are
    /// backlogged.
    pub fn part(&self, id: ClassId) -> f64 {
        if id == ClassId::ROOT {
            return 1.0;
        }
        let class = self.class(id);
        let siblings = &self.class(class.parent).children;
        let all: f64 = siblings.iter().map(|child| self.class(*child).weight.to_f64()).sum();
        class.weight.to_f64() / all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighing(name: &str, weight: &str) -> ClassSpec {
        ClassSpec::new(name).weighing(weight.parse().expect("it is a weight"))
    }

    #[test]
    fn classes_are_numbered_parents_first_and_shares_multiply() {
        let video = weighing("video", "3").with([weighing("live", "1"), weighing("stored", "3")]);
        let tree = Hierarchy::new(ClassSpec::new("link").with([video, weighing("web", "1")]))
            .expect("names are unique");
        let names: Vec<_> = tree.classes().map(|(_, class)| class.name.as_str()).collect();
        assert_eq!(names, ["link", "video", "live", "stored", "web"]);
        let stored = tree.find("stored").expect("it is there");
        assert!((tree.share(stored) - 0.5625).abs() < 1e-12);
        for (share, (id, _)) in tree.shares().into_iter().zip(tree.classes()) {
            assert!((share - tree.share(id)).abs() < 1e-12);
        }
    }

    #[test]
    fn a_name_that_comes_twice_is_refused() {
        let tree = ClassSpec::new("link").with([ClassSpec::new("a").with([ClassSpec::new("link")])]);
        assert_eq!(
            Hierarchy::new(tree).expect_err("link comes twice").to_string(),
            "two classes are called `link`; names are unique in the whole tree"
        );
    }

    #[test]
    fn the_default_is_a_leaf_that_exists_or_a_new_one() {
        let tree = || {
            let inner = ClassSpec::new("inner").with([ClassSpec::new("leaf")]);
            Hierarchy::new(ClassSpec::new("link").with([inner])).expect("names are unique")
        };
        assert_eq!(tree().with_default("leaf").expect("a leaf").default_class(), tree().find("leaf"));
        assert!(tree().with_default("inner").is_err());
        let new = tree().with_default("rest").expect("a new one");
        assert_eq!(new.class(new.default_class().expect("it was set")).parent, ClassId::ROOT);
        assert_eq!(new.class(ClassId::ROOT).children.len(), 2);
    }
}
