//! The part of this program that runs inside the virtual machine as its first process, `/init`.
//!
//! It mounts the file systems that programs expect, loads modules, runs the commands, prints their result,
//! and switches the machine off.

use anyhow::Context;
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, init_module, reboot};
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::process::{Command, Stdio};
use unisono_linux::netlink::NetlinkSocket;
use unisono_linux::netlink::link::{self, Index, LinkState};

/// The directory of kernel modules, which are loaded in the order of their names.
pub(super) const MODULES: &str = "/modules";
/// The file with the commands: a word per line, and an empty line after each command.
pub(super) const COMMANDS: &str = "/commands";
/// The file with the commands' environment, a variable per line.
pub(super) const ENVIRONMENT: &str = "/environment";
/// The text that is printed at the end, before the first exit code that is not 0, or 0 if there is none, or
/// before an error message.
pub(super) const END_MARK: &str = "the commands ended: ";

/// Paths that programs expect, and where they lead.
const LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/usr/bin", "/bin"),
];

/// The loopback device of a network namespace always has this number.
const LOOPBACK: Index = Index(1);

/// Whether this is the first process of a machine that [`super::run`] made.
pub(crate) fn is_guest() -> bool {
    std::process::id() == 1 && fs::exists(COMMANDS).unwrap_or(false)
}

/// Runs the commands and switches the machine off. Returns only if the machine does not switch off.
pub(crate) fn run() {
    let code = commands().and_then(|code| {
        let log = kernel_log().context("read the kernel's log")?;
        if code != 0 {
            // these lines say why the kernel ended a sched_ext scheduler
            log.lines().filter(|line| line.contains("sched_ext: ")).for_each(|line| println!("{line}"));
        }
        let kernel_warnings = kernel_warnings(&log);
        anyhow::ensure!(kernel_warnings.is_empty(), "the kernel complains: {}", kernel_warnings.join("; "));
        Ok(code)
    });
    let code = match code {
        Ok(code) => code.to_string(),
        Err(error) => format!("{error:#}"),
    };
    println!("{END_MARK}{code}");
    rustix::fs::sync();
    // QEMU runs with -no-reboot, so a restart ends the machine
    if let Err(error) = reboot(RebootCommand::Restart) {
        println!("the machine does not switch off: {error}");
    }
}

fn kernel_log() -> io::Result<String> {
    let mut log = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open("/dev/kmsg")?;
    let (mut text, mut record) = (String::new(), vec![0; 8192]);
    loop {
        match log.read(&mut record) {
            Ok(length) => text.push_str(&String::from_utf8_lossy(&record[..length])),
            // the kernel overwrote records before they were read
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(text),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the lines in which the kernel reports faults of its own.
fn kernel_warnings(log: &str) -> Vec<&str> {
    const WORDS: [&str; 5] = ["WARNING:", "BUG:", "Oops", "refcount_t:", "unregister_netdevice: waiting"];
    log.lines().filter(|line| WORDS.iter().any(|word| line.contains(word))).collect()
}

fn commands() -> anyhow::Result<i32> {
    let places = [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/dev/shm"),
        ("tmpfs", "/tmp"),
        ("tmpfs", "/run"),
        ("bpf", "/sys/fs/bpf"),
        ("cgroup2", "/sys/fs/cgroup"),
    ];
    for (kind, place) in places {
        // the directory may exist already, for example in the kernel's own file systems
        let _ = fs::create_dir_all(place);
        mount(kind, place, kind, MountFlags::empty(), None).with_context(|| format!("mount {kind}"))?;
    }
    fs::create_dir_all("/usr").context("make /usr")?;
    for (path, target) in LINKS {
        symlink(target, path).with_context(|| format!("make {path}"))?;
    }
    // enables these controllers for child groups, as systemd does
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu +pids").context("hand down controllers")?;
    let mut modules: Vec<_> = fs::read_dir(MODULES)?.flatten().map(|entry| entry.path()).collect();
    modules.sort();
    for module in modules {
        init_module(&fs::read(&module)?, c"").with_context(|| format!("load {}", module.display()))?;
    }
    let mut netlink = NetlinkSocket::open().context("open a netlink socket")?;
    netlink.run(&[link::set(LOOPBACK, LinkState::Up)]).map_err(|refused| refused.error())?;
    let commands = fs::read_to_string(COMMANDS).context("what to run")?;
    let environment = fs::read_to_string(ENVIRONMENT).unwrap_or_default();
    let mut first = 0;
    for words in commands.split_terminator("\n\n") {
        let program = words.lines().rfind(|word| word.starts_with('/')).unwrap_or(words);
        println!("     Running {}", program.rsplit('/').next().unwrap_or(program));
        let mut words = words.lines();
        let mut command = Command::new(words.next().context("an empty command")?);
        command.args(words).stdin(Stdio::null());
        command.envs(environment.lines().filter_map(|line| line.split_once('=')));
        let code = command.status().context("start a command")?.code().unwrap_or(-1);
        if first == 0 {
            first = code;
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_complains_about_is_found_in_its_log() {
        let log = "6,1,1,-;Linux version 7\n4,2,2,-;WARNING: net/sched/sch_generic.c:99 at x\n6,3,3,-;all is well\n";
        assert_eq!(kernel_warnings(log), ["4,2,2,-;WARNING: net/sched/sch_generic.c:99 at x"]);
        assert!(kernel_warnings("6,1,1,-;virtio: no warnings\n").is_empty());
    }
}
