//! Errors as C gets them: a number for the class, words on request.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use unisono_rma::{Error, ErrorClass};

thread_local! {
    static WORDS: RefCell<CString> = RefCell::default();
}

/// No error.
pub(crate) const OK: c_int = 0;

/// `CORE_AGAIN` and `CORE_UNFINISHED` in `shim/core.h`: no errors, but calls to be repeated.
pub(crate) const AGAIN: c_int = -1;
pub(crate) const UNFINISHED: c_int = -2;

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
        // classes that the engine may learn later are other errors until they have a number
        _ => 6,
    }
}

/// Keeps the words of an error and answers its class.
#[cold]
pub(crate) fn failed(error: &Error) -> c_int {
    if matches!(error, Error::NotYet) {
        return AGAIN;
    }
    let text = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
    WORDS.with_borrow_mut(|words| *words = text);
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

/// The words of this thread's last error; valid until the next.
#[unsafe(no_mangle)]
extern "C" fn core_last_error() -> *const c_char {
    WORDS.with_borrow(|words| words.as_ptr())
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
    fn the_header_has_the_same_numbers() {
        let header = include_str!("../shim/core.h");
        let classes = header.split("enum core_class {").nth(1).expect("the enum is there");
        let names: Vec<&str> =
            classes.split('}').next().expect("it ends").split(',').map(str::trim).collect();
        for (class, name) in [
            (ErrorClass::Arg, "CORE_ARG"),
            (ErrorClass::Assert, "CORE_ASSERT"),
            (ErrorClass::Count, "CORE_COUNT"),
            (ErrorClass::Disp, "CORE_DISP"),
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
