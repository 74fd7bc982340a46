//! From clang's object file to instructions that the kernel takes: the maps' descriptors are filled in.
//!
//! The program is one function in one section, and names its maps as external symbols: everything else that a BPF
//! loader does (maps from debugging information, relocations against the kernel's types) is not needed.
//! Reference: Documentation/bpf/standardization/instruction-set.rst, and for relocations llvm_reloc.rst.

use crate::error::Error;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget};

/// Loads a 64-bit constant: two instructions long.
const LOAD_CONSTANT: u64 = 0x18;
/// In that instruction's source register: the constant is a map's descriptor.
const IS_MAP: u64 = 1 << 12;

/// The instructions of the section `tc`, with descriptors in place of the names of maps.
///
/// # Errors
/// It is no such object, or names a map that there is none of.
pub fn link(object: &[u8], map: impl Fn(&str) -> Option<i32>) -> Result<Vec<u64>, Error> {
    let bad = |what: String| Error::Object(what);
    let file = object::File::parse(object).map_err(|error| bad(error.to_string()))?;
    let section = file.section_by_name("tc").ok_or_else(|| bad("there is no section tc".to_owned()))?;
    let code = section.data().map_err(|error| bad(error.to_string()))?;
    let (words, []) = code.as_chunks::<8>() else { return Err(bad("a part of an instruction".to_owned())) };
    let mut instructions: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            return Err(bad(format!("a relocation at {offset} that is of no symbol")));
        };
        let symbol = file.symbol_by_index(symbol).map_err(|error| bad(error.to_string()))?;
        let name = symbol.name().map_err(|error| bad(error.to_string()))?;
        let descriptor = map(name).ok_or_else(|| bad(format!("there is no map {name}")))?;
        let load = usize::try_from(offset / 8).ok().and_then(|at| instructions.get_mut(at));
        match load {
            Some(load) if *load & 0xff == LOAD_CONSTANT && offset % 8 == 0 => {
                *load = *load & 0xffff_0fff | IS_MAP | u64::from(descriptor.cast_unsigned()) << 32;
            }
            _ => return Err(bad(format!("{name} is used at {offset}, where no constant is loaded"))),
        }
    }
    Ok(instructions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_map_of_the_switch_program_is_filled_in() {
        let object = match crate::compile::compile() {
            Ok(object) => object,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let names = ["registers", "routes", "places", "counters", "settings"];
        let number = |name: &str| names.iter().position(|known| *known == name).map(|at| 100 + at as i32);
        let instructions = link(&object, number).expect("our own program");
        for descriptor in 100..105_u64 {
            let load = LOAD_CONSTANT | IS_MAP | descriptor << 32;
            assert!(instructions.iter().any(|word| word & 0xffff_ffff_0000_f0ff == load), "{descriptor}");
        }
        assert!(
            link(&object, |name| number(name).filter(|_| name != "places")).is_err(),
            "a map is missing"
        );
    }

    proptest! {
        #[test]
        fn what_is_no_object_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(link(&bytes, |_| Some(3)).is_err());
        }
    }
}
