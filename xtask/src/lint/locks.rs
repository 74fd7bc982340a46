//! The lock files of projects outside the workspace include all dependencies of the workspace crates that
//! they use. Otherwise `cargo build --locked` fails there, which stays unnoticed until the project is built.

use super::sources::Sources;
use serde_json::Value;
use std::collections::BTreeSet;

/// A crate in a lock file.
struct LockedCrate<'a> {
    name: &'a str,
    /// Whether cargo fetches it from a registry or a repository.
    is_fetched: bool,
    dependencies: BTreeSet<&'a str>,
}

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let locks = sources.files.iter().filter(|file| file.has_ending("/Cargo.lock"));
    locks.flat_map(|file| lock_problems(&file.path, &file.text, &sources.metadata)).collect()
}

fn lock_problems(path: &str, text: &str, metadata: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for locked in crates(text).filter(|locked| !locked.is_fetched) {
        let Some((wanted, possible)) = dependencies(metadata, locked.name) else { continue };
        let manifest = path.replace("Cargo.lock", "Cargo.toml");
        let lacking = wanted.difference(&locked.dependencies).map(|name| format!("lacks {name}"));
        let beyond = locked.dependencies.difference(&possible).map(|name| format!("still has {name}"));
        problems.extend(lacking.chain(beyond).map(|what| {
            format!("{path}:1: {} {what}; cargo update --workspace --manifest-path {manifest}", locked.name)
        }));
    }
    problems
}

/// Returns the dependencies of a workspace crate without its features, and with all of them; dependencies of
/// its tests are left out. `None`: the crate is no member of the workspace.
fn dependencies<'a>(metadata: &'a Value, name: &str) -> Option<(BTreeSet<&'a str>, BTreeSet<&'a str>)> {
    let member = metadata["packages"].as_array()?.iter().find(|package| package["name"] == name)?;
    let shipped = member["dependencies"].as_array()?.iter().filter(|it| it["kind"] != "dev");
    let names = |it: &'a Value| it["name"].as_str();
    let always = shipped.clone().filter(|it| it["optional"] != true).filter_map(names).collect();
    Some((always, shipped.filter_map(names).collect()))
}

fn crates(lock: &str) -> impl Iterator<Item = LockedCrate<'_>> {
    lock.split("[[package]]").skip(1).map(|text| {
        let value = |line: &'_ str, key: &str| line.strip_prefix(key).is_some();
        let quoted = |line| str::split(line, '"').nth(1).unwrap_or_default();
        let name = text.lines().find(|line| value(line, "name = ")).map_or("", quoted);
        let listed = text.lines().skip_while(|line| !value(line, "dependencies = ")).skip(1);
        // if there are several versions of a crate, its version follows after a space
        let dependencies =
            listed.filter_map(|line| quoted(line).split(' ').next()).filter(|it| !it.is_empty());
        LockedCrate {
            name,
            is_fetched: text.lines().any(|line| value(line, "source = ")),
            dependencies: dependencies.collect(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LOCK: &str = r#"version = 4

[[package]]
name = "libc"
version = "0.2.1"
source = "registry"
checksum = "12"

[[package]]
name = "unisono-broker"
version = "0.1.0"
dependencies = [
 "libc",
 "rand 0.10.4",
]

[[package]]
name = "unisono-join"
version = "0.1.0"
dependencies = [
 "unisono-broker",
]
"#;

    /// Returns the problems if the broker depends on these crates.
    fn problems(dependencies: &Value) -> Vec<String> {
        let packages = json!({"packages": [{"name": "unisono-broker", "dependencies": dependencies}]});
        lock_problems("crates/join/Cargo.lock", LOCK, &packages)
    }

    #[test]
    fn a_lock_file_that_knows_what_is_needed_is_fine() {
        let both = json!([
            {"name": "libc", "kind": null, "optional": false},
            {"name": "rand", "kind": "build", "optional": false},
            {"name": "proptest", "kind": "dev", "optional": false},
            {"name": "zenoh", "kind": null, "optional": true},
        ]);
        assert_eq!(problems(&both), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_of_a_feature_may_be_locked_or_not() {
        let optional = json!([
            {"name": "libc", "kind": null, "optional": false},
            {"name": "rand", "kind": null, "optional": true},
        ]);
        assert_eq!(problems(&optional), Vec::<String>::new());
    }

    #[test]
    fn a_lock_file_that_fell_behind_is_a_problem() {
        let other = json!([
            {"name": "libc", "kind": null, "optional": false},
            {"name": "bytes", "kind": null, "optional": false},
        ]);
        let next = "cargo update --workspace --manifest-path crates/join/Cargo.toml";
        assert_eq!(
            problems(&other),
            ["lacks bytes", "still has rand"]
                .map(|what| format!("crates/join/Cargo.lock:1: unisono-broker {what}; {next}"))
        );
    }
}
