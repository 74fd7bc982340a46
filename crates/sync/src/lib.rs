//! the atomics facade and the wait policies.
