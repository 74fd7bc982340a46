//! Tests that the program copies itself, as the guide's containers for initialization do.

use std::path::Path;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_unisono-fit");

#[test]
fn a_copy_in_a_shared_folder_runs_and_replaces_an_earlier_one() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("install");
    std::fs::create_dir_all(&folder).expect("a folder");
    let copy = folder.join("unisono-fit");
    std::fs::write(&copy, "an earlier copy").expect("a file");
    let output = Command::new(PROGRAM).arg("--install").arg(&folder).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let output = Command::new(&copy).args(["--quiet", "--", "echo", "fits"]).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "fits\n", "{output:?}");
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 1);
}

#[test]
fn a_folder_that_does_not_exist_is_an_error_and_so_is_a_command_beside_it() {
    let output = Command::new(PROGRAM).args(["--install", "/nowhere/at/all"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("/nowhere/at/all/unisono-fit"), "{said}");
    let output = Command::new(PROGRAM).args(["--install", "/tmp", "echo"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn the_guide_has_the_command_of_the_program() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fit.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    assert!(guide.contains(r#"command: ["/unisono-fit", "--install", "/shared"]"#));
    assert!(!guide.contains(r#"["cp""#), "an image from scratch has no cp");
}
