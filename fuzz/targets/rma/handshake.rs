//! See `unisono_rma::wire::tcp::fuzz::handshake`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unisono_rma::wire::tcp::fuzz::handshake(bytes));
