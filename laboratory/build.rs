//! Compiles the studies of `studies/` into the crate, as a list of the files in the order of their names.

#[path = "../crates/study/study_files.rs"]
mod study_files;

use std::io;

fn main() -> io::Result<()> {
    study_files::write_list()
}
