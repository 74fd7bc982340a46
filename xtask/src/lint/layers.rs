//! Dependencies between the crates of the workspace point down, and a topic never knows another topic.
//! Dependencies for tests alone may point anywhere.

use super::sources::Sources;

/// Which crates of the workspace each may depend on. A new crate is a decision: add its row.
const MAY: &[(&str, &[&str])] = &[
    ("linux", &[]),
    ("sync", &["linux"]),
    ("measure", &["linux"]),
    ("barrier", &["linux", "sync"]),
    ("gang", &["linux", "sync", "measure"]),
    // The one arrow between topics besides eventchannel's: docs/decisions/0006.
    ("rma", &["linux", "sync", "barrier"]),
    ("rma/fuzz", &["rma"]),
    // the planner's loops for wide vectors
    ("btin", &["linux", "sync"]),
    ("fairqueue", &["sync"]),
    ("fairqueue/fuzz", &["fairqueue"]),
    // programs' messages in the order of the fair queue: the place "middleware"
    ("broker", &["linux", "measure", "fairqueue"]),
    ("broker/fuzz", &["broker", "fairqueue"]),
    ("btin/fuzz", &["btin"]),
    ("enforce", &["linux", "fairqueue", "measure", "bpf"]),
    ("enforce/fuzz", &["enforce", "fairqueue"]),
    ("launch", &["linux", "rma"]),
    ("bpf", &["linux", "btin", "fairqueue", "measure"]),
    ("report", &["linux", "measure"]),
    (
        "study",
        &[
            "linux",
            "sync",
            "measure",
            "barrier",
            "gang",
            "rma",
            "btin",
            "fairqueue",
            "enforce",
            "broker",
            "report",
        ],
    ),
    ("host-tests", &["linux"]),
];

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources.files.iter().filter(|file| file.path.starts_with("crates/") && file.is("/Cargo.toml"))
    {
        let name = file.path.trim_start_matches("crates/").trim_end_matches("/Cargo.toml");
        let Some((_, may)) = MAY.iter().find(|(row, _)| *row == name) else {
            problems.push(format!("{}:1: {name} has no row in xtask/src/lint/layers.rs", file.path));
            continue;
        };
        let mut section = "";
        for (number, line) in (1..).zip(file.text.lines().map(str::trim)) {
            if line.starts_with('[') {
                section = line;
            }
            if !section.ends_with("dependencies]") || section.contains("dev-dependencies") {
                continue;
            }
            let Some(other) = line.strip_prefix("unisono-") else { continue };
            let other = other.split(['.', ' ', '=']).next().unwrap_or(other);
            if !may.contains(&other) {
                problems.push(format!("{}:{number}: {name} must not depend on {other}", file.path));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_must_not_know_another_topic() {
        let manifest = "[dependencies]\nunisono-linux.workspace = true\nunisono-gang.workspace = true\n\
            [dev-dependencies]\nunisono-study.workspace = true\n";
        let problems = check(&Sources::of(&[("crates/barrier/Cargo.toml", manifest)]));
        assert_eq!(problems, ["crates/barrier/Cargo.toml:3: barrier must not depend on gang"]);
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        assert_eq!(check(&Sources::of(&[("crates/common/Cargo.toml", "")])).len(), 1);
    }
}
