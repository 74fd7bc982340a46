//! tests that need a real host.
