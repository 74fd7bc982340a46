//! Small real programs with a barrier every few tens of microseconds. Each has an OpenMP twin in `peers/`,
//! with equal results bit for bit, whatever the number of threads.

pub mod clustering;
pub mod stencil;
