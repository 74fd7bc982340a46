//! The commands in the documents are commands: the program knows their options, and each has a line of its
//! own.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The commands that need a program that is there before they read `--help`.
const LAUNCHERS: [&str; 2] = ["run", "fit"];

/// Returns the documents that users read: README.md, those of `docs/` but for decisions, and those of crates.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let list = Command::new("git").args(["ls-files", "*.md"]).current_dir(&root).output();
    let list = list.expect("git lists the files");
    assert!(list.status.success(), "not a checkout: {}", String::from_utf8_lossy(&list.stderr));
    let names = String::from_utf8(list.stdout).expect("names of files");
    let is_read = |name: &&str| !name.starts_with("docs/decisions") && !name.starts_with("CHANGELOG");
    names.lines().filter(is_read).map(|name| root.join(name)).collect()
}

/// Returns the logical lines of the shell blocks of a document, with their numbers; a line that ends with a
/// backslash goes on in the next one.
fn shell_lines(text: &str) -> Vec<(usize, String)> {
    let (mut lines, mut is_shell, mut goes_on) = (Vec::<(usize, String)>::new(), false, false);
    for (number, line) in text.lines().enumerate() {
        match line.trim_start().strip_prefix("```") {
            Some(language) => (is_shell, goes_on) = (!is_shell && language == "sh", false),
            None if is_shell => {
                let (part, more) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
                match lines.last_mut() {
                    Some((_, whole)) if goes_on => whole.push_str(part),
                    _ => lines.push((number + 1, part.to_owned())),
                }
                goes_on = more;
            }
            None => {}
        }
    }
    lines
}

/// Returns the arguments of each `unisono` in a line, up to `--` or an operator of the shell. A shell
/// variable has the value 1.
fn commands(line: &str) -> Vec<Vec<String>> {
    let words: Vec<String> = shlex::Shlex::new(line).collect();
    let is_end = |word: &&String| {
        ["--", "|", "||", "&&", "&", ";"].contains(&word.as_str()) || word.starts_with(['<', '>'])
    };
    let starts = |at: &usize| words[*at] == "unisono" && !(*at > 0 && words[at - 1] == "-p");
    let arguments = |at: usize| {
        let own = words[at + 1..].iter().take_while(|word| !is_end(word)).filter(|word| *word != "...");
        own.map(|word| if word.starts_with('$') { "1".to_owned() } else { word.clone() }).collect()
    };
    (0..words.len()).filter(starts).map(arguments).collect()
}

#[test]
fn the_options_of_each_command_in_the_documents_are_known() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("a document");
        for (number, line) in shell_lines(&text) {
            for arguments in commands(&line) {
                let Some(first) = arguments.first() else { continue };
                if LAUNCHERS.contains(&first.as_str()) {
                    continue;
                }
                tried += 1;
                let run = Command::new(env!("CARGO_BIN_EXE_unisono")).args(&arguments).arg("--help").output();
                let run = run.expect("the program starts");
                if !run.status.success() {
                    let said = String::from_utf8_lossy(&run.stderr).into_owned();
                    wrong.push(format!("{}:{number}: {arguments:?}: {said}", document.display()));
                }
            }
        }
    }
    assert!(tried > 50, "the documents have more commands than {tried}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_comment_of_a_command_contains_the_next_command() {
    let mut wrong = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("a document");
        for (number, line) in shell_lines(&text) {
            let comment = line.split_once(" # ").map_or("", |(_, comment)| comment);
            if comment.contains("sudo unisono ") || comment.contains("  # ") {
                wrong.push(format!("{}:{number}: {line}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "two commands on one line:\n{}", wrong.join("\n"));
}
