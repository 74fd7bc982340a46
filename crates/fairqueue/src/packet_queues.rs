//! The packet queues of all classes: one slab, and a linked list through it for each class.
//!
//! A class holds only two numbers, the ends of its list. An arriving packet takes the node of the packet that
//! left last, so that the node is still in the cache. Nothing is allocated unless more packets wait than ever
//! before. A leaf that orders by deadline keeps its packets in the same slab, and their order in a min-max
//! heap of its own (`deadlines.rs`).

use crate::deadlines::Deadlines;
use crate::discipline::Backlog;
use crate::hierarchy::Order;
use crate::packet::Packet;
use unisono_time::Instant;
pub(crate) const NONE: u32 = u32::MAX;
/// The node that ends every list and stands for "no packet". It may be written to, so that code need not
/// branch on an empty list.
const END: u32 = 0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketQueue {
    /// The packet that leaves next. In a leaf that orders by deadline: the index of its heap.
    head: u32,
    /// The packet that arrived last, or [`END`] if none waits. In a leaf that orders by deadline: [`END`] if
    /// none waits, else any other value.
    tail: u32,
    order: Order,
}

#[derive(Clone, Debug)]
struct QueuedPacket<T> {
    /// `None` while the node is free.
    item: Option<T>,
    deadline: Instant,
    length: u32,
    flow: u32,
    next: u32,
    before: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct PacketQueues<T> {
    nodes: Vec<QueuedPacket<T>>,
    /// The node that became free last.
    free: u32,
    deadlines: Vec<Deadlines>,
}

impl PacketQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tail == END
    }
}

impl<T> PacketQueues<T> {
    pub(crate) fn new() -> Self {
        let end =
            QueuedPacket { item: None, deadline: Instant::ZERO, length: 0, flow: 0, next: END, before: END };
        Self { nodes: vec![end], free: END, deadlines: Vec::new() }
    }

    pub(crate) fn queue(&mut self, order: Order) -> PacketQueue {
        let head = match order {
            Order::Fifo => END,
            Order::Deadline => {
                self.deadlines.push(Deadlines::default());
                u32::try_from(self.deadlines.len() - 1).expect("fits because classes have numbers of 30 bits")
            }
        };
        PacketQueue { head, tail: END, order }
    }

    #[inline]
    pub(crate) fn push(&mut self, queue: &mut PacketQueue, packet: Packet<T>) {
        let Packet { length, flow, deadline, item } = packet;
        let node = QueuedPacket { item: Some(item), deadline, length, flow, next: END, before: queue.tail };
        let at = match self.free {
            END => self.grow(node),
            at => {
                let free = &mut self.nodes[at as usize];
                self.free = free.next;
                *free = node;
                at
            }
        };
        match queue.order {
            Order::Fifo => {
                self.nodes[queue.tail as usize].next = at;
                // an empty list's head is END, and END is 0
                queue.head |= at & u32::from(queue.tail == END).wrapping_neg();
            }
            Order::Deadline => self.deadlines[queue.head as usize].push(deadline, flow, at),
        }
        queue.tail = at;
    }

    #[cold]
    fn grow(&mut self, node: QueuedPacket<T>) -> u32 {
        let at = u32::try_from(self.nodes.len()).ok().filter(|at| *at != NONE);
        self.nodes.push(node);
        at.expect("fits because so many packets fill a hundred gigabytes")
    }

    /// Takes the next packet out of its list and returns its node. The node stays occupied until it is
    /// [taken](Self::take).
    #[inline]
    pub(crate) fn detach(&mut self, queue: &mut PacketQueue) -> Option<u32> {
        match queue.order {
            Order::Fifo => {
                let at = queue.head;
                if queue.is_empty() {
                    return None;
                }
                queue.head = self.nodes[at as usize].next;
                queue.tail &= u32::from(queue.head != END).wrapping_neg();
                Some(at)
            }
            Order::Deadline => self.detach_by_deadline(queue, Deadlines::pop),
        }
    }

    /// Takes the packet that would leave last out of its list, and returns its node.
    fn detach_last(&mut self, queue: &mut PacketQueue) -> Option<u32> {
        match queue.order {
            Order::Fifo => {
                let at = queue.tail;
                if queue.is_empty() {
                    return None;
                }
                queue.tail = if at == queue.head { END } else { self.nodes[at as usize].before };
                match queue.tail {
                    END => queue.head = END,
                    last => self.nodes[last as usize].next = END,
                }
                Some(at)
            }
            Order::Deadline => self.detach_by_deadline(queue, Deadlines::pop_last),
        }
    }

    fn detach_by_deadline(
        &mut self,
        queue: &mut PacketQueue,
        which: impl FnOnce(&mut Deadlines) -> Option<u32>,
    ) -> Option<u32> {
        let deadlines = &mut self.deadlines[queue.head as usize];
        let at = which(deadlines)?;
        deadlines.departed(self.nodes[at as usize].flow);
        queue.tail = if deadlines.is_empty() { END } else { at };
        Some(at)
    }

    #[inline]
    pub(crate) fn length(&self, at: u32) -> u32 {
        self.nodes[at as usize].length
    }

    /// Takes a packet that is in no list any more out of its node, and frees the node.
    #[inline]
    pub(crate) fn take(&mut self, at: u32) -> Packet<T> {
        let node = &mut self.nodes[at as usize];
        node.next = std::mem::replace(&mut self.free, at);
        let item = node.item.take().expect("present because the packet was in a line");
        Packet { length: node.length, flow: node.flow, deadline: node.deadline, item }
    }

    pub(crate) fn pop(&mut self, queue: &mut PacketQueue) -> Option<Packet<T>> {
        self.detach(queue).map(|at| self.take(at))
    }

    pub(crate) fn pop_last(&mut self, queue: &mut PacketQueue) -> Option<Packet<T>> {
        self.detach_last(queue).map(|at| self.take(at))
    }

    /// Returns the backlog of a list. Visits every packet in it.
    pub(crate) fn waiting(&self, queue: &PacketQueue) -> Backlog {
        let mut sum = Backlog::default();
        let mut add = |node: &QueuedPacket<T>| sum += Backlog { packets: 1, bytes: u64::from(node.length) };
        match queue.order {
            Order::Fifo => {
                let mut at = if queue.is_empty() { END } else { queue.head };
                while at != END {
                    add(&self.nodes[at as usize]);
                    at = self.nodes[at as usize].next;
                }
            }
            Order::Deadline => {
                let waiting = self.deadlines[queue.head as usize].waiting();
                waiting.for_each(|at| add(&self.nodes[at as usize]));
            }
        }
        sum
    }

    /// Prefetches the first packet of a list, and the last one, because the next arrival is linked to it.
    #[inline]
    pub(crate) fn fetch(&self, queue: &PacketQueue) {
        if let (Some(head), Some(tail)) =
            (self.nodes.get(queue.head as usize), self.nodes.get(queue.tail as usize))
        {
            unisono_intrinsics::prefetch(head);
            unisono_intrinsics::prefetch(tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::NO_DEADLINE;

    fn packet(flow: u32, deadline: Instant, item: u32) -> Packet<u32> {
        Packet { length: 1, flow, deadline, item }
    }

    #[test]
    fn the_earliest_deadline_leaves_first_and_no_flow_is_reordered() {
        let mut queues = PacketQueues::new();
        let mut queue = queues.queue(Order::Deadline);
        for (flow, deadline, item) in [
            (1, NO_DEADLINE, 0),
            (2, Instant::from_nanos(50), 1),
            (3, Instant::from_nanos(20), 2),
            (2, Instant::from_nanos(10), 3),
            (1, Instant::from_nanos(5), 4),
        ] {
            queues.push(&mut queue, packet(flow, deadline, item));
        }
        let order: Vec<_> = std::iter::from_fn(|| queues.pop(&mut queue).map(|packet| packet.item)).collect();
        assert_eq!(order, [2, 1, 3, 0, 4]);
    }

    #[test]
    fn what_would_leave_last_can_be_dropped_from_either_kind() {
        let mut queues = PacketQueues::new();
        for order in [Order::Fifo, Order::Deadline] {
            let mut queue = queues.queue(order);
            for item in 0..3 {
                queues.push(&mut queue, packet(item, Instant::from_nanos(item.into()), item));
            }
            assert_eq!(queues.waiting(&queue), Backlog { packets: 3, bytes: 3 });
            assert_eq!(queues.pop_last(&mut queue).expect("three wait").item, 2);
            assert_eq!(queues.pop(&mut queue).expect("two wait").item, 0);
            assert_eq!(queues.pop_last(&mut queue).expect("one waits").item, 1);
            assert!(
                queue.is_empty() && queues.pop(&mut queue).is_none() && queues.pop_last(&mut queue).is_none()
            );
            queues.push(&mut queue, packet(0, Instant::ZERO, 7));
            assert_eq!(queues.pop(&mut queue).expect("one waits").item, 7);
        }
        assert_eq!(queues.nodes.len(), 1 + 3, "places are used again");
    }
}
