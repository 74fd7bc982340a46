//! Exit codes: 0 done; 1 the work failed; 2 bad usage or bad input; 3 this host cannot do it, or the broker,
//! the daemon or the policy that is needed is not there.

use crate::output;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// An error with its own exit code. Every other error has code 1.
#[derive(Debug)]
pub enum Failure {
    /// Bad usage or bad input: the text has the error, its place and the expected form.
    Usage(String),
    /// This host cannot do it: the text has the missing capability and the remedy.
    Host(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) | Failure::Host(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Failure {}

/// Returns the exit code of a command, and prints its error if there is one.
pub fn code(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        // as in `unisono study --list | head`: the reader has all that it wanted
        Err(error) if is_broken_pipe(&error) && output::is_closed() => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error_in_words(&error));
            code_of(&error)
        }
    }
}

/// Returns whether an error comes from a pipe or a socket whose reading end is closed.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.into_iter().any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

pub(crate) fn code_of(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<Failure>() {
        Some(Failure::Usage(_)) => ExitCode::from(2),
        Some(Failure::Host(_)) => ExitCode::from(3),
        None => ExitCode::from(1),
    }
}

/// Prints a line on standard error with one write(2), because ranks of one program may print at the same time
/// and their lines must not mix.
pub(crate) fn print_error(text: &str) {
    // a failed write to standard error cannot be reported anywhere
    let _ = std::io::stderr().write_all(format!("unisono: {text}\n").as_bytes());
}

/// Joins an error and its causes. A cause that is already contained in the text is left out, because many
/// messages contain their cause.
fn error_in_words(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    lower_case_reason(&text)
}

/// Converts an error of the standard library (`Permission denied (os error 13)`) to the style of other
/// messages.
fn lower_case_reason(text: &str) -> String {
    let Some((before, after)) = text.split_once(" (os error ") else { return text.to_owned() };
    let Some((_, rest)) = after.split_once(')') else { return text.to_owned() };
    let start = before.rfind(": ").map_or(0, |colon| colon + 2);
    let reason: String = before[start..]
        .char_indices()
        .map(|(i, c)| if i == 0 { c.to_ascii_lowercase() } else { c })
        .collect();
    format!("{}{reason}{}", &before[..start], lower_case_reason(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_cause_that_a_message_names_already_is_not_said_twice() {
        let named = anyhow::Error::new(io::Error::from_raw_os_error(13));
        assert_eq!(
            error_in_words(&named.context("cannot write x: Permission denied (os error 13)")),
            "cannot write x: permission denied"
        );
        let unnamed =
            Err::<(), _>(io::Error::from_raw_os_error(2)).context("cannot read x").expect_err("an error");
        assert_eq!(error_in_words(&unnamed), "cannot read x: no such file or directory");
    }

    #[test]
    fn what_is_no_system_error_stays_as_it_is() {
        for text in ["no colon", "a: B", "a: B (os error", ": "] {
            assert_eq!(lower_case_reason(text), text);
        }
        assert_eq!(lower_case_reason("a: B c (os error 1); D: E (os error 2)"), "a: b c; D: e");
    }
}
