//! `unisono tree check`: checks whether registers are a barrier tree, and names the first broken rule.

use super::deadlock::DeadlockFlags;
use super::input::{Input, NetworkSource, TreeFile};
use crate::exit::Failure;
use crate::machine_output;
use crate::output;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_btin::check::{Broken, Rules, TreeShape, check};
use unisono_btin::{BarrierGroup, Tree};
use unisono_text::counted;

/// Check barrier registers against a network, independently of the planner
///
/// The command follows the cables down from the root switch. It names the first broken rule and its place in
/// the file. The registers may come from `unisono tree plan`, from another program, or from an editor.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono tree check net.json tree.json
      are these registers a barrier tree of the file's group?
  unisono tree check --optimal net.json tree.json
      and is it of least height, with the lowest ports, as the paper's planner
      would make it?
  unisono tree check --deadlock net.json tree.json
      and can nothing deadlock, alone or among normal messages?
  unisono tree check --deadlock net.json tree-0.json tree-1.json
      the trees of several groups of the file, at the same time

Rules, in this order: group-matches, switch-exists, port-exists, ascending, port-once, \
root-has-register, root-node-at-root-port, one-root, parent-linked, child-linked, local-is-node, \
local-is-member, acyclic, every-member, no-idle-leaf; with --optimal also least-height, \
lowest-root-port, lowest-parallel; as-claimed (height, edges and leaves, where the file says them).

Exit code 1: a rule is broken, or messages can wait for each other in a cycle. 2: a file cannot be read, or the \
network itself is wrong.")]
pub(crate) struct Args {
    #[command(flatten)]
    source: NetworkSource,
    /// The registers: files of the format btin-tree-1, one for each group that is checked. If a plan was made
    /// with --members, its file names them
    #[arg(value_name = "TREE", required = true)]
    trees: Vec<PathBuf>,
    /// Also check the paper's rules: the least height (by a slow search) and the lowest ports
    #[arg(long)]
    optimal: bool,
    #[command(flatten)]
    deadlock: DeadlockFlags,
    /// Print the verdict as one JSON object
    #[arg(long)]
    json: bool,
}

const FORMAT: &str = "unisono-tree-check-1";

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = args.source.read()?;
    let mut trees = Vec::new();
    let mut verdicts: Vec<(TreeShape, usize)> = Vec::new();
    for path in &args.trees {
        let file = args.source.tree(path)?;
        let group = group(args, &input, &file, &trees)?;
        let rules = if args.optimal { Rules::Optimal } else { Rules::Sound };
        let checked = check(&input.topology.network, &group, &file.tree, rules);
        match checked.and_then(|shape| shape.is_as_claimed(&file.claims).map(|()| shape)) {
            Ok(shape) => verdicts.push((shape, group.members().len())),
            Err(broken) => return print_broken(args, &file, &broken),
        }
        trees.push(file.tree);
    }
    let proof = if args.deadlock.deadlock { Some(args.deadlock.prove(&input, &trees)?) } else { None };
    if args.json {
        let each = verdicts.iter().zip(&trees).map(|((shape, _), tree)| {
            json!({
                "sound": true, "optimal": args.optimal.then_some(true), "height": shape.height,
                "edges": shape.edges, "leaves": shape.leaves, "registers": tree.registers.len(),
            })
        });
        let mut each: Vec<Value> = each.collect();
        let mut verdict =
            if each.len() == 1 { each.remove(0) } else { json!({"sound": true, "trees": each}) };
        if let Some(proof) = &proof {
            verdict["deadlock"] = proof.json();
        }
        output::answer(&machine_output::json(FORMAT, &verdict)?)?;
    } else {
        let several = trees.len() > 1;
        let line = |((shape, members), tree): (&(TreeShape, usize), &Tree)| {
            format!(
                "{}{}: height {}, {}, {}, {}, {}",
                if several { format!("group {}: ", tree.group.0) } else { String::new() },
                if args.optimal { "sound and optimal" } else { "sound" },
                shape.height,
                counted(tree.registers.len(), "register"),
                counted(shape.edges, "link"),
                counted(shape.leaves, "leaf"),
                counted(members, "member"),
            )
        };
        let mut lines: Vec<String> = verdicts.iter().zip(&trees).map(line).collect();
        lines.extend(proof.as_ref().map(|proof| proof.text()));
        output::answer(&lines.join("\n"))?;
    }
    let has_cycle = proof.is_some_and(|proof| proof.has_cycle());
    Ok(if has_cycle { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Finds the group of a tree. Its members are those that the tree's file names. If it names none, it is the
/// group that the options name or, if there are several trees, the group whose number the tree's file has.
fn group<'a>(
    args: &Args,
    input: &'a Input,
    file: &TreeFile,
    before: &[Tree],
) -> anyhow::Result<Cow<'a, BarrierGroup>> {
    let (name, id) = (&file.name, file.tree.group);
    if before.iter().any(|other| other.group == id) {
        return Err(Failure::Usage(format!(
            "{name}: another of the trees is of group {}, too; name one tree for each group",
            id.0
        ))
        .into());
    }
    if let Some(group) = input.group_of(file)? {
        return Ok(Cow::Owned(group));
    }
    if args.trees.len() == 1 {
        return input.group().map(Cow::Borrowed);
    }
    let group = input.groups()?.iter().find(|group| group.id() == id);
    group.map(Cow::Borrowed).ok_or_else(|| {
        let problem = format!("{name}: it is of group {}, which {} does not have", id.0, input.name);
        Failure::Usage(problem).into()
    })
}

fn print_broken(args: &Args, file: &TreeFile, broken: &Broken) -> anyhow::Result<ExitCode> {
    let name = &file.name;
    let place = file.tree.locate(&file.text, broken.place, broken.to_string());
    if args.json {
        let verdict = json!({
            "sound": false, "rule": broken.rule.to_string(), "what": broken.what, "file": name,
            "line": place.line, "column": place.column, "element": place.element,
        });
        output::answer(&machine_output::json(FORMAT, &verdict)?)?;
    } else {
        output::answer(&format!("{name}:{place}"))?;
    }
    Ok(ExitCode::from(1))
}
