//! Kinds of devices: whether a device's own queue sees all its packets, whether the device sends packets of
//! other hosts, and whether its frames can be received by class.

use crate::error::Error;
use std::fs;
use std::path::Path;
use unisono_fairqueue::{ClassReceiving, TrafficDirection};
use unisono_linux::netlink::link::{Index, NetworkDevice, PeerLocation};

/// The kinds of devices whose ports forward frames to each other past the device's own queue.
const SWITCHES: [&str; 2] = ["bridge", "openvswitch"];

fn is_switch(device: &NetworkDevice) -> bool {
    device.kind.as_deref().is_some_and(|kind| SWITCHES.contains(&kind))
}

/// Refuses a bridge, whose queue sees only the host's own packets.
pub(crate) fn check(
    device: &NetworkDevice,
    all: &[NetworkDevice],
    direction: TrafficDirection,
) -> Result<(), Error> {
    if !is_switch(device) {
        return Ok(());
    }
    let ports: Vec<&str> =
        all.iter().filter(|port| port.master == Some(device.index)).map(|port| port.name.as_str()).collect();
    let (name, direction) = (
        &device.name,
        match direction {
            TrafficDirection::Out => "",
            TrafficDirection::In => " --direction in",
        },
    );
    let remedy = match ports.first() {
        Some(port) => format!(
            "apply the policy at a port: unisono queue apply POLICY --dev {port}{direction} (its ports: {})",
            ports.join(", ")
        ),
        None => "give it a port, and apply the policy there".to_owned(),
    };
    let what =
        format!("{name} is a bridge: frames that it forwards from port to port pass by its queue; {remedy}");
    Err(Error::BackendUnsupported { what })
}

/// Refuses a device whose frames an XDP program cannot pass to the threads of classes, or would pass on
/// without what the device has noted beside them: VLAN tags that it took out, checksums that are missing.
pub(crate) fn check_receiving(
    device: &NetworkDevice,
    all: &[NetworkDevice],
    terms: &ClassReceiving,
) -> Result<(), Error> {
    let name = &device.name;
    let refused = |why: String| {
        let what = format!("receive = \"by-class\": {why}, or take `receive` out");
        Err(Error::BackendUnsupported { what })
    };
    let is_here = |of: &NetworkDevice| of.other_end == PeerLocation::Here;
    let has_vlan = |other: &NetworkDevice| {
        other.kind.as_deref() == Some("vlan") && is_here(other) && other.lower == Some(device.index)
    };
    match device.kind.as_deref() {
        None if device.index == Index::LOOPBACK => refused(format!(
            "what {name} receives takes the time of its sender; apply the policy at another device"
        )),
        None | Some("veth") if !device.has_ethernet => {
            refused(format!("frames of {name} are not of Ethernet; apply the policy at another device"))
        }
        None | Some("veth") if device.master.is_some() || all.iter().any(has_vlan) => refused(format!(
            "{name} is a port of another device or carries VLANs, and a frame loses its VLAN tag on the way to a thread; \
             apply the policy at a device without them"
        )),
        Some("veth") if !terms.has_complete_checksums => refused(format!(
            "senders at the other end of {name} leave checksums to their device, and such frames would be dropped; switch \
             that off there (ethtool -K DEVICE tx off) and add receive_checksums = \"complete\""
        )),
        None | Some("veth") => Ok(()),
        Some(kind) => {
            let carries = |other: &&NetworkDevice| {
                other.master == Some(device.index) || is_here(device) && device.lower == Some(other.index)
            };
            let below: Vec<&str> = all.iter().filter(carries).map(|other| other.name.as_str()).collect();
            let remedy = match below.is_empty() {
                true => "apply the policy at a network card".to_owned(),
                false => format!("apply the policy at {}", below.join(", ")),
            };
            refused(format!("frames of {name} (a device of the kind {kind}) were received before; {remedy}"))
        }
    }
}

/// Returns whether a device may send packets of other hosts, which arrive merged to up to 64 KiB (GRO).
pub(crate) fn forwards(device: &NetworkDevice, all: &[NetworkDevice]) -> bool {
    let master = all.iter().find(|other| Some(other.index) == device.master);
    master.is_some_and(is_switch) || ["ipv4", "ipv6"].into_iter().any(routes)
}

/// Returns whether any device of this thread's network namespace forwards packets of this protocol.
fn routes(protocol: &str) -> bool {
    let devices = Path::new("/proc/sys/net").join(protocol).join("conf");
    let is_on = |entry: fs::DirEntry| {
        fs::read_to_string(entry.path().join("forwarding")).is_ok_and(|text| text.trim() != "0")
    };
    fs::read_dir(devices).into_iter().flatten().flatten().any(is_on)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_fairqueue::Policy;
    use unisono_linux::netlink::link::Carrier;

    fn device(index: u32, name: &str, kind: Option<&str>, master: Option<u32>) -> NetworkDevice {
        NetworkDevice {
            index: Index(index),
            name: name.to_owned(),
            carrier: Carrier::Present,
            mtu: 1500,
            has_ethernet: true,
            gso_max_size: 65_536,
            gso_ipv4_max_size: None,
            gso_max_segments: None,
            kind: kind.map(str::to_owned),
            master: master.map(Index),
            lower: None,
            other_end: PeerLocation::Here,
        }
    }

    #[test]
    fn a_bridge_is_refused_with_its_ports_and_a_port_is_taken() {
        let all = [
            device(1, "br0", Some("bridge"), None),
            device(2, "eth0", None, Some(1)),
            device(3, "tap0", Some("tun"), Some(1)),
            device(4, "bond0", Some("bond"), None),
        ];
        let refused = |direction| check(&all[0], &all, direction).expect_err("a bridge").to_string();
        let said = refused(TrafficDirection::Out);
        assert!(said.contains("--dev eth0 (its ports: eth0, tap0)"), "{said}");
        assert!(refused(TrafficDirection::In).contains("--dev eth0 --direction in"));
        assert!(forwards(&all[1], &all));
        for device in &all[1..] {
            check(device, &all, TrafficDirection::Out).expect("it has a queue of its own");
        }
    }

    #[test]
    fn receiving_by_class_is_for_cards_and_cables_that_lose_nothing() {
        let terms = |keys: &str| {
            let text = format!("rate = \"1mbit\"\nreceive = \"by-class\"\n{keys}\n[class.a]\n");
            Policy::parse(&text).expect("it is sound").receiving.expect("it has the key")
        };
        let (plain, complete) = (terms(""), terms("receive_checksums = \"complete\""));
        let all = [
            device(1, "lo", None, None),
            device(2, "eth0", None, None),
            device(3, "eth1", None, None),
            device(4, "eth2", None, Some(6)),
            device(5, "cable", Some("veth"), None),
            device(6, "bond0", Some("bond"), None),
            NetworkDevice { lower: Some(Index(3)), ..device(7, "eth1.5", Some("vlan"), None) },
            NetworkDevice { has_ethernet: false, ..device(8, "ppp0", None, None) },
        ];
        let check = |at: usize, terms| check_receiving(&all[at], &all, terms);
        check(1, &plain).expect("a card");
        check(4, &complete).expect("a cable with whole checksums");
        for (at, why) in [
            (0, "the time of its sender"),
            (2, "carries VLANs"),
            (3, "is a port"),
            (4, "ethtool -K DEVICE tx off"),
            (5, "apply the policy at eth2"),
            (6, "apply the policy at eth1"),
            (7, "not of Ethernet"),
        ] {
            let error = check(at, &plain).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
