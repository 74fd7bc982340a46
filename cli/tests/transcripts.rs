//! What the program says, word for word: help texts, and every kind of bad input with its exit code.
//!
//! After a change on purpose: `TRYCMD=overwrite cargo test -p unisono --test transcripts`, and read the
//! difference before it is committed.

#[test]
fn the_program_says_what_the_transcripts_say() {
    trycmd::TestCases::new()
        .case("tests/transcripts/*.trycmd")
        // the same on every machine, whatever language and terminal it has
        .env("LC_ALL", "C")
        .env("COLUMNS", "100")
        .env("NO_COLOR", "1");
}
