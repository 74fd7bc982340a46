//! `unisono tree convert`: converts a network from another program's file to a topology file.

use super::input::{self, ReadingFlags, error_at, print_report};
use crate::exit::Failure;
use crate::help::{Completed, owned};
use crate::machine_output;
use crate::output;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_btin::GroupId;
use unisono_btin::read::{self, Assume, Language, LeafVertices, ReadReport};
use unisono_text::counted;

/// Convert a network from ibnetdiscover, lldpctl, containerlab, GraphML or Graphviz DOT
///
/// The command writes the format btin-topo-1 (JSON), which all other subcommands read, to standard output. On
/// standard error it reports its findings, assumptions and omissions. Switches and nodes keep their names.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ibnetdiscover | unisono tree convert - --members all > net.json
      an InfiniBand network with its real port numbers; every adapter is a
      member
  unisono tree convert lldp.json --members all > net.json
      a file with the output of `lldpctl -f json` of each switch, each after
      that of `lldpcli -f json show chassis`
  unisono tree convert lab.clab.yml --members all --out net.json
      a lab of containerlab: bridges and routers are switches, linux containers
      are nodes
  unisono tree convert topology.graphml --nodes-per-switch 4 --ports 16 \\
          --members all --out net.json
      a graph of switches alone: 4 nodes are added to each
  unisono tree convert fabric.graphml --role tier=rack:host \\
          --role tier=spine:switch > net.json
      the file's own words for switches and hosts
  unisono tree convert lab.dot --leaves-are-nodes --json > /dev/null
      just the report, as JSON on standard error

GraphML and DOT: a vertex says what it is with role=switch or role=host (or type=, kind=), ports=8, member=true; \
other attributes are given a meaning with --role. \
An edge names ports with sourceport and targetport (GraphML) or as a:1 -- b:2 (DOT); others get \
the lowest free ones.")]
pub(crate) struct Args {
    /// The file to read; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Language of the file: btin-topo-1, ibnetdiscover, graphml, dot, lldp, containerlab [default: by how
    /// the file begins]
    #[arg(long, value_name = "LANGUAGE", value_parser = Completed::new(|| owned(Language::ALL.map(Language::name)), language), hide_possible_values = true)]
    from: Option<Language>,
    /// If no vertex has a kind, take vertices with one cable as nodes
    #[arg(long)]
    leaves_are_nodes: bool,
    /// Ports of each switch, if the file does not say [default: as many as are used]
    #[arg(long, value_name = "N")]
    ports: Option<u16>,
    /// Add this many nodes to each switch
    #[arg(long, value_name = "N", default_value_t = 0)]
    nodes_per_switch: u16,
    /// The members: all, or nodes by number or name, as 0,3,5-9 or gpu[001-004], @FILE with a node a line, or
    /// partition=NAME, whose hosts Slurm's sinfo names [default: the members in the file]
    #[arg(long, value_name = "NODES")]
    members: Option<String>,
    #[command(flatten)]
    reading: ReadingFlags,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

fn language(text: &str) -> Result<Language, String> {
    let names = Language::ALL.map(Language::name);
    let known = Language::ALL.into_iter().find(|language| language.name() == text);
    known.ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (name, text) = args.reading.text(&args.file)?;
    let assume = Assume {
        leaves: if args.leaves_are_nodes { LeafVertices::Nodes } else { LeafVertices::Switches },
        ports: args.ports,
        nodes_per_switch: args.nodes_per_switch,
        roles: args.reading.role.clone(),
    };
    let (mut topology, report) =
        read::read(&text, args.from, &assume).map_err(|error| error_at(&name, &error))?;
    if let Some(members) = &args.members {
        let wrong = |problem: String| Failure::Usage(format!("--members {members}: {problem}"));
        let nodes = input::nodes(&topology, members).map_err(wrong)?;
        topology.groups = vec![input::members_of(&topology, GroupId(0), nodes, members)?];
    }
    if args.json {
        eprintln!("{}", machine_output::json("unisono-tree-convert-1", &report)?);
    } else {
        summarize(&name, &report);
        print_report(&name, &report);
    }
    drop(text); // memory should hold a large network and its new text, but not the old text, too
    let text = topology.to_json();
    output::answer_to(args.out.as_deref(), &text)?;
    Ok(ExitCode::SUCCESS)
}

fn summarize(name: &str, report: &ReadReport) {
    eprintln!(
        "unisono: {name} ({}): {}, {}, {} ({} parallel, {} to the switch itself)",
        report.language,
        counted(report.switches, "switch"),
        counted(report.nodes, "node"),
        counted(report.links, "link"),
        report.parallel_links,
        report.self_loops,
    );
}
