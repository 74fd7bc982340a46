//! The studies of the papers are part of another program, `unisono-laboratory`. For such a study, `unisono
//! study` executes that program.

use crate::exit::Failure;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_linux::programs::on_path;
use unisono_study::library;

const PROGRAM: &str = "unisono-laboratory";
/// The way to get the program.
const BUILD: &str = "no package has it; in the source archive of this release, or in a clone of the repository, type: cargo build \
                     --release -p unisono-laboratory";

/// The topics with studies of the laboratory, and these studies.
pub const STUDIES: [(&str, &[&str]); 5] = [
    (
        "gang-map",
        &[
            "gang-map",
            "gang-simulated-balance",
            "gang-simulated-bursts",
            "gang-simulated-granularity",
            "gang-simulated-host",
            "gang-simulated-priorities",
        ],
    ),
    ("ghost-hosts", &["ghost-hosts"]),
    (
        "middleware",
        &[
            "middleware-control",
            "middleware-control-load",
            "middleware-deadlines",
            "middleware-download",
            "middleware-effort",
            "middleware-events",
            "middleware-remote",
            "middleware-requests",
            "middleware-requests-link",
            "middleware-rivals",
            "middleware-sizes",
            "middleware-streaming",
            "middleware-streaming-weights",
            "middleware-subscriptions",
            "middleware-web",
        ],
    ),
    ("monitor", &["monitor-barriers", "monitor-bursts"]),
    (
        "queue",
        &[
            "queue-added",
            "queue-borrow",
            "queue-delay",
            "queue-disk",
            "queue-isolation",
            "queue-latency",
            "queue-processor",
            "queue-shares",
            "queue-unshaped",
        ],
    ),
];

/// Returns the names of the topics and studies that only the laboratory has.
pub(super) fn names<'a>() -> impl Iterator<Item = &'a str> {
    let of = |(topic, ids): &(&'a str, &'a [&'a str])| std::iter::once(*topic).chain(ids.iter().copied());
    STUDIES.iter().filter(|_| !library::is_extended()).flat_map(of)
}

/// Returns the first of these names that needs the laboratory.
pub(super) fn first_named<'a>(mut wanted: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    wanted.find(|name| names().any(|known| known == *name))
}

/// Returns the beginning of the message of [`become_laboratory`] for a topic or a study. Of a topic, some
/// studies may be here.
pub(super) fn needed_for(name: &str) -> String {
    let all = library::studies().unwrap_or_default();
    let own: Vec<&str> = all.iter().filter(|file| file.is_named(name)).map(|file| file.id.as_str()).collect();
    match &own[..] {
        [] => format!("{name} is a study of"),
        own => format!("{name} (except {}, which is here) is a topic of", own.join(", ")),
    }
}

/// Replaces this process by the laboratory, with the same arguments; returns only if that fails. The error
/// message begins with `needed`, such as `queue-shares is a study of`.
pub(crate) fn become_laboratory(needed: &str) -> anyhow::Error {
    let own = std::env::current_exe().ok();
    let Some(program) = find(own.as_deref()) else {
        let text = format!("{needed} {PROGRAM}, this program with more studies of the papers; {BUILD}");
        return Failure::Host(text).into();
    };
    let failed: io::Error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
    anyhow::Error::new(failed).context(format!("cannot start {}", program.display()))
}

/// Returns the line of the list about the studies of the laboratory.
pub(super) fn further_studies() -> String {
    let count: usize = STUDIES.iter().map(|(_, ids)| ids.len()).sum();
    let own = std::env::current_exe().ok();
    if find(own.as_deref()).is_none() {
        return format!(
            "not here: {count} studies of {PROGRAM}, this program with more studies of the papers; {BUILD}"
        );
    }
    let topics: Vec<&str> = STUDIES.iter().map(|(topic, _)| *topic).collect();
    format!("{count} more are part of {PROGRAM}: unisono study {} --list", topics.join(" "))
}

/// Finds the laboratory's program beside this one, or on `PATH`.
fn find(own: Option<&Path>) -> Option<PathBuf> {
    let beside = own.map(|own| own.with_file_name(PROGRAM)).filter(|path| path.is_file());
    beside.or_else(|| on_path(PROGRAM))
}
