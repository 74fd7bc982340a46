//! `UNISONO_MPI_STATS=1`: what the windows of the job did, as one table.
//!
//! Each process enters its windows into a [`Ledger`] as they end. When MPI ends, the shim gathers the ledgers
//! as bytes at the first rank of MPI_COMM_WORLD, which adds them up and prints them. Where ranks cannot
//! gather, because a session has no world or because the job aborts, a process prints its own.

use crate::error::answer_or;
use crate::layout::slice;
use std::ffi::{CStr, c_char, c_int};
use std::io::Write as _;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use unisono_rma::{Ledger, WindowStats};

static LEDGER: Mutex<Option<Ledger>> = Mutex::new(None);

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
pub(crate) fn enter(name: &CStr, stats: WindowStats) {
    if wanted() {
        ledger().get_or_insert_with(Ledger::new).enter(&name.to_string_lossy(), stats);
    }
}

/// In one piece, so that nothing else gets in between; a closed standard error is nobody's problem.
fn print(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Whether a table is wanted (1) or not (0).
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_statistics_wanted() -> c_int {
    answer_or(0, || Ok(c_int::from(wanted())))
}

/// This process's part of the table, `*bytes` long; from here on it is empty. The memory is never freed: MPI
/// ends once in a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_statistics_take(bytes: *mut usize) -> *const u8 {
    answer_or(std::ptr::null(), || {
        let own = ledger().take().map_or_else(|| Ledger::new().encode(), |own| own.encode()).leak();
        // SAFETY: the shim has a place for the length.
        unsafe { *bytes = own.len() };
        Ok(own.as_ptr())
    })
}

/// Prints the sum of the parts of `ranks` ranks, which lie one after the other in `all`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_statistics_print(all: *const u8, lengths: *const c_int, ranks: usize) {
    answer_or((), || {
        let mut sum = Ledger::default();
        let mut at = 0;
        // SAFETY: the shim has one length a rank.
        for length in unsafe { slice(lengths, ranks, "lengths") }? {
            let length = usize::try_from(*length).unwrap_or(0);
            // SAFETY: the lengths so far are inside of what the shim gathered.
            let start = unsafe { all.add(at) };
            // SAFETY: as above, to the end of this one.
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

/// Prints this process's part, if a table is wanted and the part was not taken yet; `why` it is printed
/// alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_statistics_alone(rank: c_int, why: *const c_char) {
    answer_or((), || {
        if let Some(own) = ledger().take() {
            // SAFETY: the shim gives a C string.
            let why = unsafe { CStr::from_ptr(why) }.to_string_lossy();
            print(&format!("unisono: rank {rank}, {why}: {own}"));
        }
        Ok(())
    });
}
