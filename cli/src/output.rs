//! Standard output of the program: where answers go; progress and warnings go to standard error.

use std::io::{self, ErrorKind, Write};

/// Prints an answer and a line end. A reader that has gone away (`unisono doctor | head`) is no error.
pub(crate) fn answer(text: &str) -> io::Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
