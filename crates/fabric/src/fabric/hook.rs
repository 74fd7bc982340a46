//! The hooks that call the switch program at a switch's ports.
//!
//! | | since | a hop | to attach |
//! |---|---|---|---|
//! | tcx: the device's own list of programs | Linux 6.6 | 0.17 us | an RCU grace period, which is [shortened](crate::expedited_rcu) |
//! | clsact: a queueing discipline with a filter | 4.5 | 0.25 us | two netlink requests |
//!
//! Both run the program at the same point of the receive path, and its verdicts have the same meaning.

use super::{Fabric, ports};
use crate::error::Error;
use crate::expedited_rcu::ExpeditedRcu;
use crate::program::SwitchProgram;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use unisono_btin::{SwitchId, SwitchNetwork};
use unisono_linux::bpf::{attach, detach};
use unisono_linux::netlink::link::Index;
use unisono_linux::netlink::{NetlinkRequest, traffic};
use unisono_linux::network_namespace::NetworkNamespace;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProgramHook {
    Tcx,
    /// A clsact queueing discipline. The text gives the reason why tcx is not used.
    Clsact(String),
}

impl fmt::Display for ProgramHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcx => write!(f, "tcx"),
            Self::Clsact(why) => write!(f, "clsact ({why})"),
        }
    }
}

/// The ports whose program has to be detached before their devices are removed. The removal of a device with
/// an attached program takes an RCU grace period, during which no process of the host can change a network
/// setting.
#[derive(Debug)]
pub(super) struct AttachedPorts {
    program: OwnedFd,
    ports: Vec<(SwitchId, Index)>,
}

impl AttachedPorts {
    fn attach_all(&mut self, network: &SwitchNetwork, switches: &[NetworkNamespace]) -> io::Result<()> {
        for (switch, namespace) in network.switches().zip(switches) {
            namespace.enter()?;
            for device in ports(network, switch) {
                attach(self.program.as_fd(), device)?;
                self.ports.push((switch, device));
            }
        }
        Ok(())
    }

    fn detach_all(&mut self, switches: &[NetworkNamespace]) -> io::Result<()> {
        let mut inside = None;
        for (switch, device) in self.ports.drain(..) {
            if inside != Some(switch) {
                switches[switch.0 as usize].enter()?;
                inside = Some(switch);
            }
            detach(self.program.as_fd(), device)?;
        }
        Ok(())
    }
}

/// Runs `work` in a thread of its own, because it changes the thread's namespace.
fn in_own_thread(work: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
    let done = thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|_| Err(io::Error::other("attaching panicked")))
}

impl Fabric {
    /// Attaches the switch program to all ports of all switches, for incoming frames. It may be called only
    /// once.
    pub fn attach(&mut self, network: &SwitchNetwork, program: &SwitchProgram) -> Result<ProgramHook, Error> {
        match self.attach_to_devices(network, program) {
            Ok(()) => Ok(ProgramHook::Tcx),
            Err(error) => {
                self.detach();
                self.attach_by_filters(network, program)?;
                Ok(ProgramHook::Clsact(match error.kind() {
                    ErrorKind::InvalidInput => "the kernel is older than 6.6".to_owned(),
                    _ => format!("tcx: {error}"),
                }))
            }
        }
    }

    /// Attaches the switch program to all ports by clsact filters, as [`attach`](Self::attach) does on
    /// kernels before 6.6.
    pub fn attach_by_filters(
        &mut self,
        network: &SwitchNetwork,
        program: &SwitchProgram,
    ) -> Result<(), Error> {
        for (switch, socket) in network.switches().zip(&mut self.sockets) {
            socket.run(&ports(network, switch).map(traffic::clsact).collect::<Vec<NetlinkRequest>>())?;
        }
        // the filters are attached in a second pass over all switches, because the kernel waits for a grace
        // period if a filter immediately follows its queueing discipline
        for (switch, socket) in network.switches().zip(&mut self.sockets) {
            let attach = |device| traffic::at_ingress(device, program.descriptor(), "unisono_switch");
            socket.run(&ports(network, switch).map(attach).collect::<Vec<NetlinkRequest>>())?;
        }
        Ok(())
    }

    /// Attaches the program to each device by tcx. Records each port, so that it can be detached after an
    /// error.
    fn attach_to_devices(&mut self, network: &SwitchNetwork, program: &SwitchProgram) -> io::Result<()> {
        let program = program.descriptor().try_clone_to_owned()?;
        let attached = self.attached.insert(AttachedPorts { program, ports: Vec::new() });
        let switches = &self.switches;
        let _hurry = ExpeditedRcu::enable()?;
        in_own_thread(|| attached.attach_all(network, switches))
    }

    /// Detaches the program from the devices to which it was attached by tcx. Stops at the first error.
    pub(super) fn detach(&mut self) {
        let Some(mut attached) = self.attached.take().filter(|attached| !attached.ports.is_empty()) else {
            return;
        };
        let switches = &self.switches;
        let _hurry = ExpeditedRcu::enable(); // if this fails, detaching only takes longer
        // an error is no problem: the kernel removes the remaining attachments together with their devices
        let _ = in_own_thread(|| attached.detach_all(switches));
    }
}
