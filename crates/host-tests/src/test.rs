//! A host test: its function, its needs, and its outcome.

use crate::needs::Needs;
use std::time::Duration;

/// The deadline of a test that sets no other, in seconds.
const DEADLINE_S: u64 = 60;
/// Why a test was not run on this machine, and how to make it run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub(crate) reason: String,
}

impl Skipped {
    /// Returns a verdict with this reason, in one line.
    pub fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into().replace('\n', " ") }
    }
}

/// The result of a host test; a failure is a panic.
pub type TestOutcome = Result<(), Skipped>;

/// One host test; made by [`host_tests!`](crate::host_tests).
#[derive(Clone, Copy, Debug)]
pub struct Test {
    name: &'static str,
    run: fn() -> TestOutcome,
    needs: Needs,
    deadline: Duration,
}

impl Test {
    /// Returns a test whose deadline is a minute.
    pub const fn new(name: &'static str, run: fn() -> TestOutcome, needs: Needs) -> Self {
        Self { name, run, needs, deadline: Duration::from_secs(DEADLINE_S) }
    }

    /// Sets another deadline, in seconds.
    #[must_use]
    pub const fn within(mut self, seconds: u64) -> Self {
        self.deadline = Duration::from_secs(seconds);
        self
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn run(&self) -> TestOutcome {
        (self.run)()
    }

    pub(crate) fn needs(&self) -> Needs {
        self.needs
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }
}

/// Lists the host tests of a module: `host_tests![needs Nothing; first, second within 120]`. The unit of
/// `within` is a second.
#[macro_export]
macro_rules! host_tests {
    (needs $needs:ident; $($name:ident $(within $seconds:literal)?),* $(,)?) => {
        /// The host tests of this module.
        pub const TESTS: &[$crate::Test] = &[
            $($crate::Test::new(stringify!($name), $name, $crate::Needs::$needs)$(.within($seconds))?),*
        ];
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stay_on_one_line() {
        assert_eq!(Skipped::because("no\nroot").reason, "no root");
    }
}
