//! Fits programs that start together on this host: chooses the processors and the settings of each.

use crate::decide::{HostState, Plan, decide};
use crate::effective::{Effective, LimitedBy, effective};
use crate::partition::{ProcessorPart, partition};
use crate::program_traits::ProgramTraits;
use std::ffi::OsString;
use std::io;
use unisono_linux::load;
use unisono_linux::quota::{self, ProcessorLimits};
use unisono_linux::topology::Topology;

/// The limits and the load of this host for programs that start now.
#[derive(Clone, Debug)]
pub struct FitHost {
    pub limits: ProcessorLimits,
    pub effective: Effective,
    /// Threads of other programs that want a processor now. `None` if the kernel does not tell.
    pub others: Option<usize>,
}

/// A program, its processors and its settings.
#[derive(Clone, Debug)]
pub struct FittedProgram {
    pub command: Vec<OsString>,
    pub part: ProcessorPart,
    pub plan: Plan,
}

impl FitHost {
    pub fn read() -> io::Result<Self> {
        let limits = quota::limits()?;
        Ok(Self { effective: effective(&limits), limits, others: load::others() })
    }

    /// Fits these programs, given as pairs of a command and the traits of its file. `user` returns the
    /// current value of a variable, if it is set.
    pub fn fit(
        &self,
        programs: Vec<(Vec<OsString>, ProgramTraits)>,
        user: impl Fn(&str) -> Option<String>,
    ) -> Vec<FittedProgram> {
        let Self { limits, effective: there, others } = self;
        let count = programs.len();
        let parts = match count {
            1 => {
                vec![ProcessorPart { cpus: limits.affinity.clone(), threads: there.processors, others: 0 }]
            }
            several => partition(&Topology::read(), &limits.affinity, there.processors, several),
        };
        let fit_one = |(part, (command, traits)): (ProcessorPart, (Vec<OsString>, ProgramTraits))| {
            let limited_by = if count == 1 { there.limited_by.clone() } else { LimitedBy::Partition };
            let observed = HostState {
                limits: ProcessorLimits { affinity: part.cpus.clone(), ..limits.clone() },
                effective: Effective { processors: part.threads, limited_by },
                // strangers may run on any part, so each part expects an equal share of them
                others: others.map(|others| others.div_ceil(count) + part.others),
            };
            FittedProgram { plan: decide(&observed, &traits, &user), command, part }
        };
        parts.into_iter().zip(programs).map(fit_one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_linux::affinity::CpuSet;

    #[test]
    fn one_program_gets_all_processors_and_of_two_each_its_part_and_half_of_the_strangers() {
        let affinity: CpuSet = (0..4).collect();
        let limits = ProcessorLimits { affinity: affinity.clone(), ..ProcessorLimits::default() };
        let host = FitHost { effective: effective(&limits), limits, others: Some(3) };
        let program = || (vec!["a".into()], ProgramTraits { name: "a".into(), ..ProgramTraits::default() });
        let alone = host.fit(vec![program()], |_| None);
        assert_eq!((alone.len(), &alone[0].part.cpus), (1, &affinity));
        let two = host.fit(vec![program(), program()], |_| None);
        assert_eq!(two.len(), 2);
        for fitted in &two {
            assert_eq!((fitted.part.cpus.len(), fitted.part.threads), (2, 2), "{fitted:?}");
            // the program's two threads and its share of the two strangers want two processors
            assert!(fitted.plan.set.iter().any(|set| set.name == "OMP_WAIT_POLICY"), "{fitted:?}");
        }
    }
}
