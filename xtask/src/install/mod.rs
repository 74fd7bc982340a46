//! `cargo xtask install`: installs the program, its libraries, header, Python package, manual pages and
//! completions below a prefix.
//!
//! ```text
//! bin/unisono                            share/man/man1/unisono*.1, man5/unisono-*.5
//! include/unisono.h                      share/bash-completion/completions/unisono
//! lib/libunisono.so.0.2.0                share/zsh/site-functions/_unisono
//! lib/libunisono.so.0, libunisono.so     share/fish/vendor_completions.d/unisono.fish
//! lib/pkgconfig/unisono.pc               lib/python3*/*-packages/unisono/
//! lib/systemd/system/unisono-events.service, unisono-events.socket, unisono-queue-guard.service,
//!     unisono-queue-guard.socket
//! share/unisono/slurm/prolog.sh, epilog.sh
//! share/unisono/installed-files          all of these, for `cargo xtask uninstall`
//! ```
//! `cargo xtask package` makes packages from the same files.

mod installed;
mod trial;

pub(crate) use installed::{InstalledFiles, uninstall};
pub(crate) use trial::trial;

use anyhow::{Context, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_host_tests::program::{target, workspace};

/// The library's soname, by which the dynamic linker finds it; `abi/c/build.rs` has the same name.
pub(crate) const SONAME: &str = "libunisono.so.0";

/// The prefix of the files when they are used and, if it differs, the staging directory into which they are
/// written.
#[derive(Clone)]
pub(crate) struct InstallPrefix {
    pub(crate) prefix: PathBuf,
    pub(crate) staging: Option<PathBuf>,
    /// The directory of libraries, below the prefix.
    pub(crate) libraries: String,
    /// The directory of Python packages, below the prefix.
    pub(crate) python: PathBuf,
}

impl InstallPrefix {
    /// Reads `--prefix DIR` and `--destdir DIR`.
    pub(crate) fn parse(words: &[&str]) -> anyhow::Result<Self> {
        let (mut prefix, mut staging) = (PathBuf::from("/usr/local"), None);
        for pair in words.chunks(2) {
            match *pair {
                ["--prefix", directory] => prefix = directory.into(),
                ["--destdir", directory] => staging = Some(directory.into()),
                _ => bail!("--prefix DIR and --destdir DIR are known; {:?} is neither", pair[0]),
            }
        }
        ensure!(
            prefix.is_absolute(),
            "the prefix {} is not an absolute path, which programs need to find the library",
            prefix.display()
        );
        Ok(Self::new(prefix, staging))
    }

    fn new(prefix: PathBuf, staging: Option<PathBuf>) -> Self {
        let python = python_packages(&prefix);
        Self { prefix, staging, libraries: "lib".to_owned(), python }
    }

    /// Returns the path to write a file to.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        let prefix = match &self.staging {
            Some(staging) => staging.join(self.prefix.strip_prefix("/").unwrap_or(&self.prefix)),
            None => self.prefix.clone(),
        };
        prefix.join(below)
    }
}

/// Builds the program and the library, and installs all files.
pub(crate) fn run_with(prefix: &InstallPrefix) -> anyhow::Result<bool> {
    run(&mut build())?;
    let mut installed = InstalledFiles::below(prefix);
    let release = target().join("release");
    install_built(&mut installed, &release, &release.join("unisono"))?;
    installed.write_list()?;
    if prefix.staging.is_none() {
        let python = prefix.path(&prefix.python.to_string_lossy());
        println!(
            "for Python: import unisono; where python3 does not find it, PYTHONPATH={}",
            python.display()
        );
        println!("for programs in C: pkg-config --cflags --libs unisono");
    }
    Ok(true)
}

/// Returns the README's build command. A build of other packages would enable other features, so all
/// dependencies would be compiled again.
fn build() -> Command {
    let mut cargo = unisono_host_tests::program::cargo();
    cargo.args(["build", "--release", "--locked"]).current_dir(workspace());
    cargo
}

/// Installs all files, with the program and the library of `release`. `program_here` is the program for this
/// machine's processor: it writes the manual pages and the completions.
pub(crate) fn install_built(
    files: &mut InstalledFiles,
    release: &Path,
    program_here: &Path,
) -> anyhow::Result<()> {
    let prefix = files.prefix.clone();
    let version = env!("CARGO_PKG_VERSION");
    let read = |path: &Path| fs::read(path).with_context(|| format!("{} cannot be read", path.display()));
    files.install("bin/unisono", 0o755, &read(&release.join("unisono"))?)?;
    let (lib, library) = (&prefix.libraries, format!("libunisono.so.{version}"));
    files.install(&format!("{lib}/{library}"), 0o755, &read(&release.join("libunisono.so"))?)?;
    files.link(&format!("{lib}/{SONAME}"), &library)?;
    files.link(&format!("{lib}/libunisono.so"), SONAME)?;
    files.install("include/unisono.h", 0o644, &read(&workspace().join("abi/c/include/unisono.h"))?)?;
    let pkg_config = pkg_config_file(&prefix, version)?;
    files.install(&format!("{lib}/pkgconfig/unisono.pc"), 0o644, pkg_config.as_bytes())?;
    for file in files_of(&workspace().join("python/unisono"))? {
        let below = prefix.python.join("unisono").join(file.file_name().unwrap_or_default());
        files.install(&below.to_string_lossy(), 0o644, &read(&file)?)?;
    }
    for unit in UNITS {
        let text = unit_text(unit, &prefix.prefix)?;
        files.install(&format!("lib/systemd/system/{unit}"), 0o644, text.as_bytes())?;
    }
    for script in SLURM_SCRIPTS {
        let text = template(&format!("xtask/slurm/{script}.in"), &prefix.prefix)?;
        files.install(&format!("share/unisono/slurm/{script}"), 0o755, text.as_bytes())?;
    }
    let pages = tempfile::tempdir().context("a temporary directory")?;
    run(Command::new(program_here).arg("man").arg(pages.path()).stdout(std::process::Stdio::null()))?;
    for section in ["man1", "man5"] {
        for page in files_of(&pages.path().join(section))? {
            let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.install(&format!("share/man/{section}/{name}"), 0o644, &read(&page)?)?;
        }
    }
    let completions = [
        ("bash", "share/bash-completion/completions/unisono"),
        ("zsh", "share/zsh/site-functions/_unisono"),
        ("fish", "share/fish/vendor_completions.d/unisono.fish"),
    ];
    for (shell, file) in completions {
        let script = Command::new(program_here).args(["completions", shell]).output();
        files.install(file, 0o644, &script.context("the program does not start")?.stdout)?;
    }
    Ok(())
}

/// Returns the files of a directory, sorted.
fn files_of(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    Ok(files)
}

/// Returns the directory for Python packages, below the prefix: the first directory that `python3` searches
/// by default, or otherwise a directory that PYTHONPATH has to name.
fn python_packages(prefix: &Path) -> PathBuf {
    let print = "import site; print('\\n'.join([*site.getsitepackages(), site.getusersitepackages()]))";
    let looked = Command::new("python3").args(["-c", print]).output();
    let directories = looked.map(|looked| String::from_utf8_lossy(&looked.stdout).into_owned());
    let directories = directories.unwrap_or_default();
    let found = directories.lines().find_map(|line| Path::new(line).strip_prefix(prefix).ok());
    found.unwrap_or(Path::new("lib/python3/dist-packages")).to_owned()
}

/// The systemd units of the host's broker, of the guard of sockets, and of their sockets. A unit that
/// contains the program's path is a template.
const UNITS: [&str; 4] = [
    "unisono-events.service",
    "unisono-events.socket",
    "unisono-queue-guard.service",
    "unisono-queue-guard.socket",
];

/// The scripts for Slurm. docs/slurm.md explains how to configure Slurm for them.
const SLURM_SCRIPTS: [&str; 2] = ["prolog.sh", "epilog.sh"];

fn unit_text(unit: &str, prefix: &Path) -> anyhow::Result<String> {
    let file = format!("xtask/systemd/{unit}");
    template(&format!("{file}.in"), prefix).or_else(|_| template(&file, prefix))
}

/// Returns a file of the source tree, with the prefix filled in.
fn template(file: &str, prefix: &Path) -> anyhow::Result<String> {
    let text =
        fs::read_to_string(workspace().join(file)).with_context(|| format!("{file} cannot be read"))?;
    Ok(text.replace("@PREFIX@", &prefix.display().to_string()))
}

/// Returns the file for pkg-config. If the library is outside the system's directories, the dynamic linker
/// would not find it, so a program that is linked with it gets an rpath.
fn pkg_config_file(prefix: &InstallPrefix, version: &str) -> anyhow::Result<String> {
    let template = fs::read_to_string(workspace().join("abi/c/unisono.pc.in")).context("unisono.pc.in")?;
    let rpath = if prefix.prefix == Path::new("/usr") { "" } else { " -Wl,-rpath,${libdir}" };
    let text = template
        .replace("@PREFIX@", &prefix.prefix.display().to_string())
        .replace("@LIBRARIES@", &prefix.libraries)
        .replace("@RPATH@", rpath)
        .replace("@VERSION@", version);
    Ok(text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect())
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("{name} cannot be started"))?;
    ensure!(status.success(), "{name} failed ({status})");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_keeps_the_prefix_of_those_who_will_use_it() {
        let prefix =
            InstallPrefix::parse(&["--prefix", "/usr", "--destdir", "/tmp/stage"]).expect("both are known");
        assert_eq!(prefix.path("bin/unisono"), Path::new("/tmp/stage/usr/bin/unisono"));
        let text = pkg_config_file(&prefix, "1.2.3").expect("the template is there");
        assert!(text.starts_with("prefix=/usr\n") && text.contains("\nVersion: 1.2.3\n"), "{text}");
        assert!(!text.contains('@') && !text.contains("rpath"), "{text}");
        let own = InstallPrefix::parse(&["--prefix", "/opt/u"]).expect("known");
        let text = pkg_config_file(&own, "1.2.3").expect("the template is there");
        assert!(text.contains("\nLibs: -L${libdir} -lunisono -Wl,-rpath,${libdir}\n"), "{text}");
    }

    #[test]
    #[allow(clippy::print_stderr, reason = "a skipped test says why")]
    fn systemd_finds_nothing_wrong_with_the_units() {
        let prefix = tempfile::tempdir().expect("there is room");
        // systemd-analyze requires that the program of the unit exists
        fs::create_dir(prefix.path().join("bin")).expect("there is room");
        fs::copy("/bin/true", prefix.path().join("bin/unisono")).expect("there is room");
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no"]);
        for unit in UNITS {
            let text = unit_text(unit, prefix.path()).expect("the template is there");
            fs::write(prefix.path().join(unit), text).expect("there is room");
            verify.arg(prefix.path().join(unit));
        }
        let Ok(output) = verify.output() else {
            eprintln!("skipped: no systemd-analyze here: apt-get install systemd");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        let ours = said.lines().filter(|line| line.contains("unisono"));
        assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new(), "{said}");
        assert!(output.status.success(), "{said}");
    }

    #[test]
    #[allow(clippy::print_stderr, reason = "a skipped test says why")]
    fn systemd_finds_that_the_services_can_do_little() {
        let prefix = tempfile::tempdir().expect("there is room");
        for unit in UNITS {
            let text = unit_text(unit, prefix.path()).expect("the template is there");
            // with PrivateUsers, programs of all other users would appear to the broker as a single user
            assert!(!text.contains("PrivateUsers=yes"), "{text}");
            fs::write(prefix.path().join(unit), text).expect("there is room");
        }
        for unit in UNITS.iter().filter(|unit| unit.ends_with(".service")) {
            let mut security = Command::new("systemd-analyze");
            // the exposure, times ten
            security.args(["security", "--offline=true", "--no-pager", "--threshold=25"]);
            let Ok(output) = security.arg(prefix.path().join(unit)).output() else {
                eprintln!("skipped: no systemd-analyze here: apt-get install systemd");
                return;
            };
            let said = String::from_utf8_lossy(&output.stderr);
            if said.contains("nrecognized option") {
                eprintln!("skipped: this systemd-analyze reads no files; it is older than 250");
                return;
            }
            assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
        }
    }

    #[test]
    fn the_scripts_for_slurm_know_where_the_program_is() {
        for script in SLURM_SCRIPTS {
            let text =
                template(&format!("xtask/slurm/{script}.in"), Path::new("/opt/u")).expect("it is there");
            assert!(
                text.starts_with("#!/bin/sh\n") && text.contains("unisono=/opt/u/bin/unisono\n"),
                "{text}"
            );
            assert!(text.ends_with("exit 0\n") && !text.contains('@'), "{text}");
        }
    }

    #[test]
    fn a_relative_prefix_and_an_unknown_word_are_refused() {
        assert!(InstallPrefix::parse(&["--prefix", "here"]).is_err());
        assert!(InstallPrefix::parse(&["--perfix", "/usr"]).is_err());
        assert!(InstallPrefix::parse(&["--prefix"]).is_err());
    }
}
