//! The messages between a program and the guard, as text.
//!
//! ```text
//!   request   unisono-share-1 video 3   and zero bytes up to 128; with it the descriptor (SCM_RIGHTS)
//!   answer    0                         or a number of errno(3), a space and a sentence; then the end
//! ```
//! All requests have the same length, so that the guard reads a request in one call, together with its
//! descriptor.

/// The length of a request.
pub const REQUEST_BYTES: usize = 128;
/// The longest answer that a client reads.
pub const MAX_ANSWER_BYTES: u64 = 4096;
/// The maximum length of a class's name, as in policies.
const MAX_CLASS: usize = 64;
const FORMAT: &str = "unisono-share-1";

/// A class and a weight for the socket that comes with the request.
#[derive(Clone, PartialEq, Debug)]
pub struct ShareRequest {
    pub class: String,
    /// A positive number.
    pub weight: f64,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadRequest(String);

impl ShareRequest {
    /// Makes a request. Fails if the name is not a valid class name, or the weight not a valid weight.
    pub fn new(class: &str, weight: f64) -> Result<Self, BadRequest> {
        let is_part = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_');
        if !(1..=MAX_CLASS).contains(&class.len()) || !class.bytes().all(is_part) {
            return Err(BadRequest(format!(
                "{class:?} is no name of a class; it has 1 to 64 of a-z, A-Z, 0-9, - and _"
            )));
        }
        // these bounds limit the number's length as text, so that a request always fits into its 128 bytes
        if !(1e-9..=1e9).contains(&weight) {
            return Err(BadRequest(format!(
                "{weight} is no weight; it is a positive number such as 3 or 0.5"
            )));
        }
        Ok(Self { class: class.to_owned(), weight })
    }

    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let text = format!("{FORMAT} {} {}", self.class, self.weight);
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    /// Parses a request. Returns `None` if the bytes are not a valid request of this version.
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let length = bytes.iter().position(|byte| *byte == 0)?;
        let (text, rest) = bytes.split_at(length);
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        let [FORMAT, class, weight] = str::from_utf8(text).ok()?.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        Self::new(class, weight.parse().ok()?).ok()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShareAnswer {
    Done,
    Refused {
        /// A number of errno(3).
        errno: i32,
        /// The reason, and what to do.
        text: String,
    },
}

impl ShareAnswer {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Done => b"0\n".to_vec(),
            Self::Refused { errno, text } => format!("{errno} {}\n", text.replace('\n', " ")).into_bytes(),
        }
    }

    /// Parses an answer. Returns `None` if the bytes are not a complete answer of this version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let line = str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        if line == "0" {
            return Some(Self::Done);
        }
        let (errno, text) = line.split_once(' ')?;
        let errno = errno.parse().ok().filter(|errno| *errno > 0)?;
        Some(Self::Refused { errno, text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_request_is_parsed_as_it_was_made(class in "[a-zA-Z0-9_-]{1,64}", weight in 1e-9..1e9) {
            let request = ShareRequest::new(&class, weight).expect("it is valid");
            prop_assert_eq!(ShareRequest::parse(&request.encode()), Some(request));
        }

        #[test]
        fn an_answer_is_parsed_as_it_was_made(errno in 1..200_i32, text in "[ -~]{0,80}") {
            let answer = ShareAnswer::Refused { errno, text };
            prop_assert_eq!(ShareAnswer::parse(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let padded = |text: &str| {
            let mut bytes = [0; REQUEST_BYTES];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            ShareRequest::parse(&bytes)
        };
        assert!(padded("unisono-share-1 video 3").is_some());
        for text in [
            "",
            "unisono-share-2 video 3",
            "unisono-share-1 video",
            "unisono-share-1 video 3 4",
            "unisono-share-1 vi\0deo 3",
            "unisono-share-1 a/b 3",
            "unisono-share-1 video nan",
            "unisono-share-1 video -1",
            "unisono-share-1 video 0",
            "unisono-share-1 video inf",
        ] {
            assert_eq!(padded(text), None, "{text:?}");
        }
        assert_eq!(ShareRequest::parse(&[b'a'; REQUEST_BYTES]), None, "it has no end");
        assert_eq!(ShareAnswer::parse(b"0\n"), Some(ShareAnswer::Done));
        for bytes in [&b""[..], b"0", b"1 half", b"x y\n", b"-1 y\n", b"\xff\n"] {
            assert_eq!(ShareAnswer::parse(bytes), None, "{bytes:?}");
        }
    }
}
