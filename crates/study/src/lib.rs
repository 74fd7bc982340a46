//! study files to interleaved runs to records.
