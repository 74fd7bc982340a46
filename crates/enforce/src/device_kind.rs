//! Kinds of devices: whether a device's own queue sees all its packets, and whether the device sends packets
//! of other hosts.

use crate::error::Error;
use std::fs;
use std::path::Path;
use unisono_fairqueue::TrafficDirection;
use unisono_linux::netlink::link::NetworkDevice;

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
    use unisono_linux::netlink::link::{Carrier, Index, PeerLocation};

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
}
