//! Accesses outside a part are refused on every path, in every kind of epoch and after operations that were
//! done at once or staged: nothing is written, and the epoch goes on.

use crate::paths::{Path, everywhere};
use unisono_rma::{
    Assert, Element, Error, ErrorClass, Job, Layout, Lock, Operation, Rank, Sink, Source, Spec, Target,
    Window,
};

/// Elements of rank 1's part; rank 0's part is twice as long, so that a check against the origin's own length
/// would not pass this test.
const SLOTS: i64 = 8;

/// A displacement, a stride in elements, and the class of the error; three elements each.
const OUTSIDE: [(i64, i64, ErrorClass); 6] = [
    (SLOTS - 2, 1, ErrorClass::RmaRange),
    (SLOTS, 1, ErrorClass::RmaRange),
    (0, 4, ErrorClass::RmaRange),
    (1, -1, ErrorClass::RmaRange),
    (i64::MAX, 1, ErrorClass::RmaRange),
    (-1, 1, ErrorClass::Disp),
];

fn refused(result: Result<(), Error>, wanted: ErrorClass, what: &str) {
    let error = result.expect_err(what);
    assert_eq!(error.class(), wanted, "{what}: {error}");
}

/// Tries every operation at every place outside of rank 1's part.
fn reach_outside(window: &mut Window) -> Result<(), Error> {
    let (one, data) = (Element::I64.layout(), [-1_i64; 3]);
    let mut came = [5_i64; 3];
    for (place, apart, class) in OUTSIDE {
        let layout = if apart == 1 {
            Layout::from_element(Element::I64)
        } else {
            Layout::strided(Element::I64, 3, 1, apart)?
        };
        let count = if apart == 1 { 3 } else { 1 };
        let target = Target { rank: Rank(1), displacement: place, count, layout: &layout };
        let source = Source { address: data.as_ptr().cast(), count: 3, layout: &one };
        let sink = Sink { address: came.as_mut_ptr().cast(), count: 3, layout: &one };
        let what = |call: &str| format!("{call} at {place}, {apart} apart");
        // SAFETY: the data outlives the call, and nothing is queued because the operation is refused.
        refused(unsafe { window.raw_put(source, target) }, class, &what("put"));
        // SAFETY: the data outlives the call, and nothing is queued because the operation is refused.
        refused(unsafe { window.raw_get(sink, target) }, class, &what("get"));
        // SAFETY: the data outlives the call, and nothing is queued because the operation is refused.
        let sum = unsafe { window.raw_accumulate(source, target, Operation::Sum) };
        refused(sum, class, &what("accumulate"));
        // SAFETY: the data outlives the call, and nothing is queued because the operation is refused.
        let fetched = unsafe { window.raw_get_accumulate(source, sink, target, Operation::Sum) };
        refused(fetched, class, &what("get_accumulate"));
    }
    for (place, class) in [(SLOTS, ErrorClass::RmaRange), (-1, ErrorClass::Disp)] {
        let at = (Rank(1), place);
        let (new, old) = (data.as_ptr().cast(), came.as_mut_ptr().cast());
        // SAFETY: the data outlives the call, and nothing is queued because the operation is refused.
        let fetched = unsafe { window.raw_fetch_and_op(new, old, Element::I64, at, Operation::Sum) };
        refused(fetched, class, "fetch_and_op");
        // SAFETY: the data outlives the call, and nothing is queued because the operation is refused.
        let swapped = unsafe { window.raw_compare_and_swap(new, new, old, Element::I64, at) };
        refused(swapped, class, "compare_and_swap");
    }
    refused(window.put(&data, Rank(2), 0), ErrorClass::Rank, "a rank that is none");
    assert_eq!(came, [5; 3], "nothing was read");
    Ok(())
}

fn member(path: &Path, mut job: Job) -> Result<(), Error> {
    let me = job.rank();
    let bytes = 8 * SLOTS as usize * if me == Rank(0) { 2 } else { 1 };
    let mut window = path.window(&mut job, bytes, Spec::new().unit(8))?;
    let inside = |window: &mut Window, value: i64| window.put(&[value], Rank(1), SLOTS - 1);
    for lock in [Lock::Shared, Lock::Exclusive] {
        if me == Rank(0) {
            window.lock(Rank(1), lock, Assert::NONE)?;
            inside(&mut window, 1)?;
            reach_outside(&mut window)?;
            inside(&mut window, 2)?;
            window.unlock(Rank(1))?;
        }
        job.barrier()?;
    }
    for _ in 0..3 {
        window.fence(Assert::NONE)?;
        if me == Rank(0) {
            inside(&mut window, 3)?;
            reach_outside(&mut window)?;
        }
    }
    window.fence(Assert::NO_SUCCEED)?;
    if me == Rank(0) {
        window.start(&[Rank(1)], Assert::NONE)?;
        inside(&mut window, 4)?;
        reach_outside(&mut window)?;
        window.complete()?;
    } else {
        window.post(&[Rank(0)], Assert::NONE)?;
        window.wait()?;
    }
    job.barrier()?;
    window.lock(me, Lock::Shared, Assert::NONE)?;
    let mut found = vec![0_i64; SLOTS as usize];
    window.load(0, &mut found)?;
    window.unlock(me)?;
    let last = if me == Rank(1) { 4 } else { 0 };
    assert_eq!(found, [0, 0, 0, 0, 0, 0, 0, last]);
    window.free()?;
    job.finalize()
}

#[test]
fn what_lies_outside_is_refused_on_every_path_in_every_epoch_and_nothing_is_written() {
    everywhere(2, member);
}
