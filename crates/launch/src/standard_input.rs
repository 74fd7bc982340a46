//! Passes standard input to rank 0.
//!
//! If standard input is a file or a pipe, rank 0 inherits it. Rank 0 cannot inherit a terminal, because it
//! leads a process group of its own, and the kernel stops background groups that read the terminal. So a
//! thread of the launcher reads the terminal and passes the bytes on. Before each read it checks whether the
//! launcher is in the foreground.

use crate::error::Error;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write, stdin};
use std::os::fd::AsFd;
use std::process::{ChildStdin, Stdio};
use std::time::Duration;
use unisono_linux::process::readable;
use unisono_linux::terminal::is_foreground;

/// The interval at which a launcher in the background checks whether it is in the foreground again.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The source of rank 0's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputSource {
    /// This process's own standard input.
    Own,
    /// A launcher on another host.
    Launcher,
}

/// Returns the standard input of a rank.
pub(crate) fn stdio_for(rank: usize, source: InputSource) -> Stdio {
    match rank {
        0 if source == InputSource::Launcher => Stdio::piped(),
        0 if stdin().is_terminal() => Stdio::piped(),
        0 => Stdio::inherit(),
        _ => Stdio::null(),
    }
}

/// Passes the terminal's bytes on to rank 0 until the terminal or the rank ends.
pub(crate) fn pass_on(mut to: ChildStdin) -> Result<(), Error> {
    let terminal = stdin().as_fd().try_clone_to_owned().map_err(Error::system("read the terminal"))?;
    // the thread ends with the process, if not before
    std::thread::Builder::new()
        .name("keyboard".into())
        .spawn(move || copy(terminal.into(), |piece| to.write_all(piece)))
        .map(|_| ())
        .map_err(Error::system("start a thread"))
}

/// Passes all of standard input to `take`, in pieces, until the input ends or `take` fails.
pub(crate) fn read_all(mut take: impl FnMut(&[u8]) -> io::Result<()>) {
    if stdin().is_terminal() {
        if let Ok(terminal) = stdin().as_fd().try_clone_to_owned() {
            copy(terminal.into(), take);
        }
        return;
    }
    // A piece is larger than a page and smaller than a pipe's capacity, so that the write of a piece to an
    // empty pipe never blocks.
    let mut bytes = [0; 32 << 10];
    loop {
        match stdin().read(&mut bytes) {
            Ok(count) if count > 0 && take(&bytes[..count]).is_ok() => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

fn copy(mut terminal: File, mut take: impl FnMut(&[u8]) -> io::Result<()>) {
    let mut bytes = [0; 4096];
    loop {
        if !is_foreground(terminal.as_fd()) {
            std::thread::sleep(POLL_INTERVAL);
            continue;
        }
        match readable(&[terminal.as_fd()], Some(POLL_INTERVAL)) {
            Ok(ready) if ready != [true] => continue,
            Ok(_) if is_foreground(terminal.as_fd()) => {}
            Ok(_) => continue,
            Err(_) => return,
        }
        let passed = match terminal.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(count) => take(&bytes[..count]),
        };
        if passed.is_err() {
            return;
        }
    }
}
