//! The switches of a network, up and running: namespaces and cables, with the switch program at every port.

use crate::cables::Cables;
use crate::error::Error;
use crate::fabric::{Fabric, ProgramHook};
use crate::home_processors::HomeProcessors;
use crate::program::{SWITCH, SwitchProgram, check_size};
use std::time::{Duration, Instant};
use unisono_btin::SwitchNetwork;
use unisono_linux::bpf::compile::Compiling;

#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// The time to make namespaces and devices, while the program is compiled.
    pub network: Duration,
    /// The time to wait for the compiler, to load the program and to attach it.
    pub program: Duration,
    /// The time to start the processes, until each has reported.
    pub nodes: Duration,
    /// The time of the members to set up the registers.
    pub registers: Duration,
}

pub(crate) struct Switches {
    pub(crate) fabric: Fabric,
    pub(crate) hook: ProgramHook,
    pub(crate) program: SwitchProgram,
    pub(crate) cables: Cables,
    pub(crate) times: Times,
}

impl Switches {
    pub(crate) fn bring_up(network: &SwitchNetwork, homes: &HomeProcessors) -> Result<Self, Error> {
        check_size(network)?;
        let mut times = Times::default();
        let start = Instant::now();
        let compiling = Compiling::start(SWITCH)?; // compiles while the kernel makes namespaces
        let mut fabric = Fabric::new(network, homes)?;
        times.network = start.elapsed();
        let program = SwitchProgram::load_object(network, &compiling.finish()?)?;
        let hook = fabric.attach(network, &program)?;
        times.program = start.elapsed() - times.network;
        let cables = Cables::watch(network, &fabric)?;
        Ok(Self { fabric, hook, program, cables, times })
    }
}
