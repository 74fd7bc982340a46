//! Who is next among few: a short list in order.
//!
//! For a class with a handful of children a sorted list of 16-byte entries beats anything clever: an entry
//! is a shift within a few cache lines, and the next one is at the front, where it can be fetched without asking how
//! many there are. Order is exact, among equal tags first in, first out.

/// A child that wants service.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) tag: u64,
    pub(crate) slot: u32,
    /// For who sorts many of them.
    pub(crate) rank: u32,
}

impl Entry {
    #[inline]
    pub(crate) fn new(tag: u64, slot: u32) -> Self {
        Self { tag, slot, rank: 0 }
    }
}

/// Up to so many children are kept in a list.
pub(crate) const FEW: usize = 32;

/// Enters one behind all whose tags are not greater; there is room for it at the end.
#[inline]
pub(crate) fn insert(entries: &mut [Entry], entry: Entry) {
    let mut at = entries.len() - 1;
    while at > 0 && entries[at - 1].tag > entry.tag {
        entries[at] = entries[at - 1];
        at -= 1;
    }
    entries[at] = entry;
}

/// Enters one and takes the least, which may be the same.
#[inline]
pub(crate) fn exchange(entries: &mut [Entry], entry: Entry) -> Entry {
    let Some(least) = entries.first().copied().filter(|least| least.tag <= entry.tag) else { return entry };
    let mut at = 1;
    while at < entries.len() && entries[at].tag <= entry.tag {
        entries[at - 1] = entries[at];
        at += 1;
    }
    entries[at - 1] = entry;
    least
}

/// Takes an entry out; what is behind it closes up.
#[inline]
pub(crate) fn close(entries: &mut [Entry], at: usize) {
    entries.copy_within(at + 1.., at);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_tag_comes_first_and_equal_ones_in_the_order_they_came() {
        let mut list = [Entry::default(); 4];
        for (slot, tag) in [(0, 5), (1, 3), (2, 5), (3, 3)] {
            insert(&mut list[..=slot], Entry::new(tag, slot as u32));
        }
        assert_eq!(list.map(|entry| entry.slot), [1, 3, 0, 2]);
        // an equal tag stays behind those that came before, and the least leaves
        assert_eq!(exchange(&mut list, Entry::new(5, 9)).slot, 1);
        assert_eq!(list.map(|entry| entry.slot), [3, 0, 2, 9]);
        assert_eq!(exchange(&mut list, Entry::new(2, 8)).slot, 8);
        close(&mut list, 1);
        assert_eq!(list.map(|entry| entry.slot)[..3], [3, 2, 9]);
    }
}
