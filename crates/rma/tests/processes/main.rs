//! Jobs of real processes: this test binary starts itself again as the other ranks.
//!
//! The tests do not call `fork`. A child is the same program, and the environment says which part it plays.
//! Everything that can hang runs under [`watchdog`].

#![cfg(not(loom))]

mod children;
mod deaths;
mod limits;
mod many;
mod rendezvous;
mod strangers;
mod watchdog;
