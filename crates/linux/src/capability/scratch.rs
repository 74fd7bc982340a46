//! Runs trials that must not affect this process: in a thread, or in a forked child.

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::fs::File;
use std::io::{self, Read};
use std::thread;

/// Runs `body` in a thread that ends afterwards, for state that the kernel keeps per thread (scheduling
/// class). The result is 0 or an `errno`.
pub(super) fn in_thread(body: impl FnOnce() -> i32 + Send) -> i32 {
    thread::scope(|scope| scope.spawn(body).join()).unwrap_or(libc::EAGAIN)
}

/// Returns 0 for success, else the `errno`. Async-signal-safe.
pub(super) fn errno<T>(result: Result<T, impl Into<io::Error>>) -> i32 {
    result.err().map_or(0, |error| error.into().raw_os_error().unwrap_or(libc::EIO))
}

/// Returns 0 if the system call succeeded, else its `errno`.
pub(super) fn errno_of(result: i64) -> i32 {
    if result >= 0 { 0 } else { io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) }
}

/// Returns the text of an `errno`, without the number that `std` appends.
pub(super) fn words(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Runs `body` in a forked child and returns the array that it filled in. This is for state that the kernel
/// keeps per process (namespaces), which vanishes with the child. A child that does not end within two
/// seconds is killed by its alarm.
///
/// # Safety
/// The child of a process with several threads may only make async-signal-safe calls: `body` must not
/// allocate, lock or panic.
pub(super) unsafe fn in_child<const N: usize>(body: impl FnOnce(&mut [i32; N])) -> io::Result<[i32; N]> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: the child below makes only async-signal-safe calls, by this function's contract.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: an async-signal-safe call without pointers; its default action ends the child.
        unsafe { libc::alarm(2) };
        let mut answers = [libc::EIO; N];
        body(&mut answers);
        for answer in answers {
            let _ = rustix::io::write(&writer, &answer.to_ne_bytes());
        }
        // SAFETY: ends the child without running code of the parent.
        unsafe { libc::_exit(0) };
    }
    let child = Pid::from_raw(child).filter(|_| child > 0).ok_or_else(io::Error::last_os_error)?;
    drop(writer);
    let (mut answers, mut bytes, mut reader) = ([0; N], [0; 4], File::from(reader));
    let read = answers.iter_mut().try_for_each(|answer| {
        reader.read_exact(&mut bytes)?;
        *answer = i32::from_ne_bytes(bytes);
        io::Result::Ok(())
    });
    waitpid(Some(child), WaitOptions::empty())?;
    read.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the trial did not end"))?;
    Ok(answers)
}

pub(super) fn close(descriptor: i32) {
    // SAFETY: the callers own the descriptor and do not use it again.
    unsafe { rustix::io::close(descriptor) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_answers_come_back() {
        // SAFETY: the body only writes to its array.
        let answers = unsafe { in_child::<3>(|answers| *answers = [1, 2, 3]) };
        assert_eq!(answers.expect("a child"), [1, 2, 3]);
    }

    #[test]
    fn a_child_that_hangs_is_killed() {
        // SAFETY: sleeping is one system call.
        let answers = unsafe { in_child::<1>(|_| thread::sleep(std::time::Duration::from_secs(60))) };
        assert_eq!(answers.expect_err("it hangs").kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn words_carry_no_number() {
        assert_eq!(words(libc::EPERM), "operation not permitted");
    }
}
