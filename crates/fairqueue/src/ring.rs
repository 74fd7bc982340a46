//! The pages of a calendar queue, in a ring. Each page is a list of entries, first in, first out.
//!
//! The lists of all pages share one slab of links. A word of bits for 64 pages, and another one for 64 such
//! words, say which pages have entries. Appending an entry and taking the first have no branch on whether the
//! page is empty, because a processor could not predict it. For this purpose an empty list ends in a link of
//! its own (number 0) that may be written to. Nothing is allocated once the ring is made.

use crate::packed_queue::TaggedSlot;

#[derive(Clone, Copy, Debug)]
struct PageLink {
    tag: u64,
    slot: u32,
    next: u32,
}

/// The link that ends every list; it holds no entry.
const END: u32 = 0;

/// An empty page is all zero.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    first: u32,
    last: u32,
}

/// Returns a mask that selects without a branch: all bits set if `condition` is true, otherwise none.
#[inline]
fn all_if(condition: bool) -> u32 {
    u32::from(condition).wrapping_neg()
}

#[derive(Clone, Debug)]
pub(crate) struct PageRing {
    pages: Box<[Page]>,
    /// One bit for each page, set if the page has entries. `summary` has one bit for each word of `bits`, set
    /// if the word is not zero.
    bits: Box<[u64]>,
    summary: Box<[u64]>,
    links: Box<[PageLink]>,
    free: u32,
    len: usize,
}

impl PageRing {
    /// Returns a ring of `pages` pages, a power of two and at least 64, with room for `classes` entries.
    pub(crate) fn new(pages: usize, classes: usize) -> Self {
        let count = u32::try_from(classes).expect("fits because classes have numbers of 30 bits");
        let link = |next| PageLink { tag: 0, slot: 0, next };
        Self {
            pages: vec![Page::default(); pages].into(),
            bits: vec![0; pages / 64].into(),
            summary: vec![0; (pages / 64).div_ceil(64)].into(),
            links: [END].into_iter().chain(2..=count).chain([END]).map(link).collect(),
            free: 1,
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Returns the index in the ring of a page that is given by its number, counted from tag 0.
    #[inline]
    pub(crate) fn place(&self, page: u64) -> usize {
        page as usize & (self.pages.len() - 1)
    }

    /// Takes a free link and fills it. The caller guarantees that one is free.
    #[inline]
    fn link(&mut self, entry: TaggedSlot, next: u32) -> u32 {
        let at = self.free;
        let link = &mut self.links[at as usize];
        self.free = link.next;
        *link = PageLink { tag: entry.tag, slot: entry.slot, next };
        self.len += 1;
        at
    }

    /// Appends an entry to a page.
    #[inline]
    pub(crate) fn append(&mut self, place: usize, entry: TaggedSlot) {
        let at = self.link(entry, END);
        let page = &mut self.pages[place];
        let Page { first, last } = *page;
        self.links[last as usize].next = at;
        *page = Page { first: first | at & all_if(last == END), last: at };
        self.bits[place / 64] |= 1 << (place % 64);
        self.summary[place / 4096] |= 1 << (place / 64 % 64);
    }

    /// Inserts an entry into a sorted page, behind entries of the same tag.
    pub(crate) fn insert(&mut self, place: usize, entry: TaggedSlot) {
        let Page { first, last } = self.pages[place];
        if last == END || self.links[last as usize].tag <= entry.tag {
            return self.append(place, entry);
        }
        let (mut before, mut at) = (END, first);
        while self.links[at as usize].tag <= entry.tag {
            (before, at) = (at, self.links[at as usize].next);
        }
        let new = self.link(entry, at);
        match before {
            END => self.pages[place].first = new,
            before => self.links[before as usize].next = new,
        }
    }

    /// Returns the index of the first page with entries, from `from` on around the ring.
    #[inline]
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let bits = self.bits[from / 64] >> (from % 64);
        if bits != 0 {
            return Some(from + bits.trailing_zeros() as usize);
        }
        self.next_word(from)
    }

    #[inline(never)]
    fn next_word(&self, from: usize) -> Option<usize> {
        // looks at the words after this one, around the ring, and at last at this one again
        let from = (from / 64 + 1) & (self.bits.len() - 1);
        let words = self.summary.len();
        let word = (0..=words).find_map(|turn| {
            let at = (from / 64 + turn) % words;
            let all = self.summary[at];
            let bits = if turn == 0 { all & (u64::MAX << (from % 64)) } else { all };
            (bits != 0).then(|| at * 64 + bits.trailing_zeros() as usize)
        })?;
        Some(word * 64 + self.bits[word].trailing_zeros() as usize)
    }

    /// Takes the first entry of a page that is not empty.
    #[inline]
    pub(crate) fn pop(&mut self, place: usize) -> TaggedSlot {
        let page = &mut self.pages[place];
        let at = page.first;
        let link = &mut self.links[at as usize];
        let PageLink { tag, slot, next } = *link;
        link.next = self.free;
        self.free = at;
        self.len -= 1;
        *page = Page { first: next, last: page.last & all_if(next != END) };
        let bits = &mut self.bits[place / 64];
        *bits &= !(u64::from(next == END) << (place % 64));
        self.summary[place / 4096] &= !(u64::from(*bits == 0) << (place / 64 % 64));
        TaggedSlot::new(tag, slot)
    }

    /// Searches a page for a slot, and takes it out.
    pub(crate) fn remove(&mut self, place: usize, slot: u32) {
        let (mut before, mut at) = (END, self.pages[place].first);
        while at != END && self.links[at as usize].slot != slot {
            (before, at) = (at, self.links[at as usize].next);
        }
        match (before, at) {
            (_, END) => {}
            (END, _) => {
                self.pop(place);
            }
            (before, at) => {
                let next = std::mem::replace(&mut self.links[at as usize].next, self.free);
                self.free = at;
                self.len -= 1;
                self.links[before as usize].next = next;
                if next == END {
                    self.pages[place].last = before;
                }
            }
        }
    }

    /// Sorts a page by tag; equal tags keep their order.
    pub(crate) fn sort(&mut self, place: usize) {
        let first = self.pages[place].first;
        if first == END || self.is_sorted(first) {
            return; // sorting would read the tag of END, which is arbitrary
        }
        // `sorted[size]` is END or a sorted list of 2^size entries; lists of equal length are merged
        let mut sorted = [END; u32::BITS as usize];
        let mut at = first;
        while at != END {
            let next = std::mem::replace(&mut self.links[at as usize].next, END);
            let mut size = 0;
            while sorted[size] != END {
                at = self.merge(std::mem::replace(&mut sorted[size], END), at);
                size += 1;
            }
            sorted[size] = at;
            at = next;
        }
        let first = sorted.into_iter().fold(END, |later, earlier| self.merge(earlier, later));
        let mut last = first;
        while self.links[last as usize].next != END {
            last = self.links[last as usize].next;
        }
        self.pages[place] = Page { first, last };
    }

    fn is_sorted(&self, first: u32) -> bool {
        let mut link = &self.links[first as usize];
        while link.next != END {
            let next = &self.links[link.next as usize];
            if next.tag < link.tag {
                return false;
            }
            link = next;
        }
        true
    }

    /// Merges two sorted lists; among equal tags, entries of `earlier` come first.
    fn merge(&mut self, mut earlier: u32, mut later: u32) -> u32 {
        let mut last = END;
        let mut first = END;
        while earlier != END || later != END {
            let take_later = earlier == END
                || later != END && self.links[later as usize].tag < self.links[earlier as usize].tag;
            let from = if take_later { &mut later } else { &mut earlier };
            let at = *from;
            *from = self.links[at as usize].next;
            match last {
                END => first = at,
                last => self.links[last as usize].next = at,
            }
            last = at;
        }
        first
    }

    /// Returns the slots of the pages from `from` on. The order is exact on pages that are sorted.
    #[inline]
    pub(crate) fn coming(&self, from: usize) -> impl Iterator<Item = u32> {
        let mut place = from;
        let mut at = self.next(from).map_or(END, |next| {
            place = next;
            self.pages[next].first
        });
        std::iter::from_fn(move || {
            let PageLink { slot, mut next, .. } = *self.links.get(at as usize).filter(|_| at != END)?;
            if next == END {
                place = self.next((place + 1) & (self.pages.len() - 1))?;
                next = self.pages[place].first;
            }
            at = next;
            Some(slot)
        })
    }
}
