//! The draft that readers fill: vertices and cables as they are in the file.

use super::words::{RoleWords, VertexKind, VertexRole};
use std::collections::{BTreeMap, HashMap};

#[derive(Clone, Debug)]
pub(super) struct Vertex {
    pub(super) name: String,
    /// The file's description of the vertex, such as InfiniBand's node description; may be empty.
    pub(super) label: String,
    pub(super) kind: VertexKind,
    /// The number of the vertex's ports, if the file gives it.
    pub(super) ports: Option<u16>,
    pub(super) member: bool,
    /// The byte of the text at which the vertex begins.
    pub(super) at: usize,
}

/// One end of a cable: a vertex, and a port if the file names one.
#[derive(Clone, Debug)]
pub(super) struct Plug {
    pub(super) vertex: usize,
    pub(super) port: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct DraftCable {
    pub(super) a: Plug,
    pub(super) b: Plug,
    /// The byte of the text at which the cable begins.
    pub(super) at: usize,
}

#[derive(Default, Debug)]
pub(super) struct Draft {
    pub(super) vertices: Vec<Vertex>,
    pub(super) cables: Vec<DraftCable>,
    pub(super) unknown: BTreeMap<String, usize>,
    pub(super) notes: Vec<String>,
    pub(super) stated: RoleWords,
    by_name: HashMap<String, usize>,
}

impl Draft {
    /// Makes an empty draft, which keeps the attributes to which these roles refer.
    pub(super) fn new(roles: &[VertexRole]) -> Self {
        Self { stated: RoleWords::new(roles), ..Self::default() }
    }

    /// Returns the vertex of a name. Adds a vertex if the name is unknown.
    pub(super) fn vertex(&mut self, name: &str, at: usize) -> usize {
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        let (name, label) = (name.to_owned(), String::new());
        let vertex =
            Vertex { name: name.clone(), label, kind: VertexKind::Unknown, ports: None, member: false, at };
        self.vertices.push(vertex);
        self.by_name.insert(name, self.vertices.len() - 1);
        self.vertices.len() - 1
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(super) fn unknown(&mut self, what: &str, name: &str) {
        *self.unknown.entry(format!("{what} {name}")).or_default() += 1;
    }

    /// Applies an attribute to a vertex. Returns whether the attribute is known, or an error if its value is
    /// invalid.
    pub(super) fn attribute(&mut self, vertex: usize, key: &str, value: &str) -> Result<bool, String> {
        if self.stated.store(vertex, key, value) {
            return Ok(true);
        }
        let vertex = &mut self.vertices[vertex];
        match key.to_ascii_lowercase().as_str() {
            "ports" => {
                let problem =
                    || format!("ports={value} of {}, expected a number from 0 to 65535", vertex.name);
                vertex.ports = Some(value.trim().parse().map_err(|_| problem())?);
            }
            "member" => {
                vertex.member = match value.trim().to_ascii_lowercase().as_str() {
                    "1" | "true" | "yes" => true,
                    "0" | "false" | "no" => false,
                    _ => return Err(format!("member={value} of {}, expected true or false", vertex.name)),
                };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
