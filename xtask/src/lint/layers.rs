//! Dependencies between the crates of the workspace lead from higher layers to lower ones, and no topic
//! depends on another topic. Dependencies of tests are not restricted.

use super::sources::Sources;
use serde_json::Value;

/// The dependencies of each crate in the workspace, no more and no less. A new crate or a new dependency is a
/// decision, which is recorded here.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    // below all layers: crates that use neither the host nor another crate
    ("time", &[]),
    ("text", &[]),
    ("intrinsics", &[]),
    // the machine
    ("linux", &["text", "time"]),
    ("sync", &["intrinsics", "linux", "text"]),
    ("measure", &[]),
    // topics
    ("barrier", &["linux", "sync", "text"]),
    ("fit", &["linux", "text"]),
    ("gang", &["linux", "measure", "text"]),
    // a dependency between two topics: docs/decisions/0006
    ("rma", &["barrier", "linux", "sync", "text"]),
    ("btin", &["intrinsics", "text"]),
    ("fairqueue", &["intrinsics", "text", "time"]),
    // the other dependency between two topics: fair queuing implements the shares of event classes
    ("eventchannel", &["fairqueue", "text", "time"]),
    // adapters
    ("events-wire", &["eventchannel", "linux", "sync"]),
    ("events-client", &["eventchannel", "events-wire", "linux", "sync"]),
    ("socket-shares", &["linux"]),
    (
        "broker",
        &["eventchannel", "events-client", "events-wire", "fairqueue", "linux", "measure", "sync", "text"],
    ),
    ("fabric", &["btin", "linux", "measure", "text"]),
    ("enforce", &["fairqueue", "linux", "measure", "socket-shares", "sync"]),
    ("launch", &["linux", "rma", "text"]),
    ("c", &["btin", "events-client", "fabric", "linux", "rma", "socket-shares", "sync", "text"]),
    ("mpi-preload", &["linux", "text"]),
    // measuring and showing
    ("workload", &["barrier", "events-client", "fairqueue", "linux", "measure", "rma", "sync"]),
    (
        "study",
        &["barrier", "btin", "events-client", "fit", "linux", "measure", "text", "workload"],
    ),
    ("report", &["linux", "measure", "text"]),
    ("advise", &["fit", "gang", "linux", "measure", "text"]),
    // the program
    (
        "unisono",
        &[
            "advise",
            "fabric",
            "broker",
            "btin",
            "enforce",
            "events-client",
            "fairqueue",
            "fit",
            "gang",
            "launch",
            "linux",
            "measure",
            "mpi-preload",
            "report",
            "rma",
            "study",
            "sync",
            "text",
            "workload",
        ],
    ),
    // one command of the program
    ("fit-alone", &["fit", "launch", "linux", "mpi-preload", "text"]),
    // the program with the studies of the papers
    (
        "laboratory",
        &[
            "barrier",
            "broker",
            "enforce",
            "eventchannel",
            "events-client",
            "fairqueue",
            "gang",
            "linux",
            "measure",
            "report",
            "socket-shares",
            "study",
            "text",
            "unisono",
            "workload",
        ],
    ),
    // no crate depends on these
    (
        "examples",
        &[
            "barrier",
            "eventchannel",
            "events-client",
            "fairqueue",
            "laboratory",
            "linux",
            "rma",
            "socket-shares",
        ],
    ),
    ("host-tests", &["linux"]),
    ("xtask", &["enforce", "gang", "host-tests", "linux", "measure", "text"]),
];

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let packages = sources.metadata["packages"].as_array();
    let mut problems: Vec<String> =
        packages.into_iter().flatten().flat_map(|package| member_problems(package, sources)).collect();
    let is_member = |row: &str| packages.into_iter().flatten().any(|package| name(&package["name"]) == row);
    problems.extend(
        ALLOWED_DEPENDENCIES
            .iter()
            .filter(|(row, _)| !is_member(row))
            .map(|(row, _)| format!("{row} is no crate; delete its {ROW}")),
    );
    problems
}

const ROW: &str = "row in xtask/src/lint/layers.rs";

/// Returns the name of a workspace crate without `unisono-`.
fn name(value: &Value) -> &str {
    let name = value.as_str().unwrap_or_default();
    name.strip_prefix("unisono-").unwrap_or(name)
}

fn member_problems(package: &Value, sources: &Sources) -> Vec<String> {
    let own = name(&package["name"]);
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let Some((_, row)) = ALLOWED_DEPENDENCIES.iter().find(|(row, _)| *row == own) else {
        return vec![format!("{manifest}:1: {own} has no {ROW}")];
    };
    let folder = manifest.trim_end_matches("Cargo.toml");
    let folder = folder.strip_prefix(&format!("{}/", sources.root.display())).unwrap_or(folder);
    let ours = package["dependencies"].as_array().into_iter().flatten();
    let ours = ours.filter(|d| d["path"].is_string() && d["kind"] != "dev").map(|d| name(&d["name"]));
    let ours: Vec<&str> = ours.collect();
    let shared = shared_files(folder, sources);
    let is_own = |path: &str| path.starts_with(folder) || shared.iter().any(|one| one == path);
    let mut problems = Vec::new();
    for other in &ours {
        // the library of the program has another name than its package
        let library = if *other == "unisono" { "cli" } else { other };
        let word = format!("unisono_{}", library.replace('-', "_"));
        if !row.contains(other) {
            problems.push(format!("{manifest}:1: {own} must not depend on {other}"));
        } else if !sources.rust().any(|file| is_own(&file.path) && file.text.contains(&word)) {
            problems.push(format!("{manifest}:1: {own} does not use {other}; delete the dependency"));
        }
    }
    let unused = row.iter().filter(|other| !ours.contains(other));
    problems
        .extend(unused.map(|other| format!("{own} does not depend on {other}; delete it from the {ROW}")));
    problems
}

/// Returns the files of other crates that a crate compiles as its own modules: `#[path =
/// "../../other/src/file.rs"]`.
fn shared_files(folder: &str, sources: &Sources) -> Vec<String> {
    let files = sources.rust().filter(|file| file.path.starts_with(folder));
    let paths =
        files.flat_map(|file| file.text.lines()).filter_map(|line| line.strip_prefix("#[path = \"../"));
    // such a path leads up to the root of the tree, so the rest of it begins there
    paths.map(|path| path.trim_end_matches("\"]").trim_start_matches("../").to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the problems of a crate that uses all of these dependencies.
    fn problems(name: &str, dependencies: &Value) -> Vec<String> {
        let text = "use unisono_linux::x; use unisono_sync::x; use unisono_gang::x; use unisono_text::x;";
        let sources = Sources::from_texts(&[("crates/a/src/lib.rs", text)]);
        member_problems(
            &json!({"name": name, "manifest_path": "crates/a/Cargo.toml", "dependencies": dependencies}),
            &sources,
        )
    }

    #[test]
    fn a_topic_must_not_know_another_topic() {
        let dependencies = json!([
            {"name": "unisono-linux", "kind": null, "path": "/linux"},
            {"name": "unisono-sync", "kind": null, "path": "/sync"},
            {"name": "unisono-text", "kind": null, "path": "/text"},
            {"name": "unisono-gang", "kind": "build", "path": "/gang"},
            {"name": "unisono-study", "kind": "dev", "path": "/study"},
            {"name": "unisono-of-others", "kind": null, "path": null},
        ]);
        let wrong = "crates/a/Cargo.toml:1: barrier must not depend on gang";
        assert_eq!(problems("unisono-barrier", &dependencies), [wrong]);
    }

    #[test]
    fn a_row_that_allows_more_than_is_used_is_a_problem() {
        let dependencies = json!([
            {"name": "unisono-linux", "kind": null, "path": "/linux"},
            {"name": "unisono-text", "kind": null, "path": "/text"},
        ]);
        let wrong = "barrier does not depend on sync; delete it from the row in xtask/src/lint/layers.rs";
        assert_eq!(problems("unisono-barrier", &dependencies), [wrong]);
    }

    #[test]
    fn a_dependency_that_no_file_names_is_a_problem() {
        let dependencies = json!([
            {"name": "unisono-linux", "kind": null, "path": "/linux"},
            {"name": "unisono-rma", "kind": null, "path": "/rma"},
            {"name": "unisono-text", "kind": null, "path": "/text"},
        ]);
        let wrong = "crates/a/Cargo.toml:1: launch does not use rma; delete the dependency";
        assert_eq!(problems("unisono-launch", &dependencies), [wrong]);
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        let wrong = "crates/a/Cargo.toml:1: common has no row in xtask/src/lint/layers.rs";
        assert_eq!(problems("unisono-common", &json!([])), [wrong]);
    }
}
