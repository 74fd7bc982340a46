//! The first commands of a newcomer: the program does not claim what it cannot know.

use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

fn unisono(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.args(arguments);
    command
}

#[test]
fn a_compiler_that_cannot_be_tried_is_unknown_and_not_missing() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut command = unisono(&["doctor", "--json"]);
    let output = command.env("TMPDIR", scratch.path().join("missing")).output().expect("it starts");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let all = answer["capabilities"].as_array().expect("a list");
    let cc = all.iter().find(|capability| capability["name"] == "cc").expect("cc is looked for");
    let reason = cc["reason"].as_str().expect("a reason");
    // on a host without a C compiler the reason says so
    if reason.contains("PATH") {
        assert_eq!(cc["status"], "missing", "{cc}");
    } else {
        assert_eq!(cc["status"], "unknown", "{cc}");
        assert!(reason.contains("no temporary directory") && reason.contains("TMPDIR"), "{cc}");
    }
}

#[test]
fn a_broker_makes_no_file_of_a_host_and_a_port() {
    let scratch = tempfile::tempdir().expect("a directory");
    for (place, tcp) in [
        ("localhost:1883", "tcp:localhost:1883"),
        ("127.0.0.1:7400", "tcp:127.0.0.1:7400"),
        ("0.0.0.0:7400", "tcp:0.0.0.0:7400"),
        (":7400", "tcp:127.0.0.1:7400"),
        ("7400", "tcp:127.0.0.1:7400"),
        ("localhost:", "tcp:localhost:PORT"),
        ("localhost:mqtt", "tcp:localhost:PORT"),
    ] {
        for arguments in [["events", "serve", "--listen", place], ["events", "top", "--at", place]] {
            // a broker that serves a file of that name would run for ever
            let mut command = Command::new("timeout");
            command.args(["10", env!("CARGO_BIN_EXE_unisono")]).args(arguments).current_dir(&scratch);
            let output = command.output().expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
            assert!(said.contains(tcp) && said.contains(&format!("./{place}")), "{said}");
        }
    }
    for place in ["mqtt://localhost:1883", "http://localhost"] {
        let output = unisono(&["events", "top", "--at", place]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("scheme is none of"), "{said}");
    }
    assert_eq!(scratch.path().read_dir().expect("a directory").count(), 0);
}

#[test]
fn a_reader_that_has_gone_is_no_error_of_any_command() {
    for arguments in [
        &["study", "--list"][..],
        &["study", "--list", "--json"],
        &["study", "--show", "granularity"],
        &["doctor", "--without-compiling"],
        &["completions", "bash"],
        &["gang", "simulate", "--cores", "2", "--programs", "2x50us"],
        &["tree", "generate"],
        &["gang", "restore", "--json"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = unisono(arguments);
        let mut child = command.stdout(writer).stderr(Stdio::piped()).spawn().expect("it starts");
        drop(command);
        let mut said = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        let status = child.wait().expect("it runs");
        assert!(
            status.success() && !said.to_lowercase().contains("pipe"),
            "{arguments:?}: {status} {said}"
        );
    }
}

#[test]
fn what_is_not_running_has_one_exit_code() {
    let scratch = tempfile::tempdir().expect("a directory");
    let socket = scratch.path().join("nobody").display().to_string();
    for arguments in [
        &["events", "top", "--once", "--at", &socket][..],
        &["events", "publish", "a", "b", "--at", "tcp:127.0.0.1:1"],
        &["queue", "broker", "--status", &socket],
        &["gang", "list", "--socket", &socket],
        &["queue", "show", "--dev", "unisono-none"],
    ] {
        let output = unisono(arguments).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {said}");
        assert!(
            said.contains("unisono events serve")
                || said.contains("gang daemon")
                || said.contains("queue apply"),
            "{said}"
        );
    }
}

#[test]
fn two_colons_between_programs_are_asked_about() {
    let commands: [&[&str]; 3] = [&["gang", "run", "--unprivileged"], &["fit"], &["advise", "--for", "1s"]];
    for command in commands {
        for word in ["::", "::::"] {
            let words = [command, &["--", "true", word, "true"]].concat();
            let output = unisono(&words).output().expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
            assert!(said.contains("did you mean `:::`"), "{words:?}: {said}");
        }
    }
}

#[test]
fn the_page_of_one_command_is_written_alone() {
    let scratch = tempfile::tempdir().expect("a directory");
    let output = unisono(&["man", "gang"]).current_dir(&scratch).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names: Vec<_> =
        scratch.path().read_dir().expect("a directory").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["unisono-gang.1"]);
}

#[test]
fn a_misspelt_command_is_no_directory_of_pages() {
    let scratch = tempfile::tempdir().expect("a directory");
    for (word, meant) in [("gnag", "gang"), ("polcy", "policy")] {
        let output = unisono(&["man", word]).current_dir(&scratch).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(&format!("mean `{meant}`")), "{said}");
    }
    assert_eq!(scratch.path().read_dir().expect("a directory").count(), 0);
    let output = unisono(&["man", "./gnag"]).current_dir(&scratch).output().expect("it starts");
    assert!(output.status.success() && scratch.path().join("gnag/man1/unisono.1").exists());
}

/// The test compiles a program and a library with an MPI's name, so that it needs no MPI.
#[test]
fn run_refuses_a_program_that_is_linked_to_an_mpi_unless_its_ranks_may_be_alone() {
    let scratch = tempfile::tempdir().expect("a directory");
    let compile = |arguments: &[&str], source: &str| {
        let mut cc = Command::new("cc");
        cc.args(arguments).args(["-x", "c", "-"]).current_dir(&scratch).stdin(Stdio::piped());
        let mut child = cc.spawn().expect("a C compiler, which the build needs, too");
        child.stdin.take().expect("a pipe").write_all(source.as_bytes()).expect("the source");
        assert!(child.wait().expect("it ends").success(), "{arguments:?}");
    };
    compile(
        &["-shared", "-fPIC", "-Wl,-soname,libmpi.so.12", "-o", "libmpi.so.12"],
        "int MPI_Init(void) { return 0; }",
    );
    let here = scratch.path().display();
    compile(
        &["-o", "program", "-Wl,--no-as-needed", "./libmpi.so.12", &format!("-Wl,-rpath,{here}")],
        "int MPI_Init(void); int main(void) { return MPI_Init(); }",
    );
    let run = |arguments: &[&str]| {
        let output =
            unisono(&["run", "-n"]).args(arguments).current_dir(&scratch).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["2", "./program", "x"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("mpiexec -n 2 unisono mpi -- ./program x") && said.contains("--singleton"),
        "{said}"
    );
    for alone in [&["2", "--singleton", "./program"][..], &["1", "./program"]] {
        assert_eq!(run(alone), (Some(0), String::new()), "{alone:?}");
    }
    let (code, said) = run(&["2", "unisono", "mpi", "--", "./program"]);
    assert!(
        code == Some(2) && said.contains("write 'mpiexec -n 2 unisono mpi -- ./program'"),
        "{said}"
    );
}

/// The Python of this test is a shell script, because only the command's words and the script's text count.
#[test]
fn run_refuses_a_python_program_that_imports_mpi4py_unless_its_ranks_may_be_alone() {
    let scratch = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(scratch.path().join(name), text).expect("a file");
    write("ranks.py", "from mpi4py import MPI\n");
    write("plain.py", "print('no mpi4py')\n");
    write("python3", "#!/bin/sh\necho started\n");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(scratch.path().join("python3"), mode).expect("a file of ours");
    let run = |arguments: &[&str]| {
        let output =
            unisono(&["run", "-n"]).args(arguments).current_dir(&scratch).output().expect("it starts");
        let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        (output.status.code(), texts)
    };
    for command in [&["./python3", "ranks.py"][..], &["./python3", "-m", "mpi4py", "plain.py"]] {
        let (code, [printed, said]) = run(&[&["2"][..], command].concat());
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{said}");
        let instead = format!("mpiexec -n 2 unisono mpi -- {}", command.join(" "));
        assert!(
            said.contains("mpi4py") && said.contains(&instead) && said.contains("--singleton"),
            "{said}"
        );
    }
    for started in [
        &["2", "--singleton", "./python3", "ranks.py"][..],
        &["1", "./python3", "ranks.py"],
        &["2", "./python3", "plain.py"],
    ] {
        let (code, [printed, said]) = run(started);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{started:?}");
        assert!(printed.starts_with("started\n"), "{printed}");
    }
}

/// Runs the program without the library beside it, as `cargo install --path cli` installs it.
#[test]
fn mpi_without_the_library_names_the_packages_that_have_it() {
    // a link, because the program is large; the test's directory is on the program's file system
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let alone = scratch.path().join("bin/unisono");
    std::fs::create_dir(scratch.path().join("bin")).expect("there is room");
    std::fs::hard_link(env!("CARGO_BIN_EXE_unisono"), &alone).expect("a link");
    let output = Command::new(&alone).args(["mpi", "--", "true"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    for part in ["bin/libunisono.so is missing", "pip install", "apt install", "docs/install.md"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_broker_that_cannot_listen_everywhere_does_not_say_that_it_serves() {
    let scratch = tempfile::tempdir().expect("a directory");
    for place in [["--web", "0.0.0.0:0"], ["--metrics", "127.0.0.1"], ["--listen", "tcp:0.0.0.0:0"]] {
        // a broker that serves all the same would run for ever
        let mut command = Command::new("timeout");
        command.args(["10", env!("CARGO_BIN_EXE_unisono"), "events", "serve", "--listen", "./broker"]);
        command.args(["--mqtt", "127.0.0.1:0"]).args(place).current_dir(&scratch);
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && !said.contains("serving"), "{place:?}: {said}");
    }
}

#[test]
fn an_error_names_the_program_of_a_simulation_and_the_next_command_its_daemon() {
    let output = unisono(&["gang", "simulate", "--programs", "2x50us,16x"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("16x: \"\" is not a duration"), "{said}");

    let output = unisono(&["gang", "list", "--socket", "./nothere"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(3), "{said}");
    assert!(said.contains("sudo unisono gang daemon --socket ./nothere"), "{said}");
}

#[test]
fn what_removes_a_unit_advises_no_option_that_it_does_not_have() {
    for arguments in [&["gang", "uninstall"][..], &["queue", "uninstall", "--dev", "nothere0"]] {
        let output = unisono(arguments).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        // on a host of systemd there is no such unit
        assert!(matches!(output.status.code(), Some(2 | 3)) && !said.contains("--print"), "{said}");
    }
}

/// Returns the sample of a help text in a terminal of 80 columns: the indented lines below the line
/// `heading`.
fn sample(arguments: &[&str], heading: &str) -> String {
    let output = unisono(arguments).arg("--help").env("COLUMNS", "80").output().expect("it starts");
    let help = String::from_utf8(output.stdout).expect("text");
    let below = help.lines().skip_while(|line| *line != heading).skip(1);
    let lines: Vec<&str> = below.take_while(|line| line.is_empty() || line.starts_with(' ')).collect();
    assert!(!lines.is_empty(), "{help}");
    lines.join("\n")
}

fn answer(arguments: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = unisono(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn the_samples_of_help_texts_in_80_columns_are_files_that_the_commands_take() {
    let policy = sample(&["queue", "apply"], "A policy is TOML:");
    let (code, said) = answer(&["queue", "apply", "-", "--check"], &policy);
    assert_eq!(code, Some(0), "{policy}\n{said}");
}

/// The lines that COLUMNS=80 asks for; without it programs get whole lines.
#[test]
fn answers_fit_the_columns_that_are_asked_for_and_are_whole_elsewhere() {
    const GROUPS: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts/tree-simulate.in/groups.json");
    const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/example-report");
    for (arguments, is_folded) in [
        (&["study", "--list"][..], true),
        (&["study", "--list", "--paper"], true),
        (&["doctor", "--without-compiling"], true),
        (&["report", RECORDS, "--text", "all"], true),
        (
            &["gang", "simulate", "--cores", "2", "--programs", "2x50us,2x10us", "--seconds", "0.05"],
            true,
        ),
        (&["tree", "simulate", GROUPS, "--all-groups", "--registers", "1", "--collectives"], true),
        (&["tree", "plan", GROUPS, "--group", "2", "--registers", "1"], true),
        (&["tree", "generate"], false),
    ] {
        let lines = |columns: Option<&str>| {
            let mut command = unisono(arguments);
            command.env_remove("COLUMNS").envs(columns.map(|columns| ("COLUMNS", columns)));
            let output = command.output().expect("it starts");
            assert!(output.status.success(), "{output:?}");
            let text = String::from_utf8(output.stdout).expect("text");
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let (narrow, whole) = (lines(Some("80")), lines(None));
        if is_folded {
            let wide: Vec<&String> = narrow.iter().filter(|line| line.chars().count() > 80).collect();
            assert!(wide.is_empty(), "{arguments:?}: {wide:#?}");
            assert!(whole.len() < narrow.len(), "{arguments:?}: programs that read it get whole lines");
        } else {
            assert_eq!(narrow, whole, "{arguments:?}: a format for programs");
        }
    }
}

#[test]
fn a_user_without_the_laboratory_is_told_what_it_is_and_is_offered_none_of_its_studies() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("unisono");
    crate::copy_program(&program);
    let list = |path: &str| {
        let mut command = Command::new(&program);
        let output = command.args(["study", "--list"]).env("PATH", path).output().expect("it starts");
        String::from_utf8(output.stdout).expect("text")
    };
    let text = list("/usr/bin:/bin");
    assert!(
        text.contains("no package has it") && text.contains("cargo build --release -p unisono-laboratory")
    );
    assert!(!text.contains("unisono study gang-map"), "{text}");
    let laboratory = directory.path().join("unisono-laboratory");
    std::fs::write(&laboratory, "#!/bin/sh\n").expect("a file");
    assert!(list("/usr/bin:/bin").contains("unisono study gang-map"), "it is beside the program");
}
