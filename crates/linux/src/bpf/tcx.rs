//! Lists of BPF programs at a device (tcx, Linux 6.6): a hook where each program has a place of its own, so
//! that several owners coexist without a queueing discipline.
//!
//! The kernel keeps a program attached as long as the device exists, even after the process that attached it
//! has ended. A later process finds the program by its name. Reference: include/uapi/linux/bpf.h
//! (`BPF_TCX_*`), Documentation/bpf/.

use super::{Attributes, ClassifierProgram, LoadedProgram, PROGRAM_ATTACH, PROGRAM_DETACH, bpf};
use crate::netlink::link::Index;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

const PROGRAM_QUERY: i32 = 16;
const REPLACE: u32 = 1 << 2;
const BEFORE: u32 = 1 << 3;
/// The maximum number of programs of a hook that are read; the kernel allows 63.
const MAX_PROGRAMS: usize = 64;
/// The result of a program that leaves the packet to the next program or, after the last one, to the network
/// stack (`TCX_NEXT`).
pub const NEXT: i32 = -1;

/// A place where a device runs programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcxHook {
    Ingress = 46,
    Egress = 47,
}

/// Returns the programs of a hook, in the order of execution. Fails with `EINVAL` if the kernel is older than
/// 6.6.
pub fn programs(device: Index, hook: TcxHook) -> io::Result<Vec<LoadedProgram>> {
    let mut ids = [0_u32; MAX_PROGRAMS];
    let mut attributes = Attributes::new()
        .word(0, device.0)
        .word(4, hook as u32)
        .pointer(16, ids.as_mut_ptr())
        .word(24, MAX_PROGRAMS as u32);
    // SAFETY: the kernel writes at most as many numbers as the given length, and `ids` outlives the call.
    unsafe { bpf(PROGRAM_QUERY, &mut attributes)? };
    let count = (attributes.answer(24) as usize).min(MAX_PROGRAMS);
    ids[..count].iter().filter_map(|id| LoadedProgram::by_id(*id).transpose()).collect()
}

/// Attaches a program, in place of the program of this name at the hook. If there is none, the new program
/// runs before all others. Fails with `EINVAL` if the kernel is older than 6.6, and with `ENODEV` if the
/// device does not exist.
pub fn replace_or_prepend(
    program: &ClassifierProgram,
    name: &str,
    device: Index,
    hook: TcxHook,
) -> io::Result<()> {
    let earlier = programs(device, hook)?.into_iter().find(|there| there.name == name);
    let attributes =
        Attributes::new().word(0, device.0).word(4, program.as_fd().as_raw_fd() as u32).word(8, hook as u32);
    let mut attributes = match &earlier {
        Some(earlier) => attributes.word(12, REPLACE).word(16, earlier.as_fd().as_raw_fd() as u32),
        None => attributes.word(12, BEFORE),
    };
    // SAFETY: the command follows no pointers.
    unsafe { bpf(PROGRAM_ATTACH, &mut attributes) }.map(|_| ())
}

/// Detaches the programs of this name. Returns whether there were any.
pub fn detach_named(name: &str, device: Index, hook: TcxHook) -> io::Result<bool> {
    let mut found = false;
    for program in programs(device, hook)?.iter().filter(|program| program.name == name) {
        let mut attributes = Attributes::new()
            .word(0, device.0)
            .word(4, program.as_fd().as_raw_fd() as u32)
            .word(8, hook as u32);
        // SAFETY: the command follows no pointers.
        unsafe { bpf(PROGRAM_DETACH, &mut attributes)? };
        found = true;
    }
    Ok(found)
}
