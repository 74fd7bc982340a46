//! A checked operation in flight: a path queues the operation if it cannot be done at once.

use crate::memory::cursor::{gather, scatter};
use crate::model::{Element, Layout, Operation, Sink, Source, Verb};
use std::borrow::Cow;

#[derive(Debug)]
pub(crate) enum Data {
    Nothing,
    /// Data in the caller's memory; it stays unchanged until the operation is complete at the origin.
    Borrowed {
        address: *const u8,
        count: u64,
        layout: Layout,
    },
    /// A copy, in the order of travel.
    Owned(Box<[u8]>),
    /// A copy of one or two elements.
    Small {
        bytes: [u8; 32],
        length: usize,
    },
}

impl Data {
    pub(crate) fn borrowed(source: Source<'_>) -> Self {
        Self::Borrowed { address: source.address, count: source.count, layout: source.layout.clone() }
    }

    /// Copies `parts`, at most 32 bytes together.
    pub(crate) fn small(parts: &[&[u8]]) -> Self {
        let (mut bytes, mut length) = ([0; 32], 0);
        for part in parts {
            bytes[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        }
        Self::Small { bytes, length }
    }

    /// Returns the data, if it is contiguous.
    pub(crate) fn slice(&self, total: u64) -> Option<&[u8]> {
        match self {
            Self::Nothing => Some(&[]),
            Self::Owned(bytes) => Some(bytes),
            Self::Small { bytes, length } => Some(&bytes[..*length]),
            Self::Borrowed { address, layout, .. } if layout.is_contiguous() && total > 0 => {
                // SAFETY: the raw layer requires a source that is readable and unchanged until the operation
                // is complete.
                Some(unsafe { std::slice::from_raw_parts(*address, total as usize) })
            }
            Self::Borrowed { .. } => None,
        }
    }

    /// Copies the data from byte `skip` on to `into`.
    pub(crate) fn copy(&self, skip: u64, into: &mut [u8]) {
        match self {
            Self::Nothing => {}
            Self::Owned(bytes) => {
                let skip = skip as usize;
                into.copy_from_slice(&bytes[skip..skip + into.len()]);
            }
            Self::Small { bytes, length } => {
                let skip = (skip as usize).min(*length);
                into.copy_from_slice(&bytes[skip..skip + into.len()]);
            }
            Self::Borrowed { address, count, layout } => {
                // SAFETY: the raw layer requires a source that is readable until the operation is complete.
                unsafe { gather(layout, *count, *address, skip, into) };
            }
        }
    }
}

/// The memory for an answer.
#[derive(Debug, Clone)]
pub(crate) struct Back {
    pub(crate) address: *mut u8,
    pub(crate) count: u64,
    pub(crate) layout: Layout,
}

impl Back {
    pub(crate) fn new(sink: Sink<'_>) -> Self {
        Self { address: sink.address, count: sink.count, layout: sink.layout.clone() }
    }

    /// Writes `bytes` to byte `skip` of the data and the bytes after it. Returns false if they do not fit.
    pub(crate) fn write(&self, skip: u64, bytes: &[u8]) -> bool {
        let total = self.layout.total(self.count).unwrap_or(0);
        if skip.checked_add(bytes.len() as u64).is_none_or(|end| end > total) {
            return false;
        }
        // SAFETY: the raw layer requires a sink that is writable until the operation is complete; the range
        // was checked.
        unsafe { scatter(&self.layout, self.count, self.address, skip, bytes) };
        true
    }
}

#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) verb: Verb,
    pub(crate) element: Option<Element>,
    pub(crate) operation: Option<Operation>,
    /// Bytes from the window's base; in a dynamic window an address.
    pub(crate) offset: i64,
    pub(crate) count: u64,
    pub(crate) layout: Layout,
    pub(crate) total: u64,
    pub(crate) data: Data,
    pub(crate) back: Option<Back>,
}

// SAFETY: the raw layer requires memory that stays valid until the operation is complete, in whichever thread
// of this process that happens.
unsafe impl Send for Op {}

impl Op {
    /// Returns the data that travels to the target, in the order of travel.
    pub(crate) fn bytes(&self) -> Cow<'_, [u8]> {
        self.data.slice(self.total).map_or_else(
            || {
                let mut bytes = vec![0; self.total as usize];
                self.data.copy(0, &mut bytes);
                Cow::Owned(bytes)
            },
            Cow::Borrowed,
        )
    }

    /// Whether an answer completes the operation.
    pub(crate) fn is_answered(&self) -> bool {
        self.back.is_some()
    }

    /// Whether the operation may be moved behind all others. A plain get may, because it is not ordered with
    /// them.
    pub(crate) fn is_get(&self) -> bool {
        self.verb == Verb::Get
    }
}
