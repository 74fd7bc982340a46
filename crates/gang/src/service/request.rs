//! Requests to the daemon and its replies: one JSON object per line. `PROTOCOL.md` has the fields.
//!
//! The parser refuses unknown fields, so a misspelt field is not ignored. All input is bounded: lines, names,
//! paths, weights, slices.

use crate::gang::GangWeight;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use unisono_linux::clock::Duration;
use unisono_text::named;

/// The longest line of a client in bytes: a path of 4096 characters that are all escaped does not fit.
pub const MAX_LINE: usize = 8192;
/// The longest name of a gang, in characters: the width of a column in a table.
const MAX_NAME: usize = 48;
/// The shortest and the longest slice, the same as of `gang run`.
const SLICES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(10));

/// The name of a gang: letters, digits, `.`, `_` and `-`, not beginning with `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GangName(String);

impl GangName {
    fn is_letter(letter: char) -> bool {
        letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-')
    }

    /// Derives a valid name from any text.
    pub fn like(text: &str) -> GangName {
        let name: String =
            text.chars().map(|c| if Self::is_letter(c) { c } else { '-' }).take(MAX_NAME - 4).collect();
        let name = name.trim_start_matches('-');
        GangName(if name.is_empty() { "gang".into() } else { name.into() })
    }

    /// Returns this name with a number appended.
    pub(super) fn numbered(&self, number: usize) -> GangName {
        let end = format!("-{number}");
        let stem: String = self.0.chars().take(MAX_NAME - end.len()).collect();
        GangName(stem + &end)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for GangName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let sound = text.chars().all(Self::is_letter) && !text.starts_with('-');
        if !sound || text.is_empty() || text.len() > MAX_NAME {
            return Err(format!(
                "{:?} is no name of a gang; use at most {MAX_NAME} letters, digits, '.', '_' and '-'",
                text.chars().take(MAX_NAME).collect::<String>()
            ));
        }
        Ok(GangName(text))
    }
}

impl From<GangName> for String {
    fn from(name: GangName) -> String {
        name.0
    }
}

impl fmt::Display for GangName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The processes that form a gang.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum GangTarget {
    /// A process and all its descendants. The start time, in ticks since boot, tells whether the number still
    /// belongs to the same process.
    Process { number: u32, started: u64 },
    /// All processes in an existing control group and below it.
    Group { path: PathBuf },
}

impl fmt::Display for GangTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GangTarget::Process { number, .. } => write!(f, "process {number}"),
            GangTarget::Group { path } => write!(f, "{}", path.display()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ServiceRequest {
    Add {
        target: GangTarget,
        /// `None`: the name of the program or of the group.
        name: Option<GangName>,
        #[serde(default = "default_weight")]
        weight: u32,
    },
    Remove {
        gang: GangName,
    },
    Weight {
        gang: GangName,
        weight: u32,
    },
    Slice {
        milliseconds: f64,
    },
    List {},
}

fn default_weight() -> u32 {
    1
}

/// Parses a line, without its line end.
pub fn parse(line: &[u8]) -> ServiceResult<ServiceRequest> {
    let bad = |text: String| GangRefusal::new(GangRefusalKind::BadRequest, text);
    if line.len() > MAX_LINE {
        return Err(bad(format!("a line of more than {MAX_LINE} bytes")));
    }
    let request = serde_json::from_slice(line).map_err(|error| bad(format!("cannot read it: {error}")))?;
    match &request {
        ServiceRequest::Add { target: GangTarget::Group { path }, .. } if !is_plain(path) => {
            return Err(bad(format!("{}: not an absolute path without detours", path.display())));
        }
        ServiceRequest::Add { weight, .. } | ServiceRequest::Weight { weight, .. } => {
            weight_of(*weight)?;
        }
        ServiceRequest::Slice { milliseconds } => {
            slice_of(*milliseconds)?;
        }
        _ => {}
    }
    Ok(request)
}

fn is_plain(path: &Path) -> bool {
    let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    path.is_absolute() && path.components().all(plain)
}

/// Converts a number to a weight.
///
/// # Errors
/// The weight is out of range.
pub fn weight_of(number: u32) -> ServiceResult<GangWeight> {
    GangWeight::new(number).ok_or_else(|| {
        let text = format!("a weight of {number} is out of range; choose 1 to {}", GangWeight::MAX);
        GangRefusal::new(GangRefusalKind::BadRequest, text)
    })
}

/// Converts a number of milliseconds to a slice.
///
/// # Errors
/// The slice is out of range.
pub fn slice_of(milliseconds: f64) -> ServiceResult<Duration> {
    let slice = Duration::from_nanos((milliseconds * 1e6).round() as u64);
    if slice < SLICES.0 || slice > SLICES.1 {
        let text = format!("a slice of {milliseconds} ms is out of range; choose 1ms to 10s");
        return Err(GangRefusal::new(GangRefusalKind::BadRequest, text));
    }
    Ok(slice)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GangRefusalKind {
    /// The request is wrong.
    BadRequest,
    /// The client's user lacks the permission.
    NotAllowed,
    /// No gang has this name.
    Unknown,
    /// The target is a gang already, or the name is taken.
    InUse,
    /// The client's user, or all users together, have the maximum number of gangs.
    TooMany,
    /// The host refused.
    Host,
}

/// The outcome of a part of a request.
pub type ServiceResult<T> = Result<T, GangRefusal>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct GangRefusal {
    pub kind: GangRefusalKind,
    pub message: String,
}

impl GangRefusal {
    pub fn new(kind: GangRefusalKind, message: String) -> GangRefusal {
        GangRefusal { kind, message }
    }
}

/// Returns the refusal for an error of the host.
pub(super) fn refused(error: impl std::fmt::Display) -> GangRefusal {
    GangRefusal::new(GangRefusalKind::Host, error.to_string())
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceReply {
    Added { gang: GangName },
    Done {},
    Gangs(ServiceView),
    Refused(GangRefusal),
}

/// The daemon's state, as reported to a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceView {
    /// Process number of the daemon.
    pub process: u32,
    pub slice_ms: f64,
    pub cores: usize,
    /// Number of switches from one gang to another.
    pub switches: u64,
    /// The part of the cores' time that switching took lately, in percent.
    pub switching_percent: f64,
    /// The factor by which turns are longer than requested, so that switching takes less time.
    pub lengthened: u32,
    pub gangs: Vec<GangView>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GangView {
    pub name: GangName,
    pub target: GangTarget,
    /// The user who added the gang.
    pub user: u32,
    pub weight: u32,
    pub state: GangState,
    /// Number of cores that the gang's threads can use at once.
    pub width: usize,
    pub threads: usize,
    /// Number of the gang's turns.
    pub turns: u64,
    /// Total length of the gang's turns.
    pub had_s: f64,
    /// Processor time since the gang was added; `None` if its cgroup hierarchy does not count processor time.
    pub cpu_s: Option<f64>,
}

named! {
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum GangState {
        /// The gang has the turn, or no other gang takes turns.
        Running = "running",
        Waiting = "waiting",
        /// The gang takes no turns, because it blocks: it runs at any time.
        Resting = "resting",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_read_as_the_protocol_says() {
        let add = parse(br#"{"add":{"target":{"process":{"number":7,"started":9}},"name":"a","weight":2}}"#);
        assert_eq!(
            add,
            Ok(ServiceRequest::Add {
                target: GangTarget::Process { number: 7, started: 9 },
                name: Some(GangName("a".into())),
                weight: 2
            })
        );
        let group = parse(br#"{"add":{"target":{"group":{"path":"/sys/fs/cgroup/a"}}}}"#).expect("sound");
        assert!(matches!(group, ServiceRequest::Add { name: None, weight: 1, .. }), "{group:?}");
        assert_eq!(parse(br#"{"list":{}}"#), Ok(ServiceRequest::List {}));
        assert_eq!(
            parse(br#"{"slice":{"milliseconds":5}}"#),
            Ok(ServiceRequest::Slice { milliseconds: 5.0 })
        );
    }

    #[test]
    fn what_is_wrong_is_refused_and_named() {
        for (line, why) in [
            ("", "cannot read"),
            ("{\"list\":{},\"x\":1}", "cannot read"),
            (r#"{"remove":{"gang":"a","force":true}}"#, "unknown field"),
            (r#"{"remove":{"gang":"../a"}}"#, "is no name"),
            (r#"{"remove":{"gang":"-a"}}"#, "is no name"),
            (r#"{"weight":{"gang":"a","weight":0}}"#, "out of range"),
            (r#"{"slice":{"milliseconds":0.5}}"#, "out of range"),
            (r#"{"slice":{"milliseconds":-1e300}}"#, "out of range"),
            (r#"{"add":{"target":{"group":{"path":"a"}}}}"#, "absolute path"),
            (r#"{"add":{"target":{"group":{"path":"/a/../b"}}}}"#, "absolute path"),
            (r#"{"add":{"target":{"process":{"number":-7,"started":1}}}}"#, "cannot read"),
        ] {
            let refusal = parse(line.as_bytes()).expect_err(line);
            assert_eq!(refusal.kind, GangRefusalKind::BadRequest);
            assert!(refusal.message.contains(why), "{line}: {refusal}");
        }
        assert!(parse(&vec![b' '; MAX_LINE + 1]).is_err());
    }

    proptest! {
        #[test]
        fn any_text_makes_a_name_that_can_be_read_again(text in ".{0,80}", number in 0usize..100_000) {
            let name = GangName::like(&text);
            prop_assert_eq!(GangName::try_from(String::from(name.clone())), Ok(name.clone()));
            let numbered = name.numbered(number);
            prop_assert_eq!(GangName::try_from(String::from(numbered.clone())), Ok(numbered));
        }
    }
}
