//! One step of a change at a device in the kernel.

use super::saved::SegmentSize;
use crate::cpu::controller::GroupWeight;
use unisono_linux::netlink::NetlinkRequest;

pub(super) enum KernelStep {
    Ask(Box<NetlinkRequest>),
    /// A missing object is no error.
    Remove(Box<NetlinkRequest>),
    /// As `Ask`, for incoming packets.
    Detour(Box<NetlinkRequest>),
    /// A refusal of the kernel is no error.
    Try(Box<NetlinkRequest>),
    /// Serve classes that get no more packets until they are empty.
    Drain(Vec<u32>),
    /// A device that refuses the limit does not stop the change.
    Limit(SegmentSize),
    Unlimit(SegmentSize),
    Set(GroupWeight),
    PutBack(GroupWeight),
}
