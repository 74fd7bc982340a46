//! `unisono queue clear`: removes a policy from a device.

use super::failure;
use super::side::WantedSides;
use crate::output;
use serde_json::json;
use std::process::ExitCode;
use unisono_enforce::kernel::Kernel;
use unisono_enforce::{EnforcingPlace as _, Error, cpu, places};

/// Remove a policy: the device becomes as it was before the first one
///
/// The command puts back the queueing discipline and the weights of control groups that were there before,
/// even after a crash. It also ends `unisono queue cpu`. It leaves alone what somebody else has changed
/// since, and names it. If there is no policy, it does nothing and succeeds.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono queue clear --dev eth0
  unisono queue clear --dev eth0 --direction in
  unisono queue clear                 every device of this network namespace that has a policy")]
pub(crate) struct Args {
    #[command(flatten)]
    sides: WantedSides,
    /// Print one JSON object: {"cleared": [devices, with " (in)" for packets that they receive], "cpu": how
    /// many processes that shared processor time were ended, "notes": [what was left as it is, and why]}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (mut cleared, mut notes) = (Vec::new(), cpu::settle().map_err(failure::of)?);
    failure::warn(&notes);
    // this also waits for commands that are still running
    for settled in failure::settle()? {
        notes.extend(settled.notes);
        if settled.is_as_before && args.sides.mean(&settled.side).map_err(failure::of)? {
            cleared.push(settled.side);
        }
    }
    let mut sides = args.sides.in_force().map_err(failure::of)?;
    sides.retain(|side| !cleared.contains(side));
    let mut shares = 0;
    for running in cpu::running().map_err(failure::of)? {
        if args.sides.mean_processor_time_of(running.device.as_deref()) {
            cpu::end(&running).map_err(failure::of)?;
            shares += 1;
        }
    }
    for side in sides {
        match places::of(&side) {
            Ok(mut place) => {
                let done = place.clear();
                failure::warn(place.notes());
                notes.extend_from_slice(place.notes());
                done.map_err(failure::of)?;
                cleared.push(side);
            }
            // a missing device is an error, a device without a policy is not
            Err(Error::NoPolicy { .. }) => Kernel::at(side).clear().map_err(failure::of)?,
            Err(error) => return Err(failure::of(error)),
        }
    }
    let cleared: Vec<String> = cleared.iter().map(ToString::to_string).collect();
    if args.json {
        output::answer(&json!({ "cleared": cleared, "cpu": shares, "notes": notes }).to_string())?;
    } else if cleared.is_empty() && shares > 0 {
        output::answer("processor time: as before")?;
    } else if cleared.is_empty() {
        output::answer("no policy, nothing to put back")?;
    } else {
        output::answer(&format!("{}: as before the policy", cleared.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}
