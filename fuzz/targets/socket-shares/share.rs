//! Any bytes of a client of the guard, and any answer: a request that is parsed has a valid weight, and is
//! equal after it is written and parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unisono_socket_shares::message::{REQUEST_BYTES, ShareAnswer, ShareRequest};

fuzz_target!(|bytes: &[u8]| {
    let mut message = [0; REQUEST_BYTES];
    let length = bytes.len().min(REQUEST_BYTES);
    message[..length].copy_from_slice(&bytes[..length]);
    if let Some(request) = ShareRequest::parse(&message) {
        assert!(request.weight > 0.0 && request.weight.is_finite());
        assert_eq!(ShareRequest::parse(&request.encode()), Some(request));
    }
    if let Some(answer) = ShareAnswer::parse(bytes) {
        let _ = ShareAnswer::parse(&answer.encode());
    }
});
