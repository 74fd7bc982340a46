//! Chooses the settings with which a program's runtime starts as many threads as the program effectively has
//! processors, with the reason for each setting.
//!
//! A program counts processors when it starts. Most runtimes count the processors of the affinity, some those
//! of the machine; few take the quota of a control group into account. With a quota of one processor, a team
//! of eight threads spends its time waiting for threads that the kernel stopped. [`decide`](fn@decide)
//! answers with environment variables, because they reach a program, and the programs that it starts, without
//! changing it:
//!
//! ```text
//!   limits of the host ---> effective processors ---+
//!   the program's file (Go, Java, libraries) -------+--> decide --> settings, each with its reason
//!   the user's variables ---------------------------+               remarks: what was left alone
//! ```
//! Read [`effective`](mod@effective) first, then [`decide`](mod@decide). Both are pure. [`program_traits`]
//! reads a program's file, [`runtimes`] has the table of all variables, and [`fit_host`] asks
//! [`unisono_linux::quota`] for the limits of this host. [`oci`] does the same for a container that does not
//! exist yet.
//!
//! Cost: microseconds, and a pass over the program's bytes. When not to use it: for a program that asks for a
//! number of threads in its code or arguments (`num_threads(8)`, `-t 8`), because no variable reduces that
//! number without changing the program's result. The crate does *not* start programs or change affinities.
//! [`lease`] only chooses processors and records the choice.
//!
//! Reference: S. Peter and others, "Gang scheduling isn't worth it... yet", ETH Zurich TR 745 (2011), section
//! 3; OpenMP 5.2, chapter 21 (environment variables).
#![forbid(unsafe_code)]

mod command_line;
pub mod decide;
pub mod effective;
pub mod fit_host;
pub mod lease;
mod mpi4py;
pub mod oci;
pub mod partition;
mod program_file;
pub mod program_traits;
pub mod ranks;
pub mod runtimes;

pub use command_line::with_prefixed_ranks;
pub use decide::{HostState, Plan, Setting, decide};
pub use effective::{Effective, LimitedBy, effective};
pub use fit_host::{FitHost, FittedProgram};
pub use lease::ProcessorLease;
pub use mpi4py::uses_mpi4py;
pub use partition::{ProcessorPart, partition};
pub use program_traits::{MpiNames, ProgramTraits};
pub use ranks::LocalRanks;
