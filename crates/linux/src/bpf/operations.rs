//! Programs that implement kernel operations (`BPF_PROG_TYPE_STRUCT_OPS`).
//!
//! Many parts of the kernel call their variants through a structure of functions: congestion controls,
//! schedulers, queueing disciplines. Such a structure can be filled with programs, one for each function, and
//! registered; from then on users can select it by name like any other variant. Type numbers refer to the
//! kernel's own type information.
//!
//! Reference: Documentation/bpf/, `bpf_struct_ops` in include/linux/bpf.h.

use super::type_information::TypeInformation;
use super::{Attributes, MAP_UPDATE, NotLoaded, SLEEPABLE, bpf, element, load, owned};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const STRUCT_OPS_PROGRAM: u32 = 27;
const STRUCT_OPS_MAP: u32 = 26;
const STRUCT_OPS_LINK: u32 = 44;
const REGISTERED_BY_LINK: u32 = 1 << 13;
const LINK_CREATE: i32 = 28;

/// Whether a program calls kernel functions that may sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MaySleep {
    Yes,
    No,
}

#[derive(Debug)]
pub struct LoadedOperations(OwnedFd);

impl LoadedOperations {
    /// Loads a program as the n-th member of a kernel structure. Fails with `EPERM` without `CAP_BPF`; a
    /// refusal by the verifier includes the end of its log.
    pub fn load(
        name: &str,
        instructions: &[u64],
        (structure, member): (u32, u32),
        sleeps: MaySleep,
    ) -> Result<Self, NotLoaded> {
        let flags = if sleeps == MaySleep::Yes { SLEEPABLE } else { 0 };
        let kind = Attributes::new()
            .word(0, STRUCT_OPS_PROGRAM)
            .word(44, flags)
            .word(68, member)
            .word(108, structure);
        load(kind, name, instructions).map(Self)
    }
}

crate::as_fd!(LoadedOperations.0);

/// A registered structure of functions. Users can select it by name as long as this value exists; users that
/// have selected it keep it afterwards.
#[derive(Debug)]
pub struct Operations {
    _link: OwnedFd,
}

impl Operations {
    /// Registers a structure: `value` has the layout of the kernel's type `wrapper`, which wraps the
    /// structure, with descriptors of programs in place of functions. Fails if a required function is
    /// missing, if the name is taken, or if the kernel has no such structure.
    pub fn register(name: &str, wrapper: u32, value: &[u8], types: &TypeInformation) -> io::Result<Self> {
        let map = Attributes::map(STRUCT_OPS_MAP, name, [4, value.len() as u32, 1])
            .word(16, REGISTERED_BY_LINK)
            .word(48, types.as_fd().as_raw_fd() as u32)
            .word(60, wrapper)
            .make_map()?;
        let first = 0_u32;
        // SAFETY: the key has four bytes, and the map was made with the length of the value.
        unsafe { element(MAP_UPDATE, &map, &raw const first, value.as_ptr())? };
        let mut attributes = Attributes::new().word(0, map.as_raw_fd() as u32).word(8, STRUCT_OPS_LINK);
        // SAFETY: the command follows no pointers.
        let link = owned(unsafe { bpf(LINK_CREATE, &mut attributes)? });
        Ok(Self { _link: link })
    }
}
