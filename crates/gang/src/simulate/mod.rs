//! Programs on simulated cores: what would a machine of another size, kernel or scheduler do?
//!
//! A discrete-event simulation of threads that compute, spin, block, pause and meet at barriers, under the
//! schedulers of two kernels and under this crate's own [`Rotation`](crate::policy::Rotation), unchanged.
//! Call [`simulate`] with a machine and programs. The report has the work, waiting and latencies of each
//! program:
//!
//! ```
//! use unisono_gang::simulate::{
//!     KernelModel, Sharing, SimulatedMachine, SimulatedProgram, WaitCosts, simulate,
//! };
//! use unisono_linux::clock::Nanos;
//!
//! let machine = SimulatedMachine {
//!     cores: 16,
//!     cache_cores: 16,
//!     kernel: KernelModel::Eevdf,
//!     costs: WaitCosts::EXAMPLE_HOST,
//! };
//! let program = SimulatedProgram::barriers("solver", 16, Nanos(50_000), Nanos::ZERO);
//! let report = simulate(&machine, &[program], Sharing::Spread, Nanos(100_000_000), 1)?;
//! assert!(report.gangs[0].barriers > 1900);
//! # Ok::<(), unisono_gang::Error>(())
//! ```
//!
//! Read `model.rs` (what goes in), `state.rs` (what is known), `engine.rs` (events), `queue.rs` and
//! `place.rs` (the kernels), `barrier.rs` and `together.rs` (the programs), `turns.rs` (gangs) and
//! `outcome.rs` (what comes out). `spec.rs` reads a machine and programs from JSON.
//!
//! The same seed gives the same answer. Cost: an event each time a thread begins to wait or to run, about
//! 0.2 us; none while all threads of a program run at the same time. When not: where caches, memory
//! bandwidth, interrupts or a hypervisor matter. docs/simulator.md lists what is not simulated.
//!
//! Reference: Peter et al., "Gang scheduling isn't worth it... yet", ETH TR 745, sections 3 and 4.

mod barrier;
mod cores;
mod engine;
mod kernel;
mod model;
mod outcome;
mod place;
mod program;
mod queue;
mod quota;
mod spec;
mod state;
mod together;
mod turns;

use crate::error::{Error, Result};
pub use kernel::KernelModel;
pub use model::{
    CpuQuota, JobArrivals, MOST_CORES, Meets, Sharing, SimulatedMachine, SimulatedProgram, SimulatedWait,
    WaitCosts,
};
pub use outcome::{Fate, Latencies, Report};
pub use spec::{GangSpec, Simulation, SimulationSpec};
use state::CoreSimulation;
use unisono_linux::clock::Nanos;

/// Runs programs on a machine for `length`, or until all of them have done their work.
/// [`Error::Input`] names what is wrong.
pub fn simulate(
    machine: &SimulatedMachine,
    programs: &[SimulatedProgram],
    sharing: Sharing,
    length: Nanos,
    seed: u64,
) -> Result<Report> {
    simulate_with(machine, programs, sharing, length, seed, &mut |_| true)
}

/// The same; `progress` hears the simulated time now and then, and answers whether to go on.
pub fn simulate_with(
    machine: &SimulatedMachine,
    programs: &[SimulatedProgram],
    sharing: Sharing,
    length: Nanos,
    seed: u64,
    progress: &mut dyn FnMut(Nanos) -> bool,
) -> Result<Report> {
    model::check(machine, programs, sharing)?;
    let mut engine = CoreSimulation::new(machine, programs, sharing, length.0, seed);
    if engine.run(&mut |time| progress(Nanos(time))) {
        Ok(engine.report(machine))
    } else {
        Err(Error::Input("the simulation was stopped".into()))
    }
}
