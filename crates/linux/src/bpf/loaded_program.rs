//! Programs that are in the kernel already, of this process or of others: their names and instructions.
//!
//! Reference: bpf(2), include/uapi/linux/bpf.h (`struct bpf_prog_info`).

use super::{Attributes, INFORMATION, bpf, owned};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const PROGRAM_BY_ID: i32 = 13;
/// Offsets in `struct bpf_prog_info`.
const INSTRUCTION_BYTES: usize = 20;
const INSTRUCTIONS: usize = 32;
const NAME: usize = 64;
const NAME_BYTES: usize = 16;
const INFO_BYTES: usize = 80;

#[derive(Debug)]
pub struct LoadedProgram {
    descriptor: OwnedFd,
    /// The program's name, at most 15 bytes.
    pub name: String,
    instructions: usize,
}

impl LoadedProgram {
    /// Opens the program with this number in the kernel; `None` if the program is gone.
    pub fn by_id(id: u32) -> io::Result<Option<Self>> {
        let mut attributes = Attributes::new().word(0, id);
        // SAFETY: the command follows no pointers.
        let descriptor = match unsafe { bpf(PROGRAM_BY_ID, &mut attributes) } {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => owned(opened?),
        };
        let mut information = [0_u8; INFO_BYTES];
        // SAFETY: all fields of the information that are pointers are null, with lengths of zero.
        unsafe { inform(&descriptor, &mut information)? };
        let name = &information[NAME..NAME + NAME_BYTES];
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        let name = String::from_utf8_lossy(&name[..length]).into_owned();
        let bytes: [u8; 4] = [0, 1, 2, 3].map(|byte| information[INSTRUCTION_BYTES + byte]);
        Ok(Some(Self { descriptor, name, instructions: u32::from_ne_bytes(bytes) as usize / 8 }))
    }

    /// Returns the instructions as the verifier has left them, or nothing if this process may not read them.
    pub fn instructions(&self) -> io::Result<Vec<u64>> {
        let mut instructions = vec![0_u64; self.instructions];
        let mut information = [0_u8; INFO_BYTES];
        let bytes = (instructions.len() * 8) as u32;
        information[INSTRUCTION_BYTES..INSTRUCTION_BYTES + 4].copy_from_slice(&bytes.to_ne_bytes());
        let address = instructions.as_mut_ptr() as u64;
        information[INSTRUCTIONS..INSTRUCTIONS + 8].copy_from_slice(&address.to_ne_bytes());
        // SAFETY: the instructions are valid for writes of the given length; all other pointers are null.
        unsafe { inform(&self.descriptor, &mut information)? };
        let is_hidden = information[INSTRUCTIONS..INSTRUCTIONS + 8] == [0; 8];
        Ok(if is_hidden { Vec::new() } else { instructions })
    }
}

crate::as_fd!(LoadedProgram.descriptor);

/// Reads a program's information.
///
/// # Safety
/// The pointers in the information must be valid for writes of the lengths beside them.
unsafe fn inform(program: &OwnedFd, information: &mut [u8; INFO_BYTES]) -> io::Result<()> {
    let mut attributes = Attributes::new()
        .word(0, program.as_raw_fd() as u32)
        .word(4, INFO_BYTES as u32)
        .pointer(8, information.as_mut_ptr());
    // SAFETY: the information is valid for writes of the given length; the caller guarantees the pointers in
    // it.
    unsafe { bpf(INFORMATION, &mut attributes).map(drop) }
}
