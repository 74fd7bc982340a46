//! Type information that goes with our own maps (BTF).
//!
//! Only as much as the kernel has to be told: a map's values that own kernel objects say so by their types.

use super::{Attributes, bpf, owned};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const LOAD: i32 = 18;

/// Types in the kernel. Maps made with them keep them.
#[derive(Debug)]
pub struct TypeInformation(OwnedFd);

impl TypeInformation {
    /// Gives the kernel encoded types (Documentation/bpf/btf.rst). Fails if the kernel does not understand
    /// them, and with `EPERM` without `CAP_BPF`.
    pub fn load(encoded: &[u8]) -> io::Result<Self> {
        let mut attributes = Attributes::new().pointer(0, encoded.as_ptr()).word(16, encoded.len() as u32);
        // SAFETY: the bytes are valid for their length; no log is asked for.
        let descriptor = unsafe { bpf(LOAD, &mut attributes)? };
        Ok(Self(owned(descriptor)))
    }
}

impl AsFd for TypeInformation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
