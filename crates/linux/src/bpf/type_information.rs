//! Type information (BTF) for our own maps.
//!
//! It holds only the types that the kernel requires: the types of map values that own kernel objects.

use super::{Attributes, bpf, owned};
use std::io;
use std::os::fd::OwnedFd;

const LOAD: i32 = 18;
const HEAD: u32 = 24;
const MAGIC: u32 = 0x0001_eb9f;

/// Encodes types for the kernel: `names` holds the names that `types` refers to, each terminated by a zero;
/// the first name is empty.
#[must_use]
pub fn encode(names: &[u8], types: &[u32]) -> Vec<u8> {
    let length = types.len() as u32 * 4;
    let head = [MAGIC, HEAD, 0, length, length, names.len() as u32];
    let words = head.iter().chain(types).flat_map(|word| word.to_ne_bytes());
    words.chain(names.iter().copied()).collect()
}

/// Type information in the kernel. Maps made with it keep it alive.
#[derive(Debug)]
pub struct TypeInformation(OwnedFd);

impl TypeInformation {
    /// Loads encoded types into the kernel (Documentation/bpf/btf.rst). Fails if the kernel does not
    /// understand them, and with `EPERM` without `CAP_BPF`.
    pub fn load(encoded: &[u8]) -> io::Result<Self> {
        let mut attributes = Attributes::new().pointer(0, encoded.as_ptr()).word(16, encoded.len() as u32);
        // SAFETY: the bytes are valid for their length; no log buffer is given.
        let descriptor = unsafe { bpf(LOAD, &mut attributes)? };
        Ok(Self(owned(descriptor)))
    }

    /// Loads minimal type information that the kernel accepts, with a single integer type, for maps whose
    /// values own no objects. Fails as [`load`](Self::load) does.
    pub fn minimal() -> io::Result<Self> {
        // an integer of four bytes with the name `int`
        Self::load(&encode(b"\0int\0", &[1, 1 << 24, 4, 32]))
    }
}

crate::as_fd!(TypeInformation.0);
