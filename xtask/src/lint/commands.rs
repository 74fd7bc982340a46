//! A library names no command of the program `unisono` in its messages, because other programs use it, too.
//! It returns the remedy as a value, and the program adds the command.

use super::sources::{SourceFile, Sources};

/// The crates that do not depend on the program.
const LIBRARIES: [&str; 13] = [
    "time",
    "text",
    "intrinsics",
    "sync",
    "measure",
    "barrier",
    "gang",
    "fit",
    "rma",
    "btin",
    "fairqueue",
    "eventchannel",
    "events-wire",
];

const COMMANDS: [&str; 12] = [
    "advise", "barrier", "doctor", "events", "fit", "gang", "mpi", "queue", "report", "run", "study", "tree",
];

/// The exception: the first line of the unit file that the program installs, by which the program recognizes
/// its own file.
const ALLOWED: &str = "# Written by `unisono gang install`";

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let is_library = |file: &&SourceFile| {
        LIBRARIES.iter().any(|name| file.path.starts_with(&format!("crates/{name}/src/")))
            && !file.has_ending("tests.rs")
    };
    sources.rust().filter(is_library).flat_map(file_problems).collect()
}

fn file_problems(file: &SourceFile) -> Vec<String> {
    let lines = (1..).zip(file.text.lines()).take_while(|(_, line)| line.trim() != "#[cfg(test)]");
    let code = lines.filter(|(_, line)| !line.trim_start().starts_with("//") && !line.contains(ALLOWED));
    let named = code.filter_map(|(number, line)| Some((number, named_command(line)?)));
    named
        .map(|(number, command)| {
            format!("{}:{number}: `unisono {command}` in a library; let the program name it", file.path)
        })
        .collect()
}

fn named_command(line: &str) -> Option<&'static str> {
    let mut after = line.split("unisono ").skip(1);
    after.find_map(|rest| {
        let word = rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        COMMANDS.into_iter().find(|command| *command == word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_in_a_message_of_a_library_is_a_problem() {
        let text = "/// For `unisono tree plan`.\nlet a = \"start it: sudo unisono gang daemon\";\n\
                    let b = \"unisono tcp\";\n#[cfg(test)]\nlet c = \"unisono run\";\n";
        let files = [("crates/gang/src/a.rs", text), ("cli/src/a.rs", text), ("crates/linux/src/a.rs", text)];
        let wrong = "crates/gang/src/a.rs:2: `unisono gang` in a library; let the program name it";
        assert_eq!(check(&Sources::from_texts(&files)), [wrong]);
    }
}
