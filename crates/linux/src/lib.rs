//! the machine: system calls, shared memory, cgroups, topology, capabilities.
pub mod affinity;
