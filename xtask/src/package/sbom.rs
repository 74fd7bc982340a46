//! Writes the software bill of materials: the crates inside the program, in CycloneDX's JSON. It has no
//! random serial number, and its time is the commit's, so that two builds write the same file.

use super::parts::{LinkedCrate, linked_crates};
use super::release::{Release, VERSION};
use anyhow::Context;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use unisono_host_tests::program::workspace;

/// Returns the bill of materials as text.
pub(super) fn text(release: &Release) -> anyhow::Result<String> {
    let lock = fs::read_to_string(workspace().join("Cargo.lock")).context("Cargo.lock")?;
    let checksums = checksums(&lock);
    let components: Vec<Value> =
        linked_crates(release.processor)?.iter().map(|part| component(part, &checksums)).collect();
    let timestamp = release.time("%Y-%m-%dT%H:%M:%SZ")?;
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": timestamp,
            "component": {"type": "application", "bom-ref": "unisono", "name": "unisono", "version": VERSION,
                          "licenses": [{"expression": "Apache-2.0 OR MIT"}]},
        },
        "components": components,
    });
    Ok(format!("{bill:#}\n"))
}

fn component(part: &LinkedCrate, checksums: &BTreeMap<(String, String), String>) -> Value {
    let LinkedCrate { name, version, licence, .. } = part;
    let mut component = json!({
        "type": "library", "bom-ref": format!("{name}@{version}"), "name": name, "version": version,
        "licenses": [{"expression": licence}],
    });
    if part.is_foreign {
        component["purl"] = json!(format!("pkg:cargo/{name}@{version}"));
    }
    if let Some(checksum) = checksums.get(&(name.clone(), version.clone())) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

/// Reads the checksums of archives from Cargo.lock, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let entry = |entry: &str| {
        let value = |key: &str| {
            entry.lines().find_map(|line| Some(line.strip_prefix(key)?.trim_matches('"').to_owned()))
        };
        Some(((value("name = ")?, value("version = ")?), value("checksum = ")?))
    };
    lock.split("[[package]]").filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_have_the_checksums_of_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"x\"\nchecksum = \"00ff\"\n\n\
                    [[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        let found = checksums(lock);
        assert_eq!(found.get(&("a".to_owned(), "1.0.0".to_owned())).map(String::as_str), Some("00ff"));
        assert_eq!(found.len(), 1);
    }
}
