//! Assigns a processor to each rank.
//!
//! The idea: ranks that spin while they wait for each other need a processor each. Without binding, Linux may
//! put two of them on the same processor and never detect an imbalance. If there are enough processors, each
//! rank is bound to one: first to the first hardware thread of each core, then to the second ones. If there
//! are too few, the kernel balances the load better than a fixed assignment. Only processors that the
//! launcher may use are assigned, so that `taskset` can divide a machine between jobs. Reference:
//! sched_setaffinity(2).

use serde::{Deserialize, Serialize};
use unisono_linux::affinity::CpuSet;
use unisono_linux::topology::Topology;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bind {
    /// Binds each rank to a processor of its own if there are enough processors; otherwise binds no rank.
    #[default]
    Auto,
    /// Binds each rank to a processor, in turn, even if several ranks have to share one.
    Core,
    None,
}

impl Bind {
    /// Returns the processor of each of `ranks` ranks, or `None` if the kernel places the ranks.
    pub fn places(self, ranks: usize, machine: &Topology, allowed: &CpuSet) -> Option<Vec<usize>> {
        let order = order(&machine.within(allowed));
        let wanted = match self {
            Bind::Auto => ranks <= order.len(),
            Bind::Core => true,
            Bind::None => false,
        };
        (wanted && !order.is_empty()).then(|| order.iter().copied().cycle().take(ranks).collect())
    }
}

/// Returns the processors in the order of assignment: the first hardware thread of every core, then the
/// second ones, and so on.
fn order(machine: &Topology) -> Vec<usize> {
    let cores: Vec<Vec<usize>> = machine.cores().iter().map(|core| core.iter().collect()).collect();
    let max_threads = cores.iter().map(Vec::len).max().unwrap_or(0);
    (0..max_threads)
        .flat_map(|thread| cores.iter().filter_map(move |core| core.get(thread).copied()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_linux::topology::Cpu;

    /// Makes a machine with two cores of two hardware threads each: 0 and 2, 1 and 3.
    fn machine() -> Topology {
        let cpu = |number: usize| Cpu {
            number,
            package: 0,
            siblings: CpuSet::from_iter([number % 2, number % 2 + 2]),
        };
        Topology { cpus: (0..4).map(cpu).collect(), ..Topology::default() }
    }

    fn places(bind: Bind, ranks: usize, allowed: &str) -> Option<Vec<usize>> {
        bind.places(ranks, &machine(), &allowed.parse().expect("a list"))
    }

    #[test]
    fn ranks_get_cores_of_their_own_before_they_share_one() {
        assert_eq!(places(Bind::Auto, 2, "0-3"), Some(vec![0, 1]));
        assert_eq!(places(Bind::Auto, 3, "0-3"), Some(vec![0, 1, 2]));
    }

    #[test]
    fn only_what_the_launcher_may_use_is_given_out() {
        assert_eq!(places(Bind::Auto, 2, "2-3"), Some(vec![2, 3]));
        assert_eq!(places(Bind::Auto, 2, "3"), None);
    }

    #[test]
    fn too_many_ranks_are_left_to_the_kernel_unless_asked_otherwise() {
        assert_eq!(places(Bind::Auto, 5, "0-3"), None);
        assert_eq!(places(Bind::Core, 5, "0-3"), Some(vec![0, 1, 2, 3, 0]));
        assert_eq!(places(Bind::None, 1, "0-3"), None);
    }
}
