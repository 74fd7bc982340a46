//! Receiving by class: each class has kernel threads that receive its packets (lazy receiver processing).
//!
//! ```text
//!   frame --> XDP program: class by the policy, processor by the flow
//!                 |                                                          full: dropped
//!                 +--> queue of the class's thread on that processor --> network stack --> IFB, classes
//! ```
//! A soft interrupt receives for all programs before any policy sees a packet, so a flood at one class takes
//! processor time from all. Here, a class's packets take the time of its own threads, whose nice values
//! follow the guaranteed rates of the classes. The program and the maps, with their threads, live in the
//! kernel as long as the program is attached. The journal has the program's number before it is attached.
//!
//! Cost: a wake-up for each batch of frames, so delays grow by the time until a thread is scheduled; cards'
//! work on checksums and merging is lost (docs/decisions/0030). Reference: Druschel and Banga, "Lazy receiver
//! processing" (OSDI 1996); kernel/bpf/cpumap.c.

use super::Kernel;
use super::classifier::{self, COUNTER_BYTES, ClassMap, ProgramSources};
use super::site::{HostDevice, KernelBackend};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::AsFd;
use unisono_fairqueue::{ClassId, ClassReceiving, Policy, ReceivingFigures, TrafficDirection};
use unisono_linux::Errno;
use unisono_linux::bpf::{Array, LoadedProgram, NotLoaded, ProcessorMap, Redirector};
use unisono_linux::ethtool;
use unisono_linux::netlink::{Refused, xdp};
use unisono_linux::pinned::PinnedThread;
use unisono_linux::schedstat;
use unisono_linux::scheduling::SchedulingPolicy;
use unisono_linux::topology::Topology;

const PROGRAM: &str = "unisono_receive";
const COUNT_PROGRAM: &str = "unisono_accept";
/// The most frames that wait for a thread: as many as the ring of a network card has by default. A longer
/// queue holds a burst for longer than it takes to fill the card's own.
const MAX_QUEUED: u32 = 256;
/// The most classes with threads. A program may use 64 maps; the classifier has up to three of its own, and
/// the counters are one.
const MAX_CLASSES: usize = 60;
/// The most threads of a policy. Chosen, not measured: a thread without frames costs some 20 KiB, and some
/// 100 bytes for each processor that the host may have (`struct xdp_bulk_queue`), so 1024 threads cost some
/// 120 MiB on a host with 1,000 processors.
const MAX_THREADS: usize = 1024;
/// The ratio of processor time between two neighboring nice values (sched(7)).
const NICE_STEP: f64 = 1.25;
/// The greatest nice value.
const MAX_NICE: f64 = 19.0;

/// The XDP program of a policy and its maps, by the numbers that the kernel gave them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ReceivingPrograms {
    pub(super) program: u32,
    /// The program that this one replaces, while the change is unfinished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replaces: Option<u32>,
    counters: u32,
    /// The classes in the order of their counters, each with the map of its threads.
    classes: Vec<(String, u32)>,
}

impl ReceivingPrograms {
    /// Returns what a process has to find that meets a change from the programs `held` to `then` unfinished.
    pub(super) fn while_changing(then: Option<&Self>, held: Option<&Self>) -> Option<Self> {
        let replaces = held.map(|held| held.program);
        then.map(|then| Self { replaces, ..then.clone() }).or_else(|| held.cloned())
    }

    fn has(&self, program: u32) -> bool {
        self.program == program || self.replaces == Some(program)
    }

    /// Calls `act` with the map of each thread and the thread. Only one thread is pinned at a time, because a
    /// process may have fewer descriptors than there are threads. Fails if a class has no thread.
    fn for_each_thread(
        &self,
        mut act: impl FnMut(u32, &PinnedThread) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let maps: Vec<u32> = self.classes.iter().map(|(_, map)| *map).collect();
        let mut missing: BTreeSet<u32> = maps.iter().copied().collect();
        for (map, thread) in ProcessorMap::threads(&maps) {
            missing.remove(&map);
            act(map, &thread)?;
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::Lacks {
            what: "the threads of the kernel are not visible here".to_owned(),
            remedy: "receive = \"by-class\" needs their nice values and times; run the command outside of the container"
                .to_owned(),
        })
    }

    /// Sets the nice values of the threads by the guaranteed rates of the classes.
    pub(super) fn set_nice_values(&self, policy: &Policy) -> Result<(), Error> {
        let guarantees = policy.guarantees();
        let guarantee = |name: &str| policy.hierarchy.find(name).map_or(0.0, |id| guarantees[id.index()]);
        let greatest = self.classes.iter().map(|(name, _)| guarantee(name)).fold(0.0, f64::max);
        let values: HashMap<u32, i32> =
            self.classes.iter().map(|(name, map)| (*map, nice(greatest / guarantee(name)))).collect();
        self.for_each_thread(|map, thread| {
            let scheduling = SchedulingPolicy::Other { nice: values[&map], slice: None };
            let what = "set the nice value of a thread that receives";
            thread.set_class(scheduling).map_err(|source| Error::System { what, source })
        })
    }

    /// Reads the counters of each class. Returns `None` if the program is no longer attached.
    pub(super) fn figures(&self) -> Result<Option<HashMap<&str, ReceivingFigures>>, Error> {
        let failed = |source| Error::System { what: "read the counters of receiving", source };
        let bytes = self.classes.len() * COUNTER_BYTES as usize;
        let counters = match Array::open(self.counters, u32::try_from(bytes).unwrap_or(u32::MAX)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let mut values = vec![0_u8; bytes];
        counters.read(0, &mut values).map_err(failed)?;
        let mut ran: HashMap<u32, u64> = HashMap::new();
        self.for_each_thread(|map, thread| {
            *ran.entry(map).or_default() += thread.read(schedstat::read).map_err(failed)?.ran_ns;
            Ok(())
        })?;
        let all = self.classes.iter().zip(values.chunks_exact(COUNTER_BYTES as usize));
        let figures = all.map(|((name, map), values)| {
            let [frames, accepted] = [0_usize, 8].map(|at| {
                let bytes: [u8; 8] = std::array::from_fn(|byte| values[at + byte]);
                u64::from_ne_bytes(bytes)
            });
            let ran_ns = ran.get(map).copied().unwrap_or(0);
            (name.as_str(), ReceivingFigures { ran_ns, frames, accepted })
        });
        Ok(Some(figures.collect()))
    }
}

/// A program that is loaded, but not attached. It keeps its maps and their threads.
pub(super) struct PlannedReceiving {
    pub(super) programs: ReceivingPrograms,
    _program: Redirector,
}

impl Kernel {
    /// Loads the program of a policy and starts its threads, if the policy asks for them. `number` returns
    /// the number of a class in the sources.
    pub(super) fn plan_receiving(
        &mut self,
        host: &mut HostDevice,
        policy: &Policy,
        sources: &ProgramSources,
        number: impl Fn(ClassId) -> u32,
    ) -> Result<Option<PlannedReceiving>, Error> {
        let Some(terms) = &policy.receiving else { return Ok(None) };
        let journal = self.site.journal()?;
        if self.site.side.direction == TrafficDirection::In {
            let held = self.record(&journal)?.and_then(|held| held.before.receiving);
            check(host, policy, terms, held.as_ref())?;
            let device = &host.link;
            // a device that cannot tell takes out none
            if device.kind.is_none() && ethtool::takes_out_vlan_tags(device.index).unwrap_or(false) {
                let name = &device.name;
                self.site.note(format!(
                    "{name} takes VLAN tags out of frames, and a tag is lost on the way to a thread: if frames of VLANs \
                     reach {name}, they arrive as if they had none; to have them told apart: ethtool -K {name} rxvlan off"
                ));
            }
            return plan(policy, &processors(terms.processors.as_ref())?, sources, number).map(Some);
        }
        // with a policy for both directions, that of incoming packets comes first
        if journal.for_other_direction().header()?.is_none() {
            self.site.note("`receive` is for packets that come in (--direction in), and does nothing here");
        }
        Ok(None)
    }
}

/// Fails if the packets of a device cannot be received by class, or if the device has an XDP program that
/// `held`, the programs of the policy in force, does not have.
fn check(
    host: &mut HostDevice,
    policy: &Policy,
    terms: &ClassReceiving,
    held: Option<&ReceivingPrograms>,
) -> Result<(), Error> {
    if let Some(rule) = policy.rules.iter().find(|rule| rule.matcher.vlan.is_some()) {
        let what = "receive = \"by-class\": a card may take the VLAN tag out of a frame before it is classified; match by \
                    address, mac, port, protocol or dscp, or take `receive` out";
        return Err(Error::NotHere { at: rule.at, what: what.to_owned() });
    }
    host.check_receiving(terms)?;
    if let Some(attached) = xdp::program_of(&mut host.socket, host.link.index)?
        && held.is_none_or(|held| !held.has(attached))
    {
        return Err(foreign(host, attached));
    }
    Ok(())
}

fn plan(
    policy: &Policy,
    processors: &BTreeSet<u32>,
    sources: &ProgramSources,
    number: impl Fn(ClassId) -> u32,
) -> Result<PlannedReceiving, Error> {
    let classes: BTreeSet<ClassId> =
        policy.rules.iter().map(|rule| rule.class).chain([policy.default]).collect();
    let threads = classes.len() * processors.len();
    if classes.len() > MAX_CLASSES || threads > MAX_THREADS {
        let what = format!(
            "receive = \"by-class\" makes {threads} threads, one for each of {} classes on each of {} processors; at most \
             {MAX_CLASSES} classes and {MAX_THREADS} threads can be: take fewer classes, or name fewer processors \
             (receive_processors)",
            classes.len(),
            processors.len()
        );
        return Err(Error::BackendUnsupported { what });
    }
    let made = |source: io::Error| match source.kind() {
        io::ErrorKind::PermissionDenied => {
            Error::System { what: "make the maps of the threads that receive", source }
        }
        _ => unsupported(&source),
    };
    let bytes = u32::try_from(classes.len()).map_or(u32::MAX, |count| count * COUNTER_BYTES);
    let counters = Array::new("unisono_frames", bytes, 1).map_err(made)?;
    let room = processors.last().map_or(1, |last| last + 1);
    let mut maps = Vec::new();
    for (place, class) in (0..).zip(&classes) {
        let count = classifier::count_accepted(&counters, place);
        let count = Redirector::for_processor_map(COUNT_PROGRAM, &count).map_err(not_loaded)?;
        let map = ProcessorMap::new("unisono_receive", room).map_err(made)?;
        for processor in processors {
            map.start(*processor, MAX_QUEUED, Some(&count)).map_err(made)?;
        }
        maps.push(ClassMap { number: number(*class), map });
    }
    let program = classifier::write_redirecting(policy, sources, number, &maps, &counters, processors)
        .ok_or_else(|| Error::BackendUnsupported {
            what: "the rules make a program that is too long for the kernel".to_owned(),
        })?;
    let program = Redirector::load(PROGRAM, &program).map_err(not_loaded)?;
    let named = |(class, map): (&ClassId, &ClassMap)| -> io::Result<(String, u32)> {
        Ok((policy.hierarchy.class(*class).name.clone(), map.map.id()?))
    };
    let programs = ReceivingPrograms {
        program: program.id().map_err(made)?,
        replaces: None,
        counters: counters.id().map_err(made)?,
        classes: classes.iter().zip(&maps).map(named).collect::<io::Result<_>>().map_err(made)?,
    };
    programs.set_nice_values(policy)?;
    Ok(PlannedReceiving { programs, _program: program })
}

/// Attaches a program that is in the kernel, in place of one that `known` has. Does nothing if it is attached
/// already.
pub(super) fn attach(
    host: &mut HostDevice,
    programs: &ReceivingPrograms,
    known: Option<&ReceivingPrograms>,
) -> Result<(), Error> {
    let device = host.link.index;
    let Some(program) = open(programs.program)? else {
        // that of the previous policy, after a failed change: somebody had detached it before
        return known.map_or(Ok(()), |known| detach(host, known).map(drop));
    };
    match xdp::program_of(&mut host.socket, device)? {
        None => host.socket.run(&[xdp::attach(device, program.as_fd())]).map_err(not_attached),
        Some(attached) if attached == programs.program => Ok(()),
        Some(attached) if known.is_some_and(|known| known.has(attached)) => {
            let Some(earlier) = open(attached)? else { return Err(foreign(host, attached)) };
            Ok(host.socket.run(&[xdp::replace(device, program.as_fd(), earlier.as_fd())])?)
        }
        Some(attached) => Err(foreign(host, attached)),
    }
}

/// Detaches the program of a policy. Does nothing if the device has none. Returns a note if the device has
/// the program of somebody else, which stays.
pub(super) fn detach(host: &mut HostDevice, programs: &ReceivingPrograms) -> Result<Option<String>, Error> {
    let device = host.link.index;
    let Some(attached) = xdp::program_of(&mut host.socket, device)? else { return Ok(None) };
    if !programs.has(attached) {
        let name = &host.link.name;
        return Ok(Some(format!("somebody else has replaced the XDP program of {name} since; it stays")));
    }
    let Some(program) = open(attached)? else { return Ok(None) };
    host.socket.run(&[xdp::detach(device, program.as_fd())])?;
    Ok(None)
}

/// Opens the program of this number; `None` if it is gone.
fn open(program: u32) -> Result<Option<LoadedProgram>, Error> {
    LoadedProgram::by_id(program).map_err(|source| Error::System { what: "open the XDP program", source })
}

/// Returns the error for a device that has the program `attached` of somebody else.
fn foreign(host: &HostDevice, attached: u32) -> Error {
    let device = &host.link.name;
    let named = LoadedProgram::by_id(attached).ok().flatten().map(|program| format!("{:?} ", program.name));
    let named = named.unwrap_or_default();
    Error::InTheWay {
        what: format!("{device} has the XDP program {named}of somebody else (number {attached})"),
        remedy: format!(
            "a device has only one: take `receive` out of the policy, or remove that program (ip link set dev {device} xdp off)"
        ),
    }
}

/// Converts a refusal into the error that names the missing part of the driver, if it is that.
fn not_attached(refused: Refused) -> Error {
    if refused.errno != Errno::OPNOTSUPP.raw_os_error() {
        return Error::Refused(refused);
    }
    Error::Lacks {
        what: refused.to_string(),
        remedy: "receive = \"by-class\" needs a driver that runs XDP programs; take `receive` out, or another card"
            .to_owned(),
    }
}

fn unsupported(error: &dyn std::error::Error) -> Error {
    Error::Lacks {
        what: format!("this kernel cannot receive by class: {error}"),
        remedy: "take Linux 5.18 or later, with CONFIG_BPF_SYSCALL; or take `receive` out of the policy"
            .to_owned(),
    }
}

fn not_loaded(error: NotLoaded) -> Error {
    if error.is_refused_by_verifier() { unsupported(&error) } else { Error::Classifier(error) }
}

/// Returns the processors of the threads. Fails if one that the policy names is not online.
fn processors(wanted: Option<&BTreeSet<u32>>) -> Result<BTreeSet<u32>, Error> {
    let online = Topology::read().numbers();
    let Some(wanted) = wanted else {
        return Ok(online.iter().filter_map(|number| u32::try_from(number).ok()).collect());
    };
    match wanted.iter().find(|number| !online.contains(**number as usize)) {
        Some(number) => {
            let what = format!(
                "receive_processors: processor {number} is not online here; choose among {online}, or leave the key out"
            );
            Err(Error::BackendUnsupported { what })
        }
        None => Ok(wanted.clone()),
    }
}

/// Returns the nice value of a class that is guaranteed this many times less than the greatest one.
fn nice(ratio: f64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "between 0 and 19")]
    let nice = (ratio.ln() / NICE_STEP.ln()).round().clamp(0.0, MAX_NICE) as i32;
    nice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_with_the_greatest_guarantee_has_nice_0_and_the_others_follow_in_steps() {
        // 1.25^5 is 3.05, and 1.25^10 is 9.3
        assert_eq!([1.0, 1.1, 3.0, 9.0, 1e9, f64::INFINITY].map(nice), [0, 0, 5, 10, 19, 19]);
    }

    #[test]
    fn an_unfinished_change_knows_the_programs_of_both_policies() {
        let programs = |program| ReceivingPrograms {
            program,
            replaces: None,
            counters: 7,
            classes: vec![("a".to_owned(), 8)],
        };
        let (old, new) = (programs(1), programs(2));
        let both = ReceivingPrograms::while_changing(Some(&new), Some(&old)).expect("there are two");
        assert!(both.has(1) && both.has(2) && !both.has(3));
        assert_eq!(ReceivingPrograms::while_changing(None, Some(&old)), Some(old));
        assert_eq!(ReceivingPrograms::while_changing(Some(&new), None), Some(new));
        assert_eq!(ReceivingPrograms::while_changing(None, None), None);
    }
}
