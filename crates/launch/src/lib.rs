//! Starts the processes of a native one-sided program, and looks after them until all have ended; and several
//! programs that have nothing to do with each other ([`side_by_side`]).
//!
//! [`run`] starts N processes of one program, tells each its place in the job by the environment
//! ([`unisono_rma::environment`]), and from then on is what a shell is to a single program:
//!
//! ```text
//!   keyboard, signals                                   standard output, standard error
//!        |                                                        ^  whole lines
//!        v                                                        |
//!   launcher: one poll(2) over a signalfd, N pidfds, 2N pipes ----+
//!        |                 |                  |
//!     rank 0            rank 1     ...     rank N-1        each leads a process group of its own
//! ```
//! - *Groups.* Each rank leads a process group, so that what a rank started is signalled with it, and so that
//!   every signal comes once: the terminal's keys reach the launcher alone, which passes them on.
//! - *Ending* ([`ending`]) is a state machine without processes in it: the first rank that fails decides the
//!   exit code, the others get a grace period, then SIGTERM, then SIGKILL.
//! - *The launcher's own end*, also by SIGKILL, ends the ranks: the kernel sees to it
//!   ([`unisono_linux::parent_death`]).
//! - *Places* ([`placement`]): a processor each where there are enough.
//! - *Hosts*: [`run_across`] has a launch command (`ssh`) start a helper on each host. The helper ([`help`])
//!   does there what [`run`] does here; launcher and helpers talk in frames over the launch command's
//!   standard input and output.
//!
//! Cost: it sleeps in poll and wakes for output, signals and ends only. When not to use: for MPI programs,
//! whose `mpiexec` also speaks the protocol (PMI) that they expect. It does *not* restart what failed,
//! allocate hosts, or talk to the ranks after they were started.
#![forbid(unsafe_code)]

pub mod ending;
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

pub use ending::How;
pub use error::Error;
pub use helper::help;
pub use hosts::{HostRanks, LaunchCommand};
pub use lines::Prefix;
pub use order::{Options, WindowTable};
pub use placement::Bind;
pub use summary::{JobSummary, RankSummary};
pub use supervise::{Across, run, run_across};
