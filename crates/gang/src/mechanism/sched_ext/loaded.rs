//! Loads the BPF scheduler into the kernel and creates its maps.

use super::GANGS;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use unisono_linux::bpf::compile::{ProgramError, compile};
use unisono_linux::bpf::object::{self, SymbolValue};
use unisono_linux::bpf::{
    Array, Callable, KernelTypes, LoadedOperations, MaySleep, Operations, Table, TypeInformation,
};
use unisono_linux::clock::{self, Duration};

const WRAPPER: &str = "bpf_struct_ops_sched_ext_ops";
const OPERATIONS: [(&str, MaySleep); 7] = [
    ("select_cpu", MaySleep::No),
    ("enqueue", MaySleep::No),
    ("dispatch", MaySleep::No),
    ("running", MaySleep::No),
    ("stopping", MaySleep::No),
    ("init", MaySleep::Yes),
    ("exit", MaySleep::Yes),
];
const READS_UNDER_RCU: &str = "offset_of__task_struct__rcu_read_lock_nesting";
/// Name of the scheduler in `/sys/kernel/sched_ext/root/ops` while it is loaded.
const NAME: &[u8] = b"unisono_gangs";
/// `SCX_OPS_ENQ_LAST`: a thread that is alone on its processor is enqueued like any other; its gang may have
/// to wait. `SCX_OPS_SWITCH_PARTIAL`: only threads with the policy SCHED_EXT are scheduled here.
const FLAGS: u64 = 1 << 1 | 1 << 3;
/// The longest watchdog timeout that the kernel accepts.
pub(super) const MAX_KERNEL_TIMEOUT: Duration = Duration::from_secs(30);

/// A thread of a waiting gang runs once it has waited for a tenth of the watchdog timeout, at most 3 s: so if
/// the thread holds a lock of the kernel, other threads wait no longer than that for the lock. A gang that
/// waits for a shorter time is not disturbed.
const HEARTBEATS_PER_TIMEOUT: u32 = 10;

/// Maximum number of gangs of one scheduler.
pub(super) const MAX_GANGS: usize = 256;
const MAX_PROCESSORS: u32 = 4096;
/// Bytes of `struct turn`: two counts (gangs that run, gangs that are lent cores), those gangs, every
/// standing.
const TURN: usize = 8 + 8 * MAX_GANGS;
/// Bytes of `struct state`: four words, a reason, and a message.
const STATE: usize = 16 + 2 * MESSAGE;
const MESSAGE: usize = 128;
/// Bytes of `struct processor` in the program.
const PROCESSOR: u32 = 24;

/// The standings, numbered as in the BPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelStanding {
    Waits = 0,
    Lent = 1,
    Runs = 2,
}

/// Number of times that the BPF program has let a thread run before its gang's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelExceptions {
    /// Times when the thread had waited for long.
    pub breaths: u32,
    /// Times when other threads would have waited for this one, because it was stopped inside the kernel.
    pub went_on: u32,
}

/// The scheduler in the kernel. The kernel unloads it when this value is dropped, or when this process ends.
#[derive(Debug)]
pub(super) struct LoadedScheduler {
    turn: Array,
    state: Array,
    gangs: Table,
    switch: Callable,
    _operations: Operations,
}

/// Returns the kernel's types. Fails unless the kernel supports BPF schedulers and reserves a part of each
/// processor for their threads. Without the reserve, a busy loop of another program would keep a gang's
/// thread from running until the kernel's watchdog acts.
fn supported() -> Result<KernelTypes, ProgramError> {
    let types = KernelTypes::of_this_kernel()?;
    let reserve = types.structure("rq").and_then(|queue| types.member(queue, &["ext_server"]));
    if types.structure(WRAPPER).is_none() || reserve.is_none() {
        let what = if types.structure(WRAPPER).is_none() {
            "has no schedulers made of BPF programs"
        } else {
            "lets other programs starve the threads of its BPF scheduler"
        };
        return Err(ProgramError::Host(format!(
            "the kernel {what}; use Linux 7.0 or later with CONFIG_SCHED_CLASS_EXT, or --mechanism freeze"
        )));
    }
    Ok(types)
}

/// Returns a tenth of the watchdog timeout in ticks: a thread that has waited this long goes first.
fn breath_ticks(timeout: Duration) -> u32 {
    let breath = timeout / u64::from(HEARTBEATS_PER_TIMEOUT);
    (breath.as_nanos() / clock::kernel_tick().as_nanos().max(1)).max(1) as u32
}

impl LoadedScheduler {
    /// Compiles the scheduler and loads it into the kernel, for `gangs` gangs that it does not know yet. The
    /// kernel unloads it if a runnable thread waits longer than `timeout`.
    pub(super) fn load(gangs: usize, timeout: Duration) -> Result<Self, ProgramError> {
        let types = supported()?;
        let object = compile(GANGS)?;
        let map = |name, size, elements| {
            Array::new(name, size, elements).map_err(ProgramError::io(format!("make the BPF map {name}")))
        };
        let turn = map("turn", TURN as u32, 1)?;
        let state = map("state", STATE as u32, 1)?;
        let processors = map("processors", PROCESSOR, MAX_PROCESSORS)?;
        let table = Table::new("gangs", 8, 4, MAX_GANGS as u32)
            .map_err(ProgramError::io("make the BPF map gangs"))?;
        let maps: [(&str, BorrowedFd<'_>); 4] = [
            ("turn", turn.as_fd()),
            ("state", state.as_fd()),
            ("processors", processors.as_fd()),
            ("gangs", table.as_fd()),
        ];
        let timeout = timeout.min(MAX_KERNEL_TIMEOUT);
        let mut numbers = vec![("number_of_gangs", gangs as u32), ("breath_ticks", breath_ticks(timeout))];
        // a kernel without this field never stops a thread that reads under RCU
        if types.symbol(READS_UNDER_RCU).is_none() {
            numbers.push((READS_UNDER_RCU, 0));
        }
        // a cache: the kernel has a hundred thousand types, and a name is used several times
        let known = RefCell::new(BTreeMap::<String, Option<SymbolValue>>::new());
        let value_of = |name: &str| {
            let map = maps.iter().find(|(known, _)| *known == name);
            let number = numbers.iter().find(|(known, _)| *known == name);
            map.map(|(_, map)| SymbolValue::Map(map.as_raw_fd()))
                .or_else(|| number.map(|(_, number)| SymbolValue::Number(*number)))
                .or_else(|| *known.borrow_mut().entry(name.to_owned()).or_insert_with(|| types.symbol(name)))
        };
        let unknown = |what: &str| {
            ProgramError::Host(format!(
                "this kernel has no {what}, which its schedulers had when this was written; use --mechanism freeze"
            ))
        };
        let wrapper = types.structure(WRAPPER).ok_or_else(|| unknown(WRAPPER))?;
        let inside = types.structure("sched_ext_ops").ok_or_else(|| unknown("sched_ext_ops"))?;
        let begin = types.member(wrapper, &["data"]).ok_or_else(|| unknown("place for it"))?.offset as usize;
        let mut value = vec![0; wrapper.size as usize];
        let mut put = |name: &str, bytes: &[u8]| {
            let member =
                types.member(inside, &[name]).ok_or_else(|| unknown(&format!("sched_ext_ops.{name}")))?;
            let at = begin + member.offset as usize;
            if let Some(place) = value.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
            Ok::<u32, ProgramError>(member.position)
        };
        let mut programs = Vec::new();
        for (name, sleeps) in OPERATIONS {
            let instructions = object::link(&object, &format!("struct_ops/{name}"), value_of)?;
            let position = put(name, &[])?;
            let program = LoadedOperations::load(name, &instructions, (inside.id, position), sleeps)?;
            put(name, &program.as_fd().as_raw_fd().to_ne_bytes())?;
            programs.push(program);
        }
        put("name", NAME)?;
        put("flags", &FLAGS.to_ne_bytes())?;
        put("timeout_ms", &(timeout.as_millis() as u32).to_ne_bytes())?;
        let switch = Callable::load("switch_gangs", &object::link(&object, "syscall", value_of)?)?;
        let information = TypeInformation::minimal().map_err(ProgramError::io("describe a map's types"))?;
        let operations = Operations::register("unisono_gangs", wrapper.id, &value, &information)
            .map_err(|error| refused(&error))?;
        Ok(Self { turn, state, gangs: table, switch, _operations: operations })
    }

    /// Registers the control group of a gang.
    pub(super) fn know(&self, group: u64, gang: usize) -> Result<(), ProgramError> {
        self.gangs
            .insert(&group.to_ne_bytes(), &(gang as u32).to_ne_bytes())
            .map_err(ProgramError::io("tell the kernel of a gang"))
    }

    /// Writes the gangs' standings. They take effect with [`switch`](Self::switch).
    pub(super) fn write(&self, standings: &[KernelStanding]) -> Result<(), ProgramError> {
        self.turn.write(0, &turn_of(standings)).map_err(ProgramError::io("tell the kernel whose turn it is"))
    }

    /// Makes every processor choose a thread anew. Fails with [`ProgramError::Host`] if the kernel has
    /// unloaded the scheduler; the error has the kernel's reason.
    pub(super) fn switch(&self) -> Result<(), ProgramError> {
        match self.switch.call().map_err(ProgramError::io("switch the gangs in the kernel"))? {
            0 => Ok(()),
            kind => Err(ProgramError::Host(format!(
                "the kernel has ended the scheduler of gangs ({}, kind {kind}): all threads are in the fair \
                 class again; use --mechanism freeze",
                self.message()
            ))),
        }
    }

    pub(super) fn exceptions(&self) -> Result<KernelExceptions, ProgramError> {
        let mut state = vec![0; STATE];
        self.state.read(0, &mut state).map_err(ProgramError::io("read what the scheduler has counted"))?;
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| state[at + byte]));
        Ok(KernelExceptions { breaths: word(4), went_on: word(8) })
    }

    fn message(&self) -> String {
        let mut state = vec![0; STATE];
        if self.state.read(0, &mut state).is_err() {
            return "for an unknown reason".to_owned();
        }
        let words = state[STATE - 2 * MESSAGE..].chunks(MESSAGE).map(|words| {
            String::from_utf8_lossy(words.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
        });
        words.filter(|words| !words.is_empty()).collect::<Vec<_>>().join(": ")
    }
}

fn refused(error: &io::Error) -> ProgramError {
    let what = "have the kernel use the scheduler of gangs";
    if error.raw_os_error() == Some(unisono_linux::Errno::BUSY.raw_os_error()) {
        return ProgramError::Host(format!(
            "cannot {what}: another scheduler is loaded already (cat /sys/kernel/sched_ext/root/ops); end it, or \
             use --mechanism freeze"
        ));
    }
    ProgramError::Host(format!("cannot {what}: {error}; dmesg says why; or use --mechanism freeze"))
}

/// Returns the bytes of `struct turn` in the program.
fn turn_of(standings: &[KernelStanding]) -> Vec<u8> {
    let with = |wanted| {
        let gangs = standings.iter().enumerate();
        gangs.filter(move |(_, standing)| **standing == wanted).map(|(gang, _)| gang as u32)
    };
    let order: Vec<u32> = with(KernelStanding::Runs).chain(with(KernelStanding::Lent)).collect();
    let runs = with(KernelStanding::Runs).count() as u32;
    let mut words = vec![runs, order.len() as u32 - runs];
    words.extend(&order);
    words.resize(2 + MAX_GANGS, 0);
    words.extend(standings.iter().map(|standing| *standing as u32));
    words.resize(2 + 2 * MAX_GANGS, 0);
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_names_first_the_gangs_that_run_then_those_that_use_what_is_left() {
        use KernelStanding::{Lent, Runs, Waits};
        let turn = turn_of(&[Lent, Waits, Runs, Runs]);
        assert_eq!(turn.len(), TURN);
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| turn[4 * at + byte]));
        assert_eq!([word(0), word(1)], [2, 1]);
        assert_eq!([word(2), word(3), word(4), word(5)], [2, 3, 0, 0]);
        let standings = 2 + MAX_GANGS;
        assert_eq!([0, 1, 2, 3].map(|gang| word(standings + gang)), [1, 0, 2, 2]);
    }

    #[test]
    fn nothing_stays_open_in_the_object_where_the_kernel_is_known() {
        let object = match compile(GANGS) {
            Ok(object) => object,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let sections = OPERATIONS.iter().map(|(name, _)| format!("struct_ops/{name}"));
        for section in sections.chain(["syscall".to_owned()]) {
            object::link(&object, &section, |symbol| {
                Some(match symbol {
                    "turn" | "state" | "processors" | "gangs" => SymbolValue::Map(3),
                    "number_of_gangs" | "breath_ticks" => SymbolValue::Number(8),
                    _ if symbol.starts_with("offset_of__") => SymbolValue::Number(8),
                    _ => SymbolValue::Function(9),
                })
            })
            .expect("maps, numbers and functions are used as what they are");
        }
    }
}
