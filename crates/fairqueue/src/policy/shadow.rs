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

use super::Rule;
use super::dscp::Dscp;
use super::matcher::{Facts, IpProtocol, Matcher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the earlier rules that together match all packets of `rule`, or an empty list if a packet is left
/// for `rule`.
pub(super) fn shadows_of<'a>(rule: &Matcher, earlier: &'a [Rule]) -> Vec<&'a Rule> {
    if let Some(one) = earlier.iter().find(|one| one.matcher.contains(rule)) {
        return vec![one];
    }
    let mut shadows = Vec::new();
    for protocol in protocols(rule, earlier) {
        for address in addresses(rule, protocol, earlier) {
            let rest = || {
                ports(rule, earlier)
                    .into_iter()
                    .flat_map(|port| dscps(rule, protocol, earlier).into_iter().map(move |dscp| (port, dscp)))
            };
            for (port, dscp) in rest() {
                let facts = Facts {
                    source: address,
                    destination: address,
                    source_port: port,
                    destination_port: port,
                    protocol,
                    priority: rule.priority,
                    mark: rule.mark,
                    dscp,
                    vlan: rule.vlan,
                    cgroup: rule.cgroup.as_deref(),
                };
                match earlier.iter().find(|one| one.matcher.matches(&facts)) {
                    None => return Vec::new(),
                    Some(one) if !shadows.contains(&one) => shadows.push(one),
                    Some(_) => {}
                }
            }
        }
    }
    shadows.sort_by_key(|one| one.at);
    shadows
}

fn protocols(rule: &Matcher, earlier: &[Rule]) -> Vec<Option<IpProtocol>> {
    if rule.protocol.is_some() {
        return vec![rule.protocol];
    }
    if rule.ports.is_some() {
        return IpProtocol::WITH_PORTS.map(Some).to_vec();
    }
    if rule.address.is_none() && rule.dscp.is_none() {
        return vec![None];
    }
    let named = |number: &u8| earlier.iter().any(|one| one.matcher.protocol == Some(IpProtocol(*number)));
    let other = (0..=u8::MAX).rev().find(|number| !named(number));
    other.map_or_else(
        || (0..=u8::MAX).map(|number| Some(IpProtocol(number))).collect(),
        |other| vec![Some(IpProtocol(other))],
    )
}

fn addresses(rule: &Matcher, protocol: Option<IpProtocol>, earlier: &[Rule]) -> Vec<Option<IpAddr>> {
    let first = match (rule.address, protocol) {
        (Some(network), _) => vec![network.address()],
        // only IP packets have a protocol
        (None, Some(_)) => vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)],
        (None, None) => return vec![None],
    };
    let after = earlier.iter().filter_map(|one| one.matcher.address?.next());
    let after = after.filter(|next| rule.address.is_none_or(|network| network.contains(*next)));
    let mut all: Vec<_> = first.into_iter().chain(after).map(Some).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the code points to test. Every IP packet has a code point, so 64 earlier matches can together
/// match all IP packets. `None` stands for a code point that no earlier match names.
fn dscps(rule: &Matcher, protocol: Option<IpProtocol>, earlier: &[Rule]) -> Vec<Option<Dscp>> {
    let named = |point: &Dscp| earlier.iter().any(|one| one.matcher.dscp == Some(*point));
    match rule.dscp {
        None if protocol.is_some() && Dscp::all().all(|point| named(&point)) => {
            Dscp::all().map(Some).collect()
        }
        point => vec![point],
    }
}

fn ports(rule: &Matcher, earlier: &[Rule]) -> Vec<Option<u16>> {
    let Some(range) = &rule.ports else { return vec![None] };
    let after = earlier.iter().filter_map(|one| one.matcher.ports.as_ref()?.end().checked_add(1));
    let after = after.filter(|next| range.contains(next));
    let mut all: Vec<_> = after.chain([*range.start()]).map(Some).collect();
    all.sort_unstable();
    all.dedup();
    all
}
