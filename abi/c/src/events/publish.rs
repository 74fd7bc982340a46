//! Topics, events to publish, requests and replies.

use super::field::EventField;
use super::receive::{EventView, into_view, received};
use super::{ClientHandle, EventsError, connection, ffi_events_call, text, timeout};
use crate::error::{CallStatus, argument, null};
use crate::handle;
use crate::layout::slice;
use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;
use unisono_events_client::MAX_KEY;
use unisono_events_client::{
    Advertisement, EventDraft, FieldSet, FieldValue, Instant, KeptHistory, PublishOutcome, PublishProgress,
};

/// Consumers get only the events of the topic's strongest living supplier; all other suppliers stand by.
pub const UNISONO_TOPIC_EXCLUSIVE: u32 = 1;
/// The broker may redeliver events until they are acknowledged.
pub const UNISONO_TOPIC_RELIABLE: u32 = 2;

/// A topic to publish on, and its properties. A zero or NULL field selects the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TopicOptions {
    /// Levels separated by /, such as "plant/1/heat".
    pub name: *const c_char,
    /// The name of its events' type. A subscription may ask for a type.
    pub event_type: *const c_char,
    /// The number of events that the broker keeps for late subscribers. Not together with `last_values`.
    pub last: usize,
    /// The number of keys whose last event the broker keeps for late subscribers.
    pub last_values: usize,
    /// The deadline of events without a deadline of their own, in nanoseconds after their publication.
    pub deadline_ns: u64,
    /// A sum of UNISONO_TOPIC_EXCLUSIVE and UNISONO_TOPIC_RELIABLE.
    pub flags: u32,
    /// Consumers of an exclusive topic get the events of the supplier with the greatest strength.
    pub strength: u32,
    /// Further options in JSON, such as "{\"period_ns\": 1000000, \"burst\": 4}": the keys of an ADVERTISE
    /// frame (crates/events-wire/PROTOCOL.md). "{\"share\": 3}" is this supplier's weight where suppliers
    /// share the queue of a subscription. "{\"order\": \"publication\"}" ensures that no consumer gets an
    /// event before an earlier event of this supplier. "{\"content\": {\"type\": \"application/cbor\"}}"
    /// adds the field content_type to each event that lacks it; "schema" beside "type" adds the field schema.
    pub more: *const c_char,
}

/// An event to publish. A zero or NULL field leaves that part out.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PublishDraft {
    pub payload: *const c_void,
    /// The size of the payload in bytes, at most unisono_client_largest().
    pub bytes: usize,
    /// Identifies the thing that the event is about, if the topic is about several; at most 1,024 bytes.
    pub key: *const c_char,
    pub fields: *const EventField,
    pub field_count: usize,
    /// The deadline, on the clock of unisono_now(); 0: none.
    pub deadline_ns: u64,
    /// How bad the loss of the event is: a full queue drops the least critical events first.
    pub criticality: u8,
    /// For unisono_try_publish(): this event's number from the topic's `writer` (a key of `more`), starting
    /// at 1; 0: none. The broker's log accepts each number once.
    pub number: u64,
}

/// The outcome of a published event.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeCode {
    /// The event is in the queues of `consumers` consumers and groups.
    Taken = 0,
    /// A stronger supplier of the topic lives; no consumer gets the event.
    Standby = 1,
    /// An event with this sequence number came before; no consumer gets it again.
    Duplicate = 2,
    /// As TAKEN, and the event is in the broker's log: it survives the end of the broker.
    Written = 3,
    /// As TAKEN, and the event is on disk: it survives a loss of power.
    Synced = 4,
}

/// The outcome of an event that unisono_try_publish() published.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PublishResult {
    /// The number of this event in the broker's count of this supplier's events on the topic.
    pub sequence: u64,
    pub consumers: u32,
    /// A value of unisono_outcome.
    pub outcome: c_int,
}

/// # Safety
/// `options` is null or readable, and the texts in it are null or C strings.
unsafe fn advertisement(options: *const TopicOptions) -> Result<Advertisement, EventsError> {
    // SAFETY: null or readable; the caller guarantees it.
    let given = unsafe { options.as_ref() }.ok_or_else(|| null("options"))?;
    // SAFETY: null or a C string; the caller guarantees it.
    let more = unsafe { text(given.more, "more") }?;
    let mut made = more.map_or_else(|| Ok(Advertisement::default()), serde_json::from_str)?;
    // SAFETY: null or a C string; the caller guarantees it.
    made.topic = unsafe { text(given.name, "the topic's name") }?.ok_or_else(|| null("the name"))?.to_owned();
    // SAFETY: null or a C string; the caller guarantees it.
    if let Some(event_type) = unsafe { text(given.event_type, "the type's name") }? {
        made.event_type = Some(event_type.to_owned());
    }
    match (given.last, given.last_values) {
        (0, 0) => {}
        (last, 0) => made.history = KeptHistory::Last(last),
        (0, keys) => made.history = KeptHistory::LastValue(keys),
        _ => return Err(argument("a topic keeps the last events or the last values, not both").into()),
    }
    if given.deadline_ns > 0 {
        made.deadline_ns = Some(given.deadline_ns);
    }
    if given.flags & !(UNISONO_TOPIC_EXCLUSIVE | UNISONO_TOPIC_RELIABLE) != 0 {
        return Err(argument(format!("{:#x} are no flags of a unisono_topic", given.flags)).into());
    }
    made.exclusive |= given.flags & UNISONO_TOPIC_EXCLUSIVE != 0;
    made.reliable |= given.flags & UNISONO_TOPIC_RELIABLE != 0;
    if given.strength > 0 {
        made.strength = given.strength;
    }
    Ok(made)
}

/// Refuses a value that is too long for a frame, because the broker would close the connection.
fn within(what: &str, length: usize, max: usize) -> Result<(), EventsError> {
    match length > max {
        true => Err(argument(format!("{what} has {length}, and {max} is the most")).into()),
        false => Ok(()),
    }
}

/// # Safety
/// Name and text are null or C strings.
unsafe fn field<'a>(field: &EventField) -> Result<(&'a str, FieldValue), EventsError> {
    // SAFETY: null or a C string; the caller guarantees it.
    let name = unsafe { text(field.name, "a field's name") }?.ok_or_else(|| null("a field's name"))?;
    within("bytes of a field's name", name.len(), usize::from(u8::MAX))?;
    let value = match field.kind {
        1 => field.whole.into(),
        2 => field.decimal.into(),
        3 => (field.whole != 0).into(),
        4 => {
            // SAFETY: null or a C string; the caller guarantees it.
            let value = unsafe { text(field.text, name) }?.ok_or_else(|| null("a field's text"))?;
            within("bytes of a field's text", value.len(), usize::from(u16::MAX))?;
            value.into()
        }
        other => return Err(argument(format!("field {name}: {other} is no unisono_field_kind")).into()),
    };
    Ok((name, value))
}

/// Reads an event that has no writer's number.
///
/// # Safety
/// As [`numbered`].
pub(super) unsafe fn draft<'a>(draft: *const PublishDraft) -> Result<EventDraft<'a>, EventsError> {
    // SAFETY: the caller guarantees what `numbered` requires.
    match unsafe { numbered(draft) }? {
        (draft, None) => Ok(draft),
        (_, Some(_)) => Err(argument("an event with a number is for unisono_try_publish").into()),
    }
}

/// Reads an event, and its writer's number if it has one.
///
/// # Safety
/// `draft` is null or readable, and so are all its pointers.
unsafe fn numbered<'a>(draft: *const PublishDraft) -> Result<(EventDraft<'a>, Option<u64>), EventsError> {
    // SAFETY: null or readable; the caller guarantees it.
    let given = unsafe { draft.as_ref() }.ok_or_else(|| null("draft"))?;
    // SAFETY: null or readable for `bytes`; the caller guarantees it.
    let mut made = EventDraft::new(unsafe { slice(given.payload.cast(), given.bytes, "payload") }?);
    // SAFETY: null or a C string; the caller guarantees it.
    if let Some(key) = unsafe { text(given.key, "the key") }? {
        within("bytes of the key", key.len(), MAX_KEY)?;
        made = made.keyed(key);
    }
    if given.field_count > 0 {
        within("the number of fields", given.field_count, usize::from(u16::MAX))?;
        let mut set = FieldSet::new();
        // SAFETY: null or an array of `field_count`; the caller guarantees it.
        for given in unsafe { slice(given.fields, given.field_count, "fields") }? {
            // SAFETY: its texts are null or C strings; the caller guarantees it.
            let (name, value) = unsafe { field(given) }?;
            set.set(name, value);
        }
        made = made.with_fields(set);
    }
    if given.deadline_ns > 0 {
        made = made.due_at(Instant::from_nanos(given.deadline_ns));
    }
    Ok((made.critical(given.criticality), (given.number > 0).then_some(given.number)))
}

/// Announces that this program will publish on a topic, and waits until the broker agrees. `*topic` becomes
/// the topic's number for publishing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_advertise(
    client: *mut ClientHandle,
    options: *const TopicOptions,
    topic: *mut u32,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        // SAFETY: unisono.h requires NULL or room for the number.
        let to = unsafe { topic.as_mut() }.ok_or_else(|| null("topic"))?;
        // SAFETY: unisono.h requires NULL or options with C strings.
        let made = handle.client.advertise(&unsafe { advertisement(options) }?)?;
        *to = handle.number();
        handle.topics.insert(*to, made);
        Ok(())
    })
}

/// Ends a topic: its subscribers learn that this supplier left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_withdraw(client: *mut ClientHandle, topic: u32) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        let ended = handle.topic(topic)?;
        handle.topics.remove(&topic);
        Ok(handle.client.withdraw(ended)?)
    })
}

/// Publishes an event without waiting for its outcome. If the broker refuses the event, unisono_receive()
/// reports that. Blocks while a consumer that blocks suppliers has a full queue. The program may reuse the
/// payload's memory afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_publish(
    client: *mut ClientHandle,
    topic: u32,
    draft: *const PublishDraft,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        let topic = handle.topic(topic)?;
        // SAFETY: unisono.h requires NULL or a draft whose pointers are null or valid.
        Ok(handle.client.publish(topic, &unsafe { self::draft(draft) }?)?)
    })
}

/// Like unisono_publish(), but the event may wait in this process until unisono_flush(), so that many events
/// leave with one system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_publish_later(
    client: *mut ClientHandle,
    topic: u32,
    draft: *const PublishDraft,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        let topic = handle.topic(topic)?;
        // SAFETY: unisono.h requires NULL or a draft whose pointers are null or valid.
        Ok(handle.client.publish_buffered(topic, &unsafe { self::draft(draft) }?)?)
    })
}

/// Sends all events that unisono_publish_later() holds back, and waits until they have left this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_flush(client: *mut ClientHandle) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    ffi_events_call(|| Ok(unsafe { connection(client) }?.client.flush()?))
}

/// Like unisono_publish(), but waits no longer than `timeout_ns` for room. After UNISONO_STATUS_TIMED_OUT: if
/// `*taken` is 0, publish the event again; otherwise later calls, such as unisono_flush_within(), send it. A
/// program that receives its own events over another connection must receive them in the meantime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_publish_within(
    client: *mut ClientHandle,
    topic: u32,
    draft: *const PublishDraft,
    timeout_ns: u64,
    taken: *mut c_int,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or room for the answer.
        let taken = unsafe { taken.as_mut() }.ok_or_else(|| null("taken"))?;
        *taken = 0;
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        let (topic, timeout) = (handle.topic(topic)?, Duration::from_nanos(timeout_ns));
        // SAFETY: unisono.h requires NULL or a draft whose pointers are null or valid.
        let progress = handle.client.publish_within(topic, &unsafe { self::draft(draft) }?, timeout)?;
        *taken = c_int::from(progress != PublishProgress::NotTaken);
        if progress == PublishProgress::Left { Ok(()) } else { Err(EventsError::NoRoom(timeout)) }
    })
}

/// Like unisono_flush(), but waits no longer than `timeout_ns`. UNISONO_STATUS_TIMED_OUT: some events are
/// still in this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_flush_within(client: *mut ClientHandle, timeout_ns: u64) -> CallStatus {
    ffi_events_call(|| {
        let timeout = Duration::from_nanos(timeout_ns);
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let left = unsafe { connection(client) }?.client.flush_within(timeout)?;
        if left { Ok(()) } else { Err(EventsError::NoRoom(timeout)) }
    })
}

/// Publishes an event if no consumer would block it, and waits for the event's outcome.
/// UNISONO_STATUS_REFUSED: no consumer got the event; the text names the refuser and the reason. `published`
/// may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_try_publish(
    client: *mut ClientHandle,
    topic: u32,
    draft: *const PublishDraft,
    published: *mut PublishResult,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        let topic = handle.topic(topic)?;
        // SAFETY: unisono.h requires NULL or a draft whose pointers are null or valid.
        let (draft, number) = unsafe { numbered(draft) }?;
        let handed = handle.client.try_publish_with_receipt(topic, &draft, number)?;
        let became = handle.client.outcome(handed)?;
        let (outcome, consumers) = match became.outcome {
            PublishOutcome::Taken(consumers) => (OutcomeCode::Taken, consumers),
            PublishOutcome::Written(consumers) => (OutcomeCode::Written, consumers),
            PublishOutcome::Synced(consumers) => (OutcomeCode::Synced, consumers),
            PublishOutcome::Standby => (OutcomeCode::Standby, 0),
            PublishOutcome::Duplicate => (OutcomeCode::Duplicate, 0),
        };
        // SAFETY: unisono.h requires NULL or room for the result.
        if let Some(to) = unsafe { published.as_mut() } {
            *to = PublishResult { sequence: became.sequence, consumers, outcome: outcome as c_int };
        }
        Ok(())
    })
}

/// Publishes a request and waits for its reply; free the reply with unisono_event_free(). Other events that
/// arrive in the meantime are received later. A negative `timeout_ns` sets no limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_ask(
    client: *mut ClientHandle,
    topic: u32,
    draft: *const PublishDraft,
    timeout_ns: i64,
    reply: *mut *mut EventView,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or room for the event.
        let to = unsafe { handle::emptied(reply, "reply") }?;
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        let topic = handle.topic(topic)?;
        // a limit of a year is as good as no limit, and can be added to the clock without overflow
        let timeout = timeout(timeout_ns).map_or(MAX_TIMEOUT, |limit| limit.min(MAX_TIMEOUT));
        // SAFETY: unisono.h requires NULL or a draft whose pointers are null or valid.
        let reply = handle.client.request(topic, unsafe { self::draft(draft) }?, timeout)?;
        *to = into_view(reply, 0);
        Ok(())
    })
}

const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Answers a received request. UNISONO_STATUS_ARG: the event is no request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_reply(
    client: *mut ClientHandle,
    request: *const EventView,
    draft: *const PublishDraft,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        // SAFETY: unisono.h requires NULL or an event that was received and not freed.
        let request = unsafe { received(request) }?;
        // SAFETY: unisono.h requires NULL or a draft whose pointers are null or valid.
        match handle.client.reply(request, unsafe { self::draft(draft) }?)? {
            true => Ok(()),
            false => Err(argument("the event is no request: it has no fields reply_to and request").into()),
        }
    })
}
