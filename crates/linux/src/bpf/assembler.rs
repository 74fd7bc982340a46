//! Programs of a few dozen instructions, written as such, so that nobody needs a compiler for them.
//!
//! Registers: 0 is the answer of calls and of the program, 1 to 5 are arguments that calls destroy, 6 to 9 are kept, 10 is
//! the end of the stack. Reference: Documentation/bpf/standardization/instruction-set.rst.

use std::os::fd::{AsRawFd, BorrowedFd};

/// A register, 0 to 10.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Register(pub u8);

/// The end of the stack, from which a program counts down.
pub const STACK: Register = Register(10);

/// A place in the program that can be jumped to before it is known where it will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label(usize);

/// When to jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum If {
    /// The registers, or register and number, are equal.
    Equal,
    /// They are not.
    NotEqual,
    /// The first is greater, as numbers without sign.
    Greater,
    /// The first is less, as numbers with a sign.
    SignedLess,
}

impl If {
    fn code(self) -> u8 {
        match self {
            Self::Equal => 0x10,
            Self::NotEqual => 0x50,
            Self::Greater => 0x20,
            Self::SignedLess => 0xc0,
        }
    }
}

/// A program being written.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    code: Vec<u64>,
    /// Where each label is, once it is.
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

const WORD: u8 = 0x00;
const DOUBLE: u8 = 0x18;

impl Assembler {
    /// An empty program.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `to = value`.
    pub fn number(&mut self, to: Register, value: i32) -> &mut Self {
        self.push(0xb7, to, Register(0), 0, value)
    }

    /// `to = value`, all 64 bits.
    pub fn long_number(&mut self, to: Register, value: u64) -> &mut Self {
        self.wide(to, 0, value as u32, (value >> 32) as u32)
    }

    /// `to = from`.
    pub fn copy(&mut self, to: Register, from: Register) -> &mut Self {
        self.push(0xbf, to, from, 0, 0)
    }

    /// `to += value`.
    pub fn add(&mut self, to: Register, value: i32) -> &mut Self {
        self.push(0x07, to, Register(0), 0, value)
    }

    /// `to = map`, for calls that take one. The map must still be open when the program is loaded.
    pub fn map(&mut self, to: Register, map: BorrowedFd<'_>) -> &mut Self {
        self.wide(to, 1, map.as_raw_fd() as u32, 0)
    }

    /// `to` points to the first byte of an array's first element.
    pub fn array(&mut self, to: Register, array: BorrowedFd<'_>) -> &mut Self {
        self.wide(to, 2, array.as_raw_fd() as u32, 0)
    }

    /// `to = *(u32 *)(from + offset)`.
    pub fn load_word(&mut self, to: Register, from: Register, offset: i16) -> &mut Self {
        self.push(0x61 | WORD, to, from, offset, 0)
    }

    /// `to = *(u64 *)(from + offset)`.
    pub fn load_double(&mut self, to: Register, from: Register, offset: i16) -> &mut Self {
        self.push(0x61 | DOUBLE, to, from, offset, 0)
    }

    /// `*(u32 *)(to + offset) = value`.
    pub fn store_word(&mut self, to: Register, offset: i16, value: i32) -> &mut Self {
        self.push(0x62 | WORD, to, Register(0), offset, value)
    }

    /// Calls one of the kernel's functions by its number in include/uapi/linux/bpf.h.
    pub fn call(&mut self, function: i32) -> &mut Self {
        self.push(0x85, Register(0), Register(0), 0, function)
    }

    /// Ends; the answer is in register 0.
    pub fn exit(&mut self) -> &mut Self {
        self.push(0x95, Register(0), Register(0), 0, 0)
    }

    /// A label to be placed later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    pub fn place(&mut self, label: Label) -> &mut Self {
        self.labels[label.0] = Some(self.code.len());
        self
    }

    /// Goes on at the label.
    pub fn jump(&mut self, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.push(0x05, Register(0), Register(0), 0, 0)
    }

    /// Goes on at the label if a register compares so to a number.
    pub fn jump_if(&mut self, one: Register, when: If, other: i32, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.push(0x05 | when.code(), one, Register(0), 0, other)
    }

    /// Goes on at the label if two registers compare so.
    pub fn jump_if_registers(&mut self, one: Register, when: If, other: Register, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.push(0x0d | when.code(), one, other, 0, 0)
    }

    /// The program.
    ///
    /// # Panics
    /// If a label was jumped to and never placed, or is more than 32,767 instructions away.
    #[must_use]
    pub fn finish(&self) -> Vec<u64> {
        let mut code = self.code.clone();
        for (from, label) in &self.jumps {
            let to = self.labels[label.0].expect("placed because it is jumped to");
            let distance = to as i64 - *from as i64 - 1;
            let distance = i16::try_from(distance).expect("near because programs here are short");
            code[*from] |= u64::from(distance as u16) << 16;
        }
        code
    }

    fn push(&mut self, code: u8, to: Register, from: Register, offset: i16, value: i32) -> &mut Self {
        let registers = to.0 | from.0 << 4;
        self.code.push(
            u64::from(code)
                | u64::from(registers) << 8
                | u64::from(offset as u16) << 16
                | u64::from(value as u32) << 32,
        );
        self
    }

    /// An instruction of two, with a number of 64 bits or what the kernel makes one of.
    fn wide(&mut self, to: Register, meaning: u8, low: u32, high: u32) -> &mut Self {
        self.push(0x18, to, Register(meaning), 0, low as i32);
        self.code.push(u64::from(high) << 32);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_encoded_as_the_kernel_reads_them() {
        let mut program = Assembler::new();
        program.number(Register(0), 2).exit();
        assert_eq!(program.finish(), [0x2_0000_00b7, 0x95]);
        let mut program = Assembler::new();
        program.load_word(Register(1), Register(6), 32).load_double(Register(2), STACK, -8);
        assert_eq!(program.finish(), [0x20_6161, 0xfff8_a279]);
    }

    #[test]
    fn jumps_count_from_the_next_instruction_and_long_numbers_are_two() {
        let mut program = Assembler::new();
        let end = program.label();
        program.jump_if(Register(0), If::Equal, 7, end).long_number(Register(1), 1 << 32).place(end).exit();
        assert_eq!(program.finish(), [0x7_0002_0015, 0x118, 0x1_0000_0000, 0x95]);
    }
}
