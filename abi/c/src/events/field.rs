//! A field of an event in its C form.

use std::ffi::{c_char, c_int};

/// The type of a field's value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    Whole = 1,
    /// Received fields with a whole value have the type WHOLE instead.
    Decimal = 2,
    /// The value is `whole`: 0 or 1.
    Bool = 3,
    Text = 4,
}

/// A named value of an event, which filters can test.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventField {
    /// At most 255 bytes.
    pub name: *const c_char,
    /// A value of unisono_field_kind.
    pub kind: c_int,
    pub whole: i64,
    /// In received events also set for WHOLE.
    pub decimal: f64,
    /// At most 65,535 bytes.
    pub text: *const c_char,
}
