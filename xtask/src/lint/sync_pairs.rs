//! Every ordering that matters names its partner: `// SYNC(name) release: ...` on one side, `// SYNC(name)
//! acquire: ...` on the other. If a name has only one side, the partner is missing.
//!
//! Every ordering stronger than `Relaxed` must be below such a comment, because no reader can check an
//! ordering without an explanation: it may be missing its partner, or be unnecessary. Tests may use any
//! ordering.
//!
//! In a store-buffering pattern each side stores, fences and then loads, and at least one side must see the
//! other's store. Write `fence` on each side; if one side calls membarrier, which replaces the other side's
//! fence, write `light` on that other side.

use super::sources::{SourceFile, Sources};
use std::collections::BTreeMap;

/// The number of lines above an ordering that are searched for its comment.
const MAX_DISTANCE: usize = 4;

/// This module wraps the atomics of std and loom, and only passes orderings on.
const FACADE: &str = "crates/sync/src/atomics.rs";

#[derive(Default)]
struct Sides {
    release: bool,
    acquire: bool,
    fences: u32,
    light: u32,
    first: String,
}

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let mut problems = Vec::new();
    let mut names: BTreeMap<String, Sides> = BTreeMap::new();
    for file in sources.rust().filter(|file| file.path.starts_with("crates/")) {
        problems.extend(unexplained(file));
        for (number, line) in (1..).zip(file.text.lines()) {
            let Some(rest) = line.split("// SYNC(").nth(1) else { continue };
            let place = format!("{}:{number}", file.path);
            let Some((name, (words, _))) =
                rest.split_once(')').and_then(|(name, rest)| Some((name, rest.split_once(':')?)))
            else {
                problems
                    .push(format!("{place}: write `// SYNC(name) release: why` (or acquire, fence, light)"));
                continue;
            };
            let sides = names.entry(name.to_owned()).or_default();
            if sides.first.is_empty() {
                sides.first.clone_from(&place);
            }
            for word in words.split([',', '+']).map(str::trim) {
                match word {
                    "release" => sides.release = true,
                    "acquire" => sides.acquire = true,
                    "fence" => sides.fences += 1,
                    "light" => sides.light += 1,
                    other => problems.push(format!(
                        "{place}: {other:?} is no side of a pair; release, acquire, fence or light"
                    )),
                }
            }
        }
    }
    for (name, sides) in names {
        let Sides { release, acquire, fences, light, first } = sides;
        let paired = (release && acquire) || fences >= 2 || (fences >= 1 && light >= 1);
        if !paired {
            problems.push(format!(
                "{first}: SYNC({name}) has one side only; name the other, or drop the ordering"
            ));
        } else if release != acquire {
            problems.push(format!("{first}: SYNC({name}) has a release without an acquire, or the reverse"));
        }
    }
    problems
}

/// Finds orderings stronger than `Relaxed` without a comment near them. In a file without the word
/// `Ordering`, a word such as `release` has another meaning.
fn unexplained(file: &SourceFile) -> Vec<String> {
    if !file.path.contains("/src/") || file.path == FACADE || !file.text.contains("Ordering") {
        return Vec::new();
    }
    let is_test = |line: &&str| {
        let line = line.trim();
        line == "#[cfg(test)]" || line.starts_with("#[cfg(all(test")
    };
    let lines: Vec<&str> = file.text.lines().take_while(|line| !is_test(line)).collect();
    let is_explained =
        |at: usize| lines[at.saturating_sub(MAX_DISTANCE)..=at].iter().any(|line| line.contains("// SYNC("));
    (0..lines.len())
        .filter(|at| is_ordering(lines[*at]) && !is_explained(*at))
        .map(|at| {
            format!(
                "{}:{}: which pair is this? write `// SYNC(name) release: why` above it",
                file.path,
                at + 1
            )
        })
        .collect()
}

/// Whether the code of a line contains an ordering stronger than `Relaxed`.
fn is_ordering(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    if code.trim_start().trim_start_matches("pub ").starts_with("use ") {
        return false;
    }
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let is_strong = |word: &str| matches!(word, "Acquire" | "Release" | "AcqRel" | "SeqCst");
    words.into_iter().any(is_strong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> usize {
        check(&Sources::from_texts(&[("crates/x/src/a.rs", text)])).len()
    }

    #[test]
    fn a_name_with_one_side_only_is_a_problem() {
        assert_eq!(problems("// SYNC(go) release: x\n// SYNC(go) acquire: y\n"), 0);
        assert_eq!(problems("// SYNC(go) release: x\n"), 1);
        assert_eq!(problems("// SYNC(go) release, acquire: x\n"), 0);
        assert_eq!(problems("// SYNC(go) fence: x\n"), 1);
        assert_eq!(problems("// SYNC(go) fence: x\n// SYNC(go) light: y\n"), 0);
    }

    #[test]
    fn sides_in_different_files_meet() {
        let files = [
            ("crates/x/src/a.rs", "// SYNC(go) release: x"),
            ("crates/y/src/b.rs", "// SYNC(go) acquire: x"),
        ];
        assert!(check(&Sources::from_texts(&files)).is_empty());
    }

    #[test]
    fn an_ordering_that_nobody_explains_is_a_problem() {
        let pair = "// SYNC(go) release, acquire: x\n";
        assert_eq!(problems("a.store(1, Ordering::Release);\n"), 1);
        assert_eq!(problems(&format!("{pair}a.store(1, Release);\n")), 0);
        let far = format!("use x::Ordering::*;\n{pair}{}a.load(SeqCst);\n", "let x = 1;\n".repeat(9));
        assert_eq!(problems(&far), 1);
        assert_eq!(problems("match order { Order::Release => 1 }\n"), 0, "another kind of release");
        assert_eq!(problems("a.load(Relaxed); // not SeqCst\nuse x::Ordering::{Acquire, Relaxed};\n"), 0);
        assert_eq!(problems("#[cfg(test)]\nmod tests { fn f() { a.load(SeqCst); } }\n"), 0);
    }

    #[test]
    fn a_pair_without_a_side_is_a_problem() {
        assert_eq!(problems("// SYNC(go): x\n"), 2, "no side is named, so none is there");
    }
}
