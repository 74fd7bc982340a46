//! Windows: making, freeing, and their memory.

use crate::failure::{OK, answer, failed, guard, guarded};
use crate::jobs::Member;
use crate::statistics;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::time::Duration;
use unisono_rma::{Completion, Error, Locks, Rank, Spec, Window};

/// `enum core_flag` in `shim/core.h`.
const NO_LOCKS: c_uint = 1;
const LOCAL_COMPLETION: c_uint = 2;

fn spec(unit: u32, flags: c_uint) -> Spec {
    let locks = if flags & NO_LOCKS == 0 { Locks::Possible } else { Locks::Never };
    let completion = if flags & LOCAL_COMPLETION == 0 { Completion::Remote } else { Completion::Local };
    Spec::new().unit(unit).locks(locks).completion(completion)
}

/// Hands a window to C.
///
/// # Safety
/// `made` is writable.
unsafe fn hand_out(result: Result<Window, Error>, made: *mut *mut Window) -> c_int {
    match result {
        Ok(window) => {
            // SAFETY: the caller's promise.
            unsafe { *made = Box::into_raw(Box::new(window)) };
            OK
        }
        Err(error) => failed(&error),
    }
}

/// A rank as C says it; negative ones are no ranks.
#[inline]
pub(crate) fn rank_of(rank: c_int) -> Result<Rank, Error> {
    u32::try_from(rank).map(Rank).map_err(|_| {
        // as it looks in the program, not as an enormous number
        Error::Rank { rank: Rank(rank.unsigned_abs()), wanted: format!("a rank: {rank} was given") }
    })
}

/// # Safety
/// `job` came from `jobs`, is used by nobody else meanwhile, and `made` is writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_window_allocate(
    job: *mut Member,
    bytes: u64,
    unit: u32,
    flags: c_uint,
    made: *mut *mut Window,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let job = unsafe { &mut (*job).job };
        // SAFETY: the caller's promise.
        unsafe { hand_out(job.allocate(bytes, spec(unit, flags)), made) }
    })
}

/// # Safety
/// As `core_window_allocate`; the program keeps its memory until it has freed the window.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_window_create(
    job: *mut Member,
    base: *mut c_void,
    bytes: u64,
    unit: u32,
    flags: c_uint,
    made: *mut *mut Window,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let job = unsafe { &mut (*job).job };
        // SAFETY: the standard asks the program to keep the memory.
        let window = unsafe { job.create(base.cast(), bytes, spec(unit, flags)) };
        // SAFETY: the caller's promise.
        unsafe { hand_out(window, made) }
    })
}

/// # Safety
/// As `core_window_allocate`.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_window_dynamic(job: *mut Member, flags: c_uint, made: *mut *mut Window) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let job = unsafe { &mut (*job).job };
        // SAFETY: the caller's promise.
        unsafe { hand_out(job.dynamic(spec(1, flags)), made) }
    })
}

/// # Safety
/// `window` came from here; the other pointers are writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_window_mapped(
    window: *const Window,
    rank: c_int,
    base: *mut *mut c_void,
    bytes: *mut u64,
    unit: *mut u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &*window };
        let mapped = rank_of(rank).and_then(|rank| {
            window.mapped(rank).ok_or(Error::Unsupported {
                what: "a direct address",
                why: "of this rank's part of the window",
            })
        });
        match mapped {
            Ok(mapped) => {
                // SAFETY: the caller's promise.
                unsafe { *base = mapped.base.cast() };
                // SAFETY: the caller's promise.
                unsafe { *bytes = mapped.bytes };
                // SAFETY: the caller's promise.
                unsafe { *unit = mapped.unit };
                OK
            }
            Err(error) => failed(&error),
        }
    })
}

/// # Safety
/// `window` came from here; the program keeps the memory until it has detached it.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_window_attach(window: *mut Window, base: *mut c_void, bytes: u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        let Ok(bytes) = usize::try_from(bytes) else { return failed(&Error::Size(bytes)) };
        // SAFETY: the standard asks the program to keep the memory.
        answer(unsafe { window.attach(base.cast(), bytes) })
    })
}

/// # Safety
/// `window` came from here.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_window_detach(window: *mut Window, base: *const c_void) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        answer(window.detach(base.cast_mut().cast()))
    })
}

/// # Safety
/// `window` came from here.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_window_freeable(window: *const Window) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &*window };
        answer(window.freeable())
    })
}

/// # Safety
/// `window` came from here, and if the answer is 0 is never used again; `label` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_window_free(window: *mut Window, label: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let freed = unsafe { &mut *window };
        let stats = freed.stats();
        if let Err(error) = freed.free() {
            return failed(&error);
        }
        // SAFETY: it came from Box::into_raw, and the caller gives it back once.
        drop(unsafe { Box::from_raw(window) });
        // SAFETY: the caller's promise.
        let label = unsafe { CStr::from_ptr(label) };
        statistics::keep(&label.to_string_lossy(), stats);
        OK
    })
}

/// # Safety
/// `window` came from here; `label` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_window_counted(window: *const Window, label: *const c_char) {
    guarded((), || {
        // SAFETY: the caller's promise.
        let window = unsafe { &*window };
        // SAFETY: the caller's promise.
        let label = unsafe { CStr::from_ptr(label) };
        statistics::keep(&label.to_string_lossy(), window.stats());
    });
}

/// # Safety
/// `window` came from here.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_window_patience(window: *const Window, nanoseconds: u64) {
    guarded((), || {
        // SAFETY: the caller's promise.
        let window = unsafe { &*window };
        window.set_patience(Some(Duration::from_nanos(nanoseconds)));
    });
}
