//! The inboxes that the connections of a thread use in turns: a connection holds one from a read until all
//! frames of that read are taken, and longer only if a frame has arrived in part. So a connection in which
//! nothing waits takes no memory for incoming frames. Cost: two exchanges of pointers for each read.

use std::cell::Cell;

thread_local! {
    /// Two, because a program looks at its broker's connection while it has a frame of another program.
    static FREE: Cell<[Vec<u8>; 2]> = const { Cell::new([Vec::new(), Vec::new()]) };
}

/// Returns a free inbox, or a new one of this length. Its bytes have no meaning.
pub(super) fn take(length: usize) -> Vec<u8> {
    // a thread that ends has no free inbox any more
    let free = FREE.try_with(|free| {
        let [first, second] = free.take();
        free.set([second, Vec::new()]);
        first
    });
    free.ok().filter(|free| free.len() == length).unwrap_or_else(|| vec![0; length])
}

/// Keeps a free inbox for the next readers of the thread.
pub(super) fn give_back(inbox: Vec<u8>) {
    let _ = FREE.try_with(|free| {
        let [first, _] = free.take();
        free.set([inbox, first]);
    });
}
