//! the machine: system calls, shared memory, cgroups, topology, capabilities.

pub mod affinity;
pub mod capability;
pub mod cgroup;
pub mod clock;
pub mod current_cpu;
pub mod futex;
pub mod interrupt;
pub mod local_socket;
pub mod membarrier;
pub mod parent_death;
pub mod pidfd;
pub mod process;
pub mod process_group;
pub mod process_vm;
pub mod schedstat;
pub mod scheduling;
pub mod shared_memory;
pub mod switches;
pub mod tcp;
pub mod terminal;
pub mod timer;
pub mod topology;
pub mod usage;
