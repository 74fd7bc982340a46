//! Parts that the help of all commands shares: values that shells complete, a hint if a subcommand is typed
//! without its group, the expected form of numbers, and negative values.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, Command, builder::PossibleValue, builder::TypedValueParser};
use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

/// Adds to the error of a command line what to type instead, if clap does not say it.
pub(crate) fn with_explanation(error: Error, program: &Command, typed: &[OsString]) -> Error {
    match error.kind() {
        ErrorKind::InvalidSubcommand => with_groups(error, program),
        ErrorKind::ValueValidation => with_expected_number(error, program),
        ErrorKind::UnknownArgument => with_negative_value(error, program, typed),
        _ => error,
    }
}

/// Replaces the error about a negative value behind an option: clap takes the `-5ms` of `--deadline -5ms` for
/// an option of its own. The result is the error of `--deadline=-5ms`, or a hint to write it so.
fn with_negative_value(mut error: Error, program: &Command, typed: &[OsString]) -> Error {
    let unknown = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    if !unknown.strip_prefix('-').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit())) {
        return error;
    }
    let behind_option = |pair: &[OsString]| {
        let (option, value) = (pair[0].to_string_lossy(), pair[1].to_string_lossy());
        option.starts_with("--") && option.len() > 2 && !option.contains('=') && value.starts_with(&unknown)
    };
    let Some(at) = typed.windows(2).position(behind_option) else { return error };
    let mut joined = typed.to_vec();
    let value = joined.remove(at + 1);
    joined[at].push("=");
    joined[at].push(value);
    match program.clone().try_get_matches_from(&joined) {
        Err(of_value) if of_value.kind() == ErrorKind::ValueValidation => {
            with_expected_number(of_value, program)
        }
        Ok(_) => {
            let hint = format!("to pass a negative value, write '{}'", joined[at].to_string_lossy());
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
            error
        }
        Err(_) => error,
    }
}

/// Replaces the error about a number by an error with the expected form. The standard library names only the
/// defect ("invalid digit found in string"), and clap only the range (`300 is not in 0..=255`).
fn with_expected_number(error: Error, program: &Command) -> Error {
    let Some(expected) = error.source().and_then(expected_number) else { return error };
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (value, argument) = (text(ContextKind::InvalidValue), text(ContextKind::InvalidArg));
    let words = format!(
        "invalid value '{value}' for '{argument}': {expected}\n\nFor more information, try '--help'.\n"
    );
    Error::raw(ErrorKind::ValueValidation, words).with_cmd(program)
}

fn expected_number(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(cause) = cause.downcast_ref::<ParseIntError>() {
        return Some(match cause.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => {
                "the number is too far from 0; write one that is nearer".to_owned()
            }
            _ => "write a whole number, such as 4".to_owned(),
        });
    }
    if cause.is::<ParseFloatError>() {
        return Some("write a number, such as 0.5".to_owned());
    }
    let words = cause.to_string();
    let (_, range) = words.split_once(" is not in ")?;
    let (min, greatest) = range.split_once("..=")?;
    Some(format!("write a whole number from {min} to {greatest}"))
}

/// For an unknown subcommand, suggests the command of this name and the groups with a subcommand of this
/// name: for `unisono plan` it suggests `unisono tree plan`, for `unisono queue doctor` `unisono doctor`. It
/// does not suggest similar names, because clap does that.
fn with_groups(mut error: Error, program: &Command) -> Error {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let groups = |command: &&Command| command.has_subcommands() && !command.is_hide_set();
    let holds = |group: &&Command| {
        group.get_subcommands().any(|command| command.get_name() == typed && !command.is_hide_set())
    };
    let alone = program
        .get_subcommands()
        .filter(|command| command.get_name() == typed && !command.is_hide_set())
        .map(|_| format!("unisono {typed}"));
    let in_groups = program
        .get_subcommands()
        .filter(groups)
        .filter(holds)
        .map(|group| format!("unisono {} {typed}", group.get_name()));
    let found: Vec<String> = alone.chain(in_groups).collect();
    if !found.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(found));
    }
    error
}

/// A parser that accepts the same texts as `parse`, and offers names to shells for completion.
#[derive(Clone)]
pub(crate) struct Completed<P> {
    /// Called only for completion scripts, because some of the lists take milliseconds to compute and every
    /// rank of a job starts this program.
    names: fn() -> Vec<String>,
    parse: P,
}

impl<P> Completed<P> {
    pub(crate) fn new(names: fn() -> Vec<String>, parse: P) -> Self {
        Self { names, parse }
    }
}

pub(crate) fn owned(names: impl IntoIterator<Item = &'static str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

impl<P: TypedValueParser> TypedValueParser for Completed<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, Error> {
        self.parse.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Calls `visit` with each command that is not hidden, and its path.
    fn visit_commands(command: &Command, path: &str, visit: &mut impl FnMut(&Command, &str)) {
        visit(command, path);
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            visit_commands(inner, &format!("{path} {}", inner.get_name()), visit);
        }
    }

    fn texts_behind_options(command: &Command) -> impl Iterator<Item = String> {
        [command.get_after_help(), command.get_after_long_help()]
            .into_iter()
            .flatten()
            .map(ToString::to_string)
    }

    /// Checks that every paragraph of a help text is one line in the source. clap wraps these texts but does
    /// not join their lines: in a terminal narrower than the source, each long line of a broken paragraph
    /// would be followed by a short one.
    #[test]
    fn paragraphs_of_help_are_one_line_in_the_source_so_that_they_wrap_evenly() {
        let mut broken = Vec::new();
        visit_commands(&crate::Cli::command(), "unisono", &mut |command, path| {
            for text in texts_behind_options(command) {
                let prose =
                    |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with([':', '.']);
                let lines: Vec<&str> = text.lines().collect();
                let pairs = lines.windows(2).filter(|pair| prose(pair[0]) && !pair[1].is_empty());
                broken.extend(pairs.map(|pair| format!("{path}: {}", pair[0])));
            }
        });
        assert_eq!(broken, Vec::<String>::new());
    }

    #[test]
    fn every_command_shows_examples() {
        let mut missing = Vec::new();
        visit_commands(&crate::Cli::command(), "unisono", &mut |command, path| {
            if !texts_behind_options(command).any(|text| text.contains("unisono ")) {
                missing.push(path.to_owned());
            }
        });
        assert_eq!(missing, Vec::<String>::new());
    }

    /// The schema's title of each format must name the commands that print it.
    #[test]
    fn every_json_is_described_in_the_schema_of_output() {
        let schema: serde_json::Value =
            serde_json::from_str(include_str!("../../docs/output.schema.json")).expect("JSON");
        let formats = schema["$defs"].as_object().expect("formats");
        let titles = formats.values().filter_map(|format| format["title"].as_str());
        let described: Vec<&str> = titles.flat_map(|title| title.split(", ")).collect();
        let mut missing = Vec::new();
        visit_commands(&crate::Cli::command(), "unisono", &mut |command, path| {
            let has_json = command.get_arguments().any(|argument| argument.get_long() == Some("json"));
            let is_described = described
                .iter()
                .any(|title| title.starts_with(&format!("{path} ")) && title.contains("--json"));
            if has_json && !is_described {
                missing.push(path.to_owned());
            }
        });
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn an_error_about_a_number_says_what_to_write() {
        for (typed, expected) in [
            (&["run", "-n", "x", "true"][..], "'x' for '--ranks <N>': write a whole number, such as 4"),
            (&["tree", "bench", "--repetitions", "0"], "write a whole number from 1 to 1000"),
            (
                &["barrier", "--seconds", "soon"],
                "'soon' for '--seconds <S>': write a number, such as 0.5",
            ),
            (&["gang", "add", "--pid", ""], "write a whole number"),
            (&["gang", "add", "--pid", "99999999999999999999"], "too far from 0"),
        ] {
            let typed: Vec<&str> = ["unisono"].into_iter().chain(typed.iter().copied()).collect();
            let error = crate::Cli::command().try_get_matches_from(&typed).expect_err("no number");
            let words = with_explanation(error, &crate::Cli::command(), &[]).to_string();
            assert!(
                words.contains(expected) && words.starts_with("error: invalid value"),
                "{typed:?}: {words}"
            );
        }
    }

    #[test]
    fn a_negative_value_is_not_taken_for_an_option() {
        let words = |typed: &[&str]| {
            let typed: Vec<OsString> = typed.iter().map(OsString::from).collect();
            let error = crate::Cli::command().try_get_matches_from(&typed).expect_err("it is negative");
            with_explanation(error, &crate::Cli::command(), &typed).to_string()
        };
        for option in ["--deadline", "--offer-deadline"] {
            let apart = words(&["unisono", "events", "publish", "a", option, "-5ms", "x"]);
            assert!(apart.contains(&format!("'-5ms' for '{option} <DURATION>': ")), "{apart}");
            assert!(apart.contains("\"-5ms\" is negative; a duration, "), "{apart}");
            let joined = format!("{option}=-5ms");
            assert_eq!(words(&["unisono", "events", "publish", "a", &joined, "x"]), apart);
        }
        let number = words(&["unisono", "events", "publish", "a", "--criticality", "-1", "x"]);
        let expected = "'-1' for '--criticality <N>': write a whole number from 0 to 255";
        assert!(number.contains(expected), "{number}");
        // an unknown option of one digit is none of an option's values
        let unknown = words(&["unisono", "doctor", "-5"]);
        assert!(unknown.contains("unexpected argument '-5' found"), "{unknown}");
    }

    #[test]
    fn an_error_of_another_kind_stays_as_it_is() {
        let error = || crate::Cli::command().try_get_matches_from(["unisono", "run", "--bind", "lam"]);
        let words = error().expect_err("no such way to bind").to_string();
        assert_eq!(
            with_explanation(error().expect_err("no such way to bind"), &crate::Cli::command(), &[])
                .to_string(),
            words
        );
    }

    #[test]
    fn a_subcommand_without_its_group_is_pointed_to_its_group() {
        // the second one has the name of a top-level command, too
        for (typed, meant) in [("undeploy", "tree undeploy"), ("restore", "gang restore")] {
            let error =
                crate::Cli::command().try_get_matches_from(["unisono", typed]).expect_err("it is in a group");
            let words = with_explanation(error, &crate::Cli::command(), &[]).to_string();
            assert!(words.contains(&format!("'unisono {meant}'")), "{words}");
        }
        let typed = ["unisono", "queue", "doctor"];
        let error = crate::Cli::command().try_get_matches_from(typed).expect_err("it is in no group");
        let words = with_explanation(error, &crate::Cli::command(), &[]).to_string();
        assert!(words.contains("'unisono doctor'"), "{words}");
    }
}
