//! `UNISONO_MPI_STATS=1`: one table of what the windows of the job did.
//!
//! Each process enters its windows into a [`Ledger`] as they end. When MPI ends, the shim gathers the ledgers
//! at the first rank of MPI_COMM_WORLD, which adds them up and prints the sum. Ranks cannot gather if a
//! session has no world or the job aborts; then each process prints its own ledger.

use crate::error::answer_or;
use crate::layout::slice;
use std::ffi::{CStr, c_char, c_int};
use std::io::Write as _;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use unisono_rma::{Ledger, WindowStats};

static LEDGER: Mutex<Option<Ledger>> = Mutex::new(None);

fn ledger() -> MutexGuard<'static, Option<Ledger>> {
    // a thread that panicked left no half entry: `enter` panics before it changes the ledger or not at all
    LEDGER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wanted() -> bool {
    static WANTED: LazyLock<bool> = LazyLock::new(|| {
        std::env::var_os("UNISONO_MPI_STATS").is_some_and(|value| !value.is_empty() && value != "0")
    });
    *WANTED
}

/// Enters a window that ends.
pub(crate) fn enter(name: &CStr, stats: WindowStats) {
    if wanted() {
        ledger().get_or_insert_with(Ledger::new).enter(&name.to_string_lossy(), stats);
    }
}

/// Prints in one piece, so that other output does not get in between. A program may have closed standard
/// error: then nobody reads the table.
fn print(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// 1 if the user asked for the table, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_statistics_wanted() -> c_int {
    answer_or(0, || Ok(c_int::from(wanted())))
}

/// Takes this process's ledger out, encoded in `*bytes` bytes. The memory is never freed: MPI ends once in a
/// process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_statistics_take(bytes: *mut usize) -> *const u8 {
    answer_or(std::ptr::null(), || {
        let own = ledger().take().map_or_else(|| Ledger::new().encode(), |own| own.encode()).leak();
        // SAFETY: the shim passes a place for the length.
        unsafe { *bytes = own.len() };
        Ok(own.as_ptr())
    })
}

/// Prints the sum of the encoded ledgers of `ranks` ranks, which lie one after the other in `all`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_statistics_print(all: *const u8, lengths: *const c_int, ranks: usize) {
    answer_or((), || {
        let mut sum = Ledger::default();
        let mut at = 0;
        // SAFETY: the shim passes one length for each rank.
        for length in unsafe { slice(lengths, ranks, "lengths") }? {
            let length = usize::try_from(*length).unwrap_or(0);
            // SAFETY: `at` is the sum of the lengths so far, which are inside of what the shim gathered.
            let start = unsafe { all.add(at) };
            // SAFETY: the shim gathered at least to the end of this ledger, as the lengths say.
            let one = unsafe { slice(start, length, "all") }?;
            at += length;
            if let Some(one) = Ledger::decode(one) {
                sum.merge(&one);
            }
        }
        print(&format!("unisono: {sum}"));
        Ok(())
    });
}

/// Prints this process's ledger, unless it was taken or nobody asked for the table. `why` says why it is
/// printed alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_statistics_alone(rank: c_int, why: *const c_char) {
    answer_or((), || {
        if let Some(own) = ledger().take() {
            // SAFETY: the shim passes a C string.
            let why = unsafe { CStr::from_ptr(why) }.to_string_lossy();
            print(&format!("unisono: rank {rank}, {why}: {own}"));
        }
        Ok(())
    });
}
