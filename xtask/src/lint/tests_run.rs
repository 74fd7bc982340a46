//! A file of tests is a test target of its crate, or a module of one. Cargo compiles no other file, so the
//! tests in it would never run.

use super::sources::Sources;
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let root = format!("{}/", sources.root.display());
    let packages = sources.metadata["packages"].as_array().into_iter().flatten();
    packages.flat_map(|package| forgotten(sources, package, &root)).collect()
}

/// Returns the problems of one package.
fn forgotten(sources: &Sources, package: &Value, root: &str) -> Vec<String> {
    let relative = |path: &Value| path.as_str().and_then(|path| path.strip_prefix(root)).map(str::to_owned);
    let Some(manifest) = relative(&package["manifest_path"]) else { return Vec::new() };
    let folder = manifest.replace("Cargo.toml", "tests/");
    let targets: BTreeSet<String> = package["targets"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| relative(&it["src_path"]))
        .collect();
    let in_folder = || {
        let name = |path: &str| Some(path.strip_prefix(&folder)?.strip_suffix(".rs")?.to_owned());
        sources
            .rust()
            .filter_map(move |file| Some((file, name(&file.path)?)))
            .filter(|(_, name)| !name.contains('/'))
    };
    let modules: BTreeSet<&str> = in_folder()
        .filter(|(file, _)| targets.contains(&file.path))
        .flat_map(|(file, _)| {
            file.text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'))
        })
        .collect();
    in_folder()
        .filter(|(file, name)| !targets.contains(&file.path) && !modules.contains(name.as_str()))
        .map(|(file, name)| {
            format!("{}:1: its tests run nowhere; write `mod {name};` in {folder}main.rs", file.path)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_file_that_is_neither_a_target_nor_a_module_is_a_problem() {
        let mut sources = Sources::from_texts(&[
            ("crates/a/tests/main.rs", "//! Tests.\n\nmod module;\n// mod comment;\n"),
            ("crates/a/tests/module.rs", "mod inner;\n"),
            ("crates/a/tests/module/inner.rs", ""),
            ("crates/a/tests/own.rs", ""),
            ("crates/a/tests/comment.rs", ""),
            ("crates/a/tests/inner.rs", ""),
            ("crates/b/tests/module.rs", ""),
        ]);
        let path = |path: &str| format!("/nonexistent/crates/a/{path}");
        let target = |name: &str| json!({"kind": ["test"], "src_path": path(name)});
        sources.metadata = json!({"packages": [{
            "manifest_path": path("Cargo.toml"),
            "targets": [target("src/lib.rs"), target("tests/main.rs"), target("tests/own.rs")],
        }]});
        let problem = |name: &str| {
            format!(
                "crates/a/tests/{name}.rs:1: its tests run nowhere; write `mod {name};` in crates/a/tests/main.rs"
            )
        };
        assert_eq!(check(&sources), [problem("comment"), problem("inner")]);
    }
}
