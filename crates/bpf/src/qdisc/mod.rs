//! Hierarchical start-time fair queuing as a queueing discipline of the kernel.
//!
//! ```text
//!   Hierarchy --> layout: bytes of struct hsfq --> a map's value <-- fairqueue.bpf.c (enqueue, dequeue, ...)
//!   kernel_types: offsets, numbers ---------------------------------^  `-- fairqueue.h: the decisions
//!                                                  Discipline: registered under a name of its own, which
//!                                                  a device can be given (netlink::qdisc)
//!                                                  Attached: what it has counted; other classes, while packets wait
//! ```
//!
//! Needs Linux 6.16 or later with `CONFIG_NET_SCH_BPF`, and clang when it is loaded. See
//! [decision 11](../../../../docs/decisions/0011-fair-queuing-in-the-kernel.md).

mod attached;
mod delays;
mod discipline;
pub mod kernel_types;
pub mod layout;

pub use attached::{Attached, Figures, kick, priority};
pub use delays::Delays;
pub use discipline::{Discipline, KIND, PRIORITIES, Setup, supported};
