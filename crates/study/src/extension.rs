//! Studies that another program adds to the built-in ones, with their drivers and the programs they measure.

use crate::driver::{self, DriverKind};
use crate::library;
use crate::peer::catalogue::{self, AddedPeers};

/// The parts of one program's studies; each list may be empty.
#[derive(Debug)]
pub struct Extension {
    pub drivers: &'static [DriverKind],
    /// File name and text of each study.
    pub studies: &'static [(&'static str, &'static str)],
    pub peers: AddedPeers,
}

/// Adds an extension. A program calls this before it reads studies. Only the first extension is kept; a
/// second call has no effect.
pub fn add(extension: Extension) {
    driver::add(extension.drivers);
    library::add(extension.studies);
    catalogue::add(extension.peers);
}
