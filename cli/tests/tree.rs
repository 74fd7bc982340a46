//! The files that `unisono tree` writes.

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

/// Returns whether a process has a handler for SIGINT; `None` if the process has ended.
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
        .args(["tree", "generate", "--switches", "15000", "--ports", "9", "--nodes", "15000"])
        .args(["--members", "15000", "--connectivity", "100%", "--out"])
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
    // a plan that shows its progress catches the signal, so it is interrupted only then
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

/// Writes a network of a few MiB: switches of 48 ports, each with links to its neighbors in a ring, and
/// nodes. Returns the file's size in bytes.
fn large(file: &Path) -> u64 {
    use std::fmt::Write as _;
    const SWITCHES: usize = 60_000;
    let (mut links, mut nodes) = (String::new(), String::new());
    for switch in 0..SWITCHES {
        for step in 1..=12 {
            let far = (switch + step * step) % SWITCHES;
            let _ = write!(links, "[{switch},{},{far},{}],", step - 1, step + 11);
        }
        for port in 24..30 {
            let _ = write!(nodes, "[{switch},{port}],");
        }
    }
    let (links, nodes) = (links.trim_end_matches(','), nodes.trim_end_matches(','));
    let text = format!(
        "{{\"format\":\"btin-topo-1\",\"ports\":48,\"switches\":{SWITCHES},\"links\":[{links}],\"nodes\":[{nodes}],\
         \"members\":[0,70000,350000]}}"
    );
    std::fs::write(file, &text).expect("there is room");
    text.len() as u64
}

/// Returns whether a command succeeds within this address space, in KiB. The kernel enforces the limit, so
/// the test need not measure memory.
fn runs_within(kib: u64, arguments: &[&str], file: &Path) -> bool {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!("ulimit -v {kib} && exec \"$0\" \"$@\""),
        env!("CARGO_BIN_EXE_unisono"),
        "tree",
    ]);
    let output = command.args(arguments).arg(file).env("RUST_BACKTRACE", "0").output().expect("sh starts");
    output.status.success()
}

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn a_large_network_takes_at_most_four_times_its_file_in_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let (small, big) = (directory.path().join("small.json"), directory.path().join("big.json"));
    std::fs::write(
        &small,
        r#"{"format":"btin-topo-1","ports":2,"switches":1,"links":[],"nodes":[[0,0],[0,1]],"members":[0,1]}"#,
    )
    .expect("there is room");
    let kib = large(&big) / 1024;
    for arguments in [&["convert", "--out", "/dev/null"][..], &["plan", "--threads", "1"]] {
        // finds the address space that the program needs without a network, to within 1 MiB, by bisection
        let (mut too_few, mut itself) = (0, 1024 * 1024);
        assert!(runs_within(itself, arguments, &small), "it runs within a GiB");
        while itself - too_few > 1024 {
            let half = too_few.midpoint(itself).next_multiple_of(1024);
            if runs_within(half, arguments, &small) { itself = half } else { too_few = half }
        }
        assert!(
            runs_within(itself + 4 * kib, arguments, &big),
            "{arguments:?}: {itself} KiB, file {kib} KiB"
        );
    }
}

#[test]
fn input_without_an_end_is_refused_at_the_limit() {
    for arguments in [&["plan"][..], &["convert", "--from", "dot"], &["check", "x.json"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        let command = command.arg("tree").args(&arguments[..1]).arg("/dev/zero").args(&arguments[1..]);
        let output = command.args(["--input-limit", "1MiB"]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let expected =
            "unisono: cannot read /dev/zero: it is longer than 1 MiB; to read more: --input-limit SIZE\n";
        assert_eq!(said, expected);
    }
}

/// Converts the InfiniBand network with these members. If `list` is given, a program `sinfo` that prints it
/// is in the path.
fn converted(members: &str, list: Option<&str>) -> Result<String, String> {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().expect("a directory");
    if let Some(list) = list {
        let sinfo = directory.path().join("sinfo");
        let script = format!("#!/bin/sh\n[ \"$3\" = --partition=gpu ] || exit 1\nprintf '%b' '{list}'\n");
        std::fs::write(&sinfo, script).expect("there is room");
        std::fs::set_permissions(&sinfo, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let network = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/networks/two-spines.ibnetdiscover");
    let output = Command::new(env!("CARGO_BIN_EXE_unisono"))
        .env("PATH", directory.path())
        .args(["tree", "convert", "--members", members])
        .arg(network)
        .output()
        .expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        return Err(text(&output.stderr));
    }
    let file: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    Ok(file["members"].to_string())
}

#[test]
fn members_are_the_hosts_of_a_partition_of_slurm() {
    assert_eq!(converted("host-[2-3]", None).as_deref(), Ok("[1,2]"), "the host's name begins its label");
    assert_eq!(converted("partition=gpu", Some("host-[1-2,5]\\nhost-7\\n")).as_deref(), Ok("[0,1,4,6]"));
    assert_eq!(converted("8,partition=gpu", Some("host-1\\n")).as_deref(), Ok("[0,8]"));
    for (members, list, said) in [
        ("partition=gpu", Some(""), "Slurm knows no such partition"),
        ("partition=cpu", Some("host-1"), "sinfo failed"),
        ("partition=gpu", None, "name the hosts, as gpu[001-004]"),
        ("partition=gpu", Some("elsewhere-1\\n"), "\"elsewhere-1\" is neither a number"),
    ] {
        let why = converted(members, list).expect_err(members);
        assert!(why.contains(said), "{why}");
    }
}
