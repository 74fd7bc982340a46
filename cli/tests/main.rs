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

/// Copies the program. Another process copies it, because a child of another test would inherit a file that
/// this process has open for writing, and the file could not be executed meanwhile (ETXTBSY).
fn copy_program(to: &std::path::Path) {
    let copied = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_unisono")).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "{}", to.display());
}
