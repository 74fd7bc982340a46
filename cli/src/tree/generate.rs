//! `unisono tree generate`: draws a random network and writes it as a topology file.

use crate::exit::Failure;
use crate::output;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_btin::generate::{NetworkOptions, Sparse, generate};
use unisono_text::counted;

/// Generate a random network
///
/// The network is connected, no switch has more cables than ports, and nodes have a port each. Everything
/// else is random; the same seed draws the same network. It is written in the format btin-topo-1 (JSON),
/// which all other subcommands read. The defaults are the smaller of the paper's two systems.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono tree generate > net.json
      75 switches of 8 ports, 256 nodes, 6 ports of 8 in use on average, 64
      members
  unisono tree generate --switches 300 --nodes 1024 --members 256 --seed 7 \\
          --out net.json
      the larger system of the paper, another draw
  unisono tree generate --connectivity 50% --at-least-tree
      too few cables to connect 75 switches: the bare tree instead, marked as
      such

Connectivity is the part of all ports in use. With q switches of k ports and p nodes, at least \
(2(q-1)+p)/(kq) are needed for a connected network; if the value is too small, the error gives the minimum.")]
pub(crate) struct Args {
    /// Number of switches
    #[arg(long, value_name = "N", default_value_t = 75)]
    switches: u32,
    /// Ports of each switch
    #[arg(long, value_name = "N", default_value_t = 8)]
    ports: u16,
    /// Number of nodes, one to a port
    #[arg(long, value_name = "N", default_value_t = 256)]
    nodes: u32,
    /// Part of all ports in use, by cables between switches and by nodes: 75% or 0.75
    #[arg(long, value_name = "PART", value_parser = part, default_value = "75%")]
    connectivity: f64,
    /// Number of nodes that are members of the group [default: 64, or all if there are fewer nodes]
    #[arg(long, value_name = "N")]
    members: Option<u32>,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// If the connectivity is too small for a connected network, build the bare tree and mark it as one
    #[arg(long)]
    at_least_tree: bool,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Parses `75%` or `0.75`.
fn part(text: &str) -> Result<f64, String> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let part =
        number.trim().parse::<f64>().map_err(|_| "expected a part like 75% or 0.75".to_owned())? / whole;
    if (0.0..=1.0).contains(&part) { Ok(part) } else { Err("expected a part from 0% to 100%".to_owned()) }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = NetworkOptions {
        switches: args.switches,
        ports: args.ports,
        nodes: args.nodes,
        connectivity: args.connectivity,
        members: args.members.unwrap_or(args.nodes.min(64)),
        seed: args.seed,
        sparse: if args.at_least_tree { Sparse::BareTree } else { Sparse::Refuse },
    };
    let topology = generate(&options).map_err(|error| Failure::Usage(error.to_string()))?;
    if topology.generated.as_ref().is_some_and(|how| how.bare_tree) {
        let network = &topology.network;
        let used = 2 * network.links().len() + network.nodes().len();
        let all = f64::from(options.switches) * f64::from(options.ports);
        eprintln!(
            "unisono: this is the bare tree: its {} and {} use {:.1} % of the ports, not {:.1} %",
            counted(network.links().len(), "link"),
            counted(network.nodes().len(), "node"),
            100.0 * used as f64 / all,
            100.0 * options.connectivity,
        );
    }
    let text = topology.to_json();
    output::answer_to(args.out.as_deref(), &text)?;
    Ok(ExitCode::SUCCESS)
}
