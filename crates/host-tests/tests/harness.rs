//! Tests the harness itself with host tests of each verdict.
//!
//! The functions named `sample_*` are tests that pass, skip, fail, hang or leave processes behind.

use std::process::{Command, Stdio};
use std::time::Duration;
use unisono_host_tests::{Needs, Skipped, Test, TestOutcome, host_tests, require};

/// The environment variable that makes a harness run only the [`SAMPLES`].
const WANTS_SAMPLES: &str = "UNISONO_SAMPLES";

fn sample_that_passes() -> TestOutcome {
    Ok(())
}

fn sample_that_skips() -> TestOutcome {
    Err(Skipped::because("the expected reason"))
}

fn sample_that_fails() -> TestOutcome {
    panic!("the expected message");
}

fn sample_that_hangs() -> TestOutcome {
    std::thread::sleep(Duration::from_secs(3600));
    Ok(())
}

fn sample_that_leaves_a_process() -> TestOutcome {
    #[allow(clippy::zombie_processes, reason = "that is what it is for")]
    Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn().expect("sleep starts");
    Ok(())
}

fn run_sample(name: &str) -> (bool, String) {
    let output = Command::new(std::env::current_exe().expect("a program has a path"))
        .args(["--exact", &format!("samples::{name}")])
        .env(WANTS_SAMPLES, "1")
        .output()
        .expect("the harness starts itself");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn a_test_that_passes_is_counted() -> TestOutcome {
    let (success, printed) = run_sample("sample_that_passes");
    assert!(success, "{printed}");
    assert!(printed.contains("test result: ok. 1 passed; 0 failed; 0 skipped"), "{printed}");
    Ok(())
}

fn a_skipped_test_says_why() -> TestOutcome {
    let (success, printed) = run_sample("sample_that_skips");
    assert!(success);
    assert!(printed.contains("... skipped: the expected reason"), "{printed}");
    assert!(printed.contains("0 passed; 0 failed; 1 skipped"), "{printed}");
    Ok(())
}

fn a_failed_test_shows_its_message() -> TestOutcome {
    let (success, printed) = run_sample("sample_that_fails");
    assert!(!success);
    assert!(printed.contains("the expected message"), "{printed}");
    Ok(())
}

fn a_test_that_hangs_fails_with_its_stacks() -> TestOutcome {
    let (success, printed) = run_sample("sample_that_hangs");
    assert!(!success);
    assert!(printed.contains("it did not end within 2 s"), "{printed}");
    assert!(printed.contains("thread "), "{printed}");
    Ok(())
}

fn a_test_that_leaves_a_process_fails() -> TestOutcome {
    let (success, printed) = run_sample("sample_that_leaves_a_process");
    assert!(!success);
    assert!(printed.contains("it left processes behind"), "{printed}");
    Ok(())
}

fn an_unmet_need_names_its_remedy() -> TestOutcome {
    let unmet = require::program("unisono-no-such-program", "install it").expect_err("nobody has that");
    assert_eq!(unmet, Skipped::because("no unisono-no-such-program on PATH; install it"));
    require::cpus(usize::MAX).expect_err("nobody has that many");
    require::path("/sys/no-such-file", "a made-up interface").expect_err("it does not exist");
    let unmet = require::unshare(&["--no-such-namespace"]).expect_err("nobody has that");
    let unmet = format!("{unmet:?}");
    assert!(
        unmet.contains("unshare --no-such-namespace") && unmet.contains("unrecognized option"),
        "{unmet}"
    );
    Ok(())
}

host_tests![
    needs Nothing;
    a_test_that_passes_is_counted,
    a_skipped_test_says_why,
    a_failed_test_shows_its_message,
    a_test_that_hangs_fails_with_its_stacks,
    a_test_that_leaves_a_process_fails,
    an_unmet_need_names_its_remedy,
];

/// The tests that this program offers instead of its own: one for each way in which a test may end.
pub(crate) const SAMPLES: &[(&str, &[Test])] = &[(
    "samples",
    &[
        Test::new("sample_that_passes", sample_that_passes, Needs::Nothing),
        Test::new("sample_that_skips", sample_that_skips, Needs::Nothing),
        Test::new("sample_that_fails", sample_that_fails, Needs::Nothing),
        Test::new("sample_that_hangs", sample_that_hangs, Needs::Nothing).within(2),
        Test::new("sample_that_leaves_a_process", sample_that_leaves_a_process, Needs::Nothing),
    ],
)];

/// Returns whether this process was started to run the samples.
pub(crate) fn wants_samples() -> bool {
    std::env::var_os(WANTS_SAMPLES).is_some()
}
