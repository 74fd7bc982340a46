//! What becomes of the device while a queue is at it.
//!
//! | the device | the queue |
//! |---|---|
//! | gets another MTU | takes packets of that length; where its way cannot, longer ones pass by unscheduled and are counted |
//! | goes down, and up | goes on: what waits meanwhile is lost, as on a cable that is unplugged |
//! | is renamed | answers under the new name |
//! | is gone, or in another namespace | ends |
//!
//! The kernel tells of every change (rtnetlink); how the device is then is read from its tables, so that it
//! does not matter whether news were missed. Between the change and this process's hearing of it the program
//! at the device compares each frame with what the queue takes, so that none is lost. Cost: nothing until
//! something changes.

use crate::error::interposed::{Error, failed};
use std::os::fd::{AsFd, BorrowedFd};
use unisono_linux::interface::Interface;
use unisono_linux::netlink::NetlinkSocket;
use unisono_linux::netlink::link::{self, Index};
use unisono_linux::netlink::watch::{DeviceWatch, News};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum DeviceChange {
    /// The longest packet has this length now.
    Mtu(u32),
    /// It is called this now.
    Name(String),
    /// It is there no more.
    Gone,
}

/// One device, as it was seen last.
#[derive(Debug)]
pub(super) struct Followed {
    news: DeviceWatch,
    index: Index,
    name: String,
    mtu: u32,
}

impl Followed {
    /// Begins to listen. What has changed since `device` was found is among the first changes.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(super) fn begin(name: &str, device: &Interface) -> Result<Self, Error> {
        Ok(Self { news: DeviceWatch::here()?, index: device.index, name: name.to_owned(), mtu: device.mtu })
    }

    /// What has changed since the last time.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub(super) fn changes(&mut self, netlink: &mut NetlinkSocket) -> Result<Vec<DeviceChange>, Error> {
        let heard = self.news.news().map_err(failed("hear of changes of devices"))?;
        let concerns = |news: &News| match news {
            News::Device(index, _) => *index == self.index,
            News::Missed => true,
        };
        if heard.iter().any(concerns) { self.compare(netlink) } else { Ok(Vec::new()) }
    }

    /// What is other than it was seen last.
    ///
    /// # Errors
    /// The kernel does not answer.
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

impl AsFd for Followed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}
