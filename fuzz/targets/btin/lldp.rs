//! Fuzzes the reader of lldpctl's output.
#![no_main]

mod reader;

use unisono_btin::read::Language;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reader::reads(Language::Lldp, bytes));
