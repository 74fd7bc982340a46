//! Compares the program's output word for word: help texts, and every kind of bad input with its exit code.
//!
//! After an intended change run `TRYCMD=overwrite cargo test -p unisono --test commands transcripts`, and
//! read the difference before you commit it.

#[test]
fn the_program_says_what_the_transcripts_say() {
    trycmd::TestCases::new()
        .case("tests/transcripts/*.trycmd")
        // its blocks of `console`
        .case("../docs/simulator.md")
        // settings that make the output the same on every machine, in every locale and terminal
        .env("LC_ALL", "C")
        .env("COLUMNS", "100")
        .env("NO_COLOR", "1");
}
