//! The commands of the pages and of the help texts are commands of this program: its parser takes them.

use clap::{Command, CommandFactory};
use std::path::Path;

/// Calls `visit` with each command that is not hidden.
fn visit_commands(command: &Command, visit: &mut impl FnMut(&Command)) {
    visit(command);
    command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
        .for_each(|inner| visit_commands(inner, visit));
}

/// Returns the lines of a page that stand in blocks of shell commands, each with its number.
fn shell_lines(page: &str) -> Vec<(usize, String)> {
    let mut is_shell = false;
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut is_continued = false;
    for (line, number) in page.lines().zip(1..) {
        let line = line.trim_start();
        if line.starts_with("```") {
            is_shell = line == "```sh";
        } else if is_shell {
            let (part, goes_on) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
            match lines.last_mut().filter(|_| is_continued) {
                Some((_, begun)) => begun.push_str(part),
                None => lines.push((number, part.to_owned())),
            }
            is_continued = goes_on;
        }
    }
    lines
}

/// Splits a line of shell as far as the examples need it: quotes, pipes, lists and comments. The last part is
/// the comment.
fn split(line: &str) -> (Vec<Vec<String>>, String) {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut quote = None;
    for (at, letter) in line.char_indices() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(letter);
            }
            (None, '#') if word.is_none() => {
                commands.push(words);
                return (commands, line[at..].to_owned());
            }
            (None, ' ' | '|' | ';' | '&') => {
                words.extend(word.take());
                if letter != ' ' {
                    commands.push(std::mem::take(&mut words));
                }
            }
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    commands.push(words);
    (commands, String::new())
}

/// Returns why the parser refuses a line, or why the line cannot be meant so.
fn fault(line: &str) -> Option<String> {
    // these placeholders stand for a number that the reader types
    let line = line.replace("$(pgrep -o solver)", "1").replace(" PID", " 1");
    let (commands, comment) = split(&line);
    if comment.contains(" unisono ") {
        return Some("a command stands in a comment".to_owned());
    }
    commands.iter().find_map(|words| {
        // `cargo build -p unisono` names a crate, and `PROGRAM=/usr/bin/unisono` a variable
        let is_program = |word: &str| word == "unisono" || word.ends_with("/unisono") && !word.contains('=');
        let at = words.iter().map(String::as_str).take_while(|word| *word != "cargo").position(is_program)?;
        let typed = words[at..].iter().take_while(|word| !word.starts_with(['>', '<']) && *word != "2>");
        // `pip uninstall unisono`, and directories of that name
        words.get(at + 1)?;
        let error = crate::Cli::command().try_get_matches_from(typed).err()?;
        error.use_stderr().then(|| error.to_string())
    })
}

#[test]
fn the_parser_takes_every_command_of_the_pages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = std::fs::read_dir(root.join("docs")).expect("the pages");
    let mut pages: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    pages.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    pages.extend([root.join("README.md"), root.join("examples/networks/README.md")]);
    let mut faults = Vec::new();
    let mut judged = 0;
    for path in pages {
        let page = std::fs::read_to_string(&path).expect("text");
        for (number, line) in shell_lines(&page) {
            judged += usize::from(line.contains("unisono "));
            faults.extend(fault(&line).map(|why| format!("{}:{number}: {line}\n{why}", path.display())));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(judged > 100, "{judged} lines");
}

#[test]
fn the_parser_takes_every_example_of_the_help_and_none_is_broken_in_80_columns() {
    let mut faults = Vec::new();
    visit_commands(&crate::Cli::command(), &mut |command| {
        for text in [command.get_after_help(), command.get_after_long_help()].into_iter().flatten() {
            let text = text.to_string();
            // clap breaks longer lines: a comment of TOML would go on as TOML, and a command in the next line
            let samples = text.lines().filter(|line| line.starts_with(' '));
            faults.extend(samples.filter(|line| line.chars().count() > 80).map(str::to_owned));
            let examples = text.lines().skip_while(|line| !["Examples:", "Start here:"].contains(line));
            let page = format!("```sh\n{}\n```", examples.skip(1).collect::<Vec<_>>().join("\n"));
            let lines = shell_lines(&page).into_iter().filter(|(_, line)| line.contains("unisono "));
            for (_, line) in lines.filter(|(_, line)| !line.starts_with(char::is_uppercase)) {
                // an explanation stands behind two spaces, or in lines of its own
                let typed = line.split_once("  ").map_or(&*line, |(typed, _)| typed);
                let is_command = typed.split(' ').any(|word| word == "unisono") && !typed.contains('`');
                faults.extend(fault(typed).filter(|_| is_command).map(|why| format!("{line}\n{why}")));
            }
        }
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_line_of_any_help_is_wider_than_80_columns() {
    let mut wide = Vec::new();
    visit_commands(&crate::Cli::command().term_width(80), &mut |command| {
        let help = command.clone().term_width(80).render_long_help().to_string();
        let lines = help.lines().filter(|line| line.trim_end().chars().count() > 80);
        wide.extend(lines.map(|line| format!("{}: {line}", command.get_name())));
    });
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

#[test]
fn a_command_in_the_comment_of_the_one_before_and_an_unknown_option_are_faults() {
    let page = "```sh\nunisono queue clear   # as it was sudo unisono queue show\nunisono queue \\\n    show --dve x\n```\n";
    let faults: Vec<_> = shell_lines(page).iter().filter_map(|(_, line)| fault(line)).collect();
    assert_eq!(faults[0], "a command stands in a comment");
    assert!(faults[1].contains("--dve"), "{faults:?}");
    assert_eq!(fault("sudo unisono queue show | cat  # for `unisono queue clear`"), None);
}
