//! Holds classes: a class at its ceiling is not served for a while. Its packets wait, and its siblings go on.
//!
//! A held class leaves the queue of its parent and keeps its tag. When it is released, it gets the start tag
//! `max(virtual time, tag)`, like a class that was idle. So it does not catch up on the service that it
//! missed. A class whose children are all held does not want service itself. Cost: the same as when the
//! class's last packet is dropped.

use super::{INNER, NONE, Scheduler};
use crate::hierarchy::ClassId;

impl<T> Scheduler<T> {
    /// Holds a class: until [`release`](Self::release), no packet of the class or of a class below it is
    /// chosen. A packet that is in service is served to its end. The root cannot be held.
    pub fn hold(&mut self, class: ClassId) {
        let slot = self.slots[class.index()];
        let child = self.child(slot);
        if child.parent == NONE || std::mem::replace(&mut child.held, true) || !child.busy {
            return;
        }
        if let Some(parent) = self.stop_waiting(slot) {
            self.stop_idle_ancestors(parent);
        }
    }

    pub fn release(&mut self, class: ClassId) {
        let slot = self.slots[class.index()];
        let child = self.child(slot);
        if std::mem::take(&mut child.held) && !child.busy && self.has_more(slot) {
            self.wake(slot);
        }
    }

    pub fn is_held(&self, class: ClassId) -> bool {
        let slot = self.slots[class.index()];
        match slot & INNER {
            0 => self.leaves[slot as usize].child.held,
            _ => self.inner[(slot & !INNER) as usize].child.held,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Backlog, ClassId, ClassSpec, Discipline, Hierarchy, Packet, Scheduler};
    use proptest::prelude::*;
    use unisono_time::Instant;

    fn tree() -> Hierarchy {
        let leaf =
            |name: &str, weight: &str| ClassSpec::new(name).weighing(weight.parse().expect("a weight"));
        let video = leaf("video", "3").with([leaf("live", "1"), leaf("stored", "2")]);
        Hierarchy::new(ClassSpec::new("link").with([video, leaf("web", "1"), leaf("mail", "2")]))
            .expect("unique names")
    }

    fn named(scheduler: &Scheduler<u32>, name: &str) -> ClassId {
        scheduler.hierarchy().find(name).expect("it is in the tree")
    }

    #[test]
    fn a_class_that_is_held_waits_and_then_goes_on_beside_its_siblings() {
        let mut scheduler = Scheduler::new(tree());
        let [live, web, video] = ["live", "web", "video"].map(|name| named(&scheduler, name));
        for item in 0..4 {
            scheduler.enqueue(Instant::ZERO, live, Packet::new(100, item)).expect("a leaf");
            scheduler.enqueue(Instant::ZERO, web, Packet::new(100, 10 + item)).expect("a leaf");
        }
        scheduler.hold(video);
        for item in 10..13 {
            assert_eq!(scheduler.dequeue(Instant::ZERO).expect("web waits").1.item, item);
        }
        scheduler.release(video);
        // web's last start tag is ahead of the virtual time by its packet in service; video restarts from the
        // virtual time
        let order: Vec<u32> = std::iter::from_fn(|| Some(scheduler.dequeue(Instant::ZERO)?.1.item)).collect();
        assert_eq!(order, [0, 1, 2, 13, 3]);
    }

    #[test]
    fn while_all_that_waits_is_held_nothing_is_served() {
        let mut scheduler = Scheduler::new(tree());
        let [live, video] = ["live", "video"].map(|name| named(&scheduler, name));
        scheduler.hold(live);
        scheduler.enqueue(Instant::ZERO, live, Packet::new(100, 1)).expect("a leaf");
        assert!(scheduler.dequeue(Instant::ZERO).is_none() && scheduler.is_held(live));
        assert_eq!(scheduler.backlog(), Backlog { packets: 1, bytes: 100 });
        scheduler.hold(video);
        scheduler.release(live);
        assert!(scheduler.dequeue(Instant::ZERO).is_none());
        scheduler.release(video);
        assert_eq!(scheduler.dequeue(Instant::ZERO).expect("nothing is held").1.item, 1);
        // in service, then held: the next packet waits
        scheduler.enqueue(Instant::ZERO, live, Packet::new(100, 2)).expect("a leaf");
        scheduler.hold(live);
        assert!(scheduler.dequeue(Instant::ZERO).is_none());
        scheduler.release(live);
        assert_eq!(scheduler.dequeue(Instant::ZERO).expect("nothing is held").1.item, 2);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Enqueue(usize, u32),
        Dequeue,
        Finish,
        Hold(usize),
        Release(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_usize..4, 1_u32..2000).prop_map(|(class, length)| Step::Enqueue(class, length)),
            4 => Just(Step::Dequeue),
            1 => Just(Step::Finish),
            1 => (0_usize..5).prop_map(Step::Hold),
            1 => (0_usize..5).prop_map(Step::Release),
        ]
    }

    proptest! {
        #[test]
        fn nothing_held_is_served_nothing_else_is_kept_back_and_nothing_is_lost(
            steps in proptest::collection::vec(step(), 1..200),
        ) {
            let mut scheduler = Scheduler::new(tree());
            let classes = ["live", "stored", "web", "mail", "video"].map(|name| named(&scheduler, name));
            let mut held = [false; 5];
            let mut waiting = [0_u32; 4];
            let may = |leaf: usize, held: &[bool; 5]| !(held[leaf] || (leaf < 2 && held[4]));
            for step in steps {
                match step {
                    Step::Enqueue(leaf, length) => {
                        scheduler.enqueue(Instant::ZERO, classes[leaf], Packet::new(length, 0)).expect("a leaf");
                        waiting[leaf] += 1;
                    }
                    Step::Finish => scheduler.finish(Instant::ZERO),
                    Step::Hold(class) => { scheduler.hold(classes[class]); held[class] = true; }
                    Step::Release(class) => { scheduler.release(classes[class]); held[class] = false; }
                    Step::Dequeue => match scheduler.dequeue(Instant::ZERO) {
                        Some((class, _)) => {
                            let leaf = classes.iter().position(|one| *one == class).expect("a leaf");
                            prop_assert!(may(leaf, &held), "{leaf} is held");
                            waiting[leaf] -= 1;
                        }
                        None => prop_assert!((0..4).all(|leaf| waiting[leaf] == 0 || !may(leaf, &held))),
                    },
                }
            }
            for class in classes {
                scheduler.release(class);
            }
            let left = std::iter::from_fn(|| scheduler.dequeue(Instant::ZERO)).count();
            prop_assert_eq!(left, waiting.iter().sum::<u32>() as usize);
        }
    }
}
