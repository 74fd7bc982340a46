//! Which programs there are: one line each.

use super::{Kind, Program};
use std::path::Path;

/// A program that is built from source on the user's machine.
#[derive(Debug)]
pub struct Peer {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub kind: Kind,
    /// Which compilers will do, the best first.
    pub compilers: &'static [CompilerName],
    /// Flags beside the common ones.
    pub flags: &'static [&'static str],
    /// Its source.
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
    /// GNU C.
    Gcc,
    /// GNU C++.
    Gxx,
    /// LLVM's C.
    Clang,
    /// LLVM's C++.
    Clangxx,
}

/// Headers that sources include; they are part of every cache key.
pub const HEADERS: &[Source] = &[
    Source { file: "bench.h", text: include_str!("../../peers/bench.h") },
    Source { file: "openmp.h", text: include_str!("../../peers/openmp.h") },
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
    openmp("libgomp", GCC, &[], INSTALL_GCC),
    openmp("libgomp-active", GCC, ACTIVE, INSTALL_GCC),
    openmp("libgomp-passive", GCC, PASSIVE, INSTALL_GCC),
    openmp("libomp", CLANG, &[], INSTALL_CLANG),
    openmp("libomp-active", CLANG, LIBOMP_ACTIVE, INSTALL_CLANG),
    openmp("libomp-passive", CLANG, LIBOMP_PASSIVE, INSTALL_CLANG),
];

const fn openmp(
    name: &'static str,
    compilers: &'static [CompilerName],
    environment: &'static [(&'static str, &'static str)],
    remedy: &'static str,
) -> Peer {
    Peer { name, kind: Kind::Barrier, compilers, flags: OPENMP, source: BARRIER_OPENMP, environment, remedy }
}

/// Programs that need no compiler: they are in `unisono` itself.
#[must_use]
pub fn own(unisono: &Path) -> Vec<Program> {
    let barrier = |name: &str, arguments: &[&str]| {
        let arguments = ["barrier", "--json"].iter().chain(arguments).map(|word| (*word).to_owned());
        Program::own(unisono, name, Kind::Barrier, arguments.collect())
    };
    vec![barrier("unisono", &[]), barrier("std", &["--implementation", "std"])]
}

/// Names that need no compiler.
const OWN: &[&str] = &["unisono", "std"];

/// All names, for messages.
pub fn names() -> impl Iterator<Item = &'static str> {
    OWN.iter().copied().chain(PEERS.iter().map(|peer| peer.name))
}

/// The names of implementations of a barrier.
pub fn barriers() -> impl Iterator<Item = &'static str> {
    let built = PEERS.iter().filter(|peer| peer.kind == Kind::Barrier).map(|peer| peer.name);
    OWN.iter().copied().chain(built)
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
    fn names_are_unique_and_programs_of_our_own_are_listed() {
        let mut all: Vec<&str> = names().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        let own: Vec<String> = own(Path::new("unisono")).into_iter().map(|program| program.name).collect();
        assert_eq!(own, OWN);
    }
}
