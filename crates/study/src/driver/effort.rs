//! The lines that a program's author writes for each way to communicate, counted in the sources that this
//! program was built from.
//!
//! Blank lines, comment lines and tests do not count. The applications are written once over
//! [`Conversation`](crate::workload::service::Conversation), so the versions differ only in their
//! communication.

use super::{Context, Driver, DriverKind, NoResult, RunResult};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use unisono_measure::record::Figure;

pub const EFFORT: DriverKind = DriverKind { is_simulated: true, ..DriverKind::new::<EffortDriver>("effort") };

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EffortDriver {
    version: SourceVersion,
}

/// A version of the applications, by its way to communicate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SourceVersion {
    #[default]
    Tcp,
    Udp,
    Channel,
    Reply,
}

macro_rules! sources {
    ($($file:literal),*) => { [$(include_str!(concat!("../workload/service/", $file))),*] };
}

/// The applications, which all versions share.
const APPLICATIONS: [&str; 8] = sources![
    "null_rpc.rs",
    "requests.rs",
    "serving.rs",
    "events.rs",
    "download.rs",
    "control.rs",
    "streaming.rs",
    "frames.rs"
];

impl SourceVersion {
    /// The source files of this version's communication.
    fn sources(self) -> Vec<&'static str> {
        match self {
            Self::Tcp => sources!["tcp.rs", "socket.rs"].into(),
            Self::Udp => sources!["udp.rs", "socket.rs"].into(),
            Self::Channel => sources!["channel.rs"].into(),
            Self::Reply => sources!["reply.rs"].into(),
        }
    }
}

impl Driver for EffortDriver {
    fn estimated_overhead(&self, _: f64) -> Duration {
        Duration::ZERO
    }

    fn run(&self, _: Context, _: f64, _: u64) -> Result<RunResult, NoResult> {
        let of = |sources: &[&str]| sources.iter().map(|text| lines(text)).sum::<usize>() as f64;
        let figures = vec![
            Figure::new("communication_lines", of(&self.version.sources()), "1"),
            Figure::new("application_lines", of(&APPLICATIONS), "1"),
        ];
        Ok(RunResult { figures, ..RunResult::default() })
    }
}

/// Number of code lines of a Rust or C source, without blank lines, comments and tests.
fn lines(source: &str) -> usize {
    let is_comment =
        |line: &str| ["//", "/*", "* ", "*/"].iter().any(|mark| line.starts_with(mark)) || line == "*";
    let program = source.lines().map(str::trim).take_while(|line| *line != "#[cfg(test)]");
    program.filter(|line| !line.is_empty() && !is_comment(line)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_tests_do_not_count() {
        assert_eq!(
            lines("//! A text.\n\nfn f() {\n    // why\n    g(); // how\n}\n\n#[cfg(test)]\nmod tests {}\n"),
            3
        );
        assert_eq!(lines("/*\n * A text.\n */\nint f(void)\n{\n\t*p = 1;\n}\n"), 4);
    }
}
