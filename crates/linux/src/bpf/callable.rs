//! Programs that run when this process calls them (`BPF_PROG_TYPE_SYSCALL`), for actions on kernel objects
//! that only code in the kernel may take.

use super::{Attributes, NotLoaded, PROGRAM_TEST_RUN, SLEEPABLE, bpf, load};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const SYSTEM_CALL: u32 = 31;

#[derive(Debug)]
pub struct Callable(OwnedFd);

impl Callable {
    /// Loads a program, as [`super::ClassifierProgram::load`] does. Needs Linux 5.14.
    pub fn load(name: &str, instructions: &[u64]) -> Result<Self, NotLoaded> {
        load(Attributes::new().word(0, SYSTEM_CALL).word(44, SLEEPABLE), name, instructions).map(Self)
    }

    /// Runs the program once, without arguments, on this processor; returns its result.
    pub fn call(&self) -> io::Result<u32> {
        let mut attributes = Attributes::new().word(0, self.0.as_raw_fd() as u32);
        // SAFETY: without data and context the command follows no pointers.
        unsafe { bpf(PROGRAM_TEST_RUN, &mut attributes)? };
        Ok(attributes.answer(4))
    }
}
