//! The tests of fair queuing, as one program. The test that counts allocations has a program of its own.

mod cello;
mod change;
mod link;
mod order;
mod policy;
mod policy_disk;
mod policy_guarantees;
mod policy_hosts;
mod policy_many;
mod policy_sockets;
mod reference;
