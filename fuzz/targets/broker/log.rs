//! A reader of the log ends for any contents of the file: positions ascend, and each complete event was
//! written before.
#![no_main]

use unisono_broker::log::{FoundRecord, LoggedEvent, SegmentReader, segment_in_memory};

/// The bytes of a change: its position (2), and the bits to flip there (1).
const CHANGE: usize = 3;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    read(bytes, None);
    // a valid segment whose events come from the input, then changed and cut off as the input says
    let Some((&[count, length, cut, change_count], rest)) = bytes.split_first_chunk() else { return };
    let Some((changes, rest)) = rest.split_at_checked(CHANGE * usize::from(change_count % 4)) else { return };
    let payloads: Vec<&[u8]> = rest.chunks(usize::from(length) + 1).take(usize::from(count % 16)).collect();
    let event = |payload| LoggedEvent { topic: "t", key: "k", payload, ..LoggedEvent::default() };
    let events: Vec<_> = payloads.iter().map(|payload| event(*payload)).collect();
    let mut segment = segment_in_memory(1, 5, &events);
    for change in changes.chunks_exact(CHANGE) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % segment.len();
        segment[at] ^= change[2];
    }
    segment.truncate(segment.len() - usize::from(cut) % segment.len());
    read(&segment, Some(&events));
});

fn read(bytes: &[u8], written: Option<&[LoggedEvent<'_>]>) {
    let mut reader = match SegmentReader::open(bytes).expect("memory has no errors") {
        Some(reader) => reader,
        None => return,
    };
    let (mut at, mut expected) = (0, reader.expected());
    loop {
        let found = reader.next(bytes.len() as u64).expect("memory has no errors");
        match found {
            FoundRecord::Event { position, offset } => {
                assert!(offset >= at && position >= expected);
                (at, expected) = (offset + 1, position + 1);
                if let (Ok(event), Some(written)) = (LoggedEvent::read(reader.body()), written) {
                    assert_eq!(written.get(position as usize - 5), Some(&event));
                }
            }
            FoundRecord::Damage { offset, bytes, next } => {
                assert!(offset >= at && next >= expected);
                (at, expected) = (offset + bytes, next);
            }
            FoundRecord::Tail { offset, bytes: rest } => {
                assert_eq!(offset + rest, (bytes.len() as u64).max(offset));
                return;
            }
        }
        assert_eq!(reader.expected(), expected);
    }
}
