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

/// Whether a process has a handler for SIGINT; none if the process has ended.
fn catches_interrupt(process: u32) -> Option<bool> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
    u64::from_str_radix(caught.trim(), 16).ok().map(|caught| caught >> 1 & 1 == 1)
}

#[test]
fn an_exact_plan_that_is_interrupted_is_the_best_so_far_and_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let network = directory.path().join("net.json");
    let unisono = || Command::new(env!("CARGO_BIN_EXE_unisono"));
    let drawn = unisono()
        .args(["tree", "generate", "--switches", "40000", "--ports", "9", "--nodes", "40000"])
        .args(["--members", "40000", "--connectivity", "100%", "--out"])
        .arg(&network)
        .status();
    assert!(drawn.expect("it starts").success());
    let mut planning = unisono()
        .args(["tree", "plan", "--ties", "exact", "--threads", "1", "--json"])
        .arg(&network)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    // the plan is interrupted once it shows its progress, when it begins to catch the signal
    while catches_interrupt(planning.id()) == Some(false)
        && planning.try_wait().expect("it is ours").is_none()
    {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let signal = Command::new("kill").args(["-INT", &planning.id().to_string()]).status();
    assert!(signal.expect("it starts").success());
    let output = planning.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}", output.status);
    assert!(said.contains("stopped: the best so far;"), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\"ties\":\"exact\"") && text.contains("\"stopped\":true"), "{said}");
}
