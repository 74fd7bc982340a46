//! Hierarchical start-time fair queuing as a queueing discipline of the kernel.
//!
//! ```text
//!   Hierarchy --> layout: bytes of struct hsfq --> a map's value <-- fairqueue.bpf.c (enqueue, dequeue, ...)
//!   KernelTypes: offsets, numbers ----------------------------------^  `-- fairqueue.h: the decisions
//!                                                  LoadedDiscipline: registered under its own name; a
//!                                                  device gets it by that name (netlink::qdisc)
//!                                                  Attached: counters; other classes, while packets wait
//! ```
//!
//! Needs Linux 6.16 or later with `CONFIG_NET_SCH_BPF`, and clang when it is loaded. See
//! [decision 11](../../../../../docs/decisions/0011-fair-queuing-in-the-kernel.md).

mod attached;
mod delays;
pub mod layout;
mod loaded;
mod setup;

pub use attached::{Attached, DisciplineFigures, kick, priority};
pub use delays::DelayHistogram;
pub use loaded::{LoadedDiscipline, supported};
pub use setup::{KIND, PRIORITIES, Setup};

use unisono_linux::bpf::compile::{CSource, ProgramError, REPEAT};

pub const FAIRQUEUE: CSource = CSource {
    what: "the queueing discipline",
    files: &[
        ("fairqueue.bpf.c", include_str!("fairqueue.bpf.c")),
        ("fairqueue.h", include_str!("fairqueue.h")),
        ("fairqueue_change.h", include_str!("fairqueue_change.h")),
        REPEAT,
    ],
};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Classes(#[from] layout::TooLarge),
    #[error(transparent)]
    Program(#[from] ProgramError),
}
