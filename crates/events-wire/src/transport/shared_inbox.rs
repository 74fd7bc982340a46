//! The inbox that the connections of a thread use in turns: a connection holds it from a read until all
//! frames of that read are taken, and longer only if a frame has arrived in part. So a connection in which
//! nothing waits takes no memory for incoming frames. Cost: two exchanges of a pointer for each read.

use std::cell::Cell;

thread_local! {
    static FREE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Returns the free inbox, or a new one of this length. Its bytes have no meaning.
pub(super) fn take(length: usize) -> Vec<u8> {
    // a thread that ends has no free inbox any more
    match FREE.try_with(Cell::take).unwrap_or_default() {
        free if free.len() == length => free,
        _ => vec![0; length],
    }
}

/// Keeps one free inbox for the next reader of the thread.
pub(super) fn give_back(inbox: Vec<u8>) {
    let _ = FREE.try_with(|free| free.set(inbox));
}
