//! The file of rules: the programs that become gangs automatically.
//!
//! ```toml
//! slice = "10ms"                             # of all gangs
//!
//! [[gang]]
//! cgroup = "system.slice/docker-*.scope"     # each group with such a path; `*` stays within a level
//! weight = 2
//!
//! [[gang]]
//! program = "lmp*"                           # each process whose executable's name matches
//! user = "alice"
//! name = "lammps"                            # the name of the gangs
//! ```
//! A gang made of a process contains all its descendants. The first rule that matches a process or a group
//! decides.
//!
//! Pure: the caller reads the file and finds processes and groups. An error names line and column, and the
//! text to write instead. Cost: each process of the machine is compared with each rule.

use super::request::{GangName, slice_of, weight_of};
use crate::gang::GangWeight;
use serde::Deserialize;
use toml::Spanned;
use unisono_linux::clock::Duration;
use unisono_measure::units::duration;
use unisono_text::{Position, nearest};

/// Maximum number of rules: each is compared with each process.
const MAX_RULES: usize = 256;
/// Maximum length of a pattern in bytes, so that a comparison takes microseconds.
const MAX_PATTERN: usize = 1024;
const KEYS: [&str; 7] = ["slice", "gang", "cgroup", "program", "user", "name", "weight"];

/// Why a text is not a valid file of rules. Line and column count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct GangRulesError {
    pub at: Position,
    /// The mistake, and the text to write instead.
    pub what: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GangRules {
    /// `None`: the slice given at the daemon's start, or set since.
    pub slice: Option<Duration>,
    pub rules: Vec<GangRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangRule {
    /// `None`: the name of the program or of the group.
    pub name: Option<GangName>,
    pub weight: GangWeight,
    pub fits: RuleFits,
}

/// The targets that a rule makes gangs of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleFits {
    /// Each control group whose path matches these patterns level by level, from the mount point down.
    Groups(Vec<NamePattern>),
    /// Each process with such an executable and such a user.
    Programs { program: Option<NamePattern>, user: Option<u32> },
}

/// A name in which `*` matches any number of characters, zero included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

impl NamePattern {
    pub fn fits(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == name };
        let Some(mut name) = name.strip_prefix(first) else { return false };
        let mut parts: Vec<&str> = rest.split('*').collect();
        // the last part must be at the end; each other part may match as early as possible
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            let Some(at) = name.find(part) else { return false };
            name = &name[at + part.len()..];
        }
        name.ends_with(last)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGangRules {
    slice: Option<Spanned<String>>,
    #[serde(default)]
    gang: Vec<Spanned<WrittenGangRule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGangRule {
    cgroup: Option<Spanned<String>>,
    program: Option<Spanned<String>>,
    user: Option<Spanned<String>>,
    name: Option<Spanned<String>>,
    weight: Option<Spanned<u32>>,
}

impl GangRules {
    /// Parses a file of rules; `user` finds the number of a user by its name.
    ///
    /// # Errors
    /// The file is not valid.
    pub fn parse(text: &str, user: &dyn Fn(&str) -> Option<u32>) -> Result<GangRules, GangRulesError> {
        let written: WrittenGangRules = toml::from_str(text).map_err(|error| {
            wrong(text, error.span().map_or(0, |span| span.start), with_hint(error.message()))
        })?;
        let slice = written.slice.as_ref().map(|slice| {
            let length = duration(slice.get_ref()).map_err(|error| refuse(text, slice, &error))?;
            slice_of(length.as_secs_f64() * 1e3).map_err(|error| refuse(text, slice, &error))
        });
        if let Some(many) = written.gang.get(MAX_RULES) {
            let what = format!("more than {MAX_RULES} rules; use `*` in names");
            return Err(refuse(text, many, &what));
        }
        let rules = written.gang.iter().map(|rule| understand(text, rule, user));
        Ok(GangRules { slice: slice.transpose()?, rules: rules.collect::<Result<_, _>>()? })
    }

    /// Returns whether processes have to be scanned.
    pub fn name_programs(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.fits, RuleFits::Programs { .. }))
    }

    /// Returns the index of the first rule for a process with this executable and this user.
    pub fn of_process(&self, executable: &str, owner: u32) -> Option<usize> {
        self.rules.iter().position(|rule| match &rule.fits {
            RuleFits::Groups(_) => false,
            RuleFits::Programs { program, user } => {
                program.as_ref().is_none_or(|program| program.fits(executable))
                    && user.is_none_or(|user| user == owner)
            }
        })
    }
}

fn understand(
    text: &str,
    rule: &Spanned<WrittenGangRule>,
    user: &dyn Fn(&str) -> Option<u32>,
) -> Result<GangRule, GangRulesError> {
    let WrittenGangRule { cgroup, program, user: owner, name, weight } = rule.get_ref();
    let weight = weight
        .as_ref()
        .map(|weight| weight_of(*weight.get_ref()).map_err(|refusal| refuse(text, weight, &refusal.message)));
    let name = name
        .as_ref()
        .map(|name| GangName::try_from(name.get_ref().clone()).map_err(|why| refuse(text, name, &why)));
    let owner = owner.as_ref().map(|owner| {
        let number = owner.get_ref().parse().ok().or_else(|| user(owner.get_ref()));
        let what = format!("this host has no user `{}`; write a name or a number", owner.get_ref());
        number.ok_or_else(|| refuse(text, owner, &what))
    });
    let program = program.as_ref().map(|program| {
        if program.get_ref().contains('/') {
            let name = program.get_ref().rsplit('/').next().unwrap_or_default();
            let what = format!("a program is known by the name of its file; write program = {name:?}");
            return Err(refuse(text, program, &what));
        }
        pattern(text, program, program.get_ref())
    });
    let (program, owner) = (program.transpose()?, owner.transpose()?);
    let fits = match cgroup {
        Some(cgroup) if program.is_some() || owner.is_some() => {
            let what = "a control group becomes a gang as a whole; write `program` and `user` in a [[gang]] of \
                        their own";
            return Err(refuse(text, cgroup, &what));
        }
        Some(cgroup) => RuleFits::Groups(path(text, cgroup)?),
        None if program.is_none() && owner.is_none() => {
            let what =
                "this rule names nothing; write `cgroup`, `program` or `user`, as in program = \"lmp*\"";
            return Err(refuse(text, rule, &what));
        }
        None => RuleFits::Programs { program, user: owner },
    };
    Ok(GangRule { name: name.transpose()?, weight: weight.transpose()?.unwrap_or(GangWeight::ONE), fits })
}

fn path(text: &str, cgroup: &Spanned<String>) -> Result<Vec<NamePattern>, GangRulesError> {
    let written = cgroup.get_ref();
    if written.starts_with("/sys/fs/cgroup") {
        let what = "write the path below the mount, as `cat /proc/PID/cgroup` shows it behind the colons";
        return Err(refuse(text, cgroup, &what));
    }
    let names = written.strip_prefix('/').unwrap_or(written).split('/');
    names.map(|name| pattern(text, cgroup, name)).collect()
}

fn pattern<T>(text: &str, place: &Spanned<T>, name: &str) -> Result<NamePattern, GangRulesError> {
    let what = match name {
        "" => "an empty name; leave it out, or write `*` for any".to_owned(),
        "." | ".." => format!("`{name}` is no name of a group or a program; write the whole path"),
        long if long.len() > MAX_PATTERN => format!("a name of more than {MAX_PATTERN} bytes; use `*`"),
        many if many.contains("**") => "`**` does not span levels; write one `*` for each level".to_owned(),
        sound => return Ok(NamePattern(sound.to_owned())),
    };
    Err(refuse(text, place, &what))
}

fn refuse<T>(text: &str, place: &Spanned<T>, what: &dyn std::fmt::Display) -> GangRulesError {
    wrong(text, place.span().start, what.to_string())
}

fn wrong(text: &str, at: usize, what: String) -> GangRulesError {
    GangRulesError { at: Position::at_offset(text, at), what }
}

/// Returns the TOML parser's message, with a guess at a misspelt key.
fn with_hint(message: &str) -> String {
    let key = message.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    match key.and_then(|key| nearest(key, KEYS)) {
        Some(meant) => format!("{message}; did you mean `{meant}`?"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn users(name: &str) -> Option<u32> {
        (name == "alice").then_some(1000)
    }

    #[test]
    fn rules_are_read_and_the_first_that_fits_decides() {
        let text = "slice = \"7ms\"\n[[gang]]\ncgroup = \"/a/job_*/step_*\"\nweight = 3\n[[gang]]\nprogram = \
                    \"lmp*\"\nuser = \"alice\"\nname = \"md\"\n[[gang]]\nuser = \"7\"\n";
        let rules = GangRules::parse(text, &users).expect("sound");
        assert_eq!(rules.slice, Some(Duration::from_millis(7)));
        let RuleFits::Groups(path) = &rules.rules[0].fits else { panic!("{rules:?}") };
        assert!(path[1].fits("job_12") && !path[1].fits("xjob_12") && path[0].fits("a"), "{path:?}");
        let of = |executable, user| rules.of_process(executable, user);
        assert_eq!([of("lmp_mpi", 1000), of("lmp_mpi", 7), of("sh", 7)], [Some(1), Some(2), Some(2)]);
        assert_eq!([of("lmp_mpi", 8), of("sh", 1000)], [None, None]);
        assert!(rules.name_programs());
        assert_eq!(GangRules::parse("", &users), Ok(GangRules::default()));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place_and_what_to_write() {
        for (text, says) in [
            ("[[gang]]\nprogram = \"a\"\nwieght = 2", "3:1: unknown field `wieght`, expected"),
            ("[[gang]]\nprogram = \"a\"\nwieght = 2", "did you mean `weight`?"),
            ("slices = \"1ms\"", "did you mean `slice`?"),
            ("slice = \"1\"", "1:9: "),
            ("slice = \"1h\"", "choose 1ms to 10s"),
            (
                "[[gang]]\nprogram = \"a\"\nweight = 0",
                "3:10: a weight of 0 is out of range; choose 1 to 1000",
            ),
            (
                "[[gang]]\nprogram = \"/bin/a\"",
                "2:11: a program is known by the name of its file; write program = \"a\"",
            ),
            (
                "[[gang]]\ncgroup = \"a\"\nuser = \"7\"",
                "2:10: a control group becomes a gang as a whole",
            ),
            ("[[gang]]\ncgroup = \"a/**\"", "2:10: `**` does not span levels"),
            ("[[gang]]\ncgroup = \"a//b\"", "2:10: an empty name"),
            ("[[gang]]\ncgroup = \"/sys/fs/cgroup/a\"", "2:10: write the path below the mount"),
            ("[[gang]]\nuser = \"bob\"", "2:8: this host has no user `bob`"),
            ("\n[[gang]]\nweight = 2", "this rule names nothing; write `cgroup`"),
            ("[[gang]]\nprogram = \"a\"\nname = \"-\"", "3:8: "),
            ("[[gang]\n", "1:"),
        ] {
            let error = GangRules::parse(text, &users).expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let many = "[[gang]]\nuser = \"7\"\n".repeat(MAX_RULES + 1);
        let error = GangRules::parse(&many, &users).expect_err("too many");
        assert_eq!(error.at.line, 2 * MAX_RULES + 1);
    }

    /// Matches a name by the slow model: a star matches no character and ends, or matches one character and
    /// stays.
    fn slowly(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), None) => slowly(rest, name),
            (Some(('*', rest)), Some((_, shorter))) => slowly(rest, name) || slowly(pattern, shorter),
            (Some((letter, rest)), Some((other, shorter))) => letter == other && slowly(rest, shorter),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn a_pattern_fits_what_the_slow_model_says(pattern in "[ab*é]{0,9}", name in "[abé]{0,9}") {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            let slow = slowly(&letters(&pattern), &letters(&name));
            prop_assert_eq!(NamePattern(pattern.clone()).fits(&name), slow);
        }
    }
}
