//! BPF instructions by hand: registers, numbers, labels.
//!
//! Small on purpose: what a classifier needs, and no more. Labels are places to jump to, set once, used before or after.
//! Reference: Documentation/bpf/standardization/instruction-set.rst.

/// A register: 0 is the answer, 1 to 5 the arguments of a call (and gone after it), 6 to 9 stay, 10 is the end of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Register(pub(super) u8);

/// How much memory an instruction reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Size {
    One = 0x71,
    Two = 0x69,
    Four = 0x61,
    Eight = 0x79,
}

/// When a jump is taken; on all 64 bits but for [`When::Not32`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum When {
    Equal = 0x15,
    Not = 0x55,
    Above = 0x25,
    Below = 0xa5,
    Not32 = 0x56,
}

/// What is done to a register with a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Set = 0xb7,
    Set32 = 0xb4,
    Add = 0x07,
    And = 0x57,
    And32 = 0x54,
    Left = 0x67,
    Right = 0x77,
}

/// A place to jump to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Label(usize);

/// A program that is being written.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    code: Vec<u64>,
    labels: Vec<Option<usize>>,
    /// Where a jump stands and where it leads.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: Register, from: Register, offset: i16, number: i32) -> &mut Self {
        let [offset, number] = [u64::from(offset.cast_unsigned()), u64::from(number.cast_unsigned())];
        let registers = u64::from(to.0 | from.0 << 4);
        self.code.push(u64::from(code) | registers << 8 | offset << 16 | number << 32);
        self
    }

    /// A register becomes another one.
    pub(super) fn copy(&mut self, to: Register, from: Register) -> &mut Self {
        self.push(0xbf, to, from, 0, 0)
    }

    /// A register is added to another one.
    pub(super) fn add(&mut self, to: Register, from: Register) -> &mut Self {
        self.push(0x0f, to, from, 0, 0)
    }

    /// Bits of a register are added to another one.
    pub(super) fn or(&mut self, to: Register, from: Register) -> &mut Self {
        self.push(0x4f, to, from, 0, 0)
    }

    /// Something is done to a register.
    pub(super) fn number(&mut self, operation: Operation, to: Register, number: i32) -> &mut Self {
        self.push(operation as u8, to, Register(0), 0, number)
    }

    /// A register becomes a number of 64 bits.
    pub(super) fn set_long(&mut self, to: Register, number: u64) -> &mut Self {
        let low = (number as u32).cast_signed();
        self.push(0x18, to, Register(0), 0, low);
        self.code.push(number >> 32 << 32);
        self
    }

    /// A register becomes what is in memory.
    pub(super) fn load(&mut self, size: Size, to: Register, from: Register, offset: i16) -> &mut Self {
        self.push(size as u8, to, from, offset, 0)
    }

    /// Eight bytes of memory become what is in a register.
    pub(super) fn store(&mut self, to: Register, offset: i16, from: Register) -> &mut Self {
        self.push(0x7b, to, from, offset, 0)
    }

    /// Four bytes of memory become what is in a register.
    pub(super) fn store_four(&mut self, to: Register, offset: i16, from: Register) -> &mut Self {
        self.push(0x63, to, from, offset, 0)
    }

    /// Eight bytes of memory become zero.
    pub(super) fn clear(&mut self, to: Register, offset: i16) -> &mut Self {
        self.push(0x7a, to, Register(0), offset, 0)
    }

    /// Two bytes in a register change from the network's order to the machine's.
    pub(super) fn swap_from_network(&mut self, register: Register) -> &mut Self {
        self.push(0xdc, register, Register(0), 0, 16)
    }

    /// Calls a function of the kernel.
    pub(super) fn call(&mut self, function: i32) -> &mut Self {
        self.push(0x85, Register(0), Register(0), 0, function)
    }

    /// Ends the program.
    pub(super) fn exit(&mut self) -> &mut Self {
        self.push(0x95, Register(0), Register(0), 0, 0)
    }

    /// A new label, not set yet.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    pub(super) fn here(&mut self, label: Label) -> &mut Self {
        self.labels[label.0] = Some(self.code.len());
        self
    }

    /// Jumps.
    pub(super) fn jump(&mut self, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.push(0x05, Register(0), Register(0), 0, 0)
    }

    /// Jumps if a register is as said beside a number.
    pub(super) fn jump_if(&mut self, when: When, register: Register, number: i32, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.push(when as u8, register, Register(0), 0, number)
    }

    /// Jumps unless two registers are the same.
    pub(super) fn jump_unless_same(&mut self, one: Register, other: Register, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.push(0x5d, one, other, 0, 0)
    }

    /// The instructions; none if a jump is too far for one instruction.
    pub(super) fn finish(mut self) -> Option<Vec<u64>> {
        for (at, label) in &self.jumps {
            let target = self.labels[label.0].expect("set because every label that is used is");
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
        assembler.number(Operation::Set, Register(0), 2).jump_if(When::Equal, Register(0), 2, end).exit();
        assembler.here(end).exit();
        let code = assembler.finish().expect("it is short");
        assert_eq!(code, [0x2_0000_00b7, 0x2_0001_0015, 0x95, 0x95]);
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
