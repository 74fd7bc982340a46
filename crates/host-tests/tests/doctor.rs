//! Tests `unisono doctor` on this host, as root and as the user nobody.

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_host_tests::{TestOutcome, host_tests, program, require};

const NOBODY: u32 = 65534;

/// A copy of the program in a directory that every user may enter.
struct Installed {
    directory: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("permissions");
        std::fs::copy(program::unisono(), directory.path().join("unisono")).expect("a copy");
        Self { directory }
    }

    fn capabilities(&self, prepare: impl FnOnce(&mut Command)) -> Vec<Value> {
        let mut doctor = Command::new(self.directory.path().join("unisono"));
        doctor.args(["doctor", "--json"]).current_dir("/");
        prepare(&mut doctor);
        let output = doctor.output().expect("the doctor starts");
        assert!(output.status.success(), "{output:?}");
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        answer["capabilities"].as_array().expect("a list").clone()
    }
}

fn the_doctor_answers_with_reasons_as_nobody() -> TestOutcome {
    require::root()?;
    let installed = Installed::new();
    let capabilities = installed.capabilities(|doctor| {
        doctor.uid(NOBODY).gid(NOBODY);
    });
    assert!(capabilities.len() > 30, "{capabilities:?}");
    for capability in &capabilities {
        let found = capability["found"].as_bool().expect("found is a truth value");
        assert!(capability["name"].is_string());
        assert_eq!(capability["reason"].is_null(), found, "{capability}");
    }
    let real_time = capabilities.iter().find(|one| one["name"] == "real-time").expect("it is listed");
    assert_eq!(real_time["found"], false);
    assert!(real_time["remedy"].as_str().expect("a remedy").contains("root"));
    Ok(())
}

fn the_doctor_leaves_nothing_behind() -> TestOutcome {
    let before = left_behind();
    let capabilities = Installed::new().capabilities(|_| {});
    assert!(capabilities.iter().any(|one| one["name"] == "cores" && one["found"] == true));
    assert_eq!(left_behind(), before);
    Ok(())
}

/// Returns the control groups, temporary directories and network devices of probes that still exist.
fn left_behind() -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(Path::new("/sys/fs/cgroup"), 3, &mut found);
    collect(&std::env::temp_dir(), 1, &mut found);
    found.retain(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("unisono-doctor"))
    });
    collect(Path::new("/sys/class/net"), 1, &mut found);
    found.sort();
    found
}

fn collect(directory: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        found.push(entry.path());
        if depth > 1 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), depth - 1, found);
        }
    }
}

host_tests![needs Machine;
    the_doctor_answers_with_reasons_as_nobody within 300,
    the_doctor_leaves_nothing_behind within 300,
];
