//! Removes the sockets of a broker that has given up its privileges.
//!
//! A broker started by root listens at sockets in root's directories. Once it is another user, it may not
//! remove them. So a second process stays root. It waits for the end of file on a pipe from the broker, which
//! means that the broker has ended, by a signal or otherwise. Then it removes the sockets, unless another
//! broker has replaced them or taken over. The broker itself notes which files its sockets are: if it is
//! killed soon, the next broker may have made its own before this process runs.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use unisono_linux::interrupt;
use unisono_linux::privilege::{self, Privilege};

/// Wait for the end of the input, then remove these sockets; `serve` starts it
#[derive(clap::Args)]
pub(crate) struct Args {
    /// For each socket the identity of its file, and its path
    #[arg(required = true)]
    sockets: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    privilege::retain_only(&[Privilege::OverrideFileModes])?;
    privilege::never_more()?;
    // systemd signals all processes of a service, but this process must outlive the broker
    interrupt::ignore()?;
    let mut word = Vec::new();
    std::io::stdin().read_to_end(&mut word)?;
    if word == LEAVE {
        return Ok(ExitCode::SUCCESS);
    }
    for (then, path) in args.sockets.chunks_exact(2).map(|pair| (&pair[0], Path::new(&pair[1]))) {
        if identity(path).is_some_and(|now| now.as_str() == then) {
            // the socket may be gone already
            let _ = std::fs::remove_file(path);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The word of a broker whose sockets belong to another broker now.
const LEAVE: &[u8] = b"leave";

/// Returns words that distinguish a file from another file that replaced it, which may have its number.
fn identity(path: &Path) -> Option<String> {
    let facts = path.symlink_metadata().ok()?;
    Some(format!("{}:{}:{}:{}", facts.dev(), facts.ino(), facts.ctime(), facts.ctime_nsec()))
}

/// The process that removes the sockets. Dropping this waits until it has removed them.
pub(crate) struct SocketSweeper(Child);

impl SocketSweeper {
    pub(super) fn start(sockets: &[PathBuf]) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["events", "sweep", "--"]);
        for path in sockets.iter().flat_map(std::path::absolute) {
            if let Some(identity) = identity(&path) {
                command.arg(identity).arg(path);
            }
        }
        // a process group of its own: Ctrl-C is for the broker only
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self)
    }

    /// Has the process leave the sockets, because another broker has taken over.
    pub(super) fn leave_sockets(mut self) {
        if let Some(stdin) = &mut self.0.stdin {
            // a process that is gone removes nothing
            let _ = stdin.write_all(LEAVE);
        }
    }
}

impl Drop for SocketSweeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // its exit code does not matter
        let _ = self.0.wait();
    }
}
