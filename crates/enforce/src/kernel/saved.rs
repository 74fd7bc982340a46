//! The previous state of a device and of control groups, as far as the backend with HTB changes it and has to
//! restore it.

use super::cgroups::GroupNumbers;
use super::htb_classes::{ClassNumbers, HANDLE};
use super::receiving::ReceivingPrograms;
use crate::error::Error;
use crate::group_weights::GroupWeight;
use serde::{Deserialize, Serialize};
use unisono_linux::Errno;
use unisono_linux::netlink::link::{self, Index, NetworkDevice};
use unisono_linux::netlink::qdisc::{self, Qdisc};
use unisono_linux::netlink::{NetlinkRequest, NetlinkSocket, Refused};

/// Disciplines without classes; their options describe them completely.
const CLASSLESS: [&str; 15] = [
    "pfifo",
    "bfifo",
    "pfifo_head_drop",
    "pfifo_fast",
    "fq",
    "fq_codel",
    "fq_pie",
    "codel",
    "pie",
    "sfq",
    "tbf",
    "cake",
    "netem",
    "gred",
    "hhf",
];

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct BeforeKernel {
    /// The device's earlier discipline. `None`: the kernel's default.
    pub(super) root: Option<Qdisc>,
    /// The previous limit of the packets' length, if the policy has set one.
    #[serde(rename = "pieces")]
    pub(super) gso_max_size: Option<GsoMaxSize>,
    pub(super) weights: Vec<GroupWeight>,
    /// For incoming packets: whether another program had made the discipline for filters.
    #[serde(default)]
    pub(super) had_clsact: bool,
    /// The numbers of the present classes.
    pub(super) numbers: ClassNumbers,
    /// The kernel's number of the map with the leaves of sockets, if classes may have some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sockets: Option<u32>,
    /// The numbers of the control groups that the classifier compares.
    #[serde(default, skip_serializing_if = "GroupNumbers::is_empty")]
    pub(super) groups: GroupNumbers,
    /// For incoming packets: the XDP program that passes them to the threads of their classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) receiving: Option<ReceivingPrograms>,
}

/// The longest packet that the kernel passes to a device (`gso_max_size`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct GsoMaxSize {
    before: u32,
    before_4: Option<u32>,
    /// The value that this program set. Any other value is from another program and stays.
    pub(super) ours: u32,
    /// The previous limit of the frames in a packet, and the limit that this program set.
    #[serde(default)]
    segments_before: Option<u32>,
    #[serde(default)]
    segments: Option<u32>,
}

impl GsoMaxSize {
    /// Returns the limit to set on a device, or `None` if its packets are not longer anyway.
    pub(super) fn for_device(link: &NetworkDevice, ours: u64, segments: Option<u32>) -> Option<Self> {
        let word = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        (ours < link.gso_max_size || segments.is_some()).then(|| Self {
            before: word(link.gso_max_size),
            before_4: link.gso_ipv4_max_size.map(word),
            ours: word(ours),
            segments_before: link.gso_max_segments,
            segments,
        })
    }

    /// Returns the same saved values with other limits to set.
    pub(super) fn with_limits(self, ours: u64, segments: Option<u32>) -> Self {
        Self { ours: u32::try_from(ours).unwrap_or(u32::MAX).min(self.before), segments, ..self }
    }

    pub(super) fn before(self) -> u64 {
        u64::from(self.before)
    }

    pub(super) fn set(self, index: Index) -> NetlinkRequest {
        let segments = self.segments.or(self.segments_before);
        link::limit(index, self.ours, self.before_4.map(|before| before.min(self.ours)), segments)
    }

    pub(super) fn holds(self, link: &NetworkDevice) -> bool {
        link.gso_max_size == u64::from(self.ours)
            && (self.segments.is_none() || link.gso_max_segments == self.segments)
    }

    pub(super) fn restore(self, index: Index) -> NetlinkRequest {
        link::limit(index, self.before, self.before_4, self.segments_before)
    }
}

/// The discipline of a device.
pub(super) enum Root {
    Ours,
    /// Another discipline, which can be restored. `None`: the kernel's default, which comes back when its
    /// replacement is removed.
    Theirs(Option<Qdisc>),
}

/// Returns the discipline of a device. Fails if it must not be replaced, because it could not be restored.
pub(super) fn root_qdisc(socket: &mut NetlinkSocket, device: &str, index: Index) -> Result<Root, Error> {
    let Some(root) = qdisc::root_of(socket, index)? else { return Ok(Root::Theirs(None)) };
    if root.handle == HANDLE && root.kind == "htb" {
        return Ok(Root::Ours);
    }
    let all = qdisc::of_device(socket, index)?;
    let has_more = all.iter().any(|qdisc| qdisc.parent & 0xffff_0000 == root.handle && qdisc.handle != 0);
    if has_more || !CLASSLESS.contains(&root.kind.as_str()) {
        return Err(Error::Occupied { device: device.to_owned(), kind: root.kind });
    }
    Ok(Root::Theirs(Some(root)))
}

/// Restores the discipline of a device in place of ours. If a leaf of ours has the number of that discipline,
/// removes the leaf, too.
pub(super) fn restore(socket: &mut NetlinkSocket, root: Option<&Qdisc>, index: Index) -> Result<(), Refused> {
    let Some(root) = root else { return socket.run(&[qdisc::remove_root(index)]) };
    match socket.run(&[qdisc::make(index, root)]) {
        Err(refused) if refused.errno == Errno::INVAL.raw_os_error() => {
            let leaf = qdisc::of_device(socket, index)?.into_iter().find(|leaf| leaf.handle == root.handle);
            let Some(leaf) = leaf else { return Err(refused) };
            socket.run(&[qdisc::remove(index, leaf.parent), qdisc::make(index, root)])
        }
        result => result,
    }
}

/// Returns the note for a device whose discipline is not ours any more.
pub(super) fn replaced_note(device: &str) -> String {
    format!("somebody else has replaced the queueing discipline of {device} since; it stays")
}
