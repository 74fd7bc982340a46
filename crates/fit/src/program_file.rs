//! Reads the file of a program.

use std::fs;
use std::path::Path;

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Returns the bytes of a program. A program that may be executed but not read counts as empty, and so does a
/// named pipe, whose reader would wait for its writer.
pub(crate) fn read_program(file: &Path) -> Vec<u8> {
    match fs::metadata(file) {
        Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_FILE_BYTES => {
            fs::read(file).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}
