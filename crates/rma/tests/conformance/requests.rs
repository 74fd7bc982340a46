//! Request-based operations: complete at the origin when their request is, while the epoch goes on or ends;
//! on every path.

use crate::paths::{Path, everywhere};
use unisono_rma::{
    Assert, Element, Error, ErrorClass, Job, Layout, Lock, Operation, Rank, Request, Sink, Source, Spec,
    Target, Window,
};

const COUNT: usize = 300;

fn end(window: &mut Window, request: Request, tests: bool) -> Result<(), Error> {
    if tests {
        while !window.test_request(&request)? {
            std::thread::yield_now();
        }
        return Ok(());
    }
    window.wait_request(request)
}

/// Uses each form once, in an epoch that goes on, and each buffer again as soon as its request is complete.
fn each_form(window: &mut Window, target: Rank, tests: bool) -> Result<(), Error> {
    let (one, strided) = (Element::U32.layout(), Layout::strided(Element::U32, COUNT as u64, 1, 2)?);
    let mut data: Vec<u32> = (0..COUNT as u32).collect();
    let mut came = vec![0_u32; COUNT];
    let to = |place| Target { rank: target, displacement: place, count: 1, layout: &strided };
    let source = |data: &[u32]| Source { address: data.as_ptr().cast(), count: COUNT as u64, layout: &one };
    let sink =
        |came: &mut [u32]| Sink { address: came.as_mut_ptr().cast(), count: COUNT as u64, layout: &one };
    // SAFETY: each buffer lives, and is left alone, until its request is complete.
    unsafe { window.raw_put(source(&data), to(0)) }?;
    end(window, window.request(target)?, tests)?;
    data.fill(1000);
    // SAFETY: each buffer lives, and is left alone, until its request is complete.
    unsafe { window.raw_accumulate(source(&data), to(0), Operation::Sum) }?;
    end(window, window.request(target)?, tests)?;
    data.fill(1);
    // SAFETY: each buffer lives, and is left alone, until its request is complete.
    unsafe { window.raw_get_accumulate(source(&data), sink(&mut came), to(0), Operation::Sum) }?;
    end(window, window.request(target)?, tests)?;
    let expected: Vec<u32> = (1000..1000 + COUNT as u32).collect();
    assert_eq!(came, expected, "what was there before");
    came.fill(0);
    // SAFETY: each buffer lives, and is left alone, until its request is complete.
    unsafe { window.raw_get(sink(&mut came), to(0)) }?;
    end(window, window.request(target)?, tests)?;
    let expected: Vec<u32> = (1001..1001 + COUNT as u32).collect();
    assert_eq!(came, expected, "what is there");
    Ok(())
}

fn member(path: &Path, mut job: Job) -> Result<(), Error> {
    let mut window = path.window(&mut job, 8 * COUNT, Spec::new().unit(4))?;
    let (me, other) = (job.rank(), Rank(1));
    if me == Rank(0) {
        for tests in [false, true] {
            window.lock(other, Lock::Shared, Assert::NONE)?;
            each_form(&mut window, other, tests)?;
            window.unlock(other)?;
            window.lock_all(Assert::NONE)?;
            each_form(&mut window, other, tests)?;
            each_form(&mut window, me, tests)?;
            window.unlock_all()?;
        }
        // A request outlives its epoch, and is then complete.
        let (one, value) = (Element::U32.layout(), [7_u32]);
        let source = Source { address: value.as_ptr().cast(), count: 1, layout: &one };
        let target = Target { rank: other, displacement: 0, count: 1, layout: &one };
        window.lock(other, Lock::Exclusive, Assert::NONE)?;
        // SAFETY: the value lives until the epoch has ended.
        unsafe { window.raw_put(source, target) }?;
        let (first, second) = (window.request(other)?, window.request(other)?);
        window.unlock(other)?;
        assert!(window.test_request(&first)?);
        window.wait_request(second)?;
    }
    window.fence(Assert::NONE)?;
    let refused = window.request(other).expect_err("requests are for passive epochs");
    assert_eq!(refused.class(), ErrorClass::RmaSync);
    window.fence(Assert::NO_SUCCEED)?;
    window.free()?;
    job.finalize()
}

#[test]
fn a_request_says_when_its_operation_is_complete_on_every_path() {
    everywhere(2, member);
}
