//! Runs C programs that make every call, compiled by this machine's C compiler: one without a launcher, as a
//! job of one rank, and one with a broker in this process. The host tests run them as a job of several ranks,
//! and with a broker that is killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unisono_broker::{Broker, Limits, OWNER, Server};
use unisono_events_client::ChannelWait;
use unisono_fairqueue::{ClassSpec, Hierarchy};

/// Returns the directory of the library. Cargo builds all crate types of the crate that this test depends on,
/// and puts them beside the test. Building the library alone would compile all dependencies again with other
/// features.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows itself");
    let directory = test.parent().expect("a test lies in a directory").to_owned();
    assert!(directory.join("libunisono.so").exists(), "no libunisono.so in {}", directory.display());
    directory
}

fn compile(compiler: &str, arguments: &[&str], to: &Path) {
    let library = library();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-I", "include", "-o"])
        .arg(to)
        .args(arguments)
        .arg("-L")
        .arg(&library)
        .args(["-lunisono", "-Wl,-rpath"])
        .arg(&library)
        .current_dir(here)
        .output()
        .expect("the compiler starts: linking Rust needs one, too");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a program with a time limit.
fn run(program: &mut Command) -> std::process::Output {
    let mut child = program
        .env_remove("UNISONO_RANK")
        .env_remove("UNISONO_SIZE")
        .env_remove("UNISONO_JOB")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("what was compiled starts");
    let start = Instant::now();
    while child.try_wait().expect("our child").is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().expect("our child");
            panic!("it hangs: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("our child")
}

#[test]
fn a_c_program_makes_every_call_as_a_job_of_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("every_call");
    compile("cc", &["-std=c11", "tests/every_call.c"], &program);
    let output = run(&mut Command::new(&program));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "rank 0 of 1: every call answered as it should\n");
}

#[test]
fn a_c_program_is_told_why_its_socket_gets_no_share() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("socket_share");
    compile("cc", &["-std=c11", "-D_GNU_SOURCE", "tests/socket_share.c"], &program);
    let output = run(&mut Command::new(&program));
    assert!(output.status.success(), "{output:?}");
}

/// Serves a broker in this process while `test` runs.
fn with_broker<T>(test: impl FnOnce(&Path) -> T) -> T {
    let directory = tempfile::tempdir().expect("a directory");
    let (socket, stop) = (directory.path().join("events"), AtomicBool::new(false));
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let broker = Broker::new(tree.expect("it is sound"), Limits::default());
    let mut server = Server::new(broker, ChannelWait::Sleep).expect("descriptors are left");
    server.listen_unix(&socket, OWNER).expect("it listens");
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&|| stop.load(Ordering::Relaxed)));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&socket)));
        stop.store(true, Ordering::Relaxed);
        serving.join().expect("it does not panic").expect("it serves");
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn c_programs_make_every_call_about_events_and_loans() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["events", "loans"] {
        let (source, program) = (format!("tests/{name}.c"), directory.path().join(name));
        compile("cc", &["-std=c11", "-pthread", "-D_GNU_SOURCE", &source], &program);
        with_broker(|socket| {
            for address in [format!("unix:{}", socket.display()), format!("{}", socket.display())] {
                let output = run(Command::new(&program).arg(&address));
                assert!(output.status.success(), "{address}: {output:?}");
                let printed = String::from_utf8_lossy(&output.stdout);
                assert_eq!(printed, format!("every call about {name} answered as it should\n"));
            }
        });
    }
}

#[test]
fn every_function_of_the_header_is_called_by_the_c_programs() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(here.join(path)).expect("a file of this crate");
    let header = read("include/unisono.h");
    let programs = ["check.h", "every_call.c", "events.c", "loans.c", "socket_share.c"]
        .map(|file| read(&format!("tests/{file}")))
        .concat();
    let declared = header.lines().filter(|line| !line.starts_with([' ', '/', '#', '*', '\t']));
    let names = declared.filter_map(|line| line.split('(').next()?.split([' ', '*']).next_back());
    let names: Vec<&str> =
        names.filter(|name| name.starts_with("unisono_") && !name.ends_with(';')).collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        assert!(programs.contains(&format!("{name}(")), "no program in tests/ calls {name}");
    }
}
