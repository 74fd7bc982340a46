//! Converts the BPF program's counters into figures of a policy's classes.

use super::FairQueue;
use crate::kernel::discipline::layout::Counted;
use crate::kernel::discipline::{DelayHistogram, DisciplineFigures};
use unisono_fairqueue::{Backlog, Class, ClassId, DelayFigures, Live, LiveClass, Policy, TrafficDirection};

/// Returns the figures of all classes. The program counts at leaves; a class with children gets the sums.
pub(super) fn live(device: &str, policy: &Policy, figures: DisciplineFigures) -> Live {
    let tree = &policy.hierarchy;
    let mut counted = figures.classes;
    counted.resize_with(tree.classes().count(), Default::default);
    for (id, class) in tree.classes().collect::<Vec<_>>().into_iter().rev() {
        if id != ClassId::ROOT {
            let (own, delays) = counted[id.index()].clone();
            let above = &mut counted[class.parent.index()];
            add(&mut above.0, &own);
            above.1 += &delays;
        }
    }
    let guarantees = policy.guarantees();
    let class = |(id, class): (ClassId, &Class)| {
        let (own, delays) = &counted[id.index()];
        let parent = Some(class.parent).filter(|parent| *parent != ClassId::ROOT);
        LiveClass {
            name: class.name.clone(),
            parent: parent.map(|parent| tree.class(parent).name.clone()),
            guarantee: guarantees[id.index()],
            packets: own.served_packets,
            bytes: own.served_bytes,
            dropped: own.dropped,
            backlog: Backlog { packets: own.packets.into(), bytes: own.bytes },
            queue: None,
            delay: delay(own, delays),
            receiving: None,
        }
    };
    Live {
        backend: FairQueue::BPF_BACKEND.to_owned(),
        device: device.to_owned(),
        direction: TrafficDirection::Out,
        at_ns: unisono_linux::clock::now().as_nanos(),
        rate: policy.rate,
        framing: policy.framing,
        classes: tree.classes().skip(1).map(class).collect(),
    }
}

/// Adds a class's figures to its parent's, except the backlog, which the program counts in both.
fn add(above: &mut Counted, below: &Counted) {
    let served = |of: &Counted| (of.served_packets > 0).then_some(of.shortest_wait_ns);
    above.shortest_wait_ns = served(above).into_iter().chain(served(below)).min().unwrap_or(0);
    above.longest_wait_ns = above.longest_wait_ns.max(below.longest_wait_ns);
    above.waited_ns += below.waited_ns;
    above.served_packets += below.served_packets;
    above.served_bytes += below.served_bytes;
    above.dropped += below.dropped;
}

/// Returns the figures of a class's delays. Quantiles are clamped to the shortest and the longest delay,
/// because the bound of a bucket may lie outside them.
fn delay(counted: &Counted, delays: &DelayHistogram) -> Option<DelayFigures> {
    let (shortest, longest) = (counted.shortest_wait_ns, counted.longest_wait_ns);
    let part = |part| Some(delays.quantile(part)?.clamp(shortest, longest.max(shortest)));
    Some(DelayFigures {
        min_ns: shortest,
        median_ns: part(0.5)?,
        mean_ns: counted.waited_ns.checked_div(counted.served_packets)?,
        p99_ns: part(0.99)?,
        max_ns: longest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_above_has_what_all_below_it_have() {
        let policy = "rate = \"1mbit\"\n[class.a.b]\n[class.a.c]\n[class.d]";
        let policy = Policy::parse(policy).expect("it is sound");
        let mut figures = DisciplineFigures { generation: 0, classes: Vec::new() };
        for (id, class) in policy.hierarchy.classes() {
            let served = if class.name == "c" || class.name == "b" { id.index() as u64 } else { 0 };
            let counted = Counted {
                served_packets: served,
                waited_ns: 100 * served,
                shortest_wait_ns: 10 * served,
                longest_wait_ns: 1000 * served,
                ..Counted::default()
            };
            figures.classes.push((counted, DelayHistogram::default()));
        }
        let live = live("eth0", &policy, figures.clone());
        let of = |name: &str| live.classes.iter().find(|class| class.name == name).expect("it is there");
        let (b, c) = (of("b").packets, of("c").packets);
        assert_eq!(of("a").packets, b + c);
        assert_eq!(of("d").delay, None, "nothing has left");

        let index = |name: &str| policy.hierarchy.find(name).expect("it is there").index();
        let mut above = figures.classes[index("a")].0;
        for name in ["b", "c", "d"] {
            add(&mut above, &figures.classes[index(name)].0);
        }
        assert_eq!((above.shortest_wait_ns, above.longest_wait_ns), (10 * b.min(c), 1000 * b.max(c)));
        assert_eq!(above.waited_ns, 100 * (b + c));
    }
}
