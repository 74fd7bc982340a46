//! What every command's help has in common: text that wraps at the terminal's width, and a hint where a
//! subcommand is typed without its group.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, Command, builder::PossibleValue, builder::TypedValueParser};
use std::ffi::OsStr;

/// The command with the texts behind its options, and those of its subcommands, filled into paragraphs.
///
/// clap fills what comes from documents of arguments, and leaves these texts as they stand in the source: in a
/// terminal narrower than the source each long line would be followed by a short one.
pub(crate) fn filled(mut command: Command) -> Command {
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(fill(&text));
    }
    if let Some(text) = command.get_after_long_help().map(ToString::to_string) {
        command = command.after_long_help(fill(&text));
    }
    command.mut_subcommands(filled)
}

/// Joins the lines of each paragraph. Indented lines, as examples have, and headings stay as they are.
fn fill(text: &str) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut before = "";
    for line in text.lines() {
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        if !filled.is_empty() {
            let continues = is_prose(before) && is_prose(line) && !before.ends_with(':');
            filled.push(if continues && !begins_a_line(line) { ' ' } else { '\n' });
        }
        filled.push_str(line);
        before = line;
    }
    filled
}

/// Lines that begin what is read by itself, although no empty line precedes them.
fn begins_a_line(line: &str) -> bool {
    ["Exit codes:", "Every table has"].iter().any(|start| line.starts_with(start))
}

/// Adds to an unknown subcommand the group in which there is one of this name: `unisono plan` is
/// `unisono tree plan`.
pub(crate) fn explained(mut error: Error, program: &Command) -> Error {
    if error.kind() != ErrorKind::InvalidSubcommand || error.get(ContextKind::SuggestedSubcommand).is_some() {
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

/// A parser of values that shells complete: it offers names, and takes what `parse` takes.
#[derive(Clone)]
pub(crate) struct Completed<P> {
    /// Asked only for scripts of shells: some of the lists take milliseconds, and every rank of a job starts this program.
    names: fn() -> Vec<String>,
    parse: P,
}

impl<P> Completed<P> {
    pub(crate) fn new(names: fn() -> Vec<String>, parse: P) -> Self {
        Self { names, parse }
    }
}

/// A list of names as [`Completed::new`] wants it.
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

    #[test]
    fn paragraphs_are_filled_and_examples_are_not() {
        let text =
            "Examples:\n  a\n      what a does\n  b\n\nOne sentence\nover two lines.\n\nExit codes: 0\ndone.";
        let filled =
            "Examples:\n  a\n      what a does\n  b\n\nOne sentence over two lines.\n\nExit codes: 0 done.";
        assert_eq!(fill(text), filled);
    }

    #[test]
    fn every_command_shows_examples() {
        fn without_examples(command: &Command, path: &str, missing: &mut Vec<String>) {
            let shown = [command.get_after_help(), command.get_after_long_help()]
                .into_iter()
                .flatten()
                .any(|text| text.to_string().contains("unisono "));
            if !shown && command.get_name() != "help" {
                missing.push(path.to_owned());
            }
            for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
                without_examples(inner, &format!("{path} {}", inner.get_name()), missing);
            }
        }
        let mut missing = Vec::new();
        without_examples(&crate::command(), "unisono", &mut missing);
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn shells_complete_the_values_of_options() {
        let mut script = Vec::new();
        clap_complete::generate(clap_complete::Shell::Bash, &mut crate::command(), "unisono", &mut script);
        let script = String::from_utf8(script).expect("a script is text");
        for value in
            ["real-time", "spin-block", "dissemination", "granularity", "graphml", "one-port", "af-xdp"]
        {
            assert!(script.contains(value), "{value}");
        }
    }

    #[test]
    fn a_subcommand_without_its_group_is_pointed_to_its_group() {
        let program = crate::command();
        let error =
            program.clone().try_get_matches_from(["unisono", "undeploy"]).expect_err("it is in a group");
        let words = explained(error, &program).to_string();
        assert!(words.contains("'unisono tree undeploy'"), "{words}");
    }
}
