//! The modules of a folder form no cycle: code that two of them share belongs in a third module, below both.
//!
//! A module, together with all modules inside it, is compared with its siblings. A folder's own file
//! (`mod.rs`) may name the modules in the folder, and they may name it: it holds their common parts, such as
//! a trait, and is read together with them. The rule for the root of a crate is stricter: it names its
//! modules, and they must not need a name that it defines.

use super::graph::{self, Uses};
use crate::lint::code::{Code, CratePath};
use crate::lint::sources::{SourceFile, Sources};
use std::collections::BTreeMap;

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let mut crates: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for file in sources.rust() {
        if let Some((folder, rest)) = file.path.split_once("/src/")
            && !rest.starts_with("bin/")
        {
            crates.entry(folder).or_default().push(file);
        }
    }
    let folders = crates.iter().flat_map(|(folder, files)| CrateModules::read(folder, files).uses());
    folders.flat_map(|(folder, uses)| graph::cycles(&folder, "modules", &uses)).collect()
}

/// The modules of a crate, without test modules.
struct CrateModules<'a> {
    folder: &'a str,
    /// The modules, by their path from the root.
    modules: BTreeMap<CratePath, (Code, &'a SourceFile)>,
}

impl<'a> CrateModules<'a> {
    fn read(folder: &'a str, files: &[&'a SourceFile]) -> Self {
        let mut modules = BTreeMap::new();
        for file in files {
            let path: Vec<&str> =
                file.path[folder.len() + "/src/".len()..].trim_end_matches(".rs").split('/').collect();
            let path = match path[..] {
                ["lib" | "main"] => &[],
                [ref inner @ .., "mod"] => inner,
                ref all => all,
            };
            let code = Code::read(&file.text, path).unwrap_or_default();
            modules.insert(path.iter().map(ToString::to_string).collect(), (code, *file));
        }
        let for_tests: Vec<CratePath> = modules
            .iter()
            .flat_map(|(path, (code, _)): (&CratePath, &(Code, _))| {
                code.test_modules.iter().map(|name| [path.as_slice(), std::slice::from_ref(name)].concat())
            })
            .collect();
        modules.retain(|path, _| !for_tests.iter().any(|inner| path.starts_with(inner)));
        Self { folder, modules }
    }

    /// Finds the module that defines the item of `path`, and follows imports on the way. `None`: the path
    /// leads out of the crate.
    fn home(&self, path: &[String]) -> Option<CratePath> {
        let mut path = path.to_vec();
        // a limit for the case that re-exports form a loop; no name is re-exported more often than this
        for _ in 0..8 {
            let inside = (0..=path.len()).rev().find(|end| self.modules.contains_key(&path[..*end]))?;
            let offers = &self.modules[&path[..inside]].0.offers;
            let handed_on = path.get(inside).and_then(|name| offers.iter().find(|(offer, _)| offer == name));
            match handed_on {
                // a name of another crate appears to be in this crate's root, but no module has that path
                Some((_, target)) if self.modules.contains_key(&target[..1]) => {
                    path = [target, &path[inside + 1..]].concat();
                }
                _ => return Some(path[..inside].to_vec()),
            }
        }
        None
    }

    /// Returns for each folder how its modules use one another.
    fn uses(&self) -> BTreeMap<String, Uses> {
        let mut folders: BTreeMap<String, Uses> = BTreeMap::new();
        for (own, (code, file)) in &self.modules {
            for (path, line) in &code.paths {
                let Some(home) = self.home(path) else { continue };
                let shared = own.iter().zip(&home).take_while(|(one, other)| one == other).count();
                let (from, to) = match (own.get(shared), home.get(shared)) {
                    (Some(from), Some(to)) => (from.as_str(), to.as_str()),
                    (None, Some(to)) if shared == 0 => (ROOT, to.as_str()),
                    (Some(from), None) if shared == 0 => (from.as_str(), ROOT),
                    _ => continue,
                };
                let folder = match shared {
                    0 => self.folder.to_owned(),
                    _ => format!("{}/src/{}", self.folder, own[..shared].join("/")),
                };
                let uses = folders.entry(folder).or_default().entry(from.to_owned()).or_default();
                uses.entry(to.to_owned()).or_insert_with(|| format!("{}:{line}", file.path));
            }
        }
        folders
    }
}

/// Stands in the graph for the names that the root file itself defines and uses.
const ROOT: &str = "the root";

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        check(&Sources::from_texts(files))
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
    fn modules_inside_a_module_are_compared_with_those_beside_them() {
        let found = problems(&[
            ("x/src/lib.rs", "mod a;"),
            ("x/src/a/mod.rs", "mod b; mod c; mod d; use b::B; pub trait T {}"),
            ("x/src/a/b.rs", "use super::T; use super::c::C;"),
            ("x/src/a/c.rs", "use super::d::e::E;"),
            ("x/src/a/d/mod.rs", "pub mod e; #[cfg(test)] mod tests { use crate::a::c::C; }"),
            ("x/src/a/d/e.rs", "use super::super::B;"),
        ]);
        assert_eq!(
            found,
            ["x/src/a: 3 modules name one another in a cycle; the shortest: b -> c (x/src/a/b.rs:1) -> d \
                 (x/src/a/c.rs:1) -> b (x/src/a/d/e.rs:1)"]
        );
    }

    #[test]
    fn a_folders_own_file_belongs_to_each_module_in_it() {
        let files = [
            ("x/src/lib.rs", "mod a;"),
            ("x/src/a/mod.rs", "mod b; mod c; use b::B; use c::C; pub trait T {}"),
            ("x/src/a/b.rs", "use super::{T, c::C};"),
            ("x/src/a/c.rs", "use super::T;"),
        ];
        assert_eq!(problems(&files), Vec::<String>::new());
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
