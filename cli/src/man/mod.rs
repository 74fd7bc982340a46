//! `unisono man`: writes the manual pages of commands (section 1) and of files (section 5). Each page has the
//! sections that man-pages(7) names.

mod files;
mod markdown;

use crate::exit::Failure;
use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use files::{FilePage, PAGES};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use unisono_text::misspelt;

/// Write manual pages: all into a directory, or the page of one command or of one kind of file
///
/// Section 1 has a page for each command, and section 5 a page for each file that people write: policy,
/// gang-rules, topology and study-file.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  unisono man ~/.local/share/man
      all pages, in man1 and man5; then: man unisono-gang-run
  unisono man gang
      the page unisono-gang.1 alone, in this directory
  unisono man gang run
      unisono-gang-run.1; then: man ./unisono-gang-run.1
  unisono man policy
      unisono-policy.5, about the files that `unisono queue apply` reads
  unisono man ./gang
      all pages, into a directory of that name")]
pub(crate) struct Args {
    /// The directory for all pages, made if it does not exist; or the words of one command; or a kind of file
    #[arg(value_name = "DIR|COMMAND|FILE", required = true)]
    place: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, program: Command) -> anyhow::Result<ExitCode> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    if let Some(command) = named(&program, &args.place) {
        let path = write_page(command, Path::new("."))?;
        crate::output::answer(&format!("manual page: {}", path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let [word] = &args.place[..]
        && let Some(page) = word.to_str().and_then(FilePage::named)
    {
        let path = write(&page.path(Path::new(".")), page.roff().as_bytes())?;
        crate::output::answer(&format!("manual page: {}", path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let [directory] = &args.place[..] else {
        let words: Vec<_> = args.place.iter().map(|word| word.to_string_lossy()).collect();
        let what = format!("there is no command `unisono {}`; see: unisono --help", words.join(" "));
        return Err(Failure::Usage(what).into());
    };
    if let Some(meant) = meant_by(directory, &program) {
        let word = directory.display();
        let what = format!(
            "there is no command `{word}`; did you mean `{meant}`? For a directory of that name write ./{word}"
        );
        return Err(Failure::Usage(what).into());
    }
    let sections = ["man1", "man5"].map(|section| directory.join(section));
    for section in &sections {
        std::fs::create_dir_all(section).with_context(|| format!("cannot create {}", section.display()))?;
    }
    write_all(&program, &sections[0])?;
    for page in PAGES {
        write(&page.path(&sections[1]), page.roff().as_bytes())?;
    }
    crate::output::answer(&format!("manual pages: {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the command or the kind of file that the name of a new directory probably means.
fn meant_by<'a>(directory: &Path, program: &'a Command) -> Option<&'a str> {
    let word = directory.to_str().filter(|word| !word.contains('/') && !directory.exists())?;
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
    misspelt(word, commands.chain(PAGES.iter().map(|page| page.name)))
}

/// Finds the command that these words name.
fn named<'a>(program: &'a Command, words: &[PathBuf]) -> Option<&'a Command> {
    words.iter().try_fold(program, |command, word| {
        command.find_subcommand(word).filter(|found| !found.is_hide_set())
    })
}

fn write_all(command: &Command, directory: &Path) -> anyhow::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_all(inner, directory)?;
    }
    write_page(command, directory).map(|_| ())
}

fn write_page(command: &Command, directory: &Path) -> anyhow::Result<PathBuf> {
    let man = Man::new(command.clone());
    let path = directory.join(man.get_filename());
    let mut page = Vec::new();
    render(&man, command, &mut page).context("a page in memory can be written")?;
    write(&path, &page)
}

fn write(path: &Path, page: &[u8]) -> anyhow::Result<PathBuf> {
    std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.to_owned())
}

fn render(man: &Man, command: &Command, page: &mut dyn Write) -> std::io::Result<()> {
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(page)?;
    }
    if command.get_subcommands().any(|inner| !inner.is_hide_set()) {
        man.render_subcommands_section(page)?;
    }
    let help = command.get_after_long_help().or(command.get_after_help());
    let (examples, notes) = examples_and_notes(&help.map(ToString::to_string).unwrap_or_default());
    section(page, "NOTES", &filled(&notes))?;
    section(page, "EXIT STATUS", &entries(EXIT_STATUS))?;
    let name = command.get_display_name().unwrap_or(command.get_name());
    for (heading, all) in [("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)] {
        let own = all.iter().filter(|(of, ..)| of.is_empty() || name.starts_with(of));
        let own: Vec<(&str, &str)> = own.map(|(_, tag, text)| (*tag, *text)).collect();
        section(page, heading, &entries(&own))?;
    }
    section(page, "EXAMPLES", &shown_examples(&examples))?;
    man.render_version_section(page)
}

/// Splits a help text into its examples, the lines below `Examples:` or `Start here:`, and the rest.
fn examples_and_notes(help: &str) -> (String, String) {
    let (mut examples, mut notes) = (Vec::new(), Vec::new());
    let mut is_example = false;
    for line in help.lines() {
        match line {
            "Examples:" | "Start here:" => is_example = true,
            _ if is_example && (line.starts_with(' ') || line.is_empty()) => examples.push(line),
            _ => {
                is_example = false;
                notes.push(line);
            }
        }
    }
    (examples.join("\n").trim_end().to_owned(), notes.join("\n").trim().to_owned())
}

/// Writes a section; writes nothing for an empty text.
fn section(page: &mut dyn Write, heading: &str, text: &str) -> std::io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    write!(page, ".SH \"{heading}\"\n{text}")
}

/// Returns filled paragraphs; each line of the text is a paragraph. Indented lines, such as samples, stay as
/// they are.
fn filled(text: &str) -> String {
    let mut roff = String::new();
    let mut block: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with(' ') || (line.is_empty() && !block.is_empty()) {
            block.push(line.to_owned());
            continue;
        }
        roff += &sample(&std::mem::take(&mut block));
        if !line.is_empty() {
            roff += &format!(".PP\n{}", markdown::protected(&markdown::escaped(line)));
        }
    }
    roff + &sample(&block)
}

/// Returns lines that are not filled. If one would be wider than a terminal, all begin at its left edge.
fn sample(lines: &[String]) -> String {
    let end = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |at| at + 1);
    let lines = &lines[..end];
    if lines.is_empty() {
        return String::new();
    }
    let is_wide = lines.iter().any(|line| line.chars().count() > MAX_SAMPLE);
    let shown = |line: &String| {
        let line = if is_wide { line.strip_prefix("  ").unwrap_or(line) } else { line };
        markdown::protected(&markdown::escaped(line))
    };
    let text: String = lines.iter().map(shown).collect();
    let (edge, back) = if is_wide { (".in 0\n", ".in\n") } else { ("", "") };
    format!(".PP\n.nf\n{edge}{text}{back}.fi\n")
}

/// Returns paragraphs that hang below their first words.
fn entries(entries: &[(&str, &str)]) -> String {
    let entry = |(tag, text): &(&str, &str)| {
        let [tag, text] = [tag, text].map(|text| markdown::protected(&markdown::escaped(text)));
        format!(".TP\n{tag}{text}")
    };
    entries.iter().map(entry).collect()
}

/// Returns the examples: the commands, broken where they are longer than a line of the page, and the
/// explanations below them.
fn shown_examples(examples: &str) -> String {
    sample(&examples.lines().flat_map(|line| broken(line, MAX_SAMPLE)).collect::<Vec<_>>())
}

/// Breaks a line of an example: a command goes on behind a backslash, an explanation in the next line.
fn broken(line: &str, width: usize) -> Vec<String> {
    let indent = line.len() - line.trim_start().len();
    let is_command = indent <= 2;
    let (margin, mark) = if is_command { (10, " \\") } else { (indent, "") };
    let mut lines = Vec::new();
    let mut rest = line.to_owned();
    while let Some((end, _)) = rest.char_indices().nth(width) {
        let end = mark
            .len()
            .checked_sub(1)
            .and_then(|at| rest[..end].char_indices().nth_back(at))
            .map_or(end, |(at, _)| at);
        let Some(space) = rest[..end].rfind(' ').filter(|at| *at > margin) else { break };
        lines.push(format!("{}{mark}", rest[..space].trim_end()));
        rest = format!("{:margin$}{}", "", rest[space..].trim_start());
    }
    lines.push(rest);
    lines
}

/// The number of characters in a line that is not filled, so that it fits a terminal of 80 columns: man(1)
/// leaves two columns free and indents the text by seven.
const MAX_SAMPLE: usize = 71;

const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "done"),
    ("1", "the work failed"),
    ("2", "bad usage or bad input"),
    (
        "3",
        "this host cannot do it, or the broker, the daemon or the policy that is needed is not there",
    ),
];

/// Environment variables: a prefix, the name and its purpose. The pages whose names begin with the prefix
/// show the entry.
const ENVIRONMENT: &[(&str, &str, &str)] = &[
    ("", "NO_COLOR", "is heeded: no output has colors"),
    (
        "",
        "COLUMNS",
        "if exported, the width of tables and texts where standard output is no terminal; the least important columns are \
         left out of a table that is wider, and texts are folded",
    ),
    (
        "unisono-events",
        "XDG_RUNTIME_DIR",
        "directory of the broker's default socket, unisono-events",
    ),
    (
        "unisono-mpi",
        "LD_PRELOAD",
        "is set for the program, with the preload library before the others",
    ),
    (
        "unisono-fit",
        "OMP_NUM_THREADS",
        "and the variables of other runtimes are set for the program, if they are not set",
    ),
    ("unisono-study", "XDG_CACHE_HOME", "directory of compiled programs"),
    ("unisono-doctor", "TMPDIR", "directory of the trials' files"),
];

/// Files: a prefix, the paths and their contents. The pages whose names begin with the prefix show the entry.
const FILES: &[(&str, &str, &str)] = &[
    (
        "unisono-events",
        "$XDG_RUNTIME_DIR/unisono-events, /tmp/unisono-UID/events",
        "socket of a user's broker",
    ),
    ("unisono-events", "/run/unisono/events", "socket of the host's broker"),
    ("unisono-gang", "/run/unisono/gang.sock", "socket of the daemon"),
    ("unisono-queue", "/run/unisono/queue", "journals: the state of devices before a policy"),
    ("unisono-queue-guard", "/run/unisono/queue-guard", "socket of the guard"),
    ("unisono-study", "DIR/records.jsonl, DIR/report.html", "records and report of a study"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn program() -> Command {
        let mut program = crate::Cli::command().disable_help_subcommand(true);
        program.build();
        program
    }

    #[test]
    fn a_page_has_examples_the_exit_status_the_environment_and_the_files() {
        let program = program();
        let words: Vec<PathBuf> = ["events", "serve"].map(PathBuf::from).to_vec();
        let command = named(&program, &words).expect("a command");
        let mut page = Vec::new();
        render(&Man::new(command.clone()), command, &mut page).expect("memory");
        let page = String::from_utf8(page).expect("text");
        for heading in ["NAME", "SYNOPSIS", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"] {
            assert!(
                page.contains(&format!(".SH \"{heading}\"")) || page.contains(&format!(".SH {heading}")),
                "{heading}"
            );
        }
        assert!(
            page.contains("XDG_RUNTIME_DIR") && page.contains("unisono events serve \\-\\-listen"),
            "{page}"
        );
        assert!(!page.contains("OMP_NUM_THREADS"), "another command's variable");
    }

    /// Calls `visit` with each page of section 1, and its name.
    fn pages(command: &Command, visit: &mut impl FnMut(&str, &str)) {
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            pages(inner, visit);
        }
        let (man, mut page) = (Man::new(command.clone()), Vec::new());
        render(&man, command, &mut page).expect("memory");
        visit(&man.get_filename(), &String::from_utf8(page).expect("text"));
    }

    /// roff breaks the lines of paragraphs, but not the lines of samples.
    #[test]
    fn no_line_of_a_page_is_wider_than_a_terminal_of_80_columns() {
        let mut all = Vec::new();
        pages(&program(), &mut |name, page| all.push((name.to_owned(), page.to_owned())));
        all.extend(PAGES.iter().map(|page| (page.name.to_owned(), page.roff())));
        let (mut wide, mut samples) = (Vec::new(), 0);
        for (name, page) in all {
            let (mut is_sample, mut room) = (false, MAX_SAMPLE);
            for line in page.lines() {
                match line {
                    ".nf" => is_sample = true,
                    ".fi" => is_sample = false,
                    ".RS 4" => room = MAX_SAMPLE - 4,
                    ".in 0" => room = 80,
                    ".RE" | ".in" => room = MAX_SAMPLE,
                    _ => {
                        let shown = line.replace("\\e", "e").replace('\\', "").replace("&", "");
                        samples += usize::from(is_sample);
                        if is_sample && shown.chars().count() > room {
                            wide.push(format!("{name}: {line}"));
                        }
                    }
                }
            }
        }
        assert!(samples > 100, "{samples} lines");
        assert!(wide.is_empty(), "{}", wide.join("\n"));
    }

    #[test]
    fn a_long_command_goes_on_in_the_next_line_and_notes_are_filled() {
        let lines = broken("  unisono queue apply policy.toml --dev eth0 --watch", 40);
        assert_eq!(lines, ["  unisono queue apply policy.toml \\", "          --dev eth0 --watch"]);
        assert_eq!(broken("      a b c", 10), ["      a b", "      c"]);
        assert_eq!(filled("One.\n\n  x = 1\nTwo."), ".PP\nOne.\n.PP\n.nf\n  x = 1\n.fi\n.PP\nTwo.\n");
    }

    #[test]
    fn the_words_of_a_command_name_its_page_and_a_path_names_none() {
        let program = program();
        let page = |words: &[&str]| {
            let words: Vec<PathBuf> = words.iter().map(PathBuf::from).collect();
            named(&program, &words).map(|command| Man::new(command.clone()).get_filename())
        };
        assert_eq!(page(&["gang"]).as_deref(), Some("unisono-gang.1"));
        assert_eq!(page(&["gang", "run"]).as_deref(), Some("unisono-gang-run.1"));
        assert_eq!(page(&["./gang"]), None);
        assert_eq!(page(&["/tmp/man1"]), None);
    }

    #[test]
    fn notes_are_apart_from_examples() {
        let (examples, notes) = examples_and_notes("Examples:\n  a\n\n  b\n\nAbout it.\nMore.");
        assert_eq!((examples.as_str(), notes.as_str()), ("  a\n\n  b", "About it.\nMore."));
    }
}
