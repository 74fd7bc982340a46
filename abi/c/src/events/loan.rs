//! Loans: memory for the payload of an event, written in place.

use super::publish::{PublishDraft, draft};
use super::{ClientHandle, EventsError, connection, ffi_events_call};
use crate::error::{CallStatus, argument, null};
use crate::handle;
use std::ffi::{c_int, c_void};
use std::time::Duration;
use unisono_events_client::{EventLoan, Instant, PublishProgress};

/// Memory for the payload of an event.
#[repr(C)]
#[derive(Debug)]
pub struct LoanView {
    /// The place of the payload; its content is undefined, and its address has no alignment. NULL after the
    /// publication.
    pub memory: *mut c_void,
    /// The size of the payload in bytes; 0 after the publication.
    pub bytes: usize,
    /// 1 if consumers will read the payload from this memory; 0 if the publication copies it, because the
    /// topic's events go through the broker.
    pub in_place: c_int,
}

/// A [`LoanView`] with its memory. The view is the first field, so a pointer to the view is also a pointer to
/// this struct.
#[repr(C)]
struct OwnedLoan {
    view: LoanView,
    loan: EventLoan,
}

/// Returns the loan behind a view.
///
/// # Safety
/// `view` is null or was lent and not returned, and no other thread uses it now.
unsafe fn lent<'a>(view: *mut LoanView) -> Result<&'a mut OwnedLoan, EventsError> {
    // SAFETY: null, or the first part of a loan; the caller guarantees it.
    let owned = unsafe { view.cast::<OwnedLoan>().as_mut() };
    owned.ok_or_else(|| null("lent").into())
}

/// Lends memory for the payload of an event with the key, the fields, the deadline and the criticality of
/// `draft`; `draft->bytes` is the size of the payload, and `draft->payload` is NULL. If consumers get the
/// topic's events directly, through shared memory, they read the payload from this memory, and it is never
/// copied; a topic lends up to four such places at a time. Write the payload, publish the event by
/// unisono_publish_loan(), and return the loan by unisono_loan_return() in any case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_loan(
    client: *mut ClientHandle,
    topic: u32,
    draft: *const PublishDraft,
    lent: *mut *mut LoanView,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or room for the loan.
        let to = unsafe { handle::emptied(lent, "lent") }?;
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        let topic = handle.topic(topic)?;
        // SAFETY: unisono.h requires NULL or a draft whose pointers are null or valid.
        let given = unsafe { draft.as_ref() }.ok_or_else(|| null("draft"))?;
        if !given.payload.is_null() {
            return Err(argument("the payload of a loan's draft is not NULL; write it into the loan").into());
        }
        let event = PublishDraft { bytes: 0, ..*given };
        // SAFETY: the draft's pointers are null or valid, as above.
        let mut loan = handle.client.loan(topic, given.bytes, &unsafe { self::draft(&raw const event) }?)?;
        let view = LoanView {
            memory: loan.as_mut_ptr().cast(),
            bytes: given.bytes,
            in_place: c_int::from(loan.is_in_place()),
        };
        *to = Box::into_raw(Box::new(OwnedLoan { view, loan })).cast();
        Ok(())
    })
}

/// Publishes the event of a loan, as unisono_publish() does. Do not write to the loan's memory afterwards,
/// because consumers read it. The memory stays mapped until unisono_loan_return(). `deadline_ns` replaces the
/// draft's deadline; 0 keeps the draft's deadline.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_publish_loan(
    client: *mut ClientHandle,
    lent: *mut LoanView,
    deadline_ns: u64,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        // SAFETY: unisono.h requires NULL or a loan that was not returned.
        let owned = unsafe { self::lent(lent) }?;
        loop {
            match publish(handle, owned, deadline_ns, Duration::MAX)? {
                PublishProgress::NotTaken => {}
                PublishProgress::Leaving => return Ok(handle.client.flush()?),
                PublishProgress::Left => return Ok(()),
            }
        }
    })
}

/// Like unisono_publish_loan(), but waits no longer than `timeout_ns` for room. UNISONO_STATUS_TIMED_OUT has
/// the same meaning as for unisono_publish_within().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_publish_loan_within(
    client: *mut ClientHandle,
    lent: *mut LoanView,
    deadline_ns: u64,
    timeout_ns: u64,
    taken: *mut c_int,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or room for the answer.
        let taken = unsafe { taken.as_mut() }.ok_or_else(|| null("taken"))?;
        *taken = 0;
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        // SAFETY: unisono.h requires NULL or a loan that was not returned.
        let owned = unsafe { self::lent(lent) }?;
        let timeout = Duration::from_nanos(timeout_ns);
        let progress = publish(handle, owned, deadline_ns, timeout)?;
        *taken = c_int::from(progress != PublishProgress::NotTaken);
        if progress == PublishProgress::Left { Ok(()) } else { Err(EventsError::NoRoom(timeout)) }
    })
}

fn publish(
    handle: &mut ClientHandle,
    owned: &mut OwnedLoan,
    deadline_ns: u64,
    timeout: Duration,
) -> Result<PublishProgress, EventsError> {
    if owned.view.memory.is_null() {
        return Err(argument("the event of this loan is published; take another loan").into());
    }
    if deadline_ns > 0 {
        owned.loan.due_at(Instant::from_nanos(deadline_ns));
    }
    let progress = handle.client.publish_loan_within(&mut owned.loan, timeout)?;
    if progress != PublishProgress::NotTaken {
        (owned.view.memory, owned.view.bytes) = (std::ptr::null_mut(), 0);
    }
    Ok(progress)
}

/// Returns a loan and sets `*lent` to NULL; a loan that was not published is dropped without an event. The
/// call is also allowed after the connection was closed, and in another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_loan_return(lent: *mut *mut LoanView) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or the address of a loan, which `unisono_loan` made.
        drop(unsafe { handle::take(lent.cast::<*mut OwnedLoan>(), "lent") }?);
        Ok(())
    })
}
