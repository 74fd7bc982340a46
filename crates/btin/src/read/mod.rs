//! For all commands of `unisono tree` that take a NETWORK: reads networks from files of ibnetdiscover,
//! GraphML, Graphviz DOT, lldpctl, containerlab, and btin-topo-1.
//!
//! The idea: each reader fills a `Draft` of vertices and cables, with their positions in the text. One step
//! for all readers then decides which vertices are nodes, which ports are free, and which elements are left
//! out. A [`ReadReport`] lists the contents, the assumptions and the omissions, so that no element disappears
//! silently.

mod containerlab;
mod dot;
mod draft;
mod finish;
mod graphml;
mod ibnetdiscover;
mod lldp;
mod port_assignment;
mod role;
mod unread;
mod words;

use crate::format::ReadError;
use crate::reach::Components;
use crate::{NetworkFile, SwitchNetwork};
use serde::Serialize;
use std::collections::BTreeMap;
use unisono_text::named;

pub use words::{BadRole, VertexRole};

named! {
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Language {
        BtinTopo1 = "btin-topo-1",
        Ibnetdiscover = "ibnetdiscover",
        Graphml = "graphml",
        Dot = "dot",
        /// The neighbors that machines report: the output of `lldpctl -f json`.
        Lldp = "lldp",
        /// A topology file of containerlab, YAML.
        Containerlab = "containerlab",
    }
}

/// The maximum number of lines before the first line that identifies the language. They can be the error
/// messages of a failed discovery.
const MAX_LINES_SCANNED: usize = 1000;

impl Language {
    /// Returns the probable language of a text, judged by its beginning.
    pub fn detect(text: &str) -> Option<Self> {
        let text = text.trim_start_matches('\u{feff}').trim_start();
        match text.chars().next()? {
            '{' if lldp::is_lldp(text) => return Some(Self::Lldp),
            '{' => return Some(Self::BtinTopo1),
            '<' => return Some(Self::Graphml),
            '/' if text.starts_with("/*") || text.starts_with("//") => return Some(Self::Dot),
            _ => {}
        }
        // a line that begins with # is a comment in DOT and in ibnetdiscover's output
        let is_text = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let mut lines = text.lines().map(str::trim).filter(is_text).take(MAX_LINES_SCANNED);
        let first = lines.clone().next()?;
        let word = first.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        match word.to_ascii_lowercase().as_str() {
            "graph" | "digraph" | "strict" => Some(Self::Dot),
            _ if first.starts_with("/*") || first.starts_with("//") => Some(Self::Dot),
            _ if text.lines().take(MAX_LINES_SCANNED).any(containerlab::is_telling) => {
                Some(Self::Containerlab)
            }
            // error messages may come first, if standard error was written into the file
            _ => lines.any(ibnetdiscover::is_telling).then_some(Self::Ibnetdiscover),
        }
    }
}

/// A reader's assumptions where the file says nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assume {
    /// The kind of vertices with one cable, if no vertex has a kind.
    pub leaves: LeafVertices,
    /// Ports of each switch if the file does not give them. `None`: as many as are used.
    pub ports: Option<u16>,
    /// The number of nodes to add to each switch.
    pub nodes_per_switch: u16,
    /// Attributes and values that stand for switches or hosts, in addition to the built-in ones.
    pub roles: Vec<VertexRole>,
}

/// The kind of vertices with one cable, if no vertex has a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LeafVertices {
    /// Switches, like all others.
    #[default]
    Switches,
    Nodes,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Cables between two nodes: no switch is involved.
    pub cables_between_nodes: usize,
    pub nodes_without_a_cable: usize,
    /// Memberships of switches: only nodes can be members.
    pub member_switches: usize,
}

/// The contents of a file, the assumptions about it, and the omissions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct ReadReport {
    pub language: Language,
    pub switches: usize,
    pub nodes: usize,
    pub links: usize,
    /// The number of links that are parallel to another link between the same two switches.
    pub parallel_links: usize,
    pub self_loops: usize,
    /// The number of connected components of the network.
    pub parts: u32,
    /// The number of cable ends that got the lowest free port, because the file does not name one.
    pub ports_assigned: usize,
    /// The attributes that the reader does not know, each with the number of its occurrences.
    pub unknown: BTreeMap<String, usize>,
    /// Elements that have no place in a network of switches and nodes.
    pub left_out: LeftOut,
    /// Further assumptions and omissions, a sentence each.
    pub notes: Vec<String>,
    /// For each node, the byte of the text at which its cable is described; empty for btin-topo-1, where the
    /// text itself gives it.
    #[serde(skip)]
    pub node_places: Vec<usize>,
}

/// Reads a network in any of the languages.
///
/// ```
/// use unisono_btin::read::{Assume, Language, read};
///
/// let dot = "graph { sw0 -- sw1; sw0 -- host0; sw1 -- host1; host0 [type=host]; host1 [type=host] }";
/// let (file, report) = read(dot, Some(Language::Dot), &Assume::default())?;
/// assert_eq!((file.network.switch_count(), report.nodes), (2, 2));
/// # Ok::<(), unisono_btin::ReadError>(())
/// ```
pub fn read(
    text: &str,
    language: Option<Language>,
    assume: &Assume,
) -> Result<(NetworkFile, ReadReport), ReadError> {
    if let Some((at, problem)) = unread::describe(text).filter(|_| language.is_none()) {
        return Err(ReadError::at(text, at, "", problem));
    }
    let Some(language) = language.or_else(|| Language::detect(text)) else {
        let problem = "this is neither btin-topo-1 (JSON), nor GraphML, nor DOT, nor a topology of containerlab, nor the output of \
                       ibnetdiscover or lldpctl";
        let start = text.len() - text.trim_start().len();
        return Err(ReadError::at(text, start, "", problem));
    };
    if language == Language::BtinTopo1 {
        let topology = NetworkFile::from_json(text)?;
        let mut report = ReadReport::new(language, &topology.network);
        report.unknown = topology.unknown.iter().map(|key| (key.clone(), 1)).collect();
        return Ok((topology, report));
    }
    let draft = match language {
        Language::Graphml => graphml::read(text, &assume.roles)?,
        Language::Dot => dot::read(text, &assume.roles)?,
        Language::Lldp => lldp::read(text, &assume.roles)?,
        Language::Containerlab => containerlab::read(text, &assume.roles)?,
        _ => ibnetdiscover::read(text)?,
    };
    draft.finish(text, language, assume)
}

impl ReadReport {
    fn new(language: Language, network: &SwitchNetwork) -> Self {
        let mut pairs: Vec<_> = network
            .links()
            .iter()
            .filter(|link| link.a.switch != link.b.switch)
            .map(|link| (link.a.switch.min(link.b.switch), link.a.switch.max(link.b.switch)))
            .collect();
        let self_loops = network.links().len() - pairs.len();
        let between = pairs.len();
        pairs.sort_unstable();
        pairs.dedup();
        Self {
            language,
            switches: network.switch_count(),
            nodes: network.nodes().len(),
            links: network.links().len(),
            parallel_links: between - pairs.len(),
            self_loops,
            parts: Components::new(network).count(),
            ports_assigned: 0,
            unknown: BTreeMap::new(),
            left_out: LeftOut::default(),
            notes: Vec::new(),
            node_places: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
