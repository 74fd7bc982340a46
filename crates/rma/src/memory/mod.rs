//! Reading, writing and combining bytes of a window's memory; both paths use it.

pub(crate) mod combine;
pub(crate) mod copy;
pub(crate) mod cursor;
pub(crate) mod long_double;
pub(crate) mod op;
