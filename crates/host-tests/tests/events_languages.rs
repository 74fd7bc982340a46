//! Events from C and from Python, with the broker as a process that is killed: the programs check themselves.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use unisono_host_tests::processes::text;
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program, require};

/// A process that is killed when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // one that has ended needs no killing
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(socket: &Path) -> Killed {
    let mut command = Command::new(program::unisono());
    command.args(["events", "serve", "--listen"]).arg(socket).stdin(Stdio::null()).stdout(Stdio::null());
    Killed(command.spawn().expect("unisono starts"))
}

fn a_c_program_is_told_when_its_broker_is_killed_and_comes_back_to_the_next() -> TestOutcome {
    let (library, scratch) = (program::with_examples(), tempfile::tempdir().expect("a directory"));
    let (built, socket) = (scratch.path().join("program"), scratch.path().join("events"));
    let compiled = Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-pthread", "-Wall", "-Wextra", "-Werror", "-I", "abi/c/include"])
        .args(["abi/c/tests/events.c", "-o"])
        .arg(&built)
        .arg("-L")
        .arg(&library)
        .args(["-lunisono", "-Wl,-rpath"])
        .arg(&library)
        .current_dir(program::workspace())
        .output()
        .expect("the compiler starts: linking Rust needs one, too");
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let first = serve(&socket);
    while !socket.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut command = Command::new(&built);
    command.arg(&socket).arg("until it is killed").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Killed(command.spawn().expect("it starts"));
    let said = BufReader::new(running.0.stdout.take().expect("a pipe"));
    let mut lines = said.lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("it publishes"));
    std::thread::sleep(std::time::Duration::from_millis(100));
    drop(first); // kill -9
    assert_eq!(lines.next().as_deref(), Some("it is told"));
    let _second = serve(&socket);
    assert_eq!(lines.next().as_deref(), Some("it came back"));
    assert!(running.0.wait().expect("it ends").success());
    Ok(())
}

/// Python with the package of this source tree and the library that was built with the program under test.
fn python() -> Result<Command, Skipped> {
    require::program("python3", "apt-get install python3")?;
    let mut command = Command::new("python3");
    command
        .env("UNISONO_PROGRAM", program::unisono())
        .env("UNISONO_LIBRARY", program::with_examples())
        .env("PYTHONPATH", program::workspace().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null());
    Ok(command)
}

/// Runs the tests of the Python package whose names hold a word.
fn package_tests(word: &str) -> Result<Output, Skipped> {
    let tests: PathBuf = program::workspace().join("python/tests");
    let mut command = python()?;
    command.args(["-m", "unittest", "discover", "-k", word, "-s"]).arg(tests);
    Ok(command.output().expect("python3 starts"))
}

fn the_python_package_does_what_its_tests_say() -> TestOutcome {
    let output = package_tests("test_")?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    Ok(())
}

fn an_event_is_a_numpy_array_without_a_copy() -> TestOutcome {
    let numpy = python()?.args(["-c", "import numpy"]).output().expect("python3 starts");
    if !numpy.status.success() {
        return Err(Skipped::because("python3 has no numpy; apt-get install python3-numpy"));
    }
    let output = package_tests("test_an_array_of_an_event_is_no_copy")?;
    let said = text(&output.stderr);
    assert!(
        output.status.success() && said.contains("Ran 1 test") && !said.contains("skipped"),
        "{said}"
    );
    Ok(())
}

host_tests![
    a_c_program_is_told_when_its_broker_is_killed_and_comes_back_to_the_next within 240,
    the_python_package_does_what_its_tests_say within 300,
    an_event_is_a_numpy_array_without_a_copy within 120,
];
