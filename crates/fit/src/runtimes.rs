//! The table of the environment variables from which runtimes read their number of threads, with the
//! processors that each runtime counts if its variable is not set.
//!
//! A variable affects only the runtime that reads it, and a program may load a runtime later or start
//! programs of other runtimes. So all variables of the table are considered, whatever the program's file
//! shows. A variable is set only if its runtime would count too many processors. docs/fit.md has the same
//! table with the versions that were tried, and the runtimes without a variable.
//!
//! These variables are not in the table on purpose: `UV_THREADPOOL_SIZE` (libuv: always four threads, which
//! mostly wait for disks and names), `MKL_DOMAIN_NUM_THREADS` (would override numbers that a program sets by
//! call), `JULIA_NUM_THREADS` and `MC_CORES` (the default is one thread, or two processes),
//! `JAVA_TOOL_OPTIONS` (Java prints it on standard error).

use unisono_linux::quota::ProcessorLimits;

/// A variable of a runtime that a program, or another program that it starts, may load.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeVariable {
    pub name: &'static str,
    pub runtime: &'static str,
    pub(crate) counts: CountedProcessors,
    form: ValueForm,
}

/// The processors that a runtime counts by default. Runtimes that also read a quota are in the table as if
/// they did not: which quotas they read depends on the version, and the variable has the number that they
/// would count anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedProcessors {
    /// The processors of the affinity (and so of the cpuset), without regard to a quota.
    Affinity,
    HalfOfAffinity,
    Machine,
}

impl CountedProcessors {
    pub(crate) fn count(self, limits: &ProcessorLimits) -> usize {
        match self {
            CountedProcessors::Affinity => limits.affinity.len(),
            CountedProcessors::HalfOfAffinity => limits.affinity.len() / 2,
            CountedProcessors::Machine => limits.online,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueForm {
    Number,
    /// A number up to a limit, because the runtime refuses a larger number, or never starts more threads by
    /// itself.
    NumberUpTo(usize),
    /// Flags of the Erlang emulator: the number of schedulers, and that they sleep at once if they have
    /// nothing to do.
    ErlangFlags,
}

impl RuntimeVariable {
    pub fn value(&self, processors: usize) -> String {
        match self.form {
            ValueForm::Number => processors.to_string(),
            ValueForm::NumberUpTo(limit) => processors.min(limit).to_string(),
            ValueForm::ErlangFlags => {
                format!("+S {processors}:{processors} +sbwt none +sbwtdcpu none +sbwtdio none")
            }
        }
    }
}

const fn affinity(name: &'static str, runtime: &'static str) -> RuntimeVariable {
    RuntimeVariable { name, runtime, counts: CountedProcessors::Affinity, form: ValueForm::Number }
}

const fn machine(name: &'static str, runtime: &'static str) -> RuntimeVariable {
    RuntimeVariable { name, runtime, counts: CountedProcessors::Machine, form: ValueForm::Number }
}

/// All variables that are set in the same way for all programs. `GOMAXPROCS` is not here, because a Go
/// program that counts right by itself must not get it.
pub const RUNTIME_VARIABLES: &[RuntimeVariable] = &[
    affinity("OMP_NUM_THREADS", "OpenMP (GNU, LLVM, Intel), PyTorch, R, Octave, nproc"),
    affinity("OPENBLAS_NUM_THREADS", "OpenBLAS"),
    affinity("MKL_NUM_THREADS", "MKL"),
    affinity("BLIS_NUM_THREADS", "BLIS"),
    // without this variable, NumExpr uses OMP_NUM_THREADS, and without that variable at most 16 threads;
    // NumExpr refuses more than 64
    RuntimeVariable { form: ValueForm::NumberUpTo(16), ..machine("NUMEXPR_NUM_THREADS", "NumExpr") },
    affinity("NUMBA_NUM_THREADS", "Numba"),
    affinity("LOKY_MAX_CPU_COUNT", "joblib and loky"),
    machine("PYTHON_CPU_COUNT", "Python since 3.13"),
    affinity("TF_NUM_INTRAOP_THREADS", "TensorFlow, inside an operation"),
    affinity("TF_NUM_INTEROP_THREADS", "TensorFlow, between operations"),
    affinity("POLARS_MAX_THREADS", "Polars"),
    affinity("OPENCV_FOR_THREADS_NUM", "OpenCV"),
    affinity("ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS", "ITK and SimpleITK"),
    affinity("RAYON_NUM_THREADS", "Rayon"), // older versions, with num_cpus; newer ones see quotas
    affinity("TOKIO_WORKER_THREADS", "Tokio"),
    machine("JULIA_CPU_THREADS", "Julia"),
    RuntimeVariable {
        counts: CountedProcessors::HalfOfAffinity,
        ..affinity("R_DATATABLE_NUM_THREADS", "data.table in R")
    },
    affinity("RCPP_PARALLEL_NUM_THREADS", "RcppParallel in R"),
    // the flags in this variable come before the flags of the command line, so the latter prevail
    RuntimeVariable { form: ValueForm::ErlangFlags, ..affinity("ERL_AFLAGS", "Erlang and Elixir") },
    affinity("DOTNET_PROCESSOR_COUNT", ".NET"),
    machine("LLAMA_ARG_THREADS", "llama.cpp"),
    machine("PYTEST_XDIST_AUTO_NUM_WORKERS", "pytest-xdist with -n auto"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_variable_is_there_once_and_the_guide_has_it_with_its_form() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fit.md");
        let guide = std::fs::read_to_string(guide).expect("the guide");
        let mut names = BTreeSet::new();
        for variable in RUNTIME_VARIABLES {
            assert!(names.insert(variable.name), "{} twice", variable.name);
            let cell = format!("`{}`", variable.name);
            assert!(guide.lines().any(|line| line.starts_with('|') && line.contains(&cell)), "{cell}");
        }
        assert!(names.len() > 20);
    }

    #[test]
    fn values_are_what_each_runtime_reads() {
        let value = |name: &str, processors| {
            let one = RUNTIME_VARIABLES.iter().find(|one| one.name == name).expect("in the table");
            one.value(processors)
        };
        assert_eq!(value("OMP_NUM_THREADS", 24), "24");
        assert_eq!(value("NUMEXPR_NUM_THREADS", 24), "16");
        assert_eq!(value("ERL_AFLAGS", 2), "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none");
    }
}
