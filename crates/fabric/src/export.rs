//! For `unisono tree export --to bpf`: writes barrier registers as elements of the switch program's map
//! `registers`, for programs that fill the map themselves.
//!
//! The elements have the form of `bpftool map dump -j`: key and value as lists of bytes, in the byte order of
//! this host. `bpftool map update` takes the same bytes.

use crate::error::Error;
use crate::layout::{PORTS, RegisterSetup, slot};
use serde_json::{Value, json};
use unisono_btin::{ReductionOperator, Tree, TurnPoint};

/// Returns the contents of the map for a tree's registers before the first barrier. Fails for a port beyond
/// the bits of a register.
pub fn registers(tree: &Tree, turn: TurnPoint, operation: ReductionOperator) -> Result<Value, Error> {
    let mut elements = Vec::with_capacity(tree.registers.len());
    for (switch, register) in &tree.registers {
        let mut ports = register.children.iter().chain(&register.locals).chain(&register.parent);
        if let Some(port) = ports.find(|port| u32::from(port.0) >= PORTS) {
            return Err(Error::Input(format!(
                "port {} of switch {}: a register of this data plane has a bit for each of {PORTS} ports",
                port.0, switch.0
            )));
        }
        let setup = RegisterSetup::new(register, tree.turn_at(*switch, turn), operation, 0);
        let value = [setup.word().to_ne_bytes(), setup.state().to_ne_bytes()].concat();
        elements.push(json!({
            "switch": switch.0, "key": hexadecimal(&slot(*switch, tree.group).to_ne_bytes()),
            "value": hexadecimal(&value),
        }));
    }
    Ok(json!({
        "format": "btin-bpf-1", "group": tree.group.0,
        "byte_order": if cfg!(target_endian = "little") { "little" } else { "big" },
        "maps": [{"name": "registers", "type": "array", "bytes_key": 4, "bytes_value": 16, "elements": elements}],
    }))
}

fn hexadecimal(bytes: &[u8]) -> Vec<String> {
    bytes.iter().map(|byte| format!("0x{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_btin::{GroupId, NodeId, Port, Register, SwitchId};

    fn tree(far: u16) -> Tree {
        let register = |parent: u16, children: &[u16], locals: &[u16]| {
            let ports = |ports: &[u16]| ports.iter().copied().map(Port).collect();
            Register { parent: Some(Port(parent)), children: ports(children), locals: ports(locals) }
        };
        let registers =
            [(SwitchId(0), register(0, &[7], &[])), (SwitchId(2), register(far, &[], &[0, 1]))].into();
        Tree { group: GroupId(3), root_switch: SwitchId(0), root_node: Some(NodeId(0)), registers }
    }

    #[test]
    fn elements_are_where_the_switch_program_looks_and_hold_what_it_reads() {
        let map = registers(&tree(7), TurnPoint::AtNode, ReductionOperator::Or).expect("it fits");
        let element = &map["maps"][0]["elements"][1];
        let bytes = |key: &str| -> Vec<u8> {
            let byte = |text: &Value| {
                u8::from_str_radix(text.as_str().expect("text").trim_start_matches("0x"), 16).expect("a byte")
            };
            element[key].as_array().expect("a list").iter().map(byte).collect()
        };
        assert_eq!(bytes("key"), (2_u32 * 256 + 3).to_ne_bytes());
        let word = u64::from_ne_bytes(bytes("value")[..8].try_into().expect("eight bytes"));
        assert_eq!((word >> 63, word >> 48 & 0xff, word & 0xffff_ffff), (1, 7, 0b11));
        let turning = registers(&tree(7), TurnPoint::AtSwitch, ReductionOperator::Or).expect("it fits");
        assert_ne!(turning["maps"][0]["elements"][0], map["maps"][0]["elements"][0], "the root turns");
        assert_eq!(turning["maps"][0]["elements"][1], map["maps"][0]["elements"][1], "others do not");
    }

    #[test]
    fn a_port_without_a_bit_is_refused() {
        let error =
            registers(&tree(32), TurnPoint::AtNode, ReductionOperator::Or).expect_err("32 is one too many");
        assert!(error.to_string().contains("port 32 of switch 2"), "{error}");
    }
}
