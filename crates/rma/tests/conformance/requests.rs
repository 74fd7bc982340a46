//! Request-based operations: complete at the origin when their request is, whatever the epoch does; on every
//! path.

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

/// Each form once, in an epoch that goes on; buffers are used again as soon as their request is complete.
fn each_form(window: &mut Window, target: Rank, tests: bool) -> Result<(), Error> {
    let (one, strided) = (Element::U32.layout(), Layout::strided(Element::U32, COUNT as u64, 1, 2)?);
    let mut data: Vec<u32> = (0..COUNT as u32).collect();
    let mut came = vec![0_u32; COUNT];
    let to = |place| Target { rank: target, place, count: 1, layout: &strided };
    let source = |data: &[u32]| Source { address: data.as_ptr().cast(), count: COUNT as u64, layout: &one };
    let sink =
        |came: &mut [u32]| Sink { address: came.as_mut_ptr().cast(), count: COUNT as u64, layout: &one };
    // SAFETY: each buffer lives, and is left alone, until its request is complete.
    let put = unsafe { window.raw_rput(source(&data), to(0)) }?;
    end(window, put, tests)?;
    data.fill(1000);
    // SAFETY: as above.
    let accumulate = unsafe { window.raw_raccumulate(source(&data), to(0), Operation::Sum) }?;
    end(window, accumulate, tests)?;
    data.fill(1);
    // SAFETY: as above.
    let fetch = unsafe { window.raw_rget_accumulate(source(&data), sink(&mut came), to(0), Operation::Sum) }?;
    end(window, fetch, tests)?;
    let expected: Vec<u32> = (1000..1000 + COUNT as u32).collect();
    assert_eq!(came, expected, "what was there before");
    came.fill(0);
    // SAFETY: as above.
    let get = unsafe { window.raw_rget(sink(&mut came), to(0)) }?;
    end(window, get, tests)?;
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
        // A request outlives its epoch, and is complete then.
        let (one, value) = (Element::U32.layout(), [7_u32]);
        let source = Source { address: value.as_ptr().cast(), count: 1, layout: &one };
        let target = Target { rank: other, place: 0, count: 1, layout: &one };
        window.lock(other, Lock::Exclusive, Assert::NONE)?;
        // SAFETY: the value lives on this screen.
        let [first, second] = [(); 2].map(|()| unsafe { window.raw_rput(source, target) });
        let (first, second) = (first?, second?);
        window.unlock(other)?;
        assert!(window.test_request(&first)?);
        window.wait_request(second)?;
    }
    window.fence(Assert::NONE)?;
    let (one, value) = (Element::U32.layout(), [7_u32]);
    let source = Source { address: value.as_ptr().cast(), count: 1, layout: &one };
    let target = Target { rank: other, place: 0, count: 1, layout: &one };
    // SAFETY: the value lives on this screen.
    let refused = unsafe { window.raw_rput(source, target) }.expect_err("requests are for passive epochs");
    assert_eq!(refused.class(), ErrorClass::RmaSync);
    window.fence(Assert::NO_SUCCEED)?;
    window.free()?;
    job.finalize()
}

#[test]
fn a_request_says_when_its_operation_is_complete_on_every_path() {
    everywhere(2, member);
}
