//! Checks the requirements of host tests. Each function returns `Ok(())`, or the reason to skip the test,
//! with the remedy.

use crate::{Skipped, TestOutcome, is_long};
use std::path::Path;
use std::process::Command;
use unisono_linux::programs::on_path;

/// Requires a long test run, for a test that takes minutes or fetches programs of others. `cargo xtask
/// nightly` runs the test in its part `part`.
///
/// # Errors
/// [`Skipped`] in other runs.
pub fn nightly(part: &str) -> TestOutcome {
    if is_long() {
        Ok(())
    } else {
        Err(Skipped::because(format!("it takes minutes: cargo xtask nightly {part}")))
    }
}

/// Requires root.
///
/// # Errors
/// [`Skipped`] if the effective user is not root.
pub fn root() -> TestOutcome {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err(Skipped::because("it needs root; run it as root"))
    }
}

/// Requires at least `n` processors that this process may use.
///
/// # Errors
/// [`Skipped`] if there are fewer.
pub fn cpus(n: usize) -> TestOutcome {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    if here >= n {
        Ok(())
    } else {
        Err(Skipped::because(format!("it needs {n} processors, {here} may be used here")))
    }
}

/// Requires a kernel with sched_ext and without a loaded scheduler.
///
/// # Errors
/// [`Skipped`] if the kernel lacks sched_ext, or has a loaded scheduler.
pub fn sched_ext() -> TestOutcome {
    let state = Path::new("/sys/kernel/sched_ext/state");
    match std::fs::read_to_string(state).as_deref().map(str::trim) {
        Ok("disabled") => Ok(()),
        Ok(_) => Err(Skipped::because("the kernel has a scheduler of somebody else's; end it")),
        Err(_) => Err(Skipped::because(format!(
            "{} does not exist: it needs CONFIG_SCHED_CLASS_EXT; cargo xtask vm has it",
            state.display()
        ))),
    }
}

/// Requires a file or directory, for example a kernel interface below `/sys`.
///
/// # Errors
/// [`Skipped`] if `path` does not exist; `what` explains the consequence.
pub fn path(path: impl AsRef<Path>, what: &str) -> TestOutcome {
    let path = path.as_ref();
    if path.exists() {
        Ok(())
    } else {
        Err(Skipped::because(format!("{what}: {} does not exist", path.display())))
    }
}

/// Requires a program on `PATH`.
///
/// # Errors
/// [`Skipped`] if `name` is in no directory of `PATH`; `remedy` tells how to install it.
pub fn program(name: &str, remedy: &str) -> TestOutcome {
    if on_path(name).is_some() {
        Ok(())
    } else {
        Err(Skipped::because(format!("no {name} on PATH; {remedy}")))
    }
}

/// Requires that `unshare` can create namespaces with these options.
///
/// # Errors
/// [`Skipped`] with the message of `unshare` if it fails, as it does in many containers.
pub fn unshare(options: &[&str]) -> TestOutcome {
    program("unshare", "apt-get install util-linux")?;
    let tried = Command::new("unshare").args(options).arg("true").output();
    let why = match tried {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Skipped::because(format!("unshare {} fails here: {why}", options.join(" "))))
}
