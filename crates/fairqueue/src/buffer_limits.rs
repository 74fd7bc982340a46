//! Limits of the packets and bytes that wait in a class, and the choice of the packet to drop beyond them.

use crate::discipline::Backlog;
use crate::hierarchy::{ClassId, Hierarchy, Limit, Overflow};
use std::collections::BTreeSet;

/// The limits of a hierarchy. Without limits nothing is counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct BufferLimits {
    /// For each class, the index of the nearest limit at the class or above it, or `NONE`.
    nearest: Vec<u32>,
    limited: Vec<LimitedClass>,
    /// The backlog of each class, counted only for leaves under a limit.
    leaves: Vec<Backlog>,
}

#[derive(Clone, Debug)]
struct LimitedClass {
    limit: Limit,
    above: u32,
    waiting: Backlog,
    /// The backlog beyond which [`Overflow::DropLongest`] drops: the limit, or the backlog at the moment when
    /// the limit was set, until the backlog has shrunk to the limit.
    max_waiting: Backlog,
    /// The leaves below the class, ordered by the bytes that wait in them; maintained for
    /// [`Overflow::DropLongest`] only.
    longest: BTreeSet<(u64, usize)>,
}

const NONE: u32 = u32::MAX;

impl BufferLimits {
    pub(crate) fn new(hierarchy: &Hierarchy) -> Self {
        let mut limited = Vec::new();
        let mut nearest: Vec<u32> = Vec::new();
        for (id, class) in hierarchy.classes() {
            // parents come before their children
            let above = if id == ClassId::ROOT { NONE } else { nearest[class.parent.index()] };
            nearest.push(match class.limit {
                None => above,
                Some(limit) => {
                    limited.push(LimitedClass {
                        limit,
                        above,
                        waiting: Backlog::default(),
                        max_waiting: Backlog { packets: limit.packets, bytes: limit.bytes },
                        longest: BTreeSet::new(),
                    });
                    u32::try_from(limited.len() - 1).expect("fits because classes do")
                }
            });
        }
        if limited.is_empty() {
            Self::default()
        } else {
            let leaves = vec![Backlog::default(); nearest.len()];
            Self { nearest, limited, leaves }
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.limited.is_empty()
    }

    /// Returns the indices of the limits that apply to a class, the nearest first.
    fn ancestors(&self, class: usize) -> impl Iterator<Item = usize> + use<'_> {
        let mut at = self.nearest.get(class).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let here = self.limited.get(at as usize)?;
            Some(std::mem::replace(&mut at, here.above) as usize)
        })
    }

    /// Returns whether a packet that arrives has to be dropped itself.
    pub(crate) fn refuses(&self, leaf: usize, length: u32) -> bool {
        self.ancestors(leaf).any(|at| {
            let LimitedClass { limit, waiting, .. } = &self.limited[at];
            limit.overflow == Overflow::DropTail
                && (waiting.packets + 1 > limit.packets || waiting.bytes + u64::from(length) > limit.bytes)
        })
    }

    /// Counts a packet that has been queued at a leaf.
    pub(crate) fn enqueued(&mut self, leaf: usize, length: u32) {
        self.change(leaf, |waiting| {
            waiting.packets += 1;
            waiting.bytes += u64::from(length);
        });
    }

    pub(crate) fn dequeued(&mut self, leaf: usize, length: u32) {
        self.change(leaf, |waiting| {
            waiting.packets -= 1;
            waiting.bytes -= u64::from(length);
        });
        let mut at = self.nearest.get(leaf).copied().unwrap_or(NONE);
        while let Some(LimitedClass { limit, above, waiting, max_waiting, .. }) =
            self.limited.get_mut(at as usize)
        {
            max_waiting.packets = max_waiting.packets.min(waiting.packets).max(limit.packets);
            max_waiting.bytes = max_waiting.bytes.min(waiting.bytes).max(limit.bytes);
            at = *above;
        }
    }

    /// Changes the limit of a class that has its own limit. The new limit must have the same `overflow`.
    pub(crate) fn set(&mut self, class: usize, limit: Limit) {
        let Some(here) = self.limited.get_mut(self.nearest[class] as usize) else { return };
        here.limit = limit;
        here.max_waiting = Backlog {
            packets: limit.packets.max(here.waiting.packets),
            bytes: limit.bytes.max(here.waiting.bytes),
        };
    }

    /// Counts the packets that waited at a leaf before the limit was set.
    pub(crate) fn start(&mut self, leaf: usize, already: Backlog) {
        if already.packets == 0 {
            return;
        }
        self.change(leaf, |waiting| *waiting += already);
        let mut at = self.nearest.get(leaf).copied().unwrap_or(NONE);
        while let Some(LimitedClass { above, waiting, max_waiting, .. }) = self.limited.get_mut(at as usize) {
            max_waiting.packets = max_waiting.packets.max(waiting.packets);
            max_waiting.bytes = max_waiting.bytes.max(waiting.bytes);
            at = *above;
        }
    }

    fn change(&mut self, leaf: usize, change: impl Fn(&mut Backlog)) {
        let mut at = self.nearest.get(leaf).copied().unwrap_or(NONE);
        if at == NONE {
            return;
        }
        let before = self.leaves[leaf];
        change(&mut self.leaves[leaf]);
        let now = self.leaves[leaf];
        while let Some(here) = self.limited.get_mut(at as usize) {
            change(&mut here.waiting);
            if here.limit.overflow == Overflow::DropLongest {
                here.longest.remove(&(before.bytes, leaf));
                if now.packets > 0 {
                    here.longest.insert((now.bytes, leaf));
                }
            }
            at = here.above;
        }
    }

    /// Returns, after an arrival at `leaf`, the leaf whose last packet has to be dropped, if there is one.
    pub(crate) fn longest_to_drop(&self, leaf: usize) -> Option<usize> {
        self.ancestors(leaf).find_map(|at| {
            let LimitedClass { waiting, max_waiting, longest, .. } = &self.limited[at];
            let full = waiting.packets > max_waiting.packets || waiting.bytes > max_waiting.bytes;
            longest.last().filter(|_| full).map(|(_, leaf)| *leaf)
        })
    }
}
