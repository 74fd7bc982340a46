//! Start-time fair queuing as it is defined, with exact fractions and no cleverness: the oracle.
//!
//! At each choice it names every child that may be served (all those with the least start tag), is told which
//! one was, and follows.

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
    /// Whether its packet is in service.
    served: bool,
    /// Whether it wants service beside its siblings; in service it does, too.
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

    /// Whether a leaf may be served now: on each level its class has the least start tag.
    pub(crate) fn may_serve(&self, leaf: ClassId) -> bool {
        let mut at = leaf.index();
        let mut may = !self.classes[at].waiting.is_empty();
        while at != 0 {
            let parent = &self.classes[self.classes[at].parent];
            let least = parent.children.iter().map(|child| &self.classes[*child]).filter(|class| class.busy);
            may &= least.map(|class| &class.start).min() == Some(&self.classes[at].start);
            at = self.classes[at].parent;
        }
        may
    }

    /// Serves the first packet of a leaf; answers its length.
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
