//! Removes the sockets of a broker that has given up its privileges.
//!
//! A broker started by root listens at sockets in root's directories. Once it is another user, it may not
//! remove them. So a second process stays root. It waits for the end of file on a pipe from the broker, which
//! means that the broker has ended, by a signal or otherwise. Then it removes the sockets, unless another
//! broker has replaced them or taken over.

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
    #[arg(required = true)]
    sockets: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let theirs: Vec<_> = args.sockets.iter().map(|path| (path, identity(path))).collect();
    privilege::retain_only(&[Privilege::OverrideFileModes])?;
    privilege::never_more()?;
    // systemd signals all processes of a service, but this process must outlive the broker
    interrupt::ignore()?;
    let mut word = Vec::new();
    std::io::stdin().read_to_end(&mut word)?;
    if word == LEAVE {
        return Ok(ExitCode::SUCCESS);
    }
    for (path, identity_then) in theirs {
        if identity_then.is_some() && identity(path) == identity_then {
            // the socket may be gone already
            let _ = std::fs::remove_file(path);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The word of a broker whose sockets belong to another broker now.
const LEAVE: &[u8] = b"leave";

/// Returns data that distinguishes a file from another file that replaced it.
fn identity(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let facts = path.symlink_metadata().ok()?;
    Some((facts.dev(), facts.ino(), facts.ctime(), facts.ctime_nsec()))
}

/// The process that removes the sockets. Dropping this waits until it has removed them.
pub(crate) struct SocketSweeper(Child);

impl SocketSweeper {
    pub(super) fn start(sockets: &[PathBuf]) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["events", "sweep", "--"]).args(sockets.iter().flat_map(std::path::absolute));
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
