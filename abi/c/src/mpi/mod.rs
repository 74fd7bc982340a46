//! The functions that the MPI preload needs beside `unisono.h`: for jobs, datatypes, waits and statistics.
//!
//! `unisono mpi -- PROGRAM` preloads a shim in C (`abi/mpi/shim`), compiled for each MPI ABI. The shim
//! overrides the one-sided calls and knows the MPI's handles. It calls this library, which uses no MPI types
//! and is therefore the same for all MPIs. `unisono_mpi.h`, beside the shim, declares the functions of this
//! module.
//!
//! ```text
//!   program --MPI_Put--> shim (handles, types, errors, attributes) --unisono_put--> this --> unisono-rma
//!                          |                                                                       |
//!                          +--PMPI_Isend, PMPI_Improbe <----- messages to other hosts <------------+
//! ```
//!
//! All ranks of a host map the parts of an allocated window. They access the parts of a created window
//! through rings in shared memory and the kernel's copy. A dynamic window uses packets, also within a host:
//! `MPI_Win_attach` is not collective, so other ranks do not know the memory before an operation arrives. The
//! packets travel through shared memory within a host, and as the host MPI's messages between hosts. An
//! operation costs one packet and a copy at each end; a get, a flush or a lock costs a round trip. Each rank
//! has an agent thread that serves packets while the program computes.
//!
//! Cost: a call and its argument checks. When not to use it: outside of the shim, where `unisono.h` is
//! enough. Reference: MPI-4.0 chapter 12.

pub mod datatype;
pub mod host_tree;
pub mod host_waits;
pub mod messages;
pub mod statistics;
mod wanted;

use crate::error::{CallStatus, argument, ffi_call, ffi_call_or, rank};
use crate::handle;
use crate::job::{self, JobHandle};
use crate::request::RequestHandle;
use crate::window::{self, WindowHandle, with_window};
use messages::watch::WatchHandle;
use messages::{AWAKE, Callbacks, HostMessages};
use std::ffi::{CStr, c_char, c_int};
use std::time::Duration as StdDuration;
use std::{ptr, slice};
use unisono_linux::clock::{Duration, Ticks, ticks};
use unisono_rma::{Error, HookOutcome, Job, JobMembership, Key, PacketServer, Rank, Window};

/// The interval at which this rank calls the host MPI for progress while it waits. A wake-up costs a few
/// microseconds; a message that needs this rank's progress waits at most this long.
const PROGRESS_EVERY: StdDuration = StdDuration::from_micros(500);
/// A progress call that takes this much longer than two idle ones has moved a part of a message. The host MPI
/// does not report that. A rank that lost its processor during the call is also taken for busy, which costs
/// a few more calls.
const MOVED_SOMETHING: Duration = Duration::from_micros(1);
/// The number of progress calls before the first wait, by which the time of an idle call becomes known.
const TRIAL_CALLS: u32 = 4;

/// The time limit for the other ranks to arrive. All of them are in the same collective call, but they may
/// share a processor.
const PEER_TIMEOUT: StdDuration = StdDuration::from_secs(60);

/// The host MPI's progress.
pub type ProgressCall = extern "C" fn();

/// The shortest progress call so far, which was idle: 10 to 50 ns among the ranks of a host (MPICH 4.0 and
/// Open MPI 4.1), and more than [`MOVED_SOMETHING`] where each call asks the kernel for messages from other
/// hosts (MPICH over UCX's TCP).
struct IdleCall(Ticks);

impl IdleCall {
    /// Returns whether a call of this length has moved something.
    fn judge(&mut self, took: Ticks) -> HookOutcome {
        self.0 = self.0.min(took);
        let idle = Ticks(2 * self.0.0 + Ticks::from_duration(MOVED_SOMETHING).0);
        if took > idle { HookOutcome::Work } else { HookOutcome::Nothing }
    }
}

/// Makes a hook that makes progress for the host MPI; returns it with the interval of its calls.
fn progress_hook(progress: ProgressCall) -> (StdDuration, Box<dyn FnMut() -> HookOutcome + Send>) {
    let time = move || {
        let before = ticks();
        progress();
        ticks().since(before)
    };
    let mut idle = IdleCall((0..TRIAL_CALLS).map(|_| time()).min().unwrap_or_default());
    (PROGRESS_EVERY, Box::new(move || idle.judge(time())))
}

fn membership(rank: c_int, size: c_int, key: Key) -> Result<JobMembership, Error> {
    let number = |what: &str, value: c_int| {
        u32::try_from(value).map_err(|_| argument(format!("a job with {what} {value} is not possible")))
    };
    Ok(JobMembership { rank: Rank(number("rank", rank)?), size: number("size", size)? as usize, key })
}

/// Returns a digest of the headers of which this library was made. A preload of other headers cannot use it.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_interface() -> u64 {
    const INTERFACE: u64 = match u64::from_str_radix(env!("UNISONO_MPI_INTERFACE"), 16) {
        Ok(digest) => digest,
        Err(_) => panic!("the build script writes a number"),
    };
    INTERFACE
}

/// Stores a random key of 16 bytes in `key`. The ranks of a job find each other by it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_key(key: *mut u8) -> CallStatus {
    ffi_call(|| {
        let random = Key::random()?;
        // SAFETY: the shim passes 16 writable bytes.
        unsafe { slice::from_raw_parts_mut(key, 16) }.copy_from_slice(random.bytes());
        Ok(())
    })
}

/// Makes a job of ranks that share this host's memory. A waiting call also calls `progress` from time to
/// time. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_job_shared(
    rank: c_int,
    size: c_int,
    key: *const u8,
    progress: ProgressCall,
    job: *mut *mut JobHandle,
) -> CallStatus {
    ffi_call(|| {
        // SAFETY: the shim passes 16 readable bytes.
        let key = unsafe { *key.cast::<[u8; 16]>() };
        let mut made = Job::shared(&membership(rank, size, Key::from_bytes(key))?, PEER_TIMEOUT)?;
        let (every, hook) = progress_hook(progress);
        made.while_waiting(every, hook);
        // SAFETY: the shim passes room for the handle.
        unsafe { job::write_handle(job, made) }
    })
}

/// Makes a job whose ranks communicate by the host MPI's messages. `here` of them are on this host, and may
/// use `processors` processors together. The callbacks stay valid as long as the job, which takes over
/// `watch`; NULL for none. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_job_messages(
    rank: c_int,
    size: c_int,
    here: c_int,
    processors: c_int,
    callbacks: *const Callbacks,
    watch: *mut WatchHandle,
    job: *mut *mut JobHandle,
) -> CallStatus {
    ffi_call(|| {
        // SAFETY: the shim passes a table of pointers, which is copied here.
        let callbacks = unsafe { *callbacks };
        // messages need no key, because only the job's ranks are in the communicator
        let place = membership(rank, size, Key::from_bytes([0; 16]))?;
        // SAFETY: the shim passes a handle that `unisono_mpi_watch_new` made, and uses it no more.
        let watch = (!watch.is_null()).then(|| unsafe { Box::from_raw(watch) });
        let processors = f64::from(processors).min(host_waits::quota_of_process());
        let awake = if f64::from(here) - 0.01 <= processors { AWAKE } else { Duration::ZERO };
        let messages = HostMessages::new(place.rank, place.size, awake, callbacks, watch);
        // SAFETY: the shim passes room for the handle.
        unsafe { job::write_handle(job, Job::over(messages)) }
    })
}

/// Stops the thread that serves other ranks while this rank makes no call. The host MPI may end afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_job_without_agent(job: *mut JobHandle) {
    ffi_call_or((), || {
        // SAFETY: the shim passes a live handle.
        unsafe { job::job(job) }?.without_agent();
        Ok(())
    });
}

/// Serves the packets of other ranks to the windows of a job.
#[derive(Debug)]
pub struct ServerHandle(PacketServer);

/// Makes a server of the packets to windows of this job; NULL after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_server_new(job: *mut JobHandle) -> *mut ServerHandle {
    let mut made = ptr::null_mut();
    ffi_call(|| {
        // SAFETY: the shim passes a live handle that no other thread uses now.
        let job = unsafe { job::job(job) }?;
        made = Box::into_raw(Box::new(ServerHandle(job.packet_server())));
        Ok(())
    });
    made
}

/// Serves the packets that have arrived; returns 1 if there was one, else 0. Never waits. Any thread may call
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_server_serve(server: *const ServerHandle) -> c_int {
    // SAFETY: the shim passes a live handle.
    ffi_call_or(0, || Ok(c_int::from(unsafe { &*server }.0.serve())))
}

/// Frees a server; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_server_free(server: *mut ServerHandle) {
    ffi_call_or((), || {
        // SAFETY: `unisono_mpi_server_new` made it, and the shim frees it once.
        drop(unsafe { Box::from_raw(server) });
        Ok(())
    });
}

/// Sets how long calls on this window, and on the other windows of its job, wait before they return
/// UNISONO_STATUS_AGAIN. Without this call they wait without limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_window_set_wait_limit(window: *mut WindowHandle, nanoseconds: u64) {
    let call = |window: &mut Window| {
        window.set_wait_timeout(Some(StdDuration::from_nanos(nanoseconds)));
        Ok(())
    };
    // SAFETY: the shim passes a live handle, with the window's mutex held.
    unsafe { with_window(window, call) };
}

/// Returns 1 if operations on the window are loads and stores, or copies by the kernel; 0 if they are
/// messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_window_is_direct(window: *mut WindowHandle) -> c_int {
    let mut is_direct = false;
    let call = |window: &mut Window| {
        is_direct = window.is_direct();
        Ok(())
    };
    // SAFETY: the shim passes a live handle that no other thread uses now.
    unsafe { with_window(window, call) };
    c_int::from(is_direct)
}

/// Waits until this rank has the lock of its passive epoch to a target. The program's own loads and stores in
/// that rank's part may follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_window_hold(window: *mut WindowHandle, target: c_int) -> CallStatus {
    // SAFETY: the shim passes a live handle, with the window's mutex held if there are several threads.
    unsafe { with_window(window, |window| window.hold(rank(target)?)) }
}

/// Frees a request whose operation completes with its epoch, and sets `*request` to NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_request_free(request: *mut *mut RequestHandle) {
    // SAFETY: the shim passes the address of a live handle.
    ffi_call_or((), || unsafe { handle::take(request, "request") }.map(drop));
}

/// Succeeds if the window can be freed now: no epoch is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_window_freeable(window: *mut WindowHandle) -> CallStatus {
    // SAFETY: the shim passes a live handle.
    unsafe { with_window(window, |window| window.freeable()) }
}

/// Like unisono_window_free(); also enters the window into the statistics under this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_window_free(
    window: *mut *mut WindowHandle,
    name: *const c_char,
) -> CallStatus {
    ffi_call(|| {
        // SAFETY: the shim passes the address of its handle.
        let (rank, stats) = unsafe { window::free(window, |window| (window.rank(), window.stats())) }?;
        // SAFETY: the shim passes a C string.
        statistics::enter(unsafe { CStr::from_ptr(name) }, rank, stats);
        Ok(())
    })
}

/// Enters a window that is never freed into the statistics under this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_window_counted(window: *mut WindowHandle, name: *const c_char) {
    let call = |window: &mut Window| {
        // SAFETY: the shim passes a C string.
        statistics::enter(unsafe { CStr::from_ptr(name) }, window.rank(), window.stats());
        Ok(())
    };
    // SAFETY: the shim passes a live handle, with the window's mutex held if there are several threads.
    unsafe { with_window(window, call) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_asks_the_kernel_in_vain_is_idle_however_long_the_kernel_takes() {
        let took = |micros| Ticks::from_duration(Duration::from_micros(micros));
        let mut among_ranks = IdleCall(took(0));
        assert_eq!([1, 2, 8].map(|call| among_ranks.judge(took(call))), {
            use HookOutcome::{Nothing, Work};
            [Nothing, Work, Work]
        });
        let mut between_hosts = IdleCall(took(50));
        assert_eq!(between_hosts.judge(took(3)), HookOutcome::Nothing);
        assert_eq!(between_hosts.judge(took(4)), HookOutcome::Nothing);
        assert_eq!(between_hosts.judge(took(9)), HookOutcome::Work);
    }
}
