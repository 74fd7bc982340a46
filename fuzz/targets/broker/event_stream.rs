//! Whatever a program writes to a stream is refused or gives whole frames, before and after it began to
//! compress heads, and whatever pieces the kernel hands it over in.
#![no_main]

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use unisono_broker::transport::{FrameTransport as _, StreamTransport};

const MAX_EVENT_BYTES: usize = 300;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (mut program, broker) = UnixStream::pair().expect("two sockets");
    let mut broker = StreamTransport::new(broker.into(), MAX_EVENT_BYTES).expect("a transport");
    // the first byte says how long the pieces are
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
