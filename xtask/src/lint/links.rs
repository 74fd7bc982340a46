//! Links in the project's documents lead to an existing file of the project, and to an existing heading in
//! it. Links to the network are not checked. In documents that packages contain without the files, the text
//! of a link is the path of the file, or of its directory, because packages get the text alone.

use super::sources::{SourceFile, Sources};
use crate::package::PACKAGED_DOCUMENTS;
use std::path::{Component, Path, PathBuf};

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources.files.iter().filter(|file| file.has_ending(".md")) {
        for (number, words, target) in links(&file.text) {
            let found = problem(sources, file, &target).or_else(|| unnamed(file, &words, &target));
            if let Some(problem) = found {
                problems.push(format!("{}:{number}: {problem}", file.path));
            }
        }
    }
    problems
}

fn problem(sources: &Sources, from: &SourceFile, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let path = file_of(from, target);
    let heading = target.split_once('#').map_or("", |(_, heading)| heading);
    let file = sources.files.iter().find(|file| Path::new(&file.path) == path);
    if file.is_none() && !sources.root.join(&path).exists() {
        return Some(format!("{target} does not exist"));
    }
    let file = file.filter(|_| !heading.is_empty())?;
    let known = file.text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading);
    (!known).then(|| format!("{} has no heading for #{heading}", file.path))
}

/// Returns the problem of a link to a file in a document that packages contain, if its text does not name the
/// file.
fn unnamed(from: &SourceFile, words: &str, target: &str) -> Option<String> {
    let is_packaged = PACKAGED_DOCUMENTS.contains(&from.path.as_str());
    if !is_packaged || target.contains("://") || target.starts_with('#') {
        return None;
    }
    let path = file_of(from, target);
    let what = || format!("packages have this page, and not {0}: write [{0}]({target})", path.display());
    (!path.starts_with(words)).then(what)
}

/// Returns the target file of a link in `from`, relative to the workspace.
fn file_of(from: &SourceFile, target: &str) -> PathBuf {
    match target.split_once('#').map_or(target, |(path, _)| path) {
        "" => PathBuf::from(&from.path),
        path => normal(&Path::new(&from.path).parent().unwrap_or(Path::new("")).join(path)),
    }
}

/// Returns the text and the target of each `[text](target)` outside code, with their line numbers.
fn links(text: &str) -> Vec<(usize, String, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // code spans contain no links: only every second part, the text outside of backquotes, is kept
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let mut parts = prose.split("](");
        let mut before = parts.next().unwrap_or_default();
        for rest in parts {
            if let Some((target, _)) = rest.split_once(')') {
                let words = before.rsplit_once('[').map_or(before, |(_, words)| words);
                found.push((number, words.trim().to_owned(), target.trim().to_owned()));
            }
            before = rest;
        }
    }
    found
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' | '-' => Some('-'),
            c if c.is_alphanumeric() || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        check(&Sources::from_texts(&[("docs/a.md", text), ("README.md", "# The two commands\n")]))
    }

    #[test]
    fn a_link_to_a_missing_file_is_a_problem() {
        assert_eq!(problems("see [it](missing.md)\n"), ["docs/a.md:1: missing.md does not exist"]);
        assert!(problems("see [it](../README.md) and [that](https://example.org/x)\n").is_empty());
    }

    #[test]
    fn a_link_to_a_missing_heading_is_a_problem() {
        assert!(problems("[x](../README.md#the-two-commands)\n").is_empty());
        assert_eq!(problems("[x](../README.md#three)\n").len(), 1);
    }

    #[test]
    fn a_link_of_a_page_in_packages_has_the_path_of_its_file_as_text() {
        let found = |text: &str| {
            check(&Sources::from_texts(&[("python/README.md", text), ("docs/a.md", ""), ("b.md", "")]))
        };
        let wrong = "packages have this page, and not docs/a.md: write [docs/a.md](../docs/a.md)";
        let said = found("see [docs/a.md](../docs/a.md) and [it](../docs/a.md)\n");
        assert_eq!(said, [format!("python/README.md:1: {wrong}")]);
        assert!(found("[docs](../docs/a.md), [b.md](../b.md), [it](https://example.org)\n").is_empty());
        assert!(problems("[it](../README.md)\n").is_empty(), "packages lack this page");
    }

    #[test]
    fn code_holds_no_links() {
        assert!(problems("`[x](y)`\n```\n[x](y)\n```\n").is_empty());
    }
}
