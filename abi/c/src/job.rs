//! Jobs: joining, meeting, leaving.

use crate::error::{Status, answer, argument, null};
use std::ffi::{c_int, c_void};
use std::time::Duration;
use unisono_rma::{Error, Job};

/// One rank's membership in a job.
#[derive(Debug)]
pub struct JobHandle(pub(crate) Job);

/// The job behind a handle.
///
/// # Safety
/// `job` is null or a live handle that no other thread uses now.
pub(crate) unsafe fn job<'a>(job: *mut JobHandle) -> Result<&'a mut Job, Error> {
    // SAFETY: null or a live handle, as the caller says.
    let handle = unsafe { job.as_mut() };
    handle.map(|handle| &mut handle.0).ok_or_else(|| null("job"))
}

/// Fills in the caller's pointer.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn give(to: *mut *mut JobHandle, made: Job) -> Result<(), Error> {
    // SAFETY: null or writable, as the caller says.
    let to = unsafe { to.as_mut() }.ok_or_else(|| null("job"))?;
    *to = Box::into_raw(Box::new(JobHandle(made)));
    Ok(())
}

/// Joins the job that `unisono run` started this process for; a process that was started by itself is a job
/// of one. Collective: waits until all have come, at most so many seconds (0 or less: a minute).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_job_join(job: *mut *mut JobHandle, patience_s: f64) -> Status {
    answer(|| {
        // SAFETY: the caller's pointer is null or writable.
        let to = unsafe { job.as_mut() }.ok_or_else(|| null("job"))?;
        *to = std::ptr::null_mut();
        let patience = Duration::try_from_secs_f64(patience_s).ok().filter(|time| !time.is_zero());
        let patience = patience.unwrap_or(Duration::from_secs(60));
        let joined = Job::join(patience)?.or_else(|| Job::threads(1).pop());
        // SAFETY: the pointer that was writable above.
        unsafe { give(job, joined.ok_or_else(|| null("job"))?) }
    })
}

/// This member's number; -1 without a job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_job_rank(job: *const JobHandle) -> c_int {
    // SAFETY: null or a live handle.
    unsafe { job.as_ref() }.map_or(-1, |job| job.0.rank().0.cast_signed())
}

/// How many members there are; -1 without a job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_job_size(job: *const JobHandle) -> c_int {
    // SAFETY: null or a live handle.
    unsafe { job.as_ref() }.map_or(-1, |job| c_int::try_from(job.0.size()).unwrap_or(c_int::MAX))
}

/// Waits until every member has come here. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_job_barrier(job: *mut JobHandle) -> Status {
    // SAFETY: the caller's handle.
    answer(|| unsafe { self::job(job) }?.barrier())
}

/// Gathers `bytes` bytes of every member at every member, in the order of ranks: `all` has room for as many
/// times the job's size. Every member gives as many. Collective; not a fast path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_job_gather(
    job: *mut JobHandle,
    data: *const c_void,
    bytes: usize,
    all: *mut c_void,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let job = unsafe { self::job(job) }?;
        if bytes > 0 && (data.is_null() || all.is_null()) {
            return Err(null("data or all"));
        }
        let mine = match bytes {
            0 => &[][..],
            // SAFETY: not null, and readable for so many bytes, which unisono.h asks for.
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
            // SAFETY: `all` has room for the job's size times `bytes`, which unisono.h asks for, and is not
            // ours.
            unsafe { std::ptr::copy_nonoverlapping(gathered.as_ptr(), all.cast::<u8>(), gathered.len()) };
        }
        Ok(())
    })
}

/// Ends the membership in an orderly way, and sets `*job` to NULL. Free windows before. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_job_finalize(job: *mut *mut JobHandle) -> Status {
    answer(|| {
        // SAFETY: the caller's pointer is null or valid.
        let from = unsafe { job.as_mut() }.ok_or_else(|| null("job"))?;
        if from.is_null() {
            return Err(argument("the job has been finalized; join it once and leave it once"));
        }
        // SAFETY: made by unisono_job_join, and forgotten by the caller from here on.
        let owned = unsafe { Box::from_raw(std::mem::replace(from, std::ptr::null_mut())) };
        owned.0.finalize()
    })
}
