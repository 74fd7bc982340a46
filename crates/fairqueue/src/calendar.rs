//! Who is next among many: a calendar of the near future, and a wheel for what is further off.
//!
//! Start tags that a start-time fair queue enters lie between the virtual time and a packet's cost beyond it. The
//! calendar has a page for each short stretch of virtual time, in a ring, with a word of bits for 64 pages and another
//! for 64 words; to enter somebody is to append to a page, and the next page that is not empty is found
//! by looking at a few bits. The page that has come is sorted (a stretch is chosen so short that a page holds one or
//! two, or all of one tag) and served from a list, which also says whose memory will be needed next. Who
//! lies beyond the ring waits in the [`Wheel`] until the ring has turned far enough: classes of far
//! less weight than others, which come rarely.
//!
//! Order is exact, and among equal tags first in, first out: the wheel keeps that order, hands over what belongs to
//! a page before anybody else can be entered there, and pages keep it.
//!
//! Cost: constant for weights that do not differ by orders of magnitude, else the wheel's. Memory: 8 bytes a page, at
//! most 16,384 pages, and some 60 bytes for each entry. Nothing is allocated once it is made.
//!
//! Reference: Brown, "Calendar queues" (CACM 1988).

use crate::few::Entry;
use crate::lines::NONE;
use crate::wheel::Wheel;

/// Entries of a page, in the order they came.
#[derive(Clone, Copy, Debug)]
struct Page {
    first: u32,
    last: u32,
}

const EMPTY: Page = Page { first: NONE, last: NONE };

#[derive(Clone, Copy, Debug)]
struct Link {
    entry: Entry,
    next: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    /// A page is so many tags, as a power of two.
    shift: u32,
    /// The number of the page that has come, counted from tag 0.
    today: u64,
    /// From this page on entries are in the wheel; no further than a turn of the ring from today.
    horizon: u64,
    /// What is left of the page that has come, in order, from `served` on.
    list: Vec<Entry>,
    served: usize,
    pages: Box<[Page]>,
    /// Which pages have entries, and which words of those bits are not zero.
    bits: Box<[u64]>,
    summary: Box<[u64]>,
    links: Vec<Link>,
    free: u32,
    /// How many entries are on pages.
    near: usize,
    far: Wheel,
    /// The tag taken last.
    base: u64,
}

const MOST_PAGES: usize = 1 << 14;

impl Calendar {
    /// A queue of at most so many entries, most of which are entered no further ahead than a span of tags.
    pub(crate) fn new(most: usize, span: u64) -> Self {
        let pages = (16 * most).next_power_of_two().clamp(512, MOST_PAGES);
        let mut shift = 0;
        while span >> shift > pages as u64 {
            shift += 1;
        }
        let count = u32::try_from(most).expect("fits because classes have numbers of 30 bits");
        let link = |next| Link { entry: Entry::default(), next };
        Self {
            shift,
            today: 0,
            horizon: pages as u64,
            list: Vec::with_capacity(2 * most),
            served: 0,
            pages: vec![EMPTY; pages].into(),
            bits: vec![0; pages / 64].into(),
            summary: vec![0; (pages / 64).div_ceil(64)].into(),
            links: (1..count).chain([NONE]).map(link).collect(),
            free: 0,
            near: 0,
            far: Wheel::new(most),
            base: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.served == self.list.len() && self.near == 0 && self.far.is_empty()
    }

    /// Enters somebody who is not in the queue, with a tag not below the last one taken.
    #[inline]
    pub(crate) fn insert(&mut self, entry: Entry) {
        debug_assert!(entry.tag >= self.base, "{entry:?} is below {}, which was served", self.base);
        let page = entry.tag >> self.shift;
        if page == self.today {
            self.insert_today(entry);
        } else if page < self.horizon {
            self.insert_on_page(page, entry);
        } else {
            self.far.insert(entry.slot, entry.tag);
        }
    }

    fn insert_today(&mut self, entry: Entry) {
        let mut at = self.list.len();
        while at > self.served && self.list[at - 1].tag > entry.tag {
            at -= 1;
        }
        if self.served == self.list.len() || self.list.len() == self.list.capacity() {
            self.list.drain(..self.served);
            at -= std::mem::take(&mut self.served);
        }
        self.list.insert(at, entry);
    }

    #[inline]
    fn insert_on_page(&mut self, page: u64, entry: Entry) {
        let at = self.free;
        let link = &mut self.links[at as usize];
        self.free = link.next;
        *link = Link { entry, next: NONE };
        self.near += 1;
        let place = self.place(page);
        let page = &mut self.pages[place];
        let last = std::mem::replace(&mut page.last, at);
        match self.links.get_mut(last as usize) {
            Some(last) => last.next = at,
            None => {
                page.first = at;
                self.bits[place / 64] |= 1 << (place % 64);
                self.summary[place / 4096] |= 1 << (place / 64 % 64);
            }
        }
    }

    #[inline]
    fn place(&self, page: u64) -> usize {
        page as usize & (self.pages.len() - 1)
    }

    /// Takes the one with the least tag; of equal ones the one entered first.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Entry> {
        if self.served == self.list.len() {
            self.turn()?;
        }
        let entry = self.list[self.served];
        self.served += 1;
        self.base = entry.tag;
        Some(entry)
    }

    /// Enters one and takes the least, which may be the same.
    #[inline]
    pub(crate) fn exchange(&mut self, entry: Entry) -> Entry {
        if self.list.get(self.served).is_some_and(|next| entry.tag < next.tag) {
            self.base = entry.tag;
            return entry;
        }
        self.insert(entry);
        self.take().expect("one has just been entered")
    }

    /// Those who will probably be taken next: the `ahead`th from now.
    #[inline]
    pub(crate) fn peek(&self, ahead: usize) -> Option<u32> {
        self.list.get(self.served + ahead).map(|entry| entry.slot)
    }

    /// Somebody on the next page, probably, once the list ends.
    #[inline]
    pub(crate) fn peek_page(&self) -> Option<u32> {
        let first = self.pages[self.next_page()?].first;
        self.links.get(first as usize).map(|link| link.entry.slot)
    }

    /// Turns to the next page with entries and makes the list of it.
    fn turn(&mut self) -> Option<()> {
        self.list.clear();
        self.served = 0;
        if self.near == 0 {
            let (slot, tag) = self.far.take()?;
            self.list.push(Entry::new(tag, slot));
            self.today = tag >> self.shift;
            self.extend();
            // what else is of this page comes behind it
            self.take_page();
        } else {
            let place = self.next_page().expect("there is one because entries are on pages");
            let today = self.place(self.today);
            self.today += (place.wrapping_sub(today) & (self.pages.len() - 1)) as u64;
            self.take_page();
            if self.far.is_empty() || self.today + self.pages.len() as u64 / 2 >= self.horizon {
                self.extend();
            }
        }
        if self.shift > 0 {
            sort(&mut self.list);
        }
        Some(())
    }

    /// The place of the first page with entries from today on.
    #[inline]
    fn next_page(&self) -> Option<usize> {
        let today = self.place(self.today);
        let bits = self.bits[today / 64] >> (today % 64);
        if bits != 0 {
            return Some(today + bits.trailing_zeros() as usize);
        }
        // the words behind it, around the ring, and last this one again
        let from = (today / 64 + 1) % self.bits.len();
        let words = self.summary.len();
        let word = (0..=words).find_map(|turn| {
            let at = (from / 64 + turn) % words;
            let all = self.summary[at];
            let bits = if turn == 0 { all & (u64::MAX << (from % 64)) } else { all };
            (bits != 0).then(|| at * 64 + bits.trailing_zeros() as usize)
        })?;
        Some(word * 64 + self.bits[word].trailing_zeros() as usize)
    }

    /// Moves what is on today's page to the list.
    #[inline]
    fn take_page(&mut self) {
        let place = self.place(self.today);
        let mut at = std::mem::replace(&mut self.pages[place], EMPTY).first;
        while let Some(link) = self.links.get_mut(at as usize) {
            self.list.push(link.entry);
            let next = std::mem::replace(&mut link.next, self.free);
            self.free = std::mem::replace(&mut at, next);
            self.near -= 1;
        }
        self.bits[place / 64] &= !(1 << (place % 64));
        if self.bits[place / 64] == 0 {
            self.summary[place / 4096] &= !(1 << (place / 64 % 64));
        }
    }

    /// Moves the horizon to a turn of the ring from today.
    #[inline]
    fn extend(&mut self) {
        self.horizon = self.today + self.pages.len() as u64;
        if !self.far.is_empty() {
            self.bring_near();
        }
    }

    #[cold]
    fn bring_near(&mut self) {
        let horizon = self.horizon.checked_shl(self.shift).filter(|tags| tags >> self.shift == self.horizon);
        while let Some((slot, tag)) = self.far.take_below(horizon.unwrap_or(u64::MAX)) {
            self.insert_on_page(tag >> self.shift, Entry::new(tag, slot));
        }
    }

    /// Takes somebody out of the queue, who must be in it with this tag. For what is rare: it searches.
    pub(crate) fn remove(&mut self, entry: Entry) {
        let page = entry.tag >> self.shift;
        if page >= self.horizon {
            return self.far.remove(entry.slot, entry.tag);
        }
        if page == self.today {
            let left = self.list.iter().skip(self.served).position(|other| other.slot == entry.slot);
            if let Some(at) = left {
                self.list.remove(self.served + at);
                return;
            }
        }
        // its page without it
        let (today, list, served) = (self.today, std::mem::take(&mut self.list), self.served);
        self.today = page;
        self.take_page();
        let others = std::mem::replace(&mut self.list, list);
        (self.today, self.served) = (today, served);
        for other in others.into_iter().filter(|other| other.slot != entry.slot) {
            self.insert_on_page(page, other);
        }
    }

    /// Changes every tag in the queue, and the one taken last, without changing their order.
    pub(crate) fn rebuild(&mut self, tag_now: impl Fn(u64) -> u64) {
        let base = tag_now(self.base);
        let entries: Vec<Entry> = std::iter::from_fn(|| self.take()).collect();
        self.restart(base);
        for Entry { tag, slot, .. } in entries {
            self.insert(Entry::new(tag_now(tag), slot));
        }
    }

    /// Begins again at a tag; only when empty.
    #[inline]
    pub(crate) fn restart(&mut self, base: u64) {
        debug_assert!(self.is_empty(), "nothing may be left behind");
        self.base = base;
        self.today = base >> self.shift;
        self.horizon = self.today + self.pages.len() as u64;
        self.far.restart(base);
    }
}

/// Sorts by tag and keeps the order of equal ones; short lists, which are sorted already more often than not.
fn sort(list: &mut [Entry]) {
    if list.len() > 64 {
        for (rank, entry) in (0..).zip(&mut *list) {
            entry.rank = rank;
        }
        return list.sort_unstable_by_key(|entry| (entry.tag, entry.rank)); // sorting stably would allocate
    }
    for at in 1..list.len() {
        let entry = list[at];
        let mut to = at;
        while to > 0 && list[to - 1].tag > entry.tag {
            list[to] = list[to - 1];
            to -= 1;
        }
        list[to] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Step {
        Insert { ahead: u64 },
        Take,
        Exchange { ahead: u64 },
        Remove { which: usize },
        Rebuild { back: u64 },
        Restart { ahead: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let ahead = || {
            prop_oneof![
                4 => 0..4_u64,
                4 => 0..5_000_u64,
                2 => 0..1_u64 << 20,
                1 => 0..1_u64 << 61,
            ]
        };
        let step = prop_oneof![
            6 => ahead().prop_map(|ahead| Step::Insert { ahead }),
            3 => Just(Step::Take),
            3 => ahead().prop_map(|ahead| Step::Exchange { ahead }),
            1 => any::<usize>().prop_map(|which| Step::Remove { which }),
            1 => any::<u64>().prop_map(|back| Step::Rebuild { back }),
            1 => ahead().prop_map(|ahead| Step::Restart { ahead }),
        ];
        prop::collection::vec(step, 1..300)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn what_is_taken_is_what_a_sorted_set_would_give(
            steps in steps(), span in prop::sample::select(vec![1, 1000, 20_000, 1 << 30]),
        ) {
            let mut calendar = Calendar::new(301, span);
            let mut model: BTreeSet<(u64, usize, u32)> = BTreeSet::new(); // tag, when entered, slot
            let (mut base, mut free) = (0_u64, (0..301).rev().collect::<Vec<u32>>());
            for (at, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert { ahead } => {
                        let Some(tag) = base.checked_add(ahead).filter(|tag| *tag < 1 << 63) else { continue };
                        let slot = free.pop().expect("there are as many slots as steps");
                        calendar.insert(Entry::new(tag, slot));
                        model.insert((tag, at, slot));
                    }
                    Step::Exchange { ahead } => {
                        let Some(tag) = base.checked_add(ahead).filter(|tag| *tag < 1 << 63) else { continue };
                        let slot = free.pop().expect("there are as many slots as steps");
                        model.insert((tag, at, slot));
                        let expected = model.pop_first().expect("one was entered");
                        let entry = calendar.exchange(Entry::new(tag, slot));
                        prop_assert_eq!((entry.tag, entry.slot), (expected.0, expected.2));
                        base = entry.tag;
                        free.push(entry.slot);
                    }
                    Step::Take => {
                        let expected = model.pop_first();
                        let entry = calendar.take().map(|entry| (entry.tag, entry.slot));
                        prop_assert_eq!(entry, expected.map(|(tag, _, slot)| (tag, slot)));
                        if let Some((tag, _, slot)) = expected {
                            base = tag;
                            free.push(slot);
                        }
                    }
                    Step::Remove { which } => {
                        if model.is_empty() { continue }
                        let entry = *model.iter().nth(which % model.len()).expect("it is below the length");
                        model.remove(&entry);
                        calendar.remove(Entry::new(entry.0, entry.2));
                        free.push(entry.2);
                    }
                    Step::Rebuild { back } => {
                        let back = if base == 0 { 0 } else { back % base };
                        calendar.rebuild(|tag| tag - back);
                        base -= back;
                        model = model.into_iter().map(|(tag, at, slot)| (tag - back, at, slot)).collect();
                    }
                    Step::Restart { ahead } => {
                        if !model.is_empty() { continue }
                        let Some(tag) = base.checked_add(ahead).filter(|tag| *tag < 1 << 62) else { continue };
                        calendar.restart(tag);
                        base = tag;
                    }
                }
                prop_assert_eq!(calendar.is_empty(), model.is_empty());
            }
        }
    }
}
