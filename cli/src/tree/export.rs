//! `unisono tree export`: writes barrier registers for other kinds of switches.

use super::deploy::{TurnAt, failure};
use super::input::{self, NetworkSource};
use crate::output;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_btin::check::{Rules, check};
use unisono_btin::{ReductionOperator, export};

/// Write barrier registers as table entries for P4 switches, or as elements of a BPF map
///
/// A barrier register says what one switch knows about one group: which of its ports leads towards the root
/// of the tree, and which ports lead to members and to switches below. `unisono tree plan --json` prints the
/// registers of all switches. This command checks them against the network and writes them for other
/// switches. The output is JSON. Ports are numbers. If the network's file has names for them, the names are
/// written, too.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono tree export net.json tree.json --to p4 > entries.json
      for each switch the entries of barrier.reduction and barrier.distribution,
      and a multicast group
  unisono tree export net.json tree.json --to bpf --turn switch
      elements of the map `registers`, as bpftool map dump -j shows them

The P4 tables: both match the group and the port at which a message comes in (ingress_port). The table \
barrier.reduction is for arrivals. Its action arrive(bit, all, egress_port) sends one message up when all have \
arrived. At the top of the tree its action is turn(bit, all, multicast_group), which sends the release instead. \
`bit` is the bit of the ingress port, and `all` has the bits of all ports at which arrivals have to come. The table \
barrier.distribution is for releases: its action replicate(multicast_group) copies the release to these ports.")]
pub(crate) struct Args {
    #[command(flatten)]
    source: NetworkSource,
    /// The registers: a file of the format btin-tree-1. If the plan was made with --members, it names them
    #[arg(value_name = "TREE")]
    tree: PathBuf,
    /// What to write
    #[arg(long, value_enum, value_name = "FORM")]
    to: Form,
    /// Where messages turn around: at the root node as in the paper, or at the root switch
    #[arg(long, value_enum, default_value_t = TurnAt::Node, value_name = "WHERE")]
    turn: TurnAt,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Table entries and multicast groups of P4
    P4,
    /// Elements of the map of the switch program that `tree deploy` loads by tc
    Bpf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = args.source.read()?;
    let file = args.source.tree(&args.tree)?;
    let named = input.group_of(&file)?;
    let group = match &named {
        Some(group) => group,
        None => input.group()?,
    };
    let tree = &file.tree;
    check(&input.topology.network, group, tree, Rules::Sound).map_err(|broken| {
        input::error_at(&file.name, &tree.locate(&file.text, broken.place, broken.to_string()))
    })?;
    let turn = args.turn.into();
    let exported = match args.to {
        Form::P4 => export::p4(&input.topology, tree, turn),
        Form::Bpf => unisono_fabric::export::registers(tree, turn, ReductionOperator::Or).map_err(failure)?,
    };
    output::answer_to(args.out.as_deref(), &format!("{}\n", serde_json::to_string_pretty(&exported)?))?;
    Ok(ExitCode::SUCCESS)
}
