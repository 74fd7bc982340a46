//! Code that reads the headers of a packet or of a frame.

use super::{
    CARRIES, ClassUse, FAMILY, FIRST, FROM, FROM_MAC_HEADER, FROM_NETWORK_HEADER, HAS_PORTS, HEADER, KEY,
    KEY_BYTES, LOAD_BYTES, LOAD_FRAME_BYTES, LOOKUP, MAX_EXTENSIONS, MAX_TAGS, MORE, NO_VLAN, NONE, PACKET,
    PORTS, PROTOCOL, ProgramForm, ProgramInput, VALUE, VLAN, VLAN_PRESENT, VLAN_TAG, finish, stack_address,
};
use std::os::fd::AsFd;
use unisono_fairqueue::IpProtocol;
use unisono_linux::bpf::LruMap;
use unisono_linux::bpf::assembler::{
    AluOperation, Assembler, JumpWhen, Label, LoadSize, R0, R1, R2, R3, R4, R5, STACK,
};

/// Emits code that reads the fields that rules name into registers and onto the stack. For a later fragment
/// whose first fragment is remembered, the program ends here.
pub(super) fn read(code: &mut Assembler, fragments: Option<&LruMap>, form: ProgramForm) {
    code.copy(PACKET, R1);
    for eight in (HEADER..0).chain(KEY..KEY + KEY_BYTES as i16).step_by(8).chain([MORE, VALUE, FIRST]) {
        code.clear(STACK, eight);
    }
    code.set(FAMILY, 0).set(CARRIES, NONE);
    let (version_6, ports, nothing, done) = (code.label(), code.label(), code.label(), code.label());
    pass_over_tags(code, form.input, nothing);
    code.jump_if(JumpWhen::Not, R0, network(0x0800), version_6);

    load(code, form.input, HEADER, 20, nothing);
    code.set(FAMILY, 4).load(LoadSize::One, CARRIES, STACK, HEADER + 9);
    let unfragmented = code.label();
    part_of_4(code).number(AluOperation::And, R1, 0x3fff).jump_if(JumpWhen::Equal, R1, 0, unfragmented);
    if let Some(fragments) = fragments {
        let first = code.label();
        for (word, from) in [(0, 12), (16, 16)] {
            code.load(LoadSize::Four, R1, STACK, HEADER + from).store(STACK, KEY + word, R1);
        }
        code.load(LoadSize::Two, R1, STACK, HEADER + 4);
        fragment_of(code, 4);
        part_of_4(code).number(AluOperation::And, R1, 0x1fff).jump_if(JumpWhen::Equal, R1, 0, first);
        recall(code, fragments, form.end);
        code.jump(nothing).here(first).store_number(STACK, FIRST, 1);
    } else {
        part_of_4(code).number(AluOperation::And, R1, 0x1fff).jump_if(JumpWhen::Not, R1, 0, nothing);
    }
    code.here(unfragmented).load(LoadSize::One, R1, STACK, HEADER).number(AluOperation::And, R1, 0xf);
    code.number(AluOperation::Left, R1, 2).add(PORTS, R1).jump(ports);

    code.here(version_6).jump_if(JumpWhen::Not, R0, network(0x86dd), nothing);
    load(code, form.input, HEADER, 40, nothing);
    code.set(FAMILY, 6).load(LoadSize::One, CARRIES, STACK, HEADER + 6);
    code.number(AluOperation::Add, PORTS, 40);
    for _ in 0..MAX_EXTENSIONS {
        extension(code, ports, nothing, fragments, form);
    }

    code.here(ports);
    let has_ports = code.label();
    for IpProtocol(number) in IpProtocol::WITH_PORTS {
        code.jump_if(JumpWhen::Equal, CARRIES, i32::from(number), has_ports);
    }
    code.jump(nothing).here(has_ports);
    load(code, form.input, MORE, 4, nothing);
    code.load(LoadSize::Two, PORTS, STACK, MORE).swap_from_network(PORTS).number(
        AluOperation::Left,
        PORTS,
        16,
    );
    code.load(LoadSize::Two, R1, STACK, MORE + 2).swap_from_network(R1).or(PORTS, R1);
    code.set_long(R1, HAS_PORTS).or(PORTS, R1).jump(done);
    code.here(nothing).set(PORTS, 0).here(done);
}

/// Returns an EtherType as the kernel's field has it: in network byte order.
fn network(ether: u16) -> i32 {
    i32::from(ether.to_be())
}

/// Emits code that reads the EtherType after all VLAN tags into R0, and the offset of the payload into PORTS.
/// (A tag that the device inserts by itself is not in the frame.) If there are tags in the frame, the kernel
/// may take the first one for the network header, so offsets are then counted from the Ethernet header.
fn pass_over_tags(code: &mut Assembler, input: ProgramInput, too_many: Label) {
    let (tagged, untagged) = (code.label(), code.label());
    match input {
        ProgramInput::Packet => {
            code.store_number(STACK, FROM, FROM_NETWORK_HEADER).set(PORTS, 0);
            code.load(LoadSize::Four, R0, PACKET, PROTOCOL);
        }
        ProgramInput::Frame => {
            // the type follows the two addresses
            code.set(PORTS, 12);
            load(code, input, MORE, 2, too_many);
            code.set(PORTS, 14).load(LoadSize::Two, R0, STACK, MORE);
        }
    }
    for tag in [0x8100, 0x88a8] {
        code.jump_if(JumpWhen::Equal, R0, network(tag), tagged);
    }
    code.jump(untagged).here(tagged);
    if input == ProgramInput::Packet {
        code.store_number(STACK, FROM, FROM_MAC_HEADER).set(PORTS, 14);
    }
    for _ in 0..MAX_TAGS {
        let another = code.label();
        load(code, input, MORE, 4, too_many);
        code.number(AluOperation::Add, PORTS, 4).load(LoadSize::Two, R0, STACK, MORE + 2);
        for tag in [0x8100, 0x88a8] {
            code.jump_if(JumpWhen::Equal, R0, network(tag), another);
        }
        code.jump(untagged).here(another);
    }
    code.jump(too_many).here(untagged);
}

/// Emits code that loads the fragment field of IPv4 into R1: the bit for more fragments (0x2000), and the
/// offset of this fragment.
fn part_of_4(code: &mut Assembler) -> &mut Assembler {
    code.load(LoadSize::Two, R1, STACK, HEADER + 6).swap_from_network(R1)
}

/// Emits code that completes the key of a fragmented packet. R1 holds the packet's identification.
fn fragment_of(code: &mut Assembler, version: i32) {
    code.store_four(STACK, KEY + 32, R1).copy(R1, CARRIES).number(AluOperation::Left, R1, 8);
    code.number(AluOperation::Add, R1, version).store_four(STACK, KEY + 36, R1);
}

/// Emits code that ends the program with the class of the packet's first fragment, if it is remembered.
fn recall(code: &mut Assembler, fragments: &LruMap, end: ClassUse) {
    let unknown = code.label();
    code.map(R1, fragments.as_fd());
    stack_address(code, R2, KEY);
    code.call(LOOKUP).jump_if(JumpWhen::Equal, R0, 0, unknown).load(LoadSize::Four, R1, R0, 0);
    finish(code, end);
    code.here(unknown);
}

/// Emits code that reads the number of the outermost VLAN tag onto the stack. If the device inserts tags by
/// itself, the kernel keeps the tag in the packet's metadata; otherwise the tag is in the frame.
pub(super) fn read_vlan(code: &mut Assembler) {
    let (in_frame, tagged, known, done) = (code.label(), code.label(), code.label(), code.label());
    code.set(R1, NO_VLAN).store(STACK, VLAN, R1);
    code.load(LoadSize::Four, R0, PACKET, VLAN_PRESENT).jump_if(JumpWhen::Equal, R0, 0, in_frame);
    code.load(LoadSize::Four, R1, PACKET, VLAN_TAG).jump(known);
    code.here(in_frame).load(LoadSize::Four, R0, PACKET, PROTOCOL);
    for ether in [0x8100, 0x88a8] {
        code.jump_if(JumpWhen::Equal, R0, network(ether), tagged);
    }
    code.jump(done).here(tagged);
    // the tag's number follows the two addresses and the type
    code.copy(R1, PACKET).set(R2, 14).copy(R3, STACK).number(AluOperation::Add, R3, i32::from(MORE));
    code.set(R4, 2).set(R5, FROM_MAC_HEADER).call(LOAD_BYTES).jump_if(JumpWhen::Not, R0, 0, done);
    code.load(LoadSize::Two, R1, STACK, MORE).swap_from_network(R1);
    code.here(known).number(AluOperation::And, R1, 0xfff).store(STACK, VLAN, R1).here(done);
}

/// Emits code that copies onto the stack the bytes of the packet at offset `PORTS` from the reference point.
fn load(code: &mut Assembler, input: ProgramInput, to: i16, length: i32, or_else: Label) {
    code.copy(R1, PACKET).copy(R2, PORTS).copy(R3, STACK).number(AluOperation::Add, R3, i32::from(to));
    code.set(R4, length);
    match input {
        ProgramInput::Packet => code.load(LoadSize::Four, R5, STACK, FROM).call(LOAD_BYTES),
        ProgramInput::Frame => code.call(LOAD_FRAME_BYTES),
    };
    code.jump_if(JumpWhen::Not, R0, 0, or_else);
}

/// Emits code that skips one extension header of IPv6.
fn extension(
    code: &mut Assembler,
    no_more: Label,
    no_ports: Label,
    fragments: Option<&LruMap>,
    form: ProgramForm,
) {
    let (options, fragment, next) = (code.label(), code.label(), code.label());
    for (number, label) in [(0, options), (43, options), (60, options), (44, fragment)] {
        code.jump_if(JumpWhen::Equal, CARRIES, number, label);
    }
    code.jump(no_more);
    code.here(options);
    load(code, form.input, MORE, 8, no_ports);
    code.load(LoadSize::One, CARRIES, STACK, MORE).load(LoadSize::One, R1, STACK, MORE + 1);
    code.number(AluOperation::Add, R1, 1).number(AluOperation::Left, R1, 3).add(PORTS, R1).jump(next);
    code.here(fragment);
    load(code, form.input, MORE, 8, no_ports);
    code.load(LoadSize::One, CARRIES, STACK, MORE).number(AluOperation::Add, PORTS, 8);
    // R1 gets the given bits of the fragment field: its offset is 0xfff8, its bit for more fragments is 1
    let part = |code: &mut Assembler, bits| {
        code.load(LoadSize::Two, R1, STACK, MORE + 2).swap_from_network(R1).number(
            AluOperation::And,
            R1,
            bits,
        );
    };
    part(code, 0xfff9);
    code.jump_if(JumpWhen::Equal, R1, 0, next);
    if let Some(fragments) = fragments {
        let first = code.label();
        for word in (0..32).step_by(8) {
            code.load(LoadSize::Eight, R1, STACK, HEADER + 8 + word).store(STACK, KEY + word, R1);
        }
        code.load(LoadSize::Four, R1, STACK, MORE + 4);
        fragment_of(code, 6);
        part(code, 0xfff8);
        code.jump_if(JumpWhen::Equal, R1, 0, first);
        recall(code, fragments, form.end);
        code.jump(no_ports).here(first).store_number(STACK, FIRST, 1);
    } else {
        part(code, 0xfff8);
        code.jump_if(JumpWhen::Not, R1, 0, no_ports);
    }
    code.here(next);
}
