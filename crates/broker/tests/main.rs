//! The tests of the broker, its client library and its log, as one program. A test that measures or limits
//! its whole process has a program of its own.

#[macro_use]
mod conformance;

mod audit;
mod bad_input;
mod classes;
mod common;
mod counters;
mod datagrams;
mod direct;
mod direct_gate;
mod direct_orders;
mod durable;
mod event_log;
mod events;
mod identities;
mod joined;
mod listener;
mod log_chains;
mod log_memory;
mod loss;
mod memory_limits;
mod memory_ring;
mod mosquitto;
mod mqtt;
mod mqtt_log;
mod names;
mod order;
mod path_sockets;
mod paths;
mod permissions;
mod places;
mod programs;
mod revocations;
mod tls;
mod transports;
mod trial;
mod turns;
