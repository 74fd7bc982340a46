//! The patterns that match a topic name: a tree of levels.
//!
//! Idea: each level of a pattern is a node. At each level, a topic's name follows at most two branches: the
//! branch with the level's own name, and `+`. Each `#` on the way matches as well. Cost: proportional to the
//! levels of the name and the wildcards on its branches, not to the number of patterns. The channel keeps the
//! result with the topic, and searches again only after a pattern was added or removed. A level takes up to
//! 256 bytes in addition to its name.

use crate::member_list::MemberList;
use crate::number_map::give_back;
use crate::pattern::TopicPattern;
use std::collections::HashMap;

/// Patterns, each with a number that the caller chooses.
#[derive(Debug, Default)]
pub(crate) struct PatternTrie {
    root: TrieLevel,
}

#[derive(Debug, Default)]
struct TrieLevel {
    // boxed, because a map with one entry has room for four
    named: HashMap<Box<str>, Box<TrieLevel>>,
    any: Option<Box<TrieLevel>>,
    /// The patterns that end here, and patterns that end with `#` below this level. `None`: there are
    /// neither.
    ends: Option<Box<LevelEnds>>,
}

#[derive(Debug, Default)]
struct LevelEnds {
    here: MemberList,
    rest: MemberList,
}

impl TrieLevel {
    fn is_empty(&self) -> bool {
        self.named.is_empty() && self.any.is_none() && self.ends.is_none()
    }

    fn here(&self) -> &[u32] {
        self.ends.as_ref().map_or(&[], |ends| ends.here.as_slice())
    }

    fn rest(&self) -> &[u32] {
        self.ends.as_ref().map_or(&[], |ends| ends.rest.as_slice())
    }

    fn remove_end(&mut self, remove: impl FnOnce(&mut LevelEnds)) {
        if let Some(ends) = &mut self.ends {
            remove(ends);
            if ends.here.is_empty() && ends.rest.is_empty() {
                self.ends = None;
            }
        }
    }

    fn remove<'a>(&mut self, mut levels: impl Iterator<Item = &'a str>, number: u32) {
        match levels.next() {
            None => self.remove_end(|ends| ends.here.remove(number)),
            Some("#") => self.remove_end(|ends| ends.rest.remove(number)),
            Some("+") => {
                if let Some(any) = &mut self.any {
                    any.remove(levels, number);
                    if any.is_empty() {
                        self.any = None;
                    }
                }
            }
            Some(name) => {
                if let Some(level) = self.named.get_mut(name) {
                    level.remove(levels, number);
                    if level.is_empty() {
                        self.named.remove(name);
                        give_back(&mut self.named);
                    }
                }
            }
        }
    }
}

impl PatternTrie {
    pub(crate) fn insert(&mut self, pattern: &TopicPattern, number: u32) {
        let mut at = &mut self.root;
        for level in pattern.levels() {
            at = match level {
                "#" => return at.ends.get_or_insert_default().rest.insert(number),
                "+" => at.any.get_or_insert_default(),
                name => at.named.entry(name.into()).or_default(),
            };
        }
        at.ends.get_or_insert_default().here.insert(number);
    }

    pub(crate) fn remove(&mut self, pattern: &TopicPattern, number: u32) {
        // the recursion is as deep as the pattern has levels, at most `MAX_LEVELS`
        self.root.remove(pattern.levels(), number);
    }

    /// Returns the numbers of the patterns that match, in no particular order.
    pub(crate) fn matching(&self, name: &str) -> Vec<u32> {
        let mut found = Vec::new();
        let mut at = vec![&self.root];
        for (depth, level) in name.split('/').enumerate() {
            let wild = depth > 0 || !name.starts_with('$');
            let mut below = Vec::new();
            for node in at {
                if wild {
                    found.extend(node.rest());
                    below.extend(node.any.as_deref());
                }
                below.extend(node.named.get(level).map(|level| &**level));
            }
            at = below;
        }
        for node in at {
            found.extend(node.rest());
            found.extend(node.here());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "", "$s"]), 1..5)
            .prop_map(|levels| levels.join("/"))
    }

    fn pattern() -> impl Strategy<Value = TopicPattern> {
        let level = prop::sample::select(vec!["a", "b", "", "$s", "+"]);
        (prop::collection::vec(level, 1..5), prop::bool::ANY).prop_filter_map(
            "a pattern",
            |(levels, rest)| {
                let text = levels.join("/") + if rest { "/#" } else { "" };
                text.parse().ok()
            },
        )
    }

    proptest! {
        #[test]
        fn the_tree_finds_the_patterns_that_match_one_by_one(
            patterns in prop::collection::vec((pattern(), prop::bool::ANY), 0..30),
            names in prop::collection::vec(name().prop_filter("no name is empty", |name| !name.is_empty()), 1..10),
        ) {
            let mut trie = PatternTrie::default();
            for (number, (pattern, _)) in (0..).zip(&patterns) {
                trie.insert(pattern, number);
            }
            for (number, (pattern, stays)) in (0..).zip(&patterns) {
                if !stays {
                    trie.remove(pattern, number);
                }
            }
            for name in names {
                let mut found = trie.matching(&name);
                found.sort_unstable();
                let matching = (0..).zip(&patterns).filter(|(_, (pattern, stays))| *stays && pattern.matches(&name));
                let expected: Vec<u32> = matching.map(|(number, _)| number).collect();
                prop_assert_eq!(found, expected);
            }
            for (number, (pattern, _)) in (0..).zip(&patterns) {
                trie.remove(pattern, number);
            }
            prop_assert!(trie.root.is_empty());
        }
    }
}
