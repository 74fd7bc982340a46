//! Converts the counters of the kernel's classes into figures of a policy's classes.

use super::HTB_BACKEND;
use super::htb_classes::{self, ClassNumbers};
use crate::journal::LinkSide;
use std::collections::HashMap;
use unisono_fairqueue::{Backlog, ClassId, Live, LiveClass, Policy, ReceivingFigures};
use unisono_linux::clock::Instant;
use unisono_linux::netlink::htb::HtbStatistics;

/// Returns the figures of all classes. Figures that the kernel keeps only at leaves are summed up for the
/// classes above.
pub(super) fn live(
    side: &LinkSide,
    at: Instant,
    policy: &Policy,
    (numbers, statistics): (&ClassNumbers, &[HtbStatistics]),
    receiving: &HashMap<&str, ReceivingFigures>,
) -> Live {
    let tree = &policy.hierarchy;
    let guarantees = policy.guarantees();
    let by_number: HashMap<u32, &HtbStatistics> =
        statistics.iter().map(|class| (class.number, class)).collect();
    let of = |name: &str| {
        let number = numbers.get(name).map(|number| htb_classes::class_handle(number.own));
        number.and_then(|number| by_number.get(&number)).copied().copied().unwrap_or_default()
    };
    let mut classes: Vec<LiveClass> = tree
        .classes()
        .map(|(id, class)| {
            let mut counted = of(&class.name);
            if !tree.is_leaf(id) || policy.sockets(id).is_some() {
                (counted.dropped, counted.waiting_packets, counted.waiting_bytes) = (0, 0, 0);
            }
            if policy.sockets(id).is_some() {
                for leaf in statistics.iter().filter(|leaf| leaf.parent == counted.number) {
                    counted.dropped += leaf.dropped;
                    counted.waiting_packets += leaf.waiting_packets;
                    counted.waiting_bytes += leaf.waiting_bytes;
                }
            }
            let parent = Some(class.parent).filter(|parent| *parent != ClassId::ROOT);
            LiveClass {
                name: class.name.clone(),
                parent: parent.map(|parent| tree.class(parent).name.clone()),
                guarantee: guarantees[id.index()],
                packets: counted.packets,
                bytes: counted.bytes,
                dropped: counted.dropped,
                backlog: Backlog { packets: counted.waiting_packets, bytes: counted.waiting_bytes },
                queue: numbers
                    .get(&htb_classes::others(&class.name))
                    .or_else(|| numbers.get(&class.name))
                    .filter(|_| tree.is_leaf(id))
                    .map(|number| number.kind.name().to_owned()),
                delay: None,
                receiving: receiving.get(class.name.as_str()).copied(),
            }
        })
        .collect();
    for (id, class) in tree.classes().collect::<Vec<_>>().into_iter().rev() {
        let LiveClass { backlog, dropped, receiving, .. } = classes[id.index()];
        if id != ClassId::ROOT {
            let above = &mut classes[class.parent.index()];
            above.backlog += backlog;
            above.dropped += dropped;
            if let Some(own) = receiving {
                let sum = above.receiving.get_or_insert_default();
                sum.ran_ns += own.ran_ns;
                sum.frames += own.frames;
                sum.accepted += own.accepted;
            }
        }
    }
    classes.remove(0);
    Live {
        backend: HTB_BACKEND.to_owned(),
        device: side.device.clone(),
        direction: side.direction,
        at_ns: at.as_nanos(),
        rate: policy.rate,
        framing: policy.framing,
        classes,
    }
}
