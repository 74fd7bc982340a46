//! Every predefined operation on every type for which it is defined, in short and long rows, on every path,
//! against arithmetic on single values; and its refusal for every other type.

use crate::paths::{Path, everywhere};
use unisono_rma::{Assert, Element, Error, Job, Lock, Operation, Rank, Sink, Source, Spec, Target, Window};

/// The value of one element, in a type that is wide enough for the exact results of these tests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Integer(i128),
    Real(f64),
    Complex(f64, f64),
    Located(f64, i32),
}

use Value::{Complex, Integer, Located, Real};

/// Returns values that make a difference to some operation: signs, zeros, extremes, equal values with
/// different indices.
fn value(element: Element, seed: usize) -> Value {
    let small = [3.0, -2.0, 0.0, 1.0, -7.0, 12.0, 5.0, 3.0][seed % 8];
    let wide = [5, 0, 1, 0x7f, 0x80, 0xff, 0x1234_5678, i128::from(i64::MAX), i128::from(i64::MIN), -1];
    match element {
        Element::F32 | Element::F64 | Element::LongDouble => Real(small),
        Element::Complex32 | Element::Complex64 | Element::ComplexLong => {
            Complex(small, (seed % 5) as f64 - 2.0)
        }
        Element::F32Int
        | Element::F64Int
        | Element::IntInt
        | Element::LongInt
        | Element::ShortInt
        | Element::LongDoubleInt
        | Element::F32F32
        | Element::F64F64 => Located(small, (seed * 7 % 11) as i32 - 5),
        Element::Bool => Integer((seed % 3 % 2) as i128),
        _ => Integer(wrapped(element, wide[seed % wide.len()])),
    }
}

/// Cuts an integer to the size of an element.
fn wrapped(element: Element, value: i128) -> i128 {
    let bits = 8 * element.size() as u32;
    let Some(above) = 1_i128.checked_shl(bits) else { return value };
    let low = value & (above - 1);
    let signed = matches!(element, Element::I8 | Element::I16 | Element::I32 | Element::I64);
    if signed && low >> (bits - 1) == 1 { low - (1 << bits) } else { low }
}

/// Encodes an x87 extended double, in the first ten of its sixteen bytes.
fn extended(value: f64) -> [u8; 10] {
    let (bits, mut bytes) = (value.to_bits(), [0; 10]);
    if value != 0.0 {
        let exponent = ((bits >> 52) & 0x7ff) as u16 + 16383 - 1023;
        bytes[..8].copy_from_slice(&(1 << 63 | bits << 11).to_le_bytes());
        bytes[8..].copy_from_slice(&exponent.to_le_bytes());
    }
    bytes[9] |= ((bits >> 63) as u8) << 7;
    bytes
}

/// Returns the offset of the index in a located element, after its value.
fn place_of(element: Element) -> usize {
    match element {
        Element::F64Int | Element::LongInt | Element::F64F64 => 8,
        Element::LongDoubleInt => 16,
        _ => 4,
    }
}

fn encode(element: Element, value: Value) -> Vec<u8> {
    let mut bytes = vec![0; element.size()];
    let mut put = |at: usize, data: &[u8]| bytes[at..at + data.len()].copy_from_slice(data);
    match (element, value) {
        (Element::F32, Real(number)) => put(0, &(number as f32).to_le_bytes()),
        (Element::F64, Real(number)) => put(0, &number.to_le_bytes()),
        (Element::LongDouble, Real(number)) => put(0, &extended(number)),
        (Element::Complex32, Complex(re, im)) => {
            put(0, &(re as f32).to_le_bytes());
            put(4, &(im as f32).to_le_bytes());
        }
        (Element::Complex64, Complex(re, im)) => {
            put(0, &re.to_le_bytes());
            put(8, &im.to_le_bytes());
        }
        (Element::ComplexLong, Complex(re, im)) => {
            put(0, &extended(re));
            put(16, &extended(im));
        }
        (_, Located(number, place)) => {
            match element {
                Element::F32Int | Element::F32F32 => put(0, &(number as f32).to_le_bytes()),
                Element::LongDoubleInt => put(0, &extended(number)),
                Element::F64Int | Element::F64F64 => put(0, &number.to_le_bytes()),
                Element::IntInt => put(0, &(number as i32).to_le_bytes()),
                Element::LongInt => put(0, &(number as i64).to_le_bytes()),
                _ => put(0, &(number as i16).to_le_bytes()),
            }
            match element {
                Element::F32F32 => put(4, &(place as f32).to_le_bytes()),
                Element::F64F64 => put(8, &f64::from(place).to_le_bytes()),
                _ => put(place_of(element), &place.to_le_bytes()),
            }
        }
        (_, Integer(number)) => put(0, &number.to_le_bytes()[..element.size().min(16)]),
        other => panic!("no such value: {other:?}"),
    }
    bytes
}

/// Returns the bytes of a located element's value and index. The other bytes may have any contents.
fn without_padding(element: Element, bytes: &[u8]) -> Vec<u8> {
    let used = match element {
        Element::LongDouble => [0..10, 0..0],
        Element::ComplexLong => [0..10, 16..26],
        Element::LongDoubleInt => [0..10, 16..20],
        Element::F64Int | Element::LongInt => [0..12, 0..0],
        Element::ShortInt => [0..2, 4..8],
        _ => return bytes.to_vec(),
    };
    let parts = bytes.chunks(element.size()).flat_map(|one| used.iter().map(|range| &one[range.clone()]));
    parts.flatten().copied().collect()
}

/// Combines two values by the standard's tables.
fn combined(element: Element, operation: Operation, there: Value, brought: Value) -> Value {
    use Operation as O;
    let truth = |value: bool| Integer(i128::from(value));
    match (operation, there, brought) {
        (O::Replace, _, new) => new,
        (O::NoOp, old, _) => old,
        (O::Sum, Integer(a), Integer(b)) => Integer(wrapped(element, a + b)),
        (O::Product, Integer(a), Integer(b)) => Integer(wrapped(element, a.wrapping_mul(b))),
        (O::Min, Integer(a), Integer(b)) => Integer(a.min(b)),
        (O::Max, Integer(a), Integer(b)) => Integer(a.max(b)),
        (O::LogicalAnd, Integer(a), Integer(b)) => truth(a != 0 && b != 0),
        (O::LogicalOr, Integer(a), Integer(b)) => truth(a != 0 || b != 0),
        (O::LogicalXor, Integer(a), Integer(b)) => truth((a != 0) != (b != 0)),
        (O::BitAnd, Integer(a), Integer(b)) => Integer(wrapped(element, a & b)),
        (O::BitOr, Integer(a), Integer(b)) => Integer(wrapped(element, a | b)),
        (O::BitXor, Integer(a), Integer(b)) => Integer(wrapped(element, a ^ b)),
        (O::Sum, Real(a), Real(b)) => Real(a + b),
        (O::Product, Real(a), Real(b)) => Real(a * b),
        (O::Min, Real(a), Real(b)) => Real(a.min(b)),
        (O::Max, Real(a), Real(b)) => Real(a.max(b)),
        (O::Sum, Complex(a, b), Complex(c, d)) => Complex(a + c, b + d),
        (O::Product, Complex(a, b), Complex(c, d)) => Complex(a * c - b * d, a * d + b * c),
        (O::MinLoc, Located(a, i), Located(b, j)) if a == b => Located(a, i.min(j)),
        (O::MinLoc, Located(a, i), Located(b, j)) => {
            if a < b {
                Located(a, i)
            } else {
                Located(b, j)
            }
        }
        (O::MaxLoc, Located(a, i), Located(b, j)) if a == b => Located(a, i.min(j)),
        (O::MaxLoc, Located(a, i), Located(b, j)) => {
            if a > b {
                Located(a, i)
            } else {
                Located(b, j)
            }
        }
        other => panic!("not defined: {other:?}"),
    }
}

/// Lengths of rows: for atomic instructions, for one element more than these are used for, and for vectors of
/// every width with a remainder.
const LENGTHS: [usize; 4] = [1, 5, 67, 301];
const ROOM: usize = 32 * 301 + 16;

/// One operation on one row at rank 1: the row is written, combined into twice and read.
struct Row {
    element: Element,
    operation: Operation,
    length: usize,
    /// The displacement; an odd one is aligned for no element.
    place: i64,
}

impl Row {
    fn values(&self, seed: usize) -> Vec<Value> {
        (0..self.length).map(|at| value(self.element, seed + 3 * at)).collect()
    }

    fn bytes(&self, values: &[Value]) -> Vec<u8> {
        values.iter().flat_map(|value| encode(self.element, *value)).collect()
    }

    fn combined(&self, there: &[Value], brought: &[Value]) -> Vec<Value> {
        let pairs = there.iter().zip(brought);
        pairs.map(|(a, b)| combined(self.element, self.operation, *a, *b)).collect()
    }

    /// Does the operations; `complete` ends each step of the epoch.
    fn go(
        &self,
        window: &mut Window,
        mut complete: impl FnMut(&mut Window) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (first, second, third) = (self.values(0), self.values(1), self.values(4));
        let (layout, count) = (self.element.layout(), self.length as u64);
        let target = Target { rank: Rank(1), displacement: self.place, count, layout: &layout };
        let source = |bytes: &[u8]| Source { address: bytes.as_ptr(), count, layout: &layout };
        let [there, more, most] = [&first, &second, &third].map(|values| self.bytes(values));
        let (mut before, mut after) = (vec![0xa5; there.len()], vec![0xa5; there.len()]);
        let result = Sink { address: before.as_mut_ptr(), count, layout: &layout };
        let sink = Sink { address: after.as_mut_ptr(), count, layout: &layout };
        // SAFETY: all of these live until the epoch has ended, and no other code accesses them.
        unsafe { window.raw_put(source(&there), target) }?;
        complete(window)?;
        // SAFETY: all of these live until the epoch has ended, and no other code accesses them.
        unsafe { window.raw_accumulate(source(&more), target, self.operation) }?;
        // SAFETY: all of these live until the epoch has ended, and no other code accesses them.
        unsafe { window.raw_get_accumulate(source(&most), result, target, self.operation) }?;
        complete(window)?;
        // SAFETY: all of these live until the epoch has ended, and no other code accesses them.
        unsafe { window.raw_get(sink, target) }?;
        complete(window)?;
        let once = self.combined(&first, &second);
        let twice = self.combined(&once, &third);
        for (found, wanted) in [(before, &once), (after, &twice)] {
            let (found, wanted) =
                (without_padding(self.element, &found), without_padding(self.element, &self.bytes(wanted)));
            let Self { element, operation, length, place } = self;
            assert_eq!(found, wanted, "{operation:?} of {length} {element:?} at {place}");
        }
        Ok(())
    }
}

/// Checks every defined row, and the refusal of all others; `complete` ends each step of the epoch. Returns
/// the number of rows.
fn all_rows(
    window: &mut Window,
    mut complete: impl FnMut(&mut Window) -> Result<(), Error>,
) -> Result<usize, Error> {
    let mut rows = 0;
    for element in Element::ALL {
        for operation in Operation::ALL {
            for (number, length) in LENGTHS.into_iter().enumerate() {
                let place = if number == 1 { 1 } else { 16 };
                let row = Row { element, operation, length, place };
                if operation.is_defined_for(element) {
                    row.go(window, &mut complete)?;
                    rows += 1;
                } else {
                    let (layout, bytes) = (element.layout(), [0; 32]);
                    let source = Source { address: bytes.as_ptr(), count: 1, layout: &layout };
                    let target = Target { rank: Rank(1), displacement: place, count: 1, layout: &layout };
                    // SAFETY: the bytes outlive the call, and nothing is queued because the operation is
                    // refused.
                    let refused = unsafe { window.raw_accumulate(source, target, operation) };
                    assert!(matches!(refused, Err(Error::Operation { .. })), "{operation:?} {element:?}");
                }
            }
        }
    }
    Ok(rows)
}

fn under_locks(path: &Path, mut job: Job) -> Result<(), Error> {
    let mut window = path.window(&mut job, ROOM, Spec::new())?;
    if job.rank() == Rank(0) {
        for lock in [Lock::Shared, Lock::Exclusive] {
            window.lock(Rank(1), lock, Assert::NONE)?;
            let rows = all_rows(&mut window, |window| window.flush(Rank(1)))?;
            assert!(rows > LENGTHS.len() * 100, "{rows} rows");
            window.unlock(Rank(1))?;
        }
    }
    job.barrier()?;
    window.free()?;
    job.finalize()
}

#[test]
fn every_operation_on_every_type_is_right_on_every_path_under_locks() {
    everywhere(2, under_locks);
}

fn between_fences(path: &Path, mut job: Job) -> Result<(), Error> {
    let mut window = path.window(&mut job, ROOM, Spec::new())?;
    window.fence(Assert::NONE)?;
    // The gather tells rank 1 whether another step follows, so that rank 1 need not know the rows.
    if job.rank() == Rank(0) {
        all_rows(&mut window, |window| {
            job.gather(&[1])?;
            window.fence(Assert::NONE)
        })?;
        job.gather(&[0])?;
    } else {
        while job.gather(&[])?[0] == [1] {
            window.fence(Assert::NONE)?;
        }
    }
    window.fence(Assert::NO_SUCCEED)?;
    window.free()?;
    job.finalize()
}

#[test]
fn every_operation_on_every_type_is_right_on_every_path_between_fences() {
    everywhere(2, between_fences);
}

fn swaps(path: &Path, mut job: Job) -> Result<(), Error> {
    let mut window = path.window(&mut job, ROOM, Spec::new())?;
    if job.rank() == Rank(0) {
        window.lock(Rank(1), Lock::Shared, Assert::NONE)?;
        for element in Element::ALL {
            let integer = Operation::BitAnd.is_defined_for(element) || element == Element::Bool;
            let [old, new, other] = [0, 1, 1].map(|number| encode_one(element, number));
            let mut found = [0; 32];
            for (compare, expected, left) in [(&other, &old, &old), (&old, &old, &new), (&old, &new, &new)] {
                // SAFETY: elements of at most sixteen bytes, which outlive the call.
                let swapped = unsafe {
                    window.raw_compare_and_swap(
                        new.as_ptr(),
                        compare.as_ptr(),
                        found.as_mut_ptr(),
                        element,
                        (Rank(1), 32),
                    )
                };
                if !integer {
                    assert!(matches!(swapped, Err(Error::Operation { .. })), "{element:?}");
                    continue;
                }
                swapped?;
                window.flush(Rank(1))?;
                assert_eq!(found[..element.size()], expected[..], "{element:?} before");
                let mut there = vec![0_u8; element.size()];
                window.get_now(&mut there, Rank(1), 32)?;
                assert_eq!(&there, left, "{element:?} after");
            }
            window.put(&[0_u8; 16], Rank(1), 32)?;
            window.flush(Rank(1))?;
        }
        window.unlock(Rank(1))?;
    }
    job.barrier()?;
    window.free()?;
    job.finalize()
}

fn encode_one(element: Element, number: u8) -> Vec<u8> {
    let mut bytes = vec![0; element.size()];
    bytes[0] = number;
    bytes
}

#[test]
fn compare_and_swap_is_right_for_every_type_it_is_defined_for_on_every_path() {
    everywhere(2, swaps);
}
