//! Starts the processes of a native one-sided program and supervises them until all have ended. Also runs
//! several unrelated programs at a time ([`side_by_side`]).
//!
//! [`run`] starts N processes of a program and passes each process its place in the job through the
//! environment ([`unisono_rma::environment`]). From then on it does for the job what a shell does for a
//! single program:
//!
//! ```text
//!   keyboard, signals                                   standard output, standard error
//!        |                                                        ^  whole lines
//!        v                                                        |
//!   launcher: one poll(2) over a signalfd, N pidfds, 2N pipes ----+
//!        |                 |                  |
//!     rank 0            rank 1     ...     rank N-1        each leads a process group of its own
//! ```
//!
//! - *Groups.* Each rank leads a process group, so a signal to a rank also reaches the processes that the
//!   rank started. Each signal arrives only once: the signals of the terminal's keys reach only the launcher,
//!   which passes them on.
//! - *Ending* ([`termination`]) is a state machine without processes in it: the first rank that fails decides
//!   the exit code; the others get a grace period, then SIGTERM, then SIGKILL.
//! - *The launcher's own end*, even by SIGKILL, ends the ranks: the kernel ensures that
//!   ([`unisono_linux::parent_death`]).
//! - *Placement* ([`placement`]): each rank is bound to a processor if there are enough.
//! - *Hosts*: [`run_across`] starts a helper on each host through a launch command (`ssh`). The helper
//!   ([`help`]) does on that host what [`run`] does here; launcher and helpers exchange frames over the
//!   launch command's standard input and output.
//!
//! Cost: the launcher sleeps in poll and wakes only for output, signals and ends. When not to use it: for MPI
//! programs; their `mpiexec` also implements the protocol (PMI) that they expect. The launcher does *not*
//! restart failed ranks, allocate hosts, or communicate with the ranks after their start.
#![forbid(unsafe_code)]

mod error;
mod frame;
mod helper;
mod hosts;
mod lines;
mod order;
pub mod placement;
mod rank;
mod remote;
pub mod side_by_side;
mod sink;
mod standard_input;
mod summary;
mod supervise;
pub mod termination;

pub use error::Error;
pub use helper::help;
pub use hosts::{HostRanks, LaunchCommand};
pub use lines::Prefix;
pub use order::{Options, WindowTable};
pub use placement::Bind;
pub use summary::{JobSummary, RankSummary};
pub use supervise::{Cluster, run, run_across};
pub use termination::ExitOutcome;
