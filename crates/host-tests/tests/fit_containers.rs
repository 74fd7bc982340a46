//! Tests `unisono fit --oci-runtime` with the OCI runtimes of the distribution and a bundle that is made
//! here: the container's first program gets the variables, and the image is unchanged.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use unisono_host_tests::{Skipped, TestOutcome, groups, host_tests, program, require};

/// Copies a program and its libraries to the same places below `root`.
fn copy_with_libraries(root: &Path, file: &str) {
    let listed = Command::new("ldd").arg(file).output().expect("ldd is part of libc");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.chain([file]) {
        let place = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(place.parent().expect("a file")).expect("made");
        fs::copy(file, place).expect("copied");
    }
}

/// Makes a bundle whose container has a quota of one processor and prints its number of threads.
fn bundle(directory: &Path, runtime: &str) -> Result<(), Skipped> {
    copy_with_libraries(&directory.join("rootfs"), "/bin/sh");
    let spec = Command::new(runtime).arg("spec").current_dir(directory).output();
    let spec = spec.expect("it is there");
    if !spec.status.success() {
        return Err(Skipped::because(format!("{runtime} spec fails here: {spec:?}")));
    }
    let path = directory.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).expect("made")).expect("JSON");
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["/bin/sh", "-c", "echo threads=$OMP_NUM_THREADS"]);
    config["linux"]["resources"]["cpu"] = json!({"quota": 100_000, "period": 100_000});
    fs::write(&path, config.to_string()).expect("written");
    Ok(())
}

fn run(mut command: Command, bundle: &Path, name: &str) -> Output {
    command.args(["run", "--bundle"]).arg(bundle).arg(name).stdin(Stdio::null());
    command.output().expect("it starts")
}

fn container_of(runtime: &str) -> TestOutcome {
    require::root()?;
    require::cpus(2)?;
    require::program(runtime, &format!("apt-get install {runtime}"))?;
    let directory = tempfile::tempdir().expect("a directory");
    bundle(directory.path(), runtime)?;
    let name = groups::name(runtime);
    let plain = run(Command::new(runtime), directory.path(), &name);
    if !plain.status.success() {
        let why = String::from_utf8_lossy(&plain.stderr).trim().to_owned();
        return Err(Skipped::because(format!("{runtime} runs no container here: {why}")));
    }
    assert_eq!(String::from_utf8_lossy(&plain.stdout), "threads=\n");
    let mut fitted = Command::new(program::unisono());
    fitted.args(["fit", "--oci-runtime", runtime, "--"]);
    let fitted = run(fitted, directory.path(), &name);
    assert!(fitted.status.success(), "{fitted:?}");
    assert_eq!(String::from_utf8_lossy(&fitted.stdout), "threads=1\n", "{fitted:?}");
    let left = fs::read_dir(directory.path()).expect("it is there").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|name| name != "rootfs").collect();
    assert_eq!(left, ["config.json"], "nothing else is in the bundle");
    Ok(())
}

fn a_container_of_runc_has_the_variables() -> TestOutcome {
    container_of("runc")
}

fn a_container_of_crun_has_the_variables() -> TestOutcome {
    container_of("crun")
}

fn a_bundle_without_a_configuration_is_the_runtimes_business() -> TestOutcome {
    let directory = tempfile::tempdir().expect("a directory");
    let fit = |words: &[&str]| {
        let mut command = Command::new(program::unisono());
        command.args(["fit", "--oci-runtime"]).args(words).current_dir(directory.path());
        command.output().expect("it starts")
    };
    let echoed = fit(&["echo", "--", "create", "--bundle", "nowhere", "id"]);
    assert_eq!(String::from_utf8_lossy(&echoed.stdout), "create --bundle nowhere id\n");
    let said = String::from_utf8_lossy(&echoed.stderr);
    assert!(
        said.contains("the container starts without fit: cannot read nowhere/config.json"),
        "{said}"
    );
    let other = fit(&["echo", "--", "delete", "--force", "id"]);
    assert_eq!(String::from_utf8_lossy(&other.stdout), "delete --force id\n");
    assert!(other.stderr.is_empty(), "{other:?}");
    assert_eq!(fit(&["/no/such/runtime", "--", "state", "id"]).status.code(), Some(2));
    Ok(())
}

host_tests![needs Nothing;
    a_container_of_runc_has_the_variables within 120,
    a_container_of_crun_has_the_variables within 120,
    a_bundle_without_a_configuration_is_the_runtimes_business,
];
