//! Divides the processors among several programs. Each program gets its own cores if there are enough cores,
//! otherwise its own processors; if there are not even enough processors, all programs share all of them.
//!
//! So the threads of one program, which wait for each other, run at the same time, on processors that no
//! other of these programs uses. Peter and others call this space partitioning (the paper in the crate's
//! documentation, section 3.6). It is the cheapest solution while the programs' demands do not change.

use unisono_linux::affinity::CpuSet;
use unisono_linux::topology::Topology;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessorPart {
    pub cpus: CpuSet,
    /// The number of threads that the program should start: at least 1, at most one for each of its
    /// processors.
    pub threads: usize,
    /// The number of threads of the other programs that may run on the same processors.
    pub others: usize,
}

/// Divides the processors `allowed`, and `effective` threads in all, among `programs` programs (at least
/// one).
pub fn partition(
    machine: &Topology,
    allowed: &CpuSet,
    effective: usize,
    programs: usize,
) -> Vec<ProcessorPart> {
    let cores = machine.within(allowed).cores();
    let singles: Vec<CpuSet> = allowed.iter().map(CpuSet::single).collect();
    // if the machine does not describe all allowed processors, they are divided by their numbers
    let described = cores.iter().map(CpuSet::len).sum::<usize>() == allowed.len();
    let units = if described && programs <= cores.len() { cores } else { singles };
    if programs > units.len() {
        let share = |index| (effective / programs + usize::from(index < effective % programs)).max(1);
        let threads: Vec<usize> = (0..programs).map(share).collect();
        let all: usize = threads.iter().sum();
        let part = |threads| ProcessorPart { cpus: allowed.clone(), threads, others: all - threads };
        return threads.into_iter().map(part).collect();
    }
    let mut units = units.into_iter();
    let left = units.len();
    let mut parts: Vec<ProcessorPart> = (0..programs)
        .map(|index| {
            let count = left / programs + usize::from(index < left % programs);
            let cpus = units.by_ref().take(count).flat_map(|unit| unit.iter().collect::<Vec<_>>()).collect();
            ProcessorPart { cpus, threads: 1, others: 0 }
        })
        .collect();
    // each further thread goes to the part with the fewest threads per processor
    for _ in programs..effective {
        let room = parts.iter_mut().filter(|part| part.threads < part.cpus.len());
        let Some(next) = room.min_by_key(|part| part.threads * CpuSet::LIMIT / part.cpus.len()) else {
            break;
        };
        next.threads += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use unisono_linux::topology::Cpu;

    /// Returns a machine whose cores have `width` hardware threads, numbered as by Linux: first the first
    /// hardware thread of every core.
    fn machine(cores: usize, width: usize) -> Topology {
        let siblings = |core: usize| (0..width).map(|thread| core + thread * cores).collect::<CpuSet>();
        let cpu = |number| Cpu { number, package: 0, siblings: siblings(number % cores) };
        Topology { cpus: (0..cores * width).map(cpu).collect(), ..Topology::default() }
    }

    fn words(parts: &[ProcessorPart]) -> Vec<String> {
        parts.iter().map(|part| format!("{} on {} beside {}", part.threads, part.cpus, part.others)).collect()
    }

    #[test]
    fn programs_get_whole_cores_while_there_are_enough() {
        let all: CpuSet = (0..8).collect();
        assert_eq!(
            words(&partition(&machine(4, 2), &all, 8, 2)),
            ["4 on 0-1,4-5 beside 0", "4 on 2-3,6-7 beside 0"]
        );
        assert_eq!(words(&partition(&machine(4, 2), &all, 8, 3))[0], "4 on 0-1,4-5 beside 0");
        assert_eq!(
            words(&partition(&machine(2, 1), &(0..2).collect(), 2, 2)),
            ["1 on 0 beside 0", "1 on 1 beside 0"]
        );
    }

    #[test]
    fn a_quota_parts_the_threads_too() {
        let all: CpuSet = (0..8).collect();
        assert_eq!(words(&partition(&machine(8, 1), &all, 3, 2)), ["2 on 0-3 beside 0", "1 on 4-7 beside 0"]);
    }

    #[test]
    fn more_programs_than_processors_share_all() {
        let all: CpuSet = (0..2).collect();
        assert_eq!(words(&partition(&machine(2, 1), &all, 2, 3)), vec!["1 on 0-1 beside 2"; 3]);
    }

    proptest! {
        #[test]
        fn parts_are_disjoint_and_sum_up_to_the_whole(
            cores in 1_usize..12, width in 1_usize..3, seed in proptest::collection::vec(any::<bool>(), 24),
            effective in 1_usize..24, programs in 1_usize..30,
        ) {
            let machine = machine(cores, width);
            let mut allowed: CpuSet = (0..cores * width).filter(|cpu| seed[*cpu]).collect();
            if allowed.is_empty() {
                allowed.insert(0);
            }
            let effective = effective.min(allowed.len());
            let parts = partition(&machine, &allowed, effective, programs);
            prop_assert_eq!(parts.len(), programs);
            prop_assert_eq!(parts.iter().map(|part| part.threads).sum::<usize>(), effective.max(programs));
            let union: BTreeSet<usize> = parts.iter().flat_map(|part| part.cpus.iter()).collect();
            prop_assert_eq!(union.into_iter().collect::<CpuSet>(), allowed.clone());
            for part in &parts {
                prop_assert!((1..=part.cpus.len()).contains(&part.threads));
            }
            if programs <= allowed.len() {
                prop_assert_eq!(parts.iter().map(|part| part.cpus.len()).sum::<usize>(), allowed.len());
            }
        }
    }
}
