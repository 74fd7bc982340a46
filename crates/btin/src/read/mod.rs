//! For all commands of `unisono tree` that take a NETWORK: networks from files of ibnetdiscover, GraphML,
//! Graphviz DOT, lldpctl, containerlab, and btin-topo-1.
//!
//! The idea: each reader fills a `Draft` of vertices and cables, with their places in the text. One step for
//! all readers then decides which vertices are nodes, which ports are free, and what is left out. A
//! [`ReadReport`] says what was found, assumed and left out, so that nothing disappears without a message.

mod containerlab;
mod dot;
mod draft;
mod finish;
mod graphml;
mod ibnetdiscover;
mod lldp;
mod plugs;
mod role;
mod words;

use crate::format::ReadError;
use crate::reach::Components;
use crate::{NetworkFile, SwitchNetwork};
use serde::Serialize;
use std::collections::BTreeMap;
use unisono_linux::named::named;

pub use words::{BadRole, VertexRole};

named! {
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Language {
        BtinTopo1 = "btin-topo-1",
        Ibnetdiscover = "ibnetdiscover",
        Graphml = "graphml",
        Dot = "dot",
        /// What machines say of their neighbours: the output of `lldpctl -f json`.
        Lldp = "lldp",
        /// A topology file of containerlab, YAML.
        Containerlab = "containerlab",
    }
}

/// How many lines may stand before the first that tells the language: complaints of a discovery that went
/// wrong.
const LINES_LOOKED_AT: usize = 1000;

impl Language {
    /// What a text seems to be written in, by how it begins.
    pub fn of(text: &str) -> Option<Self> {
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
        let mut lines = text.lines().map(str::trim).filter(is_text).take(LINES_LOOKED_AT);
        let first = lines.clone().next()?;
        let word = first.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        match word.to_ascii_lowercase().as_str() {
            "graph" | "digraph" | "strict" => Some(Self::Dot),
            _ if first.starts_with("/*") || first.starts_with("//") => Some(Self::Dot),
            _ if text.lines().take(LINES_LOOKED_AT).any(containerlab::is_telling) => Some(Self::Containerlab),
            // what a program complained about may come first, where somebody kept standard error, too
            _ => lines.any(ibnetdiscover::is_telling).then_some(Self::Ibnetdiscover),
        }
    }
}

/// What a reader assumes where the file says nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assume {
    /// Which vertices are nodes where no vertex says what it is.
    pub leaves: LeafVertices,
    /// Ports of each switch where the file does not say. `None`: as many as are used.
    pub ports: Option<u16>,
    /// How many nodes to add to each switch.
    pub nodes_per_switch: u16,
    /// Attributes and values that mean switches or hosts, beside those that always do.
    pub roles: Vec<VertexRole>,
}

/// What the vertices with one cable are, where no vertex says what it is.
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
    /// Cables between two nodes: switches have no part in them.
    pub cables_between_nodes: usize,
    pub nodes_without_a_cable: usize,
    /// Memberships of switches: members are nodes.
    pub member_switches: usize,
}

/// What was found in a file, assumed about it, and left out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct ReadReport {
    pub language: Language,
    pub switches: usize,
    pub nodes: usize,
    pub links: usize,
    /// Links beside another between the same two switches.
    pub parallel_links: usize,
    pub self_loops: usize,
    /// Parts that are not connected with each other.
    pub parts: u32,
    /// Ends of cables that got the lowest free port, because the file does not say which.
    pub ports_assigned: usize,
    /// Attributes that mean nothing here, and how often they occur.
    pub unknown: BTreeMap<String, usize>,
    /// Elements that have no place in a network of switches and nodes.
    pub left_out: LeftOut,
    /// What else was assumed or left out, a sentence each.
    pub notes: Vec<String>,
    /// Of each node, the byte of the text at which it is plugged in; empty for btin-topo-1, where the text
    /// says it.
    #[serde(skip)]
    pub node_places: Vec<usize>,
}

/// Reads a network in any of the languages.
pub fn read(
    text: &str,
    language: Option<Language>,
    assume: &Assume,
) -> Result<(NetworkFile, ReadReport), ReadError> {
    let Some(language) = language.or_else(|| Language::of(text)) else {
        let problem = "this is neither btin-topo-1 (JSON), nor GraphML, nor DOT, nor a topology of containerlab, nor the output of \
                       ibnetdiscover or lldpctl";
        let start = text.len() - text.trim_start().len();
        return Err(ReadError::at(text, start, "", problem));
    };
    if language == Language::BtinTopo1 {
        let topology = NetworkFile::from_json(text)?;
        let mut report = ReadReport::of(language, &topology.network);
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
    fn of(language: Language, network: &SwitchNetwork) -> Self {
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
            parts: Components::of(network).count(),
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
