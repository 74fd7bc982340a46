//! The synchronization calls: fence, post-start-complete-wait, lock-unlock, flush.

use crate::error::{Status, answer, argument, null, rank};
use crate::window::{WindowHandle, window};
use std::ffi::c_int;
use unisono_rma::{Assert, Error, Lock, Rank};

/// Post, start, lock: the other side has made its matching call before, or no conflicting lock is asked for.
pub const UNISONO_ASSERT_NO_CHECK: c_int = 1;
/// Fence, post: the local part was not written by local stores since the last one.
pub const UNISONO_ASSERT_NO_STORE: c_int = 2;
/// Fence, post: nobody puts or accumulates into the local part until the next one.
pub const UNISONO_ASSERT_NO_PUT: c_int = 4;
/// Fence: no operations since the last fence; on all ranks or on none.
pub const UNISONO_ASSERT_NO_PRECEDE: c_int = 8;
/// Fence: no operations until the next fence; on all ranks or on none.
pub const UNISONO_ASSERT_NO_SUCCEED: c_int = 16;

/// Kinds of locks.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockType {
    /// Others may hold it too, if shared.
    Shared = 1,
    /// Nobody else holds it.
    Exclusive = 2,
}

fn assert(bits: c_int) -> Result<Assert, Error> {
    const ALL: [(c_int, Assert); 5] = [
        (UNISONO_ASSERT_NO_CHECK, Assert::NO_CHECK),
        (UNISONO_ASSERT_NO_STORE, Assert::NO_STORE),
        (UNISONO_ASSERT_NO_PUT, Assert::NO_PUT),
        (UNISONO_ASSERT_NO_PRECEDE, Assert::NO_PRECEDE),
        (UNISONO_ASSERT_NO_SUCCEED, Assert::NO_SUCCEED),
    ];
    if bits & !31 != 0 {
        return Err(argument(format!("{bits:#x} is no sum of UNISONO_ASSERT_...")));
    }
    let set = ALL.into_iter().filter(|(bit, _)| bits & bit != 0);
    Ok(set.fold(Assert::NONE, |all, (_, one)| all | one))
}

/// The ranks of a group.
///
/// # Safety
/// `ranks` is null or readable for `count` numbers.
unsafe fn group(ranks: *const c_int, count: usize) -> Result<Vec<Rank>, Error> {
    let given = match (count, ranks.is_null()) {
        (0, _) => &[][..],
        (_, true) => return Err(null("ranks")),
        // SAFETY: not null, and readable for `count` numbers, as the caller says.
        (_, false) => unsafe { std::slice::from_raw_parts(ranks, count) },
    };
    given.iter().map(|one| rank(*one)).collect()
}

/// Ends the epoch that the last fence began, and begins the next. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_fence(window: *mut WindowHandle, assert: c_int) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        window.fence(self::assert(assert)?)
    })
}

/// Exposes this rank's part to these origins. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_post(
    window: *mut WindowHandle,
    ranks: *const c_int,
    count: usize,
    assert: c_int,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        // SAFETY: the caller's array.
        let ranks = unsafe { group(ranks, count) }?;
        window.post(&ranks, self::assert(assert)?)
    })
}

/// Begins an access epoch to these targets. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_start(
    window: *mut WindowHandle,
    ranks: *const c_int,
    count: usize,
    assert: c_int,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        // SAFETY: the caller's array.
        let ranks = unsafe { group(ranks, count) }?;
        window.start(&ranks, self::assert(assert)?)
    })
}

/// Ends the access epoch that start began.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_complete(window: *mut WindowHandle) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        window.complete()
    })
}

/// Ends the exposure epoch that post began: waits until every origin has completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_wait(window: *mut WindowHandle) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        window.wait()
    })
}

/// As wait, without waiting: whether the exposure epoch has ended (`*done` is 1).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_test(window: *mut WindowHandle, done: *mut c_int) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        // SAFETY: the caller's pointer is null or writable.
        let done = unsafe { done.as_mut() }.ok_or_else(|| null("done"))?;
        *done = c_int::from(window.test()?);
        Ok(())
    })
}

/// Begins a passive access epoch to `target`; `lock` is one of unisono_lock. Need not wait for the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_lock(
    window: *mut WindowHandle,
    lock: c_int,
    target: c_int,
    assert: c_int,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        let lock = match lock {
            1 => Lock::Shared,
            2 => Lock::Exclusive,
            other => return Err(argument(format!("{other} is no unisono_lock"))),
        };
        window.lock(rank(target)?, lock, self::assert(assert)?)
    })
}

/// Ends it; all its operations are complete at origin and target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_unlock(window: *mut WindowHandle, target: c_int) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        window.unlock(rank(target)?)
    })
}

/// Begins a shared passive access epoch to everybody.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_lock_all(window: *mut WindowHandle, assert: c_int) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        window.lock_all(self::assert(assert)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_unlock_all(window: *mut WindowHandle) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        window.unlock_all()
    })
}

/// Completes all operations to `target` at origin and target; the epoch goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_flush(window: *mut WindowHandle, target: c_int) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        window.flush(rank(target)?)
    })
}

/// As flush, for every target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_flush_all(window: *mut WindowHandle) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        window.flush_all()
    })
}

/// Completes all operations to `target` at the origin: buffers may be used again, results have come.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_flush_local(window: *mut WindowHandle, target: c_int) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        window.flush_local(rank(target)?)
    })
}

/// As flush_local, for every target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_flush_local_all(window: *mut WindowHandle) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        window.flush_local_all()
    })
}

/// Makes local loads and stores and others' operations on this rank's part see each other; in a passive
/// epoch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_sync(window: *mut WindowHandle) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        window.sync()
    })
}

/// Makes progress: applies what others have sent, sends what waits. Never waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_progress(window: *mut WindowHandle) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        window.progress()
    })
}

/// Waits until every operation of passive epochs that have ended is complete at its target; needs no epoch.
/// Over messages an exclusive unlock does not wait for its target. Whoever locks next finds the operations
/// done, and so does everybody who learns of them by this job's calls; before telling others by any other
/// means, call this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_settle(window: *mut WindowHandle) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        window.settle()
    })
}
