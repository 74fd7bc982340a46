//! Exit codes: 0 done; 1 the work failed; 2 bad usage or bad input; 3 this host cannot do it.

use std::fmt;
use std::process::ExitCode;

/// An error that decides the exit code; everything else is 1.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Bad usage or bad input: what was wrong, where, what was expected.
    Usage(String),
    /// This host cannot do it: the missing capability and the remedy.
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

/// Prints the error, if there is one, and answers the code to exit with.
pub(crate) fn code(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("unisono: {error:#}");
            match error.downcast_ref::<Failure>() {
                Some(Failure::Usage(_)) => ExitCode::from(2),
                Some(Failure::Host(_)) => ExitCode::from(3),
                None => ExitCode::from(1),
            }
        }
    }
}
