//! Tests what the two processes of an interposed queue may still do, and what they have given up.

use crate::interposed_shared::{DEVICE, POLICY, QueueUnderTest, WAYS};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use unisono_host_tests::{TestOutcome, host_tests, program, require};
use unisono_linux::process::{PidFd, Signal};

/// Returns the value of a line of a process's `/proc/PID/status`.
fn status(process: u32, name: &str) -> String {
    let all = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("such a line").trim().to_owned()
}

fn bits(process: u32, name: &str) -> u64 {
    u64::from_str_radix(&status(process, name), 16).expect("a set")
}

/// Returns the kinds of the descriptors that a process has open, besides standard input, output and error, in
/// order.
fn open(process: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs");
    let mut all: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|number| number.len() > 1 || number > "2"))
        .filter_map(|entry| fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok())
        .map(|to| to.split(['[', '(']).next().unwrap_or_default().to_owned())
        .collect();
    all.sort();
    all
}

fn the_worker_is_a_user_of_its_own_with_nothing_but_its_frames() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    let mut users = BTreeSet::new();
    for way in WAYS {
        place.apply(way)?;
        let (guard, worker) = place.processes();
        let user = status(worker, "Uid");
        let one = user.split('\t').next().expect("four of them").to_owned();
        assert_eq!(user, [&one[..]; 4].join("\t"));
        assert_eq!(status(worker, "Gid"), user);
        assert!(one.parse::<u32>().expect("a number") > 65_535, "{one} may be somebody's");
        assert!(users.insert(one), "another queue had the same user");
        assert_eq!(status(worker, "Groups"), "");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(bits(worker, set), 0, "{set}");
        }
        let wanted: &[&str] = match way {
            "tun" => &["/dev/net/tun", "anon_inode:", "socket:", "socket:"],
            _ => &["anon_inode:", "socket:", "socket:", "socket:"],
        };
        assert_eq!(open(worker), wanted, "{way}");
        // both threads of the worker are restricted, and so is the guard
        let tasks = fs::read_dir(format!("/proc/{worker}/task")).expect("it runs").flatten();
        let tasks: Vec<u32> = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
        assert_eq!(tasks.len(), 2, "{tasks:?}");
        for process in tasks.into_iter().chain([guard]) {
            assert_eq!((status(process, "NoNewPrivs"), status(process, "Seccomp")), ("1".into(), "2".into()));
            assert_eq!(fs::read(format!("/proc/{process}/environ")).expect("it runs"), b"");
            assert_eq!(fs::read_link(format!("/proc/{process}/cwd")).expect("it runs").to_str(), Some("/"));
        }
        // CAP_KILL, CAP_NET_ADMIN, CAP_BPF (before Linux 5.8 CAP_SYS_ADMIN)
        let kept = bits(guard, "CapEff");
        let few = 1 << 5 | 1 << 12;
        assert!(kept == few | 1 << 39 || kept == few | 1 << 21, "{kept:x}");
        assert_eq!((bits(guard, "CapPrm"), bits(guard, "CapBnd"), bits(guard, "CapInh")), (kept, kept, 0));
        assert!(place.queue(&["clear"]).status.success());
    }
    Ok(())
}

fn a_lock_that_was_held_while_a_policy_was_applied_is_free_afterwards() -> TestOutcome {
    require::program("flock", "apt-get install util-linux")?;
    let place = QueueUnderTest::new(POLICY)?;
    let lock = tempfile::NamedTempFile::new().expect("room");
    place.enter(0);
    let applied = Command::new("flock")
        .arg(lock.path())
        .arg(program::unisono())
        .args(["queue", "apply", place.policy.path().to_str().expect("letters"), "--dev", DEVICE])
        .args(["--backend", "interposed"])
        .stdin(Stdio::null())
        .output()
        .expect("flock starts");
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    place.figures();
    let free = Command::new("flock").arg("--nonblock").arg(lock.path()).arg("true").status();
    assert!(free.expect("flock starts").success(), "the queue holds a lock of whoever applied it");
    Ok(())
}

fn an_answer_comes_beside_hundreds_who_connect_and_ask_nothing() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    place.apply("tun")?;
    place.enter(0);
    let journal = unisono_enforce::journal::Journal::for_device(DEVICE).expect("proc is mounted");
    let socket = journal.path().with_extension("socket");
    let idle: Vec<UnixStream> =
        (0..600).map(|_| UnixStream::connect(&socket).expect("somebody listens")).collect();
    for _ in 0..5 {
        place.figures();
    }
    drop(idle);
    Ok(())
}

fn hangups_end_neither_process_of_a_queue() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    place.apply("tun")?;
    let (guard, worker) = place.processes();
    for _ in 0..3 {
        for process in [guard, worker] {
            PidFd::open(process).expect("it runs").send(Signal::Hangup).expect("root may");
        }
        place.figures();
    }
    assert_eq!(place.processes(), (guard, worker));
    assert!(place.queue(&["clear"]).status.success());
    Ok(())
}

host_tests![needs OwnQueues;
    hangups_end_neither_process_of_a_queue within 60,
    the_worker_is_a_user_of_its_own_with_nothing_but_its_frames within 120,
    a_lock_that_was_held_while_a_policy_was_applied_is_free_afterwards within 120,
    an_answer_comes_beside_hundreds_who_connect_and_ask_nothing within 60,
];
