//! C files form no cycle: neither by `#include`, nor among the `.c` files of a folder by calls of one
//! another's functions.
//!
//! A file that names a function uses it. Macros, and inline functions of headers, count as if their bodies
//! were in the places where they are named. Functions that are defined by a macro, such as the exported ones
//! of the MPI shim, are not found; they are called by programs, not by the other files.

use super::graph::{self, Uses};
use crate::lint::sources::{SourceFile, Sources};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let files: Vec<(&str, CFile)> = sources
        .files
        .iter()
        .filter(|file| file.has_ending(".c") || file.has_ending(".h"))
        .map(|file| (file.path.as_str(), CFile::read(file)))
        .collect();
    let mut problems = graph::cycles("#include", "files", &include_uses(&files));
    let folders: BTreeSet<&str> = files.iter().map(|(path, _)| folder_of(path)).collect();
    for folder in folders {
        problems.extend(graph::cycles(folder, "files", &function_uses(folder, &files)));
    }
    problems
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// A name with its line.
type NameAt = (String, usize);

#[derive(Default)]
struct CFile {
    includes: Vec<NameAt>,
    /// The functions with external linkage.
    functions: BTreeSet<String>,
    /// The functions that are `static`.
    own: BTreeSet<String>,
    /// The names in the bodies of functions and in initial values.
    names: Vec<NameAt>,
    /// The names in the bodies of macros and, in a header, of functions; the key is the macro or function.
    bodies: BTreeMap<String, Vec<String>>,
}

impl CFile {
    fn read(file: &SourceFile) -> Self {
        let (code, directives) = without_comments(&file.text);
        let mut read = Self::default();
        for (directive, line) in directives {
            if let Some(name) = directive.strip_prefix("include").and_then(|rest| rest.split('"').nth(1)) {
                read.includes.push((name.to_owned(), line));
            } else if let Some(definition) = directive.strip_prefix("define") {
                let mut names =
                    tokens(definition).into_iter().map(|(token, _)| token).filter(|name| is_name(name));
                if let Some(name) = names.next() {
                    read.bodies.entry(name).or_default().extend(names);
                }
            }
        }
        read.read_code(&tokens(&code), file.has_ending(".h"));
        read
    }

    fn read_code(&mut self, tokens: &[NameAt], is_header: bool) {
        let (mut depth, mut head, mut function) = (0_usize, Vec::new(), None);
        for (at, (token, line)) in tokens.iter().enumerate() {
            match token.as_str() {
                "{" if depth == 0 && head == ["extern"] => head.clear(), // extern "C"
                "{" => {
                    if depth == 0 {
                        function = defined_function(&head);
                        let is_own = head.contains(&"static");
                        if let Some(name) = function {
                            let known = if is_own { &mut self.own } else { &mut self.functions };
                            known.insert(name.to_owned());
                        }
                    }
                    depth += 1;
                }
                "}" => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        head.clear();
                    }
                }
                ";" if depth == 0 => head.clear(),
                token if depth == 0 => head.push(token),
                name if is_name(name) && !is_member(&tokens[..at]) => match function {
                    Some(function) if is_header => {
                        self.bodies.entry(function.to_owned()).or_default().push(name.to_owned());
                    }
                    _ => self.names.push((name.to_owned(), *line)),
                },
                _ => {}
            }
        }
    }
}

/// Returns the function that a declaration defines if a body follows; `None` if it declares a type or a
/// value.
fn defined_function<'a>(head: &[&'a str]) -> Option<&'a str> {
    let (mut depth, mut found) = (0, None);
    for (at, token) in head.iter().enumerate() {
        match *token {
            "=" if depth == 0 => return None,
            "(" => {
                let before = at.checked_sub(1).map(|at| head[at]).filter(|name| is_name(name));
                found = before.filter(|name| depth == 0 && *name != "__attribute__").or(found);
                depth += 1;
            }
            ")" => depth -= 1,
            _ => {}
        }
    }
    found
}

/// Whether the next name is a member's name, because `.` or `->` precedes it.
fn is_member(before: &[NameAt]) -> bool {
    before.last().is_some_and(|(token, _)| {
        token == "." || token == ">" && before.len() > 1 && before[before.len() - 2].0 == "-"
    })
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

fn tokens(code: &str) -> Vec<NameAt> {
    let mut found: Vec<NameAt> = Vec::new();
    for (line, number) in code.lines().zip(1..) {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
            let length = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len()).max(first.len_utf8());
            found.push((rest[..length].to_owned(), number));
            rest = rest[length..].trim_start();
        }
    }
    found
}

/// Returns the code without comments, string contents and directives, with each line at its place; and the
/// directives, each without `#` and in one line.
fn without_comments(text: &str) -> (String, Vec<NameAt>) {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = match rest.as_bytes() {
            [b'/', b'*', ..] => rest.find("*/").map_or(rest.len(), |end| end + 2),
            [b'/', b'/', ..] => rest.find('\n').unwrap_or(rest.len()),
            // the name of an included file is kept, although it is in quotation marks
            [b'"', ..] if plain.rsplit('\n').next().is_some_and(|line| line.contains("include")) => 0,
            [quote @ (b'"' | b'\''), ..] => {
                let escaped =
                    |at: usize| rest[..at].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
                let ends = rest.match_indices(char::from(*quote)).skip(1);
                ends.map(|(at, _)| at).find(|at| !escaped(*at)).map_or(rest.len(), |end| end + 1)
            }
            _ => 0,
        };
        plain.extend(rest[..skipped].chars().filter(|letter| *letter == '\n'));
        if skipped == 0 {
            plain.push(first);
        }
        rest = &rest[skipped.max(if skipped == 0 { first.len_utf8() } else { 1 })..];
    }
    let (mut code, mut directives) = (String::new(), Vec::new());
    let mut lines = plain.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let Some(directive) = line.trim_start().strip_prefix('#') else {
            code += line;
            code.push('\n');
            continue;
        };
        let mut directive = directive.trim_start().to_owned();
        code.push('\n');
        while directive.ends_with('\\') {
            directive.pop();
            let Some((more, _)) = lines.next() else { break };
            directive += more;
            code.push('\n');
        }
        directives.push((directive, number));
    }
    (code, directives)
}

/// Maps each file to the files that it includes.
fn include_uses(files: &[(&str, CFile)]) -> Uses {
    let mut uses = Uses::new();
    for (path, file) in files {
        let own = uses.entry((*path).to_owned()).or_default();
        for (name, line) in &file.includes {
            let beside = beside(path, name);
            let mut elsewhere = files.iter().filter(|(other, _)| other.ends_with(&format!("/{name}")));
            let found = files.iter().find(|(other, _)| *other == beside);
            let found = found.or_else(|| elsewhere.next().filter(|_| elsewhere.next().is_none()));
            if let Some((other, _)) = found {
                own.entry((*other).to_owned()).or_insert_with(|| format!("{path}:{line}"));
            }
        }
    }
    uses
}

/// Resolves the name of an included file relative to the file that includes it.
fn beside(path: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder_of(path).split('/').collect();
    for part in name.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Maps each `.c` file of a folder to the other `.c` files whose functions it uses.
fn function_uses(folder: &str, files: &[(&str, CFile)]) -> Uses {
    let sources: Vec<&(&str, CFile)> =
        files.iter().filter(|(path, _)| folder_of(path) == folder && path.ends_with(".c")).collect();
    let mut homes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, file) in &sources {
        file.functions.iter().for_each(|name| homes.entry(name).or_default().push(path));
    }
    // a function that several files define, such as `main` in a folder of programs, says nothing about a use
    homes.retain(|_, paths| paths.len() == 1);
    let headers = || files.iter().filter(|(path, _)| path.ends_with(".h")).map(|(_, file)| file);
    let mut uses = Uses::new();
    for (path, file) in sources {
        let own = uses.entry((*path).to_owned()).or_default();
        for (name, line) in &file.names {
            let (mut open, mut known) = (vec![name.as_str()], BTreeSet::new());
            while let Some(name) = open.pop() {
                if !known.insert(name) || file.own.contains(name) || file.functions.contains(name) {
                    continue;
                }
                if let Some(home) = homes.get(name) {
                    own.entry(home[0].to_owned()).or_insert_with(|| format!("{path}:{line}"));
                }
                let bodies = std::iter::once(file).chain(headers()).filter_map(|file| file.bodies.get(name));
                open.extend(bodies.flatten().map(String::as_str));
            }
        }
    }
    uses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        check(&Sources::from_texts(files))
    }

    #[test]
    fn headers_that_include_one_another_are_a_problem() {
        let found = problems(&[
            ("x/a.h", "#include <stdio.h>\n#include \"y.h\"\n"),
            ("inc/y.h", "/* #include \"z.h\" */\n#include \"../x/b.h\"\n"),
            ("x/b.h", "#include \"a.h\"\n"),
            ("inc/z.h", "#include \"y.h\"\n"),
        ]);
        assert_eq!(
            found,
            [
                "#include: 3 files name one another in a cycle; the shortest: inc/y.h -> x/b.h (inc/y.h:2) -> x/a.h \
                 (x/b.h:1) -> inc/y.h (x/a.h:2)"
            ]
        );
    }

    #[test]
    fn files_that_use_one_anothers_functions_are_a_problem_also_through_macros_and_inline_functions() {
        let header =
            "int one(void);\n#define ONE(x) \\\n\tone()\nstatic inline int two(void) { return ONE(1); }\n";
        let calls_three = "int one(void)\n{\n\t/* three */ return three() + '\"' + x.two();\n}\n";
        let found = problems(&[
            ("x/x.h", header),
            ("x/a.c", calls_three),
            ("x/b.c", "int three(void) { char *text = \"one()\";\nreturn two(); }\n"),
        ]);
        assert_eq!(
            found,
            [
                "x: 2 files name one another in a cycle; the shortest: x/a.c -> x/b.c (x/a.c:3) -> x/a.c (x/b.c:2)"
            ]
        );
    }

    #[test]
    fn layers_static_functions_members_and_other_programs_are_no_cycle() {
        let found = problems(&[
            (
                "x/a.c",
                "static int f(void) { return 1; }\nint a(void) { return f(); }\nint main(void) { return a(); }\n",
            ),
            ("x/b.c", "int f(void) { return a(); }\nint main(void) { return f(); }\n"),
            (
                "y/c.c",
                "SEC(\"tc\") int c(struct s *s) { return s->d(s) + s->t.d(s); }\nint v = { 1 };\n",
            ),
            ("y/d.c", "extern int c(void);\nint d(void) __attribute__((cold)) { return c(); }\n"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }
}
