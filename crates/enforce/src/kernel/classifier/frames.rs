//! The classifier as an XDP program, which classifies frames before the network stack sees them.
//!
//! ```text
//!   read, rules, default     as for packets
//!   flow                     addresses and ports choose the processor, so that each flow keeps its order
//!   class                    the frame is counted, and goes to the kernel thread of its class and processor
//!   not IP                   goes to the network stack at once
//! ```
//! The queue of the thread may be full: then the kernel drops the frame. The thread counts each frame that it
//! takes ([`count_accepted`]), so the difference of both counters is the number of frames that were dropped
//! or wait. Later fragments of a packet have no ports, so they may go to another processor than the first
//! one.
//!
//! Reference: bpf-helpers(7), `bpf_redirect_map`.

use super::{
    CARRIES, ClassUse, FAMILY, HEADER, PORTS, ProgramForm, ProgramInput, ProgramSources, write_after,
};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use unisono_fairqueue::{ClassId, Policy};
use unisono_linux::bpf::assembler::{
    AluOperation, Assembler, BpfRegister, JumpWhen, LoadSize, R0, R1, R2, R3, STACK,
};
use unisono_linux::bpf::{Array, ProcessorMap};

/// The bytes of a class's two counters: frames that arrived, and frames that a thread has taken.
pub(in crate::kernel) const COUNTER_BYTES: u32 = 16;
const ACCEPTED_AT: u32 = 8;
const XDP_PASS: i32 = 2;
/// The helper `bpf_redirect_map` in the kernel's list (include/uapi/linux/bpf.h).
const REDIRECT: i32 = 51;
/// An odd number near 2^32 / the square of the golden ratio: products with it differ in their upper bits for
/// neighboring addresses and ports (Knuth, The Art of Computer Programming 3, section 6.4).
const SPREAD: i32 = 0x61c8_8647;
/// The processor of the flow; IP's version is no longer needed then.
pub(super) const PROCESSOR: BpfRegister = FAMILY;
/// The number of the frame's class; the protocol is no longer needed then.
const CLASS: BpfRegister = CARRIES;

/// The threads of a class.
#[derive(Debug)]
pub(in crate::kernel) struct ClassMap {
    /// The class's number, as the program's sources have it.
    pub(in crate::kernel) number: u32,
    pub(in crate::kernel) map: ProcessorMap,
}

/// Writes an XDP program that passes frames to the threads of their classes on these processors. The counters
/// of the classes are in the order of `maps`. Returns `None` if a jump would be too far.
pub(in crate::kernel) fn write_redirecting(
    policy: &Policy,
    sources: &ProgramSources,
    number: impl Fn(ClassId) -> u32,
    maps: &[ClassMap],
    counters: &Array,
    processors: &BTreeSet<u32>,
) -> Option<Vec<u64>> {
    write_frames(policy, sources, number, |code| {
        let not_ip = code.label();
        code.jump_if(JumpWhen::Equal, FAMILY, 0, not_ip).copy(CLASS, R1);
        choose_processor(code, processors);
        for (place, ClassMap { number, map }) in (0..).zip(maps) {
            let next = code.label();
            code.jump_if(JumpWhen::Not32, CLASS, number.cast_signed(), next);
            count(code, counters, place * COUNTER_BYTES);
            code.map(R1, map.as_fd()).copy(R2, PROCESSOR).set(R3, XDP_PASS).call(REDIRECT).exit();
            code.here(next);
        }
        code.here(not_ip).set(R0, XDP_PASS).exit();
    })
}

/// Writes the program that a thread runs on each frame that it takes: it counts the frame for the class at
/// this place of the counters.
pub(in crate::kernel) fn count_accepted(counters: &Array, place: u32) -> Vec<u64> {
    let mut code = Assembler::default();
    count(&mut code, counters, place * COUNTER_BYTES + ACCEPTED_AT);
    code.set(R0, XDP_PASS).exit();
    code.finish().expect("because it has no jumps")
}

/// Writes an XDP program that classifies a frame, and then executes the code of `end` with the class in R1.
pub(super) fn write_frames(
    policy: &Policy,
    sources: &ProgramSources,
    number: impl Fn(ClassId) -> u32,
    end: impl FnOnce(&mut Assembler),
) -> Option<Vec<u64>> {
    let mut code = Assembler::default();
    let decided = code.label();
    let form = ProgramForm { input: ProgramInput::Frame, end: ClassUse::GoOn(decided) };
    let mut code = write_after(code, policy, sources, number, form);
    code.here(decided);
    end(&mut code);
    code.finish()
}

/// Emits code that counts a frame in the counter at this offset.
fn count(code: &mut Assembler, counters: &Array, offset: u32) {
    let offset = i16::try_from(offset).expect("small because a program has few maps");
    code.array(R1, counters.as_fd()).set(R2, 1).add_to_memory(R1, offset, R2);
}

/// Emits code that chooses the processor by the flow of an IP packet.
pub(super) fn choose_processor(code: &mut Assembler, processors: &BTreeSet<u32>) {
    let (version_6, summed, chosen) = (code.label(), code.label(), code.label());
    code.copy(R1, PORTS).jump_if(JumpWhen::Equal, FAMILY, 6, version_6);
    for address in [HEADER + 12, HEADER + 16] {
        code.load(LoadSize::Four, R2, STACK, address).add(R1, R2);
    }
    code.jump(summed).here(version_6);
    for half in (HEADER + 8..HEADER + 40).step_by(8) {
        code.load(LoadSize::Eight, R2, STACK, half).add(R1, R2);
    }
    // the upper half of the sum is added to the lower one, and the lower half of the product is the hash: a
    // fraction of 2^32, which is scaled to the processors. A remainder would take its lower bits, which are
    // the same for addresses that differ in their last byte alone (the uppermost bits of a word).
    code.here(summed).copy(R2, R1).number(AluOperation::Right, R2, 32).add(R1, R2);
    code.number(AluOperation::Multiply, R1, SPREAD).number(AluOperation::And32, R1, -1);
    let count = i32::try_from(processors.len()).expect("small because a host has few processors");
    code.number(AluOperation::Multiply, R1, count).number(AluOperation::Right, R1, 32);
    for (first, length) in runs(processors) {
        let next = code.label();
        code.jump_if(JumpWhen::Above, R1, length - 1, next);
        code.copy(PROCESSOR, R1).number(AluOperation::Add, PROCESSOR, first).jump(chosen);
        code.here(next).number(AluOperation::Add, R1, -length);
    }
    code.here(chosen);
}

/// Returns the runs of consecutive processors: the first one and the length of each.
fn runs(processors: &BTreeSet<u32>) -> Vec<(i32, i32)> {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for processor in processors.iter().map(|processor| processor.cast_signed()) {
        match runs.last_mut() {
            Some((first, length)) if *first + *length == processor => *length += 1,
            _ => runs.push((processor, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_in_runs() {
        assert_eq!(runs(&BTreeSet::from([0, 1, 2, 8, 10, 11])), [(0, 3), (8, 1), (10, 2)]);
    }
}
