//! Loads the queueing discipline into the kernel, with its maps.
//!
//! Each loaded discipline has its own name and maps, and serves one device. Its name is `unisono_` and the id
//! of the scheduler's map, so that a program that reads the name can open the map. A device can be given the
//! discipline while the [`LoadedDiscipline`] exists, and then keeps it until it gets another one.

use super::attached::Attached;
use super::layout::{self, Counted};
use super::setup::{KIND, PRIORITIES, Setup};
use super::{Error, FAIRQUEUE};
use std::os::fd::{AsFd, AsRawFd};
use unisono_linux::bpf::compile::{ProgramError, compile};
use unisono_linux::bpf::object::{self, SymbolValue};
use unisono_linux::bpf::{
    Array, KernelTypes, LoadedOperations, MaySleep, Operations, Structure, TypeInformation, type_information,
};
use unisono_linux::clock::Instant;

const WRAPPER: &str = "bpf_struct_ops_Qdisc_ops";
const OPERATIONS: [&str; 5] = ["enqueue", "dequeue", "init", "reset", "destroy"];
/// `struct link`: rate, time when free, remainder, devices, the default class, classes by priority.
const LINK: u32 = 32 + 4 * PRIORITIES as u32;
const HELD: u32 = 8;

/// A registered queueing discipline. A device gets it by its [`kind`](Self::kind).
#[derive(Debug)]
pub struct LoadedDiscipline {
    kind: String,
    maps: Attached,
    clock: Array,
    _operations: Operations,
}

/// Returns the kernel's types, if this kernel supports queueing disciplines made of BPF programs. Otherwise
/// [`ProgramError::Host`] gives the reason.
pub fn supported() -> Result<KernelTypes, ProgramError> {
    let types = KernelTypes::of_this_kernel()?;
    if types.structure(WRAPPER).is_none() {
        return Err(ProgramError::Host(
            "the kernel has no queueing disciplines made of BPF programs; use Linux 6.16 or later with \
             CONFIG_NET_SCH_BPF"
                .to_owned(),
        ));
    }
    Ok(types)
}

impl LoadedDiscipline {
    /// Compiles the discipline and registers it.
    pub fn load(setup: &Setup<'_>) -> Result<Self, Error> {
        let types = supported()?;
        Self::load_object(setup, &compile(FAIRQUEUE)?, &types)
    }

    /// Registers a discipline from an object file that was compiled before.
    pub fn load_object(setup: &Setup<'_>, object: &[u8], types: &KernelTypes) -> Result<Self, Error> {
        let classes = layout::encode_with_room(setup.hierarchy, setup.room)?;
        let own = Attached::make(classes)?;
        let information =
            TypeInformation::load(&held_types()).map_err(ProgramError::io("describe a map's types"))?;
        let map = |name, size| {
            Array::new(name, size, 1).map_err(ProgramError::io(format!("make the BPF map {name}")))
        };
        let link = map("link", LINK)?;
        let clock = map("clock", 8)?;
        let held =
            Array::with_types("held", HELD, layout::MAX_PACKETS as u32, (&information, HELD_KEY, HELD_VALUE))
                .map_err(ProgramError::io("make the BPF map held, which owns packets"))?;
        link.write(0, &setup.link()).map_err(ProgramError::io("write what the link can do"))?;

        let maps = [
            ("scheduler", &own.scheduler),
            ("plan", &own.plan),
            ("change", &own.change),
            ("delays", &own.delays),
            ("link", &link),
            ("clock", &clock),
            ("held", &held),
        ];
        let value_of = |name: &str| {
            let map = maps.iter().find(|(known, _)| *known == name);
            map.map(|(_, map)| SymbolValue::Map(map.as_fd().as_raw_fd())).or_else(|| types.symbol(name))
        };
        let wrapper = structure(types, WRAPPER)?;
        let inside = structure(types, "Qdisc_ops")?;
        let mut value = vec![0; wrapper.size as usize];
        let begin = types.member(wrapper, &["data"]).map_or(0, |data| data.offset as usize);
        let mut programs = Vec::new();
        for name in OPERATIONS {
            let instructions = object::link(object, &format!("struct_ops/{name}"), value_of)?;
            let member =
                types.member(inside, &[name]).ok_or_else(|| unknown(&format!("Qdisc_ops.{name}")))?;
            let program =
                LoadedOperations::load(name, &instructions, (inside.id, member.position), MaySleep::No)
                    .map_err(ProgramError::from)?;
            put(&mut value, begin + member.offset as usize, &program.as_fd().as_raw_fd().to_ne_bytes());
            programs.push(program);
        }
        let id = own.scheduler.id().map_err(ProgramError::io("ask for the number of a BPF map"))?;
        let kind = format!("{KIND}{id:x}");
        let name = types.member(inside, &["id"]).ok_or_else(|| unknown("Qdisc_ops.id"))?;
        put(&mut value, begin + name.offset as usize, kind.as_bytes());
        let operations = Operations::register(&kind, wrapper.id, &value, &information)
            .map_err(ProgramError::io(format!("register the queueing discipline {kind}")))?;
        Ok(Self { kind, maps: own, clock, _operations: operations })
    }

    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Sets the program's clock, for tests.
    pub fn set_clock(&self, now: Instant) -> Result<(), ProgramError> {
        self.clock.write(0, &now.as_nanos().to_ne_bytes()).map_err(ProgramError::io("set the clock"))
    }

    pub fn maps(&self) -> &Attached {
        &self.maps
    }

    pub fn counted(&self) -> Result<Vec<Counted>, ProgramError> {
        self.maps.counted()
    }
}

fn put(value: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = value.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn unknown(what: &str) -> ProgramError {
    ProgramError::Host(format!(
        "this kernel has no {what}, which its queueing disciplines had when this was written; use --kernel-queue htb"
    ))
}

fn structure(types: &KernelTypes, name: &str) -> Result<Structure, ProgramError> {
    types.structure(name).ok_or_else(|| unknown(&format!("struct {name}")))
}

const HELD_KEY: u32 = 1;
const HELD_VALUE: u32 = 5;

/// Returns the types of `struct held { struct sk_buff __kptr *skb; }` and of its key, a number. They tell the
/// verifier that a value of the map owns a packet.
fn held_types() -> Vec<u8> {
    let names = b"\0unsigned int\0sk_buff\0kptr\0held\0skb\0";
    let kind = |kind: u32, members: u32| kind << 24 | members;
    let types: [&[u32]; 5] = [
        &[1, kind(1, 0), 4, 32],           // 1: unsigned int
        &[14, kind(4, 0), 0],              // 2: struct sk_buff, without members
        &[22, kind(18, 0), 2],             // 3: the same type, tagged as owned by its holder
        &[0, kind(2, 0), 3],               // 4: a pointer to it
        &[27, kind(4, 1), HELD, 32, 4, 0], // 5: struct held
    ];
    type_information::encode(names, &types.concat())
}

unisono_linux::as_fd!(LoadedDiscipline.maps.scheduler);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_the_map_are_well_made() {
        let types = KernelTypes::parse(held_types()).expect("they are");
        let held = types.structure("held").expect("it is there");
        assert_eq!((held.id, held.size), (HELD_VALUE, HELD));
        assert_eq!(types.member(held, &["skb"]).map(|member| member.kind), Some(4));
        assert_eq!(types.structure("sk_buff").map(|buffer| buffer.id), Some(2));
    }

    #[test]
    fn nothing_stays_open_in_the_object_where_the_kernel_is_known() {
        let object = match compile(FAIRQUEUE) {
            Ok(object) => object,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        for name in OPERATIONS {
            let section = format!("struct_ops/{name}");
            object::link(&object, &section, |symbol| {
                Some(match symbol {
                    "scheduler" | "link" | "clock" | "held" | "plan" | "change" | "delays" => {
                        SymbolValue::Map(3)
                    }
                    _ if symbol.starts_with("offset_of__") => SymbolValue::Number(8),
                    _ => SymbolValue::Function(9),
                })
            })
            .expect("maps, members and functions are used as what they are");
        }
    }
}
