//! Draws a network and a tree into a file.

use anyhow::Context;
use std::path::Path;
use unisono_btin::{BarrierGroup, NetworkFile, TreePlan, draw};

pub(super) fn write(
    file: &Path,
    topology: &NetworkFile,
    group: &BarrierGroup,
    plan: &TreePlan,
    notes: &[String],
) -> anyhow::Result<()> {
    let svg = draw::svg(topology, group, &plan.tree, notes);
    std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))
}
