//! Explicit congestion notification: a frame that has waited too long is marked for its receiver instead of
//! dropped.
//!
//! Only packets whose sender supports marks (`ECT`) are changed. The checksum of IPv4 is updated by the
//! difference. Reference: RFC 3168, section 5; RFC 1624 for the checksum.

use super::parse::{ParsedFrame, parse};

/// `CE`: the packet met congestion.
const MET: u8 = 0b11;

/// Marks a frame if its sender supports marks. Returns whether the frame was marked by this call.
pub(super) fn mark(frame: &mut [u8]) -> bool {
    let Ok(ParsedFrame::Ip(packet)) = parse(frame) else { return false };
    if matches!(packet.service & MET, 0 | MET) {
        return false;
    }
    let mut at = 14;
    while matches!(frame.get(at - 2..at), Some([0x81, 0] | [0x88, 0xa8])) {
        at += 4;
    }
    let Some(header) = frame.get_mut(at..) else { return false };
    if packet.source.is_ipv6() {
        // the field's last two bits are in the upper half of the second byte
        header[1] |= MET << 4;
        return true;
    }
    let before = u16::from_be_bytes([header[0], header[1]]);
    header[1] |= MET;
    let after = u16::from_be_bytes([header[0], header[1]]);
    let sum =
        u32::from(!u16::from_be_bytes([header[10], header[11]])) + u32::from(!before) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    let checksum = !u16::try_from(folded).expect("below 2^16 because it was folded twice");
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the checksum, by its definition (RFC 791), of a header whose checksum field is zero.
    fn checksum(header: &[u8]) -> u16 {
        let mut sum: u32 =
            header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    fn four(service: u8, rest: [u8; 12]) -> Vec<u8> {
        let mut header = vec![0x45, service, 0, 20, 9, 9, 0, 0, 64, 1, 0, 0];
        header.extend(&rest[..8]);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    proptest! {
        #[test]
        fn a_marked_packet_says_so_and_its_checksum_is_right(service: u8, rest: [u8; 12], tags in 0_usize..3) {
            let before = [vec![2; 12], [0x81, 0, 0, 5].repeat(tags), vec![8, 0], four(service, rest)].concat();
            let mut frame = before.clone();
            let at = 14 + 4 * tags;
            let takes_part = matches!(service & 3, 1 | 2);
            prop_assert_eq!(mark(&mut frame), takes_part);
            if !takes_part {
                prop_assert_eq!(frame, before);
                return Ok(());
            }
            let header = &frame[at..];
            prop_assert_eq!(header[1], service | 3);
            let mut zero = header.to_vec();
            zero[10..12].fill(0);
            prop_assert_eq!([header[10], header[11]], checksum(&zero).to_be_bytes());
            let mut expected = before.clone();
            expected[at + 1] |= 3;
            expected[at + 10..at + 12].copy_from_slice(&frame[at + 10..at + 12]);
            prop_assert_eq!(frame, expected, "nothing else changes");
        }

        #[test]
        fn no_frame_makes_marking_fail(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut frame = bytes.clone();
            mark(&mut frame);
            prop_assert_eq!(frame.len(), bytes.len());
        }
    }

    #[test]
    fn the_traffic_class_of_ipv6_is_marked_across_its_two_bytes() {
        let mut frame = [vec![2; 12], vec![0x86, 0xdd, 0x6b, 0xa5, 1, 2, 0, 0, 59, 64], vec![0; 32]].concat();
        assert!(mark(&mut frame));
        assert_eq!(frame[14..18], [0x6b, 0xb5, 1, 2]);
        assert!(!mark(&mut frame), "it is marked");
    }
}
