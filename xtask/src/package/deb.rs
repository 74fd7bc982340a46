//! Makes the Debian package with dpkg-deb from the files of `cargo xtask install`. `packaging/deb` has the
//! files that only Debian needs. The systemd units are not enabled.

use super::documents::{CHANGELOG, SECURITY, packaged, write_packaged};
use super::release::{Release, VERSION, template, write_group};
use super::run_quietly;
use crate::install::InstallPrefix;
use anyhow::Context;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_host_tests::program::workspace;

const SCRIPTS: [&str; 2] = ["postinst", "prerm"];

pub(super) fn make(release: &Release) -> anyhow::Result<PathBuf> {
    let tree = release.scratch("deb")?.join("tree");
    let prefix = InstallPrefix {
        prefix: "/usr".into(),
        staging: Some(tree.clone()),
        libraries: format!("lib/{}-linux-gnu", release.processor.name()),
        python: "lib/python3/dist-packages".into(),
    };
    release.stage(&prefix)?;
    // Debian's zsh searches this directory for the completions of packages
    let zsh = prefix.path("share/zsh/vendor-completions");
    fs::rename(prefix.path("share/zsh/site-functions"), zsh).context("completions for zsh")?;
    release.compress_pages(&prefix)?;
    write_documents(release, &prefix)?;
    write_group(&prefix)?;
    let arch = release.processor.debian();
    write_control(&tree, arch)?;
    release.normalize(&tree)?;
    let set_mode = |path: PathBuf, mode: u32| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .with_context(|| path.display().to_string())
    };
    for script in SCRIPTS {
        set_mode(tree.join("DEBIAN").join(script), 0o755)?;
    }
    // Debian's policy: shared libraries are not executable; in RPM packages they are
    set_mode(prefix.path(&prefix.libraries).join(format!("libunisono.so.{VERSION}")), 0o644)?;
    let package = release.dist.join(format!("unisono_{VERSION}-1_{arch}.deb"));
    let mut build = Command::new("dpkg-deb");
    build.args(["--build", "--root-owner-group", "-Zxz"]).arg(&tree).arg(&package);
    run_quietly(build.env("SOURCE_DATE_EPOCH", &release.epoch))?;
    Ok(package)
}

/// Writes the copyright, the changelogs, and the overrides for lintian with their reasons.
fn write_documents(release: &Release, prefix: &InstallPrefix) -> anyhow::Result<()> {
    let documents = prefix.path("share/doc/unisono");
    fs::create_dir_all(&documents).context("a directory")?;
    let mit = fs::read_to_string(workspace().join("LICENSE-MIT")).context("LICENSE-MIT")?;
    let indented: String = mit
        .lines()
        .map(|line| if line.trim().is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
        .collect();
    let copyright = template("deb/copyright.in", &[("MIT", indented.trim_end())])?;
    let date = release.time("%a, %d %b %Y %H:%M:%S +0000")?;
    let changelog = template("deb/changelog.in", &[("VERSION", VERSION), ("DATE", &date)])?;
    let write = |path: &Path, text: &str| fs::write(path, text).with_context(|| path.display().to_string());
    write(&documents.join("copyright"), &copyright)?;
    write(&documents.join("changelog.Debian"), &changelog)?;
    write(&documents.join("licences-of-parts.txt"), &release.licences)?;
    write(&documents.join("changelog"), &packaged(CHANGELOG)?)?;
    write_packaged(&[SECURITY], &documents)?;
    let mut gzip = Command::new("gzip");
    gzip.args(["--best", "--no-name", "changelog", "changelog.Debian", "licences-of-parts.txt"]);
    run_quietly(gzip.current_dir(&documents))?;
    let overrides = prefix.path("share/lintian/overrides");
    fs::create_dir_all(&overrides).context("a directory")?;
    write(&overrides.join("unisono"), &template("deb/lintian-overrides", &[])?)
}

fn write_control(tree: &Path, arch: &str) -> anyhow::Result<()> {
    let usage = run_quietly(
        Command::new("du").args(["--summarize", "--apparent-size", "--block-size=1024"]).arg(tree),
    )?;
    let usage = String::from_utf8_lossy(&usage);
    let size = usage.split_whitespace().next().unwrap_or("0");
    let directory = tree.join("DEBIAN");
    fs::create_dir(&directory).context("DEBIAN")?;
    let control = template("deb/control.in", &[("VERSION", VERSION), ("ARCH", arch), ("SIZE", size)])?;
    fs::write(directory.join("control"), control).context("control")?;
    for file in SCRIPTS.into_iter().chain(["triggers", "shlibs"]) {
        fs::write(directory.join(file), template(&format!("deb/{file}"), &[])?).context(file)?;
    }
    let mut sums = Command::new("sh");
    sums.args(["-c", "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum"]).current_dir(tree);
    fs::write(directory.join("md5sums"), run_quietly(&mut sums)?).context("md5sums")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `postinst configure` with these programs alone on its path, each a script. Returns what groupadd
    /// was asked to do, and standard error.
    fn configure(programs: &[(&str, &str)]) -> (Option<String>, String) {
        let directory = tempfile::tempdir().expect("there is room");
        for (name, script) in programs.iter().chain(&[("systemctl", "exit 0")]) {
            let path = directory.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("there is room");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        let asked = directory.path().join("asked");
        let mut script = Command::new("/bin/sh");
        script.arg(workspace().join("packaging/deb/postinst")).arg("configure");
        let output = script.env("PATH", directory.path()).env("ASKED", &asked).output().expect("sh starts");
        assert!(output.status.success(), "{output:?}");
        (fs::read_to_string(asked).ok(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[test]
    fn the_group_is_made_without_systemd_too_and_a_failure_is_said() {
        let (absent, adds) = (("getent", "exit 2"), ("groupadd", "echo \"$@\" > $ASKED"));
        let (asked, said) = configure(&[absent, adds]);
        assert_eq!((asked.as_deref(), said.as_str()), (Some("--system unisono\n"), ""));
        assert_eq!(configure(&[("getent", "exit 0"), adds]).0, None, "the group is there");
        assert_eq!(configure(&[("systemd-sysusers", "exit 0"), absent, adds]).0, None);
        let (_, said) = configure(&[absent, ("groupadd", "exit 1")]);
        assert!(said.contains("no group unisono") && said.contains("groupadd --system"), "{said}");
    }
}
