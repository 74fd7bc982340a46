//! The contents of an executable: the shared libraries that it needs, and the functions linked into it.
//!
//! The bytes are untrusted: a malformed file counts as a file that needs no libraries and contains no
//! functions. Reference: elf(5).

use object::elf::{DT_NEEDED, ET_DYN, ET_EXEC, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _};

/// How a program is linked, as far as that decides whether a library can be preloaded into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linking {
    /// The dynamic linker loads the program, and the function is not part of it; or the program is a script.
    Dynamic,
    /// The function is part of the program and cannot be replaced.
    Inside,
    /// No dynamic linker loads the program, and the function is not part of it.
    Static,
}

fn parse(file: &[u8]) -> Option<ElfFile64<'_, Endianness>> {
    ElfFile64::parse(file).ok()
}

/// Returns the shared libraries that a program needs, in order; none if the file is no executable.
pub fn needed(file: &[u8]) -> Vec<String> {
    parse(file).and_then(|elf| names_needed(&elf, file)).unwrap_or_default()
}

fn names_needed(elf: &ElfFile64<'_, Endianness>, file: &[u8]) -> Option<Vec<String>> {
    let endian = elf.endian();
    let sections = elf.elf_header().sections(endian, file).ok()?;
    let (entries, strings) = sections.dynamic(endian, file).ok()??;
    let strings = sections.strings(endian, file, strings).ok()?;
    let of_library = entries.iter().filter(|entry| entry.tag32(endian) == Some(DT_NEEDED));
    let name = |entry: &<FileHeader64<Endianness> as object::read::elf::FileHeader>::Dyn| {
        String::from_utf8(entry.string(endian, strings).ok()?.to_vec()).ok()
    };
    Some(of_library.filter_map(name).collect())
}

/// Tells whether `function` is part of a program. In a static program with stripped symbols, the function's
/// name is searched for as text, because libraries mention the names of their functions in messages.
pub fn linking(file: &[u8], function: &str) -> Linking {
    let Some(elf) = parse(file) else { return Linking::Dynamic };
    let endian = elf.endian();
    let is_here = elf.symbols().chain(elf.dynamic_symbols()).any(|symbol| {
        symbol.is_definition() && symbol.name_bytes().is_ok_and(|name| name == function.as_bytes())
    });
    if is_here {
        return Linking::Inside;
    }
    let is_executable = [ET_EXEC, ET_DYN].contains(&elf.elf_header().e_type(endian));
    let interpreted = elf.elf_program_headers().iter().any(|header| header.p_type(endian) == PT_INTERP);
    let stripped = elf.symbols().next().is_none();
    match is_executable && !interpreted {
        true if stripped && file.windows(function.len()).any(|text| text == function.as_bytes()) => {
            Linking::Inside
        }
        true => Linking::Static,
        false => Linking::Dynamic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Vec<u8> {
        std::fs::read(std::env::current_exe().expect("a path")).expect("readable")
    }

    #[test]
    fn this_test_needs_the_c_library() {
        assert!(needed(&me()).iter().any(|name| name.starts_with("libc.so")), "{:?}", needed(&me()));
    }

    #[test]
    fn what_is_no_executable_needs_nothing() {
        for file in [&b"#!/bin/sh\necho hello\n"[..], b""] {
            assert!(needed(file).is_empty());
            assert_eq!(linking(file, "main"), Linking::Dynamic);
        }
    }

    #[test]
    fn this_test_has_main_and_imports_malloc() {
        assert_eq!(linking(&me(), "main"), Linking::Inside);
        assert_eq!(linking(&me(), "mai"), Linking::Dynamic);
        assert_eq!(linking(&me(), "malloc"), Linking::Dynamic, "it comes from the C library");
    }

    #[test]
    fn a_damaged_executable_is_survived() {
        let me = me();
        let mut head = me[..me.len().min(4096)].to_vec();
        for at in 0..head.len() {
            let kept = head[at];
            head[at] = 255 - kept;
            let _ = (needed(&head), linking(&head, "main"));
            head[at] = kept;
        }
    }
}
