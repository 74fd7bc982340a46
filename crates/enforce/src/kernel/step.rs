//! One step of a change at a device in the kernel.

use super::saved::GsoMaxSize;
use crate::cpu::controller::GroupWeight;
use unisono_linux::netlink::NetlinkRequest;

pub(super) enum KernelStep {
    Request(Box<NetlinkRequest>),
    /// A missing object is no error.
    Remove(Box<NetlinkRequest>),
    /// As `Request`, for incoming packets.
    IngressRedirect(Box<NetlinkRequest>),
    /// A refusal of the kernel is no error.
    TryRequest(Box<NetlinkRequest>),
    /// Serve classes that get no more packets until they are empty.
    Drain(Vec<u32>),
    /// A device that refuses the limit does not stop the change.
    SetGsoMaxSize(GsoMaxSize),
    RestoreGsoMaxSize(GsoMaxSize),
    SetWeight(GroupWeight),
    RestoreWeight(GroupWeight),
}
