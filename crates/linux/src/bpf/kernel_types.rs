//! The kernel's own type information (BTF): the numbers of structures and functions, and the offsets of
//! members.
//!
//! Linux describes itself in `/sys/kernel/btf/vmlinux`: a list of types, numbered from 1, that refer to each
//! other by number. A program calls a kernel function by such a number, and the offset of a member differs
//! between kernels. Cost: one pass over five megabytes, ten milliseconds.
//!
//! Reference: Documentation/bpf/btf.rst.

use super::compile::ProgramError;
use super::object::SymbolValue;
use std::fs;
use std::io;

const PATH: &str = "/sys/kernel/btf/vmlinux";

const STRUCTURE: u8 = 4;
const UNION: u8 = 5;
const FUNCTION: u8 = 12;
const MAGIC: u16 = 0xeb9f;
/// Anonymous structures are nested less deeply than this.
const MAX_DEPTH: usize = 8;

/// A type in the information: the offset of its description, and its kind.
#[derive(Clone, Copy, Debug)]
struct BtfType {
    at: usize,
    kind: u8,
    /// The offset of the type's name in the string section.
    name: u32,
}

#[derive(Debug)]
pub struct KernelTypes {
    bytes: Vec<u8>,
    names: usize,
    types: Vec<BtfType>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Structure {
    /// The number of the structure's type.
    pub id: u32,
    pub size: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BtfMember {
    pub offset: u32,
    /// The number of the member's type.
    pub kind: u32,
    /// The member's index among the members of the innermost structure that contains it.
    pub position: u32,
}

impl KernelTypes {
    /// Reads the type information of the running kernel. Fails with [`ProgramError::Host`] if this kernel
    /// does not describe its types.
    pub fn of_this_kernel() -> Result<Self, ProgramError> {
        let types = fs::read(PATH).and_then(|bytes| {
            let unknown = || io::Error::new(io::ErrorKind::InvalidData, "it is not understood");
            Self::parse(bytes).ok_or_else(unknown)
        });
        types.map_err(|error| {
            ProgramError::Host(format!(
                "the kernel does not describe its types ({PATH}: {error}); use one with CONFIG_DEBUG_INFO_BTF"
            ))
        })
    }

    /// Parses type information; `None` if the bytes are malformed.
    pub fn parse(bytes: Vec<u8>) -> Option<Self> {
        if u16::from_ne_bytes(*bytes.first_chunk()?) != MAGIC {
            return None;
        }
        let word = |at: usize| word(&bytes, at);
        let head = word(4)? as usize;
        let first = head.checked_add(word(8)? as usize)?;
        let end = first.checked_add(word(12)? as usize)?;
        let names = head.checked_add(word(16)? as usize)?;
        let mut types = Vec::new();
        let mut at = first;
        while at < end {
            let (name, information) = (word(at)?, word(at + 4)?);
            let (kind, members) = ((information >> 24 & 31) as u8, (information & 0xffff) as usize);
            let more = match kind {
                1 | 14 | 17 => 4,                // an integer, a variable, a tag of a declaration
                2 | 7..=12 | 16 | 18 => 0,       // kinds that only name another type
                3 => 12,                         // an array
                4 | 5 | 15 | 19 => 12 * members, // structures, unions, sections, large enumerations
                6 | 13 => 8 * members,           // enumerations, prototypes
                _ => return None,
            };
            types.push(BtfType { at, kind, name });
            at += 12 + more;
        }
        Some(Self { bytes, names, types })
    }

    pub fn structure(&self, name: &str) -> Option<Structure> {
        let id = self.find(STRUCTURE, name)?;
        Some(Structure { id, size: word(&self.bytes, self.get(id)?.at + 8)? })
    }

    pub fn function(&self, name: &str) -> Option<u32> {
        self.find(FUNCTION, name)
    }

    /// Finds a member by its name, or by the path of member names that leads to it through nested structures.
    pub fn member(&self, structure: Structure, path: &[&str]) -> Option<BtfMember> {
        let mut found = BtfMember { offset: 0, kind: structure.id, position: 0 };
        for name in path {
            let member = self.direct_member(found.kind, name, 0)?;
            found = BtfMember { offset: found.offset.saturating_add(member.offset), ..member };
        }
        Some(found)
    }

    /// Returns the meaning of a symbol for this kernel: `offset_of__STRUCT__MEMBER__MEMBER` is the offset of
    /// a member; every other name is a function.
    pub fn symbol(&self, name: &str) -> Option<SymbolValue> {
        let Some(place) = name.strip_prefix("offset_of__") else {
            return self.function(name).map(SymbolValue::Function);
        };
        let (structure, path) = place.split_once("__")?;
        let path: Vec<&str> = path.split("__").collect();
        Some(SymbolValue::Number(self.member(self.structure(structure)?, &path)?.offset))
    }

    fn get(&self, id: u32) -> Option<&BtfType> {
        self.types.get((id as usize).checked_sub(1)?)
    }

    fn find(&self, kind: u8, name: &str) -> Option<u32> {
        let name = self.name(name)?;
        let at = self.types.iter().position(|known| known.name == name && known.kind == kind)?;
        u32::try_from(at + 1).ok()
    }

    /// Returns the offset of a name in the string section, which holds each name once.
    fn name(&self, name: &str) -> Option<u32> {
        let (names, wanted) = (self.bytes.get(self.names..)?, [b"\0", name.as_bytes(), b"\0"].concat());
        // the standard library cannot search in bytes, and this section has three megabytes
        // SAFETY: both are valid for reads of their lengths.
        let found =
            unsafe { libc::memmem(names.as_ptr().cast(), names.len(), wanted.as_ptr().cast(), wanted.len()) };
        if found.is_null() {
            return None;
        }
        u32::try_from(found.addr() - names.as_ptr().addr() + 1).ok()
    }

    fn is_called(&self, at: u32, name: &str) -> bool {
        let text = self.bytes.get(self.names + at as usize..).unwrap_or_default();
        text.starts_with(name.as_bytes()) && text.get(name.len()) == Some(&0)
    }

    /// Finds a member of this structure. Members of an anonymous structure count as members of the structure
    /// around it.
    fn direct_member(&self, id: u32, name: &str, depth: usize) -> Option<BtfMember> {
        let BtfType { at, kind, .. } = *self.get(id).filter(|_| depth < MAX_DEPTH)?;
        if kind != STRUCTURE && kind != UNION {
            return None;
        }
        let information = word(&self.bytes, at + 4)?;
        let has_bit_fields = information >> 31 == 1;
        (0..information & 0xffff).find_map(|position| {
            let member = at + 12 + 12 * position as usize;
            let [named, kind, bits] = [0, 4, 8].map(|part| word(&self.bytes, member + part));
            let bits = if has_bit_fields { bits? & 0xff_ffff } else { bits? };
            let (kind, offset) = (kind?, bits / 8);
            if self.is_called(named?, name) {
                return Some(BtfMember { offset, kind, position });
            }
            if self.is_called(named?, "") {
                let inner = self.direct_member(kind, name, depth + 1)?;
                return Some(BtfMember { offset: offset.saturating_add(inner.offset), ..inner });
            }
            None
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::super::type_information;
    use super::*;
    use proptest::prelude::*;

    /// `struct outer { int first; struct { short second; union { int third; } }; }` and a function.
    fn some_types() -> Vec<u8> {
        let names = b"\0int\0outer\0first\0second\0third\0call\0";
        let kind = |kind: u32, members: u32| kind << 24 | members;
        let types: Vec<u32> = [
            vec![1, kind(1, 0), 4, 32],                  // 1: int
            vec![0, kind(5, 1), 4, 24, 1, 0],            // 2: union { int third; }
            vec![0, kind(4, 2), 8, 17, 1, 0, 0, 2, 32],  // 3: struct { second; union }
            vec![5, kind(4, 2), 12, 11, 1, 0, 0, 3, 32], // 4: struct outer
            vec![30, kind(12, 0), 1],                    // 5: call
        ]
        .concat();
        type_information::encode(names, &types)
    }

    #[test]
    fn members_are_found_through_structures_without_names() {
        let types = KernelTypes::parse(some_types()).expect("it is well made");
        let outer = types.structure("outer").expect("it is there");
        assert_eq!(outer, Structure { id: 4, size: 12 });
        let offset = |name| types.member(outer, &[name]).map(|member| member.offset);
        assert_eq!([offset("first"), offset("second"), offset("third")], [Some(0), Some(4), Some(8)]);
        assert_eq!(offset("fourth"), None);
        assert_eq!(types.member(outer, &["first", "second"]), None, "a number has no members");
        assert_eq!(types.function("call"), Some(5));
        assert_eq!(types.function("outer"), None, "it is none");
        assert_eq!(types.symbol("offset_of__outer__first__second"), None, "a number has no members");
        assert_eq!(types.symbol("offset_of__outer__third"), Some(SymbolValue::Number(8)));
        assert_eq!(types.symbol("call"), Some(SymbolValue::Function(5)));
    }

    proptest! {
        #[test]
        fn a_damaged_description_is_refused_or_read_but_never_panics(
            damage in prop::collection::vec((0..200_usize, any::<u8>()), 1..8),
            length in 0..400_usize,
        ) {
            let mut bytes = some_types();
            bytes.truncate(length);
            for (at, value) in damage {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            if let Some(types) = KernelTypes::parse(bytes)
                && let Some(outer) = types.structure("outer")
            {
                let _ = types.member(outer, &["third"]);
            }
        }
    }
}
