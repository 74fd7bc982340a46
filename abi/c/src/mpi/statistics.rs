//! `UNISONO_MPI_STATS=1`: a table of the job's window operations, and a table of its wait times.
//!
//! Each process adds its windows to a [`StatsTable`] when they end, and its waits to a [`WaitStats`]. In
//! MPI_Finalize the shim gathers both at the first rank of MPI_COMM_WORLD, which adds them up and prints the
//! tables, or writes them as JSON into the file that `UNISONO_MPI_STATS_JSON` names. Ranks cannot gather if
//! the program uses a session without a world, or if the job aborts; then each process prints its own
//! windows.

use super::host_waits::{JobWaits, WaitStats};
use super::wanted::{is_table_wanted, is_wanted, json_file};
use crate::error::ffi_call_or;
use crate::layout::slice;
use serde_json::{Value, json};
use std::ffi::{CStr, c_char, c_int};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use unisono_rma::{Rank, StatsTable, WindowStats};

static WINDOWS: Mutex<Option<StatsTable>> = Mutex::new(None);

fn own_windows() -> MutexGuard<'static, Option<StatsTable>> {
    // a panic leaves no entry half changed: `enter` panics before it changes the table or not at all
    WINDOWS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a window that ends to the statistics.
pub(crate) fn enter(name: &CStr, rank: Rank, stats: WindowStats) {
    if is_wanted() {
        own_windows().get_or_insert_with(StatsTable::for_own_rank).add_window(
            &name.to_string_lossy(),
            rank,
            stats,
        );
    }
}

/// Prints with a single write, so that no other output comes in between. If the program has closed standard
/// error, the table is lost.
fn print(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Returns 1 if the user asked for the tables, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_statistics_wanted() -> c_int {
    ffi_call_or(0, || Ok(c_int::from(is_wanted())))
}

/// Takes this process's entries out of the statistics and encodes them, with this rank's number, in `*bytes`
/// bytes. The memory is never freed: MPI ends once in a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_statistics_take(rank: c_int, bytes: *mut usize) -> *const u8 {
    ffi_call_or(std::ptr::null(), || {
        let windows = own_windows().take().unwrap_or_else(StatsTable::for_own_rank).encode();
        let waits = WaitStats::take(u64::try_from(rank).unwrap_or(0)).encode();
        let length = (windows.len() as u64).to_le_bytes();
        let own = [&length[..], &windows, &waits].concat().leak();
        // SAFETY: the shim passes room for the length.
        unsafe { *bytes = own.len() };
        Ok(own.as_ptr())
    })
}

/// Decodes the entries of a process. Returns `None` if the bytes are something else.
fn decode(bytes: &[u8]) -> Option<(StatsTable, WaitStats)> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (windows, waits) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    Some((StatsTable::decode(windows)?, WaitStats::decode(waits)?))
}

/// Prints the sums of the entries of `ranks` ranks, which lie one after another in `all`. Writes them as JSON
/// if the user asked for that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_statistics_print(all: *const u8, lengths: *const c_int, ranks: usize) {
    ffi_call_or((), || {
        let (mut windows, mut waits) = (StatsTable::default(), JobWaits::default());
        let mut at = 0;
        // SAFETY: the shim passes one length for each rank.
        for length in unsafe { slice(lengths, ranks, "lengths") }? {
            let length = usize::try_from(*length).unwrap_or(0);
            // SAFETY: `at` is the sum of the lengths so far, which lie within the bytes that the shim
            // gathered.
            let start = unsafe { all.add(at) };
            // SAFETY: the shim gathered at least to the end of this part, as the lengths say.
            let one = unsafe { slice(start, length, "all") }?;
            at += length;
            if let Some((own_windows, own_waits)) = decode(one) {
                windows.merge(&own_windows);
                waits.push(own_waits);
            }
        }
        if is_table_wanted() {
            print(&format!("unisono: {windows}unisono: {waits}"));
        }
        if let Some(file) = json_file() {
            write(&file, &windows, &waits);
        }
        Ok(())
    });
}

fn write(file: &Path, windows: &StatsTable, waits: &JobWaits) {
    let mut text = json(windows, waits).to_string();
    text.push('\n');
    if let Err(error) = std::fs::write(file, text) {
        print(&format!("unisono: cannot write {}: {error}\n", file.display()));
    }
}

fn json(windows: &StatsTable, waits: &JobWaits) -> Value {
    let mut all = waits.json();
    let row = |(name, count, stats): (&str, u64, &WindowStats)| {
        let kinds = [("fence", stats.fence), ("pscw", stats.pscw), ("passive", stats.passive)];
        let kinds = kinds.into_iter().filter(|(_, stats)| stats.epochs + stats.operations > 0);
        let kinds: Vec<Value> = kinds
            .map(|(kind, stats)| {
                json!({
                    "synchronization": kind,
                    "epochs": stats.epochs,
                    "operations": stats.operations,
                    "bytes": stats.bytes,
                    "waited_awake_s": stats.spun.as_secs_f64(),
                    "waited_asleep_s": stats.blocked.as_secs_f64(),
                })
            })
            .collect();
        json!({ "name": name, "windows": count, "epochs": kinds })
    };
    all["windows"] = windows.rows().map(row).collect();
    all
}

/// Prints this process's windows, unless they were taken or the user did not ask for the table. `why` is the
/// reason why they are printed alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_statistics_alone(rank: c_int, why: *const c_char) {
    ffi_call_or((), || {
        if let Some(own) = own_windows().take() {
            // SAFETY: the shim passes a C string.
            let why = unsafe { CStr::from_ptr(why) }.to_string_lossy();
            print(&format!("unisono: rank {rank}, {why}: {own}"));
        }
        Ok(())
    });
}
