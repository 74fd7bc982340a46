//! Starts a program that stays when this one ends, and waits until it says that its policy holds.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use unisono_linux::descriptors;
use unisono_linux::parent_death::end_with_starter;
use unisono_linux::process::{Family, start};
use unisono_linux::undo::DirectoryLock;

/// What such a program says on its standard output when the policy holds.
pub const READY: &str = "ready";

/// What became of it.
pub(crate) enum Begun {
    /// It runs, and its policy holds.
    Ready,
    /// It has ended.
    Ended {
        /// With this code, unless a signal ended it.
        code: Option<i32>,
        /// What it said last.
        why: String,
    },
}

/// Starts a program in a session of its own, with `input` to read. It gets neither descriptors nor the
/// environment of this one but a copy of `lock`, and the option `--lock NUMBER` that says where; it works in
/// the root directory. It is killed with this one until it calls
/// [`outlive_starter`](unisono_linux::parent_death::outlive_starter): what is half way does not come to hold
/// when the command that wanted it is gone.
pub(crate) fn begin(mut command: Command, lock: Option<&DirectoryLock>, input: &[u8]) -> io::Result<Begun> {
    // first: what follows keeps one of the descriptors that this closes
    descriptors::leave_behind(&mut command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(lock) = lock {
        let number = lock.pass_to(&mut command);
        command.arg(format!("--lock={number}"));
    }
    end_with_starter(&mut command);
    let mut program = start(&mut command, Vec::new(), Family::OwnSession)?;
    if let Some(mut stdin) = program.stdin.take() {
        // if it ended already, its reason follows
        let _ = stdin.write_all(input);
    }
    let mut line = String::new();
    if let Some(output) = program.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line.trim_end() == READY {
        return Ok(Begun::Ready);
    }
    let mut why = String::new();
    if let Some(errors) = program.stderr.take() {
        let _ = errors.take(1 << 16).read_to_string(&mut why);
    }
    let code = program.wait().ok().and_then(|status| status.code());
    Ok(Begun::Ended { code, why: why.trim().trim_start_matches("unisono: ").to_owned() })
}
