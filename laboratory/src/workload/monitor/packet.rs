//! Represents TCP packets as points: the properties of a packet in 128 numbers.
//!
//! All groups of numbers have about the same weight, so that no single property dominates the distance.
//! Packets of the same kind (acknowledgements, requests, the bytes of a file) are close to each other;
//! packets of a new kind are far away from them.

use crate::workload::stream_cluster::{Coordinates, DIMENSIONS, MAX_COORDINATE};
use std::net::SocketAddr;
use std::time::Duration;

/// The index of the first number of each group.
const BYTES: usize = 0;
const FLAGS: usize = 64;
const LENGTH: usize = 72;
const GAP: usize = 88;
const SENDER: usize = 104;
const BEGINNING: usize = 112;

/// The weight of a flag, a length or a gap. If two packets differ in one field, they differ by 512 in each of
/// two numbers.
const FIELD_WEIGHT: i16 = 512;

/// The weight of one bit of a hash: eight different bits weigh about as much as one number with
/// [`FIELD_WEIGHT`].
const HASH_BIT_WEIGHT: i16 = 180;

/// The names of the flags, from the lowest bit on.
pub const FLAG_NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
pub const SYN: u8 = 2;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpPacket {
    /// The time since the first packet, or since the Unix epoch.
    pub at: Duration,
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// The flags of the TCP header.
    pub flags: u8,
    /// The number of bytes of payload on the wire.
    pub length: u32,
    /// The captured part of the payload.
    pub payload: Vec<u8>,
}

impl TcpPacket {
    /// Returns the end that is presumably the service: the one with the lower port.
    pub fn service(&self) -> SocketAddr {
        let key = |end: &SocketAddr| (end.port(), *end);
        if key(&self.from) <= key(&self.to) { self.from } else { self.to }
    }

    fn client(&self) -> SocketAddr {
        if self.service() == self.from { self.to } else { self.from }
    }
}

/// Converts a packet to a point. `gap` is the time since the stream's previous packet.
pub fn coordinates(packet: &TcpPacket, gap: Duration) -> Coordinates {
    let mut point = [0; DIMENSIONS];
    if !packet.payload.is_empty() {
        // counts the bytes in 64 groups of 4 byte values each
        let mut counts = [0usize; 64];
        packet.payload.iter().for_each(|byte| counts[usize::from(byte / 4)] += 1);
        for (group, count) in counts.into_iter().enumerate() {
            point[BYTES + group] = (count * MAX_COORDINATE as usize / packet.payload.len()) as i16;
        }
    }
    for flag in 0..8 {
        point[FLAGS + flag] = if packet.flags & (1 << flag) == 0 { 0 } else { FIELD_WEIGHT };
    }
    point[LENGTH + (32 - packet.length.leading_zeros() as usize).min(15)] = FIELD_WEIGHT;
    let micros = u64::try_from(gap.as_micros()).unwrap_or(u64::MAX);
    point[GAP + (64 - micros.leading_zeros() as usize).min(15)] = FIELD_WEIGHT / 2;
    let client = hash(packet.client().ip().to_string().as_bytes());
    let sent_by_client = packet.from == packet.client();
    for bit in 0..7 {
        point[SENDER + bit] = if client & (1 << bit) == 0 { 0 } else { HASH_BIT_WEIGHT };
    }
    point[SENDER + 7] = if sent_by_client { FIELD_WEIGHT } else { 0 };
    if let Some(first) = packet.payload.first_chunk::<4>() {
        let beginning = hash(first);
        for bit in 0..16 {
            point[BEGINNING + bit] = if beginning & (1 << bit) == 0 { 0 } else { HASH_BIT_WEIGHT };
        }
    }
    point
}

/// Computes the hash FNV-1a: it is the same on every machine.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Describes the common properties of the packets around a center in words.
pub fn describe(centre: &Coordinates) -> String {
    let strongest = |from: usize, count: usize| {
        let place = (0..count).max_by_key(|i| centre[from + i]);
        place.filter(|i| centre[from + i] > 0)
    };
    let flags: Vec<&str> =
        (0..8).filter(|flag| centre[FLAGS + flag] > FIELD_WEIGHT / 2).map(|flag| FLAG_NAMES[flag]).collect();
    let flags = if flags.is_empty() { "no common flag".to_owned() } else { flags.join(" ") };
    let from = if centre[SENDER + 7] > FIELD_WEIGHT / 2 { "from clients" } else { "from the service" };
    let length = match strongest(LENGTH, 16) {
        None => String::new(),
        Some(0) => ", without payload".to_owned(),
        Some(power) => format!(", {} to {} bytes of payload", 1u32 << (power - 1), (1u32 << power) - 1),
    };
    let bytes = strongest(BYTES, 64).filter(|group| centre[BYTES + group] > MAX_COORDINATE / 2);
    let bytes = bytes.map(|group| format!(", mostly bytes {:#04x} to {:#04x}", group * 4, group * 4 + 3));
    format!("{flags}, {from}{length}{}", bytes.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::stream_cluster::distance;

    fn packet(flags: u8, payload: &[u8]) -> TcpPacket {
        TcpPacket {
            at: Duration::ZERO,
            from: ([10, 0, 0, 7], 40_000).into(),
            to: ([10, 0, 0, 1], 80).into(),
            flags,
            length: payload.len() as u32,
            payload: payload.to_vec(),
        }
    }

    #[test]
    fn packets_of_a_kind_lie_nearer_than_those_of_another() {
        let gap = Duration::from_micros(100);
        let point = |flags, payload: &[u8]| coordinates(&packet(flags, payload), gap);
        let page = point(ACK | PSH, b"GET /index.html HTTP/1.1\r\nHost: example.org\r\n");
        let other_page = point(ACK | PSH, b"GET /news/2026.html HTTP/1.1\r\nHost: example.org\r\n");
        let sled = point(ACK | PSH, &[0x90; 48]);
        let syn = point(SYN, b"");
        assert!(distance(&page, &other_page) * 4 < distance(&page, &sled).min(distance(&page, &syn)));
        assert!(page.iter().all(|c| (0..=MAX_COORDINATE).contains(c)));
    }

    #[test]
    fn a_centre_is_described_by_what_its_packets_share() {
        let centre = coordinates(&packet(SYN, b""), Duration::ZERO);
        assert_eq!(describe(&centre), "SYN, from clients, without payload");
        let centre = coordinates(&packet(ACK, &[0x90; 48]), Duration::ZERO);
        assert_eq!(
            describe(&centre),
            "ACK, from clients, 32 to 63 bytes of payload, mostly bytes 0x90 to 0x93"
        );
    }

    #[test]
    fn the_end_with_the_lower_port_is_the_service_whoever_sends() {
        let there = packet(ACK, b"");
        let back = TcpPacket { from: there.to, to: there.from, ..there.clone() };
        assert_eq!((there.service(), back.service()), (there.to, there.to));
    }
}
