//! A set of numbers that is read far more often than it changes. It is a sorted list; a set of one number
//! takes no memory beyond itself, because most sets of a channel have one.
//!
//! Cost: a read is as cheap as in a list. Insertion and removal take a binary search, and move the numbers
//! behind the place: some 10 us for 65,536 numbers. Numbers mostly ascend as they come, so that an insertion
//! moves none.

/// A list that holds a single item in place.
#[derive(Clone, Debug, Default)]
pub(crate) enum SmallList<T> {
    #[default]
    Empty,
    One(T),
    #[expect(clippy::box_collection, reason = "the other variants are smaller than a `Vec`")]
    Many(Box<Vec<T>>),
}

impl<T: Copy> SmallList<T> {
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Self::Empty => &[],
            Self::One(item) => std::slice::from_ref(item),
            Self::Many(items) => items,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    pub(crate) fn push(&mut self, item: T) {
        self.insert(self.len(), item);
    }

    pub(crate) fn insert(&mut self, at: usize, item: T) {
        match self {
            Self::Empty => *self = Self::One(item),
            Self::One(other) => {
                let mut items = vec![*other];
                items.insert(at, item);
                *self = Self::Many(Box::new(items));
            }
            Self::Many(items) => items.insert(at, item),
        }
    }

    pub(crate) fn remove(&mut self, at: usize) {
        match self {
            Self::Many(items) if items.len() > 2 => {
                items.remove(at);
                if items.len() < items.capacity() / 4 {
                    items.shrink_to(items.len() * 2);
                }
            }
            Self::Many(items) => {
                items.remove(at);
                *self = items.first().map_or(Self::Empty, |item| Self::One(*item));
            }
            Self::Empty | Self::One(_) => *self = Self::Empty,
        }
    }
}

/// A set of numbers, in ascending order.
#[derive(Debug)]
pub(crate) struct MemberList<T = u32>(SmallList<T>);

impl<T> Default for MemberList<T> {
    fn default() -> Self {
        Self(SmallList::Empty)
    }
}

impl<T: Copy + Ord> MemberList<T> {
    pub(crate) fn as_slice(&self) -> &[T] {
        self.0.as_slice()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a number, unless the set has it.
    pub(crate) fn insert(&mut self, member: T) {
        if self.as_slice().last().is_none_or(|last| *last < member) {
            self.0.push(member);
        } else if let Err(at) = self.as_slice().binary_search(&member) {
            self.0.insert(at, member);
        }
    }

    /// Removes a number, if the set has it.
    pub(crate) fn remove(&mut self, member: T) {
        if let Ok(at) = self.as_slice().binary_search(&member) {
            self.0.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_holds_what_a_set_holds(steps in prop::collection::vec((0..150_u32, any::<bool>()), 0..600)) {
            let (mut list, mut set) = (MemberList::default(), BTreeSet::new());
            for (member, comes) in steps {
                if comes {
                    set.insert(member);
                    list.insert(member);
                } else {
                    set.remove(&member);
                    list.remove(member);
                }
                prop_assert!(list.as_slice().iter().eq(&set));
                prop_assert_eq!(list.is_empty(), set.is_empty());
            }
        }
    }

    #[test]
    fn a_set_of_one_takes_no_memory_and_a_set_gives_back_what_it_no_longer_needs() {
        let mut list = MemberList::default();
        (0..1000_u32).for_each(|member| list.insert(member));
        (3..1000).for_each(|member| list.remove(member));
        assert!(matches!(&list.0, SmallList::Many(items) if items.capacity() <= 16), "{list:?}");
        (1..3).for_each(|member| list.remove(member));
        assert!(matches!(list.0, SmallList::One(0)));
    }
}
