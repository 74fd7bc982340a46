//! Which shared libraries an executable asks for (the `DT_NEEDED` entries of its dynamic section), and what it has
//! linked in.
//!
//! Bytes are untrusted; whatever makes no sense is no entry. Reference: elf(5).

/// The names, in order; none for what is no dynamically linked 64-bit executable of this machine's byte order.
#[must_use]
pub fn needed(file: &[u8]) -> Vec<String> {
    read(file).unwrap_or_default()
}

/// Whether it is an executable that no dynamic linker loads, so that nothing can be preloaded into it.
#[must_use]
pub fn is_static(file: &[u8]) -> bool {
    const EXECUTABLES: [u64; 2] = [2, 3];
    let interpreted = || {
        let (headers, size, count) = (long(file, 32)?, half(file, 54)?, half(file, 56)?);
        let kind = |index: u64| word(file, headers.checked_add(index.checked_mul(size)?)?);
        Some((0..count).any(|index| kind(index) == Some(PT_INTERP)))
    };
    is_elf(file)
        && half(file, 16).is_some_and(|kind| EXECUTABLES.contains(&kind))
        && interpreted() == Some(false)
}

/// Whether a function of this name is part of it, as far as its symbol tables say.
#[must_use]
pub fn defines(file: &[u8], name: &[u8]) -> bool {
    is_elf(file) && defined(file, name).unwrap_or(false)
}

fn is_elf(file: &[u8]) -> bool {
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    file.starts_with(b"\x7fELF") && file.get(4) == Some(&2) && file.get(5) == Some(&order)
}

/// A section: its kind, place, length, and the section it belongs to.
fn section(file: &[u8], index: u64) -> Option<(u32, u64, u64, u64)> {
    let at = long(file, 40)?.checked_add(index.checked_mul(half(file, 58)?)?)?;
    Some((
        word(file, at.checked_add(4)?)?,
        long(file, at.checked_add(24)?)?,
        long(file, at.checked_add(32)?)?,
        u64::from(word(file, at.checked_add(40)?)?),
    ))
}

fn defined(file: &[u8], name: &[u8]) -> Option<bool> {
    const SYMBOL: u64 = 24;
    for index in 0..half(file, 60)? {
        let (kind, start, length, strings) = section(file, index)?;
        if kind != SHT_SYMTAB && kind != SHT_DYNSYM {
            continue;
        }
        let (_, strings, ..) = section(file, strings)?;
        let end = start.checked_add(length)?.min(file.len() as u64);
        let mut at = start;
        while at.checked_add(SYMBOL)? <= end {
            let text = usize::try_from(strings.checked_add(u64::from(word(file, at)?))?).ok()?;
            let is_here = half(file, at + 6)? != 0;
            let found = file
                .get(text..)
                .is_some_and(|text| text.starts_with(name) && text.get(name.len()) == Some(&0));
            if is_here && found {
                return Some(true);
            }
            at += SYMBOL;
        }
    }
    Some(false)
}

const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const PT_INTERP: u32 = 3;
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
    if !is_elf(file) {
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
    fn this_test_has_main_and_imports_malloc() {
        let me = std::fs::read(std::env::current_exe().expect("a path")).expect("readable");
        assert!(defines(&me, b"main") && !defines(&me, b"mai"));
        assert!(!defines(&me, b"malloc"), "it comes from the C library");
        assert!(!is_static(&me) && !is_static(b"#!/bin/sh\n"));
    }

    #[test]
    fn a_damaged_executable_is_survived() {
        let me = std::fs::read(std::env::current_exe().expect("a path")).expect("readable");
        let mut head = me[..me.len().min(4096)].to_vec();
        for at in 0..head.len() {
            let kept = head[at];
            head[at] = 255 - kept;
            let _ = (needed(&head), defines(&head, b"main"), is_static(&head));
            head[at] = kept;
        }
    }
}
