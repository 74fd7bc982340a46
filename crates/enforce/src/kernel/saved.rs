//! What a device and control groups were like, as far as it has to be put back.

use super::tree::{ClassNumbers, HANDLE};
use crate::cpu::controller::GroupWeight;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use unisono_linux::netlink::link::{self, Index, NetworkDevice};
use unisono_linux::netlink::qdisc::{self, Qdisc};
use unisono_linux::netlink::{NetlinkRequest, NetlinkSocket};

/// Disciplines without classes, which their options describe whole.
const WHOLE: [&str; 15] = [
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

/// What is to be put back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct BeforeKernel {
    /// What the device began with; none if the kernel had put it there itself.
    pub(super) root: Option<Qdisc>,
    /// The longest packet that the device was handed at once, if that is limited now.
    pub(super) pieces: Option<SegmentSize>,
    /// The weights of control groups.
    pub(super) weights: Vec<GroupWeight>,
    /// The classes that are there now.
    pub(super) numbers: ClassNumbers,
}

/// The longest packet that a device is handed at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct SegmentSize {
    before: u32,
    before_4: Option<u32>,
    /// What we set; anything else is somebody else's choice, and stays.
    pub(super) ours: u32,
}

impl SegmentSize {
    /// What is to be set on a device; none if its packets are no longer than that anyway.
    pub(super) fn of(link: &NetworkDevice, ours: u64) -> Option<Self> {
        let word = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        (ours < link.most_at_once).then(|| Self {
            before: word(link.most_at_once),
            before_4: link.most_at_once_4.map(word),
            ours: word(ours),
        })
    }

    /// The same with another limit.
    pub(super) fn but(self, ours: u64) -> Self {
        Self { ours: u32::try_from(ours).unwrap_or(u32::MAX).min(self.before), ..self }
    }

    /// What the device was handed before.
    pub(super) fn before(self) -> u64 {
        u64::from(self.before)
    }

    pub(super) fn set(self, index: Index) -> NetlinkRequest {
        link::limit(index, self.ours, self.before_4.map(|before| before.min(self.ours)))
    }

    /// Whether a device is as we left it.
    pub(super) fn holds(self, link: &NetworkDevice) -> bool {
        link.most_at_once == u64::from(self.ours)
    }

    pub(super) fn put_back(self, index: Index) -> NetlinkRequest {
        link::limit(index, self.before, self.before_4)
    }
}

/// What a device begins with.
pub(super) enum Root {
    Ours,
    /// Something that can be put back: none means by removing what replaced it.
    Theirs(Option<Qdisc>),
}

/// What a device begins with.
///
/// # Errors
/// It could not be put back, so it may not be replaced.
pub(super) fn root_of(socket: &mut NetlinkSocket, device: &str, index: Index) -> Result<Root, Error> {
    let all = qdisc::of_device(socket, index)?;
    let Some(root) = all.iter().find(|qdisc| qdisc.parent == qdisc::ROOT) else {
        return Ok(Root::Theirs(None));
    };
    if root.handle == HANDLE && root.kind == "htb" {
        return Ok(Root::Ours);
    }
    if root.handle == 0 {
        return Ok(Root::Theirs(None));
    }
    let has_more = all.iter().any(|qdisc| qdisc.parent & 0xffff_0000 == root.handle && qdisc.handle != 0);
    if has_more || !WHOLE.contains(&root.kind.as_str()) {
        return Err(Error::Occupied { device: device.to_owned(), kind: root.kind.clone() });
    }
    Ok(Root::Theirs(Some(root.clone())))
}

/// Puts back what a device began with.
pub(super) fn put_back(root: Option<&Qdisc>, index: Index) -> NetlinkRequest {
    root.map_or_else(|| qdisc::remove_root(index), |root| qdisc::make(index, root))
}

/// What is said of a device whose discipline is not ours any more.
pub(super) fn stays(device: &str) -> String {
    format!("somebody else has replaced the queueing discipline of {device} since; it stays")
}
