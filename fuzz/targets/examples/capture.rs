//! For any bytes: a capture is read to its end or refused with its name, a packet carries at most the bytes
//! that were on the wire, and a truncated capture gives the packets before the cut unchanged.
#![no_main]

#[path = "../../../examples/network-monitor/capture.rs"]
#[allow(dead_code, reason = "the monitor also writes captures")]
mod capture;

use capture::Capture;
use libfuzzer_sys::fuzz_target;
use unisono_laboratory::workload::monitor::packet::{TcpPacket, coordinates};
use unisono_laboratory::workload::stream_cluster::MAX_COORDINATE;

fn read(bytes: &[u8]) -> Option<(Vec<TcpPacket>, bool)> {
    let mut capture = Capture::new(bytes, "a.pcap".to_owned()).ok()?;
    let mut packets = Vec::new();
    loop {
        match capture.next_packet() {
            Ok(Some(packet)) => packets.push(packet),
            Ok(None) => return Some((packets, capture.is_cut_off())),
            Err(error) => {
                assert!(error.to_string().starts_with("a.pcap: packet "), "{error}");
                return Some((packets, true));
            }
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((whole, _)) = read(bytes) else { return };
    for packet in &whole {
        assert!(packet.length as usize >= packet.payload.len());
        let point = coordinates(packet, packet.at);
        assert!(point.iter().all(|number| (0..=MAX_COORDINATE).contains(number)), "{point:?}");
    }
    if let Some((before, _)) = read(&bytes[..bytes.len() / 2]) {
        assert_eq!(before[..], whole[..before.len()]);
    }
    if let Ok(capture) = Capture::new(bytes, "a.pcap".to_owned()) {
        if let Ok((services, others)) = capture.busiest(4) {
            assert!(services.len() == 4 || others == 0);
        }
    }
});
