//! gangs, slices, policies, enforcement mechanisms, simulator.
