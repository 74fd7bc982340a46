//! The core of the MPI preload: the engine's jobs, windows and layouts, behind plain C.
//!
//! What is this? `unisono mpi -- PROGRAM` preloads two libraries: a shim in C (`shim/`), compiled by the
//! program's own `mpicc`, which overrides the one-sided calls and knows handles; and this one, which knows no
//! MPI and is therefore the same for all. `shim/core.h` declares what is here; a test compares the two.
//!
//! ```text
//!   program --MPI_Put--> shim (handles, types, errors, attributes) --core_put--> this --raw_put--> unisono-rma
//!                          |                                                                          |
//!                          +--PMPI_Isend, PMPI_Improbe <---- messages to other hosts <----------------+
//! ```
//! Every function answers 0 or the number of an error class; the words are in `core_last_error`. A panic never unwinds
//! into C: each export catches it and answers an error.
//!
//! Windows that were allocated are mapped by all ranks of the host, created ones are reached through queues in shared
//! memory and the kernel's copy. Dynamic ones go by packets, also within a host: `MPI_Win_attach` is not collective, so
//! that nobody could map the memory or even know of it before an operation arrives. The packets are the engine's own
//! (in shared memory, or the host MPI's messages between hosts); an operation costs one and a copy at each end, a get,
//! a flush or a lock a round trip, and each rank has an agent thread that serves them while it computes.
//!
//! Cost: a call and an argument check each. When not to use it: a program without MPI has the crate
//! `unisono-rma` or `libunisono.so`. Reference: MPI-4.0 chapter 12.

mod communicate;
mod failure;
mod jobs;
mod messages;
mod statistics;
mod synchronize;
mod types;
mod windows;
