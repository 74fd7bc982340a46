//! Removing the sockets of a broker that has given its privileges away.
//!
//! A broker that root started listens at sockets in root's directories, and may not remove them once it is
//! another user. So a second process stays root: it reads nothing but the end of a pipe, which comes when the
//! broker has ended, by a signal or otherwise. Then it removes the sockets, unless another broker has
//! replaced them.

use std::io::Read as _;
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
    privilege::keep(&[Privilege::OverrideFileModes])?;
    privilege::never_more()?;
    // systemd signals all processes of a service; the broker's end is what counts
    interrupt::ignore()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    for (path, identity_then) in theirs {
        if identity_then.is_some() && identity(path) == identity_then {
            // one that is gone needs no removing
            let _ = std::fs::remove_file(path);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What tells a file from another one that replaced it.
fn identity(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let facts = path.symlink_metadata().ok()?;
    Some((facts.dev(), facts.ino(), facts.ctime(), facts.ctime_nsec()))
}

/// The process that removes the sockets. Its drop waits until that is done.
pub(super) struct SocketSweeper(Child);

impl SocketSweeper {
    pub(super) fn start(sockets: &[PathBuf]) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["events", "sweep", "--"]).args(sockets.iter().flat_map(std::path::absolute));
        // Ctrl-C is for the broker
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self)
    }
}

impl Drop for SocketSweeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // it has no more to say
        let _ = self.0.wait();
    }
}
