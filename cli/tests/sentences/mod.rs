//! Reads the sentences about the product's studies; the laboratory's tests read those about its own.

mod reading;

use unisono_study::library;

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn every_sentence_of_every_situation_has_its_nouns_and_every_verdict_its_runs() {
    let files = library::studies().expect("good files");
    let faults = reading::read_all(&files);
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}
