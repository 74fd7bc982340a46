//! The programs that the laboratory's studies run, in addition to those of [`unisono_workload`].

pub mod channel;
pub mod disk;
pub mod disk_service;
pub mod monitor;
pub mod rival;
pub mod service;
mod stamp;
pub mod stream_cluster;
pub mod traffic;
