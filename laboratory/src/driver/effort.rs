//! Counts the lines that a program's author writes for each way to communicate, in the sources from which
//! this program was built.
//!
//! Blank lines, comment lines and tests do not count. The applications are written once over a
//! [`Conversation`](unisono_workload::conversation::Conversation), so the versions differ only in
//! their communication.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use unisono_measure::record::Figure;
use unisono_study::driver::{Context, Driver, DriverKind, NoResult, RunResult};

pub const EFFORT: DriverKind = DriverKind::new::<EffortDriver>("effort").simulated();

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

macro_rules! applications {
    ($($file:literal),*) => { [$(include_str!(concat!("../workload/service/", $file))),*] };
}

macro_rules! conversations {
    ($($file:literal),*) => {
        [$(include_str!(concat!("../../../crates/workload/src/conversation/", $file))),*]
    };
}

/// The applications of this crate, which all versions share with [`NULL_RPC`].
const APPLICATIONS: [&str; 6] =
    applications!["requests.rs", "events.rs", "download.rs", "control.rs", "streaming.rs", "frames.rs"];

/// Null RPC, and the part of a server that it shares with the application `requests`.
const NULL_RPC: [&str; 2] = conversations!["null_rpc.rs", "serving.rs"];

impl SourceVersion {
    /// Returns the source files of this version's communication.
    fn sources(self) -> Vec<&'static str> {
        match self {
            Self::Tcp => conversations!["tcp.rs", "socket.rs"].into(),
            Self::Udp => conversations!["udp.rs", "socket.rs"].into(),
            Self::Channel => conversations!["channel.rs"].into(),
            Self::Reply => conversations!["reply.rs"].into(),
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
            Figure::new("application_lines", of(&APPLICATIONS) + of(&NULL_RPC), "1"),
        ];
        Ok(RunResult { figures, ..RunResult::default() })
    }
}

/// Counts the code lines of a Rust or C source, without blank lines, comments and tests.
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
