//! Which programs there are: one line each.

use super::{Kind, Program};
use std::path::Path;

/// A program that is built from source on the user's machine.
#[derive(Debug)]
pub struct Peer {
    pub name: &'static str,
    /// What it is for.
    pub kind: Kind,
    /// Which compilers will do, the best first.
    pub compilers: &'static [CompilerName],
    /// Flags beside the common ones.
    pub flags: &'static [&'static str],
    pub source: Source,
    /// How its runtime is told to wait.
    pub environment: &'static [(&'static str, &'static str)],
    /// What to type when it cannot be built.
    pub remedy: &'static str,
}

/// A file that is compiled.
#[derive(Debug)]
pub struct Source {
    /// Its name in `crates/study/peers`.
    pub file: &'static str,
    /// What it holds.
    pub text: &'static str,
}

/// A compiler by the name under which it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompilerName {
    Gcc,
    Gxx,
    Clang,
    Clangxx,
    /// MPICH's wrapper of a C compiler.
    MpiccMpich,
    MpiccOpenmpi,
}

/// Headers that sources include; they are part of every cache key.
pub const HEADERS: &[Source] = &[
    Source { file: "bench.h", text: include_str!("../../peers/bench.h") },
    Source { file: "computation.h", text: include_str!("../../peers/computation.h") },
    Source { file: "meter.h", text: include_str!("../../peers/meter.h") },
    Source { file: "openmp.h", text: include_str!("../../peers/openmp.h") },
    Source { file: "options.h", text: include_str!("../../peers/options.h") },
];

/// Variables through which a user's environment would change how a peer waits or where it runs.
pub const OPENMP_VARIABLES: &[&str] = &[
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "OMP_DYNAMIC",
    "OMP_THREAD_LIMIT",
    "OMP_STACKSIZE",
    "GOMP_SPINCOUNT",
    "GOMP_CPU_AFFINITY",
    "KMP_BLOCKTIME",
    "KMP_LIBRARY",
    "KMP_AFFINITY",
    "KMP_SETTINGS",
    "KMP_HW_SUBSET",
    "KMP_FORKJOIN_BARRIER_PATTERN",
    "KMP_PLAIN_BARRIER_PATTERN",
];

const BARRIER_PTHREAD: Source =
    Source { file: "barrier_pthread.c", text: include_str!("../../peers/barrier_pthread.c") };
const BARRIER_CXX: Source =
    Source { file: "barrier_cxx.cpp", text: include_str!("../../peers/barrier_cxx.cpp") };
const BARRIER_OPENMP: Source =
    Source { file: "barrier_openmp.c", text: include_str!("../../peers/barrier_openmp.c") };

const STENCIL: Source =
    Source { file: "stencil_openmp.c", text: include_str!("../../peers/stencil_openmp.c") };
const CLUSTERING: Source =
    Source { file: "clustering_openmp.c", text: include_str!("../../peers/clustering_openmp.c") };

const GHOST: Source = Source { file: "ghost.c", text: include_str!("../../peers/ghost.c") };

const GCC: &[CompilerName] = &[CompilerName::Gcc];
const CLANG: &[CompilerName] = &[CompilerName::Clang];
const ANY_C: &[CompilerName] = &[CompilerName::Gcc, CompilerName::Clang];
const ANY_CXX: &[CompilerName] = &[CompilerName::Gxx, CompilerName::Clangxx];
const OPENMP: &[&str] = &["-fopenmp"];
const INSTALL_GCC: &str = "apt install gcc libc6-dev";
const INSTALL_GXX: &str = "apt install g++";
const INSTALL_CLANG: &str = "apt install clang libomp-dev";
const ACTIVE: &[(&str, &str)] = &[("OMP_WAIT_POLICY", "active")];
const PASSIVE: &[(&str, &str)] = &[("OMP_WAIT_POLICY", "passive")];
const LIBOMP_ACTIVE: &[(&str, &str)] = &[("OMP_WAIT_POLICY", "active"), ("KMP_BLOCKTIME", "infinite")];
const LIBOMP_PASSIVE: &[(&str, &str)] = &[("OMP_WAIT_POLICY", "passive"), ("KMP_BLOCKTIME", "0")];

/// All peers that are built.
pub const PEERS: &[Peer] = &[
    Peer {
        name: "pthread",
        kind: Kind::Barrier,
        compilers: ANY_C,
        flags: &["-pthread"],
        source: BARRIER_PTHREAD,
        environment: &[],
        remedy: INSTALL_GCC,
    },
    Peer {
        name: "cxx",
        kind: Kind::Barrier,
        compilers: ANY_CXX,
        flags: &["-std=c++20", "-pthread"],
        source: BARRIER_CXX,
        environment: &[],
        remedy: INSTALL_GXX,
    },
    libgomp("libgomp", Kind::Barrier, BARRIER_OPENMP, &[]),
    libgomp("libgomp-active", Kind::Barrier, BARRIER_OPENMP, ACTIVE),
    libgomp("libgomp-passive", Kind::Barrier, BARRIER_OPENMP, PASSIVE),
    libomp("libomp", Kind::Barrier, BARRIER_OPENMP, &[]),
    libomp("libomp-active", Kind::Barrier, BARRIER_OPENMP, LIBOMP_ACTIVE),
    libomp("libomp-passive", Kind::Barrier, BARRIER_OPENMP, LIBOMP_PASSIVE),
    libgomp("stencil-libgomp", Kind::Kernel, STENCIL, &[]),
    libgomp("stencil-libgomp-passive", Kind::Kernel, STENCIL, PASSIVE),
    libomp("stencil-libomp", Kind::Kernel, STENCIL, &[]),
    libomp("stencil-libomp-passive", Kind::Kernel, STENCIL, LIBOMP_PASSIVE),
    libgomp("clustering-libgomp", Kind::Kernel, CLUSTERING, &[]),
    libgomp("clustering-libgomp-passive", Kind::Kernel, CLUSTERING, PASSIVE),
    libomp("clustering-libomp", Kind::Kernel, CLUSTERING, &[]),
    libomp("clustering-libomp-passive", Kind::Kernel, CLUSTERING, LIBOMP_PASSIVE),
    Peer {
        name: "ghost-mpich",
        kind: Kind::Exchange,
        compilers: &[CompilerName::MpiccMpich],
        flags: &[],
        source: GHOST,
        environment: &[],
        remedy: "apt install mpich libmpich-dev",
    },
    Peer {
        name: "ghost-openmpi",
        kind: Kind::Exchange,
        compilers: &[CompilerName::MpiccOpenmpi],
        flags: &[],
        source: GHOST,
        environment: &[],
        remedy: "apt install openmpi-bin libopenmpi-dev",
    },
];

type Environment = &'static [(&'static str, &'static str)];

const fn libgomp(name: &'static str, kind: Kind, source: Source, environment: Environment) -> Peer {
    Peer { name, kind, compilers: GCC, flags: OPENMP, source, environment, remedy: INSTALL_GCC }
}

const fn libomp(name: &'static str, kind: Kind, source: Source, environment: Environment) -> Peer {
    Peer { name, kind, compilers: CLANG, flags: OPENMP, source, environment, remedy: INSTALL_CLANG }
}

/// Programs that need no compiler: they are in `unisono` itself.
const OWN: &[(&str, Kind, &[&str])] = &[
    ("unisono", Kind::Barrier, &["barrier", "--json"]),
    ("std", Kind::Barrier, &["barrier", "--json", "--implementation", "std"]),
    ("stencil-rayon", Kind::Kernel, &["workload", "rayon-stencil"]),
    ("stencil-unisono", Kind::Kernel, &["workload", "stencil"]),
    ("clustering-unisono", Kind::Kernel, &["workload", "clustering"]),
    ("bursts-unisono", Kind::Requests, &["workload", "bursts"]),
];

/// Programs that need no compiler.
#[must_use]
pub fn own(unisono: &Path) -> Vec<Program> {
    let program = |(name, kind, arguments): &(&str, Kind, &[&str])| {
        Program::own(unisono, name, *kind, arguments.iter().map(|word| (*word).to_owned()).collect())
    };
    OWN.iter().map(program).collect()
}

/// Names and kinds of all.
fn all() -> impl Iterator<Item = (&'static str, Kind)> {
    OWN.iter().map(|(name, kind, _)| (*name, *kind)).chain(PEERS.iter().map(|peer| (peer.name, peer.kind)))
}

/// All names, for messages.
pub fn names() -> impl Iterator<Item = &'static str> {
    all().map(|(name, _)| name)
}

/// The names of implementations of a barrier.
pub fn barriers() -> impl Iterator<Item = &'static str> {
    all().filter(|(_, kind)| *kind == Kind::Barrier).map(|(name, _)| name)
}

/// The name in the catalogue for what somebody typed: `libomp-default` is `libomp`.
#[must_use]
pub fn canonical(name: &str) -> &str {
    match name {
        "c++" | "c++20" | "std-barrier" => "cxx",
        "rust" | "rust-std" => "std",
        other => other.strip_suffix("-default").unwrap_or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_canonical() {
        let mut known: Vec<&str> = names().collect();
        assert!(known.iter().all(|name| canonical(name) == *name));
        let count = known.len();
        known.sort_unstable();
        known.dedup();
        assert_eq!(known.len(), count);
    }
}
