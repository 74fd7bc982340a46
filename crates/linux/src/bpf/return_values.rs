//! The values that a BPF program can return, from its instructions alone.
//!
//! The idea: constant propagation. For each instruction and each register, it collects the set of constants
//! (at most [`MAX_VALUES`]) that can reach the instruction along any path. All other values (memory, results
//! of helpers and of calculations) are unknown. Programs that classify packets mostly return constants, so
//! that the answer is exact for them. Conditions are not evaluated: a returned value may belong to a path
//! that no packet takes.
//!
//! Pure. Cost: one visit of each instruction for each value that reaches it, microseconds for programs of
//! thousands of instructions. When not to use it: for programs that return the result of a helper, such as a
//! redirection that may fail: that result is unknown. Reference:
//! Documentation/bpf/standardization/instruction-set.rst; Kildall, "A Unified Approach to Global Program
//! Optimization" (POPL 1973).

use std::collections::BTreeSet;

/// Chosen, not measured: larger than the number of return values to which the kernel gives a meaning.
const MAX_VALUES: usize = 16;
const REGISTERS: usize = 11;
const TAIL_CALL: i32 = 12;

/// The values that a program can return: the lower 32 bits of its result, which are all that the kernel
/// reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReturnValues {
    /// The program returns these values only.
    Known(BTreeSet<i32>),
    /// The program may return any value.
    Any,
}

impl ReturnValues {
    fn single(value: i32) -> Self {
        Self::Known(BTreeSet::from([value]))
    }

    /// Adds the values of `other`. Returns whether there are more values now.
    fn add(&mut self, other: &Self) -> bool {
        let Self::Known(values) = self else { return false };
        let count = values.len();
        if let Self::Known(others) = other {
            values.extend(others);
        }
        if matches!(other, Self::Any) || values.len() > MAX_VALUES {
            *self = Self::Any;
            return true;
        }
        values.len() > count
    }

    /// Returns the values that this program can return. A path that reaches an invalid instruction counts as
    /// returning any value.
    pub fn of_program(code: &[u64]) -> Self {
        let mut states: Vec<Option<RegisterValues>> = vec![None; code.len()];
        let mut returned = Self::Known(BTreeSet::new());
        let mut open = Vec::new();
        if let Some(first) = states.first_mut() {
            *first = Some([const { Self::Any }; REGISTERS]);
            open.push(0);
        }
        while let Some(at) = open.pop() {
            let Some(mut registers) = states[at].clone() else { continue };
            let next = match step(code, at, &mut registers) {
                NextInstruction::Return => {
                    returned.add(&registers[0]);
                    continue;
                }
                NextInstruction::TailCall => {
                    returned = Self::Any;
                    [Some(at + 1), None]
                }
                NextInstruction::At(next) => next,
            };
            for to in next.into_iter().flatten() {
                match states.get_mut(to) {
                    None => returned = Self::Any,
                    Some(empty @ None) => {
                        *empty = Some(registers.clone());
                        open.push(to);
                    }
                    Some(Some(known)) => {
                        let mut grew = false;
                        for (known, more) in known.iter_mut().zip(&registers) {
                            grew |= known.add(more);
                        }
                        if grew {
                            open.push(to);
                        }
                    }
                }
            }
        }
        returned
    }
}

type RegisterValues = [ReturnValues; REGISTERS];

enum NextInstruction {
    Return,
    /// A tail call: another program replaces this one or, if the call fails, the next instruction follows.
    TailCall,
    /// One of these instructions follows.
    At([Option<usize>; 2]),
}

/// Executes an instruction on the sets of constants.
fn step(code: &[u64], at: usize, registers: &mut RegisterValues) -> NextInstruction {
    let instruction = code[at];
    let operation = instruction as u8;
    let (to, from) = ((instruction >> 8 & 15) as usize, (instruction >> 12 & 15) as usize);
    let (offset, number) = ((instruction >> 16) as i16, (instruction >> 32) as i32);
    let jump = |by: i64| usize::try_from(at as i64 + 1 + by).unwrap_or(usize::MAX);
    let next = NextInstruction::At([Some(at + 1), None]);
    if to >= REGISTERS || from >= REGISTERS {
        return NextInstruction::At([Some(usize::MAX), None]);
    }
    match operation {
        0xb7 | 0xb4 => registers[to] = ReturnValues::single(number),
        // a move that extends the sign of a part is a calculation
        0xbf | 0xbc if offset == 0 => registers[to] = registers[from].clone(),
        // a constant of 64 bits takes two instructions; from other sources it is an address
        0x18 => {
            registers[to] = if from == 0 { ReturnValues::single(number) } else { ReturnValues::Any };
            return NextInstruction::At([Some(at + 2), None]);
        }
        0x95 => return NextInstruction::Return,
        0x85 => {
            registers[..6].fill(ReturnValues::Any);
            if from == 0 && number == TAIL_CALL {
                return NextInstruction::TailCall;
            }
        }
        0x05 => return NextInstruction::At([Some(jump(offset.into())), None]),
        0x06 => return NextInstruction::At([Some(jump(number.into())), None]),
        _ => match operation & 7 {
            5 | 6 => return NextInstruction::At([Some(at + 1), Some(jump(offset.into()))]),
            // the legacy packet loads (`BPF_ABS`, `BPF_IND`) overwrite the same registers as a call of a
            // helper
            0 => registers[..6].fill(ReturnValues::Any),
            // atomic operations may return the old value, in R0 or in their source
            3 if operation & 0xe0 == 0xc0 => {
                registers[0] = ReturnValues::Any;
                registers[from] = ReturnValues::Any;
            }
            1 | 4 | 7 => registers[to] = ReturnValues::Any,
            _ => {}
        },
    }
    next
}

#[cfg(test)]
mod tests {
    use super::super::assembler::{Assembler, BpfRegister, JumpWhen, R0, R1, R2};
    use super::*;

    fn known(values: &[i32]) -> ReturnValues {
        ReturnValues::Known(values.iter().copied().collect())
    }

    /// Returns the values of a program of these instructions.
    fn returned(write: impl FnOnce(&mut Assembler)) -> ReturnValues {
        let mut code = Assembler::default();
        write(&mut code);
        ReturnValues::of_program(&code.finish().expect("labels are set"))
    }

    #[test]
    fn constants_of_all_paths_are_returned_and_results_of_helpers_are_unknown() {
        assert_eq!(returned(|code| _ = code.set(R0, -1).exit()), known(&[-1]));
        let two_paths = |code: &mut Assembler| {
            let (other, end) = (code.label(), code.label());
            code.set(BpfRegister(6), 7).jump_if_registers(JumpWhen::Not, R1, R2, other);
            code.set(R0, 0).jump(end).here(other).copy(R0, BpfRegister(6)).here(end).exit();
        };
        assert_eq!(returned(two_paths), known(&[0, 7]));
        assert_eq!(returned(|code| _ = code.set(R0, 0).call(7).exit()), ReturnValues::Any);
        assert_eq!(returned(|code| _ = code.set(R0, 0).call(7).set(R0, 2).exit()), known(&[2]));
        let tail_call = |code: &mut Assembler| _ = code.call(TAIL_CALL).set(R0, -1).exit();
        assert_eq!(returned(tail_call), ReturnValues::Any);
    }

    #[test]
    fn a_loop_ends_and_a_jump_out_of_the_program_returns_any_value() {
        let exit = 0x95;
        let back = 0x05 | 0xfffe << 16;
        let conditional_back = 0x15 | 0xfffe << 16;
        let zero = 0xb7;
        assert_eq!(ReturnValues::of_program(&[zero, conditional_back, exit]), known(&[0]));
        assert_eq!(ReturnValues::of_program(&[zero, back, exit]), known(&[]));
        assert_eq!(ReturnValues::of_program(&[zero, 0x05 | 9 << 16, exit]), ReturnValues::Any);
        assert_eq!(ReturnValues::of_program(&[]), known(&[]));
        // a sum, and a load from memory
        for calculation in [0x07, 0x61] {
            assert_eq!(ReturnValues::of_program(&[zero, calculation, exit]), ReturnValues::Any);
        }
    }
}
