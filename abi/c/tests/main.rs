//! The tests of the C library, compiled as one test program.

mod header;
mod program;
