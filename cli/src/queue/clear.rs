//! `unisono queue clear`: a device is as it was.

use super::failure;
use crate::output;
use serde_json::json;
use std::process::ExitCode;
use unisono_enforce::journal::{Journal, JournalError};
use unisono_enforce::kernel::Kernel;
use unisono_enforce::{Error, Place, cpu};
use unisono_fairqueue::Backend;

/// Take a policy away: the device is as it was before the first one
///
/// Puts back the queueing discipline and the weights of control groups that were there before, also after a
/// crash, and ends what shares out processor time by turns. What somebody else has changed meanwhile stays,
/// and is named. Without a policy there is nothing to do, which is no error.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono queue clear --dev eth0
  unisono queue clear                 every device of this network namespace that has a policy")]
pub(crate) struct Args {
    /// The device; without it every device that has a policy
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,
    /// One JSON object: {"cleared": [devices], "cpu": how many shared out processor time, "notes": [what was
    /// left as it is, and why]}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let of_journal = |error: JournalError| failure::of(error.into());
    let asked_for = |device: &str| match &args.dev {
        // by the name that it has now
        Some(wanted) => Ok(Journal::find(wanted).map_err(of_journal)?.0 == device),
        None => Ok::<_, anyhow::Error>(true),
    };
    let (mut cleared, mut notes) = (Vec::new(), cpu::settle().map_err(failure::of)?);
    failure::warn(&notes);
    // also waits for what is half way
    for settled in failure::settle()? {
        notes.extend(settled.notes);
        if settled.is_as_before && asked_for(&settled.device)? {
            cleared.push(settled.device);
        }
    }
    let mut devices: Vec<String> = match &args.dev {
        Some(device) => vec![Journal::find(device).map_err(of_journal)?.0],
        None => Journal::all().map_err(of_journal)?.into_iter().map(|(device, _)| device).collect(),
    };
    devices.retain(|device| !cleared.contains(device));
    let mut shares = 0;
    for running in cpu::running().map_err(failure::of)? {
        if args.dev.is_none() || running.device == args.dev {
            cpu::end(&running).map_err(failure::of)?;
            shares += 1;
        }
    }
    for device in devices {
        match Place::of(&device) {
            Ok(mut place) => {
                let done = place.clear();
                failure::warn(place.notes());
                notes.extend_from_slice(place.notes());
                done.map_err(failure::of)?;
                cleared.push(device);
            }
            // a device that is not there is an error, one without a policy is none
            Err(Error::NoPolicy { .. }) => Kernel::new(&device).clear().map_err(failure::of)?,
            Err(error) => return Err(failure::of(error)),
        }
    }
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
