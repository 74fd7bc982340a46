//! `unisono queue guard`: sockets of users get shares of their own in the classes of the policies in force.

use super::failure;
use crate::events::mode;
use crate::exit::{self, Failure};
use crate::service::ServiceNotices;
use crate::user::user_id;
use anyhow::Context as _;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_enforce::socket_guard::{GuardError, GuardServer};
use unisono_linux::{activation, interrupt};

/// Give sockets of users shares of their own in a class
///
/// A program passes one of its sockets to the guard, with the name of a class and a weight:
/// unisono_share_socket(fd, "video", 3) in C, unisono.share_socket(socket, "video", 3) in Python, the crate
/// unisono-socket-shares in Rust. The program needs no privilege. If the policy in force lets its user do so,
/// the socket gets a leaf of its own below the class: while several sockets of the class have packets
/// waiting, they share the class by their weights, and the other packets of the class share one leaf with the
/// lowest weight. The leaf goes with the socket, at most a second later.
///
/// The class needs `sockets = { from = ["alice"] }`: `from` names the users, `max` is the most sockets of
/// each of them (default: 1000), `weight` is the range of weights (default: "1..100"). This works with the
/// kernel's own classes (`queue apply --backend kernel`, the default), for packets that are sent; Linux 5.9
/// or later.
///
/// The guard runs until Ctrl-C or SIGTERM and then takes all leaves away; the packets are in their class
/// again. After kill -9 the leaves stay, and the next guard goes on with them. It needs root.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  sudo unisono queue apply streams.toml --dev eth0
  sudo unisono queue guard
      until Ctrl-C
  sudo unisono queue install /etc/unisono/streams.toml --dev eth0
  sudo systemctl enable --now unisono-queue-guard.socket
      both at every boot; the first request starts the guard

streams.toml:
  rate = \"100mbit\"
  default = \"rest\"
  [class.video]
  weight = 3
  sockets = { from = [\"alice\", 1001], max = 500, weight = \"1..100\" }
  [class.rest]")]
pub(crate) struct Args {
    /// The socket to listen at; programs look for it at the default, or where UNISONO_QUEUE_GUARD says
    #[arg(long, value_name = "SOCKET", default_value = unisono_enforce::socket_guard::SOCKET)]
    listen: PathBuf,
    /// Users with access to the socket, as chmod(1) writes it. The policy names the users whose requests are
    /// granted; all others are refused before a byte of theirs is read
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "666")]
    mode: u32,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let in_words = |error: GuardError| match error {
        GuardError::Policy(error) => failure::from_error(error),
        GuardError::InUse { .. } => {
            Failure::Usage(format!("{error}; end it, or choose another --listen")).into()
        }
        GuardError::Listen { .. } => {
            Failure::Host(format!("{error}; the guard needs root: sudo unisono queue guard")).into()
        }
        error => error.into(),
    };
    interrupt::catch_for_server().context("cannot catch Ctrl-C")?;
    let service = ServiceNotices::connect();
    let inherited = activation::listeners().context("cannot take the sockets of LISTEN_FDS")?;
    let server = match inherited.into_iter().next() {
        Some(socket) => GuardServer::at(socket.into(), Box::new(user_id)),
        None => GuardServer::listen(&args.listen, args.mode, Box::new(user_id)).map_err(in_words)?,
    };
    eprintln!("sockets get shares by {}; Ctrl-C ends it", args.listen.display());
    service.ready();
    let is_over = || {
        service.alive();
        interrupt::caught().is_some()
    };
    server.serve(&is_over, &|text| exit::print_error(&format!("warning: {text}"))).map_err(in_words)?;
    Ok(ExitCode::SUCCESS)
}
