//! The error that says where a policy is wrong, and how to correct it.

use unisono_text::{Position, nearest};

/// Why a text is not a policy. All that a caller can do is show it to the author of the text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{at}: {what}")]
#[non_exhaustive]
pub struct PolicyError {
    pub at: Position,
    /// The mistake, and the text to write instead.
    pub what: String,
}

/// A mistake at a byte offset of the text.
pub(super) struct Mistake {
    pub(super) at: usize,
    pub(super) what: String,
}

/// Returns an error for the text at a byte offset.
pub(super) fn wrong<T>(at: usize, what: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake { at, what: what.into() })
}

/// Returns "did you mean `x`?" with the nearest known word, or a list of all known words if none is near.
pub(super) fn meant(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("expected one of {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_recognized_and_nonsense_is_not() {
        assert_eq!(nearest("wieght", ["limit", "weight"]), Some("weight"));
        assert_eq!(nearest("rst", ["video", "rest"]), Some("rest"));
        assert_eq!(nearest("bulk", ["video", "rest"]), None);
        assert_eq!(nearest("tpc", ["udp", "tcp"]), Some("tcp"));
    }
}
