//! Fuzzes the reader of GraphML.
#![no_main]

mod reader;

use unisono_btin::read::Language;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reader::reads(Language::Graphml, bytes));
