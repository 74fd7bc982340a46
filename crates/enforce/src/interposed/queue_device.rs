//! The devices that bring frames from the program at the device to the worker. The kernel removes them when
//! the processes that hold them end.

use super::FramePathName;
use super::frame_path::{AfXdp, HEADERS};
use super::redirect;
use crate::error::interposed::{Error, failed};
use std::io;
use std::os::fd::AsFd;
use unisono_linux::Errno;
use unisono_linux::bpf::{Redirector, SocketMap};
use unisono_linux::ethtool::{self, Offload, On};
use unisono_linux::interface::Interface;
use unisono_linux::netlink::link::{Device, Index};
use unisono_linux::netlink::{NetlinkSocket, capture, qdisc, traffic};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::tun::Tap;

/// The number of frames that the queue's own device holds while the worker is busy.
const QUEUE: u32 = 4096;

/// The number of the far device: the first after loopback, because it is alone in its namespace.
pub(super) const FAR: u32 = 2;

pub(super) enum QueueDevice {
    Tun { tap: Tap, queue: Index },
    AfXdp { far: NetworkNamespace, home: NetworkNamespace, sockets: SocketMap, queue: Index },
}

impl QueueDevice {
    pub(super) fn make(
        way: FramePathName,
        name: &str,
        device: &Interface,
        netlink: &mut NetlinkSocket,
    ) -> Result<Self, Error> {
        let mtu = with_tags(device.mtu);
        match way {
            FramePathName::Tun => {
                let tap = Tap::open(name).map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => Error::Host(
                        "this host has no /dev/net/tun: load the module `tun`, or use --way af-xdp"
                            .to_owned(),
                    ),
                    _ => failed("make a TAP device")(error),
                })?;
                let queue = Interface::find(name).map_err(failed("find the TAP device"))?.index;
                switch_on(netlink, queue, mtu)?;
                Ok(Self::Tun { tap, queue })
            }
            FramePathName::AfXdp => {
                let home =
                    NetworkNamespace::current().map_err(failed("hold on to this network namespace"))?;
                let far = NetworkNamespace::create().map_err(failed("make a network namespace"))?;
                // the far end's MTU is the greatest possible, so that only the near end limits the length of
                // frames
                let max_mtu = with_tags(AfXdp::max_mtu(device.mtu));
                let made = Self::pair(name, max_mtu, netlink, &home, &far);
                home.enter().map_err(failed("come back from a network namespace"))?;
                let (queue, sockets) = made?;
                for offload in [Offload::SendChecksums, Offload::VlanTags] {
                    ethtool::set(queue, offload, On::No)
                        .map_err(failed(format!("switch {offload:?} off")))?;
                }
                switch_on(netlink, queue, mtu)?;
                // the pair's own ring holds 256 frames, fewer than four large segments of TCP are cut into;
                // since Linux 6.16 this queue before the ring holds the excess
                let room = qdisc::Room::Packets(QUEUE);
                netlink.run(&[qdisc::fifo(queue, qdisc::ROOT, qdisc::AUTOMATIC, room)])?;
                Ok(Self::AfXdp { far, home, sockets, queue })
            }
        }
    }

    /// Makes the pair of devices, with its far end in the namespace `far`. `netlink` belongs to the near
    /// namespace.
    fn pair(
        name: &str,
        mtu: u32,
        netlink: &mut NetlinkSocket,
        home: &NetworkNamespace,
        far: &NetworkNamespace,
    ) -> Result<(Index, SocketMap), Error> {
        let end = |namespace, name: &str, index, last| Device {
            namespace,
            name: name.to_owned(),
            index,
            address: [0x02, 0x75, 0x6e, 0x69, 0x73, last],
        };
        netlink.run(&[capture::pair(
            &end(home.as_fd(), name, None, 0),
            &end(far.as_fd(), "far", Some(Index(FAR)), 1),
        )])?;
        let sockets = SocketMap::new("unisono_sockets", 1).map_err(|error| {
            Error::Host(format!("this kernel has no AF_XDP sockets ({error}); use --way tun"))
        })?;
        let program = Redirector::load("unisono_deliver", &redirect::xdp_redirect(sockets.as_fd()))?;
        let mut there = NetlinkSocket::open().map_err(failed("open a netlink socket"))?;
        switch_on(&mut there, Index(FAR), mtu)?;
        there.run(&[capture::redirect(Index(FAR), program.as_fd())])?;
        home.enter().map_err(failed("come back from a network namespace"))?;
        let near = Interface::find(name).map_err(failed("find the device just made"))?;
        Ok((near.index, sockets))
    }

    pub(super) fn queue(&self) -> Index {
        match self {
            Self::Tun { queue, .. } | Self::AfXdp { queue, .. } => *queue,
        }
    }
}

/// Returns the MTU of the queue's device for packets of length `mtu` at the device: with room for our tag and
/// for one tag of the frame's own.
fn with_tags(mtu: u32) -> u32 {
    mtu + HEADERS - 14
}

/// Lets the queue's device accept packets of another length.
pub(super) fn set_mtu(netlink: &mut NetlinkSocket, queue: Index, mtu: u32) -> Result<(), Error> {
    Ok(netlink.run(&[capture::switch_on(queue, with_tags(mtu), QUEUE)])?)
}

fn switch_on(netlink: &mut NetlinkSocket, device: Index, mtu: u32) -> Result<(), Error> {
    // hosts without IPv6 refuse this request, and do not need it
    let _ = netlink.run(&[capture::without_address(device)]);
    Ok(netlink.run(&[capture::switch_on(device, mtu, QUEUE)])?)
}

/// Returns whether a device has a clsact discipline, to which programs can be attached.
pub(super) fn has_clsact(netlink: &mut NetlinkSocket, device: Index) -> Result<bool, Error> {
    Ok(qdisc::of_device(netlink, device)?.iter().any(|there| there.kind == "clsact"))
}

/// Makes the clsact discipline. It is no error if there is one already.
pub(super) fn make_clsact(netlink: &mut NetlinkSocket, device: Index) -> Result<(), Error> {
    match netlink.run(&[traffic::clsact(device)]) {
        Err(refused) if refused.errno != Errno::EXIST.raw_os_error() => Err(refused.into()),
        _ => Ok(()),
    }
}
