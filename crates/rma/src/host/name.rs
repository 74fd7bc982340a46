//! The meeting place of a job's members: a name in the abstract socket namespace, computed from the job's
//! key.
//!
//! The name must not reveal the key, because every user can list the names (`/proc/net/unix`). So it is a
//! message authentication code of a constant *under* the key: without the key a process cannot compute the
//! name, and it cannot compute the key from the name. Cost: a microsecond, once. Reference: RFC 2104.

use crate::model::Key;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Returns the name at which rank 0 listens.
pub(crate) fn socket_name(key: &Key) -> String {
    let mut code = Hmac::<Sha256>::new_from_slice(key.bytes())
        .expect("a code can be made because HMAC takes keys of any length");
    code.update(b"rendezvous of a job on one host, version 2");
    let digits: String =
        code.finalize().into_bytes().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("unisono-{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_depends_on_every_byte_of_the_key_and_does_not_contain_it() {
        let name = socket_name(&Key::from_bytes([7; 16]));
        assert!(!name.contains("0707"), "{name}");
        for at in 0..16 {
            let mut other = [7; 16];
            other[at] = 8;
            assert_ne!(socket_name(&Key::from_bytes(other)), name);
        }
    }
}
