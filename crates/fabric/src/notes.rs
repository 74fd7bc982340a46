//! Files under `/run/unisono` that say what has to be put back when a deployment was killed.

use std::fs;
use std::io;
use std::path::Path;

pub(crate) const DIRECTORY: &str = "/run/unisono";

/// Writes a file into [`DIRECTORY`], which others remove whenever they find it empty.
pub(crate) fn note(path: &Path, text: &str) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match fs::create_dir_all(DIRECTORY).and_then(|()| fs::write(path, text)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < 100 => tries += 1,
            done => return done,
        }
    }
}
