//! `unisono tree check --deadlock`: proves that messages cannot deadlock.

use super::input::Input;
use crate::exit::Failure;
use serde_json::{Value, json};
use std::fmt::Write;
use unisono_btin::routing::dependencies::{Resource, Storage};
use unisono_btin::routing::proof::{ProofCase, ProofTraffic, judge_routes, prove};
use unisono_btin::routing::{RoutingChannel, UpDown};
use unisono_btin::{NetworkFile, SwitchId, Tree};
use unisono_text::counted;

/// Maximum number of switches between which routes are checked, because each needs a search over the network.
const MAX_ENDS: usize = 64;

#[derive(clap::Args)]
pub(crate) struct DeadlockFlags {
    /// Prove that nothing deadlocks: search for cycles of waiting messages, with each barrier by itself, all
    /// given trees at once, and all of them among normal messages
    #[arg(long)]
    pub(crate) deadlock: bool,
    /// Root switch of the up*/down* routes of normal messages
    #[arg(long, value_name = "SWITCH", default_value_t = 0, requires = "deadlock")]
    up_down_from: u32,
    /// Assume that a register cannot hold a message, so that arrivals and releases wait in the channels
    #[arg(long, requires = "deadlock")]
    without_room: bool,
}

/// The checks and their results.
pub(super) struct Proof<'a> {
    topology: &'a NetworkFile,
    from: SwitchId,
    storage: Storage,
    ends: usize,
    routes: usize,
    crossed: usize,
    cases: Vec<ProofCase>,
}

impl DeadlockFlags {
    /// Proves that messages cannot deadlock, or finds cycles. The trees must be sound.
    pub(super) fn prove<'a>(&self, input: &'a Input, trees: &[Tree]) -> anyhow::Result<Proof<'a>> {
        let topology = &input.topology;
        let network = &topology.network;
        let from = SwitchId(self.up_down_from);
        if from.0 as usize >= network.switch_count() {
            return Err(Failure::Usage(format!(
                "--up-down-from {}: the network has {} (counted from 0)",
                from.0,
                counted(network.switch_count(), "switch")
            ))
            .into());
        }
        let directions = UpDown::new(network, from);
        let storage = if self.without_room { Storage::Channel } else { Storage::Register };
        // The switches of the first tree: the switches of one tree are connected with each other, but those
        // of several trees may not be.
        let ends: Vec<SwitchId> = trees[0].registers.keys().copied().take(MAX_ENDS).collect();
        let (routes, crossed) =
            judge_routes(network, &directions, &ends).map_err(|bad| Failure::Usage(bad.to_string()))?;
        let cases = prove(network, &directions, trees, storage);
        Ok(Proof { topology, from, storage, ends: ends.len(), routes, crossed, cases })
    }
}

impl Proof<'_> {
    /// Returns whether messages can wait in a cycle.
    pub(super) fn has_cycle(&self) -> bool {
        self.cases.iter().any(|case| case.cycle.is_some())
    }

    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "\nup*/down* from switch {}: {} between {} judged, {} crossed, all legal\n",
            self.topology.switch_name(self.from),
            counted(self.routes, "route"),
            counted(self.ends, "switch"),
            counted(self.crossed, "channel"),
        );
        if self.storage == Storage::Channel {
            out.push_str("as if registers had no room: messages of barriers wait in the channels\n");
        }
        let _ = write!(
            out,
            "\n{:<36} {:>9} {:>9} {:>12}  cycle",
            "at once", "channels", "registers", "dependencies"
        );
        for case in &self.cases {
            let cycle = case.cycle.as_ref().map_or("none".to_owned(), |cycle| format!("of {}", cycle.len()));
            let _ = write!(
                out,
                "\n{:<36} {:>9} {:>9} {:>12}  {cycle}",
                traffic(case.traffic),
                case.channels,
                case.registers,
                case.dependencies
            );
        }
        let first = self.cases.iter().find_map(|case| Some((case.traffic, case.cycle.as_ref()?)));
        let Some((what, cycle)) = first else {
            out.push_str("\n\nno cycle: nothing can wait for itself, so nothing deadlocks");
            return out;
        };
        let _ = write!(
            out,
            "\n\na cycle with {}: each waits for the next, and the last for the first",
            traffic(what)
        );
        for one in cycle {
            let _ = write!(out, "\n  {}", self.resource(*one));
        }
        out
    }

    pub(super) fn json(&self) -> Value {
        let cases: Vec<Value> = self.cases.iter().map(|case| self.case(case)).collect();
        json!({
            "up_down_from": self.from.0,
            "messages_wait_in": match self.storage { Storage::Register => "registers", Storage::Channel => "channels" },
            "routes": { "switches": self.ends, "judged": self.routes, "channels_crossed": self.crossed, "legal": true },
            "cases": cases, "deadlock": self.has_cycle(),
        })
    }

    fn case(&self, case: &ProofCase) -> Value {
        let cycle = case.cycle.as_ref();
        let cycle = cycle.map(|cycle| cycle.iter().map(|one| self.resource(*one)).collect::<Vec<_>>());
        json!({
            "at_once": traffic(case.traffic), "channels": case.channels, "registers": case.registers,
            "dependencies": case.dependencies, "cycle": cycle,
        })
    }

    fn resource(&self, resource: Resource) -> String {
        let name = |switch| self.topology.switch_name(switch);
        match resource {
            Resource::Channel(channel @ RoutingChannel { link, .. }) => {
                let (from, to) = channel.ends(&self.topology.network);
                format!("channel from switch {} to switch {} (link {link})", name(from), name(to))
            }
            Resource::Reduction(group, switch) => {
                format!("register of group {} in switch {}, combining", group.0, name(switch))
            }
            Resource::Distribution(group, switch) => {
                format!("register of group {} in switch {}, replicating", group.0, name(switch))
            }
        }
    }
}

fn traffic(traffic: ProofTraffic) -> String {
    let barriers = |n: usize| if n == 1 { "the barrier".to_owned() } else { format!("{n} barriers") };
    match traffic {
        ProofTraffic::Barrier(group) => format!("the barrier of group {}", group.0),
        ProofTraffic::NormalMessages => "normal messages".to_owned(),
        ProofTraffic::Barriers(n) => barriers(n),
        ProofTraffic::Mixed(n) => format!("{} among normal messages", barriers(n)),
    }
}
