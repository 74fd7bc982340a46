//! The rate of each class while all classes send: a share by weight, with ceilings.
//!
//! Siblings divide the rate of their parent by weight. Bandwidth that a class cannot take because of its
//! ceiling, or because of the ceilings of all of its children, goes to its siblings by weight (water
//! filling).
//!
//! Cost: siblings are sorted once, by ceiling and weight.

use super::Policy;
use crate::hierarchy::ClassId;

impl Policy {
    /// Returns the rate in bits a second that a class gets while all classes are backlogged. For several
    /// classes use [`guarantees`](Self::guarantees), which computes all at once.
    pub fn guarantee(&self, class: ClassId) -> f64 {
        self.guarantees()[class.index()]
    }

    /// Returns the rate in bits a second that each class gets while all classes are backlogged, by class
    /// number. A class always gets as much as it sends up to this rate, and more while others send less. The
    /// rates of a class's children sum up to its own; the root's rate is below the link's if no class may
    /// take the rest.
    pub fn guarantees(&self) -> Vec<f64> {
        let tree = &self.hierarchy;
        let mut rates = vec![self.rate.bits_per_second() as f64; tree.classes().count()];
        // children have higher numbers than their parents: first the most that each class can take
        let parents_first: Vec<_> = tree.classes().collect();
        for (id, class) in parents_first.iter().rev() {
            let ceiling = self.ceiling(*id).bits_per_second() as f64;
            let below: f64 = class.children.iter().map(|child| rates[child.index()]).sum();
            rates[id.index()] = if class.children.is_empty() { ceiling } else { ceiling.min(below) };
        }
        for (id, class) in &parents_first {
            let siblings = class.children.iter().map(|child| RateDemand {
                class: *child,
                weight: tree.class(*child).weight.to_f64(),
                most: rates[child.index()],
            });
            for (child, rate) in fill(rates[id.index()], siblings.collect()) {
                rates[child.index()] = rate;
            }
        }
        rates
    }
}

struct RateDemand {
    class: ClassId,
    weight: f64,
    /// The highest rate that the class can take.
    most: f64,
}

/// Divides a rate among siblings by weight, and the excess of siblings at their maximum among the others.
fn fill(mut rate: f64, mut siblings: Vec<RateDemand>) -> Vec<(ClassId, f64)> {
    // siblings reach their maximum in this order, so each later sibling divides the rest
    siblings.sort_by(|one, other| (one.most / one.weight).total_cmp(&(other.most / other.weight)));
    let mut weights = Vec::with_capacity(siblings.len());
    let mut all = 0.0;
    for sibling in siblings.iter().rev() {
        all += sibling.weight;
        weights.push(all);
    }
    let divided = siblings.iter().zip(weights.into_iter().rev()).map(|(sibling, weights)| {
        let part = (rate * (sibling.weight / weights)).min(sibling.most);
        rate = (rate - part).max(0.0);
        (sibling.class, part)
    });
    divided.collect()
}
