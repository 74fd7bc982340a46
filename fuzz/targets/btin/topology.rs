//! Fuzzes the reader of btin-topo-1.
#![no_main]

mod reader;

use unisono_btin::read::Language;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reader::reads(Language::BtinTopo1, bytes));
