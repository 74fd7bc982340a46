//! the machine: system calls, shared memory, cgroups, topology, capabilities.
