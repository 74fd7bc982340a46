//! Parses the output of test programs: the lines of libtest and of the host tests.
//!
//! Tests run with `--show-output`. A `#[test]` reports a skip by a line that begins with `skipped`. Other
//! output of passing tests is not shown.

use crate::step::StepVerdict;

/// Sums up the lines of one or more test programs.
pub(crate) fn read(lines: &[String]) -> StepVerdict {
    let mut verdict = StepVerdict::default();
    let mut program = String::new();
    let mut test = None;
    for line in lines {
        if let Some(started) = test_program(line) {
            program = started.split(" (").next().unwrap_or(started).to_owned();
        } else if let Some(name) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            test = Some(name.to_owned());
        } else if line.starts_with("test result: ") {
            read_summary_line(line, &mut verdict);
            test = None;
        } else if let Some((name, result)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        {
            read_test_line(name, result, &program, &mut verdict);
        } else if let (Some(test), Some(what)) = (&test, line.strip_prefix("skipped")) {
            let what = what.trim_start_matches([':', ' ']);
            verdict.skipped.push(format!("{program} {test}: {what}"));
            if line.starts_with("skipped:") {
                // the whole test was skipped, but libtest has counted it as passed
                verdict.passed = verdict.passed.saturating_sub(1);
            }
        }
    }
    verdict
}

/// Returns the verdict on a run in which some tests failed, after these tests were run once more and printed
/// `second`. A test counts as passed if it passed the second time. A test that was skipped the second time
/// still counts as failed.
pub(crate) fn after_retry(mut first: StepVerdict, second: &[String]) -> StepVerdict {
    let has = |name: &str, result: &str| {
        let expected = format!("test {name} ... {result}");
        second.iter().any(|line| line.starts_with(&expected))
    };
    let failures = std::mem::take(&mut first.failures);
    let failed_tests = std::mem::take(&mut first.failed_tests);
    for (failure, name) in failures.into_iter().zip(failed_tests) {
        if has(&name, "ok") && !has(&name, "FAILED") {
            first.passed += 1;
            first.failed -= 1;
            first.flaky.push(failure);
        } else {
            first.failures.push(failure);
            first.failed_tests.push(name);
        }
    }
    first
}

/// Returns the test program that cargo is about to run, according to this line.
fn test_program(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("Running ").or_else(|| line.strip_prefix("Doc-tests "))
}

/// Whether this line of cargo's output shows that compilation is over and a test program runs.
pub(crate) fn is_test_start(line: &str) -> bool {
    test_program(line).is_some()
}

fn read_test_line(name: &str, result: &str, program: &str, verdict: &mut StepVerdict) {
    if let Some(reason) = result.strip_prefix("skipped: ") {
        verdict.skipped.push(format!("{program} {name}: {reason}"));
    } else if let Some(reason) = result.strip_prefix("ignored") {
        let reason = reason.trim_start_matches([',', ' ']);
        let reason = if reason.is_empty() { "ignored without a reason" } else { reason };
        verdict.skipped.push(format!("{program} {name}: {reason}"));
    } else if result.starts_with("FAILED") {
        verdict.failures.push(format!("{program} {name}"));
        verdict.failed_tests.push(name.to_owned());
    } else if let Some(seconds) = result.strip_prefix("ok (").and_then(|rest| rest.strip_suffix(" s)")) {
        let ms = seconds.parse().map_or(0, |seconds: f64| (seconds * 1e3) as u64);
        verdict.times_ms.push((ms, format!("{program} {name}")));
    }
}

/// Parses `test result: ok. 3 passed; 0 failed; ...`
fn read_summary_line(line: &str, verdict: &mut StepVerdict) {
    let number = |word: &str| {
        line.split([';', '.']).find_map(|part| part.trim().strip_suffix(word)?.trim().parse::<u64>().ok())
    };
    verdict.passed += number("passed").unwrap_or(0);
    verdict.failed += number("failed").unwrap_or(0);
}

/// Returns a function that selects the lines to show: it hides the output of passing tests, and keeps the
/// output of failing tests.
pub(crate) fn filter() -> impl FnMut(&str) -> bool {
    let mut within_successes = false;
    move |line| {
        if line == "successes:" {
            within_successes = true;
        } else if line == "failures:" || line.starts_with("test result: ") {
            within_successes = false;
        }
        !within_successes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    const LIBTEST: &str = "\
     Running unittests src/lib.rs (target/debug/deps/x-1)
running 3 tests
test a ... ok
test b ... ignored, needs a moon
test c ... ok

successes:

---- a stdout ----
skipped: no browser
---- c stdout ----
skipped libomp: no clang

successes:
    a
    c

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn skips_of_plain_tests_are_collected_with_their_reasons() {
        let verdict = read(&lines(LIBTEST));
        // `b` is ignored, all of `a` and a part of `c` were skipped; only `a` did not pass
        assert_eq!(verdict.skipped.len(), 3);
        assert!(verdict.skipped.contains(&"unittests src/lib.rs a: no browser".to_owned()), "{verdict:?}");
        assert!(verdict.skipped.contains(&"unittests src/lib.rs b: needs a moon".to_owned()));
        assert_eq!((verdict.passed, verdict.failed), (2, 0));
    }

    #[test]
    fn host_tests_are_counted_like_others() {
        let verdict = read(&lines(
            "     Running tests/gang.rs (target/debug/deps/gang-1)\ntest x ... skipped: it needs root\n\
             test z ... ok (1.5 s)\ntest y ... FAILED\nwhy\n\ntest result: FAILED. 4 passed; 1 failed; 1 skipped\n",
        ));
        assert_eq!((verdict.passed, verdict.failed), (4, 1));
        assert_eq!(verdict.skipped, ["tests/gang.rs x: it needs root"]);
        assert_eq!(verdict.failures, ["tests/gang.rs y"]);
        assert_eq!(verdict.times_ms, [(1500, "tests/gang.rs z".to_owned())]);
    }

    #[test]
    fn a_test_that_passes_when_tried_again_is_unsteady_and_no_other_is_forgiven() {
        let first = read(&lines(
            "     Running tests/log.rs (target/debug/deps/log-1)\ntest a ... FAILED\ntest b ... FAILED\n\
             test c ... FAILED\ntest d ... ok\ntest result: FAILED. 1 passed; 3 failed; 0 ignored\n",
        ));
        let second = "test a ... ok (0.1 s)\ntest b ... FAILED\ntest c ... skipped: no processor\n";
        let verdict = after_retry(first, &lines(second));
        assert_eq!((verdict.passed, verdict.failed), (2, 2));
        assert_eq!(verdict.flaky, ["tests/log.rs a"]);
        assert_eq!(verdict.failures, ["tests/log.rs b", "tests/log.rs c"]);
    }

    #[test]
    fn output_of_passing_tests_is_hidden() {
        let mut show = filter();
        let shown: Vec<_> = LIBTEST.lines().filter(|line| show(line)).collect();
        assert!(!shown.contains(&"---- a stdout ----"));
        assert!(shown.contains(&"test a ... ok"));
        assert!(shown.last().is_some_and(|last| last.starts_with("test result")));
    }
}
