//! `unisono tree check`: whether registers are a barrier tree, and which rule they break first if not.

use super::input::{self, Source};
use crate::output;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_btin::Tree;
use unisono_btin::check::{Rules, check};

/// Check barrier registers against a network, independently of the planner
///
/// Follows the cables from the root switch down and names the first rule that is broken, with its place in the
/// file. The registers may come from `unisono tree plan`, from another program, or from an editor.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono tree check net.json tree.json
      are these registers a barrier tree of the file's group?
  unisono tree check --optimal net.json tree.json
      and is it of least height, with the lowest ports, as the paper's planner would make it?

Rules, in this order: group-matches, switch-exists, port-exists, ascending, port-once,
root-has-register, root-node-at-root-port, one-root, parent-linked, child-linked, local-is-node,
local-is-member, acyclic, every-member, no-idle-leaf; with --optimal also least-height,
lowest-root-port, lowest-parallel.

Exit code 1: a rule is broken. 2: a file cannot be read, or the network itself is wrong.")]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// The registers: a file of the format btin-tree-1
    #[arg(value_name = "TREE")]
    tree: PathBuf,
    /// Hold it to the paper's rules, too: least height (by a slow search), lowest ports
    #[arg(long)]
    optimal: bool,
    /// Print the verdict as one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = args.source.read()?;
    let (name, text) = input::text_of(&args.tree)?;
    let tree = Tree::from_json(&text).map_err(|error| input::at(&name, &error))?;
    let group = input.group()?;
    let rules = if args.optimal { Rules::Optimal } else { Rules::Sound };
    match check(&input.topology.network, group, &tree, rules) {
        Ok(shape) => {
            if args.json {
                let verdict = serde_json::json!({
                    "sound": true, "optimal": args.optimal.then_some(true), "height": shape.height,
                    "edges": shape.edges, "leaves": shape.leaves, "registers": tree.registers.len(),
                });
                output::answer(&verdict.to_string())?;
            } else {
                output::answer(&format!(
                    "{}: height {}, {} registers, {} links, {} leaves, {} members",
                    if args.optimal { "sound and optimal" } else { "sound" },
                    shape.height,
                    tree.registers.len(),
                    shape.edges,
                    shape.leaves,
                    group.members().len(),
                ))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(broken) => {
            let place = tree.locate(&text, broken.place, broken.to_string());
            if args.json {
                let verdict = serde_json::json!({
                    "sound": false, "rule": broken.rule.name(), "what": broken.what, "file": name,
                    "line": place.line, "column": place.column, "element": place.element,
                });
                output::answer(&verdict.to_string())?;
            } else {
                output::answer(&format!("{name}:{place}"))?;
            }
            Ok(ExitCode::from(1))
        }
    }
}
