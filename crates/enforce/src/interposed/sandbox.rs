//! The system calls that the two processes of a queue may still make once they have begun.
//!
//! | process | user | capabilities | system calls |
//! |---|---|---|---|
//! | worker: parses untrusted frames | a user that has no other process | none | [`WORKER`]: reads and writes its open descriptors, opens none |
//! | guard: reads requests of root | root | [`CAPABILITIES`] | [`GUARD`]: also files, BPF programs and their tables; no sockets, no new processes |
//!
//! The worker's request thread ([`super::request_thread`]) has the worker's list.
//!
//! [`WORKER`] and [`GUARD`] are lists of permitted calls; every other call fails with `EPERM`. No permitted
//! call can give a socket an address, so a packet socket that is bound to one device can send only there.
//! `sendmsg` is on neither list, because its destination is behind a pointer, which a filter cannot follow;
//! frames in several pieces are sent by `writev`.
//!
//! If a filter forbids a call that turns out to be necessary, the worker ends or the guard cannot answer.
//! When the worker ends, the traffic continues unscheduled, as after any other end. Reference: seccomp(2);
//! [`unisono_linux::seccomp`].

use std::io;
use unisono_linux::privilege::{self, Privilege};
use unisono_linux::seccomp::ArgumentTest::{Is, Without};
use unisono_linux::seccomp::{CallRule, Filter, SystemCall};

/// The guard detaches the program from the device, loads another one, and ends the worker, although that runs
/// as another user.
const CAPABILITIES: [Privilege; 3] = [Privilege::NetworkAdministration, Privilege::Bpf, Privilege::Kill];

const SOL_SOCKET: u64 = 1;
const SOL_XDP: u64 = 283;
const RECEIVE_TIMEOUT: u64 = 20;
const SEND_TIMEOUT: u64 = 21;
const MAP_CREATE: u64 = 0;
const MAP_UPDATE: u64 = 2;
const PROGRAM_LOAD: u64 = 5;
const EXECUTABLE: u32 = 4;

/// Calls of both processes: wait, read, write, read the clock, manage memory that is not executable, and end.
const BOTH: [CallRule; 26] = [
    CallRule(SystemCall::READ, &[]),
    CallRule(SystemCall::WRITE, &[]),
    // argument 4, counted from 0, is the destination address: it must be null
    CallRule(SystemCall::SENDTO, &[Is(4, 0)]),
    CallRule(SystemCall::RECVFROM, &[]),
    CallRule(SystemCall::PPOLL, &[]),
    CallRule(SystemCall::CLOSE, &[]),
    CallRule(SystemCall::CLOCK_GETTIME, &[]),
    CallRule(SystemCall::CLOCK_NANOSLEEP, &[]),
    CallRule(SystemCall::NANOSLEEP, &[]),
    CallRule(SystemCall::SCHED_YIELD, &[]),
    CallRule(SystemCall::BRK, &[]),
    CallRule(SystemCall::MMAP, &[Without(2, EXECUTABLE)]),
    CallRule(SystemCall::MPROTECT, &[Without(2, EXECUTABLE)]),
    CallRule(SystemCall::MREMAP, &[]),
    CallRule(SystemCall::MUNMAP, &[]),
    CallRule(SystemCall::MADVISE, &[]),
    CallRule(SystemCall::FUTEX, &[]),
    CallRule(SystemCall::GETRANDOM, &[]),
    CallRule(SystemCall::GETPID, &[]),
    CallRule(SystemCall::RT_SIGRETURN, &[]),
    CallRule(SystemCall::RT_SIGPROCMASK, &[]),
    CallRule(SystemCall::RT_SIGACTION, &[]),
    CallRule(SystemCall::SIGALTSTACK, &[]),
    CallRule(SystemCall::RESTART_SYSCALL, &[]),
    CallRule(SystemCall::EXIT, &[]),
    CallRule(SystemCall::EXIT_GROUP, &[]),
];

/// The worker also sends frames in pieces, reads the kernel's counters of its socket, and changes its own
/// scheduling class ([`super::urgency`]), at most to the least real-time priority.
const WORKER: [CallRule; 3] = [
    CallRule(SystemCall::WRITEV, &[]),
    CallRule(SystemCall::GETSOCKOPT, &[Is(1, SOL_XDP)]),
    CallRule(SystemCall::SCHED_SETATTR, &[Is(0, 0)]),
];

/// The guard also answers requests, keeps the journal, replaces the program when control groups change, and
/// ends the worker.
const GUARD: &[CallRule] = &[
    CallRule(SystemCall::ACCEPT4, &[]),
    CallRule(SystemCall::SETSOCKOPT, &[Is(1, SOL_SOCKET), Is(2, RECEIVE_TIMEOUT)]),
    CallRule(SystemCall::SETSOCKOPT, &[Is(1, SOL_SOCKET), Is(2, SEND_TIMEOUT)]),
    CallRule(SystemCall::BPF, &[Is(0, MAP_CREATE)]),
    CallRule(SystemCall::BPF, &[Is(0, MAP_UPDATE)]),
    CallRule(SystemCall::BPF, &[Is(0, PROGRAM_LOAD)]),
    CallRule(SystemCall::KILL, &[]),
    CallRule(SystemCall::WAIT4, &[]),
    CallRule(SystemCall::PIDFD_OPEN, &[]),
    CallRule(SystemCall::PIDFD_SEND_SIGNAL, &[]),
    CallRule(SystemCall::GETEUID, &[]),
    // asks whether the process is in a session of its own, where a hangup does not end it
    CallRule(SystemCall::GETSID, &[Is(0, 0)]),
    CallRule(SystemCall::OPENAT, &[]),
    CallRule(SystemCall::FCNTL, &[]),
    CallRule(SystemCall::FLOCK, &[]),
    CallRule(SystemCall::FSYNC, &[]),
    CallRule(SystemCall::FTRUNCATE, &[]),
    CallRule(SystemCall::FSTAT, &[]),
    CallRule(SystemCall::NEWFSTATAT, &[]),
    CallRule(SystemCall::STATX, &[]),
    CallRule(SystemCall::LSEEK, &[]),
    CallRule(SystemCall::GETDENTS64, &[]),
    CallRule(SystemCall::MKDIRAT, &[]),
    CallRule(SystemCall::READLINKAT, &[]),
    CallRule(SystemCall::RENAMEAT, &[]),
    CallRule(SystemCall::UNLINKAT, &[]),
    #[cfg(target_arch = "x86_64")]
    CallRule(SystemCall::MKDIR, &[]),
    #[cfg(target_arch = "x86_64")]
    CallRule(SystemCall::POLL, &[]),
    #[cfg(target_arch = "x86_64")]
    CallRule(SystemCall::READLINK, &[]),
    #[cfg(target_arch = "x86_64")]
    CallRule(SystemCall::RENAME, &[]),
    #[cfg(target_arch = "x86_64")]
    CallRule(SystemCall::RMDIR, &[]),
    #[cfg(target_arch = "x86_64")]
    CallRule(SystemCall::UNLINK, &[]),
];

/// Restricts the worker. It must have given up its privileges already.
pub(super) fn worker() -> io::Result<()> {
    Filter::allowing(&[&WORKER[..], &BOTH].concat()).install()
}

/// Restricts the guard, and gives up the privileges that it does not use.
pub(super) fn guard() -> io::Result<()> {
    privilege::retain_only(&CAPABILITIES)?;
    Filter::allowing(&[&BOTH[..], GUARD].concat()).install()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, SocketType, sockopt};
    use std::io::IoSlice;
    use std::net::SocketAddr;
    use std::os::fd::AsFd;
    use std::process::Command;

    /// A call, in words, and its result.
    type Tried = (&'static str, Result<(), Errno>);

    fn errno<T>(result: io::Result<T>) -> Result<(), Errno> {
        result.map(drop).map_err(|error| Errno::from_raw_os_error(error.raw_os_error().unwrap_or(0)))
    }

    /// Tries forbidden calls in a thread that a filter restricts.
    fn tried(bind: fn() -> io::Result<()>) -> io::Result<Vec<Tried>> {
        let socket = |kind| rustix::net::socket(AddressFamily::INET, kind, None).expect("a socket");
        let (datagrams, stream) = (socket(SocketType::DGRAM), socket(SocketType::STREAM));
        let namespace = std::fs::File::open("/proc/self/ns/net").expect("proc is mounted");
        let nowhere: SocketAddr = "127.0.0.1:9".parse().expect("an address");
        let anywhere: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let bound = std::thread::spawn(move || {
            bind()?;
            let (none, pieces) = (SendFlags::empty(), [IoSlice::new(b"x")]);
            let mut no_descriptors = SendAncillaryBuffer::default();
            Ok(vec![
                ("socket", rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).map(drop)),
                ("bind", rustix::net::bind(&datagrams, &anywhere)),
                ("connect", rustix::net::connect(&datagrams, &nowhere)),
                ("listen", rustix::net::listen(&stream, 1)),
                ("sendto with an address", {
                    rustix::net::sendto(&datagrams, b"x", none, &nowhere).map(|_| ())
                }),
                ("sendmsg", {
                    rustix::net::sendmsg(&datagrams, &pieces, &mut no_descriptors, none).map(|_| ())
                }),
                ("setsockopt", sockopt::set_socket_broadcast(&datagrams, true)),
                ("getsockopt", sockopt::socket_type(&datagrams).map(|_| ())),
                ("setns", { rustix::thread::move_into_link_name_space(namespace.as_fd(), None) }),
                ("setuid", rustix::thread::set_thread_uid(rustix::process::Uid::ROOT)),
                ("a program", errno(Command::new("/bin/true").status())),
                ("a thread", errno(std::thread::Builder::new().spawn(|| ()))),
            ])
        });
        bound.join().expect("it does not panic")
    }

    #[test]
    fn neither_process_can_reach_another_device_or_address_or_start_anything() {
        let filters: [fn() -> io::Result<()>; 2] =
            [worker, || Filter::allowing(&[&BOTH[..], GUARD].concat()).install()];
        for filter in filters {
            match tried(filter) {
                Ok(tried) => {
                    let done: Vec<&Tried> =
                        tried.iter().filter(|(_, result)| *result != Err(Errno::PERM)).collect();
                    assert!(tried.len() == 12 && done.is_empty(), "{done:?}");
                }
                Err(error) => eprintln!("skipped: no filters here: {error}"),
            }
        }
    }

    #[test]
    fn the_worker_opens_no_file_and_signals_nobody_and_sends_through_what_it_has() {
        let bound = std::thread::spawn(|| {
            let (near, far) = std::os::unix::net::UnixStream::pair()?;
            worker()?;
            let sent = rustix::net::send(&near, b"x", SendFlags::empty());
            let own = rustix::process::getpid();
            Ok::<_, io::Error>((
                sent,
                rustix::io::writev(&near, &[IoSlice::new(b"y"), IoSlice::new(b"z")]),
                rustix::io::read(&far, &mut [0; 8]),
                errno(std::fs::File::open("/dev/null")),
                rustix::process::test_kill_process(own),
            ))
        });
        match bound.join().expect("it does not panic") {
            Ok(done) => assert_eq!(done, (Ok(1), Ok(2), Ok(3), Err(Errno::PERM), Err(Errno::PERM))),
            Err(error) => eprintln!("skipped: no filters here: {error}"),
        }
    }
}
