//! Deficit round robin: in its turn, a class may send as many bytes as its deficit counter allows.
//!
//! Cost: constant for each packet, which is why kernels use it. Its weakness: a class waits for a whole round
//! of all classes, however many there are. A leaf's weight is its share in the whole tree. Unused bandwidth
//! goes to all classes, not to siblings first.
//!
//! Reference: Shreedhar, Varghese, "Efficient Fair Queuing using Deficit Round Robin" (SIGCOMM 1995).

use crate::discipline::{Backlog, Discipline, EnqueueError};
use crate::hierarchy::{ClassId, Hierarchy};
use crate::packet::Packet;
use std::collections::VecDeque;
use unisono_time::Instant;

#[derive(Clone, Debug)]
pub struct RoundRobin<T> {
    hierarchy: Hierarchy,
    classes: Vec<ByteTurn<T>>,
    /// Leaves with packets, in the order of their turns.
    round: VecDeque<ClassId>,
    backlog: Backlog,
}

#[derive(Clone, Debug)]
struct ByteTurn<T> {
    /// The bytes that the class may send in a round.
    quantum: f64,
    deficit: f64,
    /// Whether its turn has begun, so that this round's quantum is already in `deficit`.
    began: bool,
    waiting: VecDeque<Packet<T>>,
}

impl<T> RoundRobin<T> {
    /// Returns a discipline without packets. The class with the least share may send `min_quantum` bytes a
    /// round. Use at least the length of the longest packet, so that no class is passed over.
    pub fn new(hierarchy: Hierarchy, min_quantum: u32) -> Self {
        let all = hierarchy.shares();
        let share = |id: ClassId| if hierarchy.is_leaf(id) { all[id.index()] } else { f64::INFINITY };
        let shares: Vec<f64> = hierarchy.classes().map(|(id, _)| share(id)).collect();
        let min_share = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let turn = |share: &f64| ByteTurn {
            quantum: share / min_share * f64::from(min_quantum),
            deficit: 0.0,
            began: false,
            waiting: VecDeque::new(),
        };
        let classes = shares.iter().map(turn).collect();
        Self { hierarchy, classes, round: VecDeque::new(), backlog: Backlog::default() }
    }
}

impl<T> Discipline<T> for RoundRobin<T> {
    fn enqueue(&mut self, _now: Instant, class: ClassId, packet: Packet<T>) -> Result<(), EnqueueError> {
        if !self.hierarchy.is_leaf(class) {
            return Err(EnqueueError::NotALeaf { class: self.hierarchy.class(class).name.clone() });
        }
        self.backlog += Backlog { packets: 1, bytes: u64::from(packet.length) };
        let turn = &mut self.classes[class.index()];
        if turn.waiting.is_empty() {
            self.round.push_back(class);
        }
        turn.waiting.push_back(packet);
        Ok(())
    }

    fn finish(&mut self, _now: Instant) {}

    fn dequeue(&mut self, _now: Instant) -> Option<(ClassId, Packet<T>)> {
        loop {
            let class = *self.round.front()?;
            let turn = &mut self.classes[class.index()];
            if !turn.began {
                turn.began = true;
                turn.deficit += turn.quantum;
            }
            if let Some(packet) = turn.waiting.pop_front_if(|packet| f64::from(packet.length) <= turn.deficit)
            {
                turn.deficit -= f64::from(packet.length);
                if turn.waiting.is_empty() {
                    (turn.deficit, turn.began) = (0.0, false);
                    self.round.pop_front();
                }
                self.backlog.packets -= 1;
                self.backlog.bytes -= u64::from(packet.length);
                return Some((class, packet));
            }
            turn.began = false;
            self.round.rotate_left(1);
        }
    }

    fn dropped(&mut self) -> Option<(ClassId, Packet<T>)> {
        None
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}
