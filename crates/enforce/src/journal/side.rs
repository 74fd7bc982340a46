//! The device of a journal, by its number in its network namespace.

use super::{JournalError, failed};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use unisono_fairqueue::TrafficDirection;
use unisono_linux::netlink::{NetlinkSocket, link};

const NAMESPACE: &str = "/proc/thread-self/ns/net";
/// Suffix of the names of journals about incoming packets.
const INCOMING: &str = "-in";

/// One direction of a device. Each direction has its own policy.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkSide {
    pub device: String,
    pub direction: TrafficDirection,
}

impl LinkSide {
    pub fn out(device: &str) -> Self {
        Self { device: device.to_owned(), direction: TrafficDirection::Out }
    }

    /// Returns the same direction of the device `device`.
    pub fn at(&self, device: &str) -> Self {
        Self { device: device.to_owned(), direction: self.direction }
    }

    /// Returns the command-line options that name this side.
    pub fn options(&self) -> String {
        match self.direction {
            TrafficDirection::Out => format!("--dev {}", self.device),
            TrafficDirection::In => format!("--dev {} --direction in", self.device),
        }
    }
}

impl fmt::Display for LinkSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.direction {
            TrafficDirection::Out => write!(f, "{}", self.device),
            TrafficDirection::In => write!(f, "{} (in)", self.device),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NumberedSide {
    pub(super) index: u32,
    pub(super) direction: TrafficDirection,
}

impl NumberedSide {
    /// Parses a journal's name without its namespace and suffix.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (index, direction) = match text.strip_suffix(INCOMING) {
            Some(index) => (index, TrafficDirection::In),
            None => (text, TrafficDirection::Out),
        };
        Some(Self { index: index.parse().ok()?, direction })
    }

    pub(super) fn other_name(name: &str) -> String {
        let (stem, ending) = name.split_once('.').unwrap_or((name, ""));
        match stem.strip_suffix(INCOMING) {
            Some(stem) => format!("{stem}.{ending}"),
            None => format!("{stem}{INCOMING}.{ending}"),
        }
    }
}

impl fmt::Display for NumberedSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = if self.direction == TrafficDirection::In { INCOMING } else { "" };
        write!(f, "{}{ending}", self.index)
    }
}

/// Returns the inode number of this thread's network namespace.
pub(super) fn namespace() -> Result<u64, JournalError> {
    let path = Path::new(NAMESPACE);
    Ok(fs::metadata(path).map_err(failed("read", path))?.ino())
}

pub(super) struct Devices {
    pub(super) namespace: u64,
    all: Vec<(u32, String)>,
}

impl Devices {
    pub(super) fn of_this_thread() -> Result<Self, JournalError> {
        let (path, namespace) = (Path::new(NAMESPACE), namespace()?);
        let asked = NetlinkSocket::open()
            .and_then(|mut socket| link::all(&mut socket).map_err(std::io::Error::other));
        let links = asked.map_err(failed("list the devices of", path))?;
        Ok(Self { namespace, all: links.into_iter().map(|link| (link.index.0, link.name)).collect() })
    }

    pub(super) fn index_of(&self, name: &str) -> Option<u32> {
        self.all.iter().find(|(_, there)| there == name).map(|(index, _)| *index)
    }

    pub(super) fn name_of(&self, index: u32) -> Option<&str> {
        self.all.iter().find(|(number, _)| *number == index).map(|(_, name)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_journal_says_which_direction_it_is_about() {
        for (index, direction, text) in [(7, TrafficDirection::Out, "7"), (7, TrafficDirection::In, "7-in")] {
            let side = NumberedSide { index, direction };
            assert_eq!(side.to_string(), text);
            assert_eq!(NumberedSide::parse(text), Some(side));
        }
        assert_eq!(NumberedSide::other_name("1-7.json"), "1-7-in.json");
        assert_eq!(NumberedSide::other_name("1-7-in.json"), "1-7.json");
        assert_eq!(NumberedSide::parse("-in"), None);
        assert_eq!(NumberedSide::parse("7-out"), None);
    }
}
