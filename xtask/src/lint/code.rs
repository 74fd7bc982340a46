//! The code of a Rust file as tokens: which types it defines and which paths of its own crate it names. Code
//! for tests is left out.

use proc_macro2::{Delimiter, Ident, LexError, TokenStream, TokenTree};

/// A name and its line.
pub(super) type At = (String, usize);

#[derive(Default)]
pub(super) struct Code {
    /// Types, traits and aliases, those inside functions excepted.
    pub(super) types: Vec<At>,
    /// First segments of paths from the crate's root: `a` of `crate::a::B`, and of `super::a::B` one level
    /// below the root.
    pub(super) from_root: Vec<At>,
    /// What the root file offers under another path, as (`a`, `B`) for `pub use a::B`.
    pub(super) offers: Vec<(String, String)>,
    pub(super) test_modules: Vec<String>,
    /// Parameters of functions that are a bare `u64`, and functions that return one.
    pub(super) bare_numbers: Vec<At>,
}

impl Code {
    /// Reads a file that is `depth` modules below the crate's root. The error means that it is not Rust.
    pub(super) fn read(text: &str, depth: usize) -> Result<Self, LexError> {
        let mut code = Self::default();
        code.walk(&trees(text.parse()?), depth, Level::Module);
        Ok(code)
    }

    fn walk(&mut self, trees: &[TokenTree], depth: usize, level: Level) {
        let mut at = 0;
        while let Some(tree) = trees.get(at) {
            match tree {
                TokenTree::Punct(punct) if punct.as_char() == '#' && is_for_tests(trees.get(at + 1)) => {
                    at = self.skip_item(trees, at + 2);
                    continue;
                }
                TokenTree::Ident(word) if level == Level::Module && word == "mod" => {
                    if let Some(TokenTree::Group(body)) = trees.get(at + 2) {
                        self.walk(&trees_of(body), depth + 1, Level::Module);
                        at += 2;
                    }
                }
                TokenTree::Ident(word) if depth == 0 && word == "use" && is_public(&trees[..at]) => {
                    let end = trees[at..].iter().position(|t| is(t, ';')).map_or(trees.len(), |n| at + n);
                    self.offers.extend(leaves(&trees[at + 1..end]));
                    at = end;
                }
                TokenTree::Ident(word) => self.word(trees, at, word, depth, level),
                TokenTree::Group(group) => self.walk(&trees_of(group), depth, Level::Item),
                _ => {}
            }
            at += 1;
        }
    }

    fn word(&mut self, trees: &[TokenTree], at: usize, word: &Ident, depth: usize, level: Level) {
        let name = word.to_string();
        if name == "fn" {
            self.bare_numbers.extend(bare_numbers(&trees[at..]));
        }
        if level == Level::Module
            && ["struct", "enum", "union", "trait", "type"].contains(&name.as_str())
            && let Some(TokenTree::Ident(defined)) = trees.get(at + 1)
        {
            self.types.push((defined.to_string(), defined.span().start().line));
        }
        if at >= 2 && is(&trees[at - 1], ':') && is(&trees[at - 2], ':') {
            return; // within a path
        }
        let line = word.span().start().line;
        let mut next = at;
        let mut supers = 0;
        while matches!(trees.get(next), Some(TokenTree::Ident(word)) if word == "super") {
            supers += 1;
            next += 3;
        }
        if supers > 0 && supers == depth {
            self.from_root.extend(first_words(trees.get(next)).map(|name| (name, line)));
        } else if name == "crate" && trees.get(at + 1).is_some_and(|t| is(t, ':')) {
            self.from_root.extend(first_words(trees.get(at + 3)).map(|name| (name, line)));
        } else if depth == 0 && trees.get(at + 1).is_some_and(|t| is(t, ':')) {
            self.from_root.push((name, line));
        }
    }

    /// Where the item that begins at `at` ends.
    fn skip_item(&mut self, trees: &[TokenTree], at: usize) -> usize {
        let is_end = |tree: &TokenTree| {
            is(tree, ';') || matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
        };
        let end = trees[at..].iter().position(is_end).map_or(trees.len(), |n| at + n);
        if let [.., TokenTree::Ident(word), TokenTree::Ident(name)] = &trees[at..end]
            && word == "mod"
        {
            self.test_modules.push(name.to_string());
        }
        end + 1
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Module,
    Item,
}

fn trees(stream: TokenStream) -> Vec<TokenTree> {
    stream.into_iter().collect()
}

fn trees_of(group: &proc_macro2::Group) -> Vec<TokenTree> {
    trees(group.stream())
}

fn is(tree: &TokenTree, sign: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// Whether this is `[cfg(test)]`, or `[cfg(all(test, ...))]`.
fn is_for_tests(attribute: Option<&TokenTree>) -> bool {
    let text = attribute.map(ToString::to_string).unwrap_or_default().replace(' ', "");
    text.starts_with("[cfg(test)") || text.starts_with("[cfg(all(test")
}

/// The parameters of type `u64` of the function that begins here, and its name if it returns a `u64`.
fn bare_numbers(function: &[TokenTree]) -> Vec<At> {
    let at = |name: &Ident| (name.to_string(), name.span().start().line);
    let list = function.iter().position(
        |tree| matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis),
    );
    let Some(list) = list else { return Vec::new() };
    let TokenTree::Group(parameters) = &function[list] else { return Vec::new() };
    let parameters = trees_of(parameters);
    let bare = parameters.windows(3).filter_map(|window| match window {
        [TokenTree::Ident(name), colon, TokenTree::Ident(kind)] if is(colon, ':') && kind == "u64" => {
            Some(at(name))
        }
        _ => None,
    });
    let returned = match (function.get(1), &function[list + 1..]) {
        (Some(TokenTree::Ident(name)), [dash, arrow, TokenTree::Ident(kind), ..])
            if is(dash, '-') && is(arrow, '>') && kind == "u64" =>
        {
            Some(at(name))
        }
        _ => None,
    };
    bare.chain(returned).collect()
}

/// Whether the tokens before an item end in `pub` or `pub(crate)`.
fn is_public(before: &[TokenTree]) -> bool {
    let before = match before {
        [rest @ .., TokenTree::Group(group)] if group.delimiter() == Delimiter::Parenthesis => rest,
        all => all,
    };
    matches!(before.last(), Some(TokenTree::Ident(word)) if word == "pub")
}

/// `a` of `a::b`, or `a` and `c` of `{a::b, c}`.
fn first_words(tree: Option<&TokenTree>) -> impl Iterator<Item = String> {
    let words = match tree {
        Some(TokenTree::Ident(word)) => vec![word.to_string()],
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let trees = trees_of(group);
            trees.split(|tree| is(tree, ',')).filter_map(|part| Some(part.first()?.to_string())).collect()
        }
        _ => Vec::new(),
    };
    words.into_iter()
}

/// The first segment and the last name of everything that a `use` brings in.
fn leaves(tree: &[TokenTree]) -> Vec<(String, String)> {
    let words = tree.iter().filter_map(|t| match t {
        TokenTree::Ident(word) if !["crate", "self", "as"].contains(&word.to_string().as_str()) => {
            Some(word.to_string())
        }
        _ => None,
    });
    let words: Vec<String> = words.collect();
    let first = words.first().cloned();
    let within = match tree.last() {
        Some(TokenTree::Group(group)) => {
            let trees = trees_of(group);
            trees.split(|t| is(t, ',')).flat_map(leaves).collect()
        }
        _ => words.last().map(|last| vec![(last.clone(), last.clone())]).unwrap_or_default(),
    };
    within.into_iter().map(|(begin, leaf)| (first.clone().unwrap_or(begin), leaf)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, depth: usize) -> Code {
        Code::read(text, depth).expect("Rust")
    }

    fn names(found: &[At]) -> Vec<&str> {
        found.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn types_of_modules_are_found_and_those_of_tests_functions_and_impls_are_not() {
        let code = read(
            "pub struct A; mod b { pub(crate) enum B {} } impl C { type D = u8; } fn f() { struct E; }\n\
             type F = u8;\n#[cfg(test)]\nmod tests { struct G; }\n#[cfg(test)] mod oracle;\ntrait H {}",
            1,
        );
        assert_eq!(names(&code.types), ["A", "B", "F", "H"]);
        assert_eq!(code.types[2].1, 2);
        assert_eq!(code.test_modules, ["tests", "oracle"]);
    }

    #[test]
    fn paths_from_the_root_are_found_wherever_they_stand() {
        let text = "use crate::{a::B, c}; use super::d::E; use super::super::f; fn g() { crate::h::i(); }\n\
            pub(crate) fn j() { println!(\"{}\", crate::k); } use other::crate_name;";
        assert_eq!(names(&read(text, 1).from_root), ["a", "c", "d", "h", "k"]);
        assert_eq!(names(&read(text, 2).from_root), ["a", "c", "f", "h", "k"]);
    }

    #[test]
    fn what_the_root_offers_is_known_by_its_module() {
        let code = read("mod a; pub use a::{B, c::D}; pub(crate) use e::F as G; use h::I;", 0);
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(code.offers, [pair("a", "B"), pair("a", "D"), pair("e", "G")]);
        assert_eq!(names(&code.from_root), ["h"]);
    }
}
