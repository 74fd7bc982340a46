//! Queueing disciplines of a device: listing them, counting drops, restoring them as another program made
//! them, and making first-in-first-out and `fq_codel` queues.
//!
//! A discipline's options are kept byte for byte as the kernel reports them, so that even a discipline of an
//! unknown kind can be made again. A discipline with the handle 0 was made by the kernel itself; the kernel
//! makes it again when its replacement is removed. Reference: tc(8), rtnetlink(7),
//! include/uapi/linux/pkt_sched.h.

use super::link::Index;
use super::message::{Entry, NetlinkRequest, TABLE, attribute, number, text};
use super::{NetlinkSocket, Refused};
use serde::{Deserialize, Serialize};

pub(super) const NEW_QDISC: u16 = 36;
pub(super) const DELETE_QDISC: u16 = 37;
const READ_QDISCS: u16 = 38;
pub(super) const CREATE_OR_REPLACE: u16 = 0x400 | 0x100;
/// Attributes of disciplines, classes and filters alike.
pub(super) const KIND: u16 = 1;
pub(super) const OPTIONS: u16 = 2;
pub(super) const STATISTICS: u16 = 7;
/// The part of the statistics about the queue.
pub(super) const QUEUE: u16 = 3;
/// `TC_H_ROOT`: the parent of a device's root discipline.
pub const ROOT: u32 = 0xffff_ffff;

/// Instead of a discipline's number: the number of the discipline in its place, or a number that the kernel
/// chooses. A device has 32,767 numbers for this choice.
pub const AUTOMATIC: u32 = 0;

const FQ_CODEL: &str = "fq_codel";
/// The default limit of `fq_codel`, in packets.
const FQ_CODEL_PACKETS: u64 = 10_240;

/// A queueing discipline as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Qdisc {
    /// The discipline's number: the part before the colon, in the upper half. 0 if the kernel itself made the
    /// discipline.
    pub handle: u32,
    /// The discipline's parent: [`ROOT`], or a class.
    pub parent: u32,
    /// `pfifo`, `htb`, ...
    pub kind: String,
    pub options: Vec<u8>,
}

pub fn of_device(socket: &mut NetlinkSocket, device: Index) -> Result<Vec<Qdisc>, Refused> {
    let what = format!("list the queueing disciplines of device {}", device.0);
    let entries = socket.table(&NetlinkRequest::new(what, READ_QDISCS, TABLE, &head(device, 0, 0, 0)), 20)?;
    let entries = entries.iter().filter(|entry| entry.word(4) == device.0);
    Ok(entries.filter_map(qdisc_of).collect())
}

fn qdisc_of(entry: &Entry) -> Option<Qdisc> {
    Some(Qdisc {
        handle: entry.word(8),
        parent: entry.word(12),
        kind: text(entry.attribute(KIND)?),
        options: entry.attribute(OPTIONS).unwrap_or_default().to_owned(),
    })
}

/// Returns the root discipline of a device. Returns `None` if the kernel made it.
pub fn root_of(socket: &mut NetlinkSocket, device: Index) -> Result<Option<Qdisc>, Refused> {
    Ok(at(socket, device, ROOT)?.filter(|root| root.handle != 0))
}

/// Returns the discipline below a class, or at the root of a device, without listing the others, of which
/// thousands of classes have as many.
pub fn at(socket: &mut NetlinkSocket, device: Index, parent: u32) -> Result<Option<Qdisc>, Refused> {
    let what = format!("read a queueing discipline of device {}", device.0);
    // without this flag, only the listeners to all changes get the answer
    const ECHO: u16 = 0x8;
    let request = NetlinkRequest::new(what, READ_QDISCS, ECHO, &head(device, 0, parent, 0));
    match socket.entries(&request, 20) {
        Ok(entries) => Ok(entries.first().and_then(qdisc_of)),
        Err(refused) if refused.errno == libc::ENOENT => Ok(None),
        Err(refused) => Err(refused),
    }
}

/// Returns the number of packets that the root discipline of a device has dropped.
pub fn dropped(socket: &mut NetlinkSocket, device: Index) -> Result<u64, Refused> {
    let what = format!("list the queueing disciplines of device {}", device.0);
    let entries = socket.table(&NetlinkRequest::new(what, READ_QDISCS, TABLE, &head(device, 0, 0, 0)), 20)?;
    let first = entries.iter().find(|entry| entry.word(4) == device.0 && entry.word(12) == ROOT);
    let queue = first.and_then(|entry| attribute(entry.attribute(STATISTICS)?, QUEUE));
    // struct gnet_stats_queue: waiting, their bytes, dropped
    Ok(queue.and_then(|queue| number(queue.get(8..12)?)).unwrap_or_default())
}

/// The length that a device's root discipline and all its classes count for a packet: tc-stab(8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountedSize {
    /// The bytes to add to each packet.
    pub overhead: i32,
    /// Whether packets are then counted in whole ATM cells of 53 bytes, which carry 48.
    pub atm: bool,
}

impl CountedSize {
    fn attribute(self, request: &mut NetlinkRequest) {
        const SIZES: u16 = 8;
        const BASE: u16 = 1;
        const DATA: u16 = 2;
        // The kernel divides lengths by 2^4. A cell carries three such pieces. The table continues beyond its
        // end by multiples of its last entry, so a table of whole cells is exact for all lengths.
        const CELLS: u16 = 32;
        let cells: Vec<u16> = (1..=CELLS).flat_map(|cells| [cells * 53; 3]).collect();
        let (pieces, shift, align): (&[u16], u8, i16) = if self.atm { (&cells, 4, -1) } else { (&[], 0, 0) };
        // struct tc_sizespec: log of a cell, log of a size, alignment, overhead, link layer, minimum packet,
        // greatest packet, entries of the table
        let mut base = vec![shift, 0];
        base.extend(align.to_ne_bytes());
        base.extend(self.overhead.to_ne_bytes());
        base.extend([0, 0, 0, u32::try_from(pieces.len()).unwrap_or(0)].map(u32::to_ne_bytes).concat());
        request.nest(SIZES, |sizes| {
            sizes.attribute(BASE, &base);
            if !pieces.is_empty() {
                sizes.attribute(DATA, &pieces.iter().flat_map(|size| size.to_ne_bytes()).collect::<Vec<_>>());
            }
        });
    }
}

/// Makes a root discipline count other lengths for packets that come from now on; `None`: their own lengths.
pub fn count_size(device: Index, handle: u32, kind: &str, size: Option<CountedSize>) -> NetlinkRequest {
    let what = format!("change the counted lengths of packets of device {}", device.0);
    let mut request = NetlinkRequest::new(what, NEW_QDISC, 0, &head(device, handle, ROOT, 0));
    request.text(KIND, kind);
    if let Some(size) = size {
        size.attribute(&mut request);
    }
    request
}

/// Makes a discipline, in place of the present one if there is one; also makes a removed discipline again.
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

/// Gives a device a root discipline that needs no options. A discipline that replaces another kind needs
/// another number.
pub fn root(device: Index, kind: &str, major: u16) -> NetlinkRequest {
    let handle = u32::from(major) << 16;
    make(device, &Qdisc { handle, parent: ROOT, kind: kind.to_owned(), options: Vec::new() })
}

/// Removes a device's root discipline with all its classes; the kernel then makes its default discipline.
pub fn remove_root(device: Index) -> NetlinkRequest {
    remove(device, ROOT)
}

/// Removes the discipline of a class, or the root discipline; the kernel then makes its default discipline.
pub fn remove(device: Index, parent: u32) -> NetlinkRequest {
    let what = format!("remove the queueing discipline of device {}", device.0);
    NetlinkRequest::new(what, DELETE_QDISC, 0, &head(device, 0, parent, 0))
}

/// Encodes `struct tcmsg`, which begins each message about disciplines, classes and filters: family, device,
/// handle, parent, info.
pub(super) fn head(device: Index, handle: u32, parent: u32, info: u32) -> [u8; 20] {
    let mut head = [0; 20];
    for (at, word) in (4..).step_by(4).zip([device.0, handle, parent, info]) {
        head[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    head
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    Bytes(u32),
    /// Packets (`pfifo`) of any length.
    Packets(u32),
}

/// Options of a discipline whose flows take turns (`fq_codel`). If a packet's sender understands marks (ECN),
/// the packet is marked instead of dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FairCodel {
    /// The delay that packets may have, in microseconds, without being marked or dropped.
    pub target_us: u32,
    /// The time that the delay may exceed the target, in microseconds; at least ten times the target.
    pub interval_us: u32,
    /// The maximum number of waiting packets; `FQ_CODEL_PACKETS` if `None`.
    pub packets: Option<u32>,
    /// The maximum memory of waiting packets, in bytes.
    pub memory: u32,
    /// A packet with a longer delay than this, in microseconds, is marked.
    pub mark_us: Option<u32>,
}

/// The attribute of `fq_codel` with the delay above which packets are marked.
const MARK_AT: u16 = 7;

impl FairCodel {
    /// Returns the attributes that a request sets, as `unit` converts microseconds.
    fn attributes(&self, unit: impl Fn(u32) -> u32) -> impl Iterator<Item = (u16, u32)> {
        const MARK: u32 = 1;
        let parameters = [
            (1, Some(unit(self.target_us))),
            (2, self.packets),
            (3, Some(unit(self.interval_us))),
            (4, Some(MARK)),
            (MARK_AT, self.mark_us.map(unit)),
            (9, Some(self.memory)),
        ];
        parameters.into_iter().filter_map(|(kind, value): (u16, _)| Some((kind, value?)))
    }

    /// Returns whether the kernel's description of a discipline matches these options.
    pub fn describes(&self, qdisc: &Qdisc) -> bool {
        let found = |kind| attribute(&qdisc.options, kind).and_then(number);
        qdisc.kind == FQ_CODEL
            && (self.packets.is_some() || found(2) == Some(FQ_CODEL_PACKETS))
            && (self.mark_us.is_some() || found(MARK_AT).is_none())
            && self.attributes(codel_time).all(|(kind, value)| found(kind) == Some(value.into()))
    }
}

/// Returns a time in microseconds as the kernel reports it: it counts in units of 1,024 ns.
fn codel_time(us: u32) -> u32 {
    u32::try_from((((u64::from(us) * 1000) >> 10) << 10) / 1000).unwrap_or(u32::MAX)
}

/// Makes a discipline whose flows take turns, at a class. Reference: tc-fq_codel(8), RFC 8290.
pub fn fq_codel(device: Index, class: u32, handle: u32, codel: &FairCodel) -> NetlinkRequest {
    let options = codel.attributes(|us| us).flat_map(|(kind, value)| {
        [&8_u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value.to_ne_bytes()].concat()
    });
    let options = options.collect();
    make(device, &Qdisc { handle, parent: class, kind: FQ_CODEL.to_owned(), options })
}

/// Returns whether this kernel knows a kind of discipline whose first option is a number. Changes nothing: it
/// requests the discipline with an option that is too short. Fails if the kernel does not permit this process
/// to ask.
pub fn knows(socket: &mut NetlinkSocket, kind: &str) -> Result<bool, Refused> {
    let options = [&5_u16.to_ne_bytes()[..], &1_u16.to_ne_bytes(), &[0; 4]].concat();
    let qdisc = Qdisc { handle: 0, parent: ROOT, kind: kind.to_owned(), options };
    match socket.run(&[make(Index::LOOPBACK, &qdisc)]) {
        Err(refused) if refused.errno == libc::ENOENT => Ok(false),
        Err(refused) if matches!(refused.errno, libc::EINVAL | libc::ERANGE) => Ok(true),
        Err(refused) => Err(refused),
        Ok(()) => Ok(true),
    }
}

impl Room {
    /// Returns the kind of the discipline, and its options (`struct tc_fifo_qopt`).
    fn options(self) -> (&'static str, [u8; 4]) {
        match self {
            Self::Bytes(limit) => ("bfifo", limit.to_ne_bytes()),
            Self::Packets(limit) => ("pfifo", limit.to_ne_bytes()),
        }
    }

    /// Returns whether the kernel's description of a discipline matches this room.
    pub fn describes(self, qdisc: &Qdisc) -> bool {
        (qdisc.kind.as_str(), qdisc.options.as_slice()) == (self.options().0, &self.options().1[..])
    }
}

/// Makes a first-in-first-out queue at a class, or changes the one there. `handle` is its number, or
/// [`AUTOMATIC`].
pub fn fifo(device: Index, class: u32, handle: u32, room: Room) -> NetlinkRequest {
    let (kind, options) = room.options();
    make(device, &Qdisc { handle, parent: class, kind: kind.to_owned(), options: options.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts as the kernel does (`__qdisc_calculate_pkt_len`), with the bytes of the request.
    fn counted(request: &NetlinkRequest, packet: i32) -> i32 {
        let mut bytes = Vec::new();
        request.write(1, true, &mut bytes);
        let sizes = attribute(&bytes[36..], 8).expect("a table of sizes");
        let base = attribute(sizes, 1).expect("a structure");
        let word = |at: usize| i32::from_ne_bytes(base[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((base.len(), word(8), word(12), word(16)), (24, 0, 0, 0));
        let (align, length) = (i16::from_ne_bytes([base[2], base[3]]), packet + word(4));
        let Ok(entries @ 1..) = usize::try_from(word(20)) else { return length.max(1) };
        let data = attribute(sizes, 2).expect("the table");
        assert_eq!(data.len(), 2 * entries);
        let entry = |at: usize| i32::from(u16::from_ne_bytes([data[2 * at], data[2 * at + 1]]));
        let slot = usize::try_from((length + i32::from(align)).max(0) >> base[0]).expect("positive");
        let length = match slot < entries {
            true => entry(slot),
            false => entry(entries - 1) * (slot / entries) as i32 + entry(slot % entries),
        };
        (length << base[1]).max(1)
    }

    #[test]
    fn the_kernel_counts_whole_cells_for_packets_of_every_length() {
        for overhead in [-64, 0, 18, 256] {
            for atm in [false, true] {
                let request = count_size(Index(7), 0x556e_0000, "htb", Some(CountedSize { overhead, atm }));
                for packet in 0..70_000 {
                    let bytes = (packet + overhead).max(1);
                    let expected = if atm { (bytes + 47) / 48 * 53 } else { bytes };
                    assert_eq!(counted(&request, packet), expected, "{packet} {overhead} {atm}");
                }
            }
        }
    }

    /// The expected bytes are the request that `tc qdisc replace dev DEV parent 556e:2 fq_codel target 5ms
    /// interval 100ms ecn ce_threshold 1ms memory_limit 4096` sends on a little-endian machine.
    #[test]
    #[cfg(target_endian = "little")]
    fn a_discipline_with_turns_for_flows_is_told_in_the_kernels_bytes() {
        let codel = FairCodel {
            target_us: 5000,
            interval_us: 100_000,
            packets: None,
            memory: 4096,
            mark_us: Some(1000),
        };
        let mut bytes = Vec::new();
        fq_codel(Index(7), 0x556e_0002, 0x8001_0000, &codel).write(1, true, &mut bytes);
        // after the header, struct tcmsg
        assert_eq!(bytes[16..36], [0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 1, 0x80, 2, 0, 0x6e, 0x55, 0, 0, 0, 0]);
        assert_eq!(&bytes[36..52], b"\x0d\0\x01\0fq_codel\0\0\0\0");
        let options = [
            vec![44, 0, 2, 0],
            vec![8, 0, 1, 0, 0x88, 0x13, 0, 0],
            vec![8, 0, 3, 0, 0xa0, 0x86, 1, 0],
            vec![8, 0, 4, 0, 1, 0, 0, 0],
            vec![8, 0, 7, 0, 0xe8, 0x03, 0, 0],
            vec![8, 0, 9, 0, 0, 0x10, 0, 0],
        ];
        assert_eq!(bytes[52..], options.concat());
    }
}
