//! The protocol between a launcher and its helper on another host, over the helper's standard input and
//! output.
//!
//! A frame consists of a byte for its kind, a length in four bytes (little-endian), and that many bytes.
//! Before its first frame a helper writes [`GREETING`], because a login shell may have printed text before.
//! Such text is passed on unchanged.
//!
//! ```text
//!   launcher ---- ORDER, INPUT*, SIGNAL* ----> helper     end of this stream: the launcher has ended
//!            <--- OUTPUT*, ERRORS*, TAKEN*, FAILED, DONE ---
//! ```
//!
//! Input is sent one piece at a time: the launcher sends the next piece when the helper reports that it has
//! written the last one to the rank's pipe ([`TAKEN`]). So a rank that never reads cannot delay signals
//! behind its input.

use std::io::{self, Read, Write};

pub(crate) const GREETING: &[u8] = b"\nunisono helper 1\n";
/// The job to run: a `HelperOrder` as JSON.
pub(crate) const ORDER: u8 = b'J';
/// Bytes of rank 0's standard input; an empty frame is its end.
pub(crate) const INPUT: u8 = b'I';
/// A signal for every rank: the signal's number, as one byte.
pub(crate) const SIGNAL: u8 = b'S';
pub(crate) const OUTPUT: u8 = b'O';
pub(crate) const ERRORS: u8 = b'E';
/// The helper has written the last input to rank 0's pipe, or rank 0 has closed the pipe.
pub(crate) const TAKEN: u8 = b'T';
/// The first of a helper's ranks has failed: the exit code, as one byte.
pub(crate) const FAILED: u8 = b'F';
/// All ranks have ended: a `HelperEnd` as JSON.
pub(crate) const DONE: u8 = b'D';

/// The maximum length of a frame: more than either side sends.
const MAX_FRAME_BYTES: usize = 64 << 20;

/// Writes a frame with a single call, so that frames of several threads do not mix.
pub(crate) fn write(to: &mut impl Write, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(5 + bytes.len());
    frame.push(kind);
    frame.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    frame.extend_from_slice(bytes);
    to.write_all(&frame)?;
    to.flush()
}

/// Reads a frame. Returns `None` at the end of the stream.
pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 5];
    match from.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::other(format!("a frame of {length} bytes")));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(Some((head[0], bytes)))
}

/// A standard stream of a helper, sent as frames of one kind.
pub(crate) struct Framed(pub(crate) u8);

impl Write for Framed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(MAX_FRAME_BYTES)];
        write(&mut io::stdout().lock(), self.0, piece)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Assembles frames from the pieces of a stream.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    greeted: bool,
}

impl Decoder {
    /// Adds received bytes and returns the complete frames. Bytes before the greeting are returned as
    /// [`ERRORS`], and so are bytes that are not a frame.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        self.bytes.extend_from_slice(bytes);
        let mut frames = Vec::new();
        if !self.greeted {
            let Some(at) = self.bytes.windows(GREETING.len()).position(|window| window == GREETING) else {
                return frames;
            };
            let before: Vec<u8> = self.bytes.drain(..at + GREETING.len()).take(at).collect();
            self.greeted = true;
            frames.extend((!before.is_empty()).then_some((ERRORS, before)));
        }
        while let [kind, a, b, c, d, rest @ ..] = &self.bytes[..] {
            let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            if length > MAX_FRAME_BYTES {
                frames.push((ERRORS, std::mem::take(&mut self.bytes)));
            } else if let Some(payload) = rest.get(..length) {
                frames.push((*kind, payload.to_vec()));
                self.bytes.drain(..5 + length);
            } else {
                break;
            }
        }
        frames
    }

    /// Returns, at the end of the stream, the bytes that have arrived but form no frame.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_survive_however_their_bytes_arrive(
            sent in proptest::collection::vec((0_u8..9, proptest::collection::vec(0_u8.., 0..40)), 0..9),
            banner in "[a-z ]{0,9}",
            piece in 1_usize..50,
        ) {
            let mut wire = banner.clone().into_bytes();
            wire.extend_from_slice(GREETING);
            for (kind, bytes) in &sent {
                write(&mut wire, *kind, bytes).expect("a vector takes all");
            }
            let mut decoder = Decoder::default();
            let mut came: Vec<_> = wire.chunks(piece).flat_map(|piece| decoder.feed(piece)).collect();
            if !banner.is_empty() {
                prop_assert_eq!(came.remove(0), (ERRORS, banner.into_bytes()));
            }
            prop_assert_eq!(came, sent);
            prop_assert!(decoder.finish().is_empty());
        }
    }

    #[test]
    fn a_helper_that_is_none_is_passed_on_as_it_speaks() {
        let mut decoder = Decoder::default();
        assert!(decoder.feed(b"bash: unisono: command not found").is_empty());
        assert_eq!(decoder.finish(), b"bash: unisono: command not found");
    }
}
