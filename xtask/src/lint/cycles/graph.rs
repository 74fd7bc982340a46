//! Finds cycles in a graph of modules or files.

use std::collections::{BTreeMap, BTreeSet};

/// For each module or file, the others that it uses, each with the file and line of a use.
pub(super) type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// Returns one problem for each set of modules or files that reach one another: its shortest cycle. `nodes`
/// is the word for them in the message.
pub(super) fn cycles(folder: &str, nodes: &str, uses: &Uses) -> Vec<String> {
    let mut known = BTreeSet::new();
    let mut problems = Vec::new();
    for node in uses.keys() {
        if known.contains(node) {
            continue;
        }
        let tied: BTreeSet<&String> = uses
            .keys()
            .filter(|other| {
                shortest_path(uses, node, other).is_some() && shortest_path(uses, other, node).is_some()
            })
            .collect();
        known.extend(tied.iter().copied().cloned());
        if let Some(cycle) =
            tied.iter().filter_map(|start| shortest_path(uses, start, start)).min_by_key(Vec::len)
        {
            let arrows: Vec<String> =
                cycle.windows(2).map(|pair| format!("{} ({})", pair[1], uses[pair[0]][pair[1]])).collect();
            problems.push(format!(
                "{folder}: {} {nodes} name one another in a cycle; the shortest: {} -> {}",
                tied.len(),
                cycle[0],
                arrows.join(" -> ")
            ));
        }
    }
    problems
}

/// Returns the shortest path with at least one edge.
fn shortest_path<'a>(uses: &'a Uses, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut paths = vec![vec![from]];
    let mut seen = BTreeSet::new();
    while !paths.is_empty() {
        let mut longer = Vec::new();
        for shortest_path in paths {
            for next in uses.get(*shortest_path.last()?).into_iter().flat_map(BTreeMap::keys) {
                let mut shortest_path = shortest_path.clone();
                shortest_path.push(next);
                if next == to {
                    return Some(shortest_path);
                }
                if seen.insert(next) {
                    longer.push(shortest_path);
                }
            }
        }
        paths = longer;
    }
    None
}
