//! Tests that need a real host: root, control groups, real-time classes, several cores.
//!
//! A host test passes, fails, or is *skipped with a reason*. The reason is printed, because a test that was
//! skipped silently would look like a passed one. Each test runs in its own process and process group under a
//! [`watchdog`]. If a test hangs, the stacks of its threads are printed. A test that leaves processes behind
//! fails.
//!
//! All host tests are one program, `tests/main.rs`. A module of it looks like this:
//!
//! ```
//! use unisono_host_tests::{TestOutcome, host_tests, require};
//!
//! fn a_frozen_group_gets_no_time() -> TestOutcome {
//!     require::root()?;
//!     require::cpus(2)?;
//!     assert_eq!(1 + 1, 2); // a failure is a panic
//!     Ok(())
//! }
//!
//! host_tests![needs Nothing; a_frozen_group_gets_no_time within 120];
//! ```
//!
//! [`Needs`] says which tests may run at the same time. Each test costs the start of two processes. When not
//! to use it: a test that any machine can run is a plain `#[test]` function beside the code.
#![forbid(unsafe_code)]

pub mod disturbance;
pub mod groups;
mod harness;
pub mod hosts;
pub mod mpi;
pub mod mpi_environment;
mod needs;
pub mod ports;
pub mod processes;
pub mod program;
pub mod pypi;
pub mod quota;
pub mod require;
mod supervisor;
mod test;
pub mod watchdog;

pub use harness::main;
pub use needs::Needs;
pub use test::{Skipped, Test, TestOutcome};

/// The environment variable by which `cargo xtask nightly` asks for long tests.
pub const LONG: &str = "UNISONO_LONG_TESTS";

/// Returns whether this is a long test run, in which tests with many similar cases run all of them.
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os(LONG).is_some()
}

/// Returns the step between the cases that a test runs: 1 in long tests, and `usually` in others, so that a
/// usual test run does not take too long.
///
/// ```
/// # use unisono_host_tests::one_in;
/// for kill in (0..24).step_by(one_in(4)) { /* ... */ }
/// ```
#[must_use]
pub fn one_in(usually: usize) -> usize {
    if is_long() { 1 } else { usually }
}
