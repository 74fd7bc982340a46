//! `unisono tree plan`: finds the best barrier tree of a group and prints the registers of its switches.

use super::comparison::SchemeComparison;
use super::input::NetworkSource;
use super::planning::{AskedGroups, PlannedGroup, Planning, Trees};
use crate::columns::hanging_lines;
use crate::live_view::table_width;
use crate::output;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_btin::{BarrierGroup, Certainty, End, NetworkFile, Port, SwitchId, Ties, TreePlan};
use unisono_text::counted;

/// Plan the best barrier tree for a group: its root, the registers of its switches, how long a barrier takes
///
/// The command grows a breadth-first tree from every switch that has members, and removes leaves without
/// members. Of these trees it takes the one with the least height. If several have it, the fewest links
/// decide, then the fewest leaves, then the lowest number of the root switch. The root node is the member at
/// the lowest port of the root switch. In large networks the number of leaves is not compared, because that
/// takes a search from nearly every switch: see --ties. The last table compares the tree with messages;
/// `tree simulate --help` explains its schemes and columns.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono tree plan net.json
      the tree of the group that the file names
  unisono tree plan net.json --members all --json > tree.json
      a tree of all nodes, in a file that `tree check` and `tree export` read
  unisono tree plan net.json --scan level --any-root
      a switch without members may be the root; of several parents the one with
      the lowest number is taken
  unisono tree plan net.json --group 3 --share-links --registers 2
      the fourth of the file's groups, over links that the others use least;
      each switch has two registers
  unisono tree plan net.json --ties exact --threads 8
      the root that the paper's rule chooses, even in a large network; Ctrl-C
      ends with the best so far
  unisono tree plan net.json --without-link 3:7 --without-switch 5
      the tree after a link and a switch have failed, with the names of members
      that it cannot reach")]
pub(crate) struct Args {
    #[command(flatten)]
    source: NetworkSource,
    #[command(flatten)]
    planning: Planning,
    /// Draw network and tree into this file
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Print the registers as one JSON object (btin-tree-1)
    #[arg(long)]
    json: bool,
}

/// If a tree has more registers than this, the output shows only their number.
const MAX_LINES: usize = 100;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let trees = args.planning.trees(args.source.read()?, AskedGroups::One)?;
    let Trees { topology, planned, notes, .. } = &trees;
    let PlannedGroup { group, plan, .. } = &planned[0];
    if let Some(file) = &args.svg {
        let notes: Vec<String> = notes.lines().map(str::to_owned).collect();
        super::picture::write(file, topology, group, plan, &notes)?;
    }
    let comparison = SchemeComparison::compute(topology, &planned[0]);
    if args.json {
        eprint!("{notes}");
        output::answer(&json(args, topology, &planned[0], &comparison))?;
    } else {
        let between = if notes.is_empty() { "" } else { "\n\n" };
        let table = table(topology, group, plan);
        let comparison = comparison.text();
        let text = format!("{}\n\n{comparison}{between}{}", table.trim_end(), notes.trim_end());
        output::answer(&hanging_lines(&text, table_width()))?;
    }
    Ok(trees.exit_code())
}

/// Returns the registers in the format of a tree file, with the figures of the table added, and with the
/// members if the command named them.
fn json(
    args: &Args,
    topology: &NetworkFile,
    PlannedGroup { group, plan, chosen, .. }: &PlannedGroup,
    comparison: &SchemeComparison,
) -> String {
    let registers = plan.to_json();
    let registers = registers.trim_end();
    let registers = registers.strip_suffix('}').unwrap_or(registers);
    let used =
        |end: End| plan.tree.registers.get(&end.switch).is_some_and(|register| register.uses(end.port));
    let names = match topology.ports_named(used).as_str() {
        "{}" => String::new(),
        names => format!("\"port_names\":{names},\n"),
    };
    let mut members = String::new();
    if args.source.members.is_some() {
        let numbers: Vec<String> = group.members().iter().map(|node| node.0.to_string()).collect();
        members = format!("\"members\":[{}],\n", numbers.join(","));
    }
    let mut how = String::new();
    if let Some((ties, sure)) = chosen.filter(|(ties, sure)| *ties == Ties::Fast || sure.stopped) {
        let ties = if ties == Ties::Fast { "fast" } else { "exact" };
        let Certainty { min_height, open, stopped, .. } = sure;
        let _ = write!(
            how,
            "\n\"ties\":\"{ties}\",\"least_height\":{min_height},\"roots_not_measured\":{open},\"stopped\":{stopped},"
        );
    }
    format!(
        "{registers},\n{names}{members}\"height\":{},\"edges\":{},\"leaves\":{},{how}\n\"simulated\":{}}}",
        plan.height,
        plan.edges,
        plan.leaves,
        comparison.json()
    )
}

fn table(topology: &NetworkFile, group: &BarrierGroup, plan: &TreePlan) -> String {
    let tree = &plan.tree;
    let root = topology.switch_shown(tree.root_switch);
    let node = match (tree.root_node, tree.registers.get(&tree.root_switch).and_then(|root| root.parent)) {
        (Some(node), Some(port)) => {
            let port = topology.port_shown(tree.root_switch, port);
            format!("node {} at port {port}", topology.node_shown(node))
        }
        _ => "no node: messages turn around in the switch".to_owned(),
    };
    let with_members = group.member_switches(&topology.network).len();
    let mut out = format!(
        "root       switch {root}, {node}\nheight     {}\nregisters  {}, {} of them at switches without members\n\
         links      {}\nleaves     {}\nmembers    {} at {}\n",
        plan.height,
        tree.registers.len(),
        tree.registers.len() - with_members,
        plan.edges,
        plan.leaves,
        group.members().len(),
        counted(with_members, "switch"),
    );
    if tree.registers.len() > MAX_LINES {
        let _ = write!(out, "\n{} registers are too many to list; --json prints them", tree.registers.len());
        return out;
    }
    let ports = |switch: SwitchId, ports: &[Port]| {
        let ports: Vec<_> = ports.iter().map(|port| topology.port_shown(switch, *port)).collect();
        if ports.is_empty() { "-".to_owned() } else { ports.join(" ") }
    };
    let mut lines = vec![["switch", "depth", "parent", "children", "members"].map(str::to_owned)];
    let mut open = vec![(tree.root_switch, 0)];
    while let Some((switch, depth)) = open.pop() {
        let Some(register) = tree.registers.get(&switch) else { continue };
        let line = [
            topology.switch_shown(switch),
            depth.to_string(),
            register.parent.map_or("-".to_owned(), |port| topology.port_shown(switch, port)),
            ports(switch, &register.children),
            ports(switch, &register.locals),
        ];
        // escaped before the widths of the columns are computed, because an escape is longer than the
        // character
        lines.push(line.map(|cell| output::plain(&cell).into_owned()));
        let children: Vec<SwitchId> = plan.children(&topology.network, switch).collect();
        open.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
    }
    out.push_str("\nports of each switch, depth first:\n");
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3, 4].map(width);
    for line in &lines {
        let mut text = String::new();
        for (cell, width) in line.iter().zip(widths) {
            let _ = write!(text, "{cell:width$}  ");
        }
        let _ = writeln!(out, "{}", text.trim_end());
    }
    out
}
