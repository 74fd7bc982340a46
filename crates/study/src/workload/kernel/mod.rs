//! Small real programs with a barrier every few ten microseconds. Each has an OpenMP twin in `peers/`, and
//! the results are equal bit for bit, whatever the number of threads.

pub mod clustering;
pub mod stencil;
