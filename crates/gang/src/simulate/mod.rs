//! Programs on simulated cores: predicts the effect of another machine size, kernel or scheduler.
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
//! use unisono_linux::clock::{Duration, Instant};
//!
//! let machine = SimulatedMachine {
//!     cores: 16,
//!     cache_cores: 16,
//!     kernel: KernelModel::Eevdf,
//!     costs: WaitCosts::EXAMPLE_HOST,
//! };
//! let program = SimulatedProgram::barriers("solver", 16, Duration::from_micros(50), Duration::ZERO);
//! let report = simulate(&machine, &[program], Sharing::Spread, Duration::from_millis(100), 1)?;
//! assert!(report.gangs[0].barriers > 1900);
//! # Ok::<(), unisono_gang::Error>(())
//! ```
//!
//! Read `model.rs` (the input), `state.rs` (the state), `engine.rs` (events), `queue.rs` and `place.rs` (the
//! kernels), `barrier.rs`, `barrier_cost.rs` and `together.rs` (the programs), `turns.rs` (gangs) and
//! `outcome.rs` (the results). `spec.rs` reads a machine and programs from JSON.
//!
//! The same seed gives the same result. Cost: an event each time a thread begins to wait or to run, about 0.2
//! us; none while all threads of a program run at the same time. When not to use: where caches, memory
//! bandwidth, interrupts or a hypervisor matter. docs/simulator.md lists the effects that are not simulated.
//!
//! Reference: Peter et al., "Gang scheduling isn't worth it... yet", ETH TR 745, sections 3 and 4.

mod barrier;
mod barrier_cost;
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
    CpuQuota, JobArrivals, MAX_CORES, Meets, Sharing, SimulatedMachine, SimulatedProgram, SimulatedWait,
    WaitCosts,
};
pub use outcome::{Latencies, ProgramResult, Report};
pub use spec::{GangSpec, Simulation, SimulationSpec};
use state::CoreSimulation;
use unisono_linux::clock::{Duration, Instant};

/// Runs programs on a machine for `length`, or until all of them have done their work. [`Error::Input`] names
/// the mistake in the input.
pub fn simulate(
    machine: &SimulatedMachine,
    programs: &[SimulatedProgram],
    sharing: Sharing,
    length: Duration,
    seed: u64,
) -> Result<Report> {
    simulate_with(machine, programs, sharing, length, seed, &mut |_| true)
}

/// Does the same as [`simulate`], and calls `progress` with the simulated time from time to time; the
/// simulation stops if `progress` returns false.
pub fn simulate_with(
    machine: &SimulatedMachine,
    programs: &[SimulatedProgram],
    sharing: Sharing,
    length: Duration,
    seed: u64,
    progress: &mut dyn FnMut(Instant) -> bool,
) -> Result<Report> {
    model::check(machine, programs, sharing)?;
    let mut engine = CoreSimulation::new(machine, programs, sharing, length.as_nanos(), seed);
    if engine.run(&mut |time| progress(Instant::from_nanos(time))) {
        Ok(engine.report(machine))
    } else {
        Err(Error::Input("the simulation was stopped".into()))
    }
}
