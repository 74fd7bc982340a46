//! Reads the text that a user names on the command line: a policy, a network, a tree.

use crate::exit::Failure;
use std::io::ErrorKind;
use std::path::Path;
use unisono_linux::read;
use unisono_text::Position;

/// Reads a file of at most `max_bytes` bytes; - is standard input. Returns its name for messages, and its
/// text.
pub(crate) fn read(path: &Path, max_bytes: u64) -> anyhow::Result<(String, String)> {
    read_with_remedy(path, max_bytes, "")
}

/// Reads a file as [`read`] does, but ends the error about a file that is too long with `remedy`.
pub(crate) fn read_with_remedy(
    path: &Path,
    max_bytes: u64,
    remedy: &str,
) -> anyhow::Result<(String, String)> {
    let (name, bytes) = match path == Path::new("-") {
        true => ("standard input".to_owned(), read::all(std::io::stdin().lock(), max_bytes)),
        false => (path.display().to_string(), read::file(path, max_bytes)),
    };
    let bytes = bytes.map_err(|error| {
        let remedy = if error.kind() == ErrorKind::FileTooLarge { remedy } else { "" };
        Failure::Usage(format!("cannot read {name}: {error}{remedy}"))
    })?;
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let good = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
        let end = Position::at_offset(&good, good.len());
        Failure::Usage(format!("{name}:{end}: this is no text in UTF-8"))
    })?;
    // some programs put a byte order mark before UTF-8
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok((name, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_left_out_and_errors_name_their_place_and_the_remedy() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("policy.toml");
        let read_bytes = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("it can be written");
            read_with_remedy(&path, 9, "; REMEDY").map(|(_, text)| text).map_err(|error| error.to_string())
        };
        assert_eq!(read_bytes("\u{feff}a = 1".as_bytes()).as_deref(), Ok("a = 1"));
        let error = read_bytes(b"a\nb\xff").expect_err("0xff is not in UTF-8");
        assert!(error.ends_with("policy.toml:2:2: this is no text in UTF-8"), "{error}");
        let error = read_bytes(b"0123456789").expect_err("one byte too many");
        assert!(error.ends_with("; REMEDY"), "{error}");
        std::fs::remove_file(&path).expect("it is there");
        let error = read_with_remedy(&path, 9, "; REMEDY").expect_err("it is gone").to_string();
        assert!(error.starts_with("cannot read ") && !error.contains("REMEDY"), "{error}");
    }
}
