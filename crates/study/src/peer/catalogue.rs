//! The programs that can be measured, one line each.

use super::{PeerFile, PeerKind};
use std::path::Path;

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

/// A file in `crates/study/peers`.
#[derive(Debug)]
pub struct PeerSource {
    pub file: &'static str,
    pub text: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompilerName {
    Gcc,
    Gxx,
    Clang,
    Clangxx,
    /// MPICH's wrapper of a C compiler.
    MpiccMpich,
    MpiccOpenmpi,
    /// Builds a program of the Rust project in `peers/cargo`, with crates from the network: takes minutes.
    Cargo,
}

/// Headers that sources include; they are part of every cache key.
pub const HEADERS: &[PeerSource] = &[
    PeerSource { file: "bench.h", text: include_str!("../../peers/bench.h") },
    PeerSource { file: "computation.h", text: include_str!("../../peers/computation.h") },
    PeerSource { file: "meter.h", text: include_str!("../../peers/meter.h") },
    PeerSource { file: "openmp.h", text: include_str!("../../peers/openmp.h") },
    PeerSource { file: "rival.h", text: include_str!("../../peers/rival.h") },
    PeerSource { file: "options.h", text: include_str!("../../peers/options.h") },
];

/// Files beside the source of a program that Cargo builds; they are part of its cache key.
pub const PROJECT: &[PeerSource] = &[
    PeerSource { file: "Cargo.toml", text: include_str!("../../peers/cargo/Cargo.toml") },
    PeerSource { file: "Cargo.lock", text: include_str!("../../peers/cargo/Cargo.lock") },
    PeerSource { file: "rival.rs", text: include_str!("../../peers/cargo/rival.rs") },
];

/// Variables of a user's environment that would change how a peer waits or where it runs.
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

const RIVAL_ZEROMQ: PeerSource =
    PeerSource { file: "rival_zeromq.c", text: include_str!("../../peers/rival_zeromq.c") };
const RIVAL_MOSQUITTO: PeerSource =
    PeerSource { file: "rival_mosquitto.c", text: include_str!("../../peers/rival_mosquitto.c") };
const RIVAL_CYCLONE: PeerSource =
    PeerSource { file: "rival_cyclone.c", text: include_str!("../../peers/rival_cyclone.c") };

const RIVAL_ICEORYX2: PeerSource =
    PeerSource { file: "rival_iceoryx2.rs", text: include_str!("../../peers/cargo/rival_iceoryx2.rs") };
const RIVAL_ZENOH: PeerSource =
    PeerSource { file: "rival_zenoh.rs", text: include_str!("../../peers/cargo/rival_zenoh.rs") };
const WEB_HYPER: PeerSource =
    PeerSource { file: "web_hyper.rs", text: include_str!("../../peers/cargo/web_hyper.rs") };

const GHOST: PeerSource = PeerSource { file: "ghost.c", text: include_str!("../../peers/ghost.c") };

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

pub const PEERS: &[PeerProgram] = &[
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
    rival(
        "rival-zeromq",
        RIVAL_ZEROMQ,
        &["-Wl,--no-as-needed", "-lzmq"],
        "apt install gcc libzmq3-dev",
    ),
    rival(
        "rival-mosquitto",
        RIVAL_MOSQUITTO,
        &["-Wl,--no-as-needed", "-lmosquitto"],
        "apt install gcc libmosquitto-dev",
    ),
    rival(
        "rival-cyclone",
        RIVAL_CYCLONE,
        &["-Wl,--no-as-needed", "-lddsc"],
        "apt install gcc cyclonedds-dev",
    ),
    rust(
        "rival-iceoryx2",
        PeerKind::Stream,
        RIVAL_ICEORYX2,
        &["--features", "iceoryx2", "--bin", "rival_iceoryx2"],
    ),
    rust(
        "rival-zenoh",
        PeerKind::Stream,
        RIVAL_ZENOH,
        &["--features", "zenoh", "--bin", "rival_zenoh"],
    ),
    rust("web-hyper", PeerKind::Server, WEB_HYPER, &["--features", "hyper", "--bin", "web_hyper"]),
];

const fn rival(
    name: &'static str,
    source: PeerSource,
    flags: &'static [&'static str],
    remedy: &'static str,
) -> PeerProgram {
    PeerProgram { name, kind: PeerKind::Stream, compilers: ANY_C, flags, source, environment: &[], remedy }
}

const fn rust(
    name: &'static str,
    kind: PeerKind,
    source: PeerSource,
    flags: &'static [&'static str],
) -> PeerProgram {
    let compilers = &[CompilerName::Cargo];
    let remedy = "install Rust, and connect to the network for its crates";
    PeerProgram { name, kind, compilers, flags, source, environment: &[], remedy }
}

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

/// Programs that need no compiler, because they are part of `unisono` itself.
const OWN: &[(&str, PeerKind, &[&str])] = &[
    ("unisono", PeerKind::Barrier, &["barrier", "--json"]),
    ("std", PeerKind::Barrier, &["barrier", "--json", "--implementation", "std"]),
    ("stencil-rayon", PeerKind::Kernel, &["workload", "rayon-stencil"]),
    ("stencil-unisono", PeerKind::Kernel, &["workload", "stencil"]),
    ("clustering-unisono", PeerKind::Kernel, &["workload", "clustering"]),
    ("rival-channel", PeerKind::Stream, &["workload", "rival", "channel"]),
    ("rival-tcp", PeerKind::Stream, &["workload", "rival", "tcp"]),
    ("bursts-unisono", PeerKind::Requests, &["workload", "bursts"]),
];

pub fn own(unisono: &Path) -> Vec<PeerFile> {
    let program = |(name, kind, arguments): &(&str, PeerKind, &[&str])| {
        PeerFile::own(unisono, name, *kind, arguments.iter().map(|word| (*word).to_owned()).collect())
    };
    OWN.iter().map(program).collect()
}

fn all() -> impl Iterator<Item = (&'static str, PeerKind)> {
    OWN.iter().map(|(name, kind, _)| (*name, *kind)).chain(PEERS.iter().map(|peer| (peer.name, peer.kind)))
}

pub fn names() -> impl Iterator<Item = &'static str> {
    all().map(|(name, _)| name)
}

/// The names of implementations of a barrier.
pub fn barriers() -> impl Iterator<Item = &'static str> {
    all().filter(|(_, kind)| *kind == PeerKind::Barrier).map(|(name, _)| name)
}

/// The catalogue's name for a name that a user typed: `libomp-default` is `libomp`.
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
