//! Restricts the system calls of this thread: a filter in the kernel (seccomp).
//!
//! ```text
//!   system call --> architecture as built for? --no--> the process is killed
//!                        | yes
//!                   a rule for this call whose conditions all hold? --yes--> the call is made
//!                        | no
//!                   the call fails with EPERM, without effect
//! ```
//!
//! A filter is a list of permitted calls. All other calls fail with `EPERM`: if a newer C library makes
//! another call than an older one, the caller gets an error that it can handle, and the process is not
//! killed. The filter sees arguments but not memory behind pointers: it can require that a pointer is null,
//! but cannot check a structure. It binds the calling thread and all threads and processes that it starts,
//! permanently. Threads that are already running are not bound, so install the filter in a single-threaded
//! process.
//!
//! Cost: some 50 instructions of a small interpreter (compiled by the kernel if it can) for each system call.
//! When not to use it: around foreign code whose calls are unknown. Reference: seccomp(2);
//! Documentation/userspace-api/seccomp_filter.rst; classic BPF: McCanne & Jacobson, USENIX 1993.

use std::io;

/// A system call, by its number on this architecture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemCall(u32);

/// Defines a constant for each call, with the name of its man page.
macro_rules! calls {
    ($($(#[$only:meta])? $name:ident = $number:ident;)*) => {
        #[allow(missing_docs, reason = "the man page of the same name says what each does")]
        impl SystemCall {
            $($(#[$only])? pub const $name: Self = Self(libc::$number as u32);)*
        }
    };
}

calls! {
    ACCEPT4 = SYS_accept4;
    BPF = SYS_bpf;
    BRK = SYS_brk;
    CLOCK_GETTIME = SYS_clock_gettime;
    CLOCK_NANOSLEEP = SYS_clock_nanosleep;
    CLOSE = SYS_close;
    EPOLL_CTL = SYS_epoll_ctl;
    EXIT = SYS_exit;
    FCHMODAT = SYS_fchmodat;
    EXIT_GROUP = SYS_exit_group;
    FCNTL = SYS_fcntl;
    FDATASYNC = SYS_fdatasync;
    FLOCK = SYS_flock;
    FSTAT = SYS_fstat;
    FSYNC = SYS_fsync;
    FTRUNCATE = SYS_ftruncate;
    FUTEX = SYS_futex;
    GETDENTS64 = SYS_getdents64;
    GETEUID = SYS_geteuid;
    GETPID = SYS_getpid;
    GETRANDOM = SYS_getrandom;
    GETSID = SYS_getsid;
    GETSOCKOPT = SYS_getsockopt;
    KILL = SYS_kill;
    LSEEK = SYS_lseek;
    MADVISE = SYS_madvise;
    MKDIRAT = SYS_mkdirat;
    MMAP = SYS_mmap;
    MPROTECT = SYS_mprotect;
    MREMAP = SYS_mremap;
    MUNMAP = SYS_munmap;
    NANOSLEEP = SYS_nanosleep;
    NEWFSTATAT = SYS_newfstatat;
    OPENAT = SYS_openat;
    PIDFD_OPEN = SYS_pidfd_open;
    PIDFD_SEND_SIGNAL = SYS_pidfd_send_signal;
    PPOLL = SYS_ppoll;
    READ = SYS_read;
    READLINKAT = SYS_readlinkat;
    RECVFROM = SYS_recvfrom;
    RENAMEAT = SYS_renameat;
    RESTART_SYSCALL = SYS_restart_syscall;
    RT_SIGACTION = SYS_rt_sigaction;
    RT_SIGPROCMASK = SYS_rt_sigprocmask;
    RT_SIGRETURN = SYS_rt_sigreturn;
    SCHED_SETATTR = SYS_sched_setattr;
    SCHED_YIELD = SYS_sched_yield;
    SENDTO = SYS_sendto;
    SETSOCKOPT = SYS_setsockopt;
    SIGALTSTACK = SYS_sigaltstack;
    STATX = SYS_statx;
    UNLINKAT = SYS_unlinkat;
    WAIT4 = SYS_wait4;
    WRITE = SYS_write;
    WRITEV = SYS_writev;
    // older calls, which x86-64 has and 64-bit ARM lacks
    #[cfg(target_arch = "x86_64")] CHMOD = SYS_chmod;
    #[cfg(target_arch = "x86_64")] MKDIR = SYS_mkdir;
    #[cfg(target_arch = "x86_64")] POLL = SYS_poll;
    #[cfg(target_arch = "x86_64")] READLINK = SYS_readlink;
    #[cfg(target_arch = "x86_64")] RENAME = SYS_rename;
    #[cfg(target_arch = "x86_64")] RMDIR = SYS_rmdir;
    #[cfg(target_arch = "x86_64")] UNLINK = SYS_unlink;
}

/// A condition on an argument; arguments count from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgumentTest {
    /// The argument, all 64 bits of it, equals this number.
    Is(u8, u64),
    /// None of these bits is set in the lower 32 bits of the argument.
    Without(u8, u32),
}

/// A call that is permitted if all conditions hold. Several rules for the same call are alternatives.
#[derive(Clone, Copy, Debug)]
pub struct CallRule(pub SystemCall, pub &'static [ArgumentTest]);

/// `AUDIT_ARCH_...` of the target architecture; `None` if filters have not been tested there.
const ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else {
    None
};

/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_SET: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

#[derive(Clone)]
pub struct Filter(Vec<libc::sock_filter>);

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filter({} instructions)", self.0.len())
    }
}

impl Filter {
    /// Permits these calls and refuses all others with `EPERM`.
    pub fn allowing(rules: &[CallRule]) -> Self {
        let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        Self::with(rules, libc::SECCOMP_RET_ALLOW, refuse)
    }

    /// Refuses these calls with an error number and permits all others: to test a program's handling of such
    /// an error.
    pub fn refusing(rules: &[CallRule], errno: i32) -> Self {
        Self::with(rules, libc::SECCOMP_RET_ERRNO | errno as u32, libc::SECCOMP_RET_ALLOW)
    }

    fn with(rules: &[CallRule], listed: u32, other: u32) -> Self {
        let mut program = vec![
            statement(LOAD, ARCHITECTURE_AT),
            jump(JUMP_IF_EQUAL, ARCHITECTURE.unwrap_or_default(), 1, 0),
            statement(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        ];
        for CallRule(call, conditions) in rules {
            // each condition takes two instructions for each half of the argument that it tests
            let length = |when: &ArgumentTest| if matches!(when, ArgumentTest::Is(..)) { 4 } else { 2 };
            let mut left: u8 = conditions.iter().map(length).sum::<u8>() + 1;
            program.push(statement(LOAD, NUMBER_AT));
            program.push(jump(JUMP_IF_EQUAL, call.0, 0, left));
            let mut check = |argument: u8, half: u32, code: u16, operand: u32| {
                left -= 2;
                let (if_true, if_false) = if code == JUMP_IF_EQUAL { (0, left) } else { (left, 0) };
                program.push(statement(LOAD, ARGUMENTS_AT + 8 * u32::from(argument) + half));
                program.push(jump(code, operand, if_true, if_false));
            };
            for condition in *conditions {
                match *condition {
                    ArgumentTest::Is(argument, value) => {
                        check(argument, LOWER, JUMP_IF_EQUAL, value as u32);
                        check(argument, UPPER, JUMP_IF_EQUAL, (value >> 32) as u32);
                    }
                    ArgumentTest::Without(argument, bits) => check(argument, LOWER, JUMP_IF_SET, bits),
                }
            }
            program.push(statement(RETURN, listed));
        }
        program.push(statement(RETURN, other));
        Self(program)
    }

    /// Binds the calling thread, and all threads and programs that it starts, permanently. They can no longer
    /// gain privileges by starting a program (`PR_SET_NO_NEW_PRIVS`), because a filter could mislead such a
    /// program. Fails with `Unsupported` on processors other than x86-64 and 64-bit ARM, and on kernels
    /// without `CONFIG_SECCOMP_FILTER`.
    pub fn install(&self) -> io::Result<()> {
        if ARCHITECTURE.is_none() {
            let text = "system calls are filtered on x86-64 and 64-bit ARM only";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        crate::privilege::never_more()?;
        let program = libc::sock_fprog {
            len: u16::try_from(self.0.len()).map_err(io::Error::other)?,
            filter: self.0.as_ptr().cast_mut(),
        };
        // SAFETY: the program is valid for reads of its length during the call; the kernel checks and copies
        // it.
        let installed = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0_u32, &raw const program)
        };
        match installed {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The offsets of the halves of a 64-bit argument.
const LOWER: u32 = if cfg!(target_endian = "little") { 0 } else { 4 };
const UPPER: u32 = 4 - LOWER;

fn statement(code: u16, operand: u32) -> libc::sock_filter {
    jump(code, operand, 0, 0)
}

/// Makes a jump; its offsets count the instructions that it skips.
fn jump(code: u16, operand: u32, if_true: u8, if_false: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt: if_true, jf: if_false, k: operand }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// Runs the filter as the kernel does; returns its result.
    fn decide(filter: &Filter, architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut data = [0_u8; 64];
        data[..4].copy_from_slice(&number.to_ne_bytes());
        data[4..8].copy_from_slice(&architecture.to_ne_bytes());
        for (at, argument) in arguments.iter().enumerate() {
            data[16 + 8 * at..][..8].copy_from_slice(&argument.to_ne_bytes());
        }
        let (mut at, mut value) = (0, 0);
        loop {
            let instruction = filter.0[at];
            let operand = instruction.k;
            at += 1;
            let holds = match instruction.code {
                RETURN => return operand,
                LOAD => {
                    let from = operand as usize;
                    value = u32::from_ne_bytes([data[from], data[from + 1], data[from + 2], data[from + 3]]);
                    continue;
                }
                JUMP_IF_EQUAL => value == operand,
                _ => value & operand != 0,
            };
            at += usize::from(if holds { instruction.jt } else { instruction.jf });
        }
    }

    const RULES: [CallRule; 4] = [
        CallRule(SystemCall::READ, &[]),
        CallRule(SystemCall::SENDTO, &[ArgumentTest::Is(4, 0), ArgumentTest::Without(3, 0x40)]),
        CallRule(SystemCall::FCNTL, &[ArgumentTest::Is(1, 5)]),
        CallRule(SystemCall::FCNTL, &[ArgumentTest::Is(1, u64::MAX)]),
    ];

    #[test]
    fn a_listed_call_is_allowed_when_all_conditions_of_one_of_its_rules_hold() {
        let Some(architecture) = ARCHITECTURE else {
            eprintln!("skipped: no filters on this architecture");
            return;
        };
        let filter = Filter::allowing(&RULES);
        let allows = |call: SystemCall, arguments: [u64; 6]| {
            decide(&filter, architecture, call.0, arguments) == libc::SECCOMP_RET_ALLOW
        };
        assert!(allows(SystemCall::READ, [u64::MAX; 6]));
        assert!(!allows(SystemCall::WRITE, [0; 6]));
        assert!(allows(SystemCall::SENDTO, [1, 2, 3, 0xbf, 0, 6]));
        assert!(!allows(SystemCall::SENDTO, [1, 2, 3, 0, 5, 6]), "an address");
        assert!(!allows(SystemCall::SENDTO, [1, 2, 3, 0, 1 << 32, 6]), "an address whose lower half is 0");
        assert!(!allows(SystemCall::SENDTO, [1, 2, 3, 0x41, 0, 6]), "a bit that is not allowed");
        assert!(
            allows(SystemCall::FCNTL, [0, 5, 0, 0, 0, 0])
                && allows(SystemCall::FCNTL, [0, u64::MAX, 0, 0, 0, 0])
        );
        assert!(!allows(SystemCall::FCNTL, [0, 6, 0, 0, 0, 0]));
        // the call numbers of x32; it has the same architecture value on x86-64
        assert!(!allows(SystemCall(SystemCall::READ.0 | 0x4000_0000), [0; 6]));
    }

    #[test]
    fn a_call_of_another_architecture_ends_the_process() {
        let i386 = 0x4000_0003;
        let answer = decide(&Filter::allowing(&RULES), i386, SystemCall::READ.0, [0; 6]);
        assert_eq!(answer, libc::SECCOMP_RET_KILL_PROCESS);
    }

    #[test]
    fn the_kernel_heeds_a_filter_in_the_thread_that_installed_it_and_in_no_other() {
        let null = std::fs::File::open("/dev/null").expect("it is on every Linux");
        // SAFETY: reads the flags of an open descriptor.
        let ask = || unsafe { libc::fcntl(null.as_raw_fd(), libc::F_GETFD) };
        std::thread::scope(|scope| {
            let bound = scope.spawn(|| {
                Filter::refusing(
                    &[CallRule(SystemCall::FCNTL, &[ArgumentTest::Is(1, libc::F_GETFD as u64)])],
                    libc::EXDEV,
                )
                .install()
                .map(|()| (ask(), io::Error::last_os_error().raw_os_error()))
            });
            match bound.join().expect("it does not panic") {
                Ok(refused) => assert_eq!(refused, (-1, Some(libc::EXDEV))),
                Err(error) => eprintln!("skipped: no filters here: {error}"),
            }
        });
        assert!(ask() >= 0);
    }
}
