//! Windows: making, freeing, attaching memory, and finding others' parts in one's own address space.

use crate::error::{CallStatus, answer, argument, null, rank};
use crate::job::{JobHandle, job};
use std::ffi::{c_int, c_void};
use unisono_rma::{Completion, Error, Job, Locks, Spec, Style, Window};

/// Memory of each member of a job that the other members read and write.
#[derive(Debug)]
pub struct WindowHandle(pub(crate) Window);

/// The program never locks this window: no agent thread runs for it, and lock calls are errors.
pub const UNISONO_NO_LOCKS: u32 = 1;
/// Unlock completes operations at the origin only. They are complete at the target after the next flush
/// there, unisono_window_settle or unisono_window_free.
pub const UNISONO_LOCAL_COMPLETION: u32 = 2;

/// How synchronization is done.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StyleCode {
    /// Stores and flags where ranks share memory; elsewhere as DEFERRED.
    Direct = 0,
    /// Messages everywhere, which the call that ends an epoch sends (Thakur, Gropp, Toonen, EuroPVM/MPI
    /// 2004).
    Deferred = 1,
    /// Messages everywhere, one for each call; to compare with.
    Naive = 2,
}

/// What kind of window to make. All zero is the default, and so is a NULL pointer to this.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WindowSpec {
    /// Bytes of one unit of displacement into this rank's part; 0 means 1.
    pub unit: u32,
    /// A sum of UNISONO_NO_LOCKS and UNISONO_LOCAL_COMPLETION; the same on all ranks.
    pub flags: u32,
    /// One of unisono_style; the same on all ranks.
    pub style: c_int,
}

/// Calls the window behind a handle.
///
/// # Safety
/// `window` is null or a live handle that no other thread uses now.
#[inline]
pub(crate) unsafe fn on(
    window: *mut WindowHandle,
    call: impl FnOnce(&mut Window) -> Result<(), Error>,
) -> CallStatus {
    // SAFETY: null or a live handle of this thread's, which the caller of this function says.
    answer(|| match unsafe { window.as_mut() } {
        Some(WindowHandle(window)) => call(window),
        None => Err(null("window")),
    })
}

/// # Safety
/// `spec` is null or readable.
unsafe fn spec(spec: *const WindowSpec) -> Result<Spec, Error> {
    // SAFETY: null or readable, which the caller of this function says.
    let Some(given) = (unsafe { spec.as_ref() }) else { return Ok(Spec::new()) };
    if given.flags & !(UNISONO_NO_LOCKS | UNISONO_LOCAL_COMPLETION) != 0 {
        return Err(argument(format!("{:#x} are no flags of a unisono_spec", given.flags)));
    }
    let style = match given.style {
        0 => Style::Direct,
        1 => Style::Deferred,
        2 => Style::Naive,
        other => return Err(argument(format!("{other} is no unisono_style"))),
    };
    let locks = if given.flags & UNISONO_NO_LOCKS != 0 { Locks::Never } else { Locks::Possible };
    let local = given.flags & UNISONO_LOCAL_COMPLETION != 0;
    let completion = if local { Completion::Local } else { Completion::Remote };
    Ok(Spec::new().unit(given.unit.max(1)).style(style).locks(locks).completion(completion))
}

/// Makes a window for the program, by `make` from a job and a spec, and stores its handle in `to`. Until
/// then, and after an error, `*to` is NULL.
///
/// # Safety
/// The pointers are null or valid; no other thread uses the job now.
unsafe fn made(
    job: *mut JobHandle,
    spec: *const WindowSpec,
    to: *mut *mut WindowHandle,
    make: impl FnOnce(&mut Job, Spec) -> Result<Window, Error>,
) -> CallStatus {
    answer(|| {
        // SAFETY: null or writable, which the caller of this function says.
        let to = unsafe { to.as_mut() }.ok_or_else(|| null("window"))?;
        *to = std::ptr::null_mut();
        // SAFETY: null or readable, which the caller of this function says.
        let spec = unsafe { self::spec(spec) }?;
        // SAFETY: null or a live handle of this thread's, which the caller of this function says.
        let window = make(unsafe { self::job(job) }?, spec)?;
        *to = Box::into_raw(Box::new(WindowHandle(window)));
        Ok(())
    })
}

/// Makes a window over zeroed memory of the library's: `bytes` bytes at this rank, which other ranks need not
/// match. `*base` becomes their address. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_allocate(
    job: *mut JobHandle,
    bytes: u64,
    spec: *const WindowSpec,
    base: *mut *mut c_void,
    window: *mut *mut WindowHandle,
) -> CallStatus {
    let make = |job: &mut Job, spec| {
        // SAFETY: unisono.h asks for NULL or a place for the address.
        let base = unsafe { base.as_mut() }.ok_or_else(|| null("base"))?;
        let made = job.allocate(bytes, spec)?;
        *base = made.mapped(job.rank()).map_or(std::ptr::null_mut(), |mapped| mapped.base.cast());
        Ok(made)
    };
    // SAFETY: unisono.h asks for pointers that are null or valid, and for one thread at a job.
    unsafe { made(job, spec, window, make) }
}

/// Makes a window over `bytes` bytes of the program's memory at `base`, which stay valid until the window is
/// freed. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_create(
    job: *mut JobHandle,
    base: *mut c_void,
    bytes: u64,
    spec: *const WindowSpec,
    window: *mut *mut WindowHandle,
) -> CallStatus {
    let make = |job: &mut Job, spec| {
        if base.is_null() && bytes > 0 {
            return Err(null("base"));
        }
        // SAFETY: unisono.h asks that the memory stays valid until the window is freed.
        unsafe { job.create(base.cast(), bytes, spec) }
    };
    // SAFETY: unisono.h asks for pointers that are null or valid, and for one thread at a job.
    unsafe { made(job, spec, window, make) }
}

/// Makes a window without memory: ranks attach memory later. Displacements are addresses. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_dynamic(
    job: *mut JobHandle,
    spec: *const WindowSpec,
    window: *mut *mut WindowHandle,
) -> CallStatus {
    // SAFETY: unisono.h asks for pointers that are null or valid, and for one thread at a job.
    unsafe { made(job, spec, window, |job, spec| job.dynamic(spec)) }
}

/// Attaches memory of this rank to a dynamic window. It stays valid until the program detaches it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_attach(
    window: *mut WindowHandle,
    address: *mut c_void,
    bytes: usize,
) -> CallStatus {
    // SAFETY: unisono.h asks that the memory stays valid until it is detached.
    let call = |window: &mut Window| unsafe { window.attach(address.cast(), bytes) };
    // SAFETY: unisono.h asks for a handle that is null or live, and that one thread uses.
    unsafe { on(window, call) }
}

/// Detaches memory, by the address at which the program attached it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_detach(
    window: *mut WindowHandle,
    address: *mut c_void,
) -> CallStatus {
    // SAFETY: unisono.h asks for a handle that is null or live, and that one thread uses.
    unsafe { on(window, |window| window.detach(address.cast())) }
}

/// Where the part of rank `rank` lies in this process, how many bytes it has, and its displacement unit; each
/// pointer may be NULL. `*base` becomes NULL if this process does not map the part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_mapped(
    window: *mut WindowHandle,
    rank: c_int,
    base: *mut *mut c_void,
    bytes: *mut u64,
    unit: *mut u32,
) -> CallStatus {
    let call = |window: &mut Window| {
        let mapped = window.mapped(self::rank(rank)?);
        let found = mapped.map_or((std::ptr::null_mut(), 0, 0), |m| (m.base.cast(), m.bytes, m.unit));
        // SAFETY: unisono.h asks for NULL or a place for the answer.
        if let Some(base) = unsafe { base.as_mut() } {
            *base = found.0;
        }
        // SAFETY: unisono.h asks for NULL or a place for the answer.
        if let Some(bytes) = unsafe { bytes.as_mut() } {
            *bytes = found.1;
        }
        // SAFETY: unisono.h asks for NULL or a place for the answer.
        if let Some(unit) = unsafe { unit.as_mut() } {
            *unit = found.2;
        }
        Ok(())
    };
    // SAFETY: unisono.h asks for a handle that is null or live, and that one thread uses.
    unsafe { on(window, call) }
}

/// Frees the window and sets the handle to null. `before` looks at the window while there is one.
///
/// # Safety
/// `from` is null, or the address of a handle. The handle is null or live, and no copy of it is in use.
pub(crate) unsafe fn free<T>(
    from: *mut *mut WindowHandle,
    before: impl FnOnce(&Window) -> T,
) -> Result<T, Error> {
    // SAFETY: null or valid, which the caller of this function says.
    let from = unsafe { from.as_mut() }.ok_or_else(|| null("window"))?;
    // SAFETY: null or live, which the caller of this function says.
    let Some(WindowHandle(window)) = (unsafe { from.as_mut() }) else {
        return Err(Error::Freed { call: "unisono_window_free" });
    };
    let seen = before(window);
    window.free()?;
    // SAFETY: `made` made it, and the program's pointer forgets it here.
    drop(unsafe { Box::from_raw(std::mem::replace(from, std::ptr::null_mut())) });
    Ok(seen)
}

/// Frees the window and sets `*window` to NULL. Collective: waits for all ranks. Inside an epoch it is an
/// error, and the window stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_free(window: *mut *mut WindowHandle) -> CallStatus {
    // SAFETY: unisono.h asks for NULL or the address of a handle.
    answer(|| unsafe { free(window, |_| ()) })
}
