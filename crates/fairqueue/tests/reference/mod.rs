//! The oracle: start-time fair queuing by its definition, with exact fractions and without optimizations.
//!
//! At each choice the oracle accepts every child with the least start tag; the test then tells it the child
//! that was served.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Zero;
use std::collections::VecDeque;
use unisono_fairqueue::{ClassId, Hierarchy};

struct Class {
    parent: usize,
    children: Vec<usize>,
    weight: BigRational,
    /// The virtual time among its children.
    now: BigRational,
    start: BigRational,
    finish: BigRational,
    waiting: VecDeque<u32>,
    /// Whether the class's packet is in service.
    served: bool,
    /// Whether the class is backlogged or in service.
    busy: bool,
}

pub(crate) struct Reference {
    classes: Vec<Class>,
    in_service: Option<usize>,
}

impl Reference {
    pub(crate) fn new(hierarchy: &Hierarchy) -> Self {
        let classes = hierarchy.classes().map(|(_, class)| {
            let (numerator, denominator) = class.weight.fraction();
            Class {
                parent: class.parent.index(),
                children: class.children.iter().map(|child| child.index()).collect(),
                weight: BigRational::new(numerator.into(), denominator.into()),
                now: BigRational::zero(),
                start: BigRational::zero(),
                finish: BigRational::zero(),
                waiting: VecDeque::new(),
                served: false,
                busy: false,
            }
        });
        Self { classes: classes.collect(), in_service: None }
    }

    /// Changes the tree: a class keeps its lead over its parent's virtual time in bytes, and packets of
    /// classes that are no longer leaves move to the default class.
    #[allow(dead_code, reason = "not every test changes the tree")]
    pub(crate) fn apply(&mut self, old: &Hierarchy, new: &Hierarchy) {
        let mut next = Self::new(new);
        let place = |at: usize| match at {
            0 => Some(0),
            at => {
                let name = old.classes().nth(at).map(|(_, class)| class.name.clone()).expect("it is there");
                new.find(&name).map(ClassId::index).filter(|at| *at != 0)
            }
        };
        let mut homeless: Vec<u32> = vec![];
        for (at, class) in self.classes.iter().enumerate() {
            if let Some(to) = place(at)
                && at != 0
            {
                let waits = class.busy && !class.served;
                let ahead =
                    if waits { &class.start } else { &class.finish } - &self.classes[class.parent].now;
                let to = &mut next.classes[to];
                to.start = ahead.max(BigRational::zero()) * &class.weight / &to.weight;
                to.finish = to.start.clone();
            }
            match place(at).filter(|to| next.classes[*to].children.is_empty()) {
                Some(to) => next.classes[to].waiting.extend(&class.waiting),
                None => homeless.extend(&class.waiting),
            }
        }
        let default = new.default_class().map_or(0, ClassId::index);
        next.classes[default].waiting.extend(homeless);
        next.in_service = self.in_service.and_then(place);
        next.in_service = next.in_service.filter(|at| next.classes[*at].children.is_empty());
        let mut at = next.in_service.unwrap_or(0);
        while at != 0 {
            let class = &mut next.classes[at];
            (class.served, class.busy, class.start) = (true, true, BigRational::zero());
            at = class.parent;
        }
        for at in (1..next.classes.len()).rev() {
            next.classes[at].busy |= next.wants(at);
        }
        for at in 0..next.classes.len() {
            let class = &next.classes[at];
            if !class.children.is_empty() && !next.wants(at) {
                let finish = class.children.iter().map(|child| &next.classes[*child].finish);
                next.classes[at].now = finish.max().expect("it has children").clone();
            }
        }
        *self = next;
    }

    fn wants(&self, at: usize) -> bool {
        let class = &self.classes[at];
        !class.waiting.is_empty() || class.children.iter().any(|child| self.classes[*child].busy)
    }

    pub(crate) fn enqueue(&mut self, leaf: ClassId, length: u32) {
        let mut at = leaf.index();
        self.classes[at].waiting.push_back(length);
        while at != 0 && !self.classes[at].busy {
            let parent = self.classes[at].parent;
            let now = self.classes[parent].now.clone();
            let class = &mut self.classes[at];
            class.busy = true;
            class.start = now.max(class.finish.clone());
            at = parent;
        }
    }

    pub(crate) fn finish(&mut self) {
        let Some(leaf) = self.in_service.take() else { return };
        let mut at = leaf;
        while at != 0 {
            let more = self.wants(at);
            let class = &mut self.classes[at];
            class.served = false;
            class.busy = more;
            class.start = class.finish.clone();
            let parent = class.parent;
            if !self.wants(parent) {
                let greatest = self.classes[parent].children.iter().map(|child| &self.classes[*child].finish);
                self.classes[parent].now = greatest.max().expect("it has children").clone();
            }
            at = parent;
        }
    }

    /// Returns whether a leaf may be served now: on each level, the class on the path to it has the least
    /// start tag.
    #[allow(dead_code, reason = "where the tree changes, tags are rounded")]
    pub(crate) fn may_serve(&self, leaf: ClassId) -> bool {
        self.may_serve_within(leaf, &BigRational::zero())
    }

    /// Returns the same as [`may_serve`](Self::may_serve), but allows start tags to differ from the least one
    /// by up to `rounding`.
    pub(crate) fn may_serve_within(&self, leaf: ClassId, rounding: &BigRational) -> bool {
        let mut at = leaf.index();
        let mut may = !self.classes[at].waiting.is_empty();
        while at != 0 {
            let parent = &self.classes[self.classes[at].parent];
            let least = parent.children.iter().map(|child| &self.classes[*child]).filter(|class| class.busy);
            let least = least.map(|class| &class.start).min();
            may &= least.is_some_and(|least| &self.classes[at].start - least <= *rounding);
            at = self.classes[at].parent;
        }
        may
    }

    /// Serves the first packet of a leaf. Returns its length.
    pub(crate) fn serve(&mut self, leaf: ClassId) -> u32 {
        let length = self.classes[leaf.index()].waiting.pop_front().expect("it may be served");
        let mut at = leaf.index();
        while at != 0 {
            let parent = self.classes[at].parent;
            let class = &mut self.classes[at];
            class.served = true;
            class.finish = &class.start + BigRational::from(BigInt::from(length)) / &class.weight;
            let start = class.start.clone();
            self.classes[parent].now = start;
            at = parent;
        }
        self.in_service = Some(leaf.index());
        length
    }

    pub(crate) fn wants_any(&self) -> bool {
        self.classes.iter().any(|class| !class.waiting.is_empty())
    }
}
