//! `unisono queue disk`: serves a file or a block device by the classes of a policy.

use super::units;
use crate::events::{NextUser, leave_root, mode};
use crate::exit::{self, Failure};
use crate::machine_output::{CsvFlag, TableForm};
use crate::service::ServiceNotices;
use crate::text_file;
use crate::user::user_id;
use anyhow::Context as _;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use unisono_enforce::disk::{DiskError, DiskFigures, DiskServer};
use unisono_fairqueue::Policy;
use unisono_linux::direct::FileAccess;
use unisono_linux::interrupt;
use unisono_linux::read::HAND_WRITTEN;

/// Serve a file or a block device, shared among classes by weight
///
/// Virtual machines and programs that speak NBD (QEMU, nbd-client, libnbd) connect to the socket. Each class
/// of the policy is an export of its name: the URI nbd+unix:///CLASS?socket=SOCKET chooses it, and a URI
/// without a class means the default class. All exports have the same bytes. While several classes have
/// requests waiting, Cello divides the disk among them by their weights, in bytes; the policy's rate is the
/// most that all get together. The table [disk.CLASS] gives a class an order of its own (`purpose =
/// "interactive"`, `deadline = "10ms"`) and says which users may choose it (`users = ["alice"]`).
///
/// A flush is acknowledged when all writes before it are on the disk. Ctrl-C ends in order: requests that
/// have come are served, the disk is synced, the socket goes. SIGHUP has it read POLICY again: clients stay
/// connected, and a policy with an error changes nothing. `unisono queue show --disk SOCKET` watches the
/// classes. The command changes nothing on the host but FILE and SOCKET. Started by root, it becomes another
/// user before it reads from a client; for SIGHUP, that user has to be able to read POLICY.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  truncate --size=10G disk.img
  unisono queue disk disk.img --policy disk.toml --listen /run/user/1000/disk
  qemu-system-x86_64 -drive \\
          'file=nbd+unix:///video?socket=/run/user/1000/disk,format=raw' ...
  unisono queue show --disk /run/user/1000/disk
  kill -HUP PID
      after a change of disk.toml
  nbdcopy 'nbd+unix:///backup?socket=/run/user/1000/disk' backup.img
  sudo nbd-client -unix /run/user/1000/disk /dev/nbd0 -name video
      then mount -o ro /dev/nbd0

disk.toml:
  rate = \"800mbit\"  # a little less than the disk carries: requests wait here
  default = \"rest\"
  [class.video]
  weight = 3
  [class.backup]
  [disk.video]
  purpose = \"interactive\"
  users = [\"alice\"]")]
pub(crate) struct Args {
    /// The file or block device; its length is the length of the disk
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Classes, weights, the rate; no ceilings, limits, flows or ecn. Matches are not used
    #[arg(long, value_name = "POLICY")]
    policy: PathBuf,
    /// The socket to listen at
    #[arg(long, value_name = "SOCKET")]
    listen: PathBuf,
    /// Users with access to the socket, as chmod(1) writes it: 600 for you and root, 660 also for your group,
    /// 666 for all users
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "600")]
    mode: u32,
    /// Refuse writes, and open the file for reading only
    #[arg(long)]
    read_only: bool,
    /// Requests at the disk at a time; more keep a fast disk busy, fewer leave more of the order to the
    /// policy
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), default_value_t = 4)]
    depth: u16,
    /// When root starts it: the user to become once it listens, as a name or as UID or UID:GID
    ///
    /// Without this option the server becomes a user that owns nothing and that no other process has. With
    /// `root` it stays root.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Print the statistics at the end as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table: CsvFlag,
}

/// The format of the statistics, at the end and while the server runs.
pub(super) const DISK_FORMAT: &str = "unisono-queue-disk-1";

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let user = NextUser::chosen(args.user.as_deref())?;
    let (name, policy) = read_policy(&args.policy)?;
    let access = if args.read_only { FileAccess::Read } else { FileAccess::Write };
    let in_words = |error| match error {
        DiskError::Policy { .. } | DiskError::UnknownUser { .. } => {
            Failure::Usage(format!("{name}: {error}")).into()
        }
        DiskError::Sync(_) | DiskError::Server(_) => error.into(),
        other => anyhow::Error::from(Failure::Usage(other.to_string())),
    };
    interrupt::catch_for_server().context("cannot catch Ctrl-C")?;
    let mut server = DiskServer::open(&args.file, access, policy, user_id).map_err(in_words)?;
    server.listen(&args.listen, args.mode).map_err(in_words)?;
    let service = ServiceNotices::connect();
    // this process starts another one that removes the socket, because the user that it becomes may not
    let sweeper = match user.numbers()? {
        None => None,
        Some((user, group)) => {
            server.change_owner(user, group).context("cannot give the socket away")?;
            leave_root((user, group), std::slice::from_ref(&args.listen))?
        }
    };
    eprintln!("{}", greeting(&server, &args.file, &args.listen)?);
    service.ready();
    let is_over = || {
        service.alive();
        if interrupt::hung_up().is_some() {
            let changed = read_policy(&args.policy).and_then(|(name, policy)| {
                server.change(policy, user_id).map_err(|error| anyhow::anyhow!("{name}: {error}"))
            });
            match changed {
                Ok(()) => eprintln!("{} is in force now", args.policy.display()),
                Err(error) => exit::print_error(&format!("warning: the policy stays as it is: {error}")),
            }
        }
        interrupt::caught().is_some()
    };
    let note = |text: &str| exit::print_error(&format!("warning: {text}"));
    let figures = server.serve(args.depth.into(), &is_over, &note).map_err(in_words)?;
    drop((server, sweeper));
    let form = TableForm::chosen(args.json, args.table.csv);
    form.answer(DISK_FORMAT, &figures, &figures.classes, || table(&figures))?;
    Ok(ExitCode::SUCCESS)
}

fn read_policy(path: &Path) -> anyhow::Result<(String, Policy)> {
    let (name, text) = text_file::read(path, HAND_WRITTEN)?;
    let policy = Policy::parse(&text).map_err(|error| Failure::Usage(format!("{name}:{error}")))?;
    Ok((name, policy))
}

/// Returns the first line that the server prints, with the URIs that clients need.
fn greeting(server: &DiskServer, file: &Path, socket: &Path) -> anyhow::Result<String> {
    let socket = std::path::absolute(socket)?;
    Ok(format!(
        "serving {} ({}) at nbd+unix:///CLASS?socket={}; CLASS is one of {}; Ctrl-C ends it",
        file.display(),
        units::size(server.size()),
        escaped(&socket.to_string_lossy()),
        server.class_names().join(", ")
    ))
}

/// Escapes a path for a URI: bytes with a meaning there are percent-encoded.
fn escaped(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'~' => text.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => text.push(byte.into()),
            byte => {
                let _ = write!(text, "%{byte:02X}"); // writing to memory does not fail
            }
        }
    }
    text
}

fn table(figures: &DiskFigures) -> String {
    let mut text = format!(
        "{:<20} {:>7} {:>10} {:>9} {:>9} {:>9} {:>6} {:>6} {:>8} {:>8}\n",
        "class", "share", "requests", "read", "written", "contended", "failed", "late", "median", "p99"
    );
    for class in &figures.classes {
        let delay = |of: fn(&unisono_fairqueue::DelayFigures) -> u64| {
            class.delay.as_ref().map_or_else(|| "-".to_owned(), |delay| units::time(of(delay)))
        };
        let _ = writeln!(
            text,
            "{:<20} {:>6.1}% {:>10} {:>9} {:>9} {:>9} {:>6} {:>6} {:>8} {:>8}",
            class.name,
            class.share * 100.0,
            class.requests,
            units::size(class.read_bytes),
            units::size(class.written_bytes),
            units::size(class.contended_bytes),
            class.failed,
            class.late,
            delay(|delay| delay.median_ns),
            delay(|delay| delay.p99_ns)
        );
    }
    if figures.refused > 0 {
        let _ = writeln!(text, "{} clients were turned away", figures.refused);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_characters_of_uris_is_escaped() {
        assert_eq!(escaped("/run/a b&c%?"), "/run/a%20b%26c%25%3F");
    }
}
