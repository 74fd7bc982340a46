//! The tests of the transports and of the ring in shared memory, as one program. A test that measures its
//! whole process has a program of its own.

#[macro_use]
mod conformance;

mod common;
mod memory_ring;
mod transports;
