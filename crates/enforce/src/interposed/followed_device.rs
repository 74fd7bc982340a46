//! How the queue reacts to changes of its device.
//!
//! | the device | the queue |
//! |---|---|
//! | gets another MTU | accepts packets of that length; packets that are too long for its frame path pass unscheduled and are counted |
//! | goes down, and up | continues; the frames that waited are lost, as when a cable is unplugged |
//! | is renamed | answers under the new name |
//! | is gone, or in another namespace | ends |
//!
//! The kernel reports every change (rtnetlink). The new state is read from the kernel's tables, so a missed
//! report does no harm. No frame is lost before the queue has handled a change of the MTU, because the
//! program at the device compares the length of each frame with the queue's maximum. Cost: none until a
//! change.

use crate::error::interposed::{Error, failed};
use unisono_linux::interface::Interface;
use unisono_linux::netlink::NetlinkSocket;
use unisono_linux::netlink::link::{self, Index};
use unisono_linux::netlink::watch::{DeviceWatch, News};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum DeviceChange {
    Mtu(u32),
    Name(String),
    Gone,
}

/// The last known state of the device.
#[derive(Debug)]
pub(super) struct FollowedDevice {
    news: DeviceWatch,
    index: Index,
    name: String,
    mtu: u32,
}

impl FollowedDevice {
    /// Begins to listen. The first call of [`Self::compare`] also finds changes since `device` was found.
    pub(super) fn start(name: &str, device: &Interface) -> Result<Self, Error> {
        Ok(Self { news: DeviceWatch::here()?, index: device.index, name: name.to_owned(), mtu: device.mtu })
    }

    /// Returns the changes since the last call.
    pub(super) fn changes(&mut self, netlink: &mut NetlinkSocket) -> Result<Vec<DeviceChange>, Error> {
        let news = self.news.news().map_err(failed("hear of changes of devices"))?;
        let concerns = |news: &News| match news {
            News::Device(index, _) => *index == self.index,
            News::Missed => true,
        };
        if news.iter().any(concerns) { self.compare(netlink) } else { Ok(Vec::new()) }
    }

    /// Returns the differences between the device's present state and its last known state.
    pub(super) fn compare(&mut self, netlink: &mut NetlinkSocket) -> Result<Vec<DeviceChange>, Error> {
        let Some(now) = link::all(netlink)?.into_iter().find(|link| link.index == self.index) else {
            return Ok(vec![DeviceChange::Gone]);
        };
        let mut changes = Vec::new();
        if now.mtu != self.mtu {
            self.mtu = now.mtu;
            changes.push(DeviceChange::Mtu(now.mtu));
        }
        if now.name != self.name {
            self.name.clone_from(&now.name);
            changes.push(DeviceChange::Name(now.name));
        }
        Ok(changes)
    }
}

unisono_linux::as_fd!(FollowedDevice.news);
