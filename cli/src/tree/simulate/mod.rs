//! `unisono tree simulate`: simulates a barrier by messages through one root and by trees.

mod collectives;
mod faults;
mod table;

use super::input::NetworkSource;
use super::planning::{AskedGroups, PlannedGroup, Planning, Trees};
use super::slow::Slow;
use crate::columns::hanging_lines;
use crate::help::{Completed, owned};
use crate::live_view::table_width;
use crate::machine_output::{self, CsvFlag};
use crate::output;
use collectives::CollectiveRow;
use faults::FaultFlags;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use unisono_btin::SwitchNetwork;
use unisono_btin::simulate::{
    Channels, Conditions, Costs, Faults, Intake, Routes, Scheme, Simulated, SimulatedBarrier, SimulatedTime,
    Simulator,
};
use unisono_measure::units;

/// Simulate a barrier by unicast, by multicast and by the tree
///
/// The command plans the tree as `tree plan` does with the same options, and simulates every message. For
/// each scheme it prints the latency (from the last arrival to the last release), the latency by the paper's
/// formula (on paper), how many times as fast as multicast the scheme is (vs multicast), the hops, the
/// messages, and the start-ups: the messages that must be sent or received one after the other. A hop is one
/// message on one cable, between two switches or to a node. The defaults are the paper's assumptions; each
/// has an option. The same seed gives the same answer on every machine, because nothing is measured.
///
/// With unicast, each member sends a message to the root node, which sends one back to each. With multicast,
/// the root node sends one back, and switches copy it to all. With the barrier tree, switches combine the
/// arrivals on the way up. In the scheme btin, which is the paper's, the root node then sends the release; in
/// btin_turn the root switch sends it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono tree generate | unisono tree simulate -
      the smaller of the paper's two systems
  unisono tree simulate --members all --root-intake one-port net.json
      every node a member, and a root that takes in one message at a time
  unisono tree simulate --arrivals-within 50us --loss 0.1% net.json
      members arrive at different times, and one hop in a thousand loses the
      message
  unisono tree simulate --fail-link 3@5us net.json
      a cable breaks during the barrier: which members wait, and for what
  unisono tree simulate --without-link 3:7 net.json
      the same cable has broken before, and the tree is repaired
  unisono tree simulate --all-groups --registers 2 --share-links net.json
      all groups of the file in switches that have two registers, over links
      that carry as few as can be
  unisono tree simulate --members 0-20 --collectives net.json
      other collectives by the same registers: OR, AND, min, max, sum,
      multicast, total exchange")]
pub(crate) struct Args {
    #[command(flatten)]
    source: NetworkSource,
    /// Simulate all groups of the file at the same time
    #[arg(long, conflicts_with = "members")]
    all_groups: bool,
    #[command(flatten)]
    planning: Planning,
    /// Start-up of a message at a node (t_s)
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "2us")]
    startup: SimulatedTime,
    /// Propagation over a link (t_p)
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "20ns")]
    propagation: SimulatedTime,
    /// Delay of a switch or an interface (t_r)
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "300ns")]
    switch_delay: SimulatedTime,
    /// How fast the root of unicast and multicast receives messages: over several links at once, as the
    /// paper's figures require (parallel-links), one after the other (one-port), or with a start-up for each
    /// (startup-each)
    #[arg(long, value_name = "WAY", value_parser = Completed::new(|| owned(Intake::ALL.map(Intake::name)), intake), hide_possible_values = true, default_value = "parallel-links")]
    root_intake: Intake,
    /// Routes of unicast and multicast: up-down or shortest
    #[arg(long, value_name = "WAY", value_parser = Completed::new(|| owned(["up-down", "shortest"]), routes), hide_possible_values = true, default_value = "up-down")]
    routes: Routes,
    /// Members arrive at random within this time
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "0us")]
    arrivals_within: SimulatedTime,
    /// Let messages wait for each other: each direction of a link carries one message in t_r + t_p
    #[arg(long)]
    contention: bool,
    #[command(flatten)]
    faults: FaultFlags,
    /// Simulate this many barriers one after the other (trees only)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    episodes: u16,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Add to the JSON the hops over each link: a list of [link, from its first end, from its second]
    #[arg(long, requires = "json")]
    per_link: bool,
    /// Also run the other collectives that registers allow, with six bits from each node (37 times its
    /// number, modulo 64): allreduce by OR, AND, min, max and sum, multicast, total exchange
    #[arg(long)]
    collectives: bool,
    /// Draw network and tree into this file
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table: CsvFlag,
}

fn time(text: &str) -> Result<SimulatedTime, String> {
    let duration: Duration = units::duration(text).map_err(|error| error.to_string())?;
    let longest = Duration::from_secs(60);
    if duration > longest {
        return Err(format!("{text} is too long to simulate; write at most 60s"));
    }
    Ok(SimulatedTime::picoseconds(
        u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000),
    ))
}

fn intake(text: &str) -> Result<Intake, String> {
    let found = Intake::ALL.into_iter().find(|intake| intake.name() == text);
    found.ok_or_else(|| "expected parallel-links, one-port or startup-each".to_owned())
}

fn routes(text: &str) -> Result<Routes, String> {
    match text {
        "up-down" => Ok(Routes::UpDown),
        "shortest" => Ok(Routes::Shortest),
        _ => Err("expected up-down or shortest".to_owned()),
    }
}

struct SimulationRun<'a> {
    trees: &'a Trees,
    /// Each simulated scheme, with the largest latency that the closed form gives for a group.
    schemes: Vec<(Simulated, SimulatedTime)>,
    /// The latencies of the schemes if all registers were in their switches. Empty unless some are in nodes'
    /// memory.
    in_switches: Vec<(Scheme, Option<SimulatedTime>)>,
    collectives: Vec<CollectiveRow>,
}

impl SimulationRun<'_> {
    fn network(&self) -> &SwitchNetwork {
        &self.trees.topology.network
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = args.source.read()?;
    let asked = if args.all_groups { AskedGroups::All } else { AskedGroups::One };
    let links = input.topology.network.links().len();
    let trees = args.planning.trees(input, asked)?;
    let network = &trees.topology.network;
    let conditions = conditions(args, &trees, links)?;
    let nowhere = BTreeMap::new();
    let barriers: Vec<SimulatedBarrier> = trees
        .planned
        .iter()
        .map(|PlannedGroup { group, plan, .. }| SimulatedBarrier::planned(group, plan))
        .collect();
    let simulator = Simulator::new(network);
    let mut slow = Slow::new();
    let one = |scheme: Scheme| {
        (
            simulator.run_watched(&barriers, scheme, &conditions, &mut |hops| {
                slow.count(scheme.name(), hops);
            }),
            barriers
                .iter()
                .map(|barrier| simulator.analytic(barrier, scheme, &conditions))
                .max()
                .unwrap_or_default(),
        )
    };
    let schemes: Vec<(Simulated, SimulatedTime)> = Scheme::ALL.into_iter().map(one).collect();
    slow.end();
    let collectives = match args.collectives {
        true => collectives::run(&simulator, &barriers[0], &conditions)?,
        false => Vec::new(),
    };
    let mut in_switches = Vec::new();
    if barriers.iter().any(|barrier| !barrier.in_memory.is_empty()) {
        let barriers: Vec<SimulatedBarrier> =
            barriers.iter().map(|b| SimulatedBarrier { in_memory: &nowhere, ..*b }).collect();
        for scheme in [Scheme::Btin, Scheme::BtinTurn] {
            in_switches.push((scheme, simulator.run(&barriers, scheme, &conditions).latency()));
        }
    }
    let run = SimulationRun { trees: &trees, schemes, in_switches, collectives };
    if let Some(file) = &args.svg {
        let PlannedGroup { group, plan, .. } = &trees.planned[0];
        super::picture::write(file, &trees.topology, group, plan, &table::notes(&run))?;
    }
    if args.json {
        eprint!("{}", trees.notes);
        let object = table::json(&run, &conditions, args.per_link);
        output::answer(&machine_output::json("unisono-tree-simulate-1", &object)?)?;
    } else if args.table.csv {
        output::answer(&machine_output::csv(&table::rows(&run))?)?;
    } else {
        output::answer(&hanging_lines(&table::text(&run), table_width()))?;
    }
    let is_complete = run.schemes.iter().all(|(simulated, _)| simulated.latency().is_some());
    Ok(if is_complete { trees.exit_code() } else { ExitCode::from(1) })
}

fn conditions(args: &Args, trees: &Trees, links: usize) -> anyhow::Result<Conditions> {
    let faults: Faults = args.faults.faults(&trees.links, links)?;
    Ok(Conditions {
        costs: Costs { startup: args.startup, propagation: args.propagation, switch: args.switch_delay },
        intake: args.root_intake,
        parallel_links: None,
        routes: args.routes,
        arrivals: args.arrivals_within,
        channels: if args.contention { Channels::Contended } else { Channels::Free },
        faults,
        timeout: args.faults.timeout,
        attempts: args.faults.attempts,
        episodes: args.episodes,
        seed: args.seed,
    })
}
