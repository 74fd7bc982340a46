//! One step of a change at a device in the kernel.

use super::saved::SegmentSize;
use crate::cpu::controller::GroupWeight;
use unisono_linux::netlink::NetlinkRequest;

pub(super) enum KernelStep {
    Ask(Box<NetlinkRequest>),
    /// It is no error if the thing is not there.
    Remove(Box<NetlinkRequest>),
    /// As `Ask`, for packets that come in.
    Detour(Box<NetlinkRequest>),
    /// It does not matter whether the kernel refuses.
    Try(Box<NetlinkRequest>),
    /// Serve classes that get no more packets until none waits in them.
    Drain(Vec<u32>),
    /// A device that refuses the limit is no reason to stop.
    Limit(SegmentSize),
    Unlimit(SegmentSize),
    Set(GroupWeight),
    PutBack(GroupWeight),
}
