//! The tests of the `unisono` program from outside, as one program.

mod advise;
mod barrier;
mod events_log;
mod events_reload;
mod first_steps;
mod one_line;
mod output_schema;
mod queue_install;
mod schema;
mod sentences;
mod study;
mod transcripts;
mod tree;
