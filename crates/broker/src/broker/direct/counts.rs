//! Counts of the links of programs, and the limits on them.

use super::DirectReader;
use crate::sorted_map::SortedMap;
use crate::task::ClientId;

/// Maximum number of links that were announced to suppliers and are not in use yet. The broker keeps a socket
/// for each, and a process usually has 1024 descriptors: half of them stay for programs.
const MAX_IDLE: usize = 512;
/// Maximum number of idle links of one supplying program, which holds the other end of each. Eight programs
/// with as many fill [`MAX_IDLE`].
const MAX_IDLE_PER_SUPPLIER: usize = 64;

/// Maximum number of links of a program to suppliers, or to consumers: each costs both ends up to three
/// descriptors, and a process usually has 1024.
const MAX_LINKS_PER_SUPPLIER: usize = 128;

/// Counts of links.
#[derive(Debug, Default)]
pub(super) struct LinkCounts {
    idle: usize,
    idle_of: SortedMap<ClientId, usize>,
    supplied: SortedMap<ClientId, usize>,
    read: SortedMap<ClientId, usize>,
}

impl LinkCounts {
    pub(super) fn add(&mut self, supplier: ClientId, reader: Option<&DirectReader>, used: bool) {
        if !used {
            self.idle += 1;
            *self.idle_of.get_or_insert_with(supplier, || 0) += 1;
        }
        *self.supplied.get_or_insert_with(supplier, || 0) += 1;
        if let Some(reader) = reader {
            *self.read.get_or_insert_with(reader.client, || 0) += 1;
        }
    }

    /// Returns whether a supplier may get links to these readers in addition to all links counted so far.
    pub(super) fn fit<'a>(
        &self,
        supplier: ClientId,
        readers: impl Iterator<Item = &'a DirectReader>,
    ) -> bool {
        let mut new = SortedMap::<ClientId, usize>::default();
        readers.for_each(|reader| *new.get_or_insert_with(reader.client, || 0) += 1);
        let of =
            |counts: &SortedMap<ClientId, usize>, client| counts.get(&client).copied().unwrap_or_default();
        let all: usize = new.values().sum();
        self.idle + all <= MAX_IDLE
            && of(&self.idle_of, supplier) + all <= MAX_IDLE_PER_SUPPLIER
            && of(&self.supplied, supplier) + all <= MAX_LINKS_PER_SUPPLIER
            && new.iter().all(|(client, theirs)| of(&self.read, *client) + theirs <= MAX_LINKS_PER_SUPPLIER)
    }
}
