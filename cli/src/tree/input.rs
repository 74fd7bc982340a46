//! The network of a subcommand: its file, its members, and errors with file, line and column.

use crate::exit::Failure;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use unisono_btin::format::{JsonStep, ReadError};
use unisono_btin::reach::Components;
use unisono_btin::read::{self, Assume, Language, ReadReport, VertexRole};
use unisono_btin::{BarrierGroup, GroupId, NetworkFile, NodeId};
use unisono_linux::read as file;
use unisono_measure::units;
use unisono_text::counted;

#[derive(clap::Args)]
pub(crate) struct NetworkSource {
    /// The network: btin-topo-1, GraphML, DOT, containerlab, or the output of ibnetdiscover or lldpctl; - is
    /// standard input
    #[arg(value_name = "NETWORK")]
    pub(crate) network: PathBuf,
    /// The members: all, or nodes by number or name, as 0,3,5-9 [default: those that the file names]
    #[arg(long, value_name = "NODES")]
    pub(crate) members: Option<String>,
    /// Which of the file's groups
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) group: u8,
    #[command(flatten)]
    pub(crate) reading: ReadingFlags,
}

#[derive(clap::Args)]
pub(crate) struct ReadingFlags {
    /// What vertices with this value of an attribute are, such as kind=linux:host; several times for several
    /// values
    #[arg(long, value_name = "ATTRIBUTE=VALUE:switch|host")]
    pub(crate) role: Vec<VertexRole>,
    /// Longest input that is read [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    input_limit: Option<u64>,
}

impl ReadingFlags {
    pub(crate) fn text(&self, path: &Path) -> anyhow::Result<(String, String)> {
        let (name, bytes) = bytes_of(path, self.input_limit.unwrap_or(file::MACHINE_WRITTEN));
        let remedy = match &bytes {
            Err(error) if error.kind() == ErrorKind::FileTooLarge => "; to read more: --input-limit SIZE",
            _ => "",
        };
        as_text(name, bytes, remedy)
    }
}

pub(crate) struct Input {
    /// The file's name in messages.
    pub(crate) name: String,
    /// The file's text, in which errors are located.
    text: String,
    language: Language,
    /// The offset of each node in the text, if the language is not btin-topo-1.
    places: Vec<usize>,
    pub(crate) topology: NetworkFile,
    group: GroupId,
}

impl NetworkSource {
    pub(crate) fn read(&self) -> anyhow::Result<Input> {
        let (name, text) = self.reading.text(&self.network)?;
        let assume = Assume { roles: self.reading.role.clone(), ..Assume::default() };
        let (mut topology, report) =
            read::read(&text, None, &assume).map_err(|error| error_at(&name, &error))?;
        print_report(&name, &report);
        let group = GroupId(self.group);
        if let Some(members) = &self.members {
            let nodes = nodes(&topology, members)
                .map_err(|problem| Failure::Usage(format!("--members {members}: {problem}")))?;
            let chosen = members_of(&topology, group, nodes, members)?;
            topology.groups = vec![chosen];
        }
        let ReadReport { language, node_places: places, .. } = report;
        Ok(Input { name, text, language, places, topology, group })
    }
}

impl Input {
    /// The group asked for. Fails if its members cannot reach each other.
    pub(crate) fn group(&self) -> anyhow::Result<&BarrierGroup> {
        let group = self.topology.groups.iter().find(|group| group.id() == self.group).ok_or_else(|| {
            Failure::Usage(format!(
                "{}: there is no group {} with members; name them with --members all or --members 0,3,5-9",
                self.name, self.group.0
            ))
        })?;
        self.check_members(group)?;
        Ok(group)
    }

    /// All groups of the file. Fails if the members of a group cannot reach each other.
    pub(crate) fn groups(&self) -> anyhow::Result<&[BarrierGroup]> {
        self.topology.groups.iter().try_for_each(|group| self.check_members(group))?;
        Ok(&self.topology.groups)
    }

    fn check_members(&self, group: &BarrierGroup) -> anyhow::Result<()> {
        let cut_off = Components::new(&self.topology.network).cut_off(&self.topology.network, group);
        if let Some(first) = cut_off.first() {
            let others = match cut_off.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            let problem = format!(
                "member {} at switch {}{others} is cut off: no links lead to the other members",
                self.topology.node_shown(*first),
                self.topology.switch_shown(self.topology.network.switch_of(*first)),
            );
            return Err(self.at_member(*first, problem));
        }
        Ok(())
    }

    /// An error about a member, at the place in the file that names it.
    fn at_member(&self, node: NodeId, problem: String) -> anyhow::Error {
        if self.language != Language::BtinTopo1 {
            let place = self.places.get(node.0 as usize).copied().unwrap_or_default();
            let element = format!("node {}", self.topology.node_name(node));
            return error_at(&self.name, &ReadError::at(&self.text, place, element, problem));
        }
        let path = [JsonStep::Key("nodes"), JsonStep::Index(node.0 as usize)];
        error_at(&self.name, &ReadError::in_json(&self.text, &path, problem))
    }
}

/// The name and text of a file of at most `max_bytes` bytes; - is standard input.
pub(crate) fn text_of(path: &Path, max_bytes: u64) -> anyhow::Result<(String, String)> {
    let (name, bytes) = bytes_of(path, max_bytes);
    as_text(name, bytes, "")
}

fn bytes_of(path: &Path, max_bytes: u64) -> (String, std::io::Result<Vec<u8>>) {
    if path == Path::new("-") {
        return ("standard input".to_owned(), file::all(std::io::stdin().lock(), max_bytes));
    }
    (path.display().to_string(), file::file(path, max_bytes))
}

fn as_text(name: String, bytes: std::io::Result<Vec<u8>>, remedy: &str) -> anyhow::Result<(String, String)> {
    let bytes = bytes.map_err(|error| Failure::Usage(format!("cannot read {name}: {error}{remedy}")))?;
    match String::from_utf8(bytes) {
        Ok(mut text) => {
            // a byte order mark, which some programs put before UTF-8
            if text.starts_with('\u{feff}') {
                text.drain(..'\u{feff}'.len_utf8());
            }
            Ok((name, text))
        }
        Err(error) => {
            let good =
                String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned();
            Err(error_at(&name, &ReadError::at(&good, good.len(), "", "this is no text in UTF-8")))
        }
    }
}

/// The error `file:line:column: element: problem`.
pub(crate) fn error_at(name: &str, error: &ReadError) -> anyhow::Error {
    Failure::Usage(format!("{name}:{error}")).into()
}

/// The group that `--members` named.
pub(super) fn members_of(
    topology: &NetworkFile,
    id: GroupId,
    nodes: Vec<NodeId>,
    list: &str,
) -> Result<BarrierGroup, Failure> {
    if topology.network.nodes().is_empty() {
        return Err(Failure::Usage(format!(
            "--members {list}: the network has switches alone; say which vertices are hosts (--role \
             ATTRIBUTE=VALUE:host), or convert it with --leaves-are-nodes or --nodes-per-switch N"
        )));
    }
    BarrierGroup::new(&topology.network, id, nodes)
        .map_err(|error| Failure::Usage(format!("--members {list}: {error}")))
}

/// Parses `all`, or numbers, ranges and names, separated by commas.
pub(super) fn nodes(topology: &NetworkFile, list: &str) -> Result<Vec<NodeId>, String> {
    let count = u32::try_from(topology.network.nodes().len()).unwrap_or(u32::MAX);
    if list == "all" {
        return Ok(topology.hosts().collect());
    }
    let mut nodes = Vec::new();
    for item in list.split(',').map(str::trim) {
        let named = topology.node_names.iter().position(|name| name == item);
        // a label names a node if no other node has the same label
        if let Some(named) = named.or_else(|| topology.node_labels.only(item)) {
            nodes.push(NodeId(u32::try_from(named).unwrap_or(u32::MAX)));
            continue;
        }
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
            return Err(format!(
                "{item:?} is neither a number, nor a range like 5-9, nor the name of a node"
            ));
        };
        if last >= count {
            return Err(format!(
                "member {last} does not exist: the network has {} (counted from 0)",
                counted(count, "node")
            ));
        }
        nodes.extend((first..=last).map(NodeId));
    }
    Ok(nodes)
}

/// More attributes than this are only counted.
const MAX_NAMED: usize = 20;

/// Prints on standard error the assumptions about a file and its ignored parts, one line each.
pub(super) fn print_report(name: &str, report: &ReadReport) {
    if report.parts > 1 && report.language != Language::BtinTopo1 {
        eprintln!("unisono: {name}: {} parts that are not connected with each other", report.parts);
    }
    if report.ports_assigned > 0 {
        let ends = report.ports_assigned;
        eprintln!("unisono: {name}: {ends} ends of cables do not name a port and got the lowest free one");
    }
    for note in &report.notes {
        eprintln!("unisono: {name}: {note}");
    }
    if !report.unknown.is_empty() {
        let named = report.unknown.iter().take(MAX_NAMED).map(|(what, times)| format!("{what} ({times})"));
        let mut unknown: Vec<_> = named.collect();
        if let Some(more) = report.unknown.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
            unknown.push(format!("and {more} more"));
        }
        eprintln!("unisono: {name}: left out, because it means nothing here: {}", unknown.join(", "));
    }
}
