//! `unisono queue install`: units in a directory, and the check of the policy before.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn unisono(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_unisono")).args(arguments).output().expect("it starts")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

#[test]
fn a_unit_names_the_policy_by_its_whole_path_and_goes_again() {
    let root = tempfile::tempdir().expect("there is room");
    let policy = root.path().join("my policy.toml");
    fs::write(&policy, "rate = \"1mbit\"\n").expect("there is room");
    let (policy, root) = (text(&policy).to_owned(), text(root.path()));
    let done = unisono(&[
        "queue",
        "install",
        &policy,
        "--dev",
        "br-lan",
        "--root",
        root,
        "--",
        "--backend",
        "interposed",
    ]);
    assert!(done.status.success(), "{done:?}");
    let unit = Path::new(root).join("etc/systemd/system/unisono-queue-br\\x2dlan.service");
    let written = fs::read_to_string(&unit).expect("it was written");
    let policy = fs::canonicalize(&policy).expect("it is there");
    let wanted = format!(
        "\"queue\" \"apply\" \"{}\" \"--dev\" \"br-lan\" \"--direction\" \"out\" \"--backend\" \"interposed\"\n",
        policy.display()
    );
    assert!(written.contains(&wanted), "{written}");
    assert!(written.contains("BindsTo=sys-subsystem-net-devices-br\\x2dlan.device\n"), "{written}");
    let shown = unisono(&[
        "queue",
        "install",
        text(&policy),
        "--dev",
        "br-lan",
        "--print",
        "--",
        "--backend",
        "interposed",
    ]);
    assert_eq!(String::from_utf8_lossy(&shown.stdout), written);
    assert!(unisono(&["queue", "uninstall", "--dev", "br-lan", "--root", root]).status.success());
    assert!(!unit.exists());
    assert_eq!(unisono(&["queue", "uninstall", "--dev", "br-lan", "--root", root]).status.code(), Some(2));
}

#[test]
fn both_directions_have_a_unit_each() {
    let root = tempfile::tempdir().expect("there is room");
    let policy = root.path().join("policy.toml");
    fs::write(&policy, "rate = \"1mbit\"\n").expect("there is room");
    let at = text(root.path());
    let end = ["--dev", "eth0", "--direction", "both", "--root", at];
    let done = unisono(&[&["queue", "install", text(&policy)][..], &end].concat());
    assert!(done.status.success(), "{done:?}");
    let units = ["out", "in"].map(|direction| {
        let suffix = if direction == "in" { "-in" } else { "" };
        (
            direction,
            root.path().join(format!("etc/systemd/system/unisono-queue-eth0{suffix}.service")),
        )
    });
    for (direction, unit) in &units {
        let written = fs::read_to_string(unit).expect("it was written");
        assert!(written.contains(&format!("\"--direction\" \"{direction}\"")), "{written}");
    }
    assert!(unisono(&[&["queue", "uninstall"][..], &end].concat()).status.success());
    assert!(units.iter().all(|(_, unit)| !unit.exists()));
}

#[test]
fn a_policy_or_an_option_that_apply_refuses_is_not_installed() {
    let root = tempfile::tempdir().expect("there is room");
    let policy = root.path().join("policy.toml");
    let at = text(root.path());
    for (text_of, options) in [("rate = \"0mbit\"\n", None), ("rate = \"1mbit\"\n", Some("--no-such-option"))]
    {
        fs::write(&policy, text_of).expect("there is room");
        let mut arguments = vec!["queue", "install", text(&policy), "--dev", "eth0", "--root", at];
        arguments.extend(options.iter().flat_map(|option| ["--", option]));
        let output = unisono(&arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(!root.path().join("etc").exists());
    }
    let output = unisono(&["queue", "install", "-", "--dev", "eth0", "--root", at]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
