//! Any bytes from the network: a join's receiver publishes each envelope once and in order, or counts it; an
//! envelope that is read and written again has the same bytes. The input is envelopes, each after its length
//! in a byte.
#![no_main]

use std::collections::BTreeMap;
use unisono_events_wire::Instant;
use unisono_broker::join::{JoinEnvelope, JoinReceiver, JoinStep, MAX_STREAMS};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut receiver = JoinReceiver::default();
    receiver.connected(1);
    let (mut rest, mut last) = (bytes, BTreeMap::new());
    while let Some((length, after)) = rest.split_first() {
        let (envelope, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        if let Ok(read) = JoinEnvelope::read(envelope) {
            assert_eq!(read.to_bytes().as_deref(), Some(envelope));
        }
        for step in receiver.arrived(Instant::from_nanos(1), envelope) {
            if let JoinStep::Publish { stream, event, .. } = step {
                assert!(last.insert(stream, event.sequence).is_none_or(|last| last < event.sequence));
            }
        }
        assert!(receiver.streams() <= MAX_STREAMS);
    }
});
