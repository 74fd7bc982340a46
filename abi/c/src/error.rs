//! Codes and texts of errors; the wall that keeps panics out of C.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use unisono_rma::{Error, ErrorClass, Rank};

/// What a call answers.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is done.
    Ok = 0,
    /// An argument makes no sense: a null pointer, or a number that means nothing here.
    Arg = 1,
    /// Promises that contradict each other or the call.
    Assert = 2,
    /// A count that overflows.
    Count = 3,
    /// A negative displacement.
    Disp = 4,
    /// The operation is not defined for these elements, or not for this call.
    Op = 5,
    /// No such rank, or one that is not in this epoch's group.
    Rank = 6,
    /// Memory cannot be attached or detached.
    RmaAttach = 7,
    /// A lock is held, or conflicts.
    RmaConflict = 8,
    /// The call does not fit the kind of window.
    RmaFlavor = 9,
    /// Outside the target's window. Nothing was written.
    RmaRange = 10,
    /// Outside the epoch that the call needs.
    RmaSync = 11,
    /// A size that no window can have.
    Size = 12,
    /// Both sides disagree about the data, or a layout cannot be used here.
    Type = 13,
    /// This build, host or job cannot do it.
    Unsupported = 14,
    /// The window has been freed.
    Win = 15,
    /// A rank is gone; the job cannot go on.
    Gone = 16,
    /// Not in time.
    TimedOut = 17,
    /// The kernel refused.
    System = 18,
    /// A mistake in the library itself.
    Internal = 19,
    Other = 20,
    /// A limit is reached: of mappings, of memory, or of descriptors.
    NoMem = 21,
    /// Nothing was done, and the same call is to be made again. Only for bindings that give windows a
    /// patience.
    Again = 22,
}

/// An argument that makes no sense.
#[cold]
pub(crate) fn argument(text: impl Into<String>) -> Error {
    // the engine's variant for a wrong argument: it has the class `Arg` and says nothing but the text
    Error::Job(text.into())
}

/// A pointer that must not be null.
#[cold]
#[inline(never)]
pub(crate) fn null(what: &str) -> Error {
    argument(format!("{what} is NULL; pass a valid pointer"))
}

fn status(error: &Error) -> Status {
    match error {
        Error::Gone { .. } => return Status::Gone,
        Error::TimedOut { .. } => return Status::TimedOut,
        Error::System { .. } => return Status::System,
        _ => {}
    }
    match error.class() {
        ErrorClass::Arg => Status::Arg,
        ErrorClass::Assert => Status::Assert,
        ErrorClass::Count => Status::Count,
        ErrorClass::Disp => Status::Disp,
        ErrorClass::NoMem => Status::NoMem,
        ErrorClass::Op => Status::Op,
        ErrorClass::Rank => Status::Rank,
        ErrorClass::RmaAttach => Status::RmaAttach,
        ErrorClass::RmaConflict => Status::RmaConflict,
        ErrorClass::RmaFlavor => Status::RmaFlavor,
        ErrorClass::RmaRange => Status::RmaRange,
        ErrorClass::RmaSync => Status::RmaSync,
        ErrorClass::Size => Status::Size,
        ErrorClass::Type => Status::Type,
        ErrorClass::UnsupportedOperation => Status::Unsupported,
        ErrorClass::Win => Status::Win,
        _ => Status::Other,
    }
}

thread_local! {
    static TEXT: RefCell<CString> = RefCell::default();
}

/// What went wrong in this thread's last call that failed, and what to do about it; never NULL. Valid until
/// the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_error_text() -> *const c_char {
    TEXT.try_with(|text| text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The name of a status, such as "RMA_RANGE"; never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_status_name(status: c_int) -> *const c_char {
    const NAMES: [&CStr; 23] = [
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
    ];
    usize::try_from(status).ok().and_then(|at| NAMES.get(at)).copied().unwrap_or(c"UNKNOWN").as_ptr()
}

/// Runs a call's body, keeps its error's text for [`unisono_error_text`], and lets nothing unwind.
#[inline]
pub(crate) fn answer(body: impl FnOnce() -> Result<(), Error>) -> Status {
    // an error is handled inside: copied out of the wall, it would cost the calls that succeed as well
    let body = || body().map_or_else(|error| failed(&error), |()| Status::Ok);
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| panicked(&*payload))
}

/// As [`answer`], for calls that answer no status: `otherwise` after an error.
pub(crate) fn answer_or<T>(otherwise: T, body: impl FnOnce() -> Result<T, Error>) -> T {
    let mut answered = otherwise;
    answer(|| {
        answered = body()?;
        Ok(())
    });
    answered
}

#[cold]
fn failed(error: &Error) -> Status {
    if matches!(error, Error::NotYet) {
        // a caller with a patience asks again within microseconds: no words
        return Status::Again;
    }
    keep(&error.to_string());
    status(error)
}

/// An error with the panic's words: a process that aborted would leave the other ranks waiting.
#[cold]
fn panicked(payload: &(dyn Any + Send)) -> Status {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
    keep(&format!("a mistake in libunisono: {text}; please report it, and end the program"));
    Status::Internal
}

fn keep(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // without the thread's memory (it is ending) there is nobody to ask for the text
    let _ = TEXT.try_with(|kept| kept.replace(text));
}

/// A rank, as C passes it.
#[inline]
pub(crate) fn rank(rank: c_int) -> Result<Rank, Error> {
    u32::try_from(rank).map(Rank).map_err(|_| negative(rank))
}

#[cold]
#[inline(never)]
fn negative(rank: c_int) -> Error {
    // as it looks in the program, not as an enormous number
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
        assert_eq!(answer(|| panic!("an {}", "invariant")), Status::Internal);
        assert!(text().contains("an invariant"), "{}", text());
    }

    #[test]
    fn each_thread_has_its_own_text() {
        assert_eq!(answer(|| Err(null("window"))), Status::Arg);
        std::thread::spawn(|| assert_eq!(text(), "")).join().expect("the other thread's text is empty");
        assert_eq!(text(), "window is NULL; pass a valid pointer");
    }

    #[test]
    fn every_status_has_its_name() {
        // SAFETY: names are C strings for ever.
        let name = |at| unsafe { CStr::from_ptr(unisono_status_name(at)) }.to_str().expect("letters");
        assert_eq!(name(Status::RmaRange as c_int), "RMA_RANGE");
        assert_eq!(name(Status::Again as c_int), "AGAIN");
        assert_eq!((name(23), name(-1)), ("UNKNOWN", "UNKNOWN"));
    }

    #[test]
    fn a_rank_that_is_gone_and_a_limit_have_statuses_of_their_own() {
        let gone = Error::Gone { rank: Rank(3), why: "process 7 died".to_owned() };
        assert_eq!(answer(|| Err(gone)), Status::Gone);
        assert!(text().contains("process 7 died"), "{}", text());
        let limit = Error::Exhausted {
            doing: "map a window".to_owned(),
            source: std::io::ErrorKind::OutOfMemory.into(),
        };
        assert_eq!(answer(|| Err(limit)), Status::NoMem);
        assert_eq!(answer(|| Err(Error::NotYet)), Status::Again);
    }

    #[test]
    fn every_export_that_calls_the_engine_is_guarded() {
        let files = [
            include_str!("operate.rs"),
            include_str!("request.rs"),
            include_str!("synchronize.rs"),
            include_str!("window.rs"),
            include_str!("mpi/datatype/mod.rs"),
            include_str!("mpi/mod.rs"),
            include_str!("mpi/statistics.rs"),
        ];
        let exports = files.iter().flat_map(|text| text.split("pub unsafe extern \"C\" fn ").skip(1));
        for export in exports {
            let (declared, body) = export.split_once("{\n").expect("a function has a body");
            let name = declared.split('(').next().unwrap_or_default();
            let first = body.lines().find(|line| !line.trim_start().starts_with("//")).unwrap_or_default();
            assert!(
                first.contains("answer") || first.contains("hand_out"),
                "{name} lets a panic into C: {first}"
            );
        }
    }
}
