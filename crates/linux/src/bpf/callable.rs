//! Programs that run when this process calls them (`BPF_PROG_TYPE_SYSCALL`), for what only the kernel may do
//! to its own objects.

use super::{Attributes, NotLoaded, PROGRAM_TEST_RUN, SLEEPABLE, bpf, load};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const SYSTEM_CALL: u32 = 31;

#[derive(Debug)]
pub struct Callable(OwnedFd);

impl Callable {
    /// Loads one; as [`super::ClassifierProgram::load`]. Needs Linux 5.14.
    pub fn load(name: &str, instructions: &[u64]) -> Result<Self, NotLoaded> {
        load(Attributes::new().word(0, SYSTEM_CALL).word(44, SLEEPABLE), name, instructions).map(Self)
    }

    /// Runs it once, without arguments, on this processor; answers what it returns.
    pub fn call(&self) -> io::Result<u32> {
        let mut attributes = Attributes::new().word(0, self.0.as_raw_fd() as u32);
        // SAFETY: the command follows no pointers when no data and no context are given.
        unsafe { bpf(PROGRAM_TEST_RUN, &mut attributes)? };
        Ok(attributes.answer(4))
    }
}
