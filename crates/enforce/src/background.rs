//! Starts a program that outlives this one, and waits until the program reports that its policy holds.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use unisono_linux::descriptors;
use unisono_linux::parent_death::end_with_starter;
use unisono_linux::process::{self, Family};
use unisono_linux::undo::DirectoryLock;

/// The line that the program writes on standard output once its policy holds.
pub const READY: &str = "ready";

pub(crate) enum StartOutcome {
    Ready,
    Ended {
        /// The exit code, or `None` if a signal ended the program.
        code: Option<i32>,
        /// The text that it wrote on standard error.
        why: String,
    },
}

/// Starts a program in a session of its own and gives it `input` to read. The program inherits no descriptor
/// and no environment, only a copy of `lock`; the option `--lock NUMBER` gives the number of that descriptor.
/// It works in the root directory. Until the program calls
/// [`outlive_starter`](unisono_linux::parent_death::outlive_starter) the kernel kills it together with this
/// process, so that an unfinished change never comes into force after its command is gone.
pub(crate) fn start(
    mut command: Command,
    lock: Option<&DirectoryLock>,
    input: &[u8],
) -> io::Result<StartOutcome> {
    // this comes first, because it would otherwise also close the descriptor of the lock, which a later line
    // keeps open
    descriptors::close_inherited(&mut command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(lock) = lock {
        let number = lock.pass_to(&mut command);
        command.arg(format!("--lock={number}"));
    }
    end_with_starter(&mut command);
    let mut program = process::start(&mut command, Vec::new(), Family::OwnSession)?;
    if let Some(mut stdin) = program.stdin.take() {
        // if the program has ended already, this fails, and its error text is read below
        let _ = stdin.write_all(input);
    }
    let mut line = String::new();
    if let Some(output) = program.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line.trim_end() == READY {
        return Ok(StartOutcome::Ready);
    }
    let mut why = String::new();
    if let Some(errors) = program.stderr.take() {
        let _ = errors.take(1 << 16).read_to_string(&mut why);
    }
    let code = program.wait().ok().and_then(|status| status.code());
    Ok(StartOutcome::Ended { code, why: why.trim().trim_start_matches("unisono: ").to_owned() })
}
