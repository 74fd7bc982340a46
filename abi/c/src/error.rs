//! Codes and texts of errors; the wall that keeps panics out of C.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use unisono_rma::{Error, ErrorClass};

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
    /// Something else.
    Other = 20,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Fault {
    Engine(Error),
    Argument(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Engine(error)
    }
}

impl Fault {
    /// A pointer that must not be null.
    pub(crate) fn null(what: &str) -> Self {
        Fault::Argument(format!("{what} is NULL; pass a valid pointer"))
    }

    fn status(&self) -> Status {
        let error = match self {
            Fault::Argument(_) => return Status::Arg,
            Fault::Engine(error) => error,
        };
        match error {
            Error::Gone { .. } => return Status::Gone,
            Error::TimedOut { .. } => return Status::TimedOut,
            Error::System { .. } | Error::Exhausted { .. } => return Status::System,
            _ => {}
        }
        match error.class() {
            ErrorClass::Arg => Status::Arg,
            ErrorClass::Assert => Status::Assert,
            ErrorClass::Count => Status::Count,
            ErrorClass::Disp => Status::Disp,
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

    fn text(&self) -> String {
        match self {
            Fault::Engine(error) => error.to_string(),
            Fault::Argument(text) => text.clone(),
        }
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
    const NAMES: [&CStr; 21] = [
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
    ];
    usize::try_from(status).ok().and_then(|at| NAMES.get(at)).copied().unwrap_or(c"UNKNOWN").as_ptr()
}

/// Runs a call's body, keeps its error's text for [`unisono_error_text`], and lets nothing unwind.
pub(crate) fn answer(body: impl FnOnce() -> Result<(), Fault>) -> Status {
    let (status, text) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(fault)) => (fault.status(), fault.text()),
        Err(payload) => (Status::Internal, panicked(&*payload)),
    };
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // without the thread's memory (it is ending) there is nobody to ask for the text
    let _ = TEXT.try_with(|kept| *kept.borrow_mut() = text);
    status
}

fn panicked(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
    format!("a mistake in libunisono: {text}; please report it, and end the program")
}

/// A rank, as C passes it.
pub(crate) fn rank(rank: c_int) -> Result<unisono_rma::Rank, Fault> {
    let negative = || Fault::Argument(format!("rank {rank} is negative; give 0 to the job's size less one"));
    u32::try_from(rank).map(unisono_rma::Rank).map_err(|_| negative())
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
        assert_eq!(answer(|| Err(Fault::null("window"))), Status::Arg);
        std::thread::spawn(|| assert_eq!(text(), "")).join().expect("the other thread's text is empty");
        assert_eq!(text(), "window is NULL; pass a valid pointer");
    }

    #[test]
    fn every_status_has_its_name() {
        // SAFETY: names are C strings for ever.
        let name = |at| unsafe { CStr::from_ptr(unisono_status_name(at)) }.to_str().expect("letters");
        assert_eq!(name(Status::RmaRange as c_int), "RMA_RANGE");
        assert_eq!(name(Status::Other as c_int), "OTHER");
        assert_eq!((name(21), name(-1)), ("UNKNOWN", "UNKNOWN"));
    }
}
