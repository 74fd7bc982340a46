//! What `unisono tree` writes into files.
#![allow(missing_docs)]

use std::path::Path;
use std::process::Command;

fn picture(arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tree.svg");
    let network = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/tree-plan.in/net.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    let output = command.arg("tree").args(arguments).arg(&network).arg("--svg").arg(&file).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(file).expect("it wrote a picture")
}

#[test]
fn the_picture_shows_the_tree_after_the_repair_and_says_what_was_done() {
    for command in ["plan", "simulate"] {
        let before = picture(&[command]);
        assert!(before.contains("height 2, 5 registers") && !before.contains("without link"));
        let after = picture(&[command, "--without-link", "0:2"]);
        assert!(after.contains("height 3, 6 registers"), "{after}");
        assert!(after.contains("without link 0:2: 3 registers to write, 1 switch moved"));
    }
}
