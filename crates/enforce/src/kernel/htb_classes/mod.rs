//! Computes the parameters of the kernel's token buckets (HTB) for the classes of a policy. Pure functions.
//!
//! - *Rate*: the class's guaranteed rate, rounded down, so that children never have more than their parent.
//! - *Ceiling*: the policy's, or the parent's, or the link's rate.
//! - *Longest packet*: programs pass down up to 64 KiB in one piece. At 100 Mbit/s this takes 5 ms, while all
//!   other packets wait. So the device gets at most as many bytes at once as the link carries in
//!   [`GSO_TIME_NS`]. This limits only the sockets of this host. Packets of other hosts arrive merged to up
//!   to 64 KiB, so on a host that forwards, turns and queues are made for packets of this length.
//! - *Quantum*: in proportion to the share; the smallest quantum is the longest packet, and the largest is
//!   limited ([`TURN_NS`]). The kernel gives a borrowing class its turn however little of its quantum is
//!   left. If packets were longer than a quantum, every turn would be one packet, and all classes would
//!   borrow equally.
//! - *Sockets*: a class in which sockets have leaves of their own is divided among these leaves and one for
//!   its other packets.
//! - *Queue*: if the kernel has `fq_codel`, the flows of a class take turns, and packets that waited too long
//!   are marked or dropped. A class with a limit has a plain queue of that length, unless the policy asks for
//!   fair flows or marks. On other kernels the queue is as long as the policy says, or else [`QUEUE_NS`] at
//!   the guaranteed rate. It is short because its backlog determines the delay of the class, but has room for
//!   two of the longest packets, which would otherwise never fit, and for [`MIN_QUEUE`].

use super::in_force::ClassesInForce;
use super::socket_leaves::{FIRST_LEAF, SocketLeaf};
use std::collections::{BTreeMap, HashMap, HashSet};
use unisono_fairqueue::{Class, ClassId, Flows, Limit, LinkFraming, Order, Overflow, Policy};
use unisono_linux::clock::Duration;
use unisono_linux::netlink::NetlinkRequest;
use unisono_linux::netlink::htb::{self, ByteRate};
use unisono_linux::netlink::link::Index;
use unisono_linux::netlink::qdisc::{self, CountedSize, FairCodel, Room};

/// The discipline's number: `Un` in ASCII as the major number.
pub(super) const HANDLE: u32 = 0x556e_0000;
/// The minor number of the class of the whole link.
const LINK: u16 = 1;
/// The length of a queue, unless the policy sets it, as time at the class's guaranteed rate (ns).
const QUEUE_NS: f64 = 20e6;
/// The minimum length of such a queue (bytes). If a queue of this host has no room for a packet of its own
/// TCP, the connection tries again after half a second, and ends after `tcp_retries2` (15) refusals in a row.
/// Each connection may have two packets in the queue. In 25 kB eight connections refused each other's packets
/// until all had ended (6 of 6 runs); in 64 KiB sixteen connections went on.
const MIN_QUEUE: u64 = 64 << 10;
/// The longest packet, as time at the link's rate (ns). Unused capacity is lent in turns of some such
/// packets, so this determines the time until every class has had its turn. With 1 ms, lending a hundredth of
/// a link took 1.5 s for one round of turns, and within that time classes were off their shares by 2 %.
const GSO_TIME_NS: f64 = 250e3;
/// The longest turn, as time at the link's rate (ns). With weights far apart (1:1000) the smallest class
/// would otherwise wait for a turn of many milliseconds of the largest. Half as much would halve the ratio of
/// weights that turns can express. Chosen, not measured.
const TURN_NS: f64 = 50e6;
/// The burst, as time at the class's rate (ns): a class may be idle, or the kernel late, for this long
/// without a loss of its share. It is a tick at 250 Hz, the greatest delay of a kernel timer. With a longer
/// time, a class that was idle could send more at once at the link's rate. Chosen by this argument, not
/// measured.
const BURST_NS: u64 = 4_000_000;
/// The parameters of `fq_codel`: the target delay of packets, and the interval for which delays may exceed it
/// before packets are marked or dropped (ns). The target is longer if the longest packet takes longer. RFC
/// 8289 recommends both values for the Internet.
const TARGET_NS: f64 = 5e6;
const INTERVAL_NS: f64 = 100e6;
/// The limit of an `fq_codel` queue, as time at the class's ceiling (ns): it holds the bytes in flight of one
/// connection with a long round trip.
const CODEL_ROOM_NS: f64 = 100e6;
/// The default memory limit of `fq_codel`.
const MAX_MEMORY: u64 = 32 << 20;
/// The bytes of a full Ethernet frame.
const FRAME: u64 = 1514;
/// The quanta that `tc` accepts: the bytes of a tenth of a second, within these bounds.
const PLAIN_QUANTUM: std::ops::RangeInclusive<u64> = 1000..=200_000;

/// The limit of `overhead` and `atm` for packets that the kernel has merged.
pub(super) const MERGED_NOTE: &str = "packets that arrive merged count `overhead` once for all of them; to have it counted \
     for each, switch merging off where they arrive: ethtool -K DEV gro off";

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tuning {
    /// Unused capacity is lent by weight, and the longest packets are kept short.
    #[default]
    ByWeight,
    /// The defaults of `tc`: unused capacity is lent almost equally. For comparison.
    Plain,
}

impl Tuning {
    /// Returns the longest packet that a device should get; `present` is the present limit.
    pub(super) fn longest(self, policy: &Policy, present: u64) -> u64 {
        match self {
            Self::Plain => present,
            Self::ByWeight => {
                let short = whole_bytes(policy.rate.bytes_per_second() * GSO_TIME_NS / 1e9);
                present.min(short.max(2 * FRAME))
            }
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PlannedClass {
    pub(super) name: String,
    pub(super) class: htb::HtbClass,
    /// The discipline of the class, if it is a leaf.
    pub(super) leaf: Option<LeafDiscipline>,
}

impl PlannedClass {
    /// Returns whether the device has the class with these parameters.
    pub(super) fn is_in(&self, in_force: &ClassesInForce) -> bool {
        in_force.class(self.class.number) == Some(&self.class.as_reported())
    }

    /// Returns the request that makes or changes the class.
    pub(super) fn request(&self, device: Index) -> NetlinkRequest {
        htb::class(device, &self.class)
    }

    /// Returns the request that makes or changes the discipline of a leaf, or `None` for an inner class.
    pub(super) fn leaf_request(&self, device: Index, handle: u32) -> Option<NetlinkRequest> {
        let class = self.class.number;
        Some(match self.leaf? {
            LeafDiscipline::Together(room) => qdisc::fifo(device, class, handle, room),
            LeafDiscipline::Fair(codel) => qdisc::fq_codel(device, class, handle, &codel),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeafDiscipline {
    Together(Room),
    Fair(FairCodel),
}

/// The kind of a leaf's discipline. Replacing it by another kind would lose the waiting packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) enum LeafKind {
    #[default]
    Bytes,
    Packets,
    Fair,
}

impl LeafKind {
    /// Returns the kind for a leaf. A class with a limit has exactly the queue that the policy asks for. In
    /// other classes flows take turns if the kernel has `fq_codel`.
    fn for_class(policy: &Policy, id: ClassId, can: FlowTurns) -> Self {
        let asks = policy.flows(id) == Flows::Fair || policy.congestion(id).is_some();
        match policy.hierarchy.class(id).limit {
            None if can == FlowTurns::Known => Self::Fair,
            Some(_) if asks && can == FlowTurns::Known => Self::Fair,
            Some(Limit { bytes: u64::MAX, .. }) => Self::Packets,
            _ => Self::Bytes,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bfifo",
            Self::Packets => "pfifo",
            Self::Fair => "fq_codel",
        }
    }
}

/// Whether this kernel has `fq_codel`, a discipline in which flows take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FlowTurns {
    Known,
    Unknown,
}

/// The numbers of classes by name.
pub(super) type ClassNumbers = BTreeMap<String, Number>;

/// The number of an existing class, and its properties that the kernel cannot change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Number {
    pub(super) own: u16,
    above: u16,
    is_leaf: bool,
    #[serde(default)]
    pub(super) kind: LeafKind,
}

/// Returns the name of the leaf for packets of a class whose sockets have no leaves of their own. No class of
/// a policy has such a name.
pub(super) fn others(class: &str) -> String {
    format!("{class}/others")
}

/// Returns the number of the kernel's class in which packets of a leaf of the policy wait, unless their
/// socket has a leaf of its own.
pub(super) fn packet_class(numbers: &ClassNumbers, leaf: &str) -> u16 {
    numbers.get(&others(leaf)).unwrap_or_else(|| &numbers[leaf]).own
}

/// Returns the handle of a class: the discipline's number and the class's number.
pub(super) fn class_handle(number: u16) -> u32 {
    HANDLE | u32::from(number)
}

/// Numbers the classes. Existing classes whose fixed properties stay the same keep their numbers. Returns
/// `None` if there are too many classes.
pub(super) fn number(policy: &Policy, before: &ClassNumbers, can: FlowTurns) -> Option<ClassNumbers> {
    let hierarchy = &policy.hierarchy;
    let mut numbers = ClassNumbers::new();
    let used: HashSet<u16> = before.values().map(|number| number.own).collect();
    let mut free = (LINK + 1..FIRST_LEAF).filter(|own| !used.contains(own));
    for (id, class) in hierarchy.classes() {
        let above = match id {
            ClassId::ROOT => 0,
            _ => numbers[&hierarchy.class(class.parent).name].own,
        };
        let mut number = |name: String, above, kind: Option<LeafKind>| {
            let (is_leaf, kind) = (kind.is_some(), kind.unwrap_or_default());
            let same =
                |number: &&Number| (number.above, number.is_leaf, number.kind) == (above, is_leaf, kind);
            let own = match before.get(&name).filter(same) {
                Some(number) => number.own,
                None if id == ClassId::ROOT => LINK,
                None => free.next()?,
            };
            numbers.insert(name, Number { own, above, is_leaf, kind });
            Some(own)
        };
        let kind = hierarchy.is_leaf(id).then(|| LeafKind::for_class(policy, id, can));
        if policy.sockets(id).is_some() {
            let own = number(class.name.clone(), above, None)?;
            number(others(&class.name), own, kind)?;
        } else {
            number(class.name.clone(), above, kind)?;
        }
    }
    Some(numbers)
}

/// Returns the numbers that are not used any more, children before their parents.
pub(super) fn removed_numbers(before: &ClassNumbers, now: &ClassNumbers) -> Vec<u16> {
    let parents: HashMap<u16, u16> = before.values().map(|number| (number.own, number.above)).collect();
    let kept: HashSet<u16> = now.values().map(|number| number.own).collect();
    let above = |own: u16| parents.get(&own).copied().unwrap_or(0);
    let depth =
        |own: u16| std::iter::successors(Some(own), |own| Some(above(*own)).filter(|own| *own != 0)).count();
    let mut gone: Vec<u16> =
        before.values().map(|number| number.own).filter(|own| !kept.contains(own)).collect();
    gone.sort_by_cached_key(|own| std::cmp::Reverse(depth(*own)));
    gone.dedup();
    gone
}

/// Returns the number of levels of classes, including the link and the leaves of sockets.
pub(super) fn levels(policy: &Policy) -> usize {
    let hierarchy = &policy.hierarchy;
    let depth = |mut id: ClassId| {
        let mut depth = 1 + usize::from(policy.sockets(id).is_some());
        while id != ClassId::ROOT {
            id = hierarchy.class(id).parent;
            depth += 1;
        }
        depth
    };
    hierarchy.classes().map(|(id, _)| depth(id)).max().unwrap_or(0)
}

/// The longest packets, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Longest {
    /// The longest packet of this host's own sockets.
    pub(super) sent: u64,
    /// The longest packet of any origin, including the packets of other hosts if this host forwards them.
    pub(super) arriving: u64,
}

/// Returns the leaves below a class in which sockets may have leaves: the number of each leaf, and its
/// fraction of the class. Returns none for any other class.
fn parts_of_sockets(
    policy: &Policy,
    id: ClassId,
    numbers: &ClassNumbers,
    sockets: &[SocketLeaf],
) -> Vec<(u16, f64)> {
    let Some(permitted) = policy.sockets(id) else { return Vec::new() };
    let name = &policy.hierarchy.class(id).name;
    let class = numbers[name].own;
    let below = sockets.iter().filter(|socket| socket.class == class);
    let rest = (packet_class(numbers, name), permitted.min_weight.to_f64());
    let mut parts: Vec<(u16, f64)> =
        std::iter::once(rest).chain(below.map(|socket| (socket.leaf, socket.weight))).collect();
    let total: f64 = parts.iter().map(|(_, weight)| weight).sum();
    parts.iter_mut().for_each(|(_, part)| *part /= total);
    parts
}

/// Returns the most frames in a packet of this host, if they are limited: the kernel adds an overhead once to
/// a packet, however many frames the device makes of it.
pub(super) fn max_segments(policy: &Policy) -> Option<u32> {
    (!policy.framing.is_plain()).then_some(1)
}

/// Returns the lengths that the kernel counts for packets; `None`: their own lengths.
pub(super) fn counted_size(policy: &Policy) -> Option<CountedSize> {
    let LinkFraming { overhead, atm, .. } = policy.framing;
    (!policy.framing.is_plain()).then(|| CountedSize { overhead: overhead.into(), atm })
}

/// The number of leaves whose disciplines get numbers that the kernel chooses. It has 32,767 for a device,
/// fewer than there may be classes; the others are left for the leaves of sockets.
const MAX_CHOSEN_BY_KERNEL: u32 = 0x6f00;

/// Returns the handle for a new discipline of a leaf: a number below the numbers of the kernel's choice, and
/// only for a class beyond [`MAX_CHOSEN_BY_KERNEL`], because disciplines of other programs have such numbers,
/// too.
fn leaf_handle(class: u32) -> u32 {
    match (class & 0xffff).saturating_sub(MAX_CHOSEN_BY_KERNEL) << 16 {
        HANDLE | 0x8000_0000.. => qdisc::AUTOMATIC,
        handle => handle,
    }
}

/// Returns the requests that make or change the classes of the plan that differ from those `in_force`, and
/// then those for their queues.
pub(super) fn changes(
    plan: &[PlannedClass],
    in_force: &ClassesInForce,
    device: Index,
) -> Vec<NetlinkRequest> {
    let has_leaf = |planned: &&PlannedClass| {
        let found = in_force.leaf(planned.class.number);
        match planned.leaf {
            None => true,
            Some(LeafDiscipline::Together(room)) => found.is_some_and(|leaf| room.describes(leaf)),
            Some(LeafDiscipline::Fair(codel)) => found.is_some_and(|leaf| codel.describes(leaf)),
        }
    };
    let classes = plan.iter().filter(|planned| !planned.is_in(in_force));
    let classes = classes.map(|planned| planned.request(device));
    // a discipline that is there keeps its number
    let handle = |planned: &PlannedClass| match in_force.leaf(planned.class.number) {
        Some(_) => qdisc::AUTOMATIC,
        None => in_force.free_handle(leaf_handle(planned.class.number)),
    };
    let leaves = plan.iter().filter(|planned| !has_leaf(planned));
    classes.chain(leaves.filter_map(|planned| planned.leaf_request(device, handle(planned)))).collect()
}

/// Returns the classes of a policy, parents first, and the leaves of these sockets. Classes `in_force` keep
/// rates and turns that deviate little from the policy.
pub(super) fn plan(
    policy: &Policy,
    numbers: &ClassNumbers,
    longest: Longest,
    tuning: Tuning,
    sockets: &[SocketLeaf],
    in_force: &ClassesInForce,
) -> Vec<PlannedClass> {
    let tree = &policy.hierarchy;
    // the kernel counts a packet with the headers of the frames that it is segmented into
    let with_headers = |longest: u64| {
        let length = longest + longest / 16 + FRAME;
        u32::try_from(length).map_or(length, |length| policy.framing.charged(length).into())
    };
    let longest = Longest { sent: with_headers(longest.sent), arriving: with_headers(longest.arriving) };
    let arriving = longest.arriving;
    let parts: Vec<Vec<(u16, f64)>> =
        tree.classes().map(|(id, _)| parts_of_sockets(policy, id, numbers, sockets)).collect();
    let (shares, guarantees) = (tree.shares(), policy.guarantees());
    let min_share = tree.classes().filter(|(id, _)| tree.is_leaf(*id)).fold(f64::INFINITY, |min, (id, _)| {
        let min_part = parts[id.index()].iter().fold(1.0_f64, |min, (_, part)| min.min(*part));
        min.min(shares[id.index()] * min_part)
    });
    let max_quantum = (policy.rate.bytes_per_second() * TURN_NS / 1e9).max(arriving as f64);
    let planned = |id: ClassId, number: u16, parent: u16, part: f64, kind: Option<LeafKind>| {
        let class = tree.class(id);
        let handle = class_handle(number);
        let [guaranteed, rate] = [1.0, part].map(|part| {
            let rate = ByteRate(whole_bytes(guarantees[id.index()] * part / 8.0));
            if id == ClassId::ROOT { rate } else { in_force.nearby_rate(handle, rate) }
        });
        let ceiling = ByteRate(whole_bytes(policy.ceiling(id).bytes_per_second())).max(rate);
        let quantum = match tuning {
            Tuning::ByWeight => whole_bytes(
                (arriving as f64 * shares[id.index()] * part / min_share).round().min(max_quantum),
            ),
            Tuning::Plain => (rate.0 / 10).clamp(*PLAIN_QUANTUM.start(), *PLAIN_QUANTUM.end()),
        };
        PlannedClass {
            name: class.name.clone(),
            class: htb::HtbClass {
                number: handle,
                parent: class_handle(parent),
                rate,
                ceiling,
                burst_ns: burst(rate),
                ceiling_burst_ns: burst(ceiling),
                quantum: u32::try_from(in_force.nearby_quantum(handle, quantum)).unwrap_or(u32::MAX),
            },
            leaf: kind.map(|kind| match kind {
                LeafKind::Fair => {
                    LeafDiscipline::Fair(codel(class.limit, policy.congestion(id), (rate, ceiling), longest))
                }
                // the leaf of a socket may hold as much as its whole class, because the socket's send buffer
                // bounds its packets
                _ => LeafDiscipline::Together(room(class.limit, guaranteed, arriving)),
            }),
        }
    };
    let mut plan = Vec::new();
    for (id, class) in tree.classes() {
        let Number { own, above, is_leaf, kind } = numbers[&class.name];
        plan.push(planned(id, own, above, 1.0, is_leaf.then_some(kind)));
        let Some(Number { own: others, kind, .. }) = numbers.get(&others(&class.name)).copied() else {
            continue;
        };
        // an `fq_codel` queue takes 70 KiB of the kernel's memory, and a socket mostly has a single flow
        let kind_of_sockets = if policy.congestion(id).is_some() { kind } else { LeafKind::Bytes };
        for (leaf, part) in &parts[id.index()] {
            let kind = if *leaf == others { kind } else { kind_of_sockets };
            plan.push(planned(id, *leaf, own, *part, Some(kind)));
        }
    }
    plan
}

/// Returns the burst of a class, in nanoseconds at its rate: [`BURST_NS`], or longer if two frames take
/// longer.
fn burst(ByteRate(rate): ByteRate) -> u64 {
    BURST_NS.max(2 * FRAME * 1_000_000_000 / rate)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates and quanta are positive")]
fn whole_bytes(bytes: f64) -> u64 {
    (bytes as u64).max(1)
}

fn word(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the parameters of `fq_codel` for a class. The target is at least the time of the longest packet at
/// the class's guaranteed rate; otherwise every packet of a slow class would be marked.
fn codel(
    limit: Option<Limit>,
    mark: Option<Duration>,
    (ByteRate(rate), ByteRate(ceiling)): (ByteRate, ByteRate),
    longest: Longest,
) -> FairCodel {
    let micros = |ns: f64| word(whole_bytes(ns / 1e3));
    let target = TARGET_NS.max(longest.sent as f64 / rate as f64 * 1e9);
    let bytes = limit.map_or(u64::MAX, |limit| limit.bytes);
    let memory = whole_bytes(ceiling as f64 * CODEL_ROOM_NS / 1e9)
        .clamp(4 * longest.arriving, MAX_MEMORY.max(4 * longest.arriving));
    FairCodel {
        target_us: micros(target),
        interval_us: micros(INTERVAL_NS.max(10.0 * target)),
        packets: limit.map(|limit| limit.packets).filter(|packets| *packets != u64::MAX).map(word),
        memory: word(if bytes == u64::MAX { memory } else { bytes }),
        mark_us: mark.map(|mark| micros(mark.as_nanos() as f64)),
    }
}

fn room(limit: Option<Limit>, ByteRate(rate): ByteRate, longest: u64) -> Room {
    match limit {
        Some(Limit { bytes: u64::MAX, packets, .. }) => Room::Packets(word(packets)),
        Some(Limit { bytes, .. }) => Room::Bytes(word(bytes)),
        None => Room::Bytes(word(whole_bytes(rate as f64 * QUEUE_NS / 1e9).max(2 * longest).max(MIN_QUEUE))),
    }
}

/// Returns notes about limits below the length of the longest packet.
pub(super) fn too_long_notes(policy: &Policy, longest: u64) -> Vec<String> {
    let leaves = policy.hierarchy.classes().filter(|(id, _)| policy.hierarchy.is_leaf(*id));
    let short = leaves.filter(|(_, class)| class.limit.is_some_and(|limit| limit.bytes < longest));
    let note = |(_, class): (ClassId, &Class)| {
        format!(
            "class `{}`: packets of up to {longest} bytes arrive here, and its limit has no room for one: they are dropped; \
             raise the limit to {} KiB or more",
            class.name,
            (2 * longest).div_ceil(1024)
        )
    };
    short.map(note).collect()
}

/// Returns notes about properties of a single class that neither a kernel without `fq_codel` nor our
/// scheduler in the kernel supports.
pub(super) fn ignored_notes(policy: &Policy) -> Vec<String> {
    let mut notes = Vec::new();
    for (id, class) in policy.hierarchy.classes() {
        if policy.flows(id) == Flows::Fair {
            notes.push(format!(
                "class `{}`: the flows of a class wait together in the kernel; --backend interposed gives each its turn",
                class.name
            ));
        }
        if policy.congestion(id).is_some() {
            notes.push(format!(
                "class `{}`: packets that waited long are marked (ecn) by --backend interposed only",
                class.name
            ));
        }
    }
    notes
}

/// Returns notes about the parts of the policy that the kernel's classes cannot enforce.
pub(super) fn unsupported_notes(policy: &Policy, can: FlowTurns) -> Vec<String> {
    let tree = &policy.hierarchy;
    let mut notes = match can {
        FlowTurns::Known => Vec::new(),
        FlowTurns::Unknown => ignored_notes(policy),
    };
    for (id, class) in tree.classes() {
        if class.order == Order::Deadline {
            notes.push(format!(
                "class `{}`: the kernel's classes know no deadlines; its packets leave in the order in which they come",
                class.name
            ));
        }
        let Some(limit) = class.limit else { continue };
        if !tree.is_leaf(id) {
            notes.push(format!(
                "class `{}`: the kernel limits what waits at leaves only; its limit is left out",
                class.name
            ));
        } else if limit.overflow == Overflow::DropLongest {
            notes.push(format!(
                "class `{}`: a kernel queue that is full drops what comes, whatever `overflow` says",
                class.name
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests;
