//! Ousterhout's matrix: rows are slots of time, columns are cores, and every gang lies in one row.
//!
//! ```text
//!             core 0   core 1   core 2   core 3
//!   slot 0      A        A        A        A
//!   slot 1      B        B        C        .      <- B and C fit beside each other
//! ```
//!
//! Gangs are placed widest first into the first row with room, on consecutive cores; a gang that is wider
//! than the machine gets all of it. Rows are ordered by their first gang. Cost: gangs x rows on every change,
//! nothing in between. First fit wastes at most half of the cores; repacking moves gangs between cores, so it
//! is done only when a gang comes, leaves or changes its width.
//!
//! Reference: Ousterhout, "Scheduling techniques for concurrent systems", 1982.

use crate::gang::GangId;
use std::ops::Range;

/// A gang's place in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotPlace {
    pub gang: GangId,
    /// The gang's cores, as indices into the list of scheduled cores.
    pub cores: Range<usize>,
}

/// The gangs of one slot and their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The gangs, in order of their cores.
    pub places: Vec<SlotPlace>,
}

impl Slot {
    fn used(&self) -> usize {
        self.places.last().map_or(0, |place| place.cores.end)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matrix {
    slots: Vec<Slot>,
}

impl Matrix {
    /// Packs gangs of the given widths (threads that want to run at once) onto `cores` cores.
    pub fn pack(cores: usize, gangs: &[(GangId, usize)]) -> Matrix {
        let mut order: Vec<_> =
            gangs.iter().map(|(gang, width)| (*gang, (*width).clamp(1, cores.max(1)))).collect();
        order.sort_by_key(|(gang, width)| (std::cmp::Reverse(*width), *gang));
        let mut slots: Vec<Slot> = Vec::new();
        for (gang, width) in order {
            let room = slots.iter().position(|slot| slot.used() + width <= cores);
            let row = room.unwrap_or_else(|| {
                slots.push(Slot::default());
                slots.len() - 1
            });
            let start = slots[row].used();
            slots[row].places.push(SlotPlace { gang, cores: start..start + width });
        }
        slots.sort_by_key(|slot| slot.places.iter().map(|place| place.gang).min());
        Matrix { slots }
    }

    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(slot: &Slot) -> Vec<usize> {
        slot.places.iter().map(|place| place.gang.0).collect()
    }

    #[test]
    fn gangs_that_fit_beside_each_other_share_a_slot() {
        let gangs = [(GangId(0), 4), (GangId(1), 2), (GangId(2), 1), (GangId(3), 3)];
        let matrix = Matrix::pack(4, &gangs);
        let rows: Vec<_> = matrix.slots().iter().map(ids).collect();
        assert_eq!(rows, [vec![0], vec![1], vec![3, 2]]);
    }

    proptest! {
        #[test]
        fn no_core_is_given_twice_and_no_gang_is_forgotten(
            cores in 1usize..70, widths in proptest::collection::vec(0usize..90, 0..40)
        ) {
            let gangs: Vec<_> = widths.iter().enumerate().map(|(i, w)| (GangId(i), *w)).collect();
            let matrix = Matrix::pack(cores, &gangs);
            let mut placed = vec![0; gangs.len()];
            for slot in matrix.slots() {
                let mut taken = vec![false; cores];
                for place in &slot.places {
                    placed[place.gang.0] += 1;
                    prop_assert_eq!(place.cores.len(), widths[place.gang.0].clamp(1, cores));
                    for core in place.cores.clone() {
                        prop_assert!(!std::mem::replace(&mut taken[core], true));
                    }
                }
            }
            prop_assert!(placed.iter().all(|times| *times == 1));
            // first fit would have put two half-empty slots into one
            let half_empty = matrix.slots().iter().filter(|slot| slot.used() * 2 <= cores).count();
            prop_assert!(half_empty <= 1);
        }
    }
}
