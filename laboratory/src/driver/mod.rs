//! The laboratory's kinds of runs, with one file for each driver, as in [`unisono_study::driver`].

pub mod channel;
pub mod disk;
pub mod effort;
mod http;
pub mod link;
pub mod monitor;
pub mod processor;
pub mod rivals;
pub mod service;
pub mod simulated;
mod stage;
mod video;
mod web;

use unisono_study::driver::DriverKind;

pub static DRIVERS: [DriverKind; 9] = [
    monitor::MONITOR,
    processor::PROCESSOR,
    disk::DISK_SHARES,
    link::LINK,
    service::SERVICE,
    effort::EFFORT,
    rivals::RIVALS,
    simulated::SIMULATED,
    channel::CHANNEL,
];
