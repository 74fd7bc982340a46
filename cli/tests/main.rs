//! The tests that run the `unisono` program, compiled as one test program.

mod advise;
mod barrier;
mod events_crowd;
mod events_log;
mod events_reload;
mod events_web;
mod first_steps;
mod one_line;
mod output_schema;
mod queue_install;
mod schema;
mod sentences;
mod study;
mod transcripts;
mod tree;
