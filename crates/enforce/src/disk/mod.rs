//! Serves a file or a block device to unmodified programs and virtual machines, scheduled by the classes of a
//! policy.
//!
//! ```text
//!   clients (qemu, nbd-client, libnbd) == Unix socket: NBD ==> connection: reads, checks   [window]
//!                                                                   |
//!                                      Cello: shares by weight, deadlines, sweeps   [pace]
//!                                                                   |
//!                                        depth threads: pread, pwrite, fdatasync, fallocate
//! ```
//! Each leaf of the policy is an export of the same name; a client's class is the export that it chooses. The
//! socket's mode says who may connect, and `users` of `[disk.CLASS]` who may choose a class.
//!
//! Reads and writes go through the page cache. A read that hits the cache takes no time of the disk, but is
//! charged nevertheless; a write is acknowledged when it is in memory. Flushes and durable writes (FUA) are
//! acknowledged when fdatasync(2) has returned, so a crash of the host loses nothing that they cover.
//!
//! Cost: two threads for each connection, two copies of the data, and a lock of the scheduler for each 256
//! KiB. When not to use it: for programs that open the file themselves, because this server cannot schedule
//! them; for a disk that one program uses alone. Reference: Shenoy, Vin, "Cello" (SIGMETRICS 1998); the
//! protocol: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.
//!
//! Read first `server`, then `connection`, then `queue`. The parsers, `handshake` and `nbd`, touch no socket.

mod backing;
mod connection;
pub mod handshake;
pub mod nbd;
mod policy;
mod queue;
mod server;

pub use queue::DiskClassFigures;
pub use server::{DiskFigures, DiskServer};

use handshake::ask_for_figures;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A server answers within microseconds, unless it is stopped.
const FIGURES_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the counters of a server at this socket, of the classes that this user may choose.
pub fn figures_of(socket: &Path) -> Result<DiskFigures, DiskError> {
    let read = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(FIGURES_TIMEOUT))?;
        let figures = ask_for_figures(&mut stream).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other(
                "it turned this user away: the policy has no class for the user, or too many clients are connected",
            ),
            _ => error,
        })?;
        Ok(serde_json::from_slice(&figures)?)
    };
    read().map_err(|source: io::Error| DiskError::NoFigures { path: socket.to_owned(), source })
}

/// Why a disk is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    #[error("cannot open {} as a disk: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "{0} has no bytes, and its length is the length of the disk; give it one: truncate --size=10G {0}",
        path.display()
    )]
    Empty { path: PathBuf },
    #[error("another process serves or locks {}; end that one, or serve another file", path.display())]
    InUse { path: PathBuf },
    #[error("{what}")]
    Policy { what: String },
    #[error(
        "disk: this host has no user `{name}`, whom the class {class} names; write a name of /etc/passwd, or a number"
    )]
    UnknownUser { class: String, name: String },
    #[error("{clients} clients use the class {class}, which the policy no longer has; disconnect them first")]
    ClassInUse { class: String, clients: u64 },
    #[error("{} tells no statistics: {source}; name the socket of a disk that is served here", path.display())]
    NoFigures { path: PathBuf, source: io::Error },
    #[error("cannot listen at {}: {source}; choose the path of a socket that nobody serves", path.display())]
    Listen { path: PathBuf, source: io::Error },
    #[error("cannot sync the disk: {0}; writes since the last flush may be lost")]
    Sync(io::Error),
    #[error("cannot serve: {0}")]
    Server(io::Error),
}
