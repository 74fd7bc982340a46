//! Parts of the help of all commands: values that shells complete, and a hint if a subcommand is typed
//! without its group.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, Command, builder::PossibleValue, builder::TypedValueParser};
use std::ffi::OsStr;

/// For an unknown subcommand of `program`, suggests the groups that have one of this name: for `unisono plan`
/// it suggests `unisono tree plan`. It does not suggest similar names, as clap does.
pub(crate) fn explained(mut error: Error, program: &Command) -> Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let groups = |command: &&Command| command.has_subcommands() && !command.is_hide_set();
    let holds = |group: &&Command| {
        group.get_subcommands().any(|command| command.get_name() == typed && !command.is_hide_set())
    };
    let found: Vec<String> = program
        .get_subcommands()
        .filter(groups)
        .filter(holds)
        .map(|group| format!("unisono {} {typed}", group.get_name()))
        .collect();
    if !found.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(found));
    }
    error
}

/// A parser that accepts what `parse` accepts, and offers names to shells for completion.
#[derive(Clone)]
pub(crate) struct Completed<P> {
    /// Called only for completion scripts: some of the lists take milliseconds, and every rank of a job
    /// starts this program.
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

    /// Calls `look` with each command that is not hidden, and its path.
    fn each_command(command: &Command, path: &str, look: &mut impl FnMut(&Command, &str)) {
        look(command, path);
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            each_command(inner, &format!("{path} {}", inner.get_name()), look);
        }
    }

    fn texts_behind_options(command: &Command) -> impl Iterator<Item = String> {
        [command.get_after_help(), command.get_after_long_help()]
            .into_iter()
            .flatten()
            .map(ToString::to_string)
    }

    /// clap wraps these texts but does not join their lines. In a terminal narrower than the source, each
    /// long line of a broken paragraph would be followed by a short one.
    #[test]
    fn paragraphs_of_help_are_one_line_in_the_source_so_that_they_wrap_evenly() {
        let mut broken = Vec::new();
        each_command(&crate::Cli::command(), "unisono", &mut |command, path| {
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
        each_command(&crate::Cli::command(), "unisono", &mut |command, path| {
            if !texts_behind_options(command).any(|text| text.contains("unisono ")) {
                missing.push(path.to_owned());
            }
        });
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn shells_complete_the_values_of_options() {
        let mut script = Vec::new();
        clap_complete::generate(
            clap_complete::Shell::Bash,
            &mut crate::Cli::command(),
            "unisono",
            &mut script,
        );
        let script = String::from_utf8(script).expect("a script is text");
        for value in
            ["real-time", "spin-block", "dissemination", "granularity", "graphml", "one-port", "af-xdp"]
        {
            assert!(script.contains(value), "{value}");
        }
    }

    #[test]
    fn a_subcommand_without_its_group_is_pointed_to_its_group() {
        // a command of its own is called like the second one
        for (typed, meant) in [("undeploy", "tree undeploy"), ("restore", "gang restore")] {
            let error =
                crate::Cli::command().try_get_matches_from(["unisono", typed]).expect_err("it is in a group");
            let words = explained(error, &crate::Cli::command()).to_string();
            assert!(words.contains(&format!("'unisono {meant}'")), "{words}");
        }
    }
}
