//! Any bytes of a program are refused or read; a frame that is read and written again is read as the same
//! frame.
#![no_main]

use unisono_events_wire::Frame;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = Frame::read(bytes) {
        let mut again = Vec::new();
        frame.write(&mut again);
        assert_eq!(Frame::read(&again), Ok(frame));
    }
});
