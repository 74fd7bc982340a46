//! `unisono queue change`: gives one class of a policy in force other terms.

use super::{failure, side, units};
use crate::completions;
use crate::exit::Failure;
use crate::machine_output;
use crate::output;
use clap_complete::engine::ArgValueCandidates;
use serde_json::json;
use std::process::ExitCode;
use unisono_enforce::backends;
use unisono_enforce::journal::{Journal, LinkSide};
use unisono_fairqueue::{ClassTerms, Rate, TermsChange, TrafficDirection, Weight};

/// Change the share or the ceiling of one class of a policy in force
///
/// This is for tables of thousands of subscribers: the command reads neither the policy's file nor the table,
/// and leaves all other classes as they are. (If the guaranteed rates of siblings change by more than 0.1 %,
/// they are sent to the kernel, too.) Waiting packets are kept. The change is refused if `apply` would refuse
/// such a policy.
///
/// The change holds until the next `unisono queue apply`, which takes what the policy and its table say: so
/// write it there, too. New subscribers, and other addresses, need `apply`.
///
/// If the command is killed by SIGKILL, the class has its previous terms or the new ones. Repeat the command
/// in this case.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono queue change smith --rate 5mbit --ceiling 80mbit
      a subscriber
  unisono queue change video --weight 4 --dev eth0
      a class that the policy declares")]
#[command(override_usage = "unisono queue change [OPTIONS] --rate|--weight|--ceiling VALUE CLASS")]
#[command(group = clap::ArgGroup::new("terms").args(["rate", "weight", "ceiling"]).required(true).multiple(true))]
pub(crate) struct Args {
    /// The class, as `unisono queue show` names it
    #[arg(value_name = "CLASS")]
    class: String,
    /// The guaranteed rate of a subscriber, such as 5mbit
    #[arg(long, value_name = "RATE", conflicts_with = "weight")]
    rate: Option<Rate>,
    /// The weight of a class that the policy declares
    #[arg(long, value_name = "WEIGHT")]
    weight: Option<Weight>,
    /// The rate that the class never exceeds
    #[arg(long, value_name = "RATE")]
    ceiling: Option<Rate>,
    /// The device [default: the only one that has a policy]
    #[arg(long, value_name = "DEV", add = ArgValueCandidates::new(completions::devices))]
    dev: Option<String>,
    /// The policy of the packets that the device sends, or of those that it receives
    #[arg(long, value_name = "WHICH", value_parser = side::direction(), default_value = "out")]
    direction: TrafficDirection,
    /// Print one JSON object: the class with its weight, guarantee and ceiling
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns the only policy that is meant. Fails if there are several.
    fn side(&self) -> anyhow::Result<LinkSide> {
        let direction = self.direction;
        if let Some(device) = self.dev.clone() {
            let found = Journal::find(&LinkSide { device, direction });
            return Ok(found.map_err(|error| failure::from_error(error.into()))?.0);
        }
        let all = Journal::all().map_err(|error| failure::from_error(error.into()))?;
        let sides: Vec<LinkSide> =
            all.into_iter().map(|(side, _)| side).filter(|side| side.direction == direction).collect();
        match &sides[..] {
            [side] => Ok(side.clone()),
            [] => Err(Failure::Host(
                "no device here has a policy of this direction; apply one: unisono queue apply POLICY --dev DEV"
                    .to_owned(),
            )
            .into()),
            [first, ..] => {
                let devices: Vec<&str> = sides.iter().map(|side| side.device.as_str()).collect();
                let what =
                    format!("{} have policies; name one of them: --dev {}", devices.join(", "), first.device);
                Err(Failure::Usage(what).into())
            }
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    failure::recover_all()?;
    let side = args.side()?;
    let mut backend = backends::in_force(&side).map_err(failure::from_error)?;
    let change = TermsChange {
        rate: args.rate,
        weight: args.weight,
        ceiling: args.ceiling,
        ..TermsChange::for_class(&args.class)
    };
    let changed = backend.change_class(&change);
    failure::warn(backend.notes());
    let terms = changed.map_err(failure::from_error)?;
    let ClassTerms { class, weight, guarantee, ceiling } = &terms;
    if args.json {
        let object = json!({
            "backend": backend.kind().name, "device": side.device, "direction": side.direction, "class": class,
            "weight": weight, "guarantee": guarantee, "ceiling": ceiling, "notes": backend.notes(),
        });
        output::answer(&machine_output::json("unisono-queue-change-1", &object)?)?;
    } else {
        output::answer(&format!(
            "{class} at {side}: {} guaranteed, at most {}; until the next `unisono queue apply`: write it into the policy or its \
             table, too",
            units::rate(*guarantee),
            units::rate(*ceiling as f64),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
