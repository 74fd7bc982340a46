//! Shares of a processor: quanta instead of packets, microseconds instead of bytes.
//!
//! A runnable program has one quantum waiting in its class. After it has run, it is charged the time that it
//! used (less than the quantum if it went to sleep). Start-time fair queuing does not need to know that time
//! in advance. The rest is as with packets: weights, nested classes, and siblings that share by weight the
//! time that an idle class leaves unused.
//!
//! Reference: Goyal, Guo, Vin, "A hierarchical CPU scheduler for multimedia operating systems" (OSDI 1996),
//! the scheduler of QLinux.

use crate::discipline::{Discipline, EnqueueError};
use crate::hierarchy::{ClassId, Hierarchy};
use crate::packet::Packet;
use crate::scheduler::{ChangeError, Changes, Scheduler};
use unisono_time::Instant;

/// A processor whose time is shared between runnable programs.
///
/// ```
/// use unisono_fairqueue::{ClassSpec, Hierarchy, Processor, Wants};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let programs = ClassSpec::new("cpu")
///     .with([ClassSpec::new("solver").weighing("2".parse()?), ClassSpec::new("backup")]);
/// let mut cpu = Processor::new(Hierarchy::new(programs)?, 1000);
/// let classes = ["solver", "backup"].map(|name| cpu.shares().hierarchy().find(name));
/// for class in classes.into_iter().flatten() {
///     cpu.wake(class)?;
/// }
/// for _ in 0..30 {
///     let (_, quantum) = cpu.dispatch().ok_or("a program is runnable")?;
///     cpu.ran(quantum, Wants::More);
/// }
/// let used = classes.map(|class| class.map_or(0, |class| cpu.shares().served(class).bytes));
/// assert_eq!(used, [20_000, 10_000]); // microseconds
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Processor {
    shares: Scheduler<()>,
    quantum: u32,
    runnable: Vec<bool>,
    running: Option<ClassId>,
}

impl Processor {
    /// Returns a processor without runnable programs. `quantum` is in microseconds, from 1 to
    /// [`Packet::MAX_LENGTH`].
    pub fn new(hierarchy: Hierarchy, quantum: u32) -> Self {
        let runnable = vec![false; hierarchy.classes().count()];
        let quantum = quantum.clamp(1, Packet::<()>::MAX_LENGTH);
        Self { shares: Scheduler::new(hierarchy), quantum, runnable, running: None }
    }

    /// Makes the program of a leaf runnable. Fails if the class has children.
    pub fn wake(&mut self, class: ClassId) -> Result<(), EnqueueError> {
        if !std::mem::replace(&mut self.runnable[class.index()], true) && self.running != Some(class) {
            let woken = self.shares.enqueue(Instant::ZERO, class, Packet::new(self.quantum, ()));
            self.runnable[class.index()] = woken.is_ok();
            woken?;
        }
        Ok(())
    }

    /// Begins the next quantum. Returns the class to run, and the quantum in microseconds.
    pub fn dispatch(&mut self) -> Option<(ClassId, u32)> {
        let (class, _) = self.shares.dequeue(Instant::ZERO)?;
        self.running = Some(class);
        Some((class, self.quantum))
    }

    /// Ends the quantum after `used` microseconds; `wants` says whether the program stays runnable.
    pub fn ran(&mut self, used: u32, wants: Wants) {
        let Some(class) = self.running.take() else { return };
        self.shares.charge(used.min(Packet::<()>::MAX_LENGTH));
        self.runnable[class.index()] = wants == Wants::More;
        if wants == Wants::More {
            self.shares
                .enqueue(Instant::ZERO, class, Packet::new(self.quantum, ()))
                .expect("it was served before, so it is a leaf");
        }
        self.shares.finish(Instant::ZERO);
    }

    /// Does what [`ran`](Self::ran) with [`Wants::More`] and then [`dispatch`](Self::dispatch) do, at less
    /// cost, if no other program is runnable: the same class runs again. Otherwise returns false and does not
    /// end the quantum; the caller then calls those two methods.
    #[inline]
    pub fn go_on(&mut self, used: u32) -> bool {
        if self.running.is_none() {
            return false;
        }
        self.shares.charge(used.min(Packet::<()>::MAX_LENGTH));
        self.shares.serve_again(self.quantum)
    }

    /// Changes the classes ([`Scheduler::apply`]). Runnable programs of classes that are still leaves stay
    /// runnable, and the service that these classes have received is kept; a program whose leaf is gone is
    /// not runnable any more. The leads of classes over their siblings, of at most one quantum, are lost.
    ///
    /// # Panics
    /// A quantum runs; end it first.
    pub fn apply(&mut self, hierarchy: Hierarchy) -> Result<Changes, ChangeError> {
        assert!(self.running.is_none(), "a quantum runs");
        let mut runnable = Vec::new();
        while let Some((class, _)) = self.dispatch() {
            runnable.push(self.shares.hierarchy().class(class).name.clone());
            self.ran(0, Wants::Sleep);
        }
        let changed = self.shares.apply(hierarchy);
        self.runnable = vec![false; self.shares.hierarchy().classes().count()];
        for name in runnable {
            let class = self.shares.hierarchy().find(&name);
            if let Some(class) = class.filter(|class| self.shares.hierarchy().is_leaf(*class)) {
                self.wake(class).expect("a leaf");
            }
        }
        changed
    }

    /// Returns the scheduler, which has the service that each class has received, in microseconds.
    pub fn shares(&self) -> &Scheduler<()> {
        &self.shares
    }
}

/// Whether a program stays runnable after its quantum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// The program stays runnable.
    More,
    /// The program sleeps until it is woken.
    Sleep,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hierarchy::ClassSpec;
    use proptest::prelude::*;

    /// Returns a processor with three leaves, two of which share an inner class.
    fn nested() -> (Processor, [ClassId; 3]) {
        let leaf =
            |name: &str, weight: &str| ClassSpec::new(name).weighing(weight.parse().expect("a weight"));
        let both = leaf("both", "2").with([leaf("a", "3"), leaf("b", "1")]);
        let tree = Hierarchy::new(ClassSpec::new("all").with([both, leaf("c", "5")]));
        let tree = tree.expect("names are unique");
        let ids = ["a", "b", "c"].map(|name| tree.find(name).expect("it is there"));
        (Processor::new(tree, 7), ids)
    }

    proptest! {
        #[test]
        fn who_goes_on_alone_gets_what_it_would_have_got(
            steps in prop::collection::vec((prop::option::weighted(0.2, 0..3_usize), 0..20_u32, 0..8_u32), 1..200),
        ) {
            let ((mut fast, ids), (mut slow, _)) = (nested(), nested());
            for (woken, used, sleeps) in steps {
                if let Some(woken) = woken {
                    fast.wake(ids[woken]).expect("a leaf");
                    slow.wake(ids[woken]).expect("a leaf");
                }
                let wants = if sleeps == 0 { Wants::Sleep } else { Wants::More };
                slow.ran(used, wants);
                let mut next = slow.dispatch();
                let before = fast.running;
                if wants == Wants::More && fast.go_on(used) {
                    prop_assert_eq!(next.take().map(|(class, _)| class), before);
                } else {
                    fast.ran(used, wants);
                    prop_assert_eq!(fast.dispatch(), next);
                }
                prop_assert_eq!(fast.shares.backlog(), slow.shares.backlog());
                for id in ids {
                    prop_assert_eq!(fast.shares.served(id), slow.shares.served(id));
                }
            }
        }
    }

    #[test]
    fn new_weights_hold_from_the_change_on_and_no_program_stops() {
        let tree = |weights: [&str; 2]| {
            let leaf = |name, weight: &str| ClassSpec::new(name).weighing(weight.parse().expect("a weight"));
            let leaves = [leaf("a", weights[0]), leaf("b", weights[1])];
            Hierarchy::new(ClassSpec::new("all").with(leaves)).expect("names are unique")
        };
        let run = |processor: &mut Processor, times| {
            let mut quanta = [0, 0];
            for _ in 0..times {
                let (class, quantum) = processor.dispatch().expect("both want to run");
                quanta[class.index() - 1] += 1;
                processor.ran(quantum, Wants::More);
            }
            quanta
        };
        let mut processor = Processor::new(tree(["3", "1"]), 1000);
        let [a, b] = ["a", "b"].map(|name| processor.shares().hierarchy().find(name).expect("it is there"));
        processor.wake(a).expect("a leaf");
        processor.wake(b).expect("a leaf");
        assert_eq!(run(&mut processor, 400), [300, 100]);
        processor.apply(tree(["1", "4"])).expect("nothing waits");
        assert_eq!(run(&mut processor, 500), [100, 400]);
        assert_eq!(processor.shares().served(a).bytes, 400_000, "the account goes on");
        // a leaf that is gone is not runnable, and the other one is alone
        processor
            .apply(Hierarchy::new(ClassSpec::new("all").with([ClassSpec::new("b")])).expect("one"))
            .expect("moved");
        let b = processor.shares().hierarchy().find("b").expect("it is there");
        assert_eq!(processor.dispatch().map(|(class, _)| class), Some(b));
        processor.ran(1000, Wants::Sleep);
        assert_eq!(processor.dispatch(), None);
    }

    #[test]
    fn time_goes_by_weight_even_if_one_uses_half_of_its_quanta() {
        let leaf =
            |name: &str, weight: &str| ClassSpec::new(name).weighing(weight.parse().expect("a weight"));
        let tree = ClassSpec::new("processor").with([leaf("a", "6"), leaf("b", "3"), leaf("c", "1")]);
        let tree = Hierarchy::new(tree).expect("names are unique");
        let ids = ["a", "b", "c"].map(|name| tree.find(name).expect("it is there"));
        let mut processor = Processor::new(tree, 10_000);
        for id in ids {
            processor.wake(id).expect("a leaf");
            processor.wake(id).expect("waking twice changes nothing");
        }
        for _ in 0..3000 {
            let (class, quantum) = processor.dispatch().expect("all want to run");
            processor.ran(if class == ids[0] { quantum / 2 } else { quantum }, Wants::More);
        }
        let served = ids.map(|id| processor.shares().served(id).bytes as f64);
        assert!(
            (served[0] / served[1] - 2.0).abs() < 0.01 && (served[1] / served[2] - 3.0).abs() < 0.02,
            "{served:?}"
        );
        // programs that sleep are not served, and the last runnable one gets every quantum
        while let Some((class, quantum)) = processor.dispatch() {
            processor.ran(quantum, if class == ids[0] { Wants::More } else { Wants::Sleep });
            if class == ids[0] && !processor.runnable[ids[1].index()] && !processor.runnable[ids[2].index()] {
                break;
            }
        }
        assert_eq!(processor.dispatch().map(|(class, _)| class), Some(ids[0]));
    }
}
