//! Attributes of vertices that may give a role, and the roles that a user assigns to them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum VertexKind {
    Switch,
    Node,
    Unknown,
}

impl VertexKind {
    /// Returns the kind that an attribute such as `type=switch` gives.
    pub(super) fn from_word(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "switch" | "sw" | "router" | "bridge" => Some(Self::Switch),
            "node" | "host" | "ca" | "hca" | "server" | "terminal" | "endpoint" | "compute" => {
                Some(Self::Node)
            }
            _ => None,
        }
    }
}

/// The kind of vertices with a certain value of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VertexRole {
    pub(super) attribute: String,
    pub(super) value: String,
    pub(super) kind: VertexKind,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected ATTRIBUTE=VALUE:switch or ATTRIBUTE=VALUE:host, such as kind=linux:host")]
pub struct BadRole;

impl FromStr for VertexRole {
    type Err = BadRole;

    fn from_str(text: &str) -> Result<Self, BadRole> {
        let (stated, kind) = text.rsplit_once(':').ok_or(BadRole)?;
        let (attribute, value) = stated.split_once('=').ok_or(BadRole)?;
        let kind = match kind {
            "switch" => VertexKind::Switch,
            "host" => VertexKind::Node,
            _ => return Err(BadRole),
        };
        let (attribute, value) = (attribute.trim().to_ascii_lowercase(), value.trim().to_owned());
        if attribute.is_empty() { Err(BadRole) } else { Ok(Self { attribute, value, kind }) }
    }
}

impl fmt::Display for VertexRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind == VertexKind::Switch { "switch" } else { "host" };
        write!(f, "{}={}:{kind}", self.attribute, self.value)
    }
}

/// Attributes that give roles without `--role`, if their values are known.
pub(super) const ATTRIBUTES: [&str; 3] = ["role", "type", "kind"];

/// The attributes of all vertices that may give roles.
#[derive(Default, Debug)]
pub(super) struct RoleWords {
    /// Attributes that [`VertexRole`]s name, in lower case.
    pub(super) asked: Vec<String>,
    /// Attribute and value; each pair once.
    pub(super) words: Vec<(String, String)>,
    pub(super) numbers: BTreeMap<(String, String), u32>,
    /// Each vertex with the index of its word in `words`, in the order of the file.
    pub(super) pairs: Vec<(usize, u32)>,
}

impl RoleWords {
    pub(super) fn new(roles: &[VertexRole]) -> Self {
        Self { asked: roles.iter().map(|role| role.attribute.clone()).collect(), ..Self::default() }
    }

    /// Keeps an attribute of a vertex if it may give a role. Returns whether it was kept.
    pub(super) fn store(&mut self, vertex: usize, key: &str, value: &str) -> bool {
        let key = key.to_ascii_lowercase();
        if !ATTRIBUTES.contains(&key.as_str()) && !self.asked.contains(&key) {
            return false;
        }
        let word = (key, value.trim().to_owned());
        let next = u32::try_from(self.words.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(word.clone()).or_insert(next);
        if number == next {
            self.words.push(word);
        }
        self.pairs.push((vertex, number));
        true
    }

    /// Does the same as [`store`](Self::store), but only for attributes that a [`VertexRole`] names. This is
    /// for languages that give roles in another way.
    pub(super) fn store_requested(&mut self, vertex: usize, key: &str, value: &str) -> bool {
        self.asked.contains(&key.to_ascii_lowercase()) && self.store(vertex, key, value)
    }
}
