//! Which child of a class is next: a list for few, a wheel for many, with the same order.

use crate::few::{FEW, Few};
use crate::wheel::Wheel;

#[derive(Clone, Debug)]
pub(crate) enum Siblings {
    Few(Few),
    Many(Wheel),
}

impl Siblings {
    pub(crate) fn new(children: usize) -> Self {
        if children <= FEW { Self::Few(Few::new(children)) } else { Self::Many(Wheel::new(children)) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Few(few) => few.is_empty(),
            Self::Many(wheel) => wheel.is_empty(),
        }
    }

    #[inline]
    pub(crate) fn insert(&mut self, slot: u32, tag: u64) {
        match self {
            Self::Few(few) => few.insert(slot, tag),
            Self::Many(wheel) => wheel.insert(slot, tag),
        }
    }

    /// The child with the least tag, of equal ones the one that has waited longest.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(u32, u64)> {
        match self {
            Self::Few(few) => few.take(),
            Self::Many(wheel) => wheel.take(),
        }
    }

    pub(crate) fn remove(&mut self, slot: u32, tag: u64) {
        match self {
            Self::Few(few) => few.remove(slot),
            Self::Many(wheel) => wheel.remove(slot, tag),
        }
    }

    /// Changes all tags by a function that keeps their order.
    pub(crate) fn retag(&mut self, tag_now: impl Fn(u64) -> u64) {
        match self {
            Self::Few(few) => few.rebuild(tag_now),
            Self::Many(wheel) => wheel.rebuild(tag_now),
        }
    }

    /// Begins a busy period at a virtual time; only when empty.
    #[inline]
    pub(crate) fn restart(&mut self, now: u64) {
        if let Self::Many(wheel) = self {
            wheel.restart(now);
        }
    }
}
