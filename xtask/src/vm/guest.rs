//! Inside the virtual machine: this program is its first process, `/init`.
//!
//! It mounts what programs expect, loads modules, runs one command, says how that ended, and switches off.

use anyhow::Context;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, init_module, reboot};
use std::fs;
use std::process::{Command, Stdio};

/// Where the modules are, to be loaded in the order of their names.
pub(super) const MODULES: &str = "/modules";
/// The command: a word a line.
pub(super) const COMMAND: &str = "/command";
/// Its environment: a variable a line.
pub(super) const ENVIRONMENT: &str = "/environment";
/// What is said at the end, with the exit code.
pub(super) const ENDED: &str = "the command ended: ";

/// Whether this is the first process of a machine, made by [`super::run`].
pub(crate) fn is_guest() -> bool {
    std::process::id() == 1 && fs::exists(COMMAND).unwrap_or(false)
}

/// Does all of it; does not return where it may switch off.
pub(crate) fn run() {
    let code = match command() {
        Ok(code) => code.to_string(),
        Err(error) => format!("{error:#}"),
    };
    println!("{ENDED}{code}");
    rustix::fs::sync();
    // with -no-reboot that is the end of the machine
    if let Err(error) = reboot(RebootCommand::Restart) {
        println!("the machine does not switch off: {error}");
    }
}

fn command() -> anyhow::Result<i32> {
    let places = [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
        ("tmpfs", "/run"),
        ("bpf", "/sys/fs/bpf"),
        ("cgroup2", "/sys/fs/cgroup"),
    ];
    for (kind, place) in places {
        // directories of the kernel's own file systems are there
        let _ = fs::create_dir_all(place);
        mount(kind, place, kind, MountFlags::empty(), None).with_context(|| format!("mount {kind}"))?;
    }
    let mut modules: Vec<_> = fs::read_dir(MODULES)?.flatten().map(|entry| entry.path()).collect();
    modules.sort();
    for module in modules {
        init_module(&fs::read(&module)?, c"").with_context(|| format!("load {}", module.display()))?;
    }
    let words = fs::read_to_string(COMMAND).context("what to run")?;
    let mut words = words.lines();
    let mut command = Command::new(words.next().context("an empty command")?);
    command.args(words).stdin(Stdio::null());
    for line in fs::read_to_string(ENVIRONMENT).unwrap_or_default().lines() {
        if let Some((name, value)) = line.split_once('=') {
            command.env(name, value);
        }
    }
    let status = command.status().context("start the command")?;
    Ok(status.code().unwrap_or(-1))
}
