//! Compares flattened types with type maps that list every byte.

use super::*;
use proptest::prelude::*;

/// A type map as the standard defines it: the offset of each byte of the type's data, in order, and its
/// extent.
#[derive(Clone, Debug)]
struct Map {
    bytes: Vec<i64>,
    extent: i64,
}

/// A type constructor, from which both the type map and the flattened type are made.
#[derive(Clone, Debug)]
enum Made {
    Named(u64),
    Contiguous(i64, Box<Made>),
    Vector(i64, i64, i64, Box<Made>),
    Blocks(Vec<(i64, i64)>, Box<Made>),
    Struct(Vec<(i64, i64, Made)>),
    Resized(i64, Box<Made>),
    Subarray(Vec<(i64, i64, i64)>, bool, Box<Made>),
}

fn placed(map: &Map, at: i64, count: i64, stride: i64) -> Vec<i64> {
    (0..count).flat_map(|i| map.bytes.iter().map(move |byte| byte + at + i * stride)).collect()
}

impl Made {
    /// Makes the type map, the reference: slow and simple. The extent ends at the last byte, which is as good
    /// a choice as any for a test.
    fn map(&self) -> Map {
        let closed = |bytes: Vec<i64>| {
            let extent = bytes.iter().max().map_or(0, |last| last + 1);
            Map { bytes, extent }
        };
        match self {
            Made::Named(bytes) => {
                Map { bytes: (0..bytes.cast_signed()).collect(), extent: bytes.cast_signed() }
            }
            Made::Contiguous(count, part) => {
                let part = part.map();
                closed(placed(&part, 0, *count, part.extent))
            }
            Made::Vector(count, length, stride, part) => {
                let part = part.map();
                let starts = (0..*count).flat_map(|i| placed(&part, i * stride, *length, part.extent));
                closed(starts.collect())
            }
            Made::Blocks(blocks, part) => {
                let part = part.map();
                closed(blocks.iter().flat_map(|(n, at)| placed(&part, *at, *n, part.extent)).collect())
            }
            Made::Struct(members) => {
                let member = |(n, at, part): &(i64, i64, Made)| {
                    let part = part.map();
                    placed(&part, *at, *n, part.extent)
                };
                closed(members.iter().flat_map(member).collect())
            }
            Made::Resized(extent, part) => Map { extent: *extent, ..part.map() },
            Made::Subarray(dimensions, fortran, part) => {
                let part = part.map();
                let mut order: Vec<_> = dimensions.clone();
                if *fortran {
                    order.reverse();
                }
                // the dimensions are now ordered so that the last one is the fastest
                let mut cells = vec![0_i64];
                for (size, length, start) in &order {
                    cells =
                        cells.iter().flat_map(|c| (0..*length).map(move |i| c * size + start + i)).collect();
                }
                closed(cells.iter().flat_map(|cell| placed(&part, cell * part.extent, 1, 0)).collect())
            }
        }
    }

    fn described(&self) -> Layout {
        let one = |combiner, integers: &[i64], addresses: &[i64], part: &Made| {
            combine(combiner, self.map().extent, integers, addresses, &[&part.described()]).expect("a type")
        };
        match self {
            Made::Named(bytes) => named(None, *bytes),
            Made::Contiguous(count, part) => one(Combiner::Contiguous, &[*count], &[], part),
            Made::Vector(count, length, stride, part) => {
                one(Combiner::Vector, &[*count, *length], &[*stride], part)
            }
            Made::Blocks(blocks, part) => {
                let (lengths, places): (Vec<_>, Vec<_>) = blocks.iter().copied().unzip();
                one(Combiner::Blocks, &lengths, &places, part)
            }
            Made::Struct(members) => {
                let parts: Vec<Layout> = members.iter().map(|member| member.2.described()).collect();
                let lengths: Vec<i64> = members.iter().map(|member| member.0).collect();
                let places: Vec<i64> = members.iter().map(|member| member.1).collect();
                let parts: Vec<&Layout> = parts.iter().collect();
                combine(Combiner::Blocks, self.map().extent, &lengths, &places, &parts).expect("a type")
            }
            Made::Resized(_, part) => one(Combiner::Resized, &[], &[], part),
            Made::Subarray(dimensions, fortran, part) => {
                let mut integers = vec![dimensions.len() as i64];
                integers.extend(dimensions.iter().map(|dimension| dimension.0));
                integers.extend(dimensions.iter().map(|dimension| dimension.1));
                integers.extend(dimensions.iter().map(|dimension| dimension.2));
                integers.push(i64::from(*fortran));
                one(Combiner::Subarray, &integers, &[], part)
            }
        }
    }
}

fn offsets(described: &Layout) -> Vec<i64> {
    described.blocks(1).flat_map(|(at, bytes)| at..at + bytes.cast_signed()).collect()
}

fn made() -> impl Strategy<Value = Made> {
    let leaf = (1_u64..9).prop_map(Made::Named);
    leaf.prop_recursive(3, 24, 4, |part| {
        let dimension = (1_i64..4)
            .prop_flat_map(|size| (Just(size), 0..=size))
            .prop_flat_map(|(size, length)| (Just(size), Just(length), 0..=size - length));
        prop_oneof![
            (0_i64..5, part.clone()).prop_map(|(n, p)| Made::Contiguous(n, p.into())),
            (0_i64..4, 0_i64..4, -40_i64..80, part.clone()).prop_map(|(n, l, s, p)| Made::Vector(
                n,
                l,
                s,
                p.into()
            )),
            (prop::collection::vec((0_i64..3, -20_i64..60), 1..5), part.clone())
                .prop_map(|(b, p)| Made::Blocks(b, p.into())),
            prop::collection::vec((0_i64..3, 0_i64..60, part.clone()), 2..4).prop_map(Made::Struct),
            (0_i64..50, part.clone()).prop_map(|(e, p)| Made::Resized(e, p.into())),
            (prop::collection::vec(dimension, 1..4), any::<bool>(), part)
                .prop_map(|(d, f, p)| Made::Subarray(d, f, p.into())),
        ]
    })
}

proptest! {
    #[test]
    fn a_flattened_type_has_the_bytes_of_its_type_map(made in made()) {
        prop_assert_eq!(offsets(&made.described()), made.map().bytes);
    }

    #[test]
    fn a_traced_type_has_the_bytes_of_its_type_map(made in made()) {
        let Map { bytes, extent } = made.map();
        prop_assert_eq!(offsets(&traced(&bytes, extent, None).expect("a type")), bytes);
    }
}

#[test]
fn a_vector_of_a_million_blocks_is_one_run() {
    let int = named(Some(Element::I32), 4);
    let vector = combine(Combiner::Vector, 16 * 1_000_000, &[1_000_000, 1], &[16], &[&int]).expect("a type");
    assert_eq!(vector.runs().len(), 1);
    assert_eq!(vector.element(), Some(Element::I32));
}

#[test]
fn what_lies_side_by_side_is_one_block() {
    let int = named(Some(Element::I32), 4);
    let blocks = combine(Combiner::Blocks, 12, &[1, 2], &[0, 4], &[&int]).expect("a type");
    assert!(blocks.is_contiguous());
}

#[test]
fn a_struct_of_different_elements_has_none() {
    let int = named(Some(Element::I32), 4);
    let double = named(Some(Element::F64), 8);
    let both = combine(Combiner::Blocks, 16, &[1, 1], &[0, 8], &[&int, &double]).expect("a type");
    assert_eq!(both.element(), None);
    let ints = combine(Combiner::Blocks, 16, &[1, 0], &[0, 8], &[&int, &int]).expect("a type");
    assert_eq!(ints.element(), Some(Element::I32));
}
