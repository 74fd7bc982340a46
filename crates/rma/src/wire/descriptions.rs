//! Descriptions of layouts between two members: sent once and in pieces, kept within bounds on both sides.
//!
//! The idea: an origin describes a layout to a target once, and sends its id from then on. A description
//! longer than a message travels in pieces, one after the other. Each piece carries the length of the whole
//! and its own position, so there is only one way to put them together; the target refuses anything else.
//! Before the target would have to keep more than [`MAX_DESCRIPTIONS`] layouts or [`MAX_BYTES`], the origin
//! makes the target forget all of them. A single longer description is kept alone.
//!
//! ```text
//!   [layout 7: 0.. of 3.2 MB] [7: 1 MB..] [7: 2 MB..] [7: 3 MB..] [put, layout 7] ... [forget 7] [layout 8]
//! ```
//! Cost: one message of 48 bytes and 32 bytes for each run, and a copy at the target. When not to use:
//! contiguous layouts have no id and need no description. Reference: the paper, section 6 (cached datatypes).

use crate::model::{Layout, MAX_DESCRIPTION};
use crate::wire::packet::Header;
use std::collections::HashMap;

/// The largest number of layouts that a target keeps for one origin.
const MAX_DESCRIPTIONS: usize = 1024;
/// The largest number of bytes of descriptions that a target keeps for one origin. A single description may
/// have more.
const MAX_BYTES: u64 = 32 << 20;

/// The layouts that an origin has described to a target.
#[derive(Debug, Default)]
pub(crate) struct SentDescriptions {
    /// The length of each description, by the layout's id.
    known: HashMap<u64, u64>,
    bytes: u64,
}

impl SentDescriptions {
    pub(crate) fn knows(&self, id: u64) -> bool {
        self.known.contains_key(&id)
    }

    /// Whether the target has room for a description of `bytes` bytes.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        has_room(self.known.len(), self.bytes, bytes)
    }

    pub(crate) fn add(&mut self, id: u64, bytes: u64) {
        self.known.insert(id, bytes);
        self.bytes += bytes;
    }

    /// Removes and returns all ids, for the target to forget.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = u64> + use<> {
        std::mem::take(self).known.into_keys()
    }
}

/// The layouts that a target knows from an origin.
#[derive(Debug, Default)]
pub(crate) struct ReceivedDescriptions {
    /// Each layout and the length of its description, by the layout's id.
    known: HashMap<u64, (Layout, u64)>,
    bytes: u64,
    arriving: Option<PartialDescription>,
}

/// The pieces of a description that have arrived.
#[derive(Debug)]
struct PartialDescription {
    id: u64,
    bytes: Vec<u8>,
    total: u64,
}

impl ReceivedDescriptions {
    pub(crate) fn find(&self, id: u64) -> Option<&Layout> {
        self.known.get(&id).map(|(layout, _)| layout)
    }

    pub(crate) fn forget(&mut self, id: u64) {
        if let Some((_, bytes)) = self.known.remove(&id) {
            self.bytes -= bytes;
        }
    }

    /// Adds a piece, whose contents are untrusted. Refuses the piece unless it begins a description for which
    /// there is room, or follows the last piece.
    pub(crate) fn take(&mut self, header: &Header, piece: &[u8]) -> Result<(), String> {
        let (id, from, total) = (header.layout, header.extra, header.count);
        let length = piece.len() as u64;
        if piece.is_empty() || from.checked_add(length).is_none_or(|end| end > total) {
            return Err(format!("{length} bytes from {from} on of a layout's description of {total}"));
        }
        let mut arriving = match self.arriving.take() {
            None if from == 0 => self.begin(id, total)?,
            Some(begun) if begun.id == id && begun.total == total && begun.bytes.len() as u64 == from => {
                begun
            }
            Some(begun) => {
                let (of, at) = (begun.id, begun.bytes.len());
                return Err(format!("a piece of layout {id} from {from} on where {of} goes on at {at}"));
            }
            None => return Err(format!("layout {id} described from {from} on, without what comes before")),
        };
        arriving.bytes.extend_from_slice(piece);
        if (arriving.bytes.len() as u64) < total {
            self.arriving = Some(arriving);
            return Ok(());
        }
        let layout = Layout::decode(&arriving.bytes).map_err(|bad| bad.to_string())?;
        self.known.insert(id, (layout, total));
        self.bytes += total;
        Ok(())
    }

    fn begin(&self, id: u64, total: u64) -> Result<PartialDescription, String> {
        if id == 0 || self.known.contains_key(&id) {
            return Err(format!("layout {id} cannot be described anew"));
        }
        if total > MAX_DESCRIPTION || !has_room(self.known.len(), self.bytes, total) {
            return Err(format!("no room for the description of layout {id}, {total} bytes long"));
        }
        // Memory is allocated only for bytes that have arrived, whatever the total is.
        Ok(PartialDescription { id, bytes: Vec::new(), total })
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn check(&self) {
        assert_eq!(self.bytes, self.known.values().map(|(_, bytes)| bytes).sum::<u64>(), "counted");
        assert!(
            self.known.len() <= MAX_DESCRIPTIONS && (self.known.len() < 2 || self.bytes <= MAX_BYTES),
            "bounded"
        );
        assert!(self.arriving.as_ref().is_none_or(|begun| (begun.bytes.len() as u64) < begun.total));
    }
}

fn has_room(known: usize, bytes: u64, more: u64) -> bool {
    known == 0 || known < MAX_DESCRIPTIONS && bytes.saturating_add(more) <= MAX_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Element;
    use crate::wire::packet::PacketKind;
    use proptest::prelude::*;

    fn piece(id: u64, from: u64, total: u64) -> Header {
        Header { layout: id, extra: from, count: total, ..Header::new(PacketKind::Layout, 0) }
    }

    fn scattered(runs: usize) -> Layout {
        let blocks: Vec<(i64, u64)> = (0..runs as i64).map(|run| (3 * run, 1 + (run % 2) as u64)).collect();
        Layout::indexed(Element::U8, &blocks).expect("a small layout")
    }

    proptest! {
        #[test]
        fn a_description_in_any_pieces_is_the_layout(runs in 2_usize..200, cuts in prop::collection::vec(1_usize..2000, 1..9)) {
            let layout = scattered(runs);
            let bytes = layout.encode();
            let (mut there, mut at, mut cuts) = (ReceivedDescriptions::default(), 0, cuts.iter().cycle());
            while at < bytes.len() {
                prop_assert!(there.find(9).is_none());
                let end = (at + cuts.next().expect("a cycle")).min(bytes.len());
                prop_assert_eq!(there.take(&piece(9, at as u64, bytes.len() as u64), &bytes[at..end]), Ok(()));
                there.check();
                at = end;
            }
            prop_assert_eq!(there.find(9).expect("complete").runs(), layout.runs());
        }
    }

    #[test]
    fn pieces_that_overlap_leave_gaps_disagree_or_say_nothing_are_refused() {
        let bytes = scattered(9).encode();
        let total = bytes.len() as u64;
        let wrong = [
            (piece(9, 60, total), 64..100, "overlap"),
            (piece(9, 72, total), 64..100, "gap"),
            (piece(9, 0, total), 0..64, "from the beginning again"),
            (piece(8, 64, total), 64..100, "of another layout"),
            (piece(8, 0, total), 0..64, "another layout's beginning"),
            (piece(9, 64, total + 1), 64..100, "another total"),
            (piece(9, 64, 99), 64..100, "beyond its own total"),
            (piece(9, 64, total), 64..64, "nothing"),
            (piece(9, u64::MAX, total), 64..100, "beyond everything"),
        ];
        for (header, range, why) in wrong {
            let mut there = ReceivedDescriptions::default();
            there.take(&piece(9, 0, total), &bytes[..64]).expect("a beginning");
            assert!(there.take(&header, &bytes[range]).is_err(), "{why}");
            there.check();
        }
        let mut there = ReceivedDescriptions::default();
        assert!(there.take(&piece(9, 64, total), &bytes[64..]).is_err(), "no beginning");
        assert!(there.take(&piece(0, 0, total), &bytes).is_err(), "no id");
        assert!(there.take(&piece(9, 0, u64::MAX), &bytes).is_err(), "longer than any");
        assert!(there.take(&piece(9, 0, total), &bytes).is_ok());
        assert!(there.take(&piece(9, 0, total), &bytes).is_err(), "twice");
        there.forget(9);
        there.check();
        assert!(there.take(&piece(9, 0, total), &bytes).is_ok(), "anew, after it was forgotten");
    }

    #[test]
    fn a_target_is_never_told_more_than_it_keeps() {
        let (mut described, mut there) = (SentDescriptions::default(), ReceivedDescriptions::default());
        let mut forgotten = 0;
        for id in 1..4000 {
            let bytes = scattered(if id % 1000 == 0 { 1_100_000 } else { 4 }).encode();
            let total = bytes.len() as u64;
            if !described.has_room(total) {
                described.clear().for_each(|id| there.forget(id));
                forgotten += 1;
            }
            described.add(id, total);
            there.take(&piece(id, 0, total), &bytes).expect("room was made");
            there.check();
        }
        assert!(forgotten > 5, "{forgotten}");
    }
}
