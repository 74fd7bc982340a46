//! The options that make links lose, duplicate or delay messages, or fail.

use super::time;
use crate::exit::Failure;
use unisono_btin::simulate::{Faults, SimulatedTime};

#[derive(clap::Args)]
pub(super) struct FaultFlags {
    /// The part of the hops that lose the message: 0.1% or 0.001
    #[arg(long, value_name = "PART", value_parser = part, default_value = "0")]
    loss: f64,
    /// The part of the hops that deliver the message twice
    #[arg(long, value_name = "PART", value_parser = part, default_value = "0")]
    duplicate: f64,
    /// Let a hop take up to this much longer, so that messages overtake each other
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "0us")]
    jitter: SimulatedTime,
    /// Cut the link with this number in the file, from the start or from a time on: 3 or 3@5us; may be
    /// repeated
    #[arg(long, value_name = "LINK[@TIME]", value_parser = failing)]
    fail_link: Vec<(u32, SimulatedTime)>,
    /// Time until a node sends a message again [default: four times the scheme's latency on paper]
    #[arg(long, value_name = "DURATION", value_parser = time)]
    pub(super) timeout: Option<SimulatedTime>,
    /// Number of times that a node sends a message again before it gives up
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(super) attempts: u32,
}

/// Parses `0.1%` or `0.001`.
fn part(text: &str) -> Result<f64, String> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let part = number.trim().parse::<f64>().map_err(|_| "expected a part like 0.1% or 0.001".to_owned())?;
    let part = part / whole;
    if (0.0..1.0).contains(&part) {
        Ok(part)
    } else {
        Err("expected a part from 0% to less than 100%".into())
    }
}

/// Parses `3` or `3@5us`.
fn failing(text: &str) -> Result<(u32, SimulatedTime), String> {
    let (link, when) = text.split_once('@').unwrap_or((text, "0"));
    let link = link.parse().map_err(|_| "expected the number of a link, as 3 or 3@5us".to_owned())?;
    Ok((link, time(when)?))
}

impl FaultFlags {
    /// Returns the faults, with the current numbers of links. `links` maps these to the numbers in the file,
    /// whose network has `all` links.
    pub(super) fn faults(&self, links: &[u32], all: usize) -> anyhow::Result<Faults> {
        let mut failing = Vec::new();
        for (link, when) in &self.fail_link {
            if *link as usize >= all {
                let last = all.saturating_sub(1);
                let problem =
                    format!("--fail-link {link}: there is no such link; the network has {all} (0 to {last})");
                return Err(Failure::Usage(problem).into());
            }
            // a link that was removed before the simulation carries no messages anyway
            if let Ok(now) = links.binary_search(link) {
                failing.push((u32::try_from(now)?, *when));
            }
        }
        Ok(Faults { loss: self.loss, duplicate: self.duplicate, jitter: self.jitter, failing })
    }
}
