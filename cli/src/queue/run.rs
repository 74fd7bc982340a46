//! `unisono queue run`: runs a program in a class of the policy in force.

use super::failure;
use super::side::WantedSides;
use crate::exit::{Failure, print_error};
use std::ffi::OsString;
use std::process::ExitCode;
use unisono_enforce::class_group::{ClassGroup, group_of_class, policy_in_force};
use unisono_enforce::journal::LinkSide;
use unisono_fairqueue::{Policy, TrafficDirection};
use unisono_launch::side_by_side::{self, Companion};
use unisono_linux::affinity::{Tid, allowed};

/// Run a program in a class of the policy in force
///
/// The program and its children run in a control group of their own, below the group that the class's match
/// names; the group is removed when the program ends. Needs root, as the other commands do; the program may
/// change to another user. The exit code is the program's (128 + N if signal N ended it).
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo unisono queue run --class video \\
          -- ffmpeg -re -i film.mkv -f mpegts udp://10.0.0.7:5004
  sudo unisono queue run --class video -- runuser -u alice -- vlc
The class needs a match by control group alone, such as match = [{ cgroup = \"/unisono/video\" }].")]
pub(crate) struct Args {
    /// The class
    #[arg(long, value_name = "NAME")]
    class: String,
    /// The device [default: the first one whose policy has the class]
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    failure::recover_all()?;
    let (side, policy) = policy_with(args)?;
    let path = group_of_class(&policy, &args.class)
        .map_err(|why| Failure::Usage(format!("the policy of {side}: {why}")))?;
    let group = ClassGroup::enter(&side, &policy, path).map_err(failure::from_error)?;
    let program =
        Companion { command: args.command.clone(), environment: Vec::new(), cpus: allowed(Tid::SELF)? };
    let ended = side_by_side::run(&[program], |_| {});
    if let Some(note) = group.leave() {
        print_error(&note);
    }
    match ended {
        Ok(ended) => Ok(ExitCode::from(ended.first().map_or(1, |(_, how)| how.code()))),
        Err(error @ unisono_launch::Error::Program { .. }) => Err(Failure::Usage(error.to_string()).into()),
        Err(error) => Err(error.into()),
    }
}

/// Finds the policy in force that has the class. If no policy has it, returns the first policy, so that the
/// error can name its classes.
fn policy_with(args: &Args) -> anyhow::Result<(LinkSide, Policy)> {
    let mut sides = WantedSides::sending(args.dev.clone()).in_force().map_err(failure::from_error)?;
    // a policy for received packets cannot match a control group, because a packet has no process yet
    sides.retain(|side| side.direction == TrafficDirection::Out);
    let mut first = None;
    for side in sides {
        let policy = policy_in_force(&side).map_err(failure::from_error)?;
        if policy.hierarchy.find(&args.class).is_some() {
            return Ok((side, policy));
        }
        first = first.or(Some((side, policy)));
    }
    first.ok_or_else(|| {
        let text = "no device has a policy for packets that it sends; apply one: unisono queue apply POLICY --dev DEV";
        Failure::Host(text.to_owned()).into()
    })
}
