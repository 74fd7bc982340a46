//! The bytes that a packet takes on the link behind the device, such as a modem's.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// The bytes of an ATM cell, and the bytes of a packet that one cell carries.
const CELL: u32 = 53;
const CELL_PAYLOAD: u32 = 48;

/// The difference between a frame of the device and its form on the link. The default is no difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LinkFraming {
    /// The bytes that the link adds to each frame; negative if the link carries fewer bytes than the device.
    pub overhead: i16,
    /// Whether the link carries whole ATM cells.
    pub atm: bool,
}

impl LinkFraming {
    pub(super) const OVERHEADS: RangeInclusive<i16> = -64..=256;

    /// Returns the bytes that the link's rate is charged for a frame; at least 1.
    pub fn charged(self, frame: u32) -> u32 {
        let bytes = frame.saturating_add_signed(self.overhead.into()).max(1);
        if self.atm { bytes.div_ceil(CELL_PAYLOAD).saturating_mul(CELL) } else { bytes }
    }

    pub fn is_plain(self) -> bool {
        self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Policy;
    use super::*;

    /// Fills cells byte by byte.
    fn model(frame: u32, overhead: i64, atm: bool) -> u32 {
        let (mut bytes, mut cells, mut room) = (0, 0, 0);
        for _ in 0..(i64::from(frame) + overhead).max(1) {
            bytes += 1;
            if room == 0 {
                (cells, room) = (cells + 1, 48);
            }
            room -= 1;
        }
        if atm { cells * 53 } else { bytes }
    }

    #[test]
    fn a_frame_is_charged_as_a_model_that_fills_cells_counts_it() {
        for overhead in [-64, -14, -1, 0, 1, 18, 47, 48, 100, 256] {
            for atm in [false, true] {
                let framing = LinkFraming { overhead, atm };
                for frame in (0..200).chain([1500, 1514, 9014, 65_549]) {
                    assert_eq!(
                        framing.charged(frame),
                        model(frame, overhead.into(), atm),
                        "{framing:?} {frame}"
                    );
                }
            }
        }
        let greatest = LinkFraming { overhead: 256, atm: true };
        assert_eq!(greatest.charged(u32::MAX), u32::MAX);
    }

    #[test]
    fn a_policy_says_what_the_link_adds() {
        let read = |line: &str| Policy::parse(&format!("rate = \"1mbit\"\n{line}\n[class.a]\n"));
        assert!(read("").expect("sound").framing.is_plain());
        assert_eq!(read("overhead = 18").expect("sound").framing, LinkFraming { overhead: 18, atm: false });
        assert_eq!(
            read("overhead = -14\natm = true").expect("sound").framing,
            LinkFraming { overhead: -14, atm: true }
        );
        for (line, place, hint) in [
            ("overhead = 257", "2:12:", "from -64 to 256"),
            ("overhead = -65", "2:12:", "from -64 to 256"),
            ("overhead = \"18\"", "2:12:", "whole number"),
            ("atm = 1", "2:7:", "true or false"),
            ("overhaed = 1", "2:1:", "did you mean `overhead`?"),
        ] {
            let error = read(line).expect_err(line).to_string();
            assert!(error.contains(hint), "{error}");
            assert!(error.contains(place), "{error}");
        }
    }
}
