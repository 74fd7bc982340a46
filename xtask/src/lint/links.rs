//! Links in the project's documents lead to an existing file of the project, and to an existing heading in
//! it. Links to the network are not checked.

use super::sources::{SourceFile, Sources};
use std::path::{Component, Path, PathBuf};

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources.files.iter().filter(|file| file.has_ending(".md")) {
        for (number, target) in links(&file.text) {
            if let Some(problem) = problem(sources, file, &target) {
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
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() {
        PathBuf::from(&from.path)
    } else {
        normal(&Path::new(&from.path).parent().unwrap_or(Path::new("")).join(path))
    };
    let file = sources.files.iter().find(|file| Path::new(&file.path) == path);
    if file.is_none() && !sources.root.join(&path).exists() {
        return Some(format!("{target} does not exist"));
    }
    let file = file.filter(|_| !heading.is_empty())?;
    let known = file.text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading);
    (!known).then(|| format!("{} has no heading for #{heading}", file.path))
}

/// Returns the targets of `[text](target)` outside code, with their line numbers.
fn links(text: &str) -> Vec<(usize, String)> {
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
        for rest in prose.split("](").skip(1) {
            if let Some((target, _)) = rest.split_once(')') {
                found.push((number, target.trim().to_owned()));
            }
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
    fn code_holds_no_links() {
        assert!(problems("`[x](y)`\n```\n[x](y)\n```\n").is_empty());
    }
}
