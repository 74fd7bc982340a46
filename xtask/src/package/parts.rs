//! Lists the parts of the built program that others wrote: the crates that are linked, according to cargo,
//! with their licences.

use super::processor::TargetProcessor;
use super::{run_quietly, toolchain};
use anyhow::Context;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_host_tests::program::{cargo, workspace};

/// The packages that are built for users.
const BUILT: [&str; 2] = ["unisono", "unisono-c"];

/// A crate inside the program.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkedCrate {
    pub(super) name: String,
    pub(super) version: String,
    /// The licence, as an SPDX expression.
    pub(super) licence: String,
    /// Whether the crate comes from crates.io, not from this workspace.
    pub(super) is_foreign: bool,
    folder: PathBuf,
}

/// Returns the crates that are linked into the program or the library, sorted.
pub(super) fn linked_crates(processor: TargetProcessor) -> anyhow::Result<Vec<LinkedCrate>> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", processor.target()]);
    let output = run_quietly(command.current_dir(workspace()))?;
    linked(&serde_json::from_slice(&output).context("cargo metadata")?)
}

fn linked(metadata: &Value) -> anyhow::Result<Vec<LinkedCrate>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let by_id = |values: Vec<Value>| -> BTreeMap<String, Value> {
        let id = |value: &Value| value["id"].as_str().unwrap_or_default().to_owned();
        values.into_iter().map(|value| (id(&value), value)).collect()
    };
    let packages = by_id(list(&metadata["packages"]));
    let nodes = by_id(list(&metadata["resolve"]["nodes"]));
    let is_built = |package: &Value| BUILT.iter().any(|name| package["name"] == *name);
    let mut open: Vec<&str> =
        packages.iter().filter(|(_, package)| is_built(package)).map(|(id, _)| id.as_str()).collect();
    let mut seen: BTreeSet<&str> = open.iter().copied().collect();
    while let Some(id) = open.pop() {
        for dependency in nodes[id]["deps"].as_array().into_iter().flatten() {
            // build dependencies and procedural macros run during compilation, and are not part of the
            // program
            let is_linked = list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let id = dependency["pkg"].as_str().unwrap_or_default();
            if is_linked && !is_macro(&packages[id]) && seen.insert(id) {
                open.push(id);
            }
        }
    }
    let mut crates: Vec<LinkedCrate> = seen.into_iter().map(|id| linked_crate(&packages[id])).collect();
    crates.sort();
    Ok(crates)
}

fn is_macro(package: &Value) -> bool {
    let targets = package["targets"].as_array().into_iter().flatten();
    targets
        .flat_map(|target| target["kind"].as_array().into_iter().flatten())
        .any(|kind| kind == "proc-macro")
}

fn linked_crate(package: &Value) -> LinkedCrate {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let manifest = PathBuf::from(text("manifest_path"));
    LinkedCrate {
        name: text("name"),
        version: text("version"),
        // converts the older form of a licence, which separates alternatives by a slash, to SPDX
        licence: text("license").replace(" / ", " OR ").replace('/', " OR "),
        is_foreign: !package["source"].is_null(),
        folder: manifest.parent().unwrap_or(Path::new("")).to_owned(),
    }
}

/// Returns the licence texts of all parts, each text once, with the parts that it is for.
pub(super) fn licence_texts(processor: TargetProcessor) -> anyhow::Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut index = String::new();
    for part in linked_crates(processor)?.iter().filter(|part| part.is_foreign) {
        let name = format!("{} {}", part.name, part.version);
        let found = texts_of(&part.folder)?;
        let note =
            if found.is_empty() { "; its archive has no text: see those of the same name" } else { "" };
        index.push_str(&format!("  {name}: {}{note}\n", part.licence));
        found.into_iter().for_each(|text| texts.entry(text).or_default().push(name.clone()));
    }
    let runtime = "the compiler runtime and the unwinder of LLVM";
    index.push_str(&format!("  {runtime}: Apache-2.0 WITH LLVM-exception\n"));
    texts.entry(toolchain::licence_of_runtime()?).or_default().push(runtime.to_owned());
    let standard = "the standard library of Rust";
    index.push_str(&format!("  {standard}: MIT OR Apache-2.0\n"));
    let sysroot = run_quietly(Command::new("rustc").args(["--print", "sysroot"]))?;
    let documents = Path::new(String::from_utf8_lossy(&sysroot).trim()).join("share/doc/rust");
    let texts_of_standard = documents.join("licenses");
    for name in ["Apache-2.0.txt", "MIT.txt", "Unicode-3.0.txt", "BSD-2-Clause.txt", "LLVM-exception.txt"] {
        let text = fs::read_to_string(texts_of_standard.join(name)).unwrap_or_default();
        if !text.is_empty() {
            texts.entry(text).or_default().push(standard.to_owned());
        }
    }
    let mut all = format!(
        "The program unisono and the library libunisono are under the terms of Apache-2.0 or MIT, as you choose.\n\
         They contain parts of others:\n\n{index}"
    );
    for (text, parts) in &texts {
        let line = "-".repeat(78);
        all.push_str(&format!("\n{line}\n{}\n{line}\n\n{}\n", parts.join(", "), text.trim_end()));
    }
    Ok(all)
}

/// Returns the licence files of a crate's archive, with the same line ends.
fn texts_of(folder: &Path) -> anyhow::Result<Vec<String>> {
    let is_licence = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let stems = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
        stems.iter().any(|stem| name.starts_with(stem)) && !name.ends_with(".RS")
    };
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_licence).collect();
    files.retain(|path| path.is_file());
    files.sort();
    let read = |path: &PathBuf| -> anyhow::Result<String> {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"))
    };
    files.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_only_builds_the_program_is_not_in_it() {
        let package = |name: &str, kind: &str| {
            json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": "registry",
                   "manifest_path": format!("/r/{name}/Cargo.toml"), "targets": [{"kind": [kind]}]})
        };
        let dependency = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("unisono", "bin"), package("linked", "lib"), package("derive", "proc-macro"),
                         package("syn", "lib"), package("cc", "lib")],
            "resolve": {"nodes": [
                {"id": "unisono", "deps": [dependency("linked", Value::Null), dependency("derive", Value::Null),
                                           dependency("cc", json!("build"))]},
                {"id": "derive", "deps": [dependency("syn", Value::Null)]},
                {"id": "linked", "deps": []}, {"id": "syn", "deps": []}, {"id": "cc", "deps": []},
            ]},
        });
        let crates = linked(&metadata).expect("well formed");
        let names: Vec<_> = crates.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["linked", "unisono"]);
        assert_eq!(crates[0].licence, "MIT OR Apache-2.0");
    }

    #[test]
    fn every_licence_text_of_an_archive_is_taken() {
        let folder = tempfile::tempdir().expect("there is room");
        for (name, text) in
            [("LICENSE-MIT", "a\r\nb"), ("COPYING", "c"), ("README.md", "d"), ("licenses.rs", "e")]
        {
            fs::write(folder.path().join(name), text).expect("there is room");
        }
        assert_eq!(texts_of(folder.path()).expect("it can be read"), ["c", "a\nb"]);
    }
}
