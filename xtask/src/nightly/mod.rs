//! `cargo xtask nightly`: the tests that take many minutes, in parts.
//!
//! ```text
//!                    every part     touched by the change     of the others, a tenth that the day selects
//!   nightly              x
//!   nightly --changed                        x                               x
//! ```
//! Each part lists the paths whose change makes it run. The run ends with a list of the parts that were left
//! out.

mod changes;

use crate::packages::{self, Install};
use crate::step::{Cases, StepVerdict};
use crate::summary::StepSummary;
use crate::{install, libraries, lint, package, test, vm};
use anyhow::{Context, bail, ensure};
use changes::ChangedFiles;
use std::time::{Duration, Instant, SystemTime};
use unisono_host_tests::program::workspace;

/// If `--changed` runs every day, every part runs at least once in this number of days.
const DAYS: u64 = 10;

struct NightlyPart {
    name: &'static str,
    /// The prefixes of the paths whose change may break it.
    paths: &'static [&'static str],
    work: PartWork,
    /// The estimated time on two processors in a clean checkout; not measured.
    minutes: u64,
}

enum PartWork {
    /// The models of a crate's protocols (loom).
    Model(&'static str),
    /// The tests of `unisono-sync` and `unisono-barrier`, under Miri.
    Miri,
    /// Modules of host tests on a newer kernel, in a virtual machine.
    Vm(&'static [&'static str]),
    /// The unit and command-line tests of the kernel's readers, on several kernels.
    Kernels,
    /// Tests of a test program, with all cases. A word selects the tests whose names contain it.
    AllCases { program: &'static str, words: &'static [&'static str] },
    /// The property tests with many cases.
    PropertyCases,
    /// Licences, sources and advisories of dependencies.
    Dependencies,
    /// An installation of the README's build in a new directory, and a program built against it.
    Installation,
    /// The archives of the libraries, and for each library a project outside the workspace.
    Libraries,
    /// The packages for users, each installed in a fresh root directory.
    Packages,
    /// Two builds of the packages, compared byte for byte.
    PackagesEqual,
    /// The sources, compiled for the other targets of packages.
    Targets,
}

const fn part(
    name: &'static str,
    minutes: u64,
    paths: &'static [&'static str],
    work: PartWork,
) -> NightlyPart {
    NightlyPart { name, paths, work, minutes }
}

const fn host(words: &'static [&'static str]) -> PartWork {
    PartWork::AllCases { program: unisono_host_tests::program::HOST_TESTS, words }
}

/// A new part is added at the end, because the day selects parts by their position.
const PARTS: &[NightlyPart] = &[
    part("model-barrier", 3, &["crates/barrier/", "crates/sync/"], PartWork::Model("barrier")),
    part(
        "model-rma",
        3,
        &["crates/rma/src/path/", "crates/rma/tests/loom", "crates/sync/"],
        PartWork::Model("rma"),
    ),
    part(
        "model-events-wire",
        3,
        &["crates/events-wire/src/memory/", "crates/events-wire/tests/loom", "crates/sync/"],
        PartWork::Model("events-wire"),
    ),
    part("miri", 5, &["crates/barrier/src/", "crates/sync/src/"], PartWork::Miri),
    part(
        "vm-queue",
        2,
        &["crates/enforce/", "crates/fairqueue/src/", "crates/host-tests/tests/queue_bpf", "xtask/src/vm/"],
        PartWork::Vm(&["queue_bpf"]),
    ),
    part(
        "vm-gang",
        6,
        &[
            "crates/gang/",
            "crates/host-tests/tests/mechanism",
            "crates/host-tests/tests/sched_ext",
            "xtask/src/vm/",
        ],
        PartWork::Vm(&["mechanism", "sched_ext"]),
    ),
    part("dependencies", 3, &["Cargo.lock", "Cargo.toml", "deny.toml"], PartWork::Dependencies),
    part(
        "advise",
        30,
        &["crates/advise/", "crates/fit/", "crates/host-tests/tests/advise"],
        host(&["advise_answers::", "advise_reports::"]),
    ),
    part(
        "events",
        5,
        &["crates/events-wire/src/memory/", "crates/host-tests/tests/events_memory"],
        host(&["events_memory::"]),
    ),
    part(
        "identities",
        5,
        &["crates/broker/src/", "crates/broker/tests/identities", "crates/eventchannel/src/"],
        PartWork::AllCases { program: "broker", words: &["identities::"] },
    ),
    part(
        "joined",
        15,
        &["crates/join/", "crates/host-tests/tests/events_joined"],
        host(&["events_joined::"]),
    ),
    part(
        "rumqttc",
        5,
        &["crates/broker/src/mqtt/", "crates/broker/peers/", "crates/host-tests/tests/events_rumqttc"],
        host(&["events_rumqttc::"]),
    ),
    part(
        "soak",
        11,
        &["crates/broker/src/log/", "crates/host-tests/tests/events_soak"],
        host(&["events_soak::"]),
    ),
    part(
        "mpi",
        15,
        &["abi/mpi/", "abi/c/src/mpi/", "crates/host-tests/tests/mpi"],
        host(&[
            "mpi::",
            "mpi_end::",
            "mpi_hosts::",
            "mpi_private::",
            "mpi_progress::",
            "mpi_start::",
            "mpi_stock::",
            "mpi_switches::",
            "mpi_waits::",
        ]),
    ),
    part(
        "mpi-random",
        20,
        &["abi/c/src/mpi/messages/", "crates/rma/src/path/message/", "crates/host-tests/tests/mpi_random"],
        host(&["mpi_random::"]),
    ),
    part(
        "mpi-pypi",
        15,
        &[
            "abi/mpi/",
            "crates/host-tests/tests/mpi_agreement",
            "crates/host-tests/tests/mpi_matrix",
            "crates/host-tests/tests/mpi_bridges",
        ],
        host(&["mpi_agreement::", "mpi_matrix::", "mpi_bridges::"]),
    ),
    part(
        "queues",
        5,
        &[
            "crates/enforce/src/",
            "crates/host-tests/tests/queue_forwarded",
            "crates/host-tests/tests/queue_in",
            "crates/host-tests/tests/queue_lifecycle",
        ],
        host(&["queue_forwarded::sixteen_local_connections", "queue_in::", "queue_lifecycle::"]),
    ),
    part("browser", 3, &["crates/report/", "crates/host-tests/tests/report"], host(&["report::"])),
    part(
        "laboratory",
        3,
        &[
            "laboratory/",
            "crates/host-tests/tests/middleware_study",
            "crates/host-tests/tests/monitor",
            "crates/host-tests/tests/queue_study",
        ],
        host(&["middleware_study::", "monitor::", "queue_study::"]),
    ),
    part("installation", 9, &["abi/c/include/", "xtask/src/install/"], PartWork::Installation),
    part(
        "libraries",
        4,
        &[
            "crates/barrier/README.md",
            "crates/barrier/Cargo.toml",
            "crates/btin/README.md",
            "crates/btin/Cargo.toml",
            "crates/eventchannel/README.md",
            "crates/eventchannel/Cargo.toml",
            "crates/events-client/README.md",
            "crates/events-client/Cargo.toml",
            "crates/events-wire/README.md",
            "crates/events-wire/Cargo.toml",
            "crates/fairqueue/README.md",
            "crates/fairqueue/Cargo.toml",
            "crates/rma/README.md",
            "crates/rma/Cargo.toml",
            "crates/sync/README.md",
            "crates/sync/Cargo.toml",
            "xtask/src/libraries.rs",
        ],
        PartWork::Libraries,
    ),
    part(
        "packages",
        30,
        &["packaging/", "xtask/src/package/", "xtask/src/install/", "python/unisono/_library.py"],
        PartWork::Packages,
    ),
    part(
        "packages-equal",
        40,
        &["xtask/src/package/toolchain", "packaging/wheel.py", "abi/c/build.rs", "abi/mpi/preload/build.rs"],
        PartWork::PackagesEqual,
    ),
    part(
        "fit-runtimes",
        10,
        &["crates/fit/", "crates/host-tests/tests/fit"],
        host(&["fit_runtimes::"]),
    ),
    part(
        "cases",
        60,
        &["crates/btin/src/", "crates/eventchannel/src/", "crates/fairqueue/src/"],
        PartWork::PropertyCases,
    ),
    part(
        "gangs",
        3,
        &["crates/gang/src/", "crates/host-tests/tests/gang", "crates/host-tests/tests/mechanism"],
        host(&[
            "gang::a_gang_that_",
            "gang_daemon::slices_grow",
            "gang_rules::",
            "gang_told::equal_gangs",
            "::freeze_gangs_that_fit",
            "::real_time_gangs_that_fit",
        ]),
    ),
    part(
        "targets",
        15,
        &["crates/linux/src/", "crates/intrinsics/", "crates/sync/src/", "crates/rma/src/", "abi/"],
        PartWork::Targets,
    ),
    part(
        "kernels",
        30,
        &["crates/linux/src/", "crates/advise/src/", "crates/fit/src/", "xtask/src/vm/"],
        PartWork::Kernels,
    ),
    part(
        "subscribers",
        2,
        &["crates/enforce/src/", "crates/fairqueue/src/", "crates/host-tests/tests/queue_subscribers"],
        host(&["queue_subscribers::"]),
    ),
];

/// Returns the names of all parts, for messages.
pub(crate) fn part_names() -> String {
    PARTS.iter().map(|part| part.name).collect::<Vec<_>>().join(", ")
}

/// The options of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NightlyOptions<'a> {
    /// Run only the parts that the change touches, and a tenth of the others.
    changed: bool,
    tenth: Option<u64>,
    /// The time limit: a part does not start if its estimate exceeds the time that is left.
    minutes: Option<u64>,
    /// The parts to run; if empty, all.
    names: Vec<&'a str>,
}

impl<'a> NightlyOptions<'a> {
    /// Reads `[--changed [--tenth N]] [--minutes N] [PART...]`.
    pub(crate) fn parse(words: &[&'a str]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let text = words.next().with_context(|| format!("{word} needs a number"))?;
                text.parse::<u64>().with_context(|| format!("{word} {text}"))
            };
            match *word {
                "--changed" => options.changed = true,
                "--tenth" => options.tenth = Some(number()?),
                "--minutes" => options.minutes = Some(number()?),
                name if PARTS.iter().any(|part| part.name == name) => options.names.push(name),
                name => bail!("there is no part {name}; there are {}", part_names()),
            }
        }
        ensure!(options.changed || options.tenth.is_none(), "--tenth goes with --changed");
        ensure!(!options.changed || options.names.is_empty(), "--changed selects the parts by itself");
        Ok(options)
    }
}

/// Why a part runs, or why it does not.
#[derive(Debug, PartialEq, Eq)]
enum PartSelection {
    Asked,
    /// The change touches this file, the first file that matches a path of the part.
    Touched(String),
    Turn,
    LeftOut(String),
}

/// Decides whether the part at this position runs. `files` are the files of the change; `None`: they are not
/// known, so every part may be touched.
fn choose(at: usize, part: &NightlyPart, files: Option<&[String]>, tenth: u64) -> PartSelection {
    let Some(files) = files else { return PartSelection::Touched("(unknown files)".to_owned()) };
    let touches = |file: &&String| part.paths.iter().any(|path| file.starts_with(path));
    if let Some(file) = files.iter().find(touches) {
        PartSelection::Touched(file.clone())
    } else if at as u64 % DAYS == tenth % DAYS {
        PartSelection::Turn
    } else {
        PartSelection::LeftOut(format!(
            "the change does not touch it, and its turn is --tenth {}, not {}",
            at as u64 % DAYS,
            tenth % DAYS
        ))
    }
}

/// Returns the number of days since 1970-01-01.
fn today() -> u64 {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    seconds / (24 * 60 * 60)
}

/// Runs the parts that the options select. Returns whether all passed.
pub(crate) fn run(options: &NightlyOptions) -> anyhow::Result<bool> {
    let start = Instant::now();
    let mut chosen: Vec<(&NightlyPart, PartSelection)> = if options.changed {
        let asked = std::env::var(changes::BASE).ok().filter(|name| !name.is_empty());
        let changes = ChangedFiles::find(&workspace(), asked.as_deref())?;
        match &changes {
            Some(ChangedFiles { base, files }) => println!("{} files changed since {base}", files.len()),
            None => println!("there is no commit to compare with: every part may be touched"),
        }
        let files = changes.as_ref().map(|changes| &changes.files[..]);
        let tenth = options.tenth.unwrap_or_else(today);
        PARTS.iter().enumerate().map(|(at, part)| (part, choose(at, part, files, tenth))).collect()
    } else {
        let asked = |part: &&NightlyPart| options.names.is_empty() || options.names.contains(&part.name);
        PARTS.iter().filter(asked).map(|part| (part, PartSelection::Asked)).collect()
    };
    // if the time is limited, parts that the change touches go first, and among these the short ones first
    chosen.sort_by_key(|(part, choice)| (matches!(choice, PartSelection::Turn), part.minutes));
    let cases = if options.changed { Cases::Some } else { Cases::All };
    let mut summary = StepSummary::default();
    let mut left_out = Vec::new();
    for (part, choice) in chosen {
        let ends = start.elapsed() + Duration::from_secs(part.minutes * 60);
        let choice = match options.minutes {
            Some(minutes)
                if ends > Duration::from_secs(minutes * 60)
                    && !matches!(choice, PartSelection::LeftOut(_)) =>
            {
                PartSelection::LeftOut(format!(
                    "about {} min more would be too many: --minutes {minutes}",
                    part.minutes
                ))
            }
            _ => choice,
        };
        match choice {
            PartSelection::LeftOut(why) => left_out.push(format!("{}: {why}", part.name)),
            PartSelection::Asked => summary.step(part.name, || part.run(cases)),
            PartSelection::Turn => summary.step(&format!("{} (its turn)", part.name), || part.run(cases)),
            PartSelection::Touched(file) => {
                summary.step(&format!("{} (touched: {file})", part.name), || part.run(cases));
            }
        }
    }
    if !left_out.is_empty() {
        let skipped = StepVerdict { skipped: left_out, ..StepVerdict::default() };
        summary.step("parts left out", || skipped);
    }
    Ok(summary.conclude())
}

impl NightlyPart {
    /// Runs the part. `cases` applies to the virtual machine only; other parts run all their cases, because
    /// `cargo xtask test` already runs some.
    fn run(&self, cases: Cases) -> StepVerdict {
        match self.work {
            PartWork::Model(name) => test::model(name),
            PartWork::Miri => test::miri(),
            PartWork::Vm(modules) => with_machines(|| vm::step(modules, &[], cases)),
            PartWork::Kernels => with_machines(vm::kernels_step),
            PartWork::AllCases { program, words } => test::all_cases(program, words),
            PartWork::PropertyCases => test::property_cases(),
            PartWork::Dependencies => lint::dependencies(Install::IfAllowed),
            PartWork::Installation => StepVerdict::from_result(installation()),
            PartWork::Libraries => libraries::step(),
            PartWork::Packages => package::trial(),
            PartWork::PackagesEqual => package::again(),
            PartWork::Targets => package::check_targets(),
        }
    }
}

/// Runs a step that needs virtual machines, after the packages for them are installed.
fn with_machines(step: impl FnOnce() -> StepVerdict) -> StepVerdict {
    let packages = packages::provide_for_machines(Install::IfAllowed);
    if packages.skipped.is_empty() { step() } else { packages }
}

fn installation() -> anyhow::Result<String> {
    let scratch = tempfile::tempdir().context("a temporary directory")?;
    install::trial(&scratch.path().join("installed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn choices(files: Option<&[&str]>, tenth: u64) -> Vec<(&'static str, PartSelection)> {
        let files: Option<Vec<String>> = files.map(|files| files.iter().map(ToString::to_string).collect());
        let choose =
            |(at, part): (usize, &NightlyPart)| (part.name, choose(at, part, files.as_deref(), tenth));
        PARTS.iter().enumerate().map(choose).collect()
    }

    #[test]
    fn a_change_selects_the_parts_that_name_its_path() {
        let file = "crates/gang/src/lib.rs";
        let touched = choices(Some(&["README.md", file]), 0);
        let touched: Vec<_> =
            touched.iter().filter(|(_, choice)| *choice == PartSelection::Touched(file.to_owned())).collect();
        assert!(matches!(touched[..], [("vm-gang", _), ("gangs", _)]), "{touched:?}");
    }

    #[test]
    fn in_ten_days_every_part_has_its_turn_once() {
        let turns: Vec<_> = (20_000..20_000 + DAYS)
            .flat_map(|day| choices(Some(&[]), day))
            .filter(|(_, choice)| *choice == PartSelection::Turn)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(turns.len(), PARTS.len());
        assert_eq!(turns.iter().collect::<BTreeSet<_>>().len(), PARTS.len());
    }

    #[test]
    fn a_part_that_does_not_run_says_why() {
        for (name, choice) in choices(Some(&[]), 3) {
            let says = |why: &str| why.contains("does not touch it") && why.ends_with(", not 3");
            assert!(
                choice == PartSelection::Turn || matches!(&choice, PartSelection::LeftOut(why) if says(why)),
                "{name}"
            );
        }
    }

    #[test]
    fn if_the_files_are_not_known_every_part_is_touched() {
        assert!(choices(None, 0).iter().all(|(_, choice)| matches!(choice, PartSelection::Touched(_))));
    }

    #[test]
    fn a_path_of_a_part_is_in_the_tree() {
        for path in PARTS.iter().flat_map(|part| part.paths) {
            let (folder, beginning) = path.rsplit_once('/').unwrap_or((".", path));
            let entries = std::fs::read_dir(workspace().join(folder)).map(Iterator::flatten);
            let there = entries.is_ok_and(|mut entries| {
                entries.any(|entry| entry.file_name().to_string_lossy().starts_with(beginning))
            });
            assert!(there, "{path}");
        }
    }

    #[test]
    fn a_command_line_names_parts_or_asks_for_the_change() {
        let parse = NightlyOptions::parse;
        assert_eq!(parse(&["miri"]).expect("a part").names, ["miri"]);
        let options = parse(&["--changed", "--tenth", "3", "--minutes", "6"]).expect("options");
        assert_eq!((options.changed, options.tenth, options.minutes), (true, Some(3), Some(6)));
        for wrong in [&["nothing"][..], &["--tenth", "3"], &["--changed", "miri"], &["--minutes"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
