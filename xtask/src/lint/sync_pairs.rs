//! Every ordering that matters names its partner: `// SYNC(name) release: ...` at one side,
//! `// SYNC(name) acquire: ...` at the other. A name with one side only is a partner lost.
//!
//! A pair of fences that must not both come second is written `fence` on each side, or `light` where
//! membarrier makes the other side's fence do for both.

use super::sources::Sources;
use std::collections::BTreeMap;

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

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> usize {
        check(&Sources::of(&[("crates/x/src/a.rs", text)])).len()
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
        assert!(check(&Sources::of(&files)).is_empty());
    }

    #[test]
    fn a_pair_without_a_side_is_a_problem() {
        assert_eq!(problems("// SYNC(go): x\n"), 2, "no side is named, so none is there");
    }
}
