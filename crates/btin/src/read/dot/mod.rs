//! Reads Graphviz DOT.
//!
//! The reader accepts `graph` and `digraph` (cables have no direction), chains of edges, subgraphs as ends of
//! edges, defaults (`node [type=switch]`), names in quotes and in HTML, and comments of all three kinds. A
//! port is written `a:1`; compass points are ignored. The reader uses these attributes of a vertex: `role`,
//! `type`, `kind`, `ports`, `member`, and those named by `--role`; and of an edge: `sourceport`, `tailport`,
//! `targetport`, `headport`. It counts and reports all others.
//!
//! The parser is our own because errors must name line and column, and because the language is small.

mod lex;

use super::draft::{Draft, DraftCable, Plug};
use super::words::VertexRole;
use crate::format::ReadError;
use lex::{Lexer, Token};
use std::collections::BTreeMap;

/// The maximum depth of nested subgraphs. Much deeper files would exhaust the stack.
const DEEPEST: usize = 64;

/// The maximum number of cables from edges between subgraphs. Such an edge joins each vertex of one subgraph
/// to each vertex of the other.
const MAX_CABLES: usize = 1_000_000;

/// The maximum number of attributes that `node [...]` may set. Every new vertex gets all of them, so the time
/// grows with the product of their number and the number of vertices. Graphviz knows about 180.
const MAX_DEFAULTS: usize = 256;

pub(super) fn read(text: &str, roles: &[VertexRole]) -> Result<Draft, ReadError> {
    let mut parser = Parser { lexer: Lexer::new(text), draft: Draft::new(roles), depth: 0, products: 0 };
    parser.graph()?;
    Ok(parser.draft)
}

/// The attributes set by `node [...]`, which vertices that first appear later inherit.
type Defaults = BTreeMap<String, String>;

/// The vertices at one end of an edge, each with its port if the file names it.
type EdgeEnds = Vec<(usize, Option<String>)>;

struct Parser<'a> {
    lexer: Lexer<'a>,
    draft: Draft,
    depth: usize,
    /// The number of cables so far from edges between subgraphs.
    products: usize,
}

impl Parser<'_> {
    fn wrong<T>(&self, at: usize, problem: impl Into<String>) -> Result<T, ReadError> {
        Err(ReadError::at(self.lexer.text(), at, "", problem))
    }

    fn graph(&mut self) -> Result<(), ReadError> {
        if self.lexer.peek()?.1.is_word("strict") {
            self.lexer.next()?;
            let note = "strict: nothing was left out for it, parallel links are kept";
            self.draft.notes.push(note.to_owned());
        }
        let (at, token) = self.lexer.next()?;
        if !token.is_word("graph") && !token.is_word("digraph") {
            return self.wrong(at, format!("{token}, expected graph or digraph"));
        }
        if matches!(self.lexer.peek()?.1, Token::Name { .. }) {
            self.lexer.next()?;
        }
        self.expect(&Token::Open)?;
        let mut inside = EdgeEnds::new();
        self.statements(Defaults::new(), &mut inside)?;
        match self.lexer.next()? {
            (_, Token::End) => Ok(()),
            (at, token) => self.wrong(at, format!("{token} after the end of the graph; one graph a file")),
        }
    }

    fn expect(&mut self, wanted: &Token) -> Result<(), ReadError> {
        match self.lexer.next()? {
            (_, token) if token == *wanted => Ok(()),
            (at, token) => self.wrong(at, format!("{token}, expected {wanted}")),
        }
    }

    /// Reads statements up to and including the closing brace; adds every vertex to `inside`.
    fn statements(&mut self, mut defaults: Defaults, inside: &mut EdgeEnds) -> Result<(), ReadError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.wrong(self.lexer.at(), format!("subgraphs more than {DEEPEST} deep"));
        }
        loop {
            let (at, token) = self.lexer.peek()?;
            match token {
                Token::Close => {
                    self.lexer.next()?;
                    self.depth -= 1;
                    return Ok(());
                }
                Token::Separator => drop(self.lexer.next()?),
                Token::End => return self.wrong(at, "the file ends before its } does"),
                word if word.is_word("graph") || word.is_word("edge") => {
                    self.lexer.next()?;
                    let what = if word.is_word("graph") { "graph attribute" } else { "edge attribute" };
                    for (_, key, _) in self.attributes()? {
                        self.draft.unknown(what, &key);
                    }
                }
                word if word.is_word("node") => {
                    self.lexer.next()?;
                    for (at, key, value) in self.attributes()? {
                        defaults.insert(key, value);
                        if defaults.len() > MAX_DEFAULTS {
                            let max = MAX_DEFAULTS;
                            let problem = format!("more than {max} attributes of vertices in effect at once");
                            return self.wrong(at, problem);
                        }
                    }
                }
                _ => self.statement(&defaults, inside)?,
            }
        }
    }

    /// Reads a vertex, a chain of edges, a subgraph, or `key=value`.
    fn statement(&mut self, defaults: &Defaults, inside: &mut EdgeEnds) -> Result<(), ReadError> {
        let start = self.lexer.at();
        let mut before = match self.ends(defaults, inside)? {
            Some(ends) => ends,
            None => return Ok(()), // key=value
        };
        let mut edges = Vec::new();
        while matches!(self.lexer.peek()?.1, Token::Edge) {
            let (at, _) = self.lexer.next()?;
            let Some(after) = self.ends(defaults, inside)? else {
                return self.wrong(at, "expected a vertex or subgraph after the edge");
            };
            let product = before.len().saturating_mul(after.len());
            if product > 1 {
                self.products = self.products.saturating_add(product);
            }
            if self.products > MAX_CABLES {
                return self.wrong(at, format!("more than {MAX_CABLES} cables between subgraphs"));
            }
            for (a, a_port) in &before {
                for (b, b_port) in &after {
                    edges.push(self.draft.cables.len());
                    let a = Plug { vertex: *a, port: a_port.clone() };
                    let b = Plug { vertex: *b, port: b_port.clone() };
                    self.draft.cables.push(DraftCable { a, b, at });
                }
            }
            before = after;
        }
        if !matches!(self.lexer.peek()?.1, Token::OpenList) {
            return Ok(());
        }
        for (at, key, value) in self.attributes()? {
            if edges.is_empty() {
                for (vertex, _) in before.clone() {
                    self.vertex_attribute(vertex, at, &key, &value)?;
                }
                continue;
            }
            let port = match key.to_ascii_lowercase().replace('_', "").as_str() {
                "sourceport" | "tailport" => |cable: &mut DraftCable, port| cable.a.port = Some(port),
                "targetport" | "headport" => |cable: &mut DraftCable, port| cable.b.port = Some(port),
                _ => {
                    self.draft.unknown("edge attribute", &key);
                    continue;
                }
            };
            let Some((name, _)) = port_of(&[value.as_str()]) else { continue };
            if edges.len() > 1 {
                return self.wrong(start, format!("{key} for {} edges at once", edges.len()));
            }
            for edge in &edges {
                port(&mut self.draft.cables[*edge], name.clone());
            }
        }
        Ok(())
    }

    fn vertex_attribute(
        &mut self,
        vertex: usize,
        at: usize,
        key: &str,
        value: &str,
    ) -> Result<(), ReadError> {
        match self.draft.attribute(vertex, key, value) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.draft.unknown("node attribute", key);
                Ok(())
            }
            Err(problem) => self.wrong(at, problem),
        }
    }

    /// Reads one end of an edge: a vertex with or without port, or a subgraph. `None` if it was `key=value`
    /// instead.
    fn ends(&mut self, defaults: &Defaults, inside: &mut EdgeEnds) -> Result<Option<EdgeEnds>, ReadError> {
        let (at, token) = self.lexer.next()?;
        if token.is_word("subgraph") {
            if matches!(self.lexer.peek()?.1, Token::Name { .. }) {
                self.lexer.next()?;
            }
            self.expect(&Token::Open)?;
            return self.subgraph(defaults, inside);
        }
        let name = match token {
            Token::Open => return self.subgraph(defaults, inside),
            Token::Name { text, .. } => text,
            token => return self.wrong(at, format!("{token}, expected a vertex, a subgraph or attributes")),
        };
        if matches!(self.lexer.peek()?.1, Token::Equals) {
            self.lexer.next()?;
            self.name()?;
            self.draft.unknown("graph attribute", &name);
            return Ok(None);
        }
        let mut behind = Vec::new();
        while matches!(self.lexer.peek()?.1, Token::Colon) {
            self.lexer.next()?;
            behind.push(self.name()?);
            if behind.len() > 2 {
                return self.wrong(at, format!("{name} has more than a port and a compass point"));
            }
        }
        let behind: Vec<_> = behind.iter().map(String::as_str).collect();
        let port = port_of(&behind).map(|(port, _)| port);
        let known = self.draft.find(&name).is_some();
        let vertex = self.draft.vertex(&name, at);
        if !known {
            for (key, value) in defaults {
                self.vertex_attribute(vertex, at, key, value)?;
            }
        }
        inside.push((vertex, None));
        Ok(Some(vec![(vertex, port)]))
    }

    fn subgraph(
        &mut self,
        defaults: &Defaults,
        inside: &mut EdgeEnds,
    ) -> Result<Option<EdgeEnds>, ReadError> {
        let mut within = EdgeEnds::new();
        self.statements(defaults.clone(), &mut within)?;
        within.sort();
        within.dedup();
        inside.extend(within.iter().cloned());
        Ok(Some(within))
    }

    fn name(&mut self) -> Result<String, ReadError> {
        match self.lexer.next()? {
            (_, Token::Name { text, .. }) => Ok(text),
            (at, token) => self.wrong(at, format!("{token}, expected a name or number")),
        }
    }

    /// Reads `[key=value, key=value; key]` once or more.
    fn attributes(&mut self) -> Result<Vec<(usize, String, String)>, ReadError> {
        let mut attributes = Vec::new();
        while matches!(self.lexer.peek()?.1, Token::OpenList) {
            self.lexer.next()?;
            loop {
                let (at, token) = self.lexer.next()?;
                match token {
                    Token::CloseList => break,
                    Token::Separator => {}
                    Token::Name { text: key, .. } => {
                        let value = if matches!(self.lexer.peek()?.1, Token::Equals) {
                            self.lexer.next()?;
                            self.name()?
                        } else {
                            "true".to_owned()
                        };
                        attributes.push((at, key, value));
                    }
                    token => return self.wrong(at, format!("{token}, expected key=value or ]")),
                }
            }
        }
        Ok(attributes)
    }
}

/// Returns the port among the words after a vertex, and whether a compass point was left out.
fn port_of(behind: &[&str]) -> Option<(String, bool)> {
    let compass = |text: &str| matches!(text, "n" | "ne" | "e" | "se" | "s" | "sw" | "w" | "nw" | "c" | "_");
    let first = *behind.first()?;
    if compass(first) { None } else { Some((first.to_owned(), behind.len() > 1)) }
}
