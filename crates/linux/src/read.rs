//! `read(2)` with a limit: a file from an untrusted source must not take all memory.
//!
//! The bytes are counted during the reading, because the size from `stat(2)` is meaningless for a pipe, a
//! device such as `/dev/zero`, or a file that is still being written. Memory grows with the bytes read, never
//! with the limit.

use std::fs::File;
use std::io::{self, Error, ErrorKind, Read};
use std::path::Path;

/// The limit for a file that a person writes by hand: a policy, a study, a description of a simulation.
///
/// The longest of the examples has 4 KiB; a program that writes such files may need a thousand times as much.
pub const HAND_WRITTEN: u64 = 16 << 20;

/// The limit for a file that programs write: networks, traces, records.
pub const MACHINE_WRITTEN: u64 = 256 << 20;

/// Reads all bytes of a stream, at most `max_bytes`. Fails with [`ErrorKind::FileTooLarge`] if the stream
/// holds more.
pub fn all(stream: impl Read, max_bytes: u64) -> io::Result<Vec<u8>> {
    gathered(stream, max_bytes, Vec::new())
}

fn gathered(stream: impl Read, max_bytes: u64, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    // Read one byte more than allowed, to distinguish a file that is too long from a file that just fits.
    stream.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        let problem = format!("it is longer than {}", Size(max_bytes));
        return Err(Error::new(ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

/// Reads all bytes of a file, at most `max_bytes`. Fails with [`ErrorKind::FileTooLarge`] if the file holds
/// more.
pub fn file(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    // The file's apparent size as initial capacity; otherwise the capacity would grow to twice the file.
    let seems = file.metadata().map_or(0, |metadata| metadata.len()).min(max_bytes);
    gathered(file, max_bytes, Vec::with_capacity(usize::try_from(seems).unwrap_or(0)))
}

/// Reads the text of a UTF-8 file, at most `max_bytes` bytes. Fails with [`ErrorKind::InvalidData`] if the
/// file is not UTF-8; otherwise as [`file()`].
pub fn text(path: &Path, max_bytes: u64) -> io::Result<String> {
    String::from_utf8(file(path, max_bytes)?)
        .map_err(|_| Error::new(ErrorKind::InvalidData, "this is no text in UTF-8"))
}

/// A number of bytes in the largest unit that divides it: `256 MiB`, `1000 bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.0;
        for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if bytes >> shift << shift == bytes && bytes > 0 {
                return write!(f, "{} {unit}", bytes >> shift);
            }
        }
        write!(f, "{bytes} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_exactly_the_limit_is_read_and_one_byte_more_is_refused() {
        assert_eq!(all(&b"12345"[..], 5).expect("it fits"), b"12345");
        let error = all(&b"123456"[..], 5).expect_err("it is too long");
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::FileTooLarge, "it is longer than 5 bytes")
        );
    }

    #[test]
    fn a_device_without_an_end_is_refused_at_the_limit() {
        let error = file(Path::new("/dev/zero"), 1 << 20).expect_err("it never ends");
        assert_eq!(error.to_string(), "it is longer than 1 MiB");
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_divides_them() {
        let shown = [0, 1000, 1 << 10, 3 << 20, 256 << 20, 1 << 30, (1 << 30) + 1]
            .map(|bytes| Size(bytes).to_string());
        assert_eq!(
            shown,
            ["0 bytes", "1000 bytes", "1 KiB", "3 MiB", "256 MiB", "1 GiB", "1073741825 bytes"]
        );
    }
}
