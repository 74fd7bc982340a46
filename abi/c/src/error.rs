//! Error codes and texts, and the guard that catches panics before they reach C.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use unisono_rma::{Error, ErrorClass, Rank};

/// The result of a call. unisono_error_text() explains an error.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStatus {
    Ok = 0,
    /// A null pointer, an invalid value, or ranks that make a window with different arguments.
    Arg = 1,
    /// Assertions that contradict each other or the call.
    Assert = 2,
    /// A count that overflows.
    Count = 3,
    /// A negative displacement.
    Disp = 4,
    /// The operation is not defined for these elements or for this call.
    Op = 5,
    /// No such rank, or the rank is not in the group of this epoch.
    Rank = 6,
    /// The memory cannot be attached or detached.
    RmaAttach = 7,
    /// A lock is held, or conflicts with the requested one.
    RmaConflict = 8,
    /// The call does not fit this kind of window.
    RmaFlavor = 9,
    /// The operation reaches outside the target's part. Nothing was written.
    RmaRange = 10,
    /// The call needs an epoch that is not open, or does not fit the open epoch.
    RmaSync = 11,
    /// An invalid size for a window, or an event larger than the broker accepts.
    Size = 12,
    /// Origin and target data do not match, or a layout cannot be used here.
    Type = 13,
    /// This build, host or job does not support the call.
    Unsupported = 14,
    /// The window has been freed.
    Win = 15,
    /// A rank is gone and the job cannot go on; or the broker is gone, and the program has to connect again.
    Gone = 16,
    /// The time limit passed.
    TimedOut = 17,
    /// The kernel or the network reported an error.
    System = 18,
    /// A bug in the library itself.
    Internal = 19,
    Other = 20,
    /// The limit of mappings, memory or descriptors is reached.
    NoMem = 21,
    /// Nothing was done: make the same call again. Only the MPI preload gets this status; a program that uses
    /// this header never does.
    Again = 22,
    /// The broker refuses the event, the topic or the subscription; the text gives the reason.
    Refused = 23,
    /// The connection broke and was restored; it is unknown whether the broker processed the event or the
    /// request.
    Unanswered = 24,
    /// The function that unisono_end_waits_by() set ended the wait.
    Interrupted = 25,
}

/// Returns the error for a wrong argument.
#[cold]
pub(crate) fn argument(text: impl Into<String>) -> Error {
    // `Error::Job` has the class `Arg`, and its message is the bare text
    Error::Job(text.into())
}

/// Returns the error for a null pointer where a valid pointer is required.
#[cold]
#[inline(never)]
pub(crate) fn null(what: &str) -> Error {
    argument(format!("{what} is NULL; pass a valid pointer"))
}

fn status(error: &Error) -> CallStatus {
    match error {
        Error::Gone { .. } => return CallStatus::Gone,
        Error::TimedOut { .. } => return CallStatus::TimedOut,
        Error::System { .. } => return CallStatus::System,
        _ => {}
    }
    match error.class() {
        ErrorClass::Arg => CallStatus::Arg,
        ErrorClass::Assert => CallStatus::Assert,
        ErrorClass::Count => CallStatus::Count,
        ErrorClass::Disp => CallStatus::Disp,
        ErrorClass::NoMem => CallStatus::NoMem,
        ErrorClass::Op => CallStatus::Op,
        ErrorClass::Rank => CallStatus::Rank,
        ErrorClass::RmaAttach => CallStatus::RmaAttach,
        ErrorClass::RmaConflict => CallStatus::RmaConflict,
        ErrorClass::RmaFlavor => CallStatus::RmaFlavor,
        ErrorClass::RmaRange => CallStatus::RmaRange,
        ErrorClass::RmaSync => CallStatus::RmaSync,
        ErrorClass::Size => CallStatus::Size,
        ErrorClass::Type => CallStatus::Type,
        ErrorClass::UnsupportedOperation => CallStatus::Unsupported,
        ErrorClass::Win => CallStatus::Win,
        _ => CallStatus::Other,
    }
}

thread_local! {
    static TEXT: RefCell<CString> = RefCell::default();
}

/// Returns the text about this thread's last failed call: the error, and how to correct it. Never NULL; valid
/// until the next failed call of this thread. A call that returns UNISONO_STATUS_AGAIN leaves the text as it
/// is.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_error_text() -> *const c_char {
    TEXT.try_with(|text| text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the name of a status, such as "RMA_RANGE"; never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_status_name(status: c_int) -> *const c_char {
    const NAMES: [&CStr; 26] = [
        c"OK",
        c"ARG",
        c"ASSERT",
        c"COUNT",
        c"DISP",
        c"OP",
        c"RANK",
        c"RMA_ATTACH",
        c"RMA_CONFLICT",
        c"RMA_FLAVOR",
        c"RMA_RANGE",
        c"RMA_SYNC",
        c"SIZE",
        c"TYPE",
        c"UNSUPPORTED",
        c"WIN",
        c"GONE",
        c"TIMED_OUT",
        c"SYSTEM",
        c"INTERNAL",
        c"OTHER",
        c"NO_MEM",
        c"AGAIN",
        c"REFUSED",
        c"UNANSWERED",
        c"INTERRUPTED",
    ];
    usize::try_from(status).ok().and_then(|at| NAMES.get(at)).copied().unwrap_or(c"UNKNOWN").as_ptr()
}

/// Runs a call's body, keeps its error's text for [`unisono_error_text`], and stops panics from unwinding.
#[inline]
pub(crate) fn ffi_call(body: impl FnOnce() -> Result<(), Error>) -> CallStatus {
    // the error is handled inside the closure: moving it out would also slow down successful calls
    guarded(|| body().map_or_else(|error| failed(&error), |()| CallStatus::Ok))
}

/// Runs a body that keeps its own error's text, and stops panics from unwinding.
#[inline]
pub(crate) fn guarded(body: impl FnOnce() -> CallStatus) -> CallStatus {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| panicked(&*payload))
}

/// Like [`ffi_call`], for calls that return no status: returns `otherwise` after an error.
pub(crate) fn ffi_call_or<T>(otherwise: T, body: impl FnOnce() -> Result<T, Error>) -> T {
    let mut answered = otherwise;
    ffi_call(|| {
        answered = body()?;
        Ok(())
    });
    answered
}

#[cold]
pub(crate) fn failed(error: &Error) -> CallStatus {
    if matches!(error, Error::NotYet) {
        // a caller that waits in time slices repeats the call within microseconds, so formatting a text would
        // cost more than the call
        return CallStatus::Again;
    }
    set_error_text(&error.to_string());
    status(error)
}

/// Turns a panic into an error with the panic's text. The process does not abort, because the other ranks
/// would then wait for it.
#[cold]
fn panicked(payload: &(dyn Any + Send)) -> CallStatus {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
    set_error_text(&format!("a mistake in libunisono: {text}; please report it, and end the program"));
    CallStatus::Internal
}

pub(crate) fn set_error_text(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // a thread that is ending has lost its thread-local text, and needs none
    let _ = TEXT.try_with(|kept| kept.replace(text));
}

#[inline]
pub(crate) fn rank(rank: c_int) -> Result<Rank, Error> {
    u32::try_from(rank).map(Rank).map_err(|_| negative(rank))
}

#[cold]
#[inline(never)]
fn negative(rank: c_int) -> Error {
    // the text shows the number that the program passed, because a [`Rank`] cannot be negative
    Error::Rank { rank: Rank(rank.unsigned_abs()), wanted: format!("a rank: {rank} was given") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        // SAFETY: the text is a C string until this thread's next failing call.
        unsafe { CStr::from_ptr(unisono_error_text()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_becomes_a_code_and_a_text() {
        assert_eq!(ffi_call(|| panic!("an {}", "invariant")), CallStatus::Internal);
        assert!(text().contains("an invariant"), "{}", text());
    }

    #[test]
    fn each_thread_has_its_own_text() {
        assert_eq!(ffi_call(|| Err(null("window"))), CallStatus::Arg);
        std::thread::spawn(|| assert_eq!(text(), "")).join().expect("the other thread's text is empty");
        assert_eq!(text(), "window is NULL; pass a valid pointer");
    }

    #[test]
    fn every_status_has_its_name() {
        // SAFETY: the names are static C strings.
        let name = |at| unsafe { CStr::from_ptr(unisono_status_name(at)) }.to_str().expect("letters");
        assert_eq!(name(CallStatus::RmaRange as c_int), "RMA_RANGE");
        assert_eq!(name(CallStatus::Again as c_int), "AGAIN");
        assert_eq!(name(CallStatus::Refused as c_int), "REFUSED");
        assert_eq!(name(CallStatus::Unanswered as c_int), "UNANSWERED");
        assert_eq!(name(CallStatus::Interrupted as c_int), "INTERRUPTED");
        assert_eq!((name(CallStatus::Interrupted as c_int + 1), name(-1)), ("UNKNOWN", "UNKNOWN"));
    }

    #[test]
    fn a_rank_that_is_gone_and_a_limit_have_statuses_of_their_own() {
        let gone = Error::Gone { rank: Rank(3), why: "process 7 died".to_owned() };
        assert_eq!(ffi_call(|| Err(gone)), CallStatus::Gone);
        assert!(text().contains("process 7 died"), "{}", text());
        let limit = Error::Exhausted {
            doing: "map a window".to_owned(),
            source: std::io::ErrorKind::OutOfMemory.into(),
        };
        assert_eq!(ffi_call(|| Err(limit)), CallStatus::NoMem);
        assert_eq!(ffi_call(|| Err(Error::NotYet)), CallStatus::Again);
    }

    #[test]
    fn every_export_that_calls_the_engine_is_guarded() {
        let files = [
            include_str!("events/loan.rs"),
            include_str!("events/mod.rs"),
            include_str!("events/publish.rs"),
            include_str!("events/receive.rs"),
            include_str!("operate.rs"),
            include_str!("request.rs"),
            include_str!("socket_share.rs"),
            include_str!("synchronize.rs"),
            include_str!("window.rs"),
            include_str!("mpi/datatype/mod.rs"),
            include_str!("mpi/mod.rs"),
            include_str!("mpi/statistics.rs"),
        ];
        // a body with one of these runs in `guarded`; the last is the function that `unisono_client_connect`
        // calls
        let guards = [
            "ffi_call(|",
            "ffi_call_or(",
            "guarded(|",
            "hand_out(",
            "with_window(window,",
            "make_window(job,",
            "transfer(",
            "ffi_events_call(",
            "unisono_client_open(&",
        ];
        let exports = files.iter().flat_map(|text| text.split("pub unsafe extern \"C\" fn ").skip(1));
        for export in exports {
            let name = export.split('(').next().unwrap_or_default();
            let body = export.split("\n}\n").next().unwrap_or_default();
            assert!(guards.iter().any(|guard| body.contains(guard)), "{name} lets a panic into C");
        }
    }
}
