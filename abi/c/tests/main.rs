//! The tests of the C library, as one program.

mod header;
mod program;
