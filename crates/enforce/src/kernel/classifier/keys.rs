//! Rules that are found by key: a policy with many of them has a rule for each subscriber, customer or VLAN.
//!
//! ```text
//!   key     4 bytes: length in bits   4 bytes: kind   16 bytes: the value, then zeros
//!   value   4 bytes: number of the rule   4 bytes: its class
//! ```
//! A hash table has the whole addresses, MAC addresses, marks and VLANs, and a trie has the networks. An
//! address that is not in the table is looked up in the trie. Both ends of a packet and of its frame, its
//! mark and its VLAN may lead to a rule each; the first one in the policy decides, as
//! [`unisono_fairqueue::Policy::class_of`] says. The bytes of a MAC address are in words of four bytes, two
//! in each, because the kernel wants aligned reads from the stack.
//!
//! Cost: a look-up in the table takes some 20 ns, one in a trie of 50,000 networks some 200 ns.

use super::{FAMILY, FOUND, HEADER, LOOKUP, MACS, MARK, PACKET, RULE_KEY, VLAN, stack_address};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use unisono_fairqueue::{ClassId, Policy, SoleCondition};
use unisono_linux::bpf::Table;
use unisono_linux::bpf::assembler::{Assembler, JumpWhen, Label, LoadSize, R0, R1, R2, STACK};

/// The fewest rules for which tables are made. A comparison takes a few instructions, so that a dozen rules
/// take about as long as two look-ups. Chosen, not measured.
pub(super) const MIN_RULES: usize = 16;
pub(super) const KEY_BYTES: u32 = 24;
pub(super) const VALUE_BYTES: u32 = 8;
/// The offset of the class in a value.
pub(super) const CLASS_AT: i16 = 4;

const KIND_MARK: u32 = 1;
const KIND_VLAN: u32 = 2;
const KIND_MAC: u32 = 3;
const KIND_4: u32 = 4;
const KIND_6: u32 = 6;
/// The bits of the field that tells the kind of key. They count for the length.
const KIND_BITS: u32 = 32;

#[derive(Debug)]
pub(super) struct KeyedRules {
    exact: Table,
    /// The networks; `None` if there are none.
    networks: Option<Table>,
    has_addresses: bool,
    has_macs: bool,
    has_marks: bool,
    has_vlans: bool,
}

impl KeyedRules {
    /// Makes the tables for a policy, or returns `None` if it has fewer such rules than `min`.
    pub(super) fn for_policy(
        policy: &Policy,
        min: usize,
        class: impl Fn(ClassId) -> u32,
    ) -> io::Result<Option<Self>> {
        let keyed = (0_u32..).zip(&policy.rules);
        let keyed: Vec<_> = keyed
            .filter_map(|(number, rule)| {
                Some((number, rule.class, SoleCondition::from_matcher(&rule.matcher)?))
            })
            .collect();
        if keyed.len() < min.max(1) {
            return Ok(None);
        }
        let count = |is: fn(&SoleCondition) -> bool| keyed.iter().filter(|(_, _, one)| is(one)).count();
        let room = |count: usize| u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        let networks = count(is_network);
        let table = Table::new("unisono_exact", KEY_BYTES, VALUE_BYTES, room(keyed.len() - networks))?;
        let trie = (networks > 0)
            .then(|| Table::of_prefixes("unisono_nets", KEY_BYTES, VALUE_BYTES, room(networks)))
            .transpose()?;
        let rules = Self {
            exact: table,
            networks: trie,
            has_addresses: count(|one| matches!(one, SoleCondition::Address(_))) > 0,
            has_macs: count(|one| matches!(one, SoleCondition::Mac(_))) > 0,
            has_marks: count(|one| matches!(one, SoleCondition::Mark(_))) > 0,
            has_vlans: count(|one| matches!(one, SoleCondition::Vlan(_))) > 0,
        };
        for (table, are_networks) in [(Some(&rules.exact), false), (rules.networks.as_ref(), true)] {
            let Some(table) = table else { continue };
            let own = || keyed.iter().filter(|(_, _, condition)| is_network(condition) == are_networks);
            let keys: Vec<u8> = own().flat_map(|(_, _, condition)| key(condition)).collect();
            let values = own().flat_map(|(number, of, _)| [*number, class(*of)]);
            let values: Vec<u8> = values.flat_map(u32::to_ne_bytes).collect();
            table.insert_all(&keys, &values)?;
        }
        Ok(Some(rules))
    }

    /// Emits code that writes the number and the class of the first matching rule to the stack, or the
    /// greatest number if none matches.
    pub(super) fn find(&self, code: &mut Assembler) {
        code.store_number(STACK, FOUND, -1).store_number(STACK, FOUND + CLASS_AT, 0);
        if self.has_addresses {
            for (offset_4, offset_6) in [(12, 8), (16, 24)] {
                self.find_address(code, HEADER + offset_4, HEADER + offset_6);
            }
        }
        if self.has_macs {
            // the receiver's comes first in a frame
            for place in [MACS, MACS + 6] {
                self.find_mac(code, place);
            }
        }
        if self.has_marks {
            code.load(LoadSize::Four, R1, PACKET, MARK);
            self.find_number(code, KIND_MARK);
        }
        if self.has_vlans {
            code.load(LoadSize::Eight, R1, STACK, VLAN);
            self.find_number(code, KIND_VLAN);
        }
    }

    fn find_address(&self, code: &mut Assembler, place_4: i16, place_6: i16) {
        let (version_6, whole, found, next) = (code.label(), code.label(), code.label(), code.label());
        clear_key(code);
        code.jump_if(JumpWhen::Equal, FAMILY, 6, version_6).jump_if(JumpWhen::Not, FAMILY, 4, next);
        begin_key(code, KIND_BITS + 32, KIND_4);
        code.load(LoadSize::Four, R1, STACK, place_4).store_four(STACK, RULE_KEY + 8, R1).jump(whole);
        code.here(version_6);
        begin_key(code, KIND_BITS + 128, KIND_6);
        for half in [0, 8] {
            code.load(LoadSize::Eight, R1, STACK, place_6 + half).store(STACK, RULE_KEY + 8 + half, R1);
        }
        code.here(whole);
        look_up(code, &self.exact);
        code.jump_if(JumpWhen::Not, R0, 0, found);
        if let Some(networks) = &self.networks {
            look_up(code, networks);
            code.jump_if(JumpWhen::Not, R0, 0, found);
        }
        code.jump(next).here(found);
        keep_earlier(code, next);
        code.here(next);
    }

    /// Emits code that looks up the MAC address at a place of the stack.
    fn find_mac(&self, code: &mut Assembler, place: i16) {
        clear_key(code);
        begin_key(code, KIND_BITS + 96, KIND_MAC);
        for (from, to) in [(0, 8), (2, 12), (4, 16)] {
            code.load(LoadSize::Two, R1, STACK, place + from).store_four(STACK, RULE_KEY + to, R1);
        }
        self.find_exact(code);
    }

    /// Emits code that looks up the number in R1.
    fn find_number(&self, code: &mut Assembler, kind: u32) {
        clear_key(code);
        begin_key(code, KIND_BITS + 32, kind);
        code.store_four(STACK, RULE_KEY + 8, R1);
        self.find_exact(code);
    }

    /// Emits code that looks up the key in the hash table.
    fn find_exact(&self, code: &mut Assembler) {
        let next = code.label();
        look_up(code, &self.exact);
        code.jump_if(JumpWhen::Equal, R0, 0, next);
        keep_earlier(code, next);
        code.here(next);
    }
}

fn is_network(condition: &SoleCondition) -> bool {
    let SoleCondition::Address(network) = condition else { return false };
    network.prefix() < if network.address().is_ipv4() { 32 } else { 128 }
}

fn key(condition: &SoleCondition) -> [u8; KEY_BYTES as usize] {
    let (bits, kind, value) = match condition {
        SoleCondition::Address(network) => match network.address() {
            IpAddr::V4(address) => (network.prefix().into(), KIND_4, address.octets().to_vec()),
            IpAddr::V6(address) => (network.prefix().into(), KIND_6, address.octets().to_vec()),
        },
        SoleCondition::Mac(mac) => {
            let [a, b, c, d, e, f] = mac.bytes();
            let words = [[a, b], [c, d], [e, f]].map(|pair| u32::from(u16::from_ne_bytes(pair)));
            (96, KIND_MAC, words.map(u32::to_ne_bytes).concat())
        }
        SoleCondition::Mark(mark) => (32, KIND_MARK, mark.to_ne_bytes().to_vec()),
        SoleCondition::Vlan(vlan) => (32, KIND_VLAN, u32::from(*vlan).to_ne_bytes().to_vec()),
    };
    let mut key = [0; KEY_BYTES as usize];
    key[..4].copy_from_slice(&(KIND_BITS + bits).to_ne_bytes());
    key[4..8].copy_from_slice(&kind.to_ne_bytes());
    key[8..8 + value.len()].copy_from_slice(&value);
    key
}

fn clear_key(code: &mut Assembler) {
    for place in (RULE_KEY..RULE_KEY + KEY_BYTES as i16).step_by(8) {
        code.clear(STACK, place);
    }
}

fn begin_key(code: &mut Assembler, bits: u32, kind: u32) {
    code.store_number(STACK, RULE_KEY, bits.cast_signed());
    code.store_number(STACK, RULE_KEY + 4, kind.cast_signed());
}

fn look_up(code: &mut Assembler, table: &Table) {
    code.map(R1, table.as_fd());
    stack_address(code, R2, RULE_KEY);
    code.call(LOOKUP);
}

/// Emits code that keeps the rule at the address in R0 if it precedes the rule found so far, or else jumps.
fn keep_earlier(code: &mut Assembler, or_else: Label) {
    let earlier = code.label();
    code.load(LoadSize::Four, R1, R0, 0).load(LoadSize::Four, R2, STACK, FOUND);
    code.jump_if_registers(JumpWhen::Above, R2, R1, earlier).jump(or_else).here(earlier);
    code.load(LoadSize::Eight, R1, R0, 0).store(STACK, FOUND, R1);
}
