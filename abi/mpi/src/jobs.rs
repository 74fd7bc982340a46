//! Jobs: one for each communicator that needs one.

use crate::failure::{OK, answer, failed, guard, guarded};
use crate::messages::{Callbacks, Messages};
use crate::statistics;
use std::ffi::c_int;
use std::slice;
use std::time::Duration;
use unisono_linux::clock::{Nanos, ticks};
use unisono_rma::{Assert, Error, Found, Job, Key, Locks, Place, Rank, Spec, Window};

/// How often the host MPI makes progress while this rank waits. A wake-up costs a few microseconds, and a
/// message that waits for us to move waits this long at most.
const PROGRESS_EVERY: Duration = Duration::from_micros(500);
/// The host MPI does not say whether it had something to do, but moving a piece of a message takes longer than finding
/// none: 10 to 50 ns when idle, with MPICH 4.0 and Open MPI 4.1. Who lost its processor meanwhile is taken for
/// busy, which costs a few calls.
const MOVED_SOMETHING: Nanos = Nanos(1_000);
/// For the other ranks to come; they are all on their way, and may have to share a processor.
const PATIENCE: Duration = Duration::from_secs(60);

/// # Safety
/// `key` has 16 bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_key(key: *mut u8) -> c_int {
    guard(|| match Key::random() {
        Ok(random) => {
            // SAFETY: the caller's promise.
            let bytes = unsafe { slice::from_raw_parts_mut(key, 16) };
            bytes.copy_from_slice(random.bytes());
            OK
        }
        Err(error) => failed(&error),
    })
}

/// A job and what its barriers use.
pub(crate) struct Member {
    pub(crate) job: Job,
    /// A window of no bytes: where memory is shared its fence is one barrier episode, while the job's own
    /// barrier is made of packets.
    gate: Option<Window>,
    shares_memory: bool,
}

impl Member {
    fn barrier(&mut self) -> Result<(), Error> {
        if !self.shares_memory {
            return self.job.barrier();
        }
        if self.gate.is_none() {
            // making it is collective as a barrier is, and the job's barrier orders this first time
            self.gate = Some(self.job.allocate(0, Spec::new().locks(Locks::Never))?);
            self.job.barrier()?;
        }
        self.gate.as_mut().map_or(Ok(()), |gate| gate.fence(Assert::NONE))
    }

    fn finalize(mut self) -> Result<(), Error> {
        if let Some(gate) = &mut self.gate {
            let mut stats = gate.stats();
            // the barrier that made it
            stats.fence.epochs += 1;
            statistics::keep("barriers", stats);
            gate.fence(Assert::NO_SUCCEED)?;
            gate.free()?;
        }
        self.gate = None;
        self.job.finalize()
    }
}

fn place(rank: c_int, size: c_int, key: Key) -> Result<Place, Error> {
    let number = |what: &str, value: c_int| {
        u32::try_from(value).map_err(|_| Error::Job(format!("a job with {what} {value} is not possible")))
    };
    Ok(Place { rank: Rank(number("rank", rank)?), size: number("size", size)? as usize, key })
}

/// Hands a job to C.
///
/// # Safety
/// `made` is writable.
unsafe fn hand_out(result: Result<Job, Error>, shares_memory: bool, made: *mut *mut Member) -> c_int {
    match result {
        Ok(job) => {
            let member = Box::new(Member { job, gate: None, shares_memory });
            // SAFETY: the caller's promise.
            unsafe { *made = Box::into_raw(member) };
            OK
        }
        Err(error) => failed(&error),
    }
}

/// # Safety
/// `key` has 16 bytes, `made` is writable, and `progress` may be called while this process waits.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_job_shared(
    rank: c_int,
    size: c_int,
    key: *const u8,
    progress: extern "C" fn(),
    made: *mut *mut Member,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { &*key.cast::<[u8; 16]>() };
        let job = place(rank, size, Key::from_bytes(*key)).and_then(|place| Job::shared(&place, PATIENCE));
        let job = job.map(|mut job| {
            let moved = MOVED_SOMETHING.to_ticks();
            let call = move || {
                let before = ticks();
                progress();
                if ticks().since(before) > moved { Found::Work } else { Found::Nothing }
            };
            job.while_waiting(PROGRESS_EVERY, Box::new(call));
            job
        });
        // SAFETY: the caller's promise.
        unsafe { hand_out(job, true, made) }
    })
}

/// # Safety
/// The callbacks stay valid, and `made` is writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_job_messages(
    rank: c_int,
    size: c_int,
    callbacks: *const Callbacks,
    made: *mut *mut Member,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise; a table of pointers, copied.
        let callbacks = unsafe { *callbacks };
        let job = place(rank, size, Key::from_bytes([0; 16]))
            .map(|place| Job::over(Messages::new(place.rank, place.size, callbacks)));
        // SAFETY: the caller's promise.
        unsafe { hand_out(job, false, made) }
    })
}

/// # Safety
/// `job` came from this file and is used by nobody else meanwhile.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_job_barrier(job: *mut Member) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let job = unsafe { &mut *job };
        answer(job.barrier())
    })
}

/// # Safety
/// `job` came from this file.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_job_without_agent(job: *const Member) {
    guarded((), || {
        // SAFETY: the caller's promise.
        let job = unsafe { &*job };
        job.job.without_agent();
    });
}

/// # Safety
/// `job` came from this file and is never used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_job_finalize(job: *mut Member) -> c_int {
    guard(|| {
        // SAFETY: it came from Box::into_raw, and the caller gives it back once.
        let job = unsafe { Box::from_raw(job) };
        answer(job.finalize())
    })
}
