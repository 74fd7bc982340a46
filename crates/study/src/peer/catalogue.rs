//! The programs that can be measured, one line each.

use super::{PeerFile, PeerKind};
use std::path::Path;
use std::sync::OnceLock;
use unisono_text::named;

/// A program that is built from source on the user's machine.
#[derive(Debug)]
pub struct PeerProgram {
    pub name: &'static str,
    pub kind: PeerKind,
    /// Usable compilers, the best first.
    pub compilers: &'static [CompilerName],
    /// Flags beside the common ones.
    pub flags: &'static [&'static str],
    pub source: PeerSource,
    /// Variables that set the wait policy of its runtime.
    pub environment: &'static [(&'static str, &'static str)],
    /// The command to type if it cannot be built.
    pub remedy: &'static str,
}

/// A file in `peers`.
#[derive(Debug)]
pub struct PeerSource {
    pub file: &'static str,
    pub text: &'static str,
}

named! {
    /// A compiler, with its command as name.
    pub enum CompilerName {
        Gcc = "gcc",
        Gxx = "g++",
        Clang = "clang",
        Clangxx = "clang++",
        /// MPICH's wrapper of a C compiler.
        MpiccMpich = "mpicc.mpich",
        MpiccOpenmpi = "mpicc.openmpi",
        /// Cargo, which builds a program of an extension's Rust project with crates from the network, in
        /// minutes.
        Cargo = "cargo",
    }
}

/// Headers that sources include.
const HEADERS: &[PeerSource] = &[
    PeerSource { file: "bench.h", text: include_str!("../../peers/bench.h") },
    PeerSource { file: "computation.h", text: include_str!("../../peers/computation.h") },
    PeerSource { file: "meter.h", text: include_str!("../../peers/meter.h") },
    PeerSource { file: "openmp.h", text: include_str!("../../peers/openmp.h") },
    PeerSource { file: "options.h", text: include_str!("../../peers/options.h") },
];

/// Variables of a user's environment that would change how a peer waits or where it runs.
pub(crate) const OPENMP_VARIABLES: &[&str] = &[
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

const BARRIER_PTHREAD: PeerSource =
    PeerSource { file: "barrier_pthread.c", text: include_str!("../../peers/barrier_pthread.c") };
const BARRIER_CXX: PeerSource =
    PeerSource { file: "barrier_cxx.cpp", text: include_str!("../../peers/barrier_cxx.cpp") };
const BARRIER_OPENMP: PeerSource =
    PeerSource { file: "barrier_openmp.c", text: include_str!("../../peers/barrier_openmp.c") };

const STENCIL: PeerSource =
    PeerSource { file: "stencil_openmp.c", text: include_str!("../../peers/stencil_openmp.c") };
const CLUSTERING: PeerSource =
    PeerSource { file: "clustering_openmp.c", text: include_str!("../../peers/clustering_openmp.c") };

const GHOST: PeerSource = PeerSource { file: "ghost.c", text: include_str!("../../peers/ghost.c") };

const GCC: &[CompilerName] = &[CompilerName::Gcc];
const CLANG: &[CompilerName] = &[CompilerName::Clang];
pub const ANY_C: &[CompilerName] = &[CompilerName::Gcc, CompilerName::Clang];
const ANY_CXX: &[CompilerName] = &[CompilerName::Gxx, CompilerName::Clangxx];
const OPENMP: &[&str] = &["-fopenmp"];
const INSTALL_GCC: &str = "apt install gcc libc6-dev";
const INSTALL_GXX: &str = "apt install g++";
const INSTALL_CLANG: &str = "apt install clang libomp-dev";
const ACTIVE: &[(&str, &str)] = &[("OMP_WAIT_POLICY", "active")];
const PASSIVE: &[(&str, &str)] = &[("OMP_WAIT_POLICY", "passive")];
const LIBOMP_ACTIVE: &[(&str, &str)] = &[("OMP_WAIT_POLICY", "active"), ("KMP_BLOCKTIME", "infinite")];
const LIBOMP_PASSIVE: &[(&str, &str)] = &[("OMP_WAIT_POLICY", "passive"), ("KMP_BLOCKTIME", "0")];

const PEERS: &[PeerProgram] = &[
    PeerProgram {
        name: "pthread",
        kind: PeerKind::Barrier,
        compilers: ANY_C,
        flags: &["-pthread"],
        source: BARRIER_PTHREAD,
        environment: &[],
        remedy: INSTALL_GCC,
    },
    PeerProgram {
        name: "cxx",
        kind: PeerKind::Barrier,
        compilers: ANY_CXX,
        flags: &["-std=c++20", "-pthread"],
        source: BARRIER_CXX,
        environment: &[],
        remedy: INSTALL_GXX,
    },
    libgomp("libgomp", PeerKind::Barrier, BARRIER_OPENMP, &[]),
    libgomp("libgomp-active", PeerKind::Barrier, BARRIER_OPENMP, ACTIVE),
    libgomp("libgomp-passive", PeerKind::Barrier, BARRIER_OPENMP, PASSIVE),
    libomp("libomp", PeerKind::Barrier, BARRIER_OPENMP, &[]),
    libomp("libomp-active", PeerKind::Barrier, BARRIER_OPENMP, LIBOMP_ACTIVE),
    libomp("libomp-passive", PeerKind::Barrier, BARRIER_OPENMP, LIBOMP_PASSIVE),
    libgomp("stencil-libgomp", PeerKind::Kernel, STENCIL, &[]),
    libgomp("stencil-libgomp-passive", PeerKind::Kernel, STENCIL, PASSIVE),
    libomp("stencil-libomp", PeerKind::Kernel, STENCIL, &[]),
    libomp("stencil-libomp-passive", PeerKind::Kernel, STENCIL, LIBOMP_PASSIVE),
    libgomp("clustering-libgomp", PeerKind::Kernel, CLUSTERING, &[]),
    libgomp("clustering-libgomp-passive", PeerKind::Kernel, CLUSTERING, PASSIVE),
    libomp("clustering-libomp", PeerKind::Kernel, CLUSTERING, &[]),
    libomp("clustering-libomp-passive", PeerKind::Kernel, CLUSTERING, LIBOMP_PASSIVE),
    PeerProgram {
        name: "ghost-mpich",
        kind: PeerKind::Exchange,
        compilers: &[CompilerName::MpiccMpich],
        flags: &[],
        source: GHOST,
        environment: &[],
        remedy: "apt install mpich libmpich-dev",
    },
    PeerProgram {
        name: "ghost-openmpi",
        kind: PeerKind::Exchange,
        compilers: &[CompilerName::MpiccOpenmpi],
        flags: &[],
        source: GHOST,
        environment: &[],
        remedy: "apt install openmpi-bin libopenmpi-dev",
    },
];

type Environment = &'static [(&'static str, &'static str)];

const fn libgomp(
    name: &'static str,
    kind: PeerKind,
    source: PeerSource,
    environment: Environment,
) -> PeerProgram {
    PeerProgram { name, kind, compilers: GCC, flags: OPENMP, source, environment, remedy: INSTALL_GCC }
}

const fn libomp(
    name: &'static str,
    kind: PeerKind,
    source: PeerSource,
    environment: Environment,
) -> PeerProgram {
    PeerProgram { name, kind, compilers: CLANG, flags: OPENMP, source, environment, remedy: INSTALL_CLANG }
}

/// A program that needs no compiler, because it is part of `unisono` itself: name, kind, arguments.
pub type OwnProgram = (&'static str, PeerKind, &'static [&'static str]);

const OWN: &[OwnProgram] = &[
    ("unisono", PeerKind::Barrier, &["barrier", "--json"]),
    ("std", PeerKind::Barrier, &["barrier", "--json", "--implementation", "std"]),
    ("stencil-rayon", PeerKind::Kernel, &["workload", "rayon-stencil"]),
    ("stencil-unisono", PeerKind::Kernel, &["workload", "stencil"]),
    ("clustering-unisono", PeerKind::Kernel, &["workload", "clustering"]),
    ("bursts-unisono", PeerKind::Requests, &["workload", "bursts"]),
];

pub fn own(unisono: &Path) -> Vec<PeerFile> {
    let program = |(name, kind, arguments): &OwnProgram| {
        PeerFile::own(unisono, name, *kind, arguments.iter().map(|word| (*word).to_owned()).collect())
    };
    own_programs().map(program).collect()
}

/// The programs that another program adds; each list may be empty.
#[derive(Debug)]
pub struct AddedPeers {
    pub peers: &'static [PeerProgram],
    /// Programs that are part of the adding program itself.
    pub own: &'static [OwnProgram],
    /// Headers that sources in C include.
    pub headers: &'static [PeerSource],
    /// Files beside the source of a program that Cargo builds.
    pub cargo_project: &'static [PeerSource],
}

static ADDED: OnceLock<AddedPeers> = OnceLock::new();

pub(crate) fn add(peers: AddedPeers) {
    ADDED.get_or_init(|| peers);
}

fn added() -> &'static AddedPeers {
    static NONE: AddedPeers = AddedPeers { peers: &[], own: &[], headers: &[], cargo_project: &[] };
    ADDED.get().unwrap_or(&NONE)
}

fn own_programs() -> impl Iterator<Item = &'static OwnProgram> {
    OWN.iter().chain(added().own)
}

/// Returns all programs that are built from source.
pub fn peers() -> impl Iterator<Item = &'static PeerProgram> {
    PEERS.iter().chain(added().peers)
}

fn all() -> impl Iterator<Item = (&'static str, PeerKind)> {
    own_programs().map(|(name, kind, _)| (*name, *kind)).chain(peers().map(|peer| (peer.name, peer.kind)))
}

pub fn names() -> impl Iterator<Item = &'static str> {
    all().map(|(name, _)| name)
}

/// Returns the names of implementations of a barrier.
pub fn barriers() -> impl Iterator<Item = &'static str> {
    all().filter(|(_, kind)| *kind == PeerKind::Barrier).map(|(name, _)| name)
}

/// Returns the catalogue's name for a name that a user typed: `libomp-default` is `libomp`.
pub fn canonical(name: &str) -> &str {
    match name {
        "c++" | "c++20" | "std-barrier" => "cxx",
        "rust" | "rust-std" => "std",
        other => other.strip_suffix("-default").unwrap_or(other),
    }
}

/// Returns the files beside the source for this compiler; they are part of every cache key.
pub(super) fn files_beside<'a>(compiler: CompilerName) -> impl Iterator<Item = &'a PeerSource> {
    let added = added();
    let (own, added) = match compiler {
        CompilerName::Cargo => (&[][..], added.cargo_project),
        _ => (HEADERS, added.headers),
    };
    own.iter().chain(added)
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
