//! Devices: pairs of virtual Ethernet devices (veth), each end in a namespace of its own.
//!
//! A single request makes both ends in their namespaces: no name ever appears in another namespace, and no
//! device has to be moved. The caller may also choose the devices' numbers; if the number has a meaning, its
//! reader needs no table.
//!
//! Reference: veth(4), rtnetlink(7), include/uapi/linux/{if_link,veth}.h.

use super::message::{CREATE_NEW, NetlinkRequest, TABLE, attribute, number, text};
use super::{NetlinkSocket, Refused};
use std::os::fd::{AsRawFd, BorrowedFd};

pub(super) const NEW_LINK: u16 = 16;
pub(super) const DELETE_LINK: u16 = 17;
pub(super) const READ_LINKS: u16 = 18;
const ADDRESS: u16 = 1;
pub(super) const NAME: u16 = 3;
pub(super) const MTU: u16 = 4;
const GSO_MAX_SEGMENTS: u16 = 40;
const GSO_MAX_SIZE: u16 = 41;
const GSO_IPV4_MAX_SIZE: u16 = 63;
const LOWER: u16 = 5;
pub(super) const LINK_INFO: u16 = 18;
const NAMESPACE: u16 = 28;
const MASTER: u16 = 10;
const PEER_NAMESPACE: u16 = 37;
const TRANSMIT_QUEUES: u16 = 31;
const RECEIVE_QUEUES: u16 = 32;
const KIND: u16 = 1;
const DATA: u16 = 2;
const PEER: u16 = 1;

pub(super) const UP: u32 = libc::IFF_UP as u32;
/// `IFF_LOWER_UP`: the device has a carrier (since Linux 2.6.17).
const LOWER_UP: u32 = 1 << 16;
pub(super) const WITHOUT_ARP: u32 = libc::IFF_NOARP as u32;

/// A device's number in its namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Index(pub u32);

impl Index {
    /// The loopback device, the first of every namespace.
    pub const LOOPBACK: Self = Self(1);
}

#[derive(Clone, Debug)]
pub struct Device<'a> {
    pub namespace: BorrowedFd<'a>,
    /// The device's name, at most 15 bytes.
    pub name: String,
    /// The device's number, if the caller chooses it.
    pub index: Option<Index>,
    pub address: [u8; 6],
}

/// Makes a pair of devices without address resolution (`IFF_NOARP`): each end of a cable has a single peer.
/// The near device is up. The far one is down, because the kernel makes it before it has a peer: [`set`] it
/// up.
pub fn veth(near: &Device<'_>, far: &Device<'_>) -> NetlinkRequest {
    pair(near, far, UP | WITHOUT_ARP, |request, device| {
        name(request, device);
        request
            .attribute(TRANSMIT_QUEUES, &1_u32.to_ne_bytes())
            .attribute(RECEIVE_QUEUES, &1_u32.to_ne_bytes());
    })
}

/// Makes a pair with the far end down, and the same attributes for both ends.
pub(super) fn pair(
    near: &Device<'_>,
    far: &Device<'_>,
    flags: u32,
    describe: fn(&mut NetlinkRequest, &Device<'_>),
) -> NetlinkRequest {
    let what = format!("make the pair of devices {} and {}", near.name, far.name);
    let mut request = NetlinkRequest::new(what, NEW_LINK, CREATE_NEW, &head(near.index, flags, !0));
    describe(&mut request, near);
    request.nest(LINK_INFO, |info| {
        info.text(KIND, "veth").nest(DATA, |data| {
            data.nest(PEER, |peer| {
                peer.raw(&head(far.index, WITHOUT_ARP, !0));
                describe(peer, far);
            });
        });
    });
    request
}

/// Appends a device's name, hardware address and namespace.
pub(super) fn name(request: &mut NetlinkRequest, device: &Device<'_>) {
    let namespace = device.namespace.as_raw_fd();
    request
        .text(NAME, &device.name)
        .attribute(ADDRESS, &device.address)
        .attribute(NAMESPACE, &namespace.to_ne_bytes());
}

/// Switches a device on or off, as pulling its cable does.
pub fn set(device: Index, state: LinkState) -> NetlinkRequest {
    let (flags, word) = match state {
        LinkState::Up => (UP, "up"),
        LinkState::Down => (0, "down"),
    };
    let what = format!("set device {} {word}", device.0);
    NetlinkRequest::new(what, NEW_LINK, 0, &head(Some(device), flags, UP))
}

/// Makes a device resolve its neighbors' hardware addresses, as Ethernet does.
pub fn resolving(device: Index) -> NetlinkRequest {
    let what = format!("have device {} resolve addresses", device.0);
    NetlinkRequest::new(what, NEW_LINK, 0, &head(Some(device), 0, WITHOUT_ARP))
}

/// Whether a device is switched on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    Up,
    Down,
}

/// Whether a device can send and receive frames: it is on, its cable is plugged in, and the device at the
/// other end is on too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    Present,
    /// The device cannot carry frames, or is gone.
    Absent,
}

impl Carrier {
    pub(super) fn from_flags(flags: u32) -> Self {
        if flags & UP != 0 && flags & LOWER_UP != 0 { Self::Present } else { Self::Absent }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkDevice {
    pub index: Index,
    pub name: String,
    /// Whether the device can carry frames.
    pub carrier: Carrier,
    /// Whether its frames begin with a header of Ethernet.
    pub has_ethernet: bool,
    /// The longest packet that the device carries in a frame, in bytes.
    pub mtu: u32,
    /// The longest packet that the kernel passes to the device for segmentation, in bytes.
    pub gso_max_size: u64,
    /// The same limit for IPv4, if the kernel has a separate one (6.3 and later).
    pub gso_ipv4_max_size: Option<u64>,
    /// The most frames in such a packet (`gso_max_segs`), if the kernel reports it.
    pub gso_max_segments: Option<u32>,
    /// The kind of a device that the kernel made (`veth`, `bridge`, `bond`, ...). `None`: hardware.
    pub kind: Option<String>,
    /// The bridge or bond that the device is a port of.
    pub master: Option<Index>,
    /// The other end of a veth pair, or the device that carries its frames: a number in the namespace of
    /// `other_end`.
    pub lower: Option<Index>,
    pub other_end: PeerLocation,
}

/// Whether the other end of a device is in the same network namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerLocation {
    Here,
    /// The other end is in another namespace, as with the host's end of a container's veth pair.
    Elsewhere,
}

pub fn all(socket: &mut NetlinkSocket) -> Result<Vec<NetworkDevice>, Refused> {
    let request = NetlinkRequest::new("list the devices".to_owned(), READ_LINKS, TABLE, &head(None, 0, 0));
    let entries = socket.table(&request, 16)?;
    let link = |entry: &super::message::Entry| {
        // struct ifinfomsg: family, padding, type
        let [_, _, kind @ ..] = entry.word(0).to_ne_bytes();
        Some(NetworkDevice {
            index: Index(entry.word(4)),
            name: text(entry.attribute(NAME)?),
            // ARPHRD_ETHER and ARPHRD_LOOPBACK
            has_ethernet: matches!(u16::from_ne_bytes(kind), 1 | 772),
            carrier: Carrier::from_flags(entry.word(8)),
            mtu: entry.attribute(MTU).and_then(number).and_then(|mtu| u32::try_from(mtu).ok())?,
            // kernels before 4.16 do not report it, and use this value
            gso_max_size: entry.attribute(GSO_MAX_SIZE).and_then(number).unwrap_or(65_536),
            gso_ipv4_max_size: entry.attribute(GSO_IPV4_MAX_SIZE).and_then(number),
            gso_max_segments: entry
                .attribute(GSO_MAX_SEGMENTS)
                .and_then(number)
                .and_then(|max| u32::try_from(max).ok()),
            kind: entry.attribute(LINK_INFO).and_then(|info| attribute(info, KIND)).map(text),
            master: entry.attribute(MASTER).and_then(number).map(|index| Index(index as u32)),
            lower: entry.attribute(LOWER).and_then(number).map(|index| Index(index as u32)),
            other_end: match entry.attribute(PEER_NAMESPACE) {
                Some(_) => PeerLocation::Elsewhere,
                None => PeerLocation::Here,
            },
        })
    };
    Ok(entries.iter().filter_map(link).collect())
}

/// Reads the number of packets that a device should have sent but dropped.
pub fn dropped(socket: &mut NetlinkSocket, device: Index) -> Result<u64, Refused> {
    const STATISTICS: u16 = 23;
    /// `tx_dropped` in `struct rtnl_link_stats64`.
    const SEND_DROPPED: usize = 7 * 8;
    let request =
        NetlinkRequest::new(format!("ask about device {}", device.0), READ_LINKS, TABLE, &head(None, 0, 0));
    let entries = socket.table(&request, 16)?;
    let counted = entries.iter().find(|entry| entry.word(4) == device.0);
    let dropped =
        counted.and_then(|entry| number(entry.attribute(STATISTICS)?.get(SEND_DROPPED..SEND_DROPPED + 8)?));
    Ok(dropped.unwrap_or_default())
}

/// Limits the longest packet that the kernel passes to a device for segmentation, and the frames in it if
/// `segments` is given. Connections that are
/// already open may still produce longer packets; the kernel segments them before they reach the device.
pub fn limit(
    device: Index,
    gso_max_size: u32,
    gso_ipv4_max_size: Option<u32>,
    segments: Option<u32>,
) -> NetlinkRequest {
    let what = format!("limit packets of device {} to {gso_max_size} bytes", device.0);
    let mut request = NetlinkRequest::new(what, NEW_LINK, 0, &head(Some(device), 0, 0));
    request.attribute(GSO_MAX_SIZE, &gso_max_size.to_ne_bytes());
    if let Some(max) = gso_ipv4_max_size {
        request.attribute(GSO_IPV4_MAX_SIZE, &max.to_ne_bytes());
    }
    if let Some(max) = segments {
        request.attribute(GSO_MAX_SEGMENTS, &max.to_ne_bytes());
    }
    request
}

/// Encodes `struct ifinfomsg`: family, padding, type, index, flags, mask of the flags to change.
pub(super) fn head(index: Option<Index>, flags: u32, change: u32) -> [u8; 16] {
    let mut head = [0; 16];
    head[4..8].copy_from_slice(&index.map_or(0, |index| index.0).to_ne_bytes());
    head[8..12].copy_from_slice(&flags.to_ne_bytes());
    head[12..16].copy_from_slice(&change.to_ne_bytes());
    head
}
