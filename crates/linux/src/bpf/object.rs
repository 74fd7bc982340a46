//! Converts clang's object file to instructions for the kernel, and resolves their symbols.
//!
//! A program is a single function in a single section. It refers to other objects by external symbols, and
//! the caller supplies the meaning of each: a map, a kernel function, or a number that is known only at load
//! time, such as the offset of a member in a structure of this kernel. The other features of a BPF loader
//! (maps and relocations described by type information, global data) are not needed. Reference:
//! Documentation/bpf/standardization/instruction-set.rst, and for relocations llvm_reloc.rst.

use super::compile::ProgramError;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget};

/// Loads a 64-bit constant: two instructions long.
const LOAD_CONSTANT: u64 = 0x18;
/// A value of that instruction's source register: the constant is a map's descriptor.
const IS_MAP: u64 = 1 << 12;
const CALL: u64 = 0x85;
/// A value of a call's source register: the called function is a kernel function, given by its type number.
const IS_FUNCTION: u64 = 2 << 12;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SymbolValue {
    Map(i32),
    /// A number; it replaces the address of the symbol.
    Number(u32),
    /// A function of the kernel, by the number of its type.
    Function(u32),
}

/// Returns the instructions of a section, with the values of symbols filled in. Fails if the bytes are no
/// such object, or contain a symbol without a value.
pub fn link(
    object: &[u8],
    section: &str,
    value_of: impl Fn(&str) -> Option<SymbolValue>,
) -> Result<Vec<u64>, ProgramError> {
    let bad = |what: String| ProgramError::Object(what);
    let file = object::File::parse(object).map_err(|error| bad(error.to_string()))?;
    let section =
        file.section_by_name(section).ok_or_else(|| bad(format!("there is no section {section}")))?;
    let code = section.data().map_err(|error| bad(error.to_string()))?;
    let (words, []) = code.as_chunks::<8>() else { return Err(bad("a part of an instruction".to_owned())) };
    let mut instructions: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            return Err(bad(format!("a relocation at {offset} that is of no symbol")));
        };
        let symbol = file.symbol_by_index(symbol).map_err(|error| bad(error.to_string()))?;
        let name = symbol.name().map_err(|error| bad(error.to_string()))?;
        let value = value_of(name).ok_or_else(|| bad(format!("nothing is known as `{name}`")))?;
        let instruction = usize::try_from(offset / 8).ok().filter(|_| offset % 8 == 0);
        let Some(instruction) = instruction.and_then(|at| instructions.get_mut(at)) else {
            return Err(bad(format!("{name} is used at {offset}, where no instruction is")));
        };
        let opcode = *instruction & 0xff;
        // all bits except the source register and the immediate value
        let kept = *instruction & 0xffff_0fff;
        *instruction = match value {
            SymbolValue::Map(descriptor) if opcode == LOAD_CONSTANT => {
                kept | IS_MAP | u64::from(descriptor.cast_unsigned()) << 32
            }
            SymbolValue::Number(number) if opcode == LOAD_CONSTANT => kept | u64::from(number) << 32,
            SymbolValue::Function(function) if opcode == CALL => {
                kept | IS_FUNCTION | u64::from(function) << 32
            }
            _ => return Err(bad(format!("{name} is used at {offset} as what it is not"))),
        };
    }
    Ok(instructions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_no_object_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(link(&bytes, "tc", |_| Some(SymbolValue::Map(3))).is_err());
        }
    }
}
