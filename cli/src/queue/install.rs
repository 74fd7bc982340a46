//! `unisono queue install` and `uninstall`: a systemd unit that applies a policy at every boot.

use super::policy_file;
use super::side::{Directions, directions};
use crate::completions;
use crate::exit::Failure;
use crate::output;
use crate::service::{self, utf8};
use anyhow::Context;
use clap_complete::engine::ArgValueCandidates;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use unisono_enforce::journal::LinkSide;
use unisono_enforce::unit::{self, BadDeviceName, DeviceUnit};

/// Let systemd apply a policy at every boot, and whenever the device comes back
///
/// The command checks the policy. If the device exists, and neither --print nor --root is given, it also
/// checks whether this host can enforce the policy. Then it writes
/// /etc/systemd/system/unisono-queue-DEV.service (-DEV-in with --direction in), enables it and starts it. The
/// unit applies the policy whenever the device appears. It clears the policy when the unit is stopped or the
/// device disappears. The policy's file is not copied: after you change it, `systemctl reload
/// unisono-queue-DEV` applies it again.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono queue install /etc/unisono/office.toml --dev eth0
  unisono queue install office.toml --dev eth0 -- --backend interposed \\
          --way af-xdp
  unisono queue install office.toml --dev eth0 --print
      print the unit, change nothing
  unisono queue install office.toml --dev eth0 --root /mnt/image
      write it into another system
  unisono queue uninstall --dev eth0")]
pub(crate) struct Args {
    /// The policy's file
    #[arg(value_name = "POLICY")]
    policy: PathBuf,
    /// The device; may be given several times
    #[arg(long, value_name = "DEV", required = true, add = ArgValueCandidates::new(completions::devices))]
    dev: Vec<String>,
    /// Direction of the policy: the packets that the device sends, or the packets that it receives. With
    /// `both`, each direction has a unit of its own
    #[arg(long, value_name = "WHICH", value_parser = directions(), default_value = "out")]
    direction: Directions,
    /// Print the units and change nothing
    #[arg(long)]
    print: bool,
    /// Write the unit below this directory, and start nothing
    #[arg(long, value_name = "DIR", conflicts_with = "print")]
    root: Option<PathBuf>,
    /// Options to pass to `unisono queue apply`
    #[arg(last = true, value_name = "APPLY OPTIONS")]
    options: Vec<String>,
}

/// Remove the unit that `unisono queue install` wrote, and clear the policy from the device
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono queue uninstall --dev eth0
  unisono queue uninstall --dev eth0 --root /mnt/image")]
pub(crate) struct UninstallArgs {
    /// The device; may be given several times
    #[arg(long, value_name = "DEV", required = true, add = ArgValueCandidates::new(completions::devices))]
    dev: Vec<String>,
    /// Direction of the policy: the packets that the device sends, or the packets that it receives. With
    /// `both`, each direction has a unit of its own
    #[arg(long, value_name = "WHICH", value_parser = directions(), default_value = "out")]
    direction: Directions,
    /// Remove the unit below this directory, and stop nothing
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.policy.as_os_str() == "-" {
        return Err(Failure::Usage(
            "a policy for every boot has to be a file; write standard input to a file first, and name that"
                .to_owned(),
        )
        .into());
    }
    let (name, _) = policy_file::read(&args.policy)?;
    let program =
        std::env::current_exe().context("cannot find this program's file; start it by its full path")?;
    let policy =
        args.policy.canonicalize().with_context(|| format!("cannot find {name}; look for it: ls {name}"))?;
    let mut units = Vec::new();
    if args.options.iter().any(|option| option.split('=').next() == Some("--direction")) {
        let what =
            "--direction stands before `--`, because the unit clears that direction when it is stopped";
        return Err(Failure::Usage(what.to_owned()).into());
    }
    for side in sides(&args.dev, args.direction) {
        unit::unit(&side).map_err(bad_name)?;
        units.push(DeviceUnit {
            program: utf8(&program)?,
            policy: utf8(&policy)?,
            side,
            options: args.options.clone(),
        });
    }
    if let Some(code) = checked(&units, &program, args.print || args.root.is_some())? {
        return Ok(code);
    }
    if args.print {
        let texts: Vec<String> = units.iter().map(DeviceUnit::text).collect();
        output::answer(texts.join("\n").trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    for unit in &units {
        let file = unit::unit(&unit.side).map_err(bad_name)?;
        let path = service::install(&file, &unit.text(), args.root.as_deref())?;
        output::answer(&format!("{}: {}", unit.side, path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn uninstall(args: &UninstallArgs) -> anyhow::Result<ExitCode> {
    for side in &sides(&args.dev, args.direction) {
        // stopping the unit clears the policy from the device
        let path = service::uninstall(&unit::unit(side).map_err(bad_name)?, args.root.as_deref())?;
        output::answer(&format!("{side}: removed {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn sides(devices: &[String], directions: Directions) -> Vec<LinkSide> {
    let of_device = |device: &String| {
        let side = |direction| LinkSide { device: device.clone(), direction };
        directions.list().into_iter().map(side).collect::<Vec<_>>()
    };
    devices.iter().flat_map(of_device).collect()
}

/// Runs `unisono queue apply --check` with the options of each unit. Returns its exit code if it fails. If
/// `elsewhere` (`--print` or `--root`), or if the device does not exist yet, only the policy and the options
/// are checked, and not whether this host can enforce the policy.
fn checked(units: &[DeviceUnit], program: &Path, elsewhere: bool) -> anyhow::Result<Option<ExitCode>> {
    for unit in units {
        let mut check = Command::new(program);
        check.args(["queue", "apply", &unit.policy, "--check", "--direction", unit.side.direction.name()]);
        check.args(&unit.options);
        if !elsewhere && Path::new("/sys/class/net").join(&unit.side.device).exists() {
            check.args(["--dev", &unit.side.device]);
        }
        let output = check
            .output()
            .context("cannot start this program again; was its file replaced meanwhile? try again")?;
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            let code = output.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
            return Ok(Some(ExitCode::from(code)));
        }
    }
    Ok(None)
}

fn bad_name(error: BadDeviceName) -> anyhow::Error {
    Failure::Usage(error.to_string()).into()
}
