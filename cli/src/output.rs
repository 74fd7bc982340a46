//! Standard output of the program: answers go there; progress and warnings go to standard error.
//!
//! The output may contain text from outside: names from files, messages of other processes, paths. A terminal
//! would obey control characters in such text, so they are written as escapes ([`plain`]). All text that this
//! program prints passes through that function; for standard error, macros in `lib.rs` replace the standard
//! library's macros.

use anyhow::Context;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::path::Path;

/// Prints an answer and a line end. It is no error if the reader has closed the output (`unisono doctor |
/// head`).
pub(crate) fn answer(text: &str) -> io::Result<()> {
    is_read(text).map(|_| ())
}

/// Prints one of several answers, and a line end. Returns false if the reader has closed the output.
pub(crate) fn is_read(text: &str) -> io::Result<bool> {
    match writeln!(io::stdout().lock(), "{}", plain(text)) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// Prints bytes from outside, and a line end if they end in none. A terminal gets them as [`plain`] text, any
/// other reader as they are.
pub(crate) fn payload(bytes: &[u8]) -> io::Result<()> {
    let line_end: &[u8] = if bytes.ends_with(b"\n") { b"" } else { b"\n" };
    let text = String::from_utf8_lossy(bytes);
    let text = plain(&text);
    let shown = if io::stdout().is_terminal() { text.as_bytes() } else { bytes };
    let mut to = io::stdout().lock();
    match to.write_all(shown).and_then(|()| to.write_all(line_end)).and_then(|()| to.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Returns whether the reader of standard output is gone.
pub(crate) fn is_closed() -> bool {
    unisono_linux::poll::has_lost_reader(io::stdout())
}

/// Writes a text to a file, or prints it if no file is given.
pub(crate) fn answer_to(file: Option<&Path>, text: &str) -> anyhow::Result<()> {
    match file {
        Some(file) => std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display())),
        None => Ok(answer(text.trim_end())?),
    }
}

/// Moves to the upper left corner of the terminal and erases the screen.
pub(crate) fn clear_screen() -> io::Result<()> {
    io::stdout().lock().write_all(b"\x1b[H\x1b[J")
}

/// Prints a remark on standard error. Very long words are shortened.
pub(crate) fn remark(what: fmt::Arguments<'_>) {
    let text = what.to_string();
    // a failed write to standard error cannot be reported anywhere
    let _ = io::stderr().lock().write_all(plain(&cut_long_words(&text)).as_bytes());
}

/// Returns a text that cannot control a terminal: control characters, and characters that change the
/// direction of writing, become JSON escapes, so that JSON keeps its meaning. Line ends and tabs stay.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let obeyed = |character: char| {
        (character.is_control() && !matches!(character, '\n' | '\t'))
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.chars().any(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if obeyed(character) {
            shown.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

fn cut_long_words(text: &str) -> Cow<'_, str> {
    /// The length in bytes up to which a word is printed whole; paths that people read are shorter.
    const MAX_WORD_LENGTH: usize = 512;
    /// The number of characters that are printed of a longer word.
    const SHOWN_CHARACTERS: usize = 64;
    if text.split_whitespace().all(|word| word.len() <= MAX_WORD_LENGTH) {
        return Cow::Borrowed(text);
    }
    let words = text.split_inclusive(char::is_whitespace).map(|word| {
        let letters = word.trim_end();
        let count = letters.chars().count();
        if count <= MAX_WORD_LENGTH {
            return word.to_owned();
        }
        let start: String = letters.chars().take(SHOWN_CHARACTERS).collect();
        format!("{start}... ({} more characters){}", count - SHOWN_CHARACTERS, &word[letters.len()..])
    });
    Cow::Owned(words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_told_what_to_do_by_texts_of_others() {
        assert_eq!(plain("x\u{1b}[31m \u{9b}2J \u{7f}\r"), "x\\u001b[31m \\u009b2J \\u007f\\u000d");
        assert_eq!(plain("a\u{202e}b"), "a\\u202eb");
        assert!(matches!(plain("two lines\n\tof Weiß"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_means_the_same_afterwards() {
        let text = "del \u{7f}, csi \u{9b}, right to left \u{202e}";
        let json = serde_json::to_string(text).expect("a text");
        assert_ne!(plain(&json), json);
        assert_eq!(serde_json::from_str::<String>(&plain(&json)).expect("still JSON"), text);
    }

    #[test]
    fn words_that_nobody_reads_are_cut_short() {
        let text = format!("no class `{}`; write another\n", "x".repeat(100_000));
        let short = cut_long_words(&text);
        assert!(short.len() < 200 && short.ends_with("(99939 more characters) write another\n"), "{short}");
        assert!(matches!(cut_long_words("a short one"), Cow::Borrowed(_)));
    }
}
