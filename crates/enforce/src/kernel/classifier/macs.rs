//! Code that compares the addresses in a frame.

use super::{FROM_MAC_HEADER, LOAD_BYTES, LOAD_FRAME_BYTES, MACS, PACKET, ProgramInput, Side, stack_address};
use unisono_fairqueue::MacAddress;
use unisono_linux::bpf::assembler::{Assembler, JumpWhen, Label, LoadSize, R1, R2, R3, R4, R5, STACK};

/// Emits code that reads both addresses of the frame onto the stack. If they cannot be read, the kernel
/// writes zeroes, which no rule names.
pub(super) fn read_macs(code: &mut Assembler, input: ProgramInput) {
    code.clear(STACK, MACS).clear(STACK, MACS + 8);
    code.copy(R1, PACKET).set(R2, 0);
    stack_address(code, R3, MACS);
    code.set(R4, 12);
    match input {
        ProgramInput::Packet => code.set(R5, FROM_MAC_HEADER).call(LOAD_BYTES),
        ProgramInput::Frame => code.call(LOAD_FRAME_BYTES),
    };
}

/// Emits code that jumps to `or_else` unless the frame has this address at one side.
pub(super) fn mac_matches(code: &mut Assembler, side: Side, mac: Option<MacAddress>, or_else: Label) {
    let Some(mac) = mac else { return };
    let [a, b, c, d, e, f] = mac.bytes();
    // the receiver's address comes first; the kernel wants aligned reads from the stack
    let (four, two) = match side {
        Side::Destination => ((MACS, [a, b, c, d]), (MACS + 4, [e, f])),
        Side::Source => ((MACS + 8, [c, d, e, f]), (MACS + 6, [a, b])),
    };
    code.load(LoadSize::Four, R1, STACK, four.0);
    code.jump_if(JumpWhen::Not32, R1, i32::from_ne_bytes(four.1), or_else);
    code.load(LoadSize::Two, R1, STACK, two.0);
    code.jump_if(JumpWhen::Not32, R1, u16::from_ne_bytes(two.1).into(), or_else);
}
