//! Hierarchical token buckets: classes with a guaranteed rate, and a ceiling for borrowed bandwidth.
//!
//! ```text
//!   discipline 556e:     the root class       classes in classes       queues at the leaves
//!        |------------- 556e:1 rate=ceiling --- 556e:2 ------------------ 556e:3 --- bfifo
//! ```
//!
//! A class below its rate sends at once. Above its rate, it borrows from its parent class while the parent is
//! below its own rate. Classes that borrow from the same parent take turns; in each turn a class sends a
//! quantum of bytes. Rates count frames as the device gets them, with their Ethernet headers. Cost: about a
//! microsecond per packet, most of it for a lock. For each new class, the kernel walks all classes of the
//! discipline, in search of filters that name the new one (`tc_bind_tclass` in net/sched/sch_api.c), so the
//! time to make n classes grows with the square of n: 8 s for 10,000 (Linux 6.18).
//!
//! Reference: tc-htb(8), include/uapi/linux/pkt_sched.h, net/sched/sch_htb.c.

use super::link::Index;
use super::message::{Entry, NetlinkRequest, TABLE, attribute, number};
use super::qdisc::{CREATE_OR_REPLACE, KIND, NEW_QDISC, OPTIONS, QUEUE, ROOT, STATISTICS, head};
use super::{NetlinkSocket, Refused};

const NEW_CLASS: u16 = 40;
const DELETE_CLASS: u16 = 41;
const READ_CLASSES: u16 = 42;
const BASIC: u16 = 1;
const PACKETS_64: u16 = 8;
const PARAMETERS: u16 = 1;
const INITIAL: u16 = 2;
const RATE_64: u16 = 6;
const CEILING_64: u16 = 7;
const VERSION: u32 = 3;
const ETHERNET: u8 = 1;
/// The kernel counts the time of a burst in units of this many nanoseconds (`PSCHED_SHIFT`).
const TICK_NS: u64 = 64;
/// The maximum number of nested levels of classes (`TC_HTB_MAXDEPTH`).
pub const MAX_LEVELS: usize = 8;

/// Bytes per second, as the kernel counts rates. Policies count bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ByteRate(pub u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HtbClass {
    /// The class's number: the discipline's number in the upper half, the class's own in the lower.
    pub number: u32,
    /// The parent class, or the discipline.
    pub parent: u32,
    /// The guaranteed rate; at least 1.
    pub rate: ByteRate,
    /// The maximum rate including borrowed bandwidth.
    pub ceiling: ByteRate,
    /// The time that the class may be idle without losing its guaranteed rate for that time.
    pub burst_ns: u64,
    /// The time that the class may be idle without losing bandwidth up to its ceiling.
    pub ceiling_burst_ns: u64,
    /// The number of bytes that the class sends in its turn while it borrows.
    pub quantum: u32,
}

/// The counters of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HtbStatistics {
    pub number: u32,
    /// The parent class, or the discipline.
    pub parent: u32,
    pub bytes: u64,
    pub packets: u64,
    pub dropped: u64,
    pub waiting_packets: u64,
    pub waiting_bytes: u64,
}

/// Gives a device a root discipline with classes; packets that no filter classifies go to the class
/// `default`.
pub fn root(device: Index, handle: u32, default: u16) -> NetlinkRequest {
    let what = format!("add the queueing discipline htb to device {}", device.0);
    let mut request = NetlinkRequest::new(what, NEW_QDISC, CREATE_OR_REPLACE, &head(device, handle, ROOT, 0));
    // struct tc_htb_glob: version, rate to quantum, default, debug, direct packets
    let initial = [VERSION, 10, u32::from(default), 0, 0].map(u32::to_ne_bytes).concat();
    request.text(KIND, "htb").nest(OPTIONS, |options| {
        options.attribute(INITIAL, &initial);
    });
    request
}

impl HtbClass {
    /// Returns the class as the kernel reports it: times in whole ticks.
    #[must_use]
    pub fn as_reported(self) -> Self {
        let whole = |ns| u64::from(ticks(ns)) * TICK_NS;
        Self { burst_ns: whole(self.burst_ns), ceiling_burst_ns: whole(self.ceiling_burst_ns), ..self }
    }
}

/// Makes or changes a class. Its queued packets stay.
pub fn class(device: Index, class: &HtbClass) -> NetlinkRequest {
    let what = format!("add class {:x} to device {}", class.number & 0xffff, device.0);
    let fixed = head(device, class.number, class.parent, 0);
    let mut request = NetlinkRequest::new(what, NEW_CLASS, CREATE_OR_REPLACE, &fixed);
    let [burst, ceiling_burst] = [class.burst_ns, class.ceiling_burst_ns].map(ticks);
    // struct tc_htb_opt: rate, ceiling, buffers, quantum, level, priority
    let mut parameters = Vec::new();
    parameters.extend(rate(class.rate));
    parameters.extend(rate(class.ceiling));
    parameters.extend([burst, ceiling_burst, class.quantum, 0, 0].map(u32::to_ne_bytes).concat());
    request.text(KIND, "htb").nest(OPTIONS, |options| {
        options.attribute(PARAMETERS, &parameters);
        for (kind, ByteRate(rate)) in [(RATE_64, class.rate), (CEILING_64, class.ceiling)] {
            if u32::try_from(rate).is_err() {
                options.attribute(kind, &rate.to_ne_bytes());
            }
        }
    });
    request
}

fn ticks(ns: u64) -> u32 {
    u32::try_from(ns / TICK_NS).unwrap_or(u32::MAX)
}

/// Encodes `struct tc_ratespec`: cell, link layer, overhead, alignment, minimum packet, rate.
fn rate(ByteRate(bytes): ByteRate) -> [u8; 12] {
    let rate = u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut bytes = [0, ETHERNET, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes[8..].copy_from_slice(&rate.to_ne_bytes());
    bytes
}

/// Removes a class and drops its queued packets; fails while it has child classes.
pub fn remove_class(device: Index, number: u32) -> NetlinkRequest {
    let what = format!("remove class {:x} from device {}", number & 0xffff, device.0);
    NetlinkRequest::new(what, DELETE_CLASS, 0, &head(device, number, 0, 0))
}

/// Reads a device's classes. The parent of a class that has no parent class is [`ROOT`], whatever the request
/// said that made it.
pub fn classes(socket: &mut NetlinkSocket, device: Index) -> Result<Vec<HtbClass>, Refused> {
    Ok(entries(socket, device)?.iter().filter_map(class_of).collect())
}

fn class_of(entry: &Entry) -> Option<HtbClass> {
    let options = entry.attribute(OPTIONS)?;
    let parameters = attribute(options, PARAMETERS)?;
    let at = |range: std::ops::Range<usize>| number(parameters.get(range)?);
    let rate = |kind, at| Some(ByteRate(attribute(options, kind).and_then(number).or(at)?));
    // struct tc_htb_opt, as in `class`
    Some(HtbClass {
        number: entry.word(8),
        parent: entry.word(12),
        rate: rate(RATE_64, at(8..12))?,
        ceiling: rate(CEILING_64, at(20..24))?,
        burst_ns: at(24..28)? * TICK_NS,
        ceiling_burst_ns: at(28..32)? * TICK_NS,
        quantum: u32::try_from(at(32..36)?).ok()?,
    })
}

fn entries(socket: &mut NetlinkSocket, device: Index) -> Result<Vec<Entry>, Refused> {
    let what = format!("list the classes of device {}", device.0);
    let mut entries =
        socket.table(&NetlinkRequest::new(what, READ_CLASSES, TABLE, &head(device, 0, 0, 0)), 20)?;
    entries.retain(|entry| {
        entry.word(4) == device.0 && entry.attribute(KIND).is_some_and(|kind| kind.starts_with(b"htb"))
    });
    Ok(entries)
}

/// Reads the counters of a device's classes.
pub fn statistics(socket: &mut NetlinkSocket, device: Index) -> Result<Vec<HtbStatistics>, Refused> {
    let read = |entry: &Entry| {
        let statistics = entry.attribute(STATISTICS).unwrap_or_default();
        let at = |kind: u16, range: std::ops::Range<usize>| {
            attribute(statistics, kind).and_then(|value| number(value.get(range)?)).unwrap_or(0)
        };
        // struct gnet_stats_basic: bytes (64), packets; gnet_stats_queue: packets, bytes, drops, ...
        let packets = attribute(statistics, PACKETS_64).and_then(number);
        HtbStatistics {
            number: entry.word(8),
            parent: entry.word(12),
            bytes: at(BASIC, 0..8),
            packets: packets.unwrap_or_else(|| at(BASIC, 8..12)),
            dropped: at(QUEUE, 8..12),
            waiting_packets: at(QUEUE, 0..4),
            waiting_bytes: at(QUEUE, 4..8),
        }
    };
    Ok(entries(socket, device)?.iter().map(read).collect())
}
