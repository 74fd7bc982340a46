//! What the MPI preload needs beside `unisono.h`: its jobs, datatypes and statistics.
//!
//! What is this? `unisono mpi -- PROGRAM` preloads a shim in C (`abi/mpi/shim`), compiled by the program's
//! own `mpicc`: the shim overrides the one-sided calls and knows handles, and calls this library, which knows
//! no MPI and is therefore the same for all. The functions of this module are in `unisono_mpi.h`, beside the
//! shim.
//!
//! ```text
//!   program --MPI_Put--> shim (handles, types, errors, attributes) --unisono_put--> this --> unisono-rma
//!                          |                                                                       |
//!                          +--PMPI_Isend, PMPI_Improbe <----- messages to other hosts <------------+
//! ```
//! Windows that were allocated are mapped by all ranks of the host, created ones are reached through queues
//! in shared memory and the kernel's copy. Dynamic ones go by packets, also within a host: `MPI_Win_attach`
//! is not collective, so that nobody could map the memory or even know of it before an operation arrives. The
//! packets are the engine's own (in shared memory, or the host MPI's messages between hosts); an operation
//! costs one and a copy at each end, a get, a flush or a lock a round trip, and each rank has an agent thread
//! that serves them while it computes.
//!
//! Cost: a call and an argument check each. When not to use it: outside of the shim, where `unisono.h` is
//! enough. Reference: MPI-4.0 chapter 12.

pub mod datatype;
pub mod messages;
pub mod statistics;

use crate::error::{Status, answer, answer_or, argument, null};
use crate::job::{self, JobHandle};
use crate::window::{self, WindowHandle};
use messages::{Callbacks, HostMessages};
use std::ffi::{CStr, c_char, c_int};
use std::slice;
use std::time::Duration;
use unisono_linux::clock::{Nanos, ticks};
use unisono_rma::{Error, Found, Job, Key, Place, Rank};

/// How often the host MPI makes progress while this rank waits. A wake-up costs a few microseconds, and a
/// message that waits for us to move waits this long at most.
const PROGRESS_EVERY: Duration = Duration::from_micros(500);
/// The host MPI does not say whether it had something to do, but moving a piece of a message takes longer
/// than finding none: 10 to 50 ns when idle, with MPICH 4.0 and Open MPI 4.1. A rank that lost its processor
/// meanwhile is taken for busy, which costs a few calls.
const MOVED_SOMETHING: Nanos = Nanos(1_000);
/// For the other ranks to come; they are all on their way, and may have to share a processor.
const PATIENCE: Duration = Duration::from_secs(60);

fn place(rank: c_int, size: c_int, key: Key) -> Result<Place, Error> {
    let number = |what: &str, value: c_int| {
        u32::try_from(value).map_err(|_| argument(format!("a job with {what} {value} is not possible")))
    };
    Ok(Place { rank: Rank(number("rank", rank)?), size: number("size", size)? as usize, key })
}

/// Fills in a random key of 16 bytes, by which the members of a job find each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_key(key: *mut u8) -> Status {
    answer(|| {
        let random = Key::random()?;
        // SAFETY: the shim's key has 16 bytes.
        unsafe { slice::from_raw_parts_mut(key, 16) }.copy_from_slice(random.bytes());
        Ok(())
    })
}

/// A job of ranks that share this host's memory. `progress` is called now and then while a call waits.
/// Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_job_shared(
    rank: c_int,
    size: c_int,
    key: *const u8,
    progress: extern "C" fn(),
    job: *mut *mut JobHandle,
) -> Status {
    answer(|| {
        // SAFETY: the shim's key has 16 bytes.
        let key = unsafe { *key.cast::<[u8; 16]>() };
        let mut made = Job::shared(&place(rank, size, Key::from_bytes(key))?, PATIENCE)?;
        let moved = MOVED_SOMETHING.to_ticks();
        let call = move || {
            let before = ticks();
            progress();
            if ticks().since(before) > moved { Found::Work } else { Found::Nothing }
        };
        made.while_waiting(PROGRESS_EVERY, Box::new(call));
        // SAFETY: the shim's pointer is writable.
        unsafe { job::give(job, made) }
    })
}

/// A job of ranks that the host MPI's messages reach; the callbacks stay valid as long as the job.
/// Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_job_messages(
    rank: c_int,
    size: c_int,
    callbacks: *const Callbacks,
    job: *mut *mut JobHandle,
) -> Status {
    answer(|| {
        // SAFETY: the shim's table of pointers, copied.
        let callbacks = unsafe { *callbacks };
        // messages need no key: the communicator is the members' own
        let place = place(rank, size, Key::from_bytes([0; 16]))?;
        // SAFETY: the shim's pointer is writable.
        unsafe { job::give(job, Job::over(HostMessages::new(place.rank, place.size, callbacks))) }
    })
}

/// Stops the thread that serves other ranks while this one makes no call: from now on the host MPI may end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_job_without_agent(job: *mut JobHandle) {
    answer_or((), || {
        // SAFETY: the shim's handle.
        unsafe { job::job(job) }?.without_agent();
        Ok(())
    });
}

/// How long calls at the windows of this one's job wait at most before they answer UNISONO_STATUS_AGAIN; at
/// first for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_window_patience(window: *mut WindowHandle, nanoseconds: u64) {
    answer_or((), || {
        // SAFETY: the shim's handle.
        let window = unsafe { window::window(window) }?;
        window.set_patience(Some(Duration::from_nanos(nanoseconds)));
        Ok(())
    });
}

/// Whether the window can be freed now: no epoch is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_window_freeable(window: *mut WindowHandle) -> Status {
    // SAFETY: the shim's handle.
    answer(|| unsafe { window::window(window) }?.freeable())
}

/// As unisono_window_free, and enters the window into the statistics under this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_window_free(
    window: *mut *mut WindowHandle,
    name: *const c_char,
) -> Status {
    answer(|| {
        // SAFETY: the shim's pointer is null or valid.
        let from = unsafe { window.as_mut() }.ok_or_else(|| null("window"))?;
        // SAFETY: the shim's handle.
        let stats = unsafe { window::window(*from) }?.stats();
        // SAFETY: the shim's handle, which it forgets.
        unsafe { window::free(from) }?;
        // SAFETY: the shim's name is a C string.
        statistics::enter(unsafe { CStr::from_ptr(name) }, stats);
        Ok(())
    })
}

/// Enters a window that is never freed into the statistics under this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_window_counted(window: *mut WindowHandle, name: *const c_char) {
    answer_or((), || {
        // SAFETY: the shim's handle.
        let stats = unsafe { window::window(window) }?.stats();
        // SAFETY: the shim's name is a C string.
        statistics::enter(unsafe { CStr::from_ptr(name) }, stats);
        Ok(())
    });
}
