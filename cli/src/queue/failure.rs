//! What the places on a host say, with the exit code that fits.

use crate::exit::Failure;
use unisono_enforce::{Blame, Error, Settled};

/// An error of a command without a policy.
pub(super) fn of(error: Error) -> anyhow::Error {
    in_policy(None, error)
}

/// An error of a policy that was read from a file.
pub(super) fn in_policy(name: Option<&str>, error: Error) -> anyhow::Error {
    let blame = error.blame();
    let text = match (&error, name) {
        (Error::NotHere { .. }, Some(name)) => format!("{name}:{error}"),
        (Error::NotByThis { .. }, Some(name)) => format!("{name}: {error}"),
        _ => error.to_string(),
    };
    match blame {
        Blame::Input => Failure::Usage(text).into(),
        Blame::Host if !unisono_linux::process::is_root() => {
            Failure::Host(format!("{text}; queues of devices are root's to change: run it as root")).into()
        }
        Blame::Host => Failure::Host(text).into(),
        Blame::Work => error.into(),
    }
}

/// Puts back what commands that were killed have left, and says so.
pub(super) fn settle() -> anyhow::Result<Vec<Settled>> {
    let settled = unisono_enforce::settle().map_err(of)?;
    for device in &settled {
        warn(&device.notes);
    }
    Ok(settled)
}

/// What a place says besides its result.
pub(super) fn warn(notes: &[String]) {
    for note in notes {
        eprintln!("unisono: {note}");
    }
}
