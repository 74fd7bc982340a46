//! An assembler for programs of a few dozen instructions, so that these programs need no compiler.
//!
//! It is deliberately small: it has only the instructions that classifiers need. Labels are jump targets;
//! each is set once, before or after the jumps to it. Reference:
//! Documentation/bpf/standardization/instruction-set.rst.

use std::os::fd::{AsRawFd, BorrowedFd};

/// A register: 0 holds the result, 1 to 5 hold the arguments of a call (which destroys them), calls preserve
/// 6 to 9, and 10, the frame pointer, points to the end of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BpfRegister(pub u8);

/// The result of a call, and of the program.
pub const R0: BpfRegister = BpfRegister(0);
/// The first argument of a call, and of the program.
pub const R1: BpfRegister = BpfRegister(1);
pub const R2: BpfRegister = BpfRegister(2);
pub const R3: BpfRegister = BpfRegister(3);
pub const R4: BpfRegister = BpfRegister(4);
pub const R5: BpfRegister = BpfRegister(5);
/// The end of the stack; the program's stack slots have negative offsets from it.
pub const STACK: BpfRegister = BpfRegister(10);

/// The number of bytes that an instruction reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadSize {
    One = 0x71,
    Two = 0x69,
    Four = 0x61,
    Eight = 0x79,
}

/// The condition of a jump; compares all 64 bits except for [`JumpWhen::Not32`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JumpWhen {
    Equal = 0x15,
    Not = 0x55,
    /// The first operand is greater, unsigned.
    Above = 0x25,
    /// The first operand is less, unsigned.
    Below = 0xa5,
    /// The first operand is less, signed.
    SignedBelow = 0xc5,
    /// The lower 32 bits differ.
    Not32 = 0x56,
}

/// An operation on a register and a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AluOperation {
    Set = 0xb7,
    /// Sets the lower 32 bits to the constant and the upper bits to zero.
    Set32 = 0xb4,
    Add = 0x07,
    /// Bitwise AND with the constant.
    And = 0x57,
    /// Bitwise AND of the lower 32 bits with the constant; the upper bits become zero.
    And32 = 0x54,
    Left = 0x67,
    Right = 0x77,
    Multiply = 0x27,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label(usize);

#[derive(Clone, Debug, Default)]
pub struct Assembler {
    code: Vec<u64>,
    labels: Vec<Option<usize>>,
    /// The position of each jump and its target.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: BpfRegister, from: BpfRegister, offset: i16, number: i32) -> &mut Self {
        let [offset, number] = [u64::from(offset.cast_unsigned()), u64::from(number.cast_unsigned())];
        let registers = u64::from(to.0 | from.0 << 4);
        self.code.push(u64::from(code) | registers << 8 | offset << 16 | number << 32);
        self
    }

    pub fn copy(&mut self, to: BpfRegister, from: BpfRegister) -> &mut Self {
        self.push(0xbf, to, from, 0, 0)
    }

    /// Adds a register to another.
    pub fn add(&mut self, to: BpfRegister, from: BpfRegister) -> &mut Self {
        self.push(0x0f, to, from, 0, 0)
    }

    /// Computes the bitwise OR of two registers; the first gets the result.
    pub fn or(&mut self, to: BpfRegister, from: BpfRegister) -> &mut Self {
        self.push(0x4f, to, from, 0, 0)
    }

    /// Applies an operation with a constant to a register.
    pub fn number(&mut self, operation: AluOperation, to: BpfRegister, number: i32) -> &mut Self {
        self.push(operation as u8, to, R0, 0, number)
    }

    pub fn set(&mut self, to: BpfRegister, number: i32) -> &mut Self {
        self.number(AluOperation::Set, to, number)
    }

    /// Loads a 64-bit constant into a register.
    pub fn set_long(&mut self, to: BpfRegister, number: u64) -> &mut Self {
        self.wide(to, 0, number)
    }

    /// Loads a map into a register, for calls that take a map. The map must still be open when the program is
    /// loaded.
    pub fn map(&mut self, to: BpfRegister, map: BorrowedFd<'_>) -> &mut Self {
        self.wide(to, 1, u64::from(map.as_raw_fd().cast_unsigned()))
    }

    /// Loads the address of an array's first element into a register.
    pub fn array(&mut self, to: BpfRegister, array: BorrowedFd<'_>) -> &mut Self {
        self.wide(to, 2, u64::from(array.as_raw_fd().cast_unsigned()))
    }

    /// Appends an instruction of 16 bytes that loads a 64-bit constant, or a value that the kernel replaces
    /// by such a constant.
    fn wide(&mut self, to: BpfRegister, kind: u8, number: u64) -> &mut Self {
        self.push(0x18, to, BpfRegister(kind), 0, (number as u32).cast_signed());
        self.code.push(number >> 32 << 32);
        self
    }

    /// Loads from memory into a register.
    pub fn load(&mut self, size: LoadSize, to: BpfRegister, from: BpfRegister, offset: i16) -> &mut Self {
        self.push(size as u8, to, from, offset, 0)
    }

    /// Stores a register's eight bytes to memory.
    pub fn store(&mut self, to: BpfRegister, offset: i16, from: BpfRegister) -> &mut Self {
        self.push(0x7b, to, from, offset, 0)
    }

    /// Stores a register's lower four bytes to memory.
    pub fn store_four(&mut self, to: BpfRegister, offset: i16, from: BpfRegister) -> &mut Self {
        self.push(0x63, to, from, offset, 0)
    }

    /// Stores a constant of four bytes to memory.
    pub fn store_number(&mut self, to: BpfRegister, offset: i16, number: i32) -> &mut Self {
        self.push(0x62, to, R0, offset, number)
    }

    /// Stores eight zero bytes to memory.
    pub fn clear(&mut self, to: BpfRegister, offset: i16) -> &mut Self {
        self.push(0x7a, to, R0, offset, 0)
    }

    /// Adds a register to eight bytes of memory, as one operation that other processors cannot interrupt.
    pub fn add_to_memory(&mut self, to: BpfRegister, offset: i16, from: BpfRegister) -> &mut Self {
        self.push(0xdb, to, from, offset, 0)
    }

    /// Converts the lower two bytes of a register from network byte order to host byte order.
    pub fn swap_from_network(&mut self, register: BpfRegister) -> &mut Self {
        self.push(0xdc, register, R0, 0, 16)
    }

    pub fn call(&mut self, function: i32) -> &mut Self {
        self.push(0x85, R0, R0, 0, function)
    }

    pub fn exit(&mut self) -> &mut Self {
        self.push(0x95, R0, R0, 0, 0)
    }

    #[must_use]
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    pub fn here(&mut self, label: Label) -> &mut Self {
        self.labels[label.0] = Some(self.code.len());
        self
    }

    pub fn jump(&mut self, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.push(0x05, R0, R0, 0, 0)
    }

    /// Jumps if the comparison of a register with a constant holds.
    pub fn jump_if(&mut self, when: JumpWhen, register: BpfRegister, number: i32, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.push(when as u8, register, R0, 0, number)
    }

    /// Jumps if the comparison of two registers holds.
    pub fn jump_if_registers(
        &mut self,
        when: JumpWhen,
        one: BpfRegister,
        other: BpfRegister,
        to: Label,
    ) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.push(when as u8 | 0x08, one, other, 0, 0)
    }

    /// Returns the instructions, or `None` if a jump is too far for the offset field of its instruction.
    ///
    /// # Panics
    /// If a jump's label was never set.
    #[must_use]
    pub fn finish(mut self) -> Option<Vec<u64>> {
        for (at, label) in &self.jumps {
            let target = self.labels[label.0].expect("every label that a jump uses was set");
            let distance = i64::try_from(target).ok()? - i64::try_from(*at).ok()? - 1;
            self.code[*at] |= u64::from(i16::try_from(distance).ok()?.cast_unsigned()) << 16;
        }
        Some(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_encoded_as_the_kernel_reads_them() {
        let mut assembler = Assembler::default();
        let end = assembler.label();
        assembler.number(AluOperation::Set, R0, 2).jump_if(JumpWhen::Equal, R0, 2, end).exit();
        assembler.here(end).exit();
        let code = assembler.finish().expect("it is short");
        assert_eq!(code, [0x2_0000_00b7, 0x2_0001_0015, 0x95, 0x95]);
    }

    #[test]
    fn jumps_count_from_the_next_instruction_and_long_numbers_are_two() {
        let mut assembler = Assembler::default();
        let end = assembler.label();
        assembler
            .jump_if_registers(JumpWhen::Above, R0, BpfRegister(7), end)
            .set_long(R1, 1 << 32)
            .here(end)
            .exit();
        assert_eq!(assembler.finish().expect("it is short"), [0x2_702d, 0x118, 0x1_0000_0000, 0x95]);
    }

    #[test]
    fn memory_is_addressed_from_a_register() {
        let mut assembler = Assembler::default();
        assembler.load(LoadSize::Four, R1, BpfRegister(6), 32).load(LoadSize::Eight, R2, STACK, -8);
        assembler.add_to_memory(R1, 24, R2);
        assert_eq!(assembler.finish().expect("it is short"), [0x20_6161, 0xfff8_a279, 0x18_21db]);
    }

    #[test]
    fn a_jump_that_is_too_far_is_noticed() {
        let mut assembler = Assembler::default();
        let end = assembler.label();
        assembler.jump(end);
        for _ in 0..40_000 {
            assembler.exit();
        }
        assembler.here(end).exit();
        assert_eq!(assembler.finish(), None);
    }
}
