//! Finds the first rule that matches a packet without trying every rule.
//!
//! A rule whose only condition is an address, a mark or a VLAN is *keyed*: tables lead from the packet's
//! field to the rule. The remaining rules are tried in their order, as long as they precede the rule found by
//! key.
//!
//! Several networks may contain an address. The longest one decides, and it is also the first in the file: a
//! policy in which a network precedes a part of it is refused, because the part would never match.
//!
//! Cost: a look-up in a hash table for each length of prefix that occurs, of both addresses, and one for the
//! mark and one for the VLAN; then a comparison for each remaining rule.

use super::Rule;
use super::matcher::{Facts, Matcher, Network};
use std::collections::HashMap;
use std::net::IpAddr;

/// The condition of a matcher that has no other condition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SoleCondition {
    Address(Network),
    Mark(u32),
    Vlan(u16),
}

impl SoleCondition {
    pub fn from_matcher(matcher: &Matcher) -> Option<Self> {
        let one = match *matcher {
            Matcher { address: Some(network), .. } => Self::Address(network),
            Matcher { mark: Some(mark), .. } => Self::Mark(mark),
            Matcher { vlan: Some(vlan), .. } => Self::Vlan(vlan),
            _ => return None,
        };
        let alone = match one {
            Self::Address(network) => Matcher { address: Some(network), ..Matcher::default() },
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
        let mark = facts.mark.filter(|_| self.has_marks).map(SoleCondition::Mark);
        let vlan = facts.vlan.filter(|_| self.has_vlans).map(SoleCondition::Vlan);
        let exact = [mark, vlan].into_iter().flatten().filter_map(|key| self.keyed.get(&key).copied());
        let ends = [facts.source, facts.destination].into_iter().filter_map(address);
        let keyed = exact.chain(ends).min();
        self.first_other(keyed, |number| rules[number].matcher.matches(facts))
    }

    /// Returns the number of the first rule that [contains](Matcher::contains) a matcher.
    pub(super) fn containing(&self, rules: &[Rule], matcher: &Matcher) -> Option<usize> {
        let networks = matcher.address.into_iter();
        let networks = networks.flat_map(|network| self.numbers_of(network.address(), network.prefix()));
        let exact = [matcher.mark.map(SoleCondition::Mark), matcher.vlan.map(SoleCondition::Vlan)];
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
