//! Fetches packages of another Debian suite and unpacks them into a directory.
//!
//! The packages come from the mirror in this machine's apt configuration. The package lists are kept
//! separately, so the machine's package state does not change.

use anyhow::{Context, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// apt with its own source and package lists.
pub(super) struct Apt {
    directory: PathBuf,
    options: Vec<String>,
}

impl Apt {
    /// Configures apt for this suite. The package lists are kept in the directory, which is created if
    /// necessary.
    pub(super) fn new(directory: &Path, suite: &str) -> anyhow::Result<Self> {
        let mirror = mirror()?;
        let keys = if Path::new(KEYS).exists() { format!("[signed-by={KEYS}] ") } else { String::new() };
        for place in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(place)).context("make a place for apt")?;
        }
        let directory = directory.canonicalize().context("the directory just made")?;
        let sources = directory.join("sources.list");
        fs::write(&sources, format!("deb {keys}{mirror} {suite} main\n"))
            .context("write a list of sources")?;
        let place = directory.display();
        let options = [
            format!("Dir::Etc::sourcelist={}", sources.display()),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State::lists={place}/lists"),
            format!("Dir::Cache={place}/cache"),
            // apt fetches packages as the present user, who need not be root
            "APT::Sandbox::User=".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
        ];
        let options = options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect();
        let apt = Self { directory, options };
        apt.run("apt-get", &["--quiet=2", "update"])?;
        Ok(apt)
    }

    /// Returns the description of a package's newest version.
    pub(super) fn show(&self, package: &str) -> anyhow::Result<String> {
        self.run("apt-cache", &["--no-all-versions", "show", package])
    }

    /// Unpacks packages into a subdirectory `into` of the directory, completely or not at all.
    pub(super) fn unpack(&self, packages: &[&str], into: &str) -> anyhow::Result<()> {
        self.run("apt-get", &[&["--quiet=2", "download"], packages].concat())?;
        let new = self.directory.join("new");
        for entry in fs::read_dir(&self.directory)?.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                let unpack = Command::new("dpkg-deb").arg("-x").args([&path, &new]).status();
                ensure!(unpack.context("start dpkg-deb")?.success(), "dpkg-deb -x {}", path.display());
                fs::remove_file(path)?;
            }
        }
        fs::rename(&new, self.directory.join(into)).with_context(|| format!("keep {into}"))
    }

    fn run(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(program);
        command.args(&self.options).args(arguments).current_dir(&self.directory).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("start {program}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().next_back().unwrap_or("without saying why");
            bail!("{program} {}: {line}", arguments.join(" "));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Returns the Debian mirror that apt uses.
fn mirror() -> anyhow::Result<String> {
    let targets = Command::new("apt-get")
        .args(["indextargets", "--format", "$(SITE)", "Created-By: Packages"])
        .output()
        .context("start apt-get")?;
    let sites = String::from_utf8_lossy(&targets.stdout).into_owned();
    let debian = sites.lines().find(|site| site.trim_end_matches('/').ends_with("/debian"));
    debian.map(str::to_owned).context("apt is not configured for a mirror of Debian")
}
