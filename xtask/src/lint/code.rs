//! The code of a Rust file as tokens: the types that it defines and the paths of its own crate that it names.
//! Ignores test code.

use proc_macro2::{Delimiter, Ident, LexError, TokenStream, TokenTree};

/// A name and its line.
pub(super) type At = (String, usize);

/// The segments of a path, starting at the crate's root.
pub(super) type CratePath = Vec<String>;

#[derive(Default)]
pub(super) struct Code {
    /// Types, traits and aliases, except inside functions.
    pub(super) types: Vec<At>,
    /// The paths of its own crate that the code names, from the root: `a::B` for `crate::a::B`, and for
    /// `super::B` in `a::c`. Each has its line.
    pub(super) paths: Vec<(CratePath, usize)>,
    /// The file's imports, by name: modules inside it reach these names through it.
    pub(super) offers: Vec<(String, CratePath)>,
    pub(super) test_modules: Vec<String>,
    /// Function parameters of plain type `u64`, and functions that return a `u64`.
    pub(super) bare_numbers: Vec<At>,
}

impl Code {
    /// Reads the file of the module `own`. Fails if the file is not Rust.
    pub(super) fn read(text: &str, own: &[&str]) -> Result<Self, LexError> {
        let mut code = Self::default();
        let own: CratePath = own.iter().map(|name| (*name).to_owned()).collect();
        code.walk(&trees(text.parse()?), &own, Level::Module);
        Ok(code)
    }

    fn walk(&mut self, trees: &[TokenTree], own: &[String], level: Level) {
        let mut at = 0;
        while let Some(tree) = trees.get(at) {
            match tree {
                TokenTree::Punct(punct) if punct.as_char() == '#' && is_for_tests(trees.get(at + 1)) => {
                    at = self.skip_item(trees, at + 2);
                    continue;
                }
                TokenTree::Ident(word) if level == Level::Module && word == "mod" => {
                    if let Some(TokenTree::Group(body)) = trees.get(at + 2) {
                        let inner = trees.get(at + 1).map(ToString::to_string);
                        let inner: CratePath = own.iter().cloned().chain(inner).collect();
                        self.walk(&trees_of(body), &inner, Level::Module);
                        at += 2;
                    }
                }
                TokenTree::Ident(word) if level == Level::Module && word == "use" => {
                    let end = trees[at..].iter().position(|t| is(t, ';')).map_or(trees.len(), |n| at + n);
                    for (path, name) in paths(&trees[at + 1..end]) {
                        let known = absolute(&path, own);
                        // a module that re-exports names does not thereby use them
                        if !is_public(&trees[..at]) {
                            let line = word.span().start().line;
                            self.paths.extend(known.clone().map(|path| (path, line)));
                        }
                        self.offers.push((name, known.unwrap_or_else(|| [own, &path].concat())));
                    }
                    at = end;
                }
                TokenTree::Ident(word) => self.word(trees, at, word, own, level),
                TokenTree::Group(group) => self.walk(&trees_of(group), own, Level::Item),
                _ => {}
            }
            at += 1;
        }
    }

    fn word(&mut self, trees: &[TokenTree], at: usize, word: &Ident, own: &[String], level: Level) {
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
            return; // the word continues a path that was read already
        }
        let line = word.span().start().line;
        let known = paths(&trees[at..]).into_iter().filter_map(|(path, _)| absolute(&path, own));
        self.paths.extend(known.map(|path| (path, line)));
    }

    /// Returns the position of the end of the item that begins at `at`.
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

/// Whether the attribute is `[cfg(test)]`, or `[cfg(all(test, ...))]`.
fn is_for_tests(attribute: Option<&TokenTree>) -> bool {
    let text = attribute.map(ToString::to_string).unwrap_or_default().replace(' ', "");
    text.starts_with("[cfg(test)") || text.starts_with("[cfg(all(test")
}

/// Returns the parameters of type `u64` of the function that begins here, and the function's name if it
/// returns a `u64`.
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

/// Returns the paths that begin here, each with the name that it imports: for `a::{b, c as d}` it returns
/// `a::b` with `b` and `a::c` with `d`.
fn paths(trees: &[TokenTree]) -> Vec<(CratePath, String)> {
    let mut path = CratePath::new();
    let mut at = 0;
    loop {
        match trees.get(at) {
            Some(TokenTree::Ident(word)) => path.push(word.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let within = trees_of(group);
                let inner = within.split(|tree| is(tree, ',')).flat_map(paths);
                return inner.map(|(rest, name)| ([path.as_slice(), &rest].concat(), name)).collect();
            }
            _ => break,
        }
        at += 1;
        if !matches!(&trees[at..], [one, two, ..] if is(one, ':') && is(two, ':')) {
            break;
        }
        at += 2;
    }
    let alias = match &trees[at.min(trees.len())..] {
        [TokenTree::Ident(word), TokenTree::Ident(alias), ..] if word == "as" => Some(alias.to_string()),
        _ => None,
    };
    path.last().cloned().map(|last| (path, alias.unwrap_or(last))).into_iter().collect()
}

/// Converts a path that the module `own` names to a path from the crate's root. Returns `None` if the path
/// may lead out of the crate, or names a module and no item in it, as `pub(super)` does.
fn absolute(path: &[String], own: &[String]) -> Option<CratePath> {
    let first = path.first()?;
    let (base, rest) = match first.as_str() {
        "crate" => (&[][..], &path[1..]),
        "self" => (own, &path[1..]),
        "super" => {
            let up = path.iter().take_while(|word| *word == "super").count();
            (&own[..own.len().checked_sub(up)?], &path[up..])
        }
        // at the root, the first segment is a module of the root, or another crate
        _ if own.is_empty() && path.len() > 1 => (own, path),
        _ => return None,
    };
    (!rest.is_empty()).then(|| [base, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, own: &[&str]) -> Code {
        Code::read(text, own).expect("Rust")
    }

    fn names(found: &[At]) -> Vec<&str> {
        found.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn types_of_modules_are_found_and_those_of_tests_functions_and_impls_are_not() {
        let code = read(
            "pub struct A; mod b { pub(crate) enum B {} } impl C { type D = u8; } fn f() { struct E; }\n\
             type F = u8;\n#[cfg(test)]\nmod tests { struct G; }\n#[cfg(test)] mod oracle;\ntrait H {}",
            &["x"],
        );
        assert_eq!(names(&code.types), ["A", "B", "F", "H"]);
        assert_eq!(code.types[2].1, 2);
        assert_eq!(code.test_modules, ["tests", "oracle"]);
    }

    #[test]
    fn paths_from_the_root_are_found_wherever_they_stand() {
        let text = "use crate::{a::B, c as x}; use super::d::E; use super::super::f; use self::l::M;\n\
            fn g() { crate::h::i(); }\n\
            pub(super) fn j() { println!(\"{}\", crate::k); } use other::crate_name; use super::*;";
        let paths = |own: &[&str]| -> Vec<String> {
            read(text, own).paths.iter().map(|(path, _)| path.join("::")).collect()
        };
        assert_eq!(paths(&["m"]), ["a::B", "c", "d::E", "m::l::M", "h::i", "k"]);
        assert_eq!(paths(&["m", "n"]), ["a::B", "c", "m::d::E", "f", "m::n::l::M", "h::i", "k"]);
    }

    #[test]
    fn what_a_module_imports_is_known_by_its_path_and_is_used_only_if_it_is_private() {
        let code = read("mod a; pub use a::{B, c::D}; pub(crate) use e::F as G; use h::I;", &[]);
        let pair =
            |name: &str, path: &[&str]| (name.to_owned(), path.iter().map(ToString::to_string).collect());
        let offers = [
            pair("B", &["a", "B"]),
            pair("D", &["a", "c", "D"]),
            pair("G", &["e", "F"]),
            pair("I", &["h", "I"]),
        ];
        assert_eq!(code.offers, offers);
        assert_eq!(code.paths, [(vec!["h".to_owned(), "I".to_owned()], 1)]);
        assert_eq!(read("pub use a::B;", &["x"]).offers, [pair("B", &["x", "a", "B"])]);
    }
}
