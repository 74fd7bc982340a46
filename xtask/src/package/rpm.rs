//! Makes the RPM package with rpmbuild from the files of `cargo xtask install`. The Python package is in
//! `share/unisono/python`, because each release of an RPM distribution has another directory for Python
//! packages.

use super::documents::{CHANGELOG, SECURITY, write_packaged};
use super::release::{Release, VERSION, template, write_group};
use super::run_quietly;
use crate::install::InstallPrefix;
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_host_tests::program::workspace;

pub(super) fn make(release: &Release) -> anyhow::Result<PathBuf> {
    let arch = release.processor.name();
    let scratch = release.scratch("rpm")?;
    let tree = scratch.join("tree");
    let prefix = InstallPrefix {
        prefix: "/usr".into(),
        staging: Some(tree.clone()),
        libraries: "lib64".to_owned(),
        python: "share/unisono/python".into(),
    };
    release.stage(&prefix)?;
    release.compress_pages(&prefix)?;
    write_group(&prefix)?;
    let licences = prefix.path("share/licenses/unisono");
    fs::create_dir_all(&licences).context("a directory")?;
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(workspace().join(name), licences.join(name)).context(name)?;
    }
    fs::write(licences.join("LICENCES-OF-PARTS.txt"), &release.licences).context("the licences")?;
    write_packaged(&[CHANGELOG, SECURITY], &prefix.path("share/doc/unisono"))?;
    release.normalize(&tree)?;
    let date = release.time("%a %b %d %Y")?;
    let words = [("VERSION", VERSION), ("DATE", &date), ("FILES", &file_list(&tree)?)];
    let spec = scratch.join("unisono.spec");
    fs::write(&spec, template("rpm/unisono.spec.in", &words)?).context("the spec")?;
    let mut build = Command::new("rpmbuild");
    build
        .args(["-bb", "--target", arch, "--define"])
        .arg(format!("_topdir {}", scratch.join("top").display()));
    build.arg("--define").arg(format!("staged {}", tree.display())).arg(&spec);
    run_quietly(build.env("SOURCE_DATE_EPOCH", &release.epoch)).context("apt-get install rpm")?;
    let name = format!("unisono-{VERSION}-1.{arch}.rpm");
    let (built, package) = (scratch.join("top/RPMS").join(arch).join(&name), release.dist.join(&name));
    fs::copy(&built, &package).with_context(|| built.display().to_string())?;
    Ok(package)
}

/// Lists the files of the staged tree, and the directories that belong to this package alone.
fn file_list(tree: &Path) -> anyhow::Result<String> {
    let list = |arguments: &[&str]| -> anyhow::Result<String> {
        let mut find = Command::new("find");
        let output =
            run_quietly(find.arg(".").args(arguments).args(["-printf", "/%P\\n"]).current_dir(tree))?;
        let mut lines: Vec<_> = String::from_utf8_lossy(&output).lines().map(str::to_owned).collect();
        lines.sort();
        ensure!(!lines.is_empty(), "nothing is staged for the package");
        Ok(lines.join("\n"))
    };
    let files = list(&["(", "-type", "f", "-o", "-type", "l", ")"])?;
    let own = list(&["-type", "d", "-path", "*unisono*"])?;
    Ok(format!(
        "{files}\n{}",
        own.lines().map(|line| format!("%dir {line}\n")).collect::<String>()
    ))
}
