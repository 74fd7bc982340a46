//! Reads the list `match` of a class.

use super::super::dscp::Dscp;
use super::super::error::{Mistake, meant, wrong};
use super::super::mac::MacAddress;
use super::super::matcher::{IpProtocol, Matcher, Network};
use super::{Placed, WrittenValue, entries, kind, number_of, start, text_of};
use std::ops::RangeInclusive;
use toml::de::{DeArray, DeValue};

const PARTS: [&str; 9] = ["cgroup", "address", "mac", "port", "protocol", "priority", "mark", "dscp", "vlan"];

pub(super) fn read_matchers(value: &WrittenValue<'_>) -> Result<Vec<Placed<Matcher>>, Mistake> {
    let DeValue::Array(list) = value.get_ref() else {
        let what = kind(value.get_ref());
        return wrong(start(value), format!("`match` is a list, as in [{{ port = 80 }}], not {what}"));
    };
    list.iter().map(read_matcher).collect()
}

fn read_matcher(value: &WrittenValue<'_>) -> Result<Placed<Matcher>, Mistake> {
    let at = start(value);
    let DeValue::Table(table) = value.get_ref() else {
        return wrong(
            at,
            format!("a match is a table, as in {{ port = 80 }}, not {}", kind(value.get_ref())),
        );
    };
    let (mut matcher, mut ports_at) = (Matcher::default(), at);
    for (key, at, value) in entries(table) {
        match key {
            "cgroup" => matcher.cgroup = Some(read_cgroup(value)?),
            "address" => matcher.address = Some(read_network(value)?),
            "mac" => matcher.mac = Some(read_mac(value)?),
            "port" => (matcher.ports, ports_at) = (Some(read_ports(value)?), at),
            "protocol" => matcher.protocol = Some(read_protocol(value)?),
            "priority" => {
                matcher.priority =
                    Some(read_word("a priority", "as a program gives it to SO_PRIORITY", value)?);
            }
            "mark" => {
                matcher.mark = Some(read_word("a mark", "as nftables, iptables or SO_MARK set it", value)?);
            }
            "dscp" => matcher.dscp = Some(read_dscp(value)?),
            "vlan" => matcher.vlan = Some(read_vlan(value)?),
            _ => return wrong(at, format!("unknown key `{key}` in a match; {}", meant(key, &PARTS))),
        }
    }
    if matcher.is_empty() {
        return wrong(at, "a match without parts is for every packet; make the class the `default` instead");
    }
    match matcher.protocol {
        Some(protocol) if matcher.ports.is_some() && !protocol.has_ports() => wrong(
            ports_at,
            format!("{protocol} has no ports, so this can never hit; leave `port` or `protocol` out"),
        ),
        _ => Ok(Placed { value: matcher, at }),
    }
}

fn read_cgroup(value: &WrittenValue<'_>) -> Result<String, Mistake> {
    let text = text_of("cgroup", "the path of a control group from its root", value)?;
    let path = text.value.trim_end_matches('/');
    let is_part = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    match path.strip_prefix('/') {
        Some(parts) if parts.split('/').all(is_part) => Ok(path.to_owned()),
        None if text.value == "/" => wrong(
            text.at,
            "the root control group holds every process; make the class the `default` instead",
        ),
        _ => wrong(
            text.at,
            format!(
                "{:?} is no path from the root of the control groups; write one as /proc/PID/cgroup shows it, such as \
                 \"/system.slice/video.service\"",
                text.value
            ),
        ),
    }
}

fn read_network(value: &WrittenValue<'_>) -> Result<Network, Mistake> {
    let text = text_of("address", "an address or a network such as \"10.0.0.0/8\"", value)?;
    text.value.parse().or_else(|error| wrong(text.at, format!("address: {error}")))
}

fn read_port(value: &WrittenValue<'_>) -> Option<u16> {
    number_of(value).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}

fn read_ports(value: &WrittenValue<'_>) -> Result<RangeInclusive<u16>, Mistake> {
    let pair = |list: &DeArray<'_>| match list.iter().collect::<Vec<_>>()[..] {
        [first, last] => Some(read_port(first)?..=read_port(last)?),
        _ => None,
    };
    let ports = match value.get_ref() {
        DeValue::Array(list) => pair(list),
        _ => read_port(value).map(|port| port..=port),
    };
    match ports {
        Some(ports) if ports.is_empty() => wrong(
            start(value),
            format!("ports {} to {} are none; write the lower one first", ports.start(), ports.end()),
        ),
        Some(ports) => Ok(ports),
        None => {
            wrong(start(value), "port: expected 1 to 65535, or the first and the last as in [8000, 8010]")
        }
    }
}

fn read_protocol(value: &WrittenValue<'_>) -> Result<IpProtocol, Mistake> {
    match (value.get_ref(), number_of(value).map(u8::try_from)) {
        (_, Some(Ok(number))) => Ok(IpProtocol(number)),
        (DeValue::String(name), _) => match IpProtocol::named(name) {
            Some(protocol) => Ok(protocol),
            None => wrong(
                start(value),
                format!("unknown protocol `{name}`; {}, or its number", meant(name, &IpProtocol::names())),
            ),
        },
        (other, _) => wrong(
            start(value),
            format!("a protocol is a name such as \"udp\" or a number from 0 to 255, not {}", kind(other)),
        ),
    }
}

/// Reads a whole number of 32 bits.
fn read_word(what: &str, whence: &str, value: &WrittenValue<'_>) -> Result<u32, Mistake> {
    match number_of(value).map(u32::try_from) {
        Some(Ok(number)) => Ok(number),
        _ => wrong(
            start(value),
            format!("{what} is a whole number from 0, {whence}, not {}", kind(value.get_ref())),
        ),
    }
}

fn read_dscp(value: &WrittenValue<'_>) -> Result<Dscp, Mistake> {
    let point = match value.get_ref() {
        DeValue::String(name) => Dscp::named(name),
        _ => number_of(value).and_then(|number| Dscp::new(u8::try_from(number).ok()?)),
    };
    point.map_or_else(
        || {
            wrong(
                start(value),
                format!(
                    "dscp: a code point is a number from 0 to 63 or a name, cs0 to cs7, af11 to af43, ef, va or le, not {}",
                    kind(value.get_ref())
                ),
            )
        },
        Ok,
    )
}

fn read_mac(value: &WrittenValue<'_>) -> Result<MacAddress, Mistake> {
    let text = text_of("mac", "the address of an Ethernet device", value)?;
    text.value.parse().or_else(|()| {
        wrong(
            text.at,
            format!("mac: {:?} is no address; write one as in \"02:00:5e:10:00:01\"", text.value),
        )
    })
}

fn read_vlan(value: &WrittenValue<'_>) -> Result<u16, Mistake> {
    match number_of(value).map(u16::try_from) {
        Some(Ok(number @ 1..=4094)) => Ok(number),
        _ => wrong(
            start(value),
            format!("vlan: expected the number of a VLAN, from 1 to 4094, not {}", kind(value.get_ref())),
        ),
    }
}
