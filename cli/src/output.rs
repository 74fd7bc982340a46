//! Standard output of the program: where answers go; progress and warnings go to standard error.

use anyhow::Context;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Prints an answer and a line end. A reader that has gone away (`unisono doctor | head`) is no error.
pub(crate) fn answer(text: &str) -> io::Result<()> {
    is_read(text).map(|_| ())
}

/// Prints one of many answers and a line end; whether anybody still reads them.
pub(crate) fn is_read(text: &str) -> io::Result<bool> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// Writes a text to a file, or prints it where none is named.
pub(crate) fn answer_to(file: Option<&Path>, text: &str) -> anyhow::Result<()> {
    match file {
        Some(file) => std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display())),
        None => Ok(answer(text.trim_end())?),
    }
}
