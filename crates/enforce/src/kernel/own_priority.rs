//! Keeps sockets from choosing their class.
//!
//! HTB puts a packet whose priority is the handle of a class into that class, without asking the classifier.
//! So a program with `CAP_NET_ADMIN` (which root in a container has) could bypass the policy. A BPF program
//! at the device's egress, before all others and before the queueing discipline, clears such priorities.
//! Needs tcx (Linux 6.6).

use super::htb_classes::HANDLE;
use crate::error::Error;
use std::io;
use unisono_linux::bpf::ClassifierProgram;
use unisono_linux::bpf::assembler::{AluOperation, Assembler, JumpWhen, LoadSize, R0, R1, R2};
use unisono_linux::bpf::tcx::{self, TcxHook};
use unisono_linux::netlink::link::Index;

const PROGRAM: &str = "unisono_prio";
/// The offset of `priority` in `struct __sk_buff`.
const PRIORITY: i16 = 32;
const MAJOR: u32 = 0xffff_0000;

pub(super) fn program() -> Result<ClassifierProgram, Error> {
    let mut code = Assembler::default();
    let others = code.label();
    code.load(LoadSize::Four, R2, R1, PRIORITY).number(AluOperation::And32, R2, MAJOR.cast_signed());
    code.jump_if(JumpWhen::Not32, R2, HANDLE.cast_signed(), others);
    code.set(R2, 0).store_four(R1, PRIORITY, R2);
    code.here(others).set(R0, tcx::NEXT).exit();
    Ok(ClassifierProgram::load(
        PROGRAM,
        &code.finish().expect("short because it is seven instructions"),
    )?)
}

/// Attaches the program. Returns a note if the kernel lacks tcx.
pub(super) fn attach(program: &ClassifierProgram, device: Index) -> Result<Option<String>, Error> {
    match tcx::replace_or_prepend(program, PROGRAM, device, TcxHook::Egress) {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(Some(
            "this kernel is older than 6.6: a program with CAP_NET_ADMIN can choose its class by SO_PRIORITY"
                .to_owned(),
        )),
        Err(source) => Err(Error::System { what: "keep sockets from choosing their class", source }),
    }
}

/// Detaches the program. Does nothing if the program, the device or tcx is missing.
pub(super) fn detach(device: Index) {
    let _ = tcx::detach_named(PROGRAM, device, TcxHook::Egress);
}
