//! Assigns ports of switches to cables: the port that the file names, or the lowest free one.

use super::Assume;
use super::draft::{Draft, Plug};
use super::words::VertexKind;
use crate::format::ReadError;
use crate::names::{Names, PortNames};
use crate::{End, Port, SwitchId};
use std::collections::{BTreeSet, HashMap};

/// The maximum number of cables of one switch: the number of its ports has 16 bits, as port numbers have.
pub(super) const MAX_PORTS: usize = u16::MAX as usize;

/// The ports of all switches while cables are plugged in.
pub(super) struct PortAssignment<'a> {
    /// For each vertex that is a switch, its number among the switches.
    numbers: &'a [u32],
    /// For each switch: the ports that the file names, as numbers.
    named: Vec<HashMap<String, u16>>,
    taken: Vec<BTreeSet<u16>>,
    stated: Vec<Option<u16>>,
    next: Vec<u16>,
    /// The number of cable ends whose port the file does not name.
    pub(super) assigned: usize,
}

impl<'a> PortAssignment<'a> {
    pub(super) fn new(
        draft: &Draft,
        switches: &[usize],
        numbers: &'a [u32],
        assume: &Assume,
        text: &str,
    ) -> Result<Self, ReadError> {
        count(draft, switches, numbers, assume, text)?;
        let mut names: Vec<BTreeSet<(usize, &str)>> = vec![BTreeSet::new(); switches.len()];
        for cable in &draft.cables {
            for plug in [&cable.a, &cable.b] {
                let Some(port) = &plug.port else { continue };
                if draft.vertices[plug.vertex].kind != VertexKind::Switch {
                    continue;
                }
                if port.parse::<u64>().is_ok_and(|port| port >= u64::from(u16::MAX)) {
                    let name = &draft.vertices[plug.vertex].name;
                    let problem = format!("port {port} of switch {name} is beyond the greatest, 65534");
                    return Err(ReadError::at(text, cable.at, "cable", problem));
                }
                // sorted by length first, so that eth10 comes after eth9
                names[numbers[plug.vertex] as usize].insert((port.len(), port));
            }
        }
        let mut named = Vec::new();
        let mut taken = Vec::new();
        for names in names {
            // names that are numbers keep their number; other names get the lowest free numbers, in their
            // order
            let mut ports: HashMap<String, u16> = HashMap::new();
            let mut used: BTreeSet<u16> = BTreeSet::new();
            for (_, name) in &names {
                if let Ok(port) = name.parse() {
                    ports.insert((*name).to_owned(), port);
                    used.insert(port);
                }
            }
            let mut next = 0;
            for (_, name) in names.iter().filter(|(_, name)| name.parse::<u16>().is_err()) {
                while used.contains(&next) {
                    next += 1;
                }
                ports.insert((*name).to_owned(), next);
                used.insert(next);
            }
            named.push(ports);
            taken.push(used);
        }
        let stated = switches.iter().map(|at| draft.vertices[*at].ports).collect();
        Ok(Self { numbers, named, taken, stated, next: vec![0; switches.len()], assigned: 0 })
    }

    /// Returns the end for a plug at a switch. There is a free port, because no switch has more than
    /// [`MAX_PORTS`] cables.
    pub(super) fn end(&mut self, plug: &Plug) -> End {
        let switch = self.numbers[plug.vertex] as usize;
        let port = match &plug.port {
            Some(name) => self.named[switch].get(name).copied().unwrap_or(u16::MAX),
            None => {
                self.assigned += 1;
                let mut port = self.next[switch];
                while self.taken[switch].contains(&port) {
                    port = port.saturating_add(1);
                }
                self.next[switch] = port.saturating_add(1);
                port
            }
        };
        self.taken[switch].insert(port);
        End { switch: SwitchId(self.numbers[plug.vertex]), port: Port(port) }
    }

    /// Returns the number of ports of each switch: from the file, or else from `assume`, or else as many as
    /// are used.
    pub(super) fn ports(&self, assume: &Assume) -> Vec<u16> {
        let used = |taken: &BTreeSet<u16>| taken.last().map_or(0, |last| last.saturating_add(1));
        let each = self.stated.iter().zip(&self.taken);
        each.map(|(stated, taken)| stated.or(assume.ports).unwrap_or_else(|| used(taken))).collect()
    }

    /// Returns the names of ports that differ from the port's number.
    pub(super) fn names(self) -> PortNames {
        let (mut ends, mut names) = (Vec::new(), Names::default());
        for (switch, ports) in (0..).zip(self.named) {
            let mut ports: Vec<_> =
                ports.into_iter().filter(|(name, port)| *name != port.to_string()).collect();
            ports.sort_unstable_by_key(|(_, port)| *port);
            for (name, port) in ports {
                ends.push(End { switch: SwitchId(switch), port: Port(port) });
                names.push(&name);
            }
        }
        PortNames::new(ends, names)
    }
}

/// Refuses a switch with more than [`MAX_PORTS`] cables.
fn count(
    draft: &Draft,
    switches: &[usize],
    numbers: &[u32],
    assume: &Assume,
    text: &str,
) -> Result<(), ReadError> {
    let mut cables = vec![usize::from(assume.nodes_per_switch); switches.len()];
    for cable in &draft.cables {
        for plug in [&cable.a, &cable.b] {
            let vertex = &draft.vertices[plug.vertex];
            if vertex.kind != VertexKind::Switch {
                continue;
            }
            let here = &mut cables[numbers[plug.vertex] as usize];
            *here += 1;
            if *here > MAX_PORTS {
                let problem = format!(
                    "switch {} has more than {MAX_PORTS} cables, the most a switch can have",
                    vertex.name
                );
                return Err(ReadError::at(text, cable.at, "cable", problem));
            }
        }
    }
    Ok(())
}
