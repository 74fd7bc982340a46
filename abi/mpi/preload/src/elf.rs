//! Which shared libraries an executable asks for: the `DT_NEEDED` entries of its dynamic section.
//!
//! Bytes are untrusted; whatever makes no sense is no entry. Reference: elf(5).

/// The names, in order; none for what is no dynamically linked 64-bit executable of this machine's byte order.
#[must_use]
pub fn needed(file: &[u8]) -> Vec<String> {
    read(file).unwrap_or_default()
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

fn bytes<const N: usize>(file: &[u8], at: u64) -> Option<[u8; N]> {
    let at = usize::try_from(at).ok()?;
    file.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn half(file: &[u8], at: u64) -> Option<u64> {
    bytes(file, at).map(u16::from_ne_bytes).map(u64::from)
}

fn word(file: &[u8], at: u64) -> Option<u32> {
    bytes(file, at).map(u32::from_ne_bytes)
}

fn long(file: &[u8], at: u64) -> Option<u64> {
    bytes(file, at).map(u64::from_ne_bytes)
}

fn read(file: &[u8]) -> Option<Vec<String>> {
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if file.get(..4)? != b"\x7fELF" || file.get(4)? != &2 || file.get(5)? != &order {
        return None;
    }
    let (headers, size, count) = (long(file, 32)?, half(file, 54)?, half(file, 56)?);
    let header = |index: u64| headers.checked_add(index.checked_mul(size)?);
    let mut dynamic = None;
    // (address, file offset, length) of what is loaded, to find an address in the file
    let mut loaded = Vec::new();
    for at in (0..count).filter_map(header) {
        let (offset, address, length) = (
            long(file, at.checked_add(8)?)?,
            long(file, at.checked_add(16)?)?,
            long(file, at.checked_add(32)?)?,
        );
        match word(file, at)? {
            PT_LOAD => loaded.push((address, offset, length)),
            PT_DYNAMIC => dynamic = Some((offset, length)),
            _ => {}
        }
    }
    let (start, length) = dynamic?;
    let mut names = Vec::new();
    let mut strings = None;
    for at in (start..start.checked_add(length)?).step_by(16) {
        let value = long(file, at.checked_add(8)?)?;
        match long(file, at)? {
            DT_NULL => break,
            DT_NEEDED => names.push(value),
            DT_STRTAB => strings = Some(value),
            _ => {}
        }
    }
    let strings = strings?;
    let (address, offset, _) = loaded
        .into_iter()
        .find(|(address, _, length)| strings.checked_sub(*address).is_some_and(|inside| inside < *length))?;
    let table = offset.checked_add(strings.checked_sub(address)?)?;
    let text = |name: u64| {
        let start = usize::try_from(table.checked_add(name)?).ok()?;
        let rest = file.get(start..)?;
        let end = rest.iter().take(4096).position(|byte| *byte == 0)?;
        String::from_utf8(rest[..end].to_vec()).ok()
    };
    Some(names.into_iter().filter_map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_needs_the_c_library() {
        let me = std::fs::read(std::env::current_exe().expect("a path")).expect("readable");
        assert!(needed(&me).iter().any(|name| name.starts_with("libc.so")), "{:?}", needed(&me));
    }

    #[test]
    fn what_is_no_executable_needs_nothing() {
        assert!(needed(b"#!/bin/sh\necho hello\n").is_empty());
        assert!(needed(b"").is_empty());
    }

    #[test]
    fn a_damaged_executable_is_survived() {
        let me = std::fs::read(std::env::current_exe().expect("a path")).expect("readable");
        let mut head = me[..me.len().min(4096)].to_vec();
        for at in 0..head.len() {
            let kept = head[at];
            head[at] = 255 - kept;
            let _ = needed(&head);
            head[at] = kept;
        }
    }
}
