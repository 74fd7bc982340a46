//! `cargo xtask libraries`: packs the crates that others may use as libraries, and uses each library from a
//! project outside the workspace.
//!
//! A single `cargo package` packs all of them, because the archives are built from each other. Then each
//! library of [`LIBRARIES`] becomes the only dependency of a new project, whose program is the example of the
//! library's README. The project uses the unpacked archives, so that a file that is missing from an archive
//! is noticed.

use crate::step::{StepVerdict, TimedStep};
use crate::summary::StepSummary;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use unisono_host_tests::program::{cargo, target, unisono, workspace};

/// The crates whose READMEs have an example.
const LIBRARIES: [&str; 9] = [
    "sync",
    "barrier",
    "rma",
    "btin",
    "fairqueue",
    "eventchannel",
    "events-wire",
    LIBRARY_OF_CLIENTS,
    "socket-shares",
];

/// The library whose example connects to a broker; it is run with the broker's address as its argument.
const LIBRARY_OF_CLIENTS: &str = "events-client";

/// A crate that may be published.
#[derive(Debug, PartialEq, Eq)]
struct PublishedCrate {
    name: String,
    version: String,
}

pub(crate) fn run() -> anyhow::Result<bool> {
    let mut summary = StepSummary::default();
    summary.step("libraries", step);
    Ok(summary.conclude())
}

/// Packs the crates and uses each of them from a project.
pub(crate) fn step() -> StepVerdict {
    let prepared = || {
        let crates = published(&metadata()?);
        Ok::<_, anyhow::Error>((crates, tempfile::tempdir().context("a temporary directory")?))
    };
    let (crates, scratch) = match prepared() {
        Ok(prepared) => prepared,
        Err(error) => return StepVerdict::failed(format!("{error:#}")),
    };
    let mut verdict = pack(&crates);
    for library in LIBRARIES {
        verdict.add(match project(&scratch.path().join(library), library, &crates) {
            Ok(folder) if library == LIBRARY_OF_CLIENTS => {
                let socket = scratch.path().join("events");
                match StartedBroker::start(&socket) {
                    Ok(_broker) => run_project(&folder, library, Some(&socket)),
                    Err(error) => StepVerdict::failed(format!("{error:#}")),
                }
            }
            Ok(folder) => run_project(&folder, library, None),
            Err(error) => StepVerdict::failed(format!("{error:#}")),
        });
    }
    verdict
}

/// Returns a target directory for this step alone, so that a test that runs cargo at the same time does not
/// have to wait for its lock.
fn own_target() -> PathBuf {
    target().join("libraries")
}

fn metadata() -> anyhow::Result<Value> {
    let mut command = cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1", "--locked"]).current_dir(workspace());
    let output = command.output().context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

fn published(metadata: &Value) -> Vec<PublishedCrate> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    // cargo metadata shows `publish = false` as an empty list of registries
    let published = packages.filter(|package| package["publish"].is_null());
    published
        .map(|package| PublishedCrate { name: text(&package["name"]), version: text(&package["version"]) })
        .collect()
}

/// Packs the crates, and builds each archive.
fn pack(crates: &[PublishedCrate]) -> StepVerdict {
    let mut command = cargo();
    command.args(["package", "--locked", "--offline", "--allow-dirty"]).current_dir(workspace());
    command.arg("--target-dir").arg(own_target());
    crates.iter().for_each(|one| {
        command.args(["--package", &one.name]);
    });
    if TimedStep::new("cargo package", command).succeeds() {
        StepVerdict::passed(crates.len() as u64)
    } else {
        StepVerdict::failed("cargo package did not succeed")
    }
}

/// Writes a project that depends on one library only. Returns its folder.
fn project(folder: &Path, library: &str, crates: &[PublishedCrate]) -> anyhow::Result<PathBuf> {
    let readme = workspace().join("crates").join(library).join("README.md");
    let readme = fs::read_to_string(&readme).with_context(|| readme.display().to_string())?;
    let example = example(&readme).with_context(|| format!("the README of unisono-{library}"))?;
    let manifest = manifest(library, crates, &own_target().join("package"))?;
    fs::create_dir_all(folder.join("src")).context("a directory")?;
    fs::write(folder.join("src/main.rs"), example).context("the program")?;
    fs::write(folder.join("Cargo.toml"), manifest).context("the manifest")?;
    // the workspace's lock file, so that cargo selects versions that are on this machine and needs no network
    fs::copy(workspace().join("Cargo.lock"), folder.join("Cargo.lock")).context("the lock file")?;
    Ok(folder.to_owned())
}

/// A broker of this build; dropping this ends it.
struct StartedBroker {
    child: Child,
    /// The reading end of the broker's standard error, which has to stay open.
    errors: BufReader<ChildStderr>,
}

impl StartedBroker {
    /// Starts a broker, and waits until it serves.
    fn start(socket: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(unisono());
        command.args(["events", "serve", "--listen"]).arg(socket).stderr(Stdio::piped());
        let mut child = command.spawn().context("unisono events serve")?;
        let said = child.stderr.take().context("the broker's standard error")?;
        let mut broker = Self { child, errors: BufReader::new(said) };
        let mut line = String::new();
        broker.errors.read_line(&mut line).context("the broker's standard error")?;
        ensure!(line.starts_with("serving at "), "the broker does not serve: {line}");
        Ok(broker)
    }
}

impl Drop for StartedBroker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run_project(folder: &Path, library: &str, argument: Option<&Path>) -> StepVerdict {
    let mut command = cargo();
    command.args(["run", "--offline", "--quiet", "--"]).args(argument).current_dir(folder);
    command.env("CARGO_TARGET_DIR", own_target());
    TimedStep::new(format!("a project with unisono-{library}"), command)
        .verdict(format!("the example of unisono-{library}'s README did not succeed"))
}

/// Returns the first block of Rust in a README.
fn example(readme: &str) -> anyhow::Result<&str> {
    let (_, begun) = readme.split_once("```rust\n").context("it has no block of Rust")?;
    let (example, _) = begun.split_once("```").context("the block does not end")?;
    ensure!(example.contains("fn main()"), "its example is no program");
    Ok(example)
}

/// Returns the manifest of a project with one dependency, taken from the unpacked archives in `packages`.
fn manifest(library: &str, crates: &[PublishedCrate], packages: &Path) -> anyhow::Result<String> {
    let name = format!("unisono-{library}");
    let wanted =
        crates.iter().find(|one| one.name == name).with_context(|| format!("{name} is not packed"))?;
    let mut text = format!(
        "[package]\nname = \"user-of-{library}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\n{name} = \"{}\"\n\n[patch.crates-io]\n",
        wanted.version
    );
    for PublishedCrate { name, version } in crates {
        let path = packages.join(format!("{name}-{version}"));
        text.push_str(&format!("{name} = {{ path = \"{}\" }}\n", path.display()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_crate_that_is_excluded_from_publication_is_not_packed() {
        let packages = json!([
            {"name": "unisono-time", "version": "0.1.0", "publish": null},
            {"name": "xtask", "version": "0.1.0", "publish": []},
        ]);
        let time = PublishedCrate { name: "unisono-time".to_owned(), version: "0.1.0".to_owned() };
        assert_eq!(published(&json!({"packages": packages})), [time]);
    }

    #[test]
    fn a_readme_without_a_program_is_refused() {
        let readme = |code: &str| format!("# A\n\n```toml\n[x]\n```\n\n```rust\n{code}```\n");
        assert_eq!(example(&readme("fn main() {}\n")).ok(), Some("fn main() {}\n"));
        assert!(example(&readme("let a = 1;\n")).is_err());
        assert!(example("# A\n").is_err());
    }

    #[test]
    fn a_project_gets_every_packed_crate_and_depends_on_one() {
        let packed = |name: &str| PublishedCrate { name: name.to_owned(), version: "0.2.0".to_owned() };
        let crates = [packed("unisono-time"), packed("unisono-sync")];
        let text = manifest("sync", &crates, Path::new("/t")).expect("it is packed");
        assert!(text.contains("[dependencies]\nunisono-sync = \"0.2.0\"\n\n[patch"), "{text}");
        assert!(text.contains("unisono-time = { path = \"/t/unisono-time-0.2.0\" }\n"), "{text}");
        assert!(manifest("rma", &crates, Path::new("/t")).is_err());
    }
}
