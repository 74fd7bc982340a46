//! The synchronization calls: fence, post-start-complete-wait, lock-unlock, flush.

use crate::error::{CallStatus, argument, null, rank};
use crate::layout::slice;
use crate::window::{WindowHandle, with_window};
use std::ffi::c_int;
use unisono_rma::{Assert, Error, Lock, Rank, Window};

/// Start: every target has already called post. Post: no origin calls start before post returns. Lock: no
/// other rank holds or requests a conflicting lock.
pub const UNISONO_ASSERT_NO_CHECK: c_int = 1;
/// Fence, post: this rank has not stored into its own part since the last synchronization.
pub const UNISONO_ASSERT_NO_STORE: c_int = 2;
/// Fence, post: no rank puts or accumulates into this rank's part until the next synchronization.
pub const UNISONO_ASSERT_NO_PUT: c_int = 4;
/// Fence: this rank has issued no operation since the last fence. All ranks pass it, or none does.
pub const UNISONO_ASSERT_NO_PRECEDE: c_int = 8;
/// Fence: this rank issues no operation before the next fence. All ranks pass it, or none does.
pub const UNISONO_ASSERT_NO_SUCCEED: c_int = 16;

/// Kinds of locks.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockType {
    /// Any number of ranks may hold it at the same time.
    Shared = 1,
    /// No other rank holds a lock of this part.
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

/// Reads the ranks of a group.
///
/// # Safety
/// `ranks` is null or readable for `count` numbers.
unsafe fn group(ranks: *const c_int, count: usize) -> Result<Vec<Rank>, Error> {
    // SAFETY: null or readable; the caller guarantees it.
    unsafe { slice(ranks, count, "ranks") }?.iter().map(|one| rank(*one)).collect()
}

/// Ends the epoch that the last fence began, and begins the next. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_fence(window: *mut WindowHandle, assert: c_int) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.fence(self::assert(assert)?)) }
}

/// Exposes this rank's part to `count` origins. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_post(
    window: *mut WindowHandle,
    ranks: *const c_int,
    count: usize,
    assert: c_int,
) -> CallStatus {
    // SAFETY: unisono.h requires an array of `count` numbers.
    let call = |window: &mut Window| window.post(&unsafe { group(ranks, count) }?, self::assert(assert)?);
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, call) }
}

/// Begins an access epoch to `count` targets. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_start(
    window: *mut WindowHandle,
    ranks: *const c_int,
    count: usize,
    assert: c_int,
) -> CallStatus {
    // SAFETY: unisono.h requires an array of `count` numbers.
    let call = |window: &mut Window| window.start(&unsafe { group(ranks, count) }?, self::assert(assert)?);
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, call) }
}

/// Ends the access epoch that start began.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_complete(window: *mut WindowHandle) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.complete()) }
}

/// Ends the exposure epoch that post began: waits until every origin has called complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_wait(window: *mut WindowHandle) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.wait()) }
}

/// Tests whether every origin has called complete. If so, sets `*done` to 1 and ends the exposure epoch;
/// otherwise sets `*done` to 0. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_test(window: *mut WindowHandle, done: *mut c_int) -> CallStatus {
    let call = |window: &mut Window| {
        // SAFETY: unisono.h requires NULL or room for the result.
        *unsafe { done.as_mut() }.ok_or_else(|| null("done"))? = c_int::from(window.test()?);
        Ok(())
    };
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, call) }
}

/// Begins a passive access epoch to `target`; `lock` is a value of unisono_lock. May return before this rank
/// holds the lock; the operations then wait for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_lock(
    window: *mut WindowHandle,
    lock: c_int,
    target: c_int,
    assert: c_int,
) -> CallStatus {
    let call = |window: &mut Window| {
        let lock = match lock {
            1 => Lock::Shared,
            2 => Lock::Exclusive,
            other => return Err(argument(format!("{other} is no unisono_lock"))),
        };
        window.lock(rank(target)?, lock, self::assert(assert)?)
    };
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, call) }
}

/// Ends the passive epoch to `target`: its operations are complete at the origin. unisono_window_settle()
/// waits until they are complete at the target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_unlock(window: *mut WindowHandle, target: c_int) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.unlock(rank(target)?)) }
}

/// Begins a passive access epoch to all ranks, with a shared lock at each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_lock_all(window: *mut WindowHandle, assert: c_int) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.lock_all(self::assert(assert)?)) }
}

/// Ends the passive epoch that lock_all began: its operations are complete at the origin.
/// unisono_window_settle() waits until they are complete at the targets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_unlock_all(window: *mut WindowHandle) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.unlock_all()) }
}

/// Completes all operations to `target` at origin and target; the epoch goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_flush(window: *mut WindowHandle, target: c_int) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.flush(rank(target)?)) }
}

/// Like unisono_window_flush(), for every target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_flush_all(window: *mut WindowHandle) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.flush_all()) }
}

/// Completes all operations to `target` at the origin: the program may use its buffers again, and results
/// have arrived.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_flush_local(window: *mut WindowHandle, target: c_int) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.flush_local(rank(target)?)) }
}

/// Like unisono_window_flush_local(), for every target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_flush_local_all(window: *mut WindowHandle) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.flush_local_all()) }
}

/// In a passive epoch: makes this rank's loads and stores visible to other ranks' operations on its part, and
/// the operations visible to this rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_sync(window: *mut WindowHandle) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.sync()) }
}

/// Applies operations that other ranks have sent, and sends operations that this rank holds back. Never
/// waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_progress(window: *mut WindowHandle) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.progress()) }
}

/// Waits until every operation of the passive epochs that have ended is complete at its target. Needs no
/// epoch. If windows work by messages, an exclusive unlock returns before its target has done the operations.
/// Ranks that lock the part afterwards, or that learn of the unlock through calls of this job, find the
/// operations done. Call this function before you inform another rank by other means, such as a pipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_settle(window: *mut WindowHandle) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.settle()) }
}
