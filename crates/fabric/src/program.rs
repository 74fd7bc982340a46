//! The switch program in the kernel, with its maps: registers, routes, counters.
//!
//! One program and one set of maps serve all switches of a deployment: the number of a frame's device
//! identifies the switch.

use crate::error::Error;
use crate::layout::{GROUPS, OUTCOMES, PORTS, RegisterSetup, RegisterState, device, slot};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use unisono_btin::routing::RouteTree;
use unisono_btin::{End, GroupId, SwitchId, SwitchNetwork};
use unisono_linux::bpf::compile::{CSource, compile};
use unisono_linux::bpf::object::{self, SymbolValue};
use unisono_linux::bpf::{Array, ClassifierProgram};

pub(crate) const SWITCH: CSource = CSource {
    what: "the switch program",
    files: &[("switch.bpf.c", include_str!("switch.bpf.c")), ("intf.h", HEADER)],
};
/// The header of the interface with user space; see [`crate::layout`].
pub(crate) const HEADER: &str = include_str!("intf.h");
/// The maximum number of switches: 256 registers of 16 bytes for each take 64 MiB.
const MAX_SWITCHES: usize = 16_384;
/// The maximum number of entries of the table of routes, one for each pair of switches: 128 MiB.
const MAX_ROUTES: u64 = 4096 * 4096;

#[derive(Debug)]
pub struct SwitchProgram {
    program: ClassifierProgram,
    registers: Array,
    routes: Array,
    places: Array,
    counters: Array,
    settings: Array,
    switches: u32,
    nodes: u32,
}

impl SwitchProgram {
    /// Compiles the program, and loads it for a network. Fails for a network with more switches or ports than
    /// the program can serve.
    pub fn load(network: &SwitchNetwork) -> Result<Self, Error> {
        Self::load_object(network, &compile(SWITCH)?)
    }

    /// Loads a program that was compiled before, for a network.
    pub fn load_object(network: &SwitchNetwork, object: &[u8]) -> Result<Self, Error> {
        check_size(network)?;
        let switches = network.switch_count() as u32;
        let nodes = network.nodes().len() as u32;
        let map = |name, size, elements: u32| {
            Array::new(name, size, elements.max(1)).map_err(Error::io(format!("make the BPF map {name}")))
        };
        let maps = [
            map("registers", 16, switches * GROUPS)?,
            map("routes", 4, switches * switches)?,
            map("places", 8, nodes)?,
            map("counters", 8, OUTCOMES.len() as u32)?,
            map("settings", 16, 1)?,
        ];
        let names = ["registers", "routes", "places", "counters", "settings"];
        let instructions = object::link(object, "tc", |name| {
            let at = names.iter().position(|known| *known == name)?;
            Some(SymbolValue::Map(maps[at].as_fd().as_raw_fd()))
        })?;
        let program = ClassifierProgram::load("unisono_switch", &instructions)?;
        let [registers, routes, places, counters, settings] = maps;
        let program = Self { program, registers, routes, places, counters, settings, switches, nodes };
        program.set(0, None)?;
        for (node, end) in (0..).zip(network.nodes()) {
            let place = [end.switch.0.to_ne_bytes(), u32::from(end.port.0).to_ne_bytes()].concat();
            program.places.write(node, &place).map_err(Error::io("write where a node is"))?;
        }
        program.update_routes(network)?;
        Ok(program)
    }

    /// Computes the shortest routes of a network and writes them for the switches.
    pub fn update_routes(&self, network: &SwitchNetwork) -> Result<(), Error> {
        for target in network.switches() {
            // A switch stores whole packets, so routes are free of deadlocks without any rule about turns.
            let routes = RouteTree::shortest(network, target);
            for from in network.switches() {
                let port = routes.port_back(network, from);
                let port = port.map_or(PORTS, |port| u32::from(port.0)); // an invalid port means that there is no route
                self.route(from, target, port)?;
            }
        }
        Ok(())
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Makes every switch lose one in `frames` barrier frames on average; 0 makes them lose none.
    pub fn lose_one_in(&self, frames: u32) -> Result<(), Error> {
        self.set(frames, None)
    }

    /// Makes the switch drop every barrier frame that arrives at this port, although the port's carrier is
    /// up.
    pub fn lose_all_at(&self, end: End) -> Result<(), Error> {
        self.set(0, Some(end))
    }

    fn set(&self, lose_every: u32, cut: Option<End>) -> Result<(), Error> {
        let cut = cut.map_or(0, |end| device(end.switch, end.port).0);
        let words = [self.switches, self.nodes, lose_every, cut].map(u32::to_ne_bytes).concat();
        self.settings.write(0, &words).map_err(Error::io("write the switches' settings"))
    }

    fn route(&self, from: SwitchId, to: SwitchId, port: u32) -> Result<(), Error> {
        let at = from.0 * self.switches + to.0;
        self.routes.write(at, &port.to_ne_bytes()).map_err(Error::io("write a route"))
    }

    /// Writes a register directly, without a request through the network. This is for tests of the program.
    pub fn install(&self, switch: SwitchId, group: GroupId, setup: &RegisterSetup) -> Result<(), Error> {
        let words = [setup.word().to_ne_bytes(), setup.state().to_ne_bytes()].concat();
        self.registers.write(slot(switch, group), &words).map_err(Error::io("write a register"))
    }

    /// Reads the state of a group's barrier at a switch. Returns `None` if the group has no register there.
    pub fn state(&self, switch: SwitchId, group: GroupId) -> Result<Option<RegisterState>, Error> {
        let (setup, state) = self.register(switch, group)?;
        Ok(RegisterState::read(setup, state))
    }

    /// Reads the setup word of a group's register at a switch. Returns 0 if there is no register.
    pub fn setup(&self, switch: SwitchId, group: GroupId) -> Result<u64, Error> {
        Ok(self.register(switch, group)?.0)
    }

    fn register(&self, switch: SwitchId, group: GroupId) -> Result<(u64, u64), Error> {
        let mut words = [0; 16];
        self.registers.read(slot(switch, group), &mut words).map_err(Error::io("read a register"))?;
        let word = |at: usize| {
            u64::from_ne_bytes(words[at..at + 8].try_into().expect("eight because the slice is that long"))
        };
        Ok((word(0), word(8)))
    }

    pub fn counters(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        (0..)
            .zip(OUTCOMES)
            .map(|(at, name)| {
                let mut value = [0; 8];
                self.counters.read(at, &mut value).map_err(Error::io("read a counter"))?;
                Ok((name, u64::from_ne_bytes(value)))
            })
            .collect()
    }
}

pub(crate) fn check_size(network: &SwitchNetwork) -> Result<(), Error> {
    let switches = network.switch_count();
    if switches > MAX_SWITCHES || (switches as u64).pow(2) > MAX_ROUTES {
        return Err(Error::Input(format!(
            "{switches} switches are more than this data plane holds tables for (4096); simulate the network instead"
        )));
    }
    let wide = network.switches().find(|switch| u32::from(network.ports(*switch)) > PORTS);
    if let Some(switch) = wide {
        return Err(Error::Input(format!(
            "switch {} has {} ports; a register of this data plane has a bit for each of {PORTS}",
            switch.0,
            network.ports(switch)
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_map_of_the_switch_program_is_filled_in() {
        let object = match compile(SWITCH) {
            Ok(object) => object,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let names = ["registers", "routes", "places", "counters", "settings"];
        let number = |name: &str| names.iter().position(|known| *known == name).map(|at| 100 + at as i32);
        let map = |name: &str| number(name).map(SymbolValue::Map);
        let instructions = object::link(&object, "tc", map).expect("our own program");
        for descriptor in 100..105_u64 {
            let load = 0x18 | 1 << 12 | descriptor << 32;
            assert!(instructions.iter().any(|word| word & 0xffff_ffff_0000_f0ff == load), "{descriptor}");
        }
        assert!(
            object::link(&object, "tc", |name| map(name).filter(|_| name != "places")).is_err(),
            "a map is missing"
        );
        assert!(
            object::link(&object, "tc", |_| Some(SymbolValue::Function(1))).is_err(),
            "a map is not called"
        );
        assert!(object::link(&object, "xdp", map).is_err(), "there is no such section");
    }
}
