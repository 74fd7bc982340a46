//! The classes that a device has, so that a change sends only the classes that differ.
//!
//! They are read from the kernel and not from the journal, so a class that another program has changed or
//! removed is made again. A class whose weight stays may still get another guaranteed rate and turn, because
//! the weights of its siblings count for both. Differences below [`MAX_RATE_DEVIATION`] and
//! [`MAX_QUANTUM_DEVIATION`] are ignored. Otherwise a change of one subscriber would change all the others. A
//! deviation never adds up, because it is relative to the class that the device has.
//!
//! Cost: the kernel describes a class in some microseconds, and its leaf in as many.

use super::site::HostDevice;
use std::collections::{HashMap, HashSet};
use unisono_linux::netlink::Refused;
use unisono_linux::netlink::htb::{self, ByteRate, HtbClass};
use unisono_linux::netlink::qdisc::{self, Qdisc};

/// The maximum relative deviation of a class's guaranteed rate from the policy. Chosen, not measured: as much
/// as the shares of the kernel's classes deviate anyway.
const MAX_RATE_DEVIATION: f64 = 1e-3;
/// The maximum relative deviation of a class's turn. A turn ends with a whole packet, so it is less exact
/// than a rate. Chosen, not measured.
const MAX_QUANTUM_DEVIATION: f64 = 1e-2;

/// The classes of a device and the disciplines of its leaves, by class number.
#[derive(Debug, Default)]
pub(super) struct ClassesInForce {
    classes: HashMap<u32, HtbClass>,
    leaves: HashMap<u32, Qdisc>,
    /// The numbers of all disciplines.
    handles: HashSet<u32>,
}

impl ClassesInForce {
    /// Reads the classes of the discipline with this handle, whose root class has no parent in the kernel,
    /// and all their leaves.
    pub(super) fn read(host: &mut HostDevice, root: u32) -> Result<Self, Refused> {
        let leaves = qdisc::of_device(&mut host.socket, host.queue)?;
        Ok(Self {
            handles: leaves.iter().map(|leaf| leaf.handle).collect(),
            leaves: leaves.into_iter().map(|leaf| (leaf.parent, leaf)).collect(),
            ..Self::read_classes(host, root)?
        })
    }

    /// Reads the classes as [`Self::read`] does, without the disciplines of their leaves.
    pub(super) fn read_classes(host: &mut HostDevice, root: u32) -> Result<Self, Refused> {
        let own_parent = |class: HtbClass| match class.parent {
            qdisc::ROOT => HtbClass { parent: root, ..class },
            _ => class,
        };
        let classes = htb::classes(&mut host.socket, host.queue)?.into_iter().map(own_parent);
        Ok(Self { classes: classes.map(|class| (class.number, class)).collect(), ..Self::default() })
    }

    /// Reads the discipline of the leaf with this number.
    pub(super) fn read_leaf(&mut self, host: &mut HostDevice, class: u32) -> Result<(), Refused> {
        if let Some(leaf) = qdisc::at(&mut host.socket, host.queue, class)? {
            self.handles.insert(leaf.handle);
            self.leaves.insert(class, leaf);
        }
        Ok(())
    }

    /// Returns the rate that a class has, if it deviates little from the `wanted` one, or else the wanted
    /// one.
    pub(super) fn nearby_rate(&self, class: u32, wanted: ByteRate) -> ByteRate {
        let now = self.classes.get(&class).map(|class| class.rate.0);
        ByteRate(nearby(now, wanted.0, MAX_RATE_DEVIATION))
    }

    /// Returns the number of bytes of a class's turn, as [`Self::nearby_rate`] returns its rate.
    pub(super) fn nearby_quantum(&self, class: u32, wanted: u64) -> u64 {
        let now = self.classes.get(&class).map(|class| u64::from(class.quantum));
        nearby(now, wanted, MAX_QUANTUM_DEVIATION)
    }

    pub(super) fn class(&self, number: u32) -> Option<&HtbClass> {
        self.classes.get(&number)
    }

    /// Returns the number for a new discipline: the `wanted` one, unless another discipline has it.
    pub(super) fn free_handle(&self, wanted: u32) -> u32 {
        if self.handles.contains(&wanted) { qdisc::AUTOMATIC } else { wanted }
    }

    /// Returns the discipline of the queue of this leaf.
    pub(super) fn leaf(&self, number: u32) -> Option<&Qdisc> {
        self.leaves.get(&number)
    }
}

fn nearby(now: Option<u64>, wanted: u64, max_deviation: f64) -> u64 {
    now.filter(|now| now.abs_diff(wanted) as f64 <= wanted as f64 * max_deviation).unwrap_or(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_deviation_stays_and_a_large_one_does_not() {
        assert_eq!(nearby(Some(1_000_999), 1_000_000, MAX_RATE_DEVIATION), 1_000_999);
        assert_eq!(nearby(Some(998_999), 1_000_000, MAX_RATE_DEVIATION), 1_000_000);
        assert_eq!(nearby(None, 7, MAX_RATE_DEVIATION), 7);
    }
}
