//! `unisono queue clear`: removes a policy from a device.

use super::failure;
use super::side::WantedSides;
use crate::machine_output;
use crate::output;
use serde_json::json;
use std::process::ExitCode;
use unisono_enforce::kernel::Kernel;
use unisono_enforce::{Backend as _, Error, backends, cpu};

/// Remove a policy: the device becomes as it was before the first one
///
/// The command puts back the queueing discipline and the weights of control groups that were there before,
/// even after a crash. It also ends `unisono queue cpu`. It leaves later changes by other programs alone, and
/// names them. If there is no policy, it does nothing and succeeds.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono queue clear --dev eth0
  unisono queue clear --dev eth0 --direction in
  unisono queue clear
      every device of this network namespace that has a policy")]
pub(crate) struct Args {
    #[command(flatten)]
    sides: WantedSides,
    /// Print one JSON object: {"cleared": [devices, with " (in)" for packets that they receive], "cpu": how
    /// many processes that shared processor time were ended, "notes": [changes left alone, with reasons]}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (mut cleared, mut notes) = (Vec::new(), cpu::recover_all().map_err(failure::from_error)?);
    failure::warn(&notes);
    // this also waits for other `unisono queue` commands that are still running
    for recovered in failure::recover_all()? {
        notes.extend(recovered.notes);
        if recovered.is_as_before && args.sides.selects(&recovered.side).map_err(failure::from_error)? {
            cleared.push(recovered.side);
        }
    }
    let mut sides = args.sides.in_force().map_err(failure::from_error)?;
    sides.retain(|side| !cleared.contains(side));
    let mut shares = 0;
    for running in cpu::running().map_err(failure::from_error)? {
        if args.sides.selects_shares_of(running.device.as_deref()) {
            cpu::stop(&running).map_err(failure::from_error)?;
            shares += 1;
        }
    }
    for side in sides {
        match backends::in_force(&side) {
            Ok(mut backend) => {
                let done = backend.remove();
                failure::warn(backend.notes());
                notes.extend_from_slice(backend.notes());
                done.map_err(failure::from_error)?;
                cleared.push(side);
            }
            // a device that does not exist is an error, a device without a policy is not
            Err(Error::NoPolicy { .. }) => Kernel::at(side).remove().map_err(failure::from_error)?,
            Err(error) => return Err(failure::from_error(error)),
        }
    }
    let cleared: Vec<String> = cleared.iter().map(ToString::to_string).collect();
    if args.json {
        let object = json!({ "cleared": cleared, "cpu": shares, "notes": notes });
        output::answer(&machine_output::json("unisono-queue-clear-1", &object)?)?;
    } else if cleared.is_empty() && shares > 0 {
        output::answer("processor time: as before")?;
    } else if cleared.is_empty() {
        output::answer("no policy, nothing to put back")?;
    } else {
        output::answer(&format!("{}: as before the policy", cleared.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}
