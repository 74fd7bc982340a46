//! Errors as C gets them: a number for the class, words on request.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use unisono_rma::{Error, ErrorClass};

thread_local! {
    static WORDS: RefCell<CString> = RefCell::default();
}

/// No error.
pub(crate) const OK: c_int = 0;

/// `CORE_AGAIN` and `CORE_UNFINISHED` in `shim/core.h`: no errors, but calls to be repeated.
pub(crate) const AGAIN: c_int = -1;
pub(crate) const UNFINISHED: c_int = -2;

/// `CORE_OTHER` in `shim/core.h`.
const OTHER: c_int = 6;

/// `CORE_GONE` in `shim/core.h`: the standard has no class for it, but a program may want to know who.
const GONE: c_int = 17;

/// `enum core_class` in `shim/core.h`.
fn number(class: ErrorClass) -> c_int {
    match class {
        ErrorClass::Arg => 1,
        ErrorClass::Assert => 2,
        ErrorClass::Count => 3,
        ErrorClass::Disp => 4,
        ErrorClass::Op => 5,
        ErrorClass::Rank => 7,
        ErrorClass::RmaAttach => 8,
        ErrorClass::RmaConflict => 9,
        ErrorClass::RmaFlavor => 10,
        ErrorClass::RmaRange => 11,
        ErrorClass::RmaSync => 12,
        ErrorClass::Size => 13,
        ErrorClass::Type => 14,
        ErrorClass::UnsupportedOperation => 15,
        ErrorClass::Win => 16,
        // 17: GONE
        ErrorClass::NoMem => 18,
        // classes that the engine may learn later are other errors until they have a number
        _ => OTHER,
    }
}

/// Keeps the words of an error and answers its class.
#[cold]
pub(crate) fn failed(error: &Error) -> c_int {
    if matches!(error, Error::NotYet) {
        return AGAIN;
    }
    keep(&error.to_string());
    if matches!(error, Error::Gone { .. }) { GONE } else { number(error.class()) }
}

/// The answer to C.
#[inline]
pub(crate) fn answer(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => OK,
        Err(error) => failed(&error),
    }
}

/// Runs the body of a call and lets nothing unwind into C: a panic, which is a mistake of this library, is an error of
/// the class `CORE_OTHER` with its words. The window's handler hears of it and by default ends the whole job; a process
/// that aborted would leave its peers waiting.
#[inline]
pub(crate) fn guard(body: impl FnOnce() -> c_int) -> c_int {
    guarded(OTHER, body)
}

/// As [`guard`], for calls that answer something else; `otherwise` after a panic.
#[inline]
pub(crate) fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        panicked(&*payload);
        otherwise
    })
}

#[cold]
fn panicked(payload: &(dyn Any + Send)) {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
    keep(&format!("a mistake in unisono: {text}; please report it"));
}

fn keep(words: &str) {
    let text = CString::new(words.replace('\0', " ")).unwrap_or_default();
    // without the thread's memory (it is ending) there is nobody to ask for the words
    let _ = WORDS.try_with(|words| words.replace(text));
}

/// The words of this thread's last error; valid until the next.
#[unsafe(no_mangle)]
extern "C" fn core_last_error() -> *const c_char {
    WORDS.try_with(|words| words.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn an_error_leaves_its_class_and_its_words() {
        let class = failed(&Error::Disp(-3));
        assert_eq!(class, number(ErrorClass::Disp));
        // SAFETY: the pointer is this thread's own, and nothing failed since.
        let words = unsafe { CStr::from_ptr(core_last_error()) };
        assert!(words.to_str().expect("UTF-8").contains("-3"));
    }

    #[test]
    fn who_is_gone_has_a_number_of_its_own() {
        let gone = Error::Gone { rank: unisono_rma::Rank(3), why: "process 7 died".to_owned() };
        assert_eq!((failed(&gone), number(gone.class())), (GONE, number(ErrorClass::Other)));
    }

    #[test]
    fn a_panic_becomes_an_error_with_its_words() {
        let answered = std::thread::spawn(|| {
            assert_eq!(guard(|| panic!("an {}", "invariant")), OTHER);
            assert_eq!(guarded(0, || panic!("another")), 0);
            // SAFETY: the pointer is this thread's own, and nothing failed since.
            unsafe { CStr::from_ptr(core_last_error()) }.to_string_lossy().into_owned()
        });
        let words = answered.join().expect("nothing unwinds");
        assert!(words.contains("another") && words.contains("report"), "{words}");
    }

    #[test]
    fn every_export_is_guarded() {
        let files = [
            include_str!("communicate.rs"),
            include_str!("jobs.rs"),
            include_str!("statistics.rs"),
            include_str!("synchronize.rs"),
            include_str!("types.rs"),
            include_str!("windows.rs"),
        ];
        let mut exports = 0;
        for (_, rest) in files
            .iter()
            .flat_map(|text| text.match_indices("extern \"C\" fn ").map(|(at, _)| text.split_at(at)))
        {
            let (declared, body) = rest.split_once("{\n").expect("a function has a body");
            let name = declared.trim_start_matches("extern \"C\" fn ").split('(').next().unwrap_or_default();
            assert!(body.trim_start().starts_with("guard"), "{name} lets a panic into C");
            exports += 1;
        }
        assert!(exports > 30, "the exports were not found: {exports}");
    }

    /// A name, without the comment on the one before.
    fn last_word(text: &str) -> &str {
        text.split_whitespace().next_back().unwrap_or_default()
    }

    #[test]
    fn the_header_has_the_same_numbers() {
        let header = include_str!("../shim/core.h");
        let classes = header.split("enum core_class {").nth(1).expect("the enum is there");
        let names: Vec<&str> =
            classes.split('}').next().expect("it ends").split(',').map(last_word).collect();
        for (class, name) in [
            (ErrorClass::Arg, "CORE_ARG"),
            (ErrorClass::Assert, "CORE_ASSERT"),
            (ErrorClass::Count, "CORE_COUNT"),
            (ErrorClass::Disp, "CORE_DISP"),
            (ErrorClass::NoMem, "CORE_NO_MEM"),
            (ErrorClass::Op, "CORE_OP"),
            (ErrorClass::Other, "CORE_OTHER"),
            (ErrorClass::Rank, "CORE_RANK"),
            (ErrorClass::RmaAttach, "CORE_RMA_ATTACH"),
            (ErrorClass::RmaConflict, "CORE_RMA_CONFLICT"),
            (ErrorClass::RmaFlavor, "CORE_RMA_FLAVOR"),
            (ErrorClass::RmaRange, "CORE_RMA_RANGE"),
            (ErrorClass::RmaSync, "CORE_RMA_SYNC"),
            (ErrorClass::Size, "CORE_SIZE"),
            (ErrorClass::Type, "CORE_TYPE"),
            (ErrorClass::UnsupportedOperation, "CORE_UNSUPPORTED"),
            (ErrorClass::Win, "CORE_WIN"),
        ] {
            assert_eq!(names[number(class) as usize], name);
        }
        assert!(names[GONE as usize].starts_with("CORE_GONE"));
    }
}
