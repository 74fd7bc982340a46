//! Tests one-sided programs in Rust and C under `unisono run`. The examples check their own results, and a C
//! program makes every call of the library between several ranks.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use unisono_host_tests::processes::text;
use unisono_host_tests::{TestOutcome, host_tests, program, require};

fn run(ranks: &str, program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program::unisono());
    command.args(["run", "-n", ranks, "--timeout", "50s"]).arg(program).args(arguments);
    command.stdin(Stdio::null()).output().expect("unisono starts")
}

/// Runs a program that checks its own result, with several numbers of ranks, also more than there are
/// processors.
fn check(program: &Path, arguments: &[&str], said: &str) {
    for ranks in ["1", "2", "4", "7"] {
        let output = run(ranks, program, arguments);
        let text = text(&output.stdout);
        assert!(output.status.success(), "{ranks} ranks: {output:?}");
        assert!(text.contains(said), "{ranks} ranks: {text}");
    }
}

/// Compiles the examples in C into a directory.
fn compiled(library: &Path, to: &Path) {
    let make = Command::new("make")
        .args(["--silent", "CFLAGS=-O2 -Wall -Wextra -Werror"])
        .arg(format!("LIBRARY={}", library.display()))
        .arg(format!("OUT={}", to.display()))
        .current_dir(program::workspace().join("examples/c"))
        .output()
        .expect("make starts");
    assert!(make.status.success(), "{}", text(&make.stderr));
}

const EQUAL: &str = "equal to the sequential solution";
const ONCE: &str = "each found exactly once";

fn the_heat_equation_in_rust_is_the_sequential_one_by_fence() -> TestOutcome {
    check(&program::directory().join("heat"), &["--size", "48", "--steps", "60"], EQUAL);
    Ok(())
}

fn the_heat_equation_in_rust_is_the_sequential_one_by_post_start_complete_wait() -> TestOutcome {
    let arguments = ["--size", "48", "--steps", "60", "--synchronization", "pscw"];
    check(&program::directory().join("heat"), &arguments, EQUAL);
    Ok(())
}

fn every_key_of_the_hash_table_in_rust_is_found_exactly_once() -> TestOutcome {
    check(&program::directory().join("hash-table"), &["--keys", "1000", "--common", "200"], ONCE);
    Ok(())
}

fn the_heat_equation_in_c_is_the_sequential_one() -> TestOutcome {
    require::program("make", "apt-get install make")?;
    let directory = tempfile::tempdir().expect("a directory");
    compiled(&program::directory(), directory.path());
    check(&directory.path().join("heat"), &["--size", "48", "--steps", "60"], EQUAL);
    Ok(())
}

fn every_key_of_the_hash_table_in_c_is_found_exactly_once() -> TestOutcome {
    require::program("make", "apt-get install make")?;
    let directory = tempfile::tempdir().expect("a directory");
    compiled(&program::directory(), directory.path());
    check(&directory.path().join("hash_table"), &["--keys", "1000", "--common", "200"], ONCE);
    Ok(())
}

fn a_c_program_makes_every_call_between_ranks() -> TestOutcome {
    let (library, directory) = (program::directory(), tempfile::tempdir().expect("a directory"));
    let program = directory.path().join("every_call");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I", "abi/c/include", "-o"])
        .arg(&program)
        .args(["abi/c/tests/every_call.c", "-L"])
        .arg(&library)
        .args(["-lunisono", program::LIBRARY_PATH])
        .arg(&library)
        .current_dir(program::workspace())
        .output()
        .expect("the compiler starts: linking Rust needs one, too");
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    check(&program, &[], "every call answered as it should");
    Ok(())
}

fn a_rank_that_is_killed_is_named_by_the_others_and_nothing_hangs() -> TestOutcome {
    // rank 1 is killed during the exchange; the others say so and end by themselves
    let heat = program::directory().join("heat");
    let script = format!(
        "if [ $UNISONO_RANK = 1 ]; then {0} --size 64 --steps 100000000 --no-check & pid=$!; sleep 0.7; \
         kill -KILL $pid; sleep 20; else exec {0} --size 64 --steps 100000000 --no-check; fi",
        heat.display()
    );
    let output = run("3", Path::new("sh"), &["-c", &script]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains("rank 1 is gone"), "{said}");
    Ok(())
}

fn an_example_started_without_the_launcher_is_a_job_of_one() -> TestOutcome {
    let output = Command::new(program::directory().join("hash-table"))
        .args(["--keys", "100"])
        .output()
        .expect("starts");
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("by 1 ranks"), "{output:?}");
    Ok(())
}

host_tests![needs Nothing;
    the_heat_equation_in_rust_is_the_sequential_one_by_fence within 240,
    the_heat_equation_in_rust_is_the_sequential_one_by_post_start_complete_wait within 240,
    every_key_of_the_hash_table_in_rust_is_found_exactly_once within 240,
    the_heat_equation_in_c_is_the_sequential_one within 240,
    every_key_of_the_hash_table_in_c_is_found_exactly_once within 240,
    a_c_program_makes_every_call_between_ranks within 240,
    a_rank_that_is_killed_is_named_by_the_others_and_nothing_hangs within 240,
    an_example_started_without_the_launcher_is_a_job_of_one within 240,
];
