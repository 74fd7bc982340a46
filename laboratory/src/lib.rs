//! The studies of the papers: middleware and shares of links, the network monitor, gangs on simulated
//! machines, with the programs that they measure.
//!
//! ```text
//!   studies/*.toml, driver, peers --[`add_studies`]--> unisono-study: plan, runs, records
//!   answers: the report of these studies, the claims of the papers --> unisono-report
//!   workload: the processes of a run <--program-- unisono-laboratory workload NAME
//! ```
//! The program `unisono-laboratory` is `unisono` with these studies; `unisono study` starts it when one of
//! them is named. Read `studies` first, then `driver`.
#![forbid(unsafe_code)]

mod answers;
pub mod driver;
mod peers;
pub mod program;
pub mod workload;

use unisono_study::extension::{self, Extension};
use unisono_study::peer::catalogue::AddedPeers;

// `FILES: &[(name, text)]`, made by build.rs from studies/*.toml
include!(concat!(env!("OUT_DIR"), "/studies.rs"));

/// Adds the laboratory's studies, and the report's answers about them, to the product's. Call it before
/// studies are read.
pub fn add_studies() {
    unisono_report::extension::add(answers::extension());
    extension::add(Extension {
        drivers: &driver::DRIVERS,
        studies: FILES,
        peers: AddedPeers {
            peers: peers::PEERS,
            own: peers::OWN,
            headers: peers::HEADERS,
            cargo_project: peers::PROJECT,
        },
    });
}

/// Whether the study with this id is the laboratory's own.
#[must_use]
pub fn has_study(id: &str) -> bool {
    FILES.iter().any(|(name, _)| name.strip_suffix(".toml") == Some(id))
}
