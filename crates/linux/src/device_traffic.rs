//! Bytes that the network devices of this network namespace have received and sent: `/proc/net/dev`.
//!
//! Cost: one read, some microseconds for each device. Reference: proc_pid_net(5).

use std::fs;
use std::io;

/// The counters of a device since its creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTraffic {
    pub name: String,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

impl DeviceTraffic {
    /// Reads the counters of all devices.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_all() -> io::Result<Vec<Self>> {
        Ok(Self::parse(&fs::read_to_string("/proc/net/dev")?))
    }

    /// Parses the lines of the devices. The two heading lines have no colon and are skipped.
    fn parse(text: &str) -> Vec<Self> {
        let device = |line: &str| {
            let (name, counters) = line.rsplit_once(':')?;
            let counters: Vec<&str> = counters.split_ascii_whitespace().collect();
            // eight counters of received packets, then eight of sent packets; bytes come first
            let counter = |at: usize| counters.get(at)?.parse().ok();
            Some(Self { name: name.trim().to_owned(), received_bytes: counter(0)?, sent_bytes: counter(8)? })
        };
        text.lines().filter_map(device).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_each_device_are_read_in_both_directions() {
        let text = "Inter-|   Receive                    |  Transmit\n \
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop\n    \
             lo:  500       5    0    0    0     0          0         0      600       5    0    0    0     0       0          0\n\
             eth0:1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n  v:7:9 2 0 0 0 0 0 0 8 4 0 0 0 0 0 0\n";
        let device = |name: &str, received_bytes, sent_bytes| DeviceTraffic {
            name: name.to_owned(),
            received_bytes,
            sent_bytes,
        };
        assert_eq!(
            DeviceTraffic::parse(text),
            [device("lo", 500, 600), device("eth0", 1, 3), device("v:7", 9, 8)]
        );
    }

    #[test]
    fn this_host_has_a_loopback_device() {
        let all = DeviceTraffic::read_all().expect("the file exists");
        assert!(all.iter().any(|device| device.name == "lo"), "{all:?}");
    }
}
