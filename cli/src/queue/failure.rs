//! Converts errors of a host's backends to exit codes, and prints the notes of backends.

use crate::exit::Failure;
use unisono_enforce::{Blame, Error, Recovered};
use unisono_linux::next_step::WITH_SUDO;
use unisono_linux::process::is_root;

/// Converts an error of a command that reads no policy.
pub(super) fn from_error(error: Error) -> anyhow::Error {
    in_policy(None, error)
}

/// Converts an error about a policy that was read from the file `name`.
pub(super) fn in_policy(name: Option<&str>, error: Error) -> anyhow::Error {
    let blame = error.blame();
    let text = match (&error, name) {
        (Error::NotHere { .. }, Some(name)) => format!("{name}:{error}"),
        (Error::BackendUnsupported { .. }, Some(name)) => format!("{name}: {error}"),
        _ => error.to_string(),
    };
    match blame {
        // the same exit code as for a missing broker or daemon: nothing is wrong with the command line
        _ if matches!(error, Error::NoPolicy { .. }) => Failure::Host(text).into(),
        Blame::Input => Failure::Usage(text).into(),
        Blame::Host if !is_root() && !text.ends_with(WITH_SUDO) => {
            Failure::Host(format!("{text}; only root may change the queues of a device: {WITH_SUDO}")).into()
        }
        Blame::Host => Failure::Host(text).into(),
        Blame::Work => error.into(),
    }
}

/// Undoes the changes that killed commands left, and prints notes about it.
pub(super) fn recover_all() -> anyhow::Result<Vec<Recovered>> {
    let recovered = unisono_enforce::recover_all().map_err(from_error)?;
    for device in &recovered {
        warn(&device.notes);
    }
    Ok(recovered)
}

/// Prints the notes of a backend.
pub(super) fn warn(notes: &[String]) {
    for note in notes {
        eprintln!("unisono: {note}");
    }
}
