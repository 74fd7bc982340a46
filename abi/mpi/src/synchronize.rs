//! Synchronization. The safety contract of all: the window came from this library and is used by nobody else
//! meanwhile.

use crate::failure::{OK, answer, failed, guard};
use crate::types::slice_of;
use crate::windows::rank_of;
use std::ffi::{c_int, c_uint};
use unisono_rma::{Assert, Error, Lock, Rank, Window};

/// `enum core_assert` in `shim/core.h`.
fn asserts(bits: c_uint) -> Assert {
    let all = [Assert::NO_CHECK, Assert::NO_STORE, Assert::NO_PUT, Assert::NO_PRECEDE, Assert::NO_SUCCEED];
    let given = (0..).zip(all).filter(|(bit, _)| bits & (1 << bit) != 0);
    given.fold(Assert::NONE, |set, (_, one)| set | one)
}

/// Ranks as C has them.
///
/// # Safety
/// `ranks` has `count` numbers.
unsafe fn ranks_of(ranks: *const c_int, count: usize) -> Result<Vec<Rank>, Error> {
    // SAFETY: the caller's promise.
    unsafe { slice_of(ranks, count) }.iter().map(|rank| rank_of(*rank)).collect()
}

/// # Safety
/// The module's.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_fence(window: *mut Window, assert: c_uint) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        answer(window.fence(asserts(assert)))
    })
}

/// # Safety
/// The module's; `ranks` has `count` numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_post(
    window: *mut Window,
    ranks: *const c_int,
    count: usize,
    assert: c_uint,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        // SAFETY: the caller's promise.
        let ranks = unsafe { ranks_of(ranks, count) };
        answer(ranks.and_then(|ranks| window.post(&ranks, asserts(assert))))
    })
}

/// # Safety
/// The module's; `ranks` has `count` numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_start(
    window: *mut Window,
    ranks: *const c_int,
    count: usize,
    assert: c_uint,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        // SAFETY: the caller's promise.
        let ranks = unsafe { ranks_of(ranks, count) };
        answer(ranks.and_then(|ranks| window.start(&ranks, asserts(assert))))
    })
}

/// # Safety
/// The module's; `done` is writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_test(window: *mut Window, done: *mut c_int) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        match window.test() {
            Ok(ended) => {
                // SAFETY: the caller's promise.
                unsafe { *done = c_int::from(ended) };
                OK
            }
            Err(error) => failed(&error),
        }
    })
}

/// # Safety
/// The module's.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_lock(window: *mut Window, rank: c_int, exclusive: c_int, assert: c_uint) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        let lock = if exclusive == 0 { Lock::Shared } else { Lock::Exclusive };
        answer(rank_of(rank).and_then(|rank| window.lock(rank, lock, asserts(assert))))
    })
}

/// # Safety
/// The module's.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_lock_all(window: *mut Window, assert: c_uint) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        answer(window.lock_all(asserts(assert)))
    })
}

/// Calls with nothing but the window.
macro_rules! simple {
    ($($name:ident => $call:ident),* $(,)?) => {$(
        /// # Safety
        /// The module's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(window: *mut Window) -> c_int {
            guard(|| {
                // SAFETY: the caller's promise.
                let window = unsafe { &mut *window };
                answer(window.$call())
            })
        }
    )*};
}

/// Calls with a target.
macro_rules! to_target {
    ($($name:ident => $call:ident),* $(,)?) => {$(
        /// # Safety
        /// The module's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(window: *mut Window, rank: c_int) -> c_int {
            guard(|| {
                // SAFETY: the caller's promise.
                let window = unsafe { &mut *window };
                answer(rank_of(rank).and_then(|rank| window.$call(rank)))
            })
        }
    )*};
}

simple! {
    core_complete => complete,
    core_wait => wait,
    core_unlock_all => unlock_all,
    core_flush_all => flush_all,
    core_flush_local_all => flush_local_all,
    core_sync => sync,
}

to_target! {
    core_unlock => unlock,
    core_flush => flush,
    core_flush_local => flush_local,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asserts_are_the_headers_bits() {
        let header = include_str!("../shim/core.h");
        for (name, assert) in [
            ("CORE_NO_CHECK", Assert::NO_CHECK),
            ("CORE_NO_STORE", Assert::NO_STORE),
            ("CORE_NO_PUT", Assert::NO_PUT),
            ("CORE_NO_PRECEDE", Assert::NO_PRECEDE),
            ("CORE_NO_SUCCEED", Assert::NO_SUCCEED),
        ] {
            let value = header.split(&format!("{name} = ")).nth(1).expect("it is there");
            let bits = value.split(',').next().and_then(|digits| digits.parse().ok()).expect("a number");
            assert_eq!(asserts(bits), assert, "{name}");
        }
        assert_eq!(asserts(0), Assert::NONE);
    }
}
