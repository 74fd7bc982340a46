//! A built release: where its files are, and how they are staged for each kind of package.

use super::processor::TargetProcessor;
use super::{parts, run_quietly, toolchain};
use crate::install::{InstallPrefix, InstalledFiles, install_built};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_host_tests::program::{cargo, target, workspace};

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) struct Release {
    pub(super) processor: TargetProcessor,
    /// The directory of the built program and library.
    pub(super) built: PathBuf,
    /// The program that runs on this machine, and writes the manual pages: `built` may be for another
    /// processor.
    program_here: PathBuf,
    /// The directory of finished packages.
    pub(super) dist: PathBuf,
    /// The time of the commit, in seconds since 1970; every file in a package gets this time.
    pub(super) epoch: String,
    /// The licence texts of all parts.
    pub(super) licences: String,
}

/// The sources of a release, before a program is built.
pub(super) struct ReleaseSource {
    dist: PathBuf,
    pub(super) epoch: String,
}

impl ReleaseSource {
    /// Reads the time of the commit.
    pub(super) fn prepare(dist: &Path) -> anyhow::Result<Self> {
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(named) => named,
            Err(_) => {
                let mut log = Command::new("git");
                let time = run_quietly(log.args(["log", "-1", "--format=%ct"]).current_dir(workspace()));
                String::from_utf8_lossy(&time.context("SOURCE_DATE_EPOCH is not set")?).trim().to_owned()
            }
        };
        Ok(Self { dist: dist.to_owned(), epoch })
    }

    /// Builds the program and the library for a processor. `earlier` is the release for another processor;
    /// if there is none, the directory of packages is emptied. If the built programs do not run here, the
    /// manual pages come from `earlier`, or from a debug build for this machine.
    pub(super) fn build_for(
        &self,
        processor: TargetProcessor,
        earlier: Option<&Release>,
    ) -> anyhow::Result<Release> {
        let built = toolchain::build(processor)?;
        let program_here = match earlier {
            _ if processor.name() == std::env::consts::ARCH => built.join("unisono"),
            Some(earlier) => earlier.program_here.clone(),
            None => unisono_for_this_machine()?,
        };
        let (dist, epoch) = (self.dist.clone(), self.epoch.clone());
        if earlier.is_none() {
            if dist.exists() {
                fs::remove_dir_all(&dist).with_context(|| format!("cannot empty {}", dist.display()))?;
            }
            fs::create_dir_all(&dist).with_context(|| format!("cannot make {}", dist.display()))?;
        }
        let licences = parts::licence_texts(processor)?;
        Ok(Release { processor, built, program_here, dist, epoch, licences })
    }
}

/// Builds the program for this machine. Returns its path.
fn unisono_for_this_machine() -> anyhow::Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--locked", "--package", "unisono"]).current_dir(workspace());
    ensure!(build.status().context("cargo")?.success(), "the program for this machine was not built");
    let directory = std::path::absolute(target()).context("the target directory")?;
    Ok(directory.join("debug/unisono"))
}

impl Release {
    /// Returns the time of the release in UTC, in a format of date(1).
    pub(super) fn time(&self, format: &str) -> anyhow::Result<String> {
        let moment = format!("--date=@{}", self.epoch);
        let mut date = Command::new("date");
        let text = run_quietly(date.args(["--utc", &moment, &format!("+{format}")]).env("LC_ALL", "C"))?;
        Ok(String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// Creates an empty directory for a kind of package, below the target directory.
    pub(super) fn scratch(&self, kind: &str) -> anyhow::Result<PathBuf> {
        let directory = toolchain::directory().join(kind);
        if directory.exists() {
            fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
        }
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        Ok(directory)
    }

    /// Installs the files of `cargo xtask install` below a staging directory.
    pub(super) fn stage(&self, prefix: &InstallPrefix) -> anyhow::Result<()> {
        ensure!(prefix.staging.is_some(), "a package is not made from the files of this host");
        install_built(&mut InstalledFiles::below(prefix), &self.built, &self.program_here)
    }

    /// Gives all files and directories of a tree the time of the release, and permissions that do not depend
    /// on the umask.
    pub(super) fn normalize(&self, tree: &Path) -> anyhow::Result<()> {
        run_quietly(Command::new("chmod").args(["--recursive", "u=rwX,go=rX"]).arg(tree))?;
        let date = format!("--date=@{}", self.epoch);
        let mut find = Command::new("find");
        find.arg(tree).args(["-exec", "touch", "--no-dereference", &date, "{}", "+"]);
        run_quietly(&mut find).map(|_| ())
    }

    /// Compresses the manual pages of a staged tree, as distributions do.
    pub(super) fn compress_pages(&self, prefix: &InstallPrefix) -> anyhow::Result<()> {
        let mut find = Command::new("find");
        find.arg(prefix.path("share/man")).args([
            "-type",
            "f",
            "-exec",
            "gzip",
            "--best",
            "--no-name",
            "{}",
            "+",
        ]);
        run_quietly(&mut find).map(|_| ())
    }
}

/// Returns a file of the folder `packaging`, with words between @ replaced.
pub(super) fn template(file: &str, words: &[(&str, &str)]) -> anyhow::Result<String> {
    let path = workspace().join("packaging").join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(words.iter().fold(text, |text, (word, value)| text.replace(&format!("@{word}@"), value)))
}

/// Writes the group whose members may connect to the event broker.
pub(super) fn write_group(prefix: &InstallPrefix) -> anyhow::Result<()> {
    for (file, below) in [
        ("sysusers.conf", "lib/sysusers.d/unisono.conf"),
        ("socket-group.conf", "lib/systemd/system/unisono-events.socket.d/group.conf"),
    ] {
        let path = prefix.path(below);
        fs::create_dir_all(path.parent().unwrap_or(&path)).context("a directory")?;
        fs::write(&path, template(file, &[])?).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
