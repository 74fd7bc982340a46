//! Developer commands: `cargo xtask test`, `cargo xtask lint`, ...
//!
//! Each command is a list of steps. Each step runs under a watchdog and passes, fails, or is skipped with the
//! reason. The last line counts tests (or checks): `N passed, N failed, N skipped`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command line program speaks")]

mod fuzz;
mod install;
mod libraries;
mod lint;
mod nightly;
mod package;
mod packages;
mod release;
mod smoke;
mod step;
mod summary;
mod test;
mod test_output;
mod vm;

use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask COMMAND [OPTIONS]

  test [--no-install]   install the Debian packages that tests need (only as root, by apt-get), then run
                        the tests that take minutes: unit, property and doc tests, command line
                        transcripts, host tests. A test with many cases (kills at many moments, programs
                        on many ranks) tries some of them
  nightly [--minutes N] [PART...]
                        run the tests that take longer, or the named parts of them: models of the
                        protocols (loom), Miri, tests in a virtual machine, every case of the host tests,
                        MPIs from PyPI, programs of others, licences, packages in fresh Debian roots. No
                        part starts that would end after N minutes
  nightly --changed [--tenth N] [--minutes N]
                        the parts that the change touches, and a tenth of the others: the N-th, or that of
                        the day. The change: since the commit that UNISONO_CI_BASE names, since the last
                        commit on origin's main branch, or since the first parent. The end lists the parts
                        that are left out
  lint                  formatting, clippy, cargo deny where it is installed, and this project's own checks
  lint --own            this project's own checks alone: seconds
  smoke                 run `unisono study` with its shortest setting; check the records and the report
  libraries             pack the crates that others may use alone (cargo package), and run the example of
                        each library's README in a project outside the workspace
  fuzz [SECONDS [NAME...]]
                        run every fuzz target, or those named, for 60 s or SECONDS each, guided by
                        coverage. Targets: packet, stream, handshake (TCP transport); frame, broker, mqtt,
                        event_stream (the broker's clients); filter (filters of subscribers); ethernet (frames
                        that a queue receives); nbd (a served disk's clients); request (the gang daemon's
                        clients); topology, tree, ibnetdiscover,
                        graphml, dot, lldp, containerlab, trace, policy, rules (files); capture (packets). Needs g++ for
                        libFuzzer and, once, crates.io
  vm [--long] [NAME...] boot a virtual machine with the kernel of Debian unstable, and run there the tests
                        that need a newer kernel than most machines have (fair queuing as a BPF queueing
                        discipline, gangs by sched_ext: some; --long: all), or those named. Needs
                        qemu-system-x86 and, once, apt's mirror
  vm --kernels [SUITE...] [NAME...]
                        run the unit and command-line tests of the crates that read the kernel's files and
                        records on the kernels of Debian bookworm, bookworm-backports and unstable, or of
                        the named suites; all of them, or those whose names contain a NAME
  install [--prefix DIR] [--destdir DIR]
                        build and install, below /usr/local or DIR: the program, the preload, libunisono
                        with its header and pkg-config file, manual pages, completions. --destdir puts all of
                        it below another directory, for packages. After `cargo build --release` nothing is
                        compiled again
  uninstall [--prefix DIR] [--destdir DIR]
                        remove what `install` wrote there, and directories that it made and that are empty
  package [--only KIND] [--target TARGET] [--out DIR]
                        make the packages for users (wheel, deb, rpm, tarball, container) in dist/ or DIR, for
                        glibc 2.28 or newer, with checksums, licences and SBOM; for x86-64 and, if Rust's
                        standard library for it is installed, aarch64; with --target, for that target of Rust
                        alone (aarch64-unknown-linux-gnu). Needs python3-venv, rpm and, once, PyPI
  release --check       whether this commit can be released: version, changelog, archives of the crates, and
                        packages in dist/ that are of this commit. Changes nothing
  packages [--install]  list the packages that `test` and `package` would use, and why; or install those of `test`

Exit codes: 0 all passed or skipped; 1 something failed; 2 bad usage.
";

const HELP_OPTIONS: [&str; 2] = ["--help", "-h"];

fn main() -> ExitCode {
    if vm::is_guest() {
        vm::run_guest();
        return ExitCode::FAILURE; // reached only if the machine could not be switched off
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let [command, options @ ..] = &words[..]
        && options.iter().any(|word| HELP_OPTIONS.contains(word))
        && let Some(usage) = usage_of(command)
    {
        print!("{usage}");
        return ExitCode::SUCCESS;
    }
    let done = match words[..] {
        ["test"] => test::run(packages::Install::IfAllowed),
        ["test", "--no-install"] => test::run(packages::Install::Never),
        ["nightly", ref words @ ..] => match nightly::NightlyOptions::parse(words) {
            Ok(options) => nightly::run(&options),
            Err(error) => return usage_error(&error),
        },
        ["lint"] => lint::run(),
        ["lint", "--own"] => lint::own(),
        ["smoke"] => smoke::run(),
        ["libraries"] => libraries::run(),
        ["fuzz"] => fuzz::run(60, &[]),
        ["fuzz", seconds, ref only @ ..] if seconds.parse::<u64>().is_ok() => {
            fuzz::run(seconds.parse().unwrap_or(60), only)
        }
        ["vm", "--kernels", ref words @ ..] => vm::run_kernels(words),
        ["vm", "--long", ref only @ ..] => vm::run(only, step::Cases::All),
        ["vm", ref only @ ..] => vm::run(only, step::Cases::Some),
        [verb @ ("install" | "uninstall"), ref words @ ..] => match install::InstallPrefix::parse(words) {
            Ok(prefix) if verb == "install" => install::run_with(&prefix),
            Ok(prefix) => install::uninstall(&prefix),
            Err(error) => return usage_error(&error),
        },
        ["package", ref words @ ..] => match package::PackageOptions::parse(words) {
            Ok(options) => package::run(&options),
            Err(error) => return usage_error(&error),
        },
        ["release", "--check"] => release::check(),
        ["packages"] => {
            packages::print();
            Ok(true)
        }
        ["packages", "--install"] => {
            let mut summary = summary::StepSummary::default();
            summary.step("packages", || packages::provide(packages::Install::IfAllowed));
            Ok(summary.conclude())
        }
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(true)
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the part of [`HELP`] that concerns a command, or `None` if there is no such command.
fn usage_of(command: &str) -> Option<String> {
    let mut usage = String::new();
    let mut concerns = false;
    for line in HELP.lines() {
        match line.strip_prefix("  ") {
            Some(further) if further.starts_with(' ') => {}
            Some(first) => concerns = first.split(' ').next() == Some(command),
            None => concerns = false,
        }
        if concerns {
            usage += &format!("{line}\n");
        }
    }
    if usage.is_empty() {
        return None;
    }
    let parts = match command {
        "nightly" => format!("\nParts: {}\n", nightly::part_names()),
        _ => String::new(),
    };
    Some(format!("Usage: cargo xtask COMMAND [OPTIONS]\n\n{usage}{parts}"))
}

fn usage_error(error: &anyhow::Error) -> ExitCode {
    eprintln!("xtask: {error:#}");
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_usage_of_its_own() {
        for (command, has, lacks) in [
            ("vm", "vm --kernels [SUITE...]", "nightly"),
            ("package", "--only KIND", "packages [--install]"),
            ("packages", "packages [--install]", "--only KIND"),
            ("nightly", "\nParts: ", "release --check"),
            ("uninstall", "remove what `install` wrote", "pkg-config"),
        ] {
            let usage = usage_of(command).expect("a command");
            assert!(usage.contains(has) && !usage.contains(lacks), "{usage}");
        }
        for none in ["unknown", "", "Exit", "the"] {
            assert_eq!(usage_of(none), None, "{none}");
        }
    }
}
