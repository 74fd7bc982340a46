//! The modules of a crate form no cycle: what two of them share is in a third, below both. A module here is
//! one that the crate's root declares, with everything inside it.

use super::Problem;
use super::code::Code;
use super::sources::{SourceFile, Sources};
use std::collections::{BTreeMap, BTreeSet};

/// For each module, the modules that it names, each with a file and line.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

pub(super) fn check(sources: &Sources) -> Vec<Problem> {
    let mut crates: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for file in sources.rust() {
        if let Some((folder, rest)) = file.path.split_once("/src/")
            && !rest.starts_with("bin/")
        {
            crates.entry(folder).or_default().push(file);
        }
    }
    crates.iter().flat_map(|(folder, files)| cycles(folder, &uses(folder, files))).collect()
}

fn uses(folder: &str, files: &[&SourceFile]) -> Uses {
    let mut codes = Vec::new();
    for file in files {
        let path: Vec<&str> =
            file.path[folder.len() + "/src/".len()..].trim_end_matches(".rs").split('/').collect();
        let path = match path[..] {
            ["lib" | "main"] => vec![],
            [ref inner @ .., "mod"] => inner.to_vec(),
            ref all => all.to_vec(),
        };
        codes.push((Code::read(&file.text, path.len()).unwrap_or_default(), path, file));
    }
    let for_tests: Vec<Vec<&str>> = codes
        .iter()
        .flat_map(|(code, path, _)| {
            code.test_modules.iter().map(|name| path.iter().copied().chain([name.as_str()]).collect())
        })
        .collect();
    let modules: BTreeSet<&str> = codes.iter().filter_map(|(_, path, _)| path.first().copied()).collect();
    let offers = codes.iter().filter(|(_, path, _)| path.is_empty()).flat_map(|(code, ..)| &code.offers);
    let offered: BTreeMap<&str, &str> =
        offers.map(|(module, name)| (name.as_str(), module.as_str())).collect();
    let mut uses = Uses::new();
    for (code, path, file) in &codes {
        if for_tests.iter().any(|inner| path.starts_with(inner)) {
            continue;
        }
        let own = path.first().copied().unwrap_or(ROOT);
        for (name, line) in &code.from_root {
            let name = name.as_str();
            let module =
                match modules.get(name).or_else(|| offered.get(name).filter(|m| modules.contains(**m))) {
                    Some(module) => module,
                    None if own == ROOT => continue, // another crate, or its own
                    None => ROOT,
                };
            if module != own {
                let place = || format!("{}:{line}", file.path);
                uses.entry(own.to_owned()).or_default().entry(module.to_owned()).or_insert_with(place);
            }
        }
    }
    uses
}

/// What the root file itself defines and names.
const ROOT: &str = "the root";

/// One problem for each set of modules that reach one another: its shortest cycle.
fn cycles(folder: &str, uses: &Uses) -> Vec<Problem> {
    let mut known = BTreeSet::new();
    let mut problems = Vec::new();
    for module in uses.keys() {
        if known.contains(module) {
            continue;
        }
        let tied: BTreeSet<&String> = uses
            .keys()
            .filter(|other| way(uses, module, other).is_some() && way(uses, other, module).is_some())
            .collect();
        known.extend(tied.iter().copied().cloned());
        if let Some(cycle) = tied.iter().filter_map(|start| way(uses, start, start)).min_by_key(Vec::len) {
            let arrows: Vec<String> =
                cycle.windows(2).map(|pair| format!("{} ({})", pair[1], uses[pair[0]][pair[1]])).collect();
            problems.push(Problem {
                key: folder.to_owned(),
                text: format!(
                    "{folder}: {} modules name one another in a cycle; the shortest: {} -> {}",
                    tied.len(),
                    cycle[0],
                    arrows.join(" -> ")
                ),
            });
        }
    }
    problems
}

/// The shortest way of at least one arrow.
fn way<'a>(uses: &'a Uses, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut ways = vec![vec![from]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in uses.get(*way.last()?).into_iter().flat_map(BTreeMap::keys) {
                let mut way = way.clone();
                way.push(next);
                if next == to {
                    return Some(way);
                }
                if seen.insert(next) {
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        check(&Sources::of(files)).into_iter().map(|problem| problem.text).collect()
    }

    #[test]
    fn modules_that_name_one_another_are_a_problem_with_the_places() {
        let found = problems(&[
            ("x/src/lib.rs", "mod a; mod b; mod c;"),
            ("x/src/a.rs", "use crate::b::B;"),
            ("x/src/b/mod.rs", "mod inner;\nuse super::c;"),
            ("x/src/b/inner.rs", "\nfn f() { crate::a::g() }"),
            ("x/src/c.rs", "use std::fmt;"),
        ]);
        assert_eq!(
            found,
            [
                "x: 2 modules name one another in a cycle; the shortest: a -> b (x/src/a.rs:1) -> a (x/src/b/inner.rs:2)"
            ]
        );
    }

    #[test]
    fn modules_in_layers_and_those_of_tests_are_no_problem() {
        let layered = [
            ("x/src/lib.rs", "mod a; mod b; pub use a::A; #[cfg(test)] mod c;"),
            ("x/src/a.rs", "use crate::b::B; #[cfg(test)] mod tests { use crate::c::C; }"),
            ("x/src/b.rs", "#[cfg(test)] mod tests { use crate::a::A; }"),
            ("x/src/c.rs", "use crate::a::A; use crate::b::B;"),
        ];
        assert_eq!(problems(&layered), Vec::<String>::new());
    }

    #[test]
    fn a_name_that_the_root_offers_counts_for_its_module() {
        let found = problems(&[
            ("x/src/lib.rs", "mod a; mod b; pub use a::A;"),
            ("x/src/a.rs", "use crate::b::B;"),
            ("x/src/b.rs", "use crate::A;"),
        ]);
        assert!(found[0].ends_with("a -> b (x/src/a.rs:1) -> a (x/src/b.rs:1)"), "{found:?}");
    }

    #[test]
    fn what_the_root_defines_must_not_need_those_who_name_it() {
        let root = "mod a; pub struct Shared(a::A);";
        assert_eq!(problems(&[("x/src/lib.rs", root), ("x/src/a.rs", "use crate::Shared;")]).len(), 1);
        assert_eq!(problems(&[("x/src/lib.rs", root), ("x/src/a.rs", "use std::fmt;")]).len(), 0);
    }
}
