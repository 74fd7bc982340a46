//! Jobs: join, barrier, gather, finalize.

use crate::error::{CallStatus, argument, ffi_call, null};
use crate::handle;
use std::ffi::{c_int, c_void};
use std::time::Duration;
use unisono_rma::{Error, Job};

/// A rank's membership in a job: the ranks that make windows together.
#[derive(Debug)]
pub struct JobHandle(pub(crate) Job);

/// Returns the job behind a handle.
///
/// # Safety
/// `job` is null or a live handle that no other thread uses now.
pub(crate) unsafe fn job<'a>(job: *mut JobHandle) -> Result<&'a mut Job, Error> {
    // SAFETY: null or a live handle of this thread's; the caller guarantees it.
    let handle = unsafe { job.as_mut() };
    handle.map(|handle| &mut handle.0).ok_or_else(|| null("job"))
}

/// Stores the handle of a job in the program's pointer.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn write_handle(to: *mut *mut JobHandle, made: Job) -> Result<(), Error> {
    // SAFETY: null or writable; the caller guarantees it.
    unsafe { handle::store(to, "job", JobHandle(made)) }
}

/// Joins the job for which `unisono run` or Slurm's srun started this process. A process that was started
/// otherwise gets a job of one rank. Collective: waits until all ranks have joined, at most `timeout_s`
/// seconds (0 or less: one minute).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_job_join(job: *mut *mut JobHandle, timeout_s: f64) -> CallStatus {
    ffi_call(|| {
        // SAFETY: unisono.h requires NULL or room for the handle.
        let to = unsafe { handle::emptied(job, "job") }?;
        let timeout = Duration::try_from_secs_f64(timeout_s).ok().filter(|time| !time.is_zero());
        let timeout = timeout.unwrap_or(Duration::from_secs(60));
        let joined = Job::join(timeout)?.or_else(|| Job::threads(1).pop());
        *to = Box::into_raw(Box::new(JobHandle(joined.ok_or_else(|| null("job"))?)));
        Ok(())
    })
}

/// Returns this rank's number, from 0; -1 if `job` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_job_rank(job: *const JobHandle) -> c_int {
    // SAFETY: unisono.h requires NULL or a live handle.
    unsafe { job.as_ref() }.map_or(-1, |job| job.0.rank().0.cast_signed())
}

/// Returns the number of ranks in the job; -1 if `job` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_job_size(job: *const JobHandle) -> c_int {
    // SAFETY: unisono.h requires NULL or a live handle.
    unsafe { job.as_ref() }.map_or(-1, |job| c_int::try_from(job.0.size()).unwrap_or(c_int::MAX))
}

/// Waits until every rank has called this function. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_job_barrier(job: *mut JobHandle) -> CallStatus {
    // SAFETY: unisono.h requires a live handle that no other thread uses now.
    ffi_call(|| unsafe { self::job(job) }?.barrier())
}

/// Gathers `bytes` bytes of every rank at every rank. `all` has room for `bytes` times the job's size, and
/// receives the data in the order of ranks. Every rank passes the same `bytes`. Collective; not optimized for
/// speed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_job_gather(
    job: *mut JobHandle,
    data: *const c_void,
    bytes: usize,
    all: *mut c_void,
) -> CallStatus {
    ffi_call(|| {
        // SAFETY: unisono.h requires a live handle that no other thread uses now.
        let job = unsafe { self::job(job) }?;
        if bytes > 0 && (data.is_null() || all.is_null()) {
            return Err(null("data or all"));
        }
        let mine = match bytes {
            0 => &[][..],
            // SAFETY: not null, and unisono.h requires `bytes` readable bytes.
            _ => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) },
        };
        let gathered = job.gather(mine)?;
        for (rank, theirs) in gathered.iter().enumerate() {
            if theirs.len() != bytes {
                let theirs = theirs.len();
                return Err(argument(format!(
                    "rank {rank} gave {theirs} bytes to gather and this rank {bytes}; they have to agree"
                )));
            }
        }
        let gathered = gathered.concat();
        if bytes > 0 {
            // SAFETY: unisono.h requires room for `bytes` of every rank; the gathered bytes lie elsewhere.
            unsafe { std::ptr::copy_nonoverlapping(gathered.as_ptr(), all.cast::<u8>(), gathered.len()) };
        }
        Ok(())
    })
}

/// Leaves the job and sets `*job` to NULL. Free the job's windows first. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_job_finalize(job: *mut *mut JobHandle) -> CallStatus {
    ffi_call(|| {
        // SAFETY: unisono.h requires NULL or the address of a handle.
        let from = unsafe { job.as_mut() }.ok_or_else(|| null("job"))?;
        if from.is_null() {
            return Err(argument("the job has been finalized; join it once and leave it once"));
        }
        // SAFETY: `write_handle` made it; the program's pointer becomes NULL here, so it is freed once.
        let owned = unsafe { Box::from_raw(std::mem::replace(from, std::ptr::null_mut())) };
        owned.0.finalize()
    })
}
