//! Where the members of a job meet: a name in the abstract socket namespace, computed from the job's key.
//!
//! The name must not tell the key, because anybody may list names (`/proc/net/unix`). So it is SipHash-2-4
//! of a constant *under* the key: who does not know the key can neither compute the name nor get the key
//! from it. Cost: some 100 ns, once. Reference: Aumasson and Bernstein, "SipHash: a fast short-input PRF",
//! INDOCRYPT 2012.

use crate::job::Key;

/// The name at which rank 0 listens.
pub(crate) fn meeting_place(key: &Key) -> String {
    format!("unisono-{:016x}", siphash(key.bytes(), b"rendezvous of a job, version 1"))
}

/// SipHash-2-4.
fn siphash(key: &[u8; 16], text: &[u8]) -> u64 {
    let (low, high) = key.split_at(8);
    let word = |bytes: &[u8]| {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(padded)
    };
    let (low, high) = (word(low), word(high));
    let mut state = [
        low ^ 0x736f_6d65_7073_6575,
        high ^ 0x646f_7261_6e64_6f6d,
        low ^ 0x6c79_6765_6e65_7261,
        high ^ 0x7465_6462_7974_6573,
    ];
    let (whole, rest) = text.as_chunks::<8>();
    let last = word(rest) | (text.len() as u64) << 56;
    for block in whole.iter().map(|block| u64::from_le_bytes(*block)).chain([last]) {
        state[3] ^= block;
        rounds(&mut state, 2);
        state[0] ^= block;
    }
    state[2] ^= 0xff;
    rounds(&mut state, 4);
    state.iter().fold(0, |hash, word| hash ^ word)
}

fn rounds(state: &mut [u64; 4], count: usize) {
    let [a, b, c, d] = state;
    for _ in 0..count {
        *a = a.wrapping_add(*b);
        *c = c.wrapping_add(*d);
        *b = b.rotate_left(13) ^ *a;
        *d = d.rotate_left(16) ^ *c;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*b);
        *a = a.wrapping_add(*d);
        *b = b.rotate_left(17) ^ *c;
        *d = d.rotate_left(21) ^ *a;
        *c = c.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_paper() {
        let key = std::array::from_fn(|at| at as u8);
        let text: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(&key, &text), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn a_name_depends_on_every_byte_of_the_key_and_does_not_contain_it() {
        let name = meeting_place(&Key::from_bytes([7; 16]));
        assert!(!name.contains("0707"), "{name}");
        for at in 0..16 {
            let mut other = [7; 16];
            other[at] = 8;
            assert_ne!(meeting_place(&Key::from_bytes(other)), name);
        }
    }
}
