//! The programs of other projects that the laboratory's studies measure, one entry for each.

use unisono_study::peer::PeerKind;
use unisono_study::peer::catalogue::{ANY_C, CompilerName, OwnProgram, PeerProgram, PeerSource};

/// The headers that C sources include.
pub(crate) const HEADERS: &[PeerSource] =
    &[PeerSource { file: "rival.h", text: include_str!("../peers/rival.h") }];

/// The files that Cargo needs in addition to the source of a program.
pub(crate) const PROJECT: &[PeerSource] = &[
    PeerSource { file: "Cargo.toml", text: include_str!("../peers/cargo/Cargo.toml") },
    PeerSource { file: "Cargo.lock", text: include_str!("../peers/cargo/Cargo.lock") },
    PeerSource { file: "rival.rs", text: include_str!("../peers/cargo/rival.rs") },
];

const ZEROMQ: PeerSource =
    PeerSource { file: "rival_zeromq.c", text: include_str!("../peers/rival_zeromq.c") };
const MOSQUITTO: PeerSource =
    PeerSource { file: "rival_mosquitto.c", text: include_str!("../peers/rival_mosquitto.c") };
const CYCLONE: PeerSource =
    PeerSource { file: "rival_cyclone.c", text: include_str!("../peers/rival_cyclone.c") };
const ICEORYX2: PeerSource =
    PeerSource { file: "rival_iceoryx2.rs", text: include_str!("../peers/cargo/rival_iceoryx2.rs") };
const ZENOH: PeerSource =
    PeerSource { file: "rival_zenoh.rs", text: include_str!("../peers/cargo/rival_zenoh.rs") };
const WEB_HYPER: PeerSource =
    PeerSource { file: "web_hyper.rs", text: include_str!("../peers/cargo/web_hyper.rs") };

pub(crate) const PEERS: &[PeerProgram] = &[
    rival("rival-zeromq", ZEROMQ, &["-Wl,--no-as-needed", "-lzmq"], "apt install gcc libzmq3-dev"),
    rival(
        "rival-mosquitto",
        MOSQUITTO,
        &["-Wl,--no-as-needed", "-lmosquitto"],
        "apt install gcc libmosquitto-dev",
    ),
    rival(
        "rival-cyclone",
        CYCLONE,
        &["-Wl,--no-as-needed", "-lddsc"],
        "apt install gcc cyclonedds-dev",
    ),
    rust(
        "rival-iceoryx2",
        PeerKind::Stream,
        ICEORYX2,
        &["--features", "iceoryx2", "--bin", "rival_iceoryx2"],
    ),
    rust("rival-zenoh", PeerKind::Stream, ZENOH, &["--features", "zenoh", "--bin", "rival_zenoh"]),
    rust("web-hyper", PeerKind::Server, WEB_HYPER, &["--features", "hyper", "--bin", "web_hyper"]),
];

pub(crate) const OWN: &[OwnProgram] = &[
    ("rival-channel", PeerKind::Stream, &["workload", "rival", "channel"]),
    ("rival-tcp", PeerKind::Stream, &["workload", "rival", "tcp"]),
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
