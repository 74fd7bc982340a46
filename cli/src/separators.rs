//! The word `:::` between the programs of `gang run`, `fit` and `advise`.

use crate::exit::Failure;
use std::ffi::OsString;

/// Refuses `::` and `::::` as an argument if no `:::` separates programs, because a program hardly ever has
/// such an argument.
pub(crate) fn check(words: &[OsString]) -> Result<(), Failure> {
    if words.iter().any(|word| word == ":::") {
        return Ok(());
    }
    match words.iter().filter_map(|word| word.to_str()).find(|word| matches!(*word, "::" | "::::")) {
        Some(word) => Err(Failure::Usage(format!(
            "there is one program with the argument `{word}`; did you mean `:::`, which separates programs? If not, \
             hide it from this command: sh -c 'PROGRAM {word}'"
        ))),
        None => Ok(()),
    }
}
