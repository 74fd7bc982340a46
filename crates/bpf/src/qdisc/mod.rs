//! Hierarchical start-time fair queuing as a queueing discipline of the kernel.
//!
//! ```text
//!   Hierarchy --> layout: bytes of struct hsfq --> a map's value <-- fairqueue.bpf.c (enqueue, dequeue, ...)
//!                                                                      `-- fairqueue.h: the decisions
//! ```

pub mod layout;
