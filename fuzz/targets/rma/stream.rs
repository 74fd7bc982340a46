//! See `unisono_rma::wire::tcp::fuzz::stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unisono_rma::wire::tcp::fuzz::stream(bytes));
