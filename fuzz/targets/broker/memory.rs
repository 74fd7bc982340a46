//! Any contents of a supplier's memory: a consumer reads only within it, and neither panics nor loops.
#![no_main]

use std::os::fd::AsFd;
use unisono_events_wire::memory::{MemoryConsumer, MemoryGeometry, NextEvent, PAGE_LINES};
use unisono_sync::{ForeignWords, Lines, PublishedWords, SpinBudget, Wait};

/// Bytes of a header, which is valid in half of the runs: otherwise the data after it is not reached.
const HEADER: usize = 128;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [honest, turn, bytes @ ..] = bytes else { return };
    let mut words = PublishedWords::create(2048).expect("two pages");
    let slots = 12_u32;
    let header: Vec<u8> =
        [u32::from_le_bytes(*b"UEM1"), 4, 64, slots].into_iter().flat_map(u32::to_ne_bytes).collect();
    words.write(0, &header);
    let start = if honest % 2 == 0 { HEADER } else { 0 };
    words.write(start, &bytes[..bytes.len().min(8192 - start)]);
    assert!(MemoryGeometry::new(4, 64, 1).is_some());
    let descriptor = words.as_fd().try_clone_to_owned().expect("a descriptor");
    let (words, page) = (ForeignWords::new(descriptor).expect("sealed"), Lines::on_heap(PAGE_LINES));
    let way = (Wait::Block, SpinBudget::DEFAULT);
    let Ok(mut consumer) = MemoryConsumer::join(words, page, u64::from(*turn), way, None) else { return };
    for _ in 0..32 {
        let mut copy = Vec::new();
        let _ = (consumer.next_length(), consumer.has_something(), consumer.arm());
        if let Ok(NextEvent::Event(_)) = consumer.receive_copy(&mut copy) {
            assert!(copy.len() <= consumer.largest());
        }
        if let Ok(NextEvent::Event(held)) = consumer.receive() {
            assert!(held.length() <= consumer.largest() && held.bytes().len() == held.length());
            held.append_to(&mut copy);
        }
    }
});
