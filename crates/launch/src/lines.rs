//! Passes output on in whole lines, so that the output of several ranks does not mix within a line.
//!
//! The idea: the bytes of a pipe are kept until their line ends. If [`MAX_LINE_BYTES`] bytes wait for the end
//! of their line, they are passed on as a line. An unfinished last line of a rank gets a line end. Cost: one
//! copy. When not to use it: for binary output, which each rank had better write to a file.

use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// If this many bytes wait for the end of their line, they are passed on as a line.
pub(crate) const MAX_LINE_BYTES: usize = 64 * 1024;

/// Whether each line begins with its rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Prefix {
    #[default]
    None,
    /// Each line begins with its rank: `[3] `, padded to the width of the highest rank.
    Rank,
}

/// The lines of a rank's output stream.
#[derive(Debug)]
pub(crate) struct LinePrefixer {
    prefix: String,
    unfinished: Vec<u8>,
}

impl LinePrefixer {
    /// Makes the prefixer for rank `rank` of a job of `size` ranks.
    pub(crate) fn new(prefix: Prefix, rank: usize, size: usize) -> Self {
        let mut text = String::new();
        if prefix == Prefix::Rank {
            let width = size.saturating_sub(1).to_string().len();
            let number = format!("[{rank}]");
            // writing to a string cannot fail
            let _ = write!(text, "{number:width$} ", width = width + 2);
        }
        Self { prefix: text, unfinished: Vec::new() }
    }

    /// Adds bytes, and appends the lines that they complete to `out`.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end + 1);
            out.extend_from_slice(self.prefix.as_bytes());
            out.append(&mut self.unfinished);
            out.extend_from_slice(line);
            bytes = rest;
        }
        self.unfinished.extend_from_slice(bytes);
        if self.unfinished.len() >= MAX_LINE_BYTES {
            self.finish(out);
        }
    }

    /// Ends the stream, and completes an unfinished line.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.unfinished.is_empty() {
            out.extend_from_slice(self.prefix.as_bytes());
            out.append(&mut self.unfinished);
            out.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_get_prefixes_of_one_width() {
        let mut out = Vec::new();
        LinePrefixer::new(Prefix::Rank, 3, 11).feed(b"a\n\nb\n", &mut out);
        LinePrefixer::new(Prefix::Rank, 10, 11).feed(b"c\n", &mut out);
        assert_eq!(String::from_utf8_lossy(&out), "[3]  a\n[3]  \n[3]  b\n[10] c\n");
    }

    #[test]
    fn an_unfinished_line_waits_for_its_end() {
        let (mut lines, mut out) = (LinePrefixer::new(Prefix::None, 0, 1), Vec::new());
        lines.feed(b"one", &mut out);
        assert!(out.is_empty());
        lines.feed(b" more\ntwo", &mut out);
        assert_eq!(out, b"one more\n");
        lines.finish(&mut out);
        lines.finish(&mut out);
        assert_eq!(out, b"one more\ntwo\n");
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let (mut lines, mut out) = (LinePrefixer::new(Prefix::None, 0, 1), Vec::new());
        lines.feed(&vec![b'x'; 3 * MAX_LINE_BYTES], &mut out);
        assert!(out.len() >= MAX_LINE_BYTES && lines.unfinished.is_empty());
    }

    proptest! {
        #[test]
        fn output_is_the_same_however_its_bytes_arrive(
            text in "[ab\n]{0,60}",
            cuts in proptest::collection::vec(0_usize..60, 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= text.len()).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let (mut lines, mut out) = (LinePrefixer::new(Prefix::None, 0, 1), Vec::new());
            for pair in cuts.windows(2) {
                lines.feed(&text.as_bytes()[pair[0]..pair[1]], &mut out);
            }
            lines.finish(&mut out);
            let line_end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            prop_assert_eq!(String::from_utf8_lossy(&out), text + line_end);
        }
    }
}
