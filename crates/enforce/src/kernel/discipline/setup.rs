//! The parameters of a discipline at its start, and their encoding in its maps.

use unisono_fairqueue::{ClassId, Hierarchy, Rate};

/// The number of packet priorities (`SO_PRIORITY`) that can stand for classes.
pub const PRIORITIES: usize = 16;

/// The prefix of the names of all our disciplines.
pub const KIND: &str = "unisono_";

#[derive(Clone, Debug)]
pub struct Setup<'a> {
    pub hierarchy: &'a Hierarchy,
    /// The rate of the link. `None`: as fast as the device takes packets.
    pub rate: Option<Rate>,
    /// The leaf for packets that name no leaf.
    pub others: ClassId,
    /// The leaf for packets of each small priority (`SO_PRIORITY`). A packet's priority may also name its
    /// class as `MAJOR:MINOR`: the number of the device's discipline, and the class's number plus 1, with the
    /// generation above it.
    pub by_priority: [Option<ClassId>; PRIORITIES],
    /// The most bytes in each leaf, by class number, if neither the leaf nor a class above it has a limit;
    /// further packets are dropped. Without `room` only [`MAX_PACKETS`](super::layout::MAX_PACKETS) limits
    /// such leaves.
    pub room: Option<&'a [u64]>,
}

impl Setup<'_> {
    pub(super) fn link(&self) -> Vec<u8> {
        let number = |class: ClassId| class.index() as u32;
        let words = [0, number(self.others)].into_iter().chain(self.by_priority());
        let long = [self.rate.map_or(0, Rate::bits_per_second), 0, 0];
        let long = long.into_iter().flat_map(u64::to_ne_bytes);
        long.chain(words.flat_map(u32::to_ne_bytes)).collect()
    }

    /// Returns the beginning of a plan for other classes.
    pub(super) fn plan_head(&self) -> Vec<u8> {
        let words = [self.others.index() as u32, 0].into_iter().chain(self.by_priority());
        let rate = self.rate.map_or(0, Rate::bits_per_second).to_ne_bytes().into_iter();
        rate.chain(words.flat_map(u32::to_ne_bytes)).collect()
    }

    fn by_priority(&self) -> [u32; PRIORITIES] {
        self.by_priority.map(|class| class.unwrap_or(self.others).index() as u32)
    }
}
