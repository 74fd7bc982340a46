//! `unisono gang install` and `uninstall`: the daemon as a systemd unit.

use crate::gang_service::DaemonArgs;
use crate::output;
use crate::service::{self, utf8};
use anyhow::Context;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_gang::service::unit::{self, RULES};

/// The command that wrote the unit, for messages.
const INSTALL: &str = "unisono gang install";

/// Let systemd start the gang daemon at every boot, and again when it fails
///
/// Writes /etc/systemd/system/unisono-gang.service, enables it and starts it. Whatever ends the daemon, the
/// unit lets programs go on that it had stopped. A daemon that was killed is started again and takes its
/// gangs over. The daemon takes its rules from /etc/unisono/gangs.toml, once that file is there.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo unisono gang install
  sudo unisono gang install --mode 666 --slice 10ms
  unisono gang install --print
      print the unit, change nothing
  unisono gang install --root /mnt/image
      write it into another system
  sudo unisono gang uninstall")]
pub(crate) struct GangInstallArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// Print the unit and change nothing
    #[arg(long)]
    print: bool,
    /// Write the unit below this directory, and start nothing
    #[arg(long, value_name = "DIR", conflicts_with = "print")]
    root: Option<PathBuf>,
}

/// Remove the unit that `unisono gang install` wrote, and end the daemon
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo unisono gang uninstall
  unisono gang uninstall --root /mnt/image")]
pub(crate) struct GangUninstallArgs {
    /// Remove the unit below this directory, and stop nothing
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

pub(crate) fn install(args: &GangInstallArgs) -> anyhow::Result<ExitCode> {
    unisono_linux::process::deny_writing_by_others();
    let program =
        std::env::current_exe().context("cannot find this program's file; start it by its full path")?;
    let mut options = args.daemon.options()?;
    if args.daemon.rules.is_none() {
        options.extend(["--rules".to_owned(), RULES.to_owned()]);
    }
    let text = unit::text(&utf8(&program)?, &options);
    if args.print {
        output::answer(text.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = service::install(&unit::unit(INSTALL), &text, args.root.as_deref())?;
    output::answer(&path.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn uninstall(args: &GangUninstallArgs) -> anyhow::Result<ExitCode> {
    let path = service::uninstall(&unit::unit(INSTALL), args.root.as_deref())?;
    output::answer(&format!("removed {}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}
