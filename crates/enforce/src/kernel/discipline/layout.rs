//! Writes the scheduler's memory, in the layout of `fairqueue.h`, before the first packet, and reads the
//! counters in it.
//!
//! User space writes only the beginning, with the classes. The rest is zero at first and belongs to the
//! program. Other classes are written as a plan into another map (`fairqueue_change.h`), and the program
//! executes the plan.

use unisono_fairqueue::{ClassId, Hierarchy, Limit, Overflow};

/// The most classes, including the root.
pub const MAX_CLASSES: usize = 1024;
/// The most levels below the root.
pub const MAX_DEPTH: usize = 8;
/// The most packets that may wait at a time, in all classes together.
pub const MAX_PACKETS: usize = 16_384;
/// The number that stands for "none" in the program.
pub const NONE: u32 = u32::MAX;

/// The number of generations until their numbers repeat.
pub const GENERATIONS: u32 = 32;

const HEADER: usize = 48;
/// Offsets of the number of classes, of their generation, and of the maps' numbers.
const COUNT: usize = 20;
const GENERATION: usize = 28;
const MAPS: usize = 32;
const CLASS: usize = 160;
const PACKET: usize = 24;
/// Bytes of the whole structure.
pub const SIZE: usize = HEADER + MAX_CLASSES * (CLASS + 2 * size_of::<u32>()) + MAX_PACKETS * PACKET;
/// Bytes of a plan for other classes.
pub const PLAN_SIZE: usize = 8 + MAX_CLASSES * (CLASS + 3 * size_of::<u32>());

const LEAF: u32 = 1;
const LIMITED: u32 = 2;
const DROP_LONGEST: u32 = 4;

/// Why the kernel's copy of the scheduler cannot represent a hierarchy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TooLarge {
    #[error(
        "there are {count} classes with the root, and the BPF queueing discipline has room for {MAX_CLASSES}"
    )]
    Classes { count: usize },
    #[error(
        "class {name} is more than {MAX_DEPTH} levels below the root, which the BPF queueing discipline does not follow"
    )]
    Depth {
        /// The first class that is too deep.
        name: String,
    },
}

/// Returns the first bytes of the structure, for a hierarchy without packets.
pub fn encode(hierarchy: &Hierarchy) -> Result<Vec<u8>, TooLarge> {
    encode_with_room(hierarchy, None)
}

/// Returns the bytes that [`encode`] returns, but with a limit of `room` bytes for each leaf that has no
/// limit.
pub(super) fn encode_with_room(hierarchy: &Hierarchy, room: Option<&[u64]>) -> Result<Vec<u8>, TooLarge> {
    let count = hierarchy.classes().count() as u32;
    let mut bytes = Vec::new();
    put64(&mut bytes, &[0]);
    put32(&mut bytes, &[NONE, NONE, 0, count, 0, 0, 0, 0, 0, 0]);
    put_classes(&mut bytes, hierarchy, room, |class| class as u32)?;
    Ok(bytes)
}

/// Returns a plan that replaces the classes; a new class with the name of an old one continues it.
///
/// Packets of a class that is no longer a leaf go to `others`. Each class counts its delays in a histogram of
/// its own: `histograms` has the histograms of the old classes by number, and new classes get free ones.
pub fn plan(
    old: &Hierarchy,
    new: &Hierarchy,
    others: ClassId,
    room: Option<&[u64]>,
    histograms: &[u32],
) -> Result<Vec<u8>, TooLarge> {
    let same = |from: &Hierarchy, to: &Hierarchy| -> Vec<u32> {
        let name = |(id, class): (ClassId, &unisono_fairqueue::Class)| match id {
            ClassId::ROOT => 0,
            _ => to.find(&class.name).filter(|id| *id != ClassId::ROOT).map_or(NONE, |id| id.index() as u32),
        };
        from.classes().map(name).collect()
    };
    let (from, to) = (same(new, old), same(old, new));
    let news: Vec<ClassId> = new.classes().map(|(id, _)| id).collect();
    let becomes = |id: ClassId| news.get(to[id.index()] as usize).copied();
    let home = |(id, _): (ClassId, &_)| match old.is_leaf(id) {
        true => becomes(id).filter(|id| new.is_leaf(*id)).unwrap_or(others).index() as u32,
        false => NONE,
    };
    let home: Vec<u32> = old.classes().map(home).collect();
    let mut free = (0..).filter(|number| !histograms.contains(number));
    let mut numbers = from
        .iter()
        .map(|from| histograms.get(*from as usize).copied().unwrap_or_else(|| free.next().expect("endless")));
    let mut bytes = Vec::with_capacity(PLAN_SIZE);
    put32(&mut bytes, &[from.len() as u32, 0]);
    put_classes(&mut bytes, new, room, |_| numbers.next().unwrap_or(NONE))?;
    bytes.resize(8 + MAX_CLASSES * CLASS, 0);
    for (at, numbers) in [from, to, home].iter().enumerate() {
        put32(&mut bytes, numbers);
        bytes.resize(8 + MAX_CLASSES * (CLASS + (at + 1) * size_of::<u32>()), 0);
    }
    Ok(bytes)
}

fn put_classes(
    bytes: &mut Vec<u8>,
    hierarchy: &Hierarchy,
    room: Option<&[u64]>,
    mut histogram: impl FnMut(usize) -> u32,
) -> Result<(), TooLarge> {
    let count = hierarchy.classes().count();
    if count > MAX_CLASSES {
        return Err(TooLarge::Classes { count });
    }
    let (mut depths, mut ends) = (vec![0; count], (1..=count).collect::<Vec<_>>());
    for (id, class) in hierarchy.classes().skip(1) {
        depths[id.index()] = depths[class.parent.index()] + 1;
        if depths[id.index()] > MAX_DEPTH {
            return Err(TooLarge::Depth { name: class.name.clone() });
        }
    }
    let parents: Vec<usize> = hierarchy.classes().map(|(_, class)| class.parent.index()).collect();
    for at in (1..count).rev() {
        // children come after their parents
        ends[parents[at]] = ends[parents[at]].max(ends[at]);
    }
    let costs = hierarchy.costs();
    let mut heap = 0;
    for (id, class) in hierarchy.classes() {
        let at = id.index();
        let own_room = || {
            let bytes = *room?.get(at).filter(|_| hierarchy.is_leaf(id) && !is_limited(hierarchy, id))?;
            Some(Limit { packets: u64::MAX, bytes, overflow: Overflow::DropTail })
        };
        let limit = class.limit.or_else(own_room);
        put64(bytes, &[0, costs[at], 0, 0, 0, 0]);
        put64(bytes, &[limit.map_or(u64::MAX, |limit| limit.bytes); 2]);
        put64(bytes, &[0; 6]);
        let mut flags = if hierarchy.is_leaf(id) { LEAF } else { 0 };
        flags |= match limit.map(|limit| limit.overflow) {
            None => 0,
            Some(Overflow::DropTail) => LIMITED,
            Some(Overflow::DropLongest) => LIMITED | DROP_LONGEST,
        };
        // a greater number would say the same, because no class ever holds so many packets
        let max_packets =
            limit.map_or(u32::MAX, |limit| u32::try_from(limit.packets).unwrap_or(u32::MAX - 1));
        put32(
            bytes,
            &[
                0,
                max_packets,
                max_packets,
                parents[at] as u32,
                0,
                flags,
                ends[at] as u32,
                heap,
                0,
                NONE,
                NONE,
            ],
        );
        put32(bytes, &[histogram(at)]);
        heap += class.children.len() as u32;
    }
    Ok(())
}

fn is_limited(hierarchy: &Hierarchy, mut id: ClassId) -> bool {
    loop {
        let class = hierarchy.class(id);
        match class.limit {
            Some(_) => return true,
            None if id == ClassId::ROOT => return false,
            None => id = class.parent,
        }
    }
}

fn put32(bytes: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
}

fn put64(bytes: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
}

/// The program's counters of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Packets that wait in the class and in the classes below it.
    pub packets: u32,
    pub bytes: u64,
    /// Packets that have left the class. Counted at leaves only.
    pub served_packets: u64,
    pub served_bytes: u64,
    pub dropped: u64,
    /// The sum of the delays of these packets.
    pub waited_ns: u64,
    /// The shortest delay of these packets.
    pub shortest_wait_ns: u64,
    /// The longest delay of these packets.
    pub longest_wait_ns: u64,
    /// The index of the class's histogram of delays.
    pub histogram: u32,
}

/// Returns the counters of a class, or `None` if the structure is too short.
pub fn counted(structure: &[u8], class: ClassId) -> Option<Counted> {
    Some(read(structure.get(HEADER + class.index() * CLASS..)?.get(..CLASS)?))
}

fn read(class: &[u8]) -> Counted {
    let long = |at: usize| class[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    let short = |at: usize| class[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    Counted {
        packets: short(112),
        bytes: long(40),
        served_packets: long(64),
        served_bytes: long(72),
        dropped: long(80),
        waited_ns: long(88),
        shortest_wait_ns: long(96),
        longest_wait_ns: long(104),
        histogram: short(156),
    }
}

/// Returns the number of changes of the classes, modulo [`GENERATIONS`].
pub fn generation(structure: &[u8]) -> u32 {
    word(structure, GENERATION)
}

/// Returns the ids of the maps that [`write_maps`] wrote.
pub(super) fn maps(structure: &[u8]) -> [u32; 3] {
    [0, 4, 8].map(|at| word(structure, MAPS + at))
}

pub(super) fn write_maps(structure: &mut [u8], maps: [u32; 3]) {
    for (place, number) in structure[MAPS..].chunks_exact_mut(4).zip(maps) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
}

fn word(structure: &[u8], at: usize) -> u32 {
    let bytes = structure.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Returns the counters of all classes.
pub fn all_counted(structure: &[u8]) -> Vec<Counted> {
    let count = word(structure, COUNT);
    let classes = structure.get(HEADER..).unwrap_or_default().chunks_exact(CLASS);
    classes.take(MAX_CLASSES.min(count as usize)).map(read).collect()
}

/// Returns the initial counters of a plan's classes.
pub(super) fn all_counted_in_plan(plan: &[u8]) -> Vec<Counted> {
    let classes = plan.get(8..).unwrap_or_default().chunks_exact(CLASS);
    classes.take(MAX_CLASSES.min(word(plan, 0) as usize)).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_fairqueue::ClassSpec;

    #[test]
    fn what_is_too_deep_or_too_wide_is_refused() {
        let chain = |levels| {
            let below = (0..levels).fold(None, |below: Option<ClassSpec>, level| {
                Some(ClassSpec::new(format!("level {level}")).with(below))
            });
            Hierarchy::new(ClassSpec::new("link").with(below)).expect("names are unique")
        };
        assert!(encode(&chain(MAX_DEPTH)).is_ok());
        let error = encode(&chain(MAX_DEPTH + 1)).expect_err("one level too many");
        assert_eq!(error, TooLarge::Depth { name: "level 0".to_owned() });
        let leaves = (1..MAX_CLASSES).map(|at| ClassSpec::new(at.to_string()));
        let wide = Hierarchy::new(ClassSpec::new("link").with(leaves)).expect("names are unique");
        assert_eq!(encode(&wide).expect("it just fits").len(), HEADER + MAX_CLASSES * CLASS);
        let wider = wide.with_default("one more").expect("a new name");
        assert_eq!(encode(&wider), Err(TooLarge::Classes { count: MAX_CLASSES + 1 }));
    }
}
