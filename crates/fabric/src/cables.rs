//! Tracks the cables that are down by the kernel's notifications, so that the deployment learns of a pulled
//! cable at once, and not only when a member's timeout expires.
//!
//! Every cable has an end at a switch, and a device loses its carrier together with its peer, so it is enough
//! to watch the switches' devices. [`crate::diagnose`] finds cables that lose frames while their carrier is
//! up.

use crate::error::Error;
use crate::fabric::Fabric;
use crate::layout::end_of;
use std::collections::{BTreeMap, BTreeSet};
use unisono_btin::{BarrierGroup, End, NodeId, SwitchNetwork, TreePlan};
use unisono_linux::netlink::link::Carrier;
use unisono_linux::netlink::watch::{DeviceWatch, News};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DeployedCable {
    /// A cable between switches: its number in the network.
    Link(u32),
    Node(NodeId),
}

impl DeployedCable {
    /// Describes the cable for messages: by the switches that it joins, or by its node.
    pub fn name(self, network: &SwitchNetwork) -> String {
        let at = |end: End| format!("switch {} (port {})", end.switch.0, end.port.0);
        match self {
            Self::Link(number) => {
                let link = network.links()[number as usize];
                format!("link {number} between {} and {}", at(link.a), at(link.b))
            }
            Self::Node(node) => {
                format!("the cable between node {} and {}", node.0, at(network.nodes()[node.0 as usize]))
            }
        }
    }

    /// Returns whether a group's barriers need the cable in this tree.
    pub(crate) fn serves(self, network: &SwitchNetwork, group: &BarrierGroup, plan: &TreePlan) -> bool {
        let is_child = |end: End| {
            let register = plan.tree.registers.get(&end.switch);
            register.is_some_and(|register| register.children.binary_search(&end.port).is_ok())
        };
        match self {
            Self::Link(number) => {
                let link = network.links()[number as usize];
                is_child(link.a) || is_child(link.b)
            }
            Self::Node(node) => group.contains(node),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Cables {
    watch: DeviceWatch,
    by_end: BTreeMap<End, DeployedCable>,
    silent: BTreeSet<End>,
    /// The cables that are down, in the order of their failures.
    down: Vec<DeployedCable>,
}

impl Cables {
    /// Watches the cables from now on. Initially, all cables count as up.
    pub(crate) fn watch(network: &SwitchNetwork, fabric: &Fabric) -> Result<Self, Error> {
        let links = (0..).zip(network.links());
        let ends =
            links.flat_map(|(number, link)| [link.a, link.b].map(|end| (end, DeployedCable::Link(number))));
        let nodes = (0..).zip(network.nodes()).map(|(node, end)| (*end, DeployedCable::Node(NodeId(node))));
        let watch = DeviceWatch::begin(fabric.switches())?;
        Ok(Self { watch, by_end: ends.chain(nodes).collect(), silent: BTreeSet::new(), down: Vec::new() })
    }

    /// Reads the kernel's notifications. Returns the cables whose state has changed.
    pub(crate) fn poll_changes(
        &mut self,
        fabric: &mut Fabric,
    ) -> Result<Vec<(DeployedCable, Carrier)>, Error> {
        let news = self.watch.news().map_err(Error::io("hear about devices"))?;
        let known = if news.contains(&News::Missed) {
            fabric.carriers()?
        } else {
            let changes = news.iter().filter_map(|news| match news {
                News::Device(index, carrier) => Some((end_of(*index)?, *carrier)),
                News::Missed => None,
            });
            changes.collect()
        };
        let before = self.down.clone();
        for (end, carrier) in known {
            let Some(cable) = self.by_end.get(&end) else { continue };
            match carrier {
                Carrier::Absent => self.silent.insert(end),
                Carrier::Present => self.silent.remove(&end),
            };
            if carrier == Carrier::Absent && !self.down.contains(cable) {
                self.down.push(*cable);
            }
        }
        let silent: BTreeSet<DeployedCable> = self.silent.iter().map(|end| self.by_end[end]).collect();
        self.down.retain(|cable| silent.contains(cable));
        let lost = self.down.iter().filter(|cable| !before.contains(cable));
        let back = before.iter().filter(|cable| !silent.contains(cable));
        let lost = lost.map(|cable| (*cable, Carrier::Absent));
        Ok(lost.chain(back.map(|cable| (*cable, Carrier::Present))).collect())
    }

    /// Returns the cables that are down, in the order of their failures.
    pub(crate) fn down(&self) -> &[DeployedCable] {
        &self.down
    }

    pub(crate) fn links_down(&self) -> impl Iterator<Item = u32> + '_ {
        self.down
            .iter()
            .filter_map(|cable| if let DeployedCable::Link(link) = cable { Some(*link) } else { None })
    }
}

unisono_linux::as_fd!(Cables.watch);
