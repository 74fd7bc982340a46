//! The laboratory's kinds of runs, with one file for each driver, as in [`unisono_study::driver`].

pub mod channel;
pub mod disk;
pub mod effort;
pub mod ghost_hosts;
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

pub static DRIVERS: [DriverKind; 10] = [
    monitor::MONITOR,
    processor::PROCESSOR,
    disk::DISK_SHARES,
    link::LINK,
    service::SERVICE,
    effort::EFFORT,
    rivals::RIVALS,
    simulated::SIMULATED,
    channel::CHANNEL,
    ghost_hosts::GHOST_HOSTS,
];
