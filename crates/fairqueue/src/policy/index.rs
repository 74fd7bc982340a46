//! Finds the first rule that matches a packet without trying every rule.
//!
//! A rule whose only condition is an address, a MAC address, a mark or a VLAN is *keyed*: tables lead from
//! the packet's field to the rule. The remaining rules are tried in their order, as long as they precede the
//! rule found by key.
//!
//! Several networks may contain an address. The longest one decides, and it is also the first in the file: a
//! policy in which a network precedes a part of it is refused, because the part would never match.
//!
//! Cost: a look-up in a hash table for each length of prefix that occurs, of both addresses, one for each MAC
//! address, one for the mark and one for the VLAN; then a comparison for each remaining rule.

use super::Rule;
use super::mac::MacAddress;
use super::matcher::{Facts, Matcher, Network};
use std::collections::HashMap;
use std::net::IpAddr;

/// The condition of a matcher that has no other condition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SoleCondition {
    Address(Network),
    Mac(MacAddress),
    Mark(u32),
    Vlan(u16),
}

impl SoleCondition {
    pub fn from_matcher(matcher: &Matcher) -> Option<Self> {
        let one = match *matcher {
            Matcher { address: Some(network), .. } => Self::Address(network),
            Matcher { mac: Some(mac), .. } => Self::Mac(mac),
            Matcher { mark: Some(mark), .. } => Self::Mark(mark),
            Matcher { vlan: Some(vlan), .. } => Self::Vlan(vlan),
            _ => return None,
        };
        let alone = match one {
            Self::Address(network) => Matcher { address: Some(network), ..Matcher::default() },
            Self::Mac(mac) => Matcher { mac: Some(mac), ..Matcher::default() },
            Self::Mark(mark) => Matcher { mark: Some(mark), ..Matcher::default() },
            Self::Vlan(vlan) => Matcher { vlan: Some(vlan), ..Matcher::default() },
        };
        (alone == *matcher).then_some(one)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct RuleIndex {
    keyed: HashMap<SoleCondition, usize>,
    /// The lengths of the keyed networks of IPv4 and IPv6, with the longest first.
    prefixes: [Vec<u8>; 2],
    has_macs: bool,
    has_marks: bool,
    has_vlans: bool,
    /// The numbers of the other rules.
    others: Vec<usize>,
}

impl RuleIndex {
    /// Adds the rule of the given number, which follows all rules that were added before.
    pub(super) fn add(&mut self, number: usize, matcher: &Matcher) {
        let Some(condition) = SoleCondition::from_matcher(matcher) else {
            self.others.push(number);
            return;
        };
        match condition {
            SoleCondition::Address(network) => {
                let lengths = &mut self.prefixes[usize::from(network.address().is_ipv6())];
                if let Err(at) = lengths.binary_search_by(|known| network.prefix().cmp(known)) {
                    lengths.insert(at, network.prefix());
                }
            }
            SoleCondition::Mac(_) => self.has_macs = true,
            SoleCondition::Mark(_) => self.has_marks = true,
            SoleCondition::Vlan(_) => self.has_vlans = true,
        }
        self.keyed.entry(condition).or_insert(number);
    }

    /// Returns the number of the first rule that matches.
    pub(super) fn first(&self, rules: &[Rule], facts: &Facts<'_>) -> Option<usize> {
        let address = |address: Option<IpAddr>| {
            self.numbers_of(address?, 128).next() // the longest one, which is also the first
        };
        let [source, destination] = [facts.source_mac, facts.destination_mac]
            .map(|mac| mac.filter(|_| self.has_macs).map(SoleCondition::Mac));
        let mark = facts.mark.filter(|_| self.has_marks).map(SoleCondition::Mark);
        let vlan = facts.vlan.filter(|_| self.has_vlans).map(SoleCondition::Vlan);
        let exact = [source, destination, mark, vlan]
            .into_iter()
            .flatten()
            .filter_map(|key| self.keyed.get(&key).copied());
        let ends = [facts.source, facts.destination].into_iter().filter_map(address);
        let keyed = exact.chain(ends).min();
        self.first_other(keyed, |number| rules[number].matcher.matches(facts))
    }

    /// Returns the number of the first rule that [contains](Matcher::contains) a matcher.
    pub(super) fn containing(&self, rules: &[Rule], matcher: &Matcher) -> Option<usize> {
        let networks = matcher.address.into_iter();
        let networks = networks.flat_map(|network| self.numbers_of(network.address(), network.prefix()));
        let Matcher { mac, mark, vlan, .. } = *matcher;
        let exact =
            [mac.map(SoleCondition::Mac), mark.map(SoleCondition::Mark), vlan.map(SoleCondition::Vlan)];
        let exact = exact.into_iter().flatten().filter_map(|key| self.keyed.get(&key).copied());
        let keyed = networks.chain(exact).min();
        self.first_other(keyed, |number| rules[number].matcher.contains(matcher))
    }

    /// Returns the numbers of the keyed networks with an address, the longest first, up to a length.
    fn numbers_of(&self, address: IpAddr, longest: u8) -> impl Iterator<Item = usize> {
        let lengths = self.prefixes[usize::from(address.is_ipv6())].iter().copied();
        lengths.filter(move |length| *length <= longest).filter_map(move |length| {
            self.keyed.get(&SoleCondition::Address(Network::new(address, length)?)).copied()
        })
    }

    /// Returns the first of the other rules with a property, if it precedes `keyed`, or else `keyed`.
    fn first_other(&self, keyed: Option<usize>, has: impl Fn(usize) -> bool) -> Option<usize> {
        let before = keyed.unwrap_or(usize::MAX);
        self.others
            .iter()
            .copied()
            .take_while(|number| *number < before)
            .find(|number| has(*number))
            .or(keyed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hierarchy::ClassId;
    use proptest::option::weighted as maybe;
    use proptest::prelude::*;
    use unisono_text::Position;

    fn macs() -> impl Strategy<Value = MacAddress> {
        (1_u8..12).prop_map(|last| MacAddress::new([2, 0, 0, 0, 0, last]).expect("not zero"))
    }

    fn networks() -> impl Strategy<Value = Network> {
        (0_u8..8, 28_u8..=32).prop_map(|(last, prefix)| {
            Network::new(IpAddr::from([10, 0, 0, last]), prefix).expect("short enough")
        })
    }

    /// Most have one condition.
    fn matchers() -> impl Strategy<Value = Matcher> {
        let (address, mac, mark) = (maybe(0.2, networks()), maybe(0.5, macs()), maybe(0.2, 1..4_u32));
        (address, mac, mark, maybe(0.2, 1..4_u16), maybe(0.1, 1..3_u32)).prop_map(
            |(address, mac, mark, vlan, priority)| Matcher {
                address,
                mac,
                mark,
                vlan,
                priority,
                ..Matcher::default()
            },
        )
    }

    fn packets() -> impl Strategy<Value = Facts<'static>> {
        let address = || maybe(0.8, (0_u8..9).prop_map(|last| IpAddr::from([10, 0, 0, last])));
        let ends = (address(), address(), maybe(0.9, macs()), maybe(0.9, macs()));
        (ends, maybe(0.5, 1..5_u32), maybe(0.5, 1..5_u16), maybe(0.5, 1..3_u32)).prop_map(
            |((source, destination, source_mac, destination_mac), mark, vlan, priority)| Facts {
                source,
                destination,
                source_mac,
                destination_mac,
                mark,
                vlan,
                priority,
                ..Facts::default()
            },
        )
    }

    proptest! {
        #[test]
        fn the_first_rule_is_the_one_that_trying_each_in_turn_finds(
            matchers in prop::collection::vec(matchers(), 1..40), packets in prop::collection::vec(packets(), 40),
        ) {
            let (mut rules, mut index) = (Vec::<Rule>::new(), RuleIndex::default());
            for matcher in matchers {
                let containing = rules.iter().position(|rule| rule.matcher.contains(&matcher));
                let found = index.containing(&rules, &matcher);
                prop_assert_eq!(found.is_some(), containing.is_some(), "{} {:?} {:?}", &matcher, found, containing);
                // an operator leaves out a match that an earlier one contains
                if containing.is_some() {
                    continue;
                }
                index.add(rules.len(), &matcher);
                rules.push(Rule { class: ClassId::ROOT, matcher, at: Position { line: 1, column: 1 } });
            }
            for packet in packets {
                let expected = rules.iter().position(|rule| rule.matcher.matches(&packet));
                prop_assert_eq!(index.first(&rules, &packet), expected, "{:?}", packet);
            }
        }
    }

    #[test]
    fn a_rule_with_a_mac_address_alone_is_found_by_key() {
        let mut index = RuleIndex::default();
        for last in 1..=3 {
            let mac = MacAddress::new([2, 0, 0, 0, 0, last]);
            index.add(usize::from(last), &Matcher { mac, ..Matcher::default() });
            index.add(9, &Matcher { mac, mark: Some(1), ..Matcher::default() });
        }
        assert_eq!((index.keyed.len(), index.others.len()), (3, 3));
    }
}
