//! the machine: system calls, shared memory, cgroups, topology, capabilities.
pub mod affinity;
pub mod clock;
pub mod current_cpu;
pub mod futex;
pub mod membarrier;
pub mod shared_memory;
