//! study files to interleaved runs to records.

pub mod peer;
pub mod workload;
