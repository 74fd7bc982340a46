//! A field of an event, as C sees it.

use std::ffi::{c_char, c_int};

/// What a field holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    Whole = 1,
    /// A decimal with a whole value arrives as WHOLE.
    Decimal = 2,
    /// `whole` is 0 or 1.
    Bool = 3,
    Text = 4,
}

/// A named value of an event, by which filters decide.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventField {
    /// At most 255 bytes.
    pub name: *const c_char,
    /// One of unisono_field_kind.
    pub kind: c_int,
    pub whole: i64,
    /// In events that arrive also set for WHOLE.
    pub decimal: f64,
    /// At most 65,535 bytes.
    pub text: *const c_char,
}
