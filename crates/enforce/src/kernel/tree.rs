//! The classes of a policy as the kernel's token buckets are told about them. Pure.
//!
//! - *Rate*: what the class is sure of, by the weights of its line; rounded down, so that children never have more than
//!   their parent.
//! - *Ceiling*: the policy's, or that of the class above, or the link's rate.
//! - *Quantum*: by share, the least one [`LEAST_QUANTUM`]. The kernel gives a turn to each class that borrows however
//!   little of its quantum is left, so packets longer than a quantum make lending more equal than the weights say.
//! - *Queue*: what the policy says, or else [`WAIT_NS`] at the rate that the class is sure of, but room for two of the
//!   longest packets that programs hand down in one piece: with less, such a packet would never fit. Short, because what
//!   waits there is the delay of the class.

use std::collections::BTreeMap;
use unisono_fairqueue::{ClassId, Hierarchy, Limit, Order, Overflow, Policy};
use unisono_linux::netlink::htb;
use unisono_linux::netlink::qdisc::Room;

/// The discipline's number: `Un`.
pub(super) const HANDLE: u32 = 0x556e_0000;
/// The class of the whole link.
const LINK: u16 = 1;
/// So long may a queue be at the rate that its class is sure of, unless the policy says otherwise.
const WAIT_NS: f64 = 20e6;
/// So long may a class have been idle, or the kernel late, without losing its share.
const BURST_NS: u64 = 4_000_000;
/// A frame of Ethernet's.
const FRAME: u64 = 1514;
const LEAST_QUANTUM: f64 = FRAME as f64;
const MOST_QUANTUM: f64 = (1 << 24) as f64;

/// A class, as it is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) class: htb::Class,
    /// What waits at it, if it is a leaf.
    pub(super) room: Option<Room>,
}

/// The numbers of classes by their names, with the number of the class above and whether it is a leaf: what cannot be
/// changed of a class that is there.
pub(super) type Numbers = BTreeMap<String, Number>;

/// What cannot be changed of a class that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Number {
    pub(super) own: u16,
    above: u16,
    is_leaf: bool,
}

/// The number of a class with the discipline's.
pub(super) fn whole(number: u16) -> u32 {
    HANDLE | u32::from(number)
}

/// Numbers the classes; those that are there already and stay what they are keep theirs. None if there are too many.
pub(super) fn number(hierarchy: &Hierarchy, before: &Numbers) -> Option<Numbers> {
    let mut numbers = Numbers::new();
    let mut free = (LINK + 1..=u16::MAX).filter(|own| before.values().all(|number| number.own != *own));
    for (id, class) in hierarchy.classes() {
        let above = match id {
            ClassId::ROOT => 0,
            _ => numbers[&hierarchy.class(class.parent).name].own,
        };
        let is_leaf = hierarchy.is_leaf(id);
        let stays =
            before.get(&class.name).filter(|number| number.above == above && number.is_leaf == is_leaf);
        let own = match stays {
            Some(number) => number.own,
            None if id == ClassId::ROOT => LINK,
            None => free.next()?,
        };
        numbers.insert(class.name.clone(), Number { own, above, is_leaf });
    }
    Some(numbers)
}

/// The numbers that are used no more, children before their parents.
pub(super) fn gone(before: &Numbers, now: &Numbers) -> Vec<u16> {
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

/// How deep the classes are nested, the link included.
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

/// The classes, parents first; `longest` is the longest packet that the device is handed.
pub(super) fn plan(policy: &Policy, numbers: &Numbers, longest: u64) -> Vec<Planned> {
    let tree = &policy.hierarchy;
    let leaves = tree.classes().filter(|(id, _)| tree.is_leaf(*id)).map(|(id, _)| tree.share(id));
    let least = leaves.fold(f64::INFINITY, f64::min);
    tree.classes()
        .map(|(id, class)| {
            let number = numbers[&class.name];
            let rate = whole_bytes(policy.guarantee(id) / 8.0);
            let ceiling = whole_bytes(policy.ceiling(id).bytes_per_second()).max(rate);
            let quantum = (LEAST_QUANTUM * tree.share(id) / least).min(MOST_QUANTUM);
            Planned {
                name: class.name.clone(),
                class: htb::Class {
                    number: whole(number.own),
                    parent: whole(number.above),
                    rate,
                    ceiling,
                    burst_ns: burst(rate),
                    ceiling_burst_ns: burst(ceiling),
                    quantum: u32::try_from(whole_bytes(quantum)).unwrap_or(u32::MAX),
                },
                room: tree.is_leaf(id).then(|| room(class.limit, rate, longest)),
            }
        })
        .collect()
}

/// A frame has to fit even if it takes longer than the rest of the burst.
fn burst(rate: u64) -> u64 {
    BURST_NS.max(2 * FRAME * 1_000_000_000 / rate)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates and quanta are positive")]
fn whole_bytes(bytes: f64) -> u64 {
    (bytes as u64).max(1)
}

fn room(limit: Option<Limit>, rate: u64, longest: u64) -> Room {
    let word = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    match limit {
        Some(Limit { bytes: u64::MAX, packets, .. }) => Room::Packets(word(packets)),
        Some(Limit { bytes, .. }) => Room::Bytes(word(bytes)),
        None => Room::Bytes(word(whole_bytes(rate as f64 * WAIT_NS / 1e9).max(2 * (longest + FRAME)))),
    }
}

/// What the kernel's classes cannot do of what a policy asks for.
pub(super) fn not_done(policy: &Policy) -> Vec<String> {
    let tree = &policy.hierarchy;
    let mut notes = Vec::new();
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

    fn planned(policy: &Policy) -> Vec<Planned> {
        plan(policy, &number(&policy.hierarchy, &Numbers::new()).expect("few classes"), 65_536)
    }

    #[test]
    fn rates_follow_the_weights_and_ceilings_the_policy() {
        let plan = planned(&policy(THREE));
        let of = |f: fn(&Planned) -> u64| plan.iter().map(f).collect::<Vec<_>>();
        assert_eq!(of(|planned| planned.class.rate), [12_500_000, 7_500_000, 3_750_000, 1_250_000]);
        assert_eq!(of(|planned| planned.class.ceiling), [12_500_000, 12_500_000, 6_250_000, 12_500_000]);
        assert_eq!(of(|planned| planned.class.quantum.into())[1..], [9084, 4542, 1514]);
        assert_eq!(plan[1].class.parent, plan[0].class.number);
        assert_eq!(plan[0].class.parent, HANDLE);
        assert_eq!(plan[0].room, None);
        assert_eq!(plan[1].room, Some(Room::Bytes(150_000)), "20 ms");
        assert_eq!(plan[3].room, Some(Room::Bytes(134_100)), "two of the longest packets");
    }

    #[test]
    fn children_never_have_more_than_their_parent() {
        let text = "[class.a.b]\nweight = 7\n[class.a.c]\nweight = 3\n[class.a.d]\nweight = 1.7\n[class.x]\nweight = 13";
        let policy = policy(text);
        let plan = planned(&policy);
        for above in &plan {
            let below = plan.iter().filter(|planned| planned.class.parent == above.class.number);
            assert!(below.map(|planned| planned.class.rate).sum::<u64>() <= above.class.rate);
        }
    }

    #[test]
    fn a_class_that_stays_what_it_is_keeps_its_number_and_no_number_is_used_for_two() {
        let before = number(&policy(THREE).hierarchy, &Numbers::new()).expect("few classes");
        let changed = "[class.new]\n[class.b.inner]\n[class.a]\nweight = 2\n[class.rest]";
        let after = number(&policy(changed).hierarchy, &before).expect("few classes");
        assert_eq!(after["a"], before["a"]);
        assert_eq!(after["rest"], before["rest"]);
        assert_ne!(after["b"].own, before["b"].own, "it has a child now");
        assert_eq!(gone(&before, &after), [before["b"].own]);
        let mut own: Vec<u16> = after.values().chain([&before["b"]]).map(|number| number.own).collect();
        own.sort_unstable();
        own.dedup();
        assert_eq!(own.len(), after.len() + 1);
    }

    #[test]
    fn what_the_kernel_cannot_do_is_said() {
        let notes = not_done(&policy(
            "[class.a]\norder = \"deadline\"\n[class.b]\npackets = 3\n[class.b.c]\npackets = 9\noverflow = \"drop-longest\"",
        ));
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(not_done(&policy(THREE)).is_empty());
    }
}
