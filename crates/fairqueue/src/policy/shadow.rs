//! Finds matches that can never decide, because earlier matches match all their packets.
//!
//! Geometrically, a match is a box, with a range of ports, a network and so on as its sides. Earlier matches
//! cut boxes out of it. If any part of the box is left, then at least one corner is left: a point where the
//! box itself ends, or where a cut ends. There are finitely many corners, so each is tested with the ordinary
//! matching. This also finds a match that several earlier matches shadow together.
//!
//! Two simplifications keep the test exact and short. The tested packet has no property that the match does
//! not require (no priority, no mark, no VLAN, no control group below the required one), because such a
//! packet meets the fewest earlier matches. For the same reason both ends of the packet are the same: a
//! different second end could only meet more of them.
//!
//! Cost: an access network has a rule for each of 50,000 subscribers, so no rule is compared with each
//! earlier one. [`EarlierRules`] finds them by their keys, and keeps the ends of their boxes in order.

use super::Rule;
use super::dscp::Dscp;
use super::index::RuleIndex;
use super::matcher::{Facts, IpProtocol, Matcher};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound;

/// The rules before the examined rule.
#[derive(Debug, Default)]
pub(super) struct EarlierRules {
    rules: Vec<Rule>,
    index: RuleIndex,
    protocols: BTreeSet<u8>,
    dscps: BTreeSet<u8>,
    /// The first addresses after the networks, and the first ports after the ranges.
    after_networks: BTreeSet<IpAddr>,
    after_ports: BTreeSet<u16>,
}

impl EarlierRules {
    pub(super) fn push(&mut self, rule: Rule) {
        let Matcher { address, ports, protocol, dscp, .. } = &rule.matcher;
        self.index.add(self.rules.len(), &rule.matcher);
        self.protocols.extend(protocol.map(|IpProtocol(number)| number));
        self.dscps.extend(dscp.map(Dscp::number));
        self.after_networks.extend(address.and_then(|network| network.next()));
        self.after_ports.extend(ports.as_ref().and_then(|ports| ports.end().checked_add(1)));
        self.rules.push(rule);
    }

    pub(super) fn into_parts(self) -> (Vec<Rule>, RuleIndex) {
        (self.rules, self.index)
    }

    /// Returns the earlier rules that together match all packets of `rule`, or an empty list if a packet is
    /// left for `rule`.
    pub(super) fn shadows_of(&self, rule: &Matcher) -> Vec<&Rule> {
        if let Some(one) = self.index.containing(&self.rules, rule) {
            return vec![&self.rules[one]];
        }
        let mut shadows = BTreeSet::new();
        for protocol in self.protocols_of(rule) {
            for address in self.addresses_of(rule, protocol) {
                for port in self.ports_of(rule) {
                    for dscp in self.dscps_of(rule, protocol) {
                        let facts = Facts {
                            source: address,
                            destination: address,
                            source_mac: rule.mac,
                            destination_mac: rule.mac,
                            source_port: port,
                            destination_port: port,
                            protocol,
                            priority: rule.priority,
                            mark: rule.mark,
                            dscp,
                            vlan: rule.vlan,
                            cgroup: rule.cgroup.as_deref(),
                        };
                        match self.index.first(&self.rules, &facts) {
                            None => return Vec::new(),
                            Some(one) => shadows.insert(one),
                        };
                    }
                }
            }
        }
        shadows.into_iter().map(|number| &self.rules[number]).collect()
    }

    fn protocols_of(&self, rule: &Matcher) -> Vec<Option<IpProtocol>> {
        if rule.protocol.is_some() {
            return vec![rule.protocol];
        }
        if rule.ports.is_some() {
            return IpProtocol::WITH_PORTS.map(Some).to_vec();
        }
        if rule.address.is_none() && rule.dscp.is_none() {
            return vec![None];
        }
        let other = (0..=u8::MAX).rev().find(|number| !self.protocols.contains(number));
        other.map_or_else(
            || (0..=u8::MAX).map(|number| Some(IpProtocol(number))).collect(),
            |other| vec![Some(IpProtocol(other))],
        )
    }

    fn addresses_of(
        &self,
        rule: &Matcher,
        protocol: Option<IpProtocol>,
    ) -> impl Iterator<Item = Option<IpAddr>> {
        let first = match (rule.address, protocol) {
            (Some(network), _) => vec![Some(network.address())],
            // only IP packets have a protocol
            (None, Some(_)) => {
                [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)].map(Some).to_vec()
            }
            (None, None) => vec![None],
        };
        let start = first.first().copied().flatten();
        let network = rule.address;
        let inner = start
            .into_iter()
            .flat_map(|start| self.after_networks.range((Bound::Excluded(start), Bound::Unbounded)).copied());
        let inner = inner.take_while(move |next| network.is_none_or(|network| network.contains(*next)));
        first.into_iter().chain(inner.map(Some))
    }

    /// Returns the code points to test. Every IP packet has a code point, so 64 earlier matches can together
    /// match all IP packets. `None` stands for a code point that no earlier match names.
    fn dscps_of(&self, rule: &Matcher, protocol: Option<IpProtocol>) -> Vec<Option<Dscp>> {
        let are_all_named = Dscp::all().all(|point| self.dscps.contains(&point.number()));
        match rule.dscp {
            None if protocol.is_some() && are_all_named => Dscp::all().map(Some).collect(),
            point => vec![point],
        }
    }

    fn ports_of(&self, rule: &Matcher) -> Vec<Option<u16>> {
        let Some(range) = &rule.ports else { return vec![None] };
        let after = self.after_ports.range((Bound::Excluded(*range.start()), Bound::Included(*range.end())));
        std::iter::once(*range.start()).chain(after.copied()).map(Some).collect()
    }
}
