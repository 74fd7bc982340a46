//! `UNISONO_MPI_STATS=1`: what the windows of the job did, as one table.
//!
//! Each process enters its windows into a [`Ledger`] as they end. When MPI ends, the shim gathers the ledgers as bytes
//! at the first rank of MPI_COMM_WORLD, which adds them up and prints them. Where ranks cannot gather, because a session
//! has no world or because the job aborts, a process prints its own.

use crate::failure::guarded;
use crate::types::slice_of;
use std::ffi::{CStr, c_char, c_int};
use std::io::Write as _;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use unisono_rma::{Ledger, WindowStats};

static LEDGER: LazyLock<Mutex<Option<Ledger>>> = LazyLock::new(Mutex::default);

fn ledger() -> MutexGuard<'static, Option<Ledger>> {
    // an entry is made as a whole: a thread that panicked left a whole ledger
    LEDGER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wanted() -> bool {
    static WANTED: LazyLock<bool> = LazyLock::new(|| {
        std::env::var_os("UNISONO_MPI_STATS").is_some_and(|value| !value.is_empty() && value != "0")
    });
    *WANTED
}

/// Enters a window that ends.
pub(crate) fn keep(name: &str, stats: WindowStats) {
    if wanted() {
        ledger().get_or_insert_with(Ledger::new).enter(name, stats);
    }
}

/// In one piece, so that nothing else gets in between; a closed standard error is nobody's problem.
fn print(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[unsafe(no_mangle)]
extern "C" fn core_statistics_wanted() -> c_int {
    guarded(0, || c_int::from(wanted()))
}

/// This process's ledger as bytes; from here on it is empty. The memory is never freed: MPI ends once in a process.
///
/// # Safety
/// `bytes` is writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_statistics_take(bytes: *mut usize) -> *const u8 {
    guarded(std::ptr::null(), || {
        let own = ledger().take().map_or_else(|| Ledger::new().encode(), |own| own.encode()).leak();
        // SAFETY: the caller gives a place for the length.
        unsafe { *bytes = own.len() };
        own.as_ptr()
    })
}

/// Prints the sum of the ranks' ledgers, which lie one after the other.
///
/// # Safety
/// `lengths` has `ranks` numbers, and `all` as many bytes as they add up to.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_statistics_print(all: *const u8, lengths: *const c_int, ranks: usize) {
    guarded((), || {
        let mut sum = Ledger::default();
        let mut at = 0;
        // SAFETY: the caller has one length a rank.
        for length in unsafe { slice_of(lengths, ranks) } {
            let length = usize::try_from(*length).unwrap_or(0);
            // SAFETY: the lengths so far are inside of what the caller gathered.
            let start = unsafe { all.add(at) };
            // SAFETY: as above, to the end of this one.
            let one = unsafe { slice_of(start, length) };
            at += length;
            if let Some(one) = Ledger::decode(one) {
                sum.merge(&one);
            }
        }
        print(&format!("unisono: {sum}"));
    });
}

/// Prints this process's ledger alone, if one is wanted and was not taken yet.
///
/// # Safety
/// `why` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_statistics_alone(rank: c_int, why: *const c_char) {
    guarded((), || {
        if let Some(own) = ledger().take() {
            // SAFETY: the caller gives a C string.
            let why = unsafe { CStr::from_ptr(why) }.to_string_lossy();
            print(&format!("unisono: rank {rank}, {why}: {own}"));
        }
    });
}
