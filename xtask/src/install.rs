//! `cargo xtask install`: the program, its libraries, header, package for Python, manual pages and
//! completions, below a prefix.
//!
//! ```text
//! bin/unisono                            share/man/man1/unisono*.1
//! include/unisono.h                      share/bash-completion/completions/unisono
//! lib/libunisono.so.0.1.0                share/zsh/site-functions/_unisono
//! lib/libunisono.so.0, libunisono.so     share/fish/vendor_completions.d/unisono.fish
//! lib/pkgconfig/unisono.pc               lib/python3*/*-packages/unisono/
//! lib/systemd/system/unisono-events.service, unisono-events.socket
//! share/unisono/slurm/prolog.sh, epilog.sh
//! ```

use anyhow::{Context, bail, ensure};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_host_tests::program::{PROGRAMS, target, workspace};

/// The library's name for the dynamic linker. Its number grows with every release that breaks programs.
const SONAME: &str = "libunisono.so.0";

/// The directory that files are written to, and their prefix when they are used.
pub(crate) struct InstallPrefix {
    prefix: PathBuf,
    staging: Option<PathBuf>,
}

impl InstallPrefix {
    /// Reads `--prefix DIR` and `--destdir DIR`.
    pub(crate) fn parse(words: &[&str]) -> anyhow::Result<Self> {
        let mut answer = Self { prefix: "/usr/local".into(), staging: None };
        for pair in words.chunks(2) {
            match *pair {
                ["--prefix", directory] => answer.prefix = directory.into(),
                ["--destdir", directory] => answer.staging = Some(directory.into()),
                _ => bail!("cargo xtask install [--prefix DIR] [--destdir DIR]; {:?} is neither", pair[0]),
            }
        }
        ensure!(
            answer.prefix.is_absolute(),
            "the prefix {} is not an absolute path, which programs need to find the library",
            answer.prefix.display()
        );
        Ok(answer)
    }

    fn path(&self, below: &str) -> PathBuf {
        let prefix = match &self.staging {
            Some(staging) => staging.join(self.prefix.strip_prefix("/").unwrap_or(&self.prefix)),
            None => self.prefix.clone(),
        };
        prefix.join(below)
    }

    /// Replaces a file in one step, so that a running program keeps the old file.
    fn install_file(&self, below: &str, mode: u32, bytes: &[u8]) -> anyhow::Result<()> {
        let path = self.path(below);
        let new = path.with_extension("unisono-new");
        let write = || -> std::io::Result<()> {
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
            fs::write(&new, bytes)?;
            fs::set_permissions(&new, PermissionsExt::from_mode(mode))?;
            fs::rename(&new, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
        Ok(())
    }

    fn link(&self, below: &str, to: &str) -> anyhow::Result<()> {
        let path = self.path(below);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot replace {}", path.display()));
            }
            _ => {}
        }
        symlink(to, &path).with_context(|| format!("cannot make {}", path.display()))?;
        println!("{} -> {to}", path.display());
        Ok(())
    }
}

/// Builds missing files, and installs all of them.
pub(crate) fn run_with(prefix: &InstallPrefix) -> anyhow::Result<bool> {
    let release = target().join("release");
    let built = |name: &str| fs::read(release.join(name)).with_context(|| format!("{name} cannot be read"));
    build(Some(SONAME))?;
    let named = built("libunisono.so");
    // programs in the source tree look for the library under its file's name
    build(None)?;
    let program = release.join("unisono");
    prefix.install_file("bin/unisono", 0o755, &built("unisono")?)?;
    let version = env!("CARGO_PKG_VERSION");
    let library = format!("libunisono.so.{version}");
    prefix.install_file(&format!("lib/{library}"), 0o755, &named?)?;
    prefix.link(&format!("lib/{SONAME}"), &library)?;
    prefix.link("lib/libunisono.so", SONAME)?;
    let header = workspace().join("abi/c/include/unisono.h");
    prefix.install_file(
        "include/unisono.h",
        0o644,
        &fs::read(&header).context("the header cannot be read")?,
    )?;
    prefix.install_file(
        "lib/pkgconfig/unisono.pc",
        0o644,
        description(&prefix.prefix, version)?.as_bytes(),
    )?;
    let python = python_packages(&prefix.prefix);
    for entry in fs::read_dir(workspace().join("python/unisono")).context("the Python package")? {
        let file = entry.context("the Python package")?.path();
        if let Some(name) = file.file_name().filter(|_| file.is_file()) {
            let below = python.join("unisono").join(name);
            prefix.install_file(
                &below.to_string_lossy(),
                0o644,
                &fs::read(&file).context("the Python package")?,
            )?;
        }
    }
    for unit in EVENT_UNITS {
        let text = unit_text(unit, &prefix.prefix)?;
        prefix.install_file(&format!("lib/systemd/system/{unit}"), 0o644, text.as_bytes())?;
    }
    for script in SLURM_SCRIPTS {
        let text = template(&format!("xtask/slurm/{script}.in"), &prefix.prefix)?;
        prefix.install_file(&format!("share/unisono/slurm/{script}"), 0o755, text.as_bytes())?;
    }
    let pages = prefix.path("share/man/man1");
    run(Command::new(&program).arg("man").arg(&pages))?;
    let completions = [
        ("bash", "share/bash-completion/completions/unisono"),
        ("zsh", "share/zsh/site-functions/_unisono"),
        ("fish", "share/fish/vendor_completions.d/unisono.fish"),
    ];
    for (shell, file) in completions {
        let script = Command::new(&program).args(["completions", shell]).output();
        prefix.install_file(file, 0o644, &script.context("the program does not start")?.stdout)?;
    }
    if prefix.staging.is_none() {
        let python = prefix.path(&python.to_string_lossy());
        println!(
            "for Python: import unisono; where python3 does not find it, PYTHONPATH={}",
            python.display()
        );
        println!(
            "for programs in C: pkg-config --cflags --libs unisono; as root, ldconfig lets them find the library"
        );
    }
    Ok(true)
}

/// Builds the program and the library; `soname` is the library's name for the dynamic linker. All packages
/// are built in one command: a single package would be built with fewer features, and all its dependencies
/// again.
fn build(soname: Option<&str>) -> anyhow::Result<()> {
    let mut cargo = unisono_host_tests::program::cargo();
    cargo.args(["build", "--release", "--locked"]).args(PROGRAMS).current_dir(workspace());
    cargo.env_remove("UNISONO_SONAME").envs(soname.map(|name| ("UNISONO_SONAME", name)));
    run(&mut cargo)
}

/// Installs into a new directory, and builds a C example against the installed files.
pub(crate) fn trial(directory: &Path) -> anyhow::Result<String> {
    let prefix = InstallPrefix { prefix: directory.to_owned(), staging: None };
    run_with(&prefix)?;
    let (library, heat) = (prefix.path("lib"), prefix.path("heat"));
    let example = workspace().join("examples/c/heat.c");
    let include = format!("-I{}", prefix.path("include").display());
    let (search, rpath) = (format!("-L{}", library.display()), format!("-Wl,-rpath,{}", library.display()));
    run(
        Command::new("gcc").args(["-std=c11", "-O2", &include, "-o"]).arg(&heat).arg(&example).args([
            &search,
            "-lunisono",
            "-lm",
            &rpath,
        ]),
    )?;
    let mut job = Command::new(prefix.path("bin/unisono"));
    run(job.args(["run", "-n", "2"]).arg(&heat).args(["--size", "32", "--steps", "10"]))?;
    let pages = fs::read_dir(prefix.path("share/man/man1")).context("there are no manual pages")?.count();
    ensure!(pages > 20, "only {pages} manual pages");
    // the linker wrote the library's own name into the example
    let needed = fs::read(&heat).context("the example cannot be read")?;
    let holds = needed.windows(SONAME.len()).any(|window| window == SONAME.as_bytes());
    ensure!(holds, "the example does not ask for {SONAME}");
    let python = Command::new("python3")
        .args(["-c", "import unisono; print(unisono.library_version())"])
        .env("PYTHONPATH", directory.join(python_packages(directory)))
        .env_remove("UNISONO_LIBRARY")
        .output();
    let python = match python {
        Ok(output) => {
            let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            ensure!(version == env!("CARGO_PKG_VERSION"), "the package for Python does not work: {output:?}");
            "so does one in Python"
        }
        Err(_) => "there is no python3 to try one in Python",
    };
    Ok(format!(
        "a program in C runs with the installed library, and {python}; {pages} manual pages"
    ))
}

/// The directory for Python packages, below the prefix: the first that `python3` searches by default, or else
/// a directory that PYTHONPATH has to name.
fn python_packages(prefix: &Path) -> PathBuf {
    let print = "import site; print('\\n'.join(site.getsitepackages()))";
    let looked = Command::new("python3").args(["-c", print]).output();
    let directories = looked.map(|looked| String::from_utf8_lossy(&looked.stdout).into_owned());
    let directories = directories.unwrap_or_default();
    let found = directories.lines().find_map(|line| Path::new(line).strip_prefix(prefix).ok());
    found.unwrap_or(Path::new("lib/python3/dist-packages")).to_owned()
}

/// The systemd units of the host's broker and its socket. A unit that contains the program's path is a
/// template.
const EVENT_UNITS: [&str; 2] = ["unisono-events.service", "unisono-events.socket"];

/// docs/slurm.md explains how to configure Slurm for them.
const SLURM_SCRIPTS: [&str; 2] = ["prolog.sh", "epilog.sh"];

fn unit_text(unit: &str, prefix: &Path) -> anyhow::Result<String> {
    let file = format!("xtask/systemd/{unit}");
    template(&format!("{file}.in"), prefix).or_else(|_| template(&file, prefix))
}

/// A file of the source tree, with the prefix filled in.
fn template(file: &str, prefix: &Path) -> anyhow::Result<String> {
    let text =
        fs::read_to_string(workspace().join(file)).with_context(|| format!("{file} cannot be read"))?;
    Ok(text.replace("@PREFIX@", &prefix.display().to_string()))
}

fn description(prefix: &Path, version: &str) -> anyhow::Result<String> {
    let template = fs::read_to_string(workspace().join("abi/c/unisono.pc.in")).context("unisono.pc.in")?;
    let text = template.replace("@PREFIX@", &prefix.display().to_string()).replace("@VERSION@", version);
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
        let text = description(&prefix.prefix, "1.2.3").expect("the template is there");
        assert!(text.starts_with("prefix=/usr\n") && text.contains("\nVersion: 1.2.3\n"), "{text}");
        assert!(!text.contains('@'), "{text}");
    }

    #[test]
    #[allow(clippy::print_stderr, reason = "a skipped test says why")]
    fn systemd_finds_nothing_wrong_with_the_units_of_the_event_broker() {
        let prefix = tempfile::tempdir().expect("there is room");
        // systemd requires that the program exists
        fs::create_dir(prefix.path().join("bin")).expect("there is room");
        fs::copy("/bin/true", prefix.path().join("bin/unisono")).expect("there is room");
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no"]);
        for unit in EVENT_UNITS {
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
    fn systemd_finds_that_the_broker_of_events_can_do_little() {
        let prefix = tempfile::tempdir().expect("there is room");
        for unit in EVENT_UNITS {
            let text = unit_text(unit, prefix.path()).expect("the template is there");
            // programs of other users would all be one user
            assert!(!text.contains("PrivateUsers=yes"), "{text}");
            fs::write(prefix.path().join(unit), text).expect("there is room");
        }
        let mut security = Command::new("systemd-analyze");
        // the exposure, times ten
        security.args(["security", "--offline=true", "--no-pager", "--threshold=25"]);
        let Ok(output) = security.arg(prefix.path().join("unisono-events.service")).output() else {
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
