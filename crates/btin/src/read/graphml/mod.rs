//! Reads GraphML, the XML of many graph programs and of topology collections.
//!
//! The reader accepts `node`, `edge`, `port` and `data` elements at any depth. An edge names ports with
//! `sourceport` and `targetport`, as attributes or as data. The reader uses these data of a node: `role`,
//! `type` and `kind` (switch or node), `ports`, `member`, and those named by `--role`. It counts and reports
//! all other data. Nested graphs are read as if they were flat. Hyperedges are left out, because a cable has
//! two ends.

mod limits;

use super::draft::{Draft, DraftCable, Plug};
use super::words::VertexRole;
use crate::format::ReadError;
use roxmltree::{Document, Error, Node, ParsingOptions};
use std::collections::HashMap;

/// The maximum number of elements and text nodes in a file. Each takes about 70 bytes in memory, so this many
/// take 1.1 GiB. An edge on a line of its own counts as three, so a file of 256 MiB stays below the limit
/// unless its elements are very short.
const MAX_ELEMENTS: u32 = 16_000_000;

pub(super) fn read(text: &str, roles: &[VertexRole]) -> Result<Draft, ReadError> {
    limits::check(text)?;
    let options = ParsingOptions { nodes_limit: MAX_ELEMENTS, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        if error == Error::NodesLimitReached {
            let problem = format!("more than {MAX_ELEMENTS} elements and stretches of text");
            return ReadError::at(text, 0, "", problem);
        }
        let place = error.pos();
        let stated = error.to_string();
        let problem = stated.rsplit_once(" at ").map_or(stated.as_str(), |(before, _)| before).to_owned();
        let (line, column) = (place.row as usize, place.col as usize);
        ReadError { line, column, element: String::new(), problem }
    })?;
    let root = document.root_element();
    if root.tag_name().name() != "graphml" {
        let problem = format!("the root element is <{}>, expected <graphml>", root.tag_name().name());
        return Err(ReadError::at(text, root.range().start, "", problem));
    }
    let mut reader =
        GraphmlReader { text, draft: Draft::new(roles), keys: HashMap::new(), stated: Vec::new() };
    for element in root.descendants().filter(Node::is_element) {
        match element.tag_name().name() {
            "key" => {
                let name = element.attribute("attr.name").or(element.attribute("id")).unwrap_or_default();
                reader.keys.insert(element.attribute("id").unwrap_or_default(), name);
            }
            "node" => reader.vertex(element)?,
            _ => {}
        }
    }
    // edges may come before the nodes that they join
    for element in root.descendants().filter(Node::is_element) {
        match element.tag_name().name() {
            "edge" => reader.edge(element)?,
            "hyperedge" => reader.draft.unknown("element", "hyperedge"),
            "graphml" | "graph" | "node" | "key" | "data" | "port" | "desc" | "default" => {}
            // elements inside `data` belong to other programs and are not counted
            name if !element.ancestors().skip(1).any(|outer| is_named(&outer, "data")) => {
                reader.draft.unknown("element", name);
            }
            _ => {}
        }
    }
    let GraphmlReader { draft, .. } = reader;
    Ok(draft)
}

/// Returns whether a node is an element of this name, in any namespace.
fn is_named(node: &Node<'_, '_>, name: &str) -> bool {
    node.is_element() && node.tag_name().name() == name
}

struct GraphmlReader<'a> {
    text: &'a str,
    draft: Draft,
    /// By id of a data key: the attribute's name.
    keys: HashMap<&'a str, &'a str>,
    stated: Vec<(&'a str, &'a str)>,
}

impl<'a> GraphmlReader<'a> {
    fn wrong(&self, element: Node<'_, '_>, problem: String) -> ReadError {
        let id = element.attribute("id").map(|id| format!(" {id}")).unwrap_or_default();
        let name = format!("{}{id}", element.tag_name().name());
        ReadError::at(self.text, element.range().start, name, problem)
    }

    /// Reads the data of an element into `stated`: the attribute's name and the value of each.
    fn data(&mut self, element: Node<'a, 'a>) {
        self.stated.clear();
        for data in element.children().filter(|inner| is_named(inner, "data")) {
            let id = data.attribute("key").unwrap_or_default();
            let name = self.keys.get(id).copied().unwrap_or(id);
            self.stated.push((name, data.text().unwrap_or_default().trim()));
        }
    }

    fn vertex(&mut self, element: Node<'a, 'a>) -> Result<(), ReadError> {
        let Some(id) = element.attribute("id") else {
            return Err(self.wrong(element, "a node needs an id".to_owned()));
        };
        if self.draft.find(id).is_some() {
            return Err(self.wrong(element, "this node is there twice".to_owned()));
        }
        let vertex = self.draft.vertex(id, element.range().start);
        self.data(element);
        let attributes = element.attributes().map(|attribute| (attribute.name(), attribute.value()));
        let stated: Vec<_> =
            self.stated.iter().copied().chain(attributes.filter(|(name, _)| *name != "id")).collect();
        for (name, value) in stated {
            let known = self.draft.attribute(vertex, name, value);
            if !known.map_err(|problem| self.wrong(element, problem))? {
                self.draft.unknown("node attribute", name);
            }
        }
        Ok(())
    }

    fn edge(&mut self, element: Node<'a, 'a>) -> Result<(), ReadError> {
        self.data(element);
        let (mut ports, mut ends) = ([None, None], [None, None]);
        let attributes = element.attributes().map(|attribute| (attribute.name(), attribute.value()));
        let stated: Vec<_> = attributes.chain(self.stated.iter().copied()).collect();
        for (name, value) in stated {
            match name.to_ascii_lowercase().replace(['_', '-'], "").as_str() {
                "source" => ends[0] = Some(value),
                "target" => ends[1] = Some(value),
                "sourceport" => ports[0] = Some(value.to_owned()),
                "targetport" => ports[1] = Some(value.to_owned()),
                "id" | "directed" => {}
                _ => self.draft.unknown("edge attribute", name),
            }
        }
        let mut plugs = Vec::with_capacity(2);
        for ((end, port), word) in ends.into_iter().zip(ports).zip(["source", "target"]) {
            let Some(name) = end else {
                return Err(self.wrong(element, format!("an edge needs a {word}")));
            };
            let Some(vertex) = self.draft.find(name) else {
                return Err(self.wrong(element, format!("its {word} {name} is not there")));
            };
            plugs.push(Plug { vertex, port });
        }
        if let (Some(b), Some(a)) = (plugs.pop(), plugs.pop()) {
            self.draft.cables.push(DraftCable { a, b, at: element.range().start });
        }
        Ok(())
    }
}
