//! The network of a subcommand: its file, its members, and errors with file, line and column.

use super::host_list;
use crate::exit::Failure;
use crate::text_file;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use unisono_btin::format::{JsonStep, ReadError};
use unisono_btin::reach::Components;
use unisono_btin::read::{self, Assume, Language, ReadReport, VertexRole};
use unisono_btin::{BarrierGroup, Claims, GroupId, NetworkFile, NodeId, Tree, host_of_label};
use unisono_linux::read::MACHINE_WRITTEN;
use unisono_measure::units;
use unisono_text::counted;

#[derive(clap::Args)]
pub(crate) struct NetworkSource {
    /// The network: btin-topo-1, GraphML, DOT, containerlab, or the output of ibnetdiscover or lldpctl; - is
    /// standard input
    #[arg(value_name = "NETWORK")]
    pub(crate) network: PathBuf,
    /// The members: all, or nodes by number or name, as 0,3,5-9 or gpu[001-004], @FILE with a node a line, or
    /// partition=NAME, whose hosts Slurm's sinfo names [default: the members in the file]
    #[arg(long, value_name = "NODES")]
    pub(crate) members: Option<String>,
    /// Number of the group in the file
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) group: u8,
    #[command(flatten)]
    pub(crate) reading: ReadingFlags,
}

#[derive(clap::Args)]
pub(crate) struct ReadingFlags {
    /// Treat vertices whose ATTRIBUTE is VALUE as switches or hosts, such as kind=linux:host; may be repeated
    #[arg(long, value_name = "ATTRIBUTE=VALUE:switch|host")]
    pub(crate) role: Vec<VertexRole>,
    /// Longest input that is read [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    input_limit: Option<u64>,
}

impl ReadingFlags {
    pub(crate) fn text(&self, path: &Path) -> anyhow::Result<(String, String)> {
        let limit = self.input_limit.unwrap_or(MACHINE_WRITTEN);
        text_file::read_with_remedy(path, limit, "; to read more: --input-limit SIZE")
    }
}

/// A file of the format btin-tree-1.
pub(crate) struct TreeFile {
    /// The file's name in messages.
    pub(crate) name: String,
    /// The file's text, in which errors are located.
    pub(crate) text: String,
    pub(crate) tree: Tree,
    pub(crate) claims: Claims,
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

    /// Reads a file of registers. The option `--members` overrides the members that the file names.
    pub(crate) fn tree(&self, path: &Path) -> anyhow::Result<TreeFile> {
        let (name, text) = self.reading.text(path)?;
        let (tree, mut claims) = Tree::with_claims(&text).map_err(|error| error_at(&name, &error))?;
        if self.members.is_some() {
            claims.members = None;
        }
        Ok(TreeFile { name, text, tree, claims })
    }
}

impl Input {
    /// Returns the group that the options name. Fails if its members cannot reach each other.
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

    /// Returns all groups of the file. Fails if the members of a group cannot reach each other.
    pub(crate) fn groups(&self) -> anyhow::Result<&[BarrierGroup]> {
        self.topology.groups.iter().try_for_each(|group| self.check_members(group))?;
        Ok(&self.topology.groups)
    }

    /// Returns the group of a tree whose file names the members; `None` if it names none. Prints a note if
    /// the network's file has other members for this group.
    pub(crate) fn group_of(&self, file: &TreeFile) -> anyhow::Result<Option<BarrierGroup>> {
        let Some(members) = file.claims.members.clone() else { return Ok(None) };
        let (name, id) = (&file.name, file.tree.group);
        let group = BarrierGroup::new(&self.topology.network, id, members).map_err(|error| {
            error_at(name, &ReadError::in_json(&file.text, &[JsonStep::Key("members")], error.to_string()))
        })?;
        self.check_members(&group)?;
        if self.topology.groups.iter().any(|other| other.id() == id && *other != group) {
            let members = counted(group.members().len(), "member");
            eprintln!(
                "unisono: {name}: checked for the {members} that it names; group {} of {} has others",
                id.0, self.name
            );
        }
        Ok(Some(group))
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

    /// Returns an error about a member, at the place in the file that names it.
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

/// Returns the error `file:line:column: element: problem`.
pub(crate) fn error_at(name: &str, error: &ReadError) -> anyhow::Error {
    Failure::Usage(format!("{name}:{error}")).into()
}

/// Returns the group of the nodes that `--members` names.
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

/// Parses `all`, or numbers, ranges and names, separated by commas. Names may be host lists of Slurm; `@FILE`
/// stands for the lines of a file, `partition=NAME` for the hosts of a Slurm partition.
pub(super) fn nodes(topology: &NetworkFile, list: &str) -> Result<Vec<NodeId>, String> {
    if list == "all" {
        return Ok(topology.hosts().collect());
    }
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (at, name) in topology.node_names.iter().enumerate() {
        names.entry(name).or_insert(at);
    }
    let labels = unambiguous(topology.node_labels.iter());
    let hosts = unambiguous(topology.node_labels.iter().map(host_of_label));
    let mut nodes = Vec::new();
    let mut add = |item: &str| -> Result<(), String> {
        let named = |name: &str| {
            let in_labels = |labels: &HashMap<&str, Option<usize>>| labels.get(name).copied().flatten();
            let named =
                names.get(name).copied().or_else(|| in_labels(&labels)).or_else(|| in_labels(&hosts))?;
            u32::try_from(named).ok().map(NodeId)
        };
        if let Some(node) = named(item) {
            nodes.push(node);
            return Ok(());
        }
        for name in host_list::expand(item)? {
            match named(&name) {
                Some(node) => nodes.push(node),
                None if hosts.contains_key(name.as_str()) => {
                    let of_host = |label: &&str| host_of_label(label) == name;
                    let adapters: Vec<String> = topology
                        .node_labels
                        .iter()
                        .filter(of_host)
                        .map(|label| format!("{label:?}"))
                        .collect();
                    return Err(format!(
                        "{name:?} has {}, each a node of the network: name one of them: {}",
                        counted(adapters.len(), "adapter"),
                        adapters.join(", ")
                    ));
                }
                None => nodes.extend(numbered(topology, &name)?),
            }
        }
        Ok(())
    };
    for item in host_list::parts(list) {
        if let Some(partition) = item.strip_prefix("partition=") {
            for item in host_list::parts(&host_list::of_partition(partition)?) {
                add(item)?;
            }
            continue;
        }
        match item.strip_prefix('@') {
            None => add(item)?,
            Some(path) => {
                let (file, text) = text_file::read(Path::new(path), MACHINE_WRITTEN)
                    .map_err(|error| format!("{error:#}"))?;
                for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
                    for item in host_list::parts(line).into_iter().filter(|item| !item.is_empty()) {
                        add(item).map_err(|problem| format!("{file}:{}: {problem}", number + 1))?;
                    }
                }
            }
        }
    }
    Ok(nodes)
}

/// Maps each text to its number in the sequence; `None` for a text that occurs several times.
fn unambiguous<'a>(texts: impl Iterator<Item = &'a str>) -> HashMap<&'a str, Option<usize>> {
    let mut numbers = HashMap::new();
    for (number, text) in texts.enumerate() {
        numbers.entry(text).and_modify(|known| *known = None).or_insert(Some(number));
    }
    numbers
}

/// Returns the nodes that a number, or a range of numbers, stands for.
fn numbered(topology: &NetworkFile, item: &str) -> Result<impl Iterator<Item = NodeId>, String> {
    let count = u32::try_from(topology.network.nodes().len()).unwrap_or(u32::MAX);
    let (first, last) = item.split_once('-').unwrap_or((item, item));
    let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
        return Err(format!("{item:?} is neither a number, nor a range like 5-9, nor the name of a node"));
    };
    if last >= count {
        return Err(format!(
            "member {last} does not exist: the network has {} (counted from 0)",
            counted(count, "node")
        ));
    }
    Ok((first..=last).map(NodeId))
}

/// Maximum number of ignored attributes that are listed by name; others are only counted.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn members_are_named_by_numbers_host_names_lists_of_slurm_and_files() {
        let hosts: String = ["login", "gpu001", "gpu002", "gpu003", "r1[1]"]
            .map(|name| format!("\"{name}\" [role=host]; s -- \"{name}\";"))
            .concat();
        let dot = format!("graph {{ s [role=switch]; {hosts} }}");
        let (topology, _) = read::read(&dot, None, &Assume::default()).expect("it is a network");
        let named = |list: &str| {
            let nodes = nodes(&topology, list)?;
            let names = nodes.iter().map(|node| topology.node_name(*node).to_owned());
            Ok::<_, String>(names.collect::<Vec<_>>().join(" "))
        };
        assert_eq!(named("gpu[001-002],login"), Ok("gpu001 gpu002 login".to_owned()));
        assert_eq!(
            named("r1[1],gpu[3-3]"),
            Err("\"gpu3\" is neither a number, nor a range like 5-9, nor the name of a node".to_owned())
        );
        assert_eq!(named("r1[1],0").map(|names| names.len()), Ok("r1[1] login".len()));
        let mut file = tempfile::NamedTempFile::new().expect("room");
        file.write_all(b"# the partition\ngpu[002-003]\nlogin, gpu001\n\n").expect("room");
        let path = file.path().to_str().expect("letters").to_owned();
        assert_eq!(named(&format!("@{path}")), Ok("gpu002 gpu003 login gpu001".to_owned()));
        file.write_all(b"gpu9\n").expect("room");
        let why = named(&format!("@{path}")).expect_err("there is no such node");
        assert!(why.starts_with(&format!("{path}:5: \"gpu9\" is neither")), "{why}");
    }
}
