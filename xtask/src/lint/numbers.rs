//! A process ID is used only while the process is held (by a pidfd, or as an unreaped child), because the
//! kernel reuses IDs: calls and files that take a bare ID may occur only in the modules that hold processes.
//!
//! Tests are exempt: their processes are their children.

use super::sources::{SourceFile, Sources};

/// The start of a call with a bare process ID, the form to write instead, and the files in which the call is
/// allowed.
const BARE: &[(&str, &str, &[&str])] = &[
    ("kill_process(", "PinnedProcess::send", &["crates/linux/src/fork.rs"]),
    ("kill_process_group(", "ProcessGroup::tell", &["crates/linux/src/process_group.rs"]),
    ("libc::kill(", "PinnedProcess::send", &[]),
    ("libc::tgkill(", "PinnedProcess::send", &[]),
    ("setpriority_", "ProcessGroup::set_nice", &["crates/linux/src/process_group.rs", NICE]),
    (
        "pidfd_open(",
        "PinnedProcess",
        &["crates/linux/src/pidfd.rs", "crates/linux/src/pinned.rs"],
    ),
    (
        "PidFd::open(",
        "PinnedProcess",
        &["crates/linux/src/pidfd.rs", "crates/linux/src/pinned.rs"],
    ),
    ("affinity::restrict(", "PinnedThread::restrict", &["crates/linux/src/pinned.rs"]),
    ("scheduling::set(", "PinnedThread::set_class", &["crates/linux/src/pinned.rs"]),
    ("SYS_sched_setaffinity", "PinnedThread::restrict", &["crates/linux/src/affinity.rs"]),
    (
        "SYS_sched_setattr",
        "PinnedThread::set_class",
        &["crates/linux/src/scheduling.rs", ALLOWED_CALLS],
    ),
    ("process_vm_writev(", "process_vm::write", &["crates/linux/src/process_vm.rs"]),
    ("process_vm_readv(", "process_vm::read", &["crates/linux/src/process_vm.rs"]),
    (
        "\"cgroup.procs\"",
        "ControlGroup::mover",
        &["crates/linux/src/cgroup/", FREEZER, EXISTS, NAMESPACES],
    ),
    ("\"cgroup.threads\"", "ControlGroup::mover", &["crates/linux/src/cgroup/"]),
    (
        "\"/proc/{",
        "PinnedProcess::read",
        &["crates/linux/src/", SHOWN_THREADS, SHOWN_LAUNCHER, SHOWN_STARTER, SHOWN_CULPRIT],
    ),
];

/// A file that names system calls by their numbers in a filter, and calls none of them.
const ALLOWED_CALLS: &str = "crates/linux/src/seccomp.rs";
/// A file that reads and sets the nice value of the calling thread.
const NICE: &str = "crates/linux/src/scheduling.rs";
/// A folder whose code only tests whether such a file exists.
const FREEZER: &str = "crates/gang/src/";
/// A file that reads only the network namespaces of its processes.
const NAMESPACES: &str = "crates/enforce/src/containers.rs";
const EXISTS: &str = "crates/enforce/src/kernel/cgroups.rs";
/// Files (this one and the next three) that read figures to show, and do nothing to the process.
const SHOWN_THREADS: &str = "crates/advise/src/tree.rs";
const SHOWN_LAUNCHER: &str = "cli/src/mpi/first_rank.rs";
const SHOWN_CULPRIT: &str = "crates/study/src/foreign_load.rs";
const SHOWN_STARTER: &str = "crates/fit/src/ranks.rs";

pub(super) fn check(sources: &Sources) -> Vec<String> {
    sources.rust().filter(|file| is_shipped(file)).flat_map(of_file).collect()
}

fn is_shipped(file: &SourceFile) -> bool {
    file.path.contains("src/")
        && !file.has_ending("/tests.rs")
        && !["crates/host-tests/", "xtask/"].iter().any(|folder| file.path.starts_with(folder))
}

fn of_file(file: &SourceFile) -> Vec<String> {
    let shipped = file.text.split("\n#[cfg(test)]\n").next().unwrap_or_default();
    let mut problems = Vec::new();
    for (line, at) in shipped.lines().zip(1..).filter(|(line, _)| !line.trim_start().starts_with("//")) {
        for (call, instead, allowed) in BARE {
            let may_stand = allowed.iter().any(|place| file.path.starts_with(place));
            // the ID of the calling thread cannot be reused while the thread runs
            if line.contains(call) && !line.contains(&format!("{call}Tid::SELF")) && !may_stand {
                problems.push(format!("{}:{at}: {call} takes a bare number; use {instead}", file.path));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_with_a_bare_number_is_a_problem_where_it_is_shipped() {
        let text = "// libc::kill(1)\nfn a() { libc::kill(7, 9); affinity::restrict(Tid::SELF, &all); }\n\
                    fn b() { group.write(\"cgroup.procs\", &number); read(format!(\"/proc/{number}/stat\")) }\n\
                    \n#[cfg(test)]\nmod tests { fn c() { PidFd::open(7); } }\n";
        let files = [
            ("crates/enforce/src/a.rs", text),
            ("crates/enforce/tests/a.rs", text),
            ("crates/linux/src/cgroup/mover.rs", "fn a() { open(\"cgroup.procs\") }\n"),
            (
                "crates/linux/src/pinned.rs",
                "fn a() { PidFd::open(7); affinity::restrict(number, &all) }\n",
            ),
        ];
        let found = [(2, "libc::kill("), (3, "\"cgroup.procs\""), (3, "\"/proc/{")];
        let problems = check(&Sources::from_texts(&files));
        assert_eq!(problems.len(), found.len(), "{problems:?}");
        for (problem, (line, call)) in problems.iter().zip(found) {
            assert!(problem.starts_with(&format!("crates/enforce/src/a.rs:{line}: {call}")), "{problem}");
        }
    }
}
