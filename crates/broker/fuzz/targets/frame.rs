//! Whatever a program sends is read in one way or refused: what is read is written as the same bytes.
#![no_main]

use unisono_broker::Frame;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = Frame::read(bytes) {
        let mut again = Vec::new();
        frame.write(&mut again);
        assert_eq!(again, bytes);
    }
});
