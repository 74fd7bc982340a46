//! Queueing disciplines of a device: which there are, making them as others had made them, short
//! first-in-first-out queues.
//!
//! What a discipline was told is kept as the kernel tells it, byte for byte, so that one that nobody here
//! knows can be made again. A discipline with the handle 0 is one that the kernel put there itself, and puts
//! there again when what replaced it goes. Reference: tc(8), rtnetlink(7), include/uapi/linux/pkt_sched.h.

use super::link::Index;
use super::message::{NetlinkRequest, TABLE, attribute, number, text};
use super::traffic::{CREATE_OR_REPLACE, KIND, NEW_QDISC, OPTIONS, head};
use super::{Refused, Socket};
use serde::{Deserialize, Serialize};

const DELETE_QDISC: u16 = 37;
const READ_QDISCS: u16 = 38;
/// `TC_H_ROOT`: the parent of the discipline that a device begins with.
pub const ROOT: u32 = 0xffff_ffff;

/// A queueing discipline as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Qdisc {
    /// Its number: what is before the colon, in the upper half. 0 if the kernel made it itself.
    pub handle: u32,
    /// Where it stands: [`ROOT`], or a class.
    pub parent: u32,
    /// `pfifo`, `htb`, ...
    pub kind: String,
    /// What it was told.
    pub options: Vec<u8>,
}

/// The disciplines of a device.
///
/// # Errors
/// The kernel does not answer.
pub fn of_device(socket: &mut Socket, device: Index) -> Result<Vec<Qdisc>, Refused> {
    let what = format!("list the queueing disciplines of device {}", device.0);
    let entries = socket.table(&NetlinkRequest::new(what, READ_QDISCS, TABLE, &head(device, 0, 0, 0)), 20)?;
    let entries = entries.iter().filter(|entry| entry.word(4) == device.0);
    let qdisc = |entry: &super::message::Entry| {
        Some(Qdisc {
            handle: entry.word(8),
            parent: entry.word(12),
            kind: text(entry.attribute(KIND)?),
            options: entry.attribute(OPTIONS).unwrap_or_default().to_owned(),
        })
    };
    Ok(entries.filter_map(qdisc).collect())
}

/// How many packets the first discipline of a device has dropped.
///
/// # Errors
/// The kernel does not answer.
pub fn dropped(socket: &mut Socket, device: Index) -> Result<u64, Refused> {
    const STATISTICS: u16 = 7;
    const QUEUE: u16 = 3;
    let what = format!("list the queueing disciplines of device {}", device.0);
    let entries = socket.table(&NetlinkRequest::new(what, READ_QDISCS, TABLE, &head(device, 0, 0, 0)), 20)?;
    let first = entries.iter().find(|entry| entry.word(4) == device.0 && entry.word(12) == ROOT);
    let queue = first.and_then(|entry| attribute(entry.attribute(STATISTICS)?, QUEUE));
    // struct gnet_stats_queue: waiting, their bytes, dropped
    Ok(queue.and_then(|queue| number(queue.get(8..12)?)).unwrap_or_default())
}

/// Makes a discipline as it was, in the place of what is there.
#[must_use]
pub fn make(device: Index, qdisc: &Qdisc) -> NetlinkRequest {
    let what = format!("add the queueing discipline {} to device {}", qdisc.kind, device.0);
    let fixed = head(device, qdisc.handle, qdisc.parent, 0);
    let mut request = NetlinkRequest::new(what, NEW_QDISC, CREATE_OR_REPLACE, &fixed);
    request.text(KIND, &qdisc.kind);
    if !qdisc.options.is_empty() {
        request.attribute(OPTIONS, &qdisc.options);
    }
    request
}

/// Gives a device a discipline that needs no telling in the place of the one it begins with. One that
/// replaces another of another kind needs another number.
#[must_use]
pub fn root(device: Index, kind: &str, major: u16) -> NetlinkRequest {
    let handle = u32::from(major) << 16;
    make(device, &Qdisc { handle, parent: ROOT, kind: kind.to_owned(), options: Vec::new() })
}

/// Takes a device's first discipline away, and with it all its classes; the kernel puts its own one there.
#[must_use]
pub fn remove_root(device: Index) -> NetlinkRequest {
    let what = format!("remove the queueing discipline of device {}", device.0);
    NetlinkRequest::new(what, DELETE_QDISC, 0, &head(device, 0, ROOT, 0))
}

/// How much a queue holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    Bytes(u32),
    /// Packets (`pfifo`), however long.
    Packets(u32),
}

/// A first-in-first-out queue at a class.
#[must_use]
pub fn fifo(device: Index, class: u32, room: Room) -> NetlinkRequest {
    let (kind, limit) = match room {
        Room::Bytes(limit) => ("bfifo", limit),
        Room::Packets(limit) => ("pfifo", limit),
    };
    let options = limit.to_ne_bytes().to_vec(); // struct tc_fifo_qopt
    make(device, &Qdisc { handle: 0, parent: class, kind: kind.to_owned(), options })
}
