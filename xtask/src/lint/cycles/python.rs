//! The Python modules of a folder form no cycle, and the modules of a package do not import from the package
//! itself.
//!
//! Imports inside functions and imports for type checkers count, too, because a reader follows them as well.

use super::graph::{self, Uses};
use crate::lint::sources::{SourceFile, Sources};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let mut folders: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for file in sources.files.iter().filter(|file| file.has_ending(".py")) {
        folders.entry(file.path.rsplit_once('/').map_or("", |(folder, _)| folder)).or_default().push(file);
    }
    folders
        .iter()
        .flat_map(|(folder, files)| graph::cycles(folder, "modules", &uses(folder, files)))
        .collect()
}

/// The name for the package's own file, `__init__.py`, in the graph.
const PACKAGE: &str = "__init__";

fn uses(folder: &str, files: &[&SourceFile]) -> Uses {
    let modules: BTreeSet<&str> = files.iter().map(|file| module_of(&file.path)).collect();
    let package = Some(folder.rsplit('/').next().unwrap_or(folder)).filter(|_| modules.contains(PACKAGE));
    let mut uses = Uses::new();
    for file in files {
        let own = uses.entry(module_of(&file.path).to_owned()).or_default();
        for (at, statement) in import_statements(&file.text) {
            let imported = imported_modules(&statement, package, &modules);
            for module in imported.into_iter().filter(|module| *module != module_of(&file.path)) {
                own.entry(module.to_owned()).or_insert_with(|| format!("{}:{at}", file.path));
            }
        }
    }
    uses
}

fn module_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path).trim_end_matches(".py")
}

/// Returns the statements that import, each in one line and with the number of its first line. Docstrings are
/// left out.
fn import_statements(text: &str) -> Vec<(usize, String)> {
    let mut statements = Vec::new();
    let mut in_docstring = false;
    let mut lines = text.lines().zip(1..);
    while let Some((line, at)) = lines.next() {
        let quotes = line.matches("\"\"\"").count();
        let is_code = !in_docstring && quotes == 0;
        in_docstring ^= quotes % 2 == 1;
        let mut statement = line.split('#').next().unwrap_or("").trim().to_owned();
        if !is_code || !(statement.starts_with("import ") || statement.starts_with("from ")) {
            continue;
        }
        while statement.ends_with('\\') || (statement.contains('(') && !statement.contains(')')) {
            let Some((more, _)) = lines.next() else { break };
            statement =
                format!("{} {}", statement.trim_end_matches('\\'), more.split('#').next().unwrap_or(""));
        }
        statements.push((at, statement.replace(['(', ')'], " ")));
    }
    statements
}

/// Returns the modules of the folder that a statement imports, or from which it imports names.
fn imported_modules<'a>(
    statement: &str,
    package: Option<&str>,
    modules: &BTreeSet<&'a str>,
) -> BTreeSet<&'a str> {
    let names = |list: &str| -> Vec<String> {
        list.split(',').filter_map(|item| item.split_whitespace().next().map(str::to_owned)).collect()
    };
    // returns the path of a module relative to the folder; `None` for a module of another folder
    let inside = |path: &str| -> Option<String> {
        match (path.strip_prefix('.'), package.and_then(|package| path.strip_prefix(package))) {
            (Some(path), _) if path.starts_with('.') => None, // it leads to the folder above
            (Some(path), _) => Some(path.to_owned()),
            (None, Some("")) => Some(String::new()),
            (None, Some(path)) if path.starts_with('.') => Some(path[1..].to_owned()),
            _ => Some(path.to_owned()).filter(|_| package.is_none()),
        }
    };
    let first = |path: &str| path.split('.').next().unwrap_or("").to_owned();
    let paths: Vec<String> =
        match statement.strip_prefix("from ").and_then(|rest| rest.split_once(" import ")) {
            Some((from, list)) => match inside(from.trim()) {
                // an imported name that is no module is defined in the package's own file
                Some(from) if from.is_empty() => names(list)
                    .into_iter()
                    .map(|name| if modules.contains(name.as_str()) { name } else { PACKAGE.to_owned() })
                    .collect(),
                Some(from) => vec![first(&from)],
                None => Vec::new(),
            },
            None => names(statement.trim_start_matches("import "))
                .iter()
                .filter_map(|path| inside(path))
                .map(|path| if path.is_empty() { PACKAGE.to_owned() } else { first(&path) })
                .collect(),
        };
    paths.iter().filter_map(|path| modules.get(path.as_str()).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        check(&Sources::from_texts(files))
    }

    #[test]
    fn modules_that_import_one_another_are_a_problem_even_for_type_checkers_alone() {
        let found = problems(&[
            (
                "p/u/__init__.py",
                "\"\"\"Example:\n    import u\n\"\"\"\nfrom .a import A\nfrom .b import B\n",
            ),
            (
                "p/u/a.py",
                "import os\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import B\n",
            ),
            ("p/u/b.py", "from .a import (  # the first\n    A,\n)\nfrom . import c as other\n"),
            ("p/u/c.py", "import ctypes\n"),
        ]);
        assert_eq!(
            found,
            [
                "p/u: 2 modules name one another in a cycle; the shortest: a -> b (p/u/a.py:4) -> a (p/u/b.py:1)"
            ]
        );
    }

    #[test]
    fn a_module_that_imports_from_its_package_is_in_a_cycle_and_one_of_another_folder_is_not() {
        let package = ("u/__init__.py", "from .a import A\n");
        assert_eq!(problems(&[package, ("u/a.py", "from . import VERSION\n")]).len(), 1);
        assert_eq!(
            problems(&[package, ("u/a.py", "import u.b\n"), ("u/b.py", "from u import A\n")]).len(),
            1
        );
        assert_eq!(problems(&[package, ("u/a.py", "from .. import VERSION\nimport a\n")]).len(), 0);
        assert_eq!(problems(&[("t/a.py", "import b\n"), ("t/b.py", "from a import A\n")]).len(), 1);
    }
}
