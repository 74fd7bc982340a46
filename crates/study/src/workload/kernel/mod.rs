//! Small real programs with a barrier every few ten microseconds, in pairs with their OpenMP twins in
//! `peers/`: the results are equal bit for bit, whatever the threads.

pub mod clustering;
pub mod stencil;
