//! Computes the parameters of the kernel's token buckets (HTB) for the classes of a policy. Pure functions.
//!
//! - *Rate*: the class's guaranteed rate, rounded down, so that children never have more than their parent.
//! - *Ceiling*: the policy's, or the parent's, or the link's rate.
//! - *Longest packet*: programs pass down up to 64 KiB in one piece. At 100 Mbit/s this takes 5 ms, while all
//!   other packets wait. So the device gets at most as many bytes at once as the link carries in
//!   [`GSO_TIME_NS`]. That limits the sockets of this host only. Packets of other hosts arrive merged to up
//!   to 64 KiB; on a host that forwards, quanta and queues are made for that length.
//! - *Quantum*: in proportion to the share; the smallest quantum is the longest packet. A class that borrows
//!   sends packets as long as anything of its quantum is left. If packets were longer than a quantum, every
//!   turn would be one packet, and unused capacity would be lent in equal parts.
//! - *Queue*: if the kernel has `fq_codel`, the flows of a class take turns, and packets that waited too long
//!   are marked or dropped. A class with a limit has a plain queue of that length, unless the policy asks for
//!   fair flows or marks. On other kernels the queue is as long as the policy says, or else [`QUEUE_NS`] at
//!   the guaranteed rate. It is short because its backlog determines the delay of the class, but has room for
//!   two of the longest packets, which would otherwise never fit.

use std::collections::BTreeMap;
use unisono_fairqueue::{Class, ClassId, Flows, Hierarchy, Limit, Order, Overflow, Policy};
use unisono_linux::clock::Duration;
use unisono_linux::netlink::htb::{self, ByteRate};
use unisono_linux::netlink::qdisc::{FairCodel, Room};

/// The discipline's number: `Un` in ASCII as the major number.
pub(super) const HANDLE: u32 = 0x556e_0000;
/// The minor number of the class of the whole link.
const LINK: u16 = 1;
/// The length of a queue, unless the policy sets it, as time at the class's guaranteed rate (ns).
const QUEUE_NS: f64 = 20e6;
/// The longest packet, as time at the link's rate (ns). Unused capacity is lent in turns of some such
/// packets, so this determines the time until every class has had its turn. With 1 ms, lending a hundredth of
/// a link took 1.5 s for one round of turns, and within that time classes were off their shares by 2 %.
const GSO_TIME_NS: f64 = 250e3;
/// The longest turn, as time at the link's rate (ns). With weights far apart (1:1000) the smallest class
/// would otherwise wait for a turn of many milliseconds of the largest. Half as much would halve the ratio of
/// weights that turns can express. Chosen, not measured.
const TURN_NS: f64 = 50e6;
/// The burst, as time at the class's rate (ns): for so long a class may be idle, or the kernel late, without
/// a loss of its share. It is a tick at 250 Hz, the greatest delay of a kernel timer. With a longer time, a
/// class that was idle could send more at once at the link's rate. Chosen by this argument, not measured.
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

/// Returns the handle of a class: the discipline's number and the class's.
pub(super) fn class_handle(number: u16) -> u32 {
    HANDLE | u32::from(number)
}

/// Numbers the classes. Existing classes whose fixed properties stay the same keep their numbers. Returns
/// `None` if there are too many classes.
pub(super) fn number(policy: &Policy, before: &ClassNumbers, can: FlowTurns) -> Option<ClassNumbers> {
    let hierarchy = &policy.hierarchy;
    let mut numbers = ClassNumbers::new();
    let mut free = (LINK + 1..=u16::MAX).filter(|own| before.values().all(|number| number.own != *own));
    for (id, class) in hierarchy.classes() {
        let above = match id {
            ClassId::ROOT => 0,
            _ => numbers[&hierarchy.class(class.parent).name].own,
        };
        let is_leaf = hierarchy.is_leaf(id);
        let kind = if is_leaf { LeafKind::for_class(policy, id, can) } else { LeafKind::default() };
        let same = |number: &&Number| (number.above, number.is_leaf, number.kind) == (above, is_leaf, kind);
        let stays = before.get(&class.name).filter(same);
        let own = match stays {
            Some(number) => number.own,
            None if id == ClassId::ROOT => LINK,
            None => free.next()?,
        };
        numbers.insert(class.name.clone(), Number { own, above, is_leaf, kind });
    }
    Some(numbers)
}

/// Returns the numbers that are not used any more, children before their parents.
pub(super) fn removed_numbers(before: &ClassNumbers, now: &ClassNumbers) -> Vec<u16> {
    let above = |own: u16| before.values().find(|number| number.own == own).map_or(0, |number| number.above);
    let depth =
        |own: u16| std::iter::successors(Some(own), |own| Some(above(*own)).filter(|own| *own != 0)).count();
    let mut gone: Vec<u16> = before
        .values()
        .map(|number| number.own)
        .filter(|own| now.values().all(|number| number.own != *own))
        .collect();
    gone.sort_by_cached_key(|own| std::cmp::Reverse(depth(*own)));
    gone.dedup();
    gone
}

/// Returns the number of levels of the tree, including the link.
pub(super) fn levels(hierarchy: &Hierarchy) -> usize {
    let depth = |mut id: ClassId| {
        let mut depth = 1;
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
    /// The longest packet of any origin: of other hosts, too, if this host forwards their packets.
    pub(super) arriving: u64,
}

/// Computes the parameters of all classes, parents first.
pub(super) fn plan(
    policy: &Policy,
    numbers: &ClassNumbers,
    longest: Longest,
    tuning: Tuning,
) -> Vec<PlannedClass> {
    let tree = &policy.hierarchy;
    // the kernel counts a packet with the headers of the frames that it is segmented into
    let with_headers = |longest| longest + longest / 16 + FRAME;
    let longest = Longest { sent: with_headers(longest.sent), arriving: with_headers(longest.arriving) };
    let arriving = longest.arriving;
    let leaves = tree.classes().filter(|(id, _)| tree.is_leaf(*id)).map(|(id, _)| tree.share(id));
    let min_share = leaves.fold(f64::INFINITY, f64::min);
    tree.classes()
        .map(|(id, class)| {
            let number = numbers[&class.name];
            let rate = ByteRate(whole_bytes(policy.guarantee(id) / 8.0));
            let ceiling = ByteRate(whole_bytes(policy.ceiling(id).bytes_per_second())).max(rate);
            let max_quantum = (policy.rate.bytes_per_second() * TURN_NS / 1e9).max(arriving as f64);
            let quantum = match tuning {
                Tuning::ByWeight => {
                    whole_bytes((arriving as f64 * tree.share(id) / min_share).round().min(max_quantum))
                }
                Tuning::Plain => (rate.0 / 10).clamp(*PLAIN_QUANTUM.start(), *PLAIN_QUANTUM.end()),
            };
            PlannedClass {
                name: class.name.clone(),
                class: htb::HtbClass {
                    number: class_handle(number.own),
                    parent: class_handle(number.above),
                    rate,
                    ceiling,
                    burst_ns: burst(rate),
                    ceiling_burst_ns: burst(ceiling),
                    quantum: u32::try_from(quantum).unwrap_or(u32::MAX),
                },
                leaf: tree.is_leaf(id).then(|| match number.kind {
                    LeafKind::Fair => LeafDiscipline::Fair(codel(
                        class.limit,
                        policy.congestion(id),
                        (rate, ceiling),
                        longest,
                    )),
                    _ => LeafDiscipline::Together(room(class.limit, rate, arriving)),
                }),
            }
        })
        .collect()
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
        None => Room::Bytes(word(whole_bytes(rate as f64 * QUEUE_NS / 1e9).max(2 * longest))),
    }
}

/// Returns notes about limits into which the longest packet does not fit.
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
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        Policy::parse(&format!("rate = \"100mbit\"\ndefault = \"rest\"\n{text}")).expect("it is sound")
    }

    const THREE: &str = "[class.a]\nweight = 6\n[class.b]\nweight = 3\nceiling = \"50mbit\"\n[class.rest]";

    fn planned(policy: &Policy) -> Vec<PlannedClass> {
        plan(
            policy,
            &number(policy, &ClassNumbers::new(), FlowTurns::Unknown).expect("few classes"),
            Longest { sent: 16_000, arriving: 16_000 },
            Tuning::ByWeight,
        )
    }

    #[test]
    fn rates_follow_the_weights_and_ceilings_the_policy() {
        let plan = planned(&policy(THREE));
        let of = |f: fn(&PlannedClass) -> u64| plan.iter().map(f).collect::<Vec<_>>();
        assert_eq!(of(|planned| planned.class.rate.0), [12_500_000, 7_500_000, 3_750_000, 1_250_000]);
        assert_eq!(of(|planned| planned.class.ceiling.0), [12_500_000, 12_500_000, 6_250_000, 12_500_000]);
        assert_eq!(of(|planned| planned.class.quantum.into())[1..], [6 * 18_514, 3 * 18_514, 18_514]);
        assert_eq!(plan[1].class.parent, plan[0].class.number);
        assert_eq!(plan[0].class.parent, HANDLE);
        assert_eq!(plan[0].leaf, None);
        let room = |bytes| Some(LeafDiscipline::Together(Room::Bytes(bytes)));
        assert_eq!(plan[1].leaf, room(150_000), "20 ms");
        assert_eq!(plan[3].leaf, room(37_028), "two of the longest packets");
    }

    #[test]
    fn the_longest_packet_takes_a_quarter_of_a_millisecond_and_a_turn_is_no_shorter_than_it() {
        let longest = |rate: &str, now| {
            let policy = Policy::parse(&format!("rate = \"{rate}\"")).expect("it is sound");
            Tuning::ByWeight.longest(&policy, now)
        };
        assert_eq!(longest("100mbit", 65_536), 3125);
        assert_eq!(longest("1gbit", 65_536), 31_250);
        assert_eq!(longest("10gbit", 65_536), 65_536);
        assert_eq!(longest("1mbit", 65_536), 3028);
        assert_eq!(longest("100mbit", 2000), 2000);
        let skewed = planned(&policy("[class.a]\nweight = 1000000\n[class.b]"));
        assert!(skewed.iter().all(|planned| (18_514..=625_000).contains(&planned.class.quantum)));
    }

    #[test]
    fn children_never_have_more_than_their_parent() {
        let below = "[class.a.b]\nweight = 7\n[class.a.c]\nweight = 3\n[class.a.d]\nweight = 1.7\n[class.x]\nweight = 3";
        let with_ceiling = format!("[class.a]\nweight = 2\nceiling = \"30mbit\"\n{below}");
        for text in [below, &with_ceiling] {
            let plan = planned(&policy(text));
            for above in &plan {
                let below = plan.iter().filter(|planned| planned.class.parent == above.class.number);
                assert!(
                    below.map(|planned| planned.class.rate.0).sum::<u64>() <= above.class.rate.0,
                    "{text}"
                );
                assert!(above.class.rate <= above.class.ceiling, "{text}");
            }
        }
    }

    #[test]
    fn a_class_that_stays_what_it_is_keeps_its_number_and_no_number_is_used_for_two() {
        let number =
            |text: &str, before: &ClassNumbers, can| number(&policy(text), before, can).expect("few classes");
        let before = number(THREE, &ClassNumbers::new(), FlowTurns::Unknown);
        let changed = "[class.new]\n[class.b.inner]\n[class.a]\nweight = 2\n[class.rest]";
        let after = number(changed, &before, FlowTurns::Unknown);
        assert_eq!(after["a"], before["a"]);
        assert_eq!(after["rest"], before["rest"]);
        assert_ne!(after["b"].own, before["b"].own, "it has a child now");
        assert_eq!(removed_numbers(&before, &after), [before["b"].own]);
        let mut own: Vec<u16> = after.values().chain([&before["b"]]).map(|number| number.own).collect();
        own.sort_unstable();
        own.dedup();
        assert_eq!(own.len(), after.len() + 1);
        let fair = number(THREE, &before, FlowTurns::Known);
        assert_eq!(fair["root"], before["root"]);
        assert_ne!(fair["a"].own, before["a"].own, "what waits would be lost with the discipline");
        assert_eq!(number(THREE, &fair, FlowTurns::Known), fair);
    }

    #[test]
    fn flows_take_turns_where_the_kernel_can_unless_a_class_says_how_much_may_wait() {
        let text = "[class.a]\necn = \"2ms\"\n[class.b]\npackets = 9\n[class.c]\npackets = 9\nflows = \"fair\"\n\
                    [class.d]\nlimit = \"64KiB\"\nflows = \"fair\"\n[class.slow]\nweight = 0.01\nceiling = \"1mbit\"";
        let policy = policy(text);
        let plan = |can| {
            let numbers = number(&policy, &ClassNumbers::new(), can).expect("few classes");
            plan(&policy, &numbers, Longest { sent: 3000, arriving: 3000 }, Tuning::ByWeight)
        };
        let leaf = |can, name: &str| {
            let plan = plan(can);
            plan.iter().find(|class| class.name == name).expect("it is there").leaf.expect("a leaf")
        };
        let fair = |name| match leaf(FlowTurns::Known, name) {
            LeafDiscipline::Fair(codel) => codel,
            LeafDiscipline::Together(room) => panic!("{name}: {room:?}"),
        };
        let (a, slow) = (fair("a"), fair("slow"));
        assert_eq!((a.target_us, a.interval_us, a.mark_us, a.packets), (5000, 100_000, Some(2000), None));
        assert_eq!(a.memory, 1_250_000, "100 ms of the link");
        assert!(slow.target_us > 50_000 && slow.interval_us >= 10 * slow.target_us, "{slow:?}");
        assert_eq!(leaf(FlowTurns::Known, "b"), LeafDiscipline::Together(Room::Packets(9)));
        assert_eq!((fair("c").packets, fair("d").memory), (Some(9), 65_536));
        for class in ["a", "c", "d", "slow"] {
            assert!(matches!(leaf(FlowTurns::Unknown, class), LeafDiscipline::Together(_)), "{class}");
        }
        assert!(unsupported_notes(&policy, FlowTurns::Known).is_empty());
        assert_eq!(unsupported_notes(&policy, FlowTurns::Unknown).len(), 3);
    }

    #[test]
    fn what_the_kernel_cannot_do_is_said() {
        let notes = unsupported_notes(
            &policy(
                "[class.a]\norder = \"deadline\"\n[class.b]\npackets = 3\n[class.b.c]\npackets = 9\noverflow = \"drop-longest\"\n\
             [class.d]\nflows = \"fair\"\necn = \"5ms\"",
            ),
            FlowTurns::Unknown,
        );
        assert_eq!(notes.len(), 5, "{notes:?}");
        assert!(unsupported_notes(&policy(THREE), FlowTurns::Unknown).is_empty());
    }
}
