//! Any bytes of a program on a stream: they are refused or give whole frames, with and without compressed
//! heads, in pieces of any length.
#![no_main]

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use unisono_events_wire::transport::{FrameTransport as _, StreamTransport};

const MAX_EVENT_BYTES: usize = 300;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (mut program, broker) = UnixStream::pair().expect("two sockets");
    let mut broker = StreamTransport::new(broker.into(), MAX_EVENT_BYTES).expect("a transport");
    // the first byte is the length of the pieces
    let Some((&piece, bytes)) = bytes.split_first() else { return };
    for piece in bytes.chunks(usize::from(piece) + 1) {
        program.write_all(piece).expect("the other end is there");
        loop {
            match broker.receive() {
                Ok(Some(frame)) => assert!(frame.bytes.len() <= MAX_EVENT_BYTES),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
});
