//! A trial ends over every transport and with every way of waiting, even if one program fills the other's
//! rings, and if the broker and the programs spin on fewer processors than threads.

use crate::common::watchdog::within_a_minute;
use std::time::Duration;
use unisono_broker::{TrialSpec, trial};
use unisono_events_client::{BrokerAddress, ChannelWait};

#[test]
fn a_trial_ends_within_a_batch_that_takes_longer() {
    within_a_minute(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let (time, deadline) = (Duration::from_millis(200), Duration::from_secs(10));
        let address = BrokerAddress::Unix(directory.path().join("socket"));
        let (wait, batch) = (ChannelWait::Sleep, Some(usize::MAX));
        let spec = TrialSpec { address, tls: None, direct: true, size: 64, wait, time, deadline, batch };
        trial(&spec).expect("it ends");
    });
}

#[test]
fn a_trial_ends_however_its_parties_wait() {
    within_a_minute(|| {
        let directory = tempfile::tempdir().expect("a directory");
        for wait in [ChannelWait::Sleep, ChannelWait::Adaptive, ChannelWait::Spin] {
            for (shared, direct) in [(false, true), (true, false), (true, true)] {
                let path = directory.path().join(format!("{wait:?}-{shared}-{direct}"));
                let address = if shared { BrokerAddress::Shared(path) } else { BrokerAddress::Unix(path) };
                let time = Duration::from_millis(300);
                let (deadline, batch) =
                    (Duration::from_secs(10), [None, Some(8)][usize::from(wait == ChannelWait::Sleep)]);
                let spec = TrialSpec { address, tls: None, direct, size: 1024, wait, time, deadline, batch };
                let result = trial(&spec).expect("it ends");
                assert!(result.events_per_s > 0.0, "{wait:?}, {shared}, {direct}");
            }
        }
    });
}
