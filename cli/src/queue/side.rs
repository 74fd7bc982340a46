//! `--dev` and `--direction`: the options that select among the policies in force.

use crate::completions;
use crate::flags::one_of;
use clap::builder::TypedValueParser;
use clap_complete::engine::ArgValueCandidates;
use unisono_enforce::Error;
use unisono_enforce::journal::{Journal, LinkSide};
use unisono_fairqueue::TrafficDirection;

/// The directions that `--direction` names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Directions {
    One(TrafficDirection),
    Both,
}

impl Directions {
    const ALL: [(Self, &'static str, &'static str); 3] = {
        let [(out, out_name, out_help), (inward, in_name, in_help)] = TrafficDirection::ALL;
        [
            (Self::One(out), out_name, out_help),
            (Self::One(inward), in_name, in_help),
            (Self::Both, "both", "One policy for each direction, from the same file"),
        ]
    };

    pub(super) fn list(self) -> Vec<TrafficDirection> {
        match self {
            Self::One(direction) => vec![direction],
            Self::Both => TrafficDirection::ALL.map(|(direction, ..)| direction).to_vec(),
        }
    }
}

pub(super) fn directions() -> impl TypedValueParser<Value = Directions> {
    one_of(&Directions::ALL)
}

/// The policies that are meant, out of those in force.
#[derive(clap::Args)]
pub(super) struct WantedSides {
    /// The device [default: every device that has a policy]
    #[arg(long, value_name = "DEV", add = ArgValueCandidates::new(completions::devices))]
    pub(super) dev: Option<String>,
    /// Only packets that the device sends, or only packets that it receives [default: both]
    #[arg(long, value_name = "WHICH", value_parser = directions(), requires = "dev")]
    direction: Option<Directions>,
}

pub(super) fn direction() -> impl TypedValueParser<Value = TrafficDirection> {
    one_of(&TrafficDirection::ALL)
}

impl WantedSides {
    /// Selects the policy for the packets that a device sends; all such policies if no device is given.
    pub(super) fn sending(dev: Option<String>) -> Self {
        Self { dev, direction: Some(Directions::One(TrafficDirection::Out)) }
    }

    /// Returns the only direction that is selected, or `None` for both.
    fn only(&self) -> Option<TrafficDirection> {
        match self.direction? {
            Directions::One(direction) => Some(direction),
            Directions::Both => None,
        }
    }

    /// Returns the selected policies in force, with the current names of their devices. If the options name a
    /// device without a policy, the device is in the list, too, so that the caller reports it.
    pub(super) fn in_force(&self) -> Result<Vec<LinkSide>, Error> {
        let all = Journal::all()?.into_iter().map(|(side, _)| side);
        let Some(device) = &self.dev else { return Ok(all.collect()) };
        let mut found = Vec::new();
        for direction in TrafficDirection::ALL.map(|(direction, ..)| direction) {
            let side = LinkSide { device: device.clone(), direction };
            let (side, journal) = Journal::find(&side)?;
            let is_there = journal.header()?.is_some();
            if self.only().is_none_or(|wanted| wanted == direction) && is_there {
                found.push(side);
            }
        }
        if found.is_empty() {
            let direction = self.only().unwrap_or_default();
            found.push(Journal::find(&LinkSide { device: device.clone(), direction })?.0);
        }
        Ok(found)
    }

    /// Returns whether the options select this policy. `side` has the device's current name.
    pub(super) fn selects(&self, side: &LinkSide) -> Result<bool, Error> {
        let is_meant = self.only().is_none_or(|wanted| wanted == side.direction);
        let Some(device) = &self.dev else { return Ok(is_meant) };
        Ok(is_meant && Journal::find(&side.at(device))?.0 == *side)
    }

    /// Returns whether the options select the shares of processor time that belong to this device, or to no
    /// device. Such shares belong to the policy for the packets that a device sends.
    pub(super) fn selects_shares_of(&self, device: Option<&str>) -> bool {
        self.only() != Some(TrafficDirection::In) && (self.dev.is_none() || self.dev.as_deref() == device)
    }
}
