//! Subscriptions, and receiving events.

use super::field::{EventField, FieldKind};
use super::{ClientHandle, EventsError, connection, ffi_events_call, text, timeout};
use crate::error::{CallStatus, argument, null};
use crate::handle;
use std::borrow::Cow;
use std::ffi::{CString, c_char, c_int, c_void};
use unisono_events_client::{
    AgainSpec, FieldValue, InterestSpec, KeptHistory, NoticeText, ReceivedEvent, Reception, SubscriptionSpec,
    WhenFull, WhenLate, now,
};

/// Handling of events while the queue of a subscription is full.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullCode {
    /// The oldest event is dropped.
    DropOldest = 0,
    /// A late event is dropped, or else the event with the latest deadline.
    DropByDeadline = 1,
    /// The supplier waits.
    BlockSupplier = 2,
}

/// Handling of events whose deadline has passed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateCode {
    /// They are delivered with UNISONO_EVENT_LATE.
    Deliver = 0,
    /// They are dropped without notice.
    Drop = 1,
    /// They are dropped and reported as a GAP.
    Report = 2,
}

/// The events to receive, and how. A zero or NULL field selects the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionOptions {
    /// A pattern: + stands for one level, # for all further levels. NULL: `more` holds the interests.
    pub topics: *const c_char,
    /// A condition on fields, such as "celsius > 80". NULL: all events.
    pub filter: *const c_char,
    /// Receive only topics with this type.
    pub event_type: *const c_char,
    /// A class of the broker's policy.
    pub class_name: *const c_char,
    /// Consumers of a group share the events: each event goes to a single member.
    pub group: *const c_char,
    /// Maximum number of waiting events; 0: 1,024.
    pub queue: usize,
    /// A value of unisono_full.
    pub full: c_int,
    /// A value of unisono_late.
    pub late: c_int,
    /// The number of events that a topic must keep for late subscribers, or the subscription does not get it.
    /// All kept events arrive, also if there are more.
    pub last: usize,
    /// An event that is not acknowledged within this time is delivered again, at most 16 times or as often as
    /// "again" in `more` says; 0: no event needs an acknowledgment, unless "again" is in `more`.
    pub acknowledge_ns: u64,
    /// Further options in JSON, such as "{\"silence_ns\": 1000000000}": the keys of a SUBSCRIBE frame
    /// (crates/events-wire/PROTOCOL.md). "{\"direct\": false}" refuses events that suppliers send directly,
    /// without the broker between them. "{\"between\": \"shares\"}" divides the queue among
    /// suppliers by their shares. "{\"order\": \"publication\"}" keeps the order in which each supplier
    /// published on a topic; otherwise the event that is due first comes first. Over UDP, with
    /// "{\"best_effort\": true}", no event waits for another event that the network lost.
    pub more: *const c_char,
}

/// The kind of a received event or notice.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceptionCode {
    Event = 1,
    /// `lost` events of a supplier are missing, from `sequence` to `last`.
    Gap = 2,
    /// A supplier will publish no more events.
    Gone = 3,
    /// From now on the events of an exclusive topic come from another supplier.
    Owner = 4,
    /// The topic no longer meets the subscription's requirements.
    Mismatch = 5,
    /// A period is over.
    Tick = 6,
    /// No event came for the time that the subscription named.
    Silence = 7,
    /// A correlation began and was not completed in time.
    Incomplete = 8,
    /// An event of unisono_publish was refused: `number` is its topic.
    Rejected = 9,
    /// The broker's log no longer has the events at positions `sequence` to `last`.
    Lost = 10,
    /// The connection broke at `published_ns` and was restored. A subscription that resumes misses no event;
    /// other subscriptions missed the events published in between.
    Reconnected = 11,
}

/// The deadline had passed at the delivery.
pub const UNISONO_EVENT_LATE: u32 = 1;
/// The event was published before the subscription began.
pub const UNISONO_EVENT_RETAINED: u32 = 2;
/// The event is delivered again unless the program acknowledges it.
pub const UNISONO_EVENT_ACKNOWLEDGE: u32 = 4;

/// A received event or notice. All of it is valid until unisono_event_free, and the library does not change
/// it. Through shared memory a payload of 16 KiB or more is not copied: it stays in memory that the broker,
/// or the event's supplier, can write. At most four payloads are held there at a time; further payloads are
/// copied. A supplier that is broken or hostile can change such a payload at any time, also after it was
/// checked. Where the supplier is not trusted, copy the payload first, and check and use the copy. All else
/// in the structure is a copy.
#[repr(C)]
#[derive(Debug)]
pub struct EventView {
    /// A value of unisono_reception.
    pub kind: c_int,
    /// The number of the subscription (REJECTED: of the topic); 0 for the reply to a request, and for
    /// RECONNECTED.
    pub number: u32,
    /// NULL for a notice that concerns no topic.
    pub topic: *const c_char,
    /// NULL if the event has no key.
    pub key: *const c_char,
    /// The text of a notice; NULL for an event.
    pub text: *const c_char,
    pub payload: *const c_void,
    /// The size of the payload in bytes.
    pub bytes: usize,
    /// Sorted by name, ascending.
    pub fields: *const EventField,
    pub field_count: usize,
    /// The other events of a correlation, in the order of the subscription's interests.
    pub with: *const *const EventView,
    pub with_count: usize,
    /// The time of publication, on the clock of unisono_now(). TICK: the end of the period. SILENCE: the
    /// arrival of the last event. RECONNECTED: the time when the library noticed the broken connection.
    pub published_ns: u64,
    /// The deadline; 0: none.
    pub deadline_ns: u64,
    /// The event's number in the supplier's count. GAP: the number of the first missing event.
    pub sequence: u64,
    /// GAP: the number of the last missing event. EVENT with UNISONO_EVENT_ACKNOWLEDGE: the number of the
    /// delivery; if the subscription resumes, this is the event's position in the log. Other EVENT: 0.
    pub last: u64,
    /// GAP: the number of missing events; 0: unknown yet. Without a topic: events of further topics.
    pub lost: u64,
    /// The broker's number of the supplier.
    pub supplier: u32,
    /// A sum of UNISONO_EVENT_LATE, UNISONO_EVENT_RETAINED and UNISONO_EVENT_ACKNOWLEDGE.
    pub flags: u32,
    pub criticality: u8,
    /// Earlier deliveries of this event that were not acknowledged; 255 means 255 or more.
    pub repeated: u8,
    /// GONE: 1 if the supplier died, 0 if it left.
    pub died: u8,
}

/// An [`EventView`] with the memory that it points into. The view is the first field, so a pointer to the
/// view is also a pointer to this struct.
#[repr(C)]
struct OwnedEvent {
    view: EventView,
    event: Option<ReceivedEvent>,
    /// The payload, if it cannot be used in the memory where it arrived.
    copy: Vec<u8>,
    texts: Vec<CString>,
    fields: Vec<EventField>,
    with: Vec<OwnedEvent>,
    with_views: Vec<*const EventView>,
}

impl OwnedEvent {
    fn new(kind: ReceptionCode, number: u32) -> Box<Self> {
        let view = EventView {
            kind: kind as c_int,
            number,
            topic: std::ptr::null(),
            key: std::ptr::null(),
            text: std::ptr::null(),
            payload: std::ptr::null(),
            bytes: 0,
            fields: std::ptr::null(),
            field_count: 0,
            with: std::ptr::null(),
            with_count: 0,
            published_ns: 0,
            deadline_ns: 0,
            sequence: 0,
            last: 0,
            lost: 0,
            supplier: 0,
            flags: 0,
            criticality: 0,
            repeated: 0,
            died: 0,
        };
        let (copy, texts, fields) = (Vec::new(), Vec::new(), Vec::new());
        Box::new(Self { view, event: None, copy, texts, fields, with: Vec::new(), with_views: Vec::new() })
    }

    /// Makes a C string of this text that lives as long as the reception. Zero bytes become spaces, because a
    /// C string cannot contain them.
    fn text(&mut self, text: &str) -> *const c_char {
        let made = CString::new(text).or_else(|_| CString::new(text.replace('\0', " "))).unwrap_or_default();
        let at = made.as_ptr(); // points into the heap, so it stays valid when the vector moves the string
        self.texts.push(made);
        at
    }

    fn event(mut event: ReceivedEvent, number: u32) -> Box<Self> {
        let mut owned = Self::new(ReceptionCode::Event, number);
        owned.with =
            std::mem::take(&mut event.with).into_iter().map(|one| *Self::event(one, number)).collect();
        owned.with_views = owned.with.iter().map(|one| &raw const one.view).collect();
        (owned.view.with, owned.view.with_count) = (owned.with_views.as_ptr(), owned.with_views.len());
        owned.view.topic = owned.text(&event.topic);
        owned.view.key = event.key.as_ref().map_or(std::ptr::null(), |key| owned.text(key));
        for (name, value) in event.fields.iter() {
            let field = owned.field(name, value);
            owned.fields.push(field);
        }
        (owned.view.fields, owned.view.field_count) = (owned.fields.as_ptr(), owned.fields.len());
        owned.view.published_ns = event.published.as_nanos();
        owned.view.deadline_ns = event.deadline.unwrap_or_default().as_nanos();
        (owned.view.sequence, owned.view.supplier) = (event.sequence, event.supplier);
        owned.view.last = event.delivery.unwrap_or(0);
        let flags = [
            (event.late, UNISONO_EVENT_LATE),
            (event.retained, UNISONO_EVENT_RETAINED),
            (event.delivery.is_some(), UNISONO_EVENT_ACKNOWLEDGE),
        ];
        owned.view.flags = flags.into_iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum();
        (owned.view.criticality, owned.view.repeated) = (event.criticality, event.repeated);
        owned.keep_payload(event);
        owned
    }

    fn keep_payload(&mut self, event: ReceivedEvent) {
        (self.view.payload, self.view.bytes) = if let Some(bytes) = event.payload.in_place() {
            (bytes.as_ptr().cast(), bytes.len())
        } else {
            match event.payload.bytes() {
                Cow::Borrowed(bytes) => (bytes.as_ptr().cast(), bytes.len()),
                Cow::Owned(bytes) => {
                    self.copy = bytes;
                    (self.copy.as_ptr().cast(), self.copy.len())
                }
            }
        };
        self.event = Some(event); // owns the memory of the payload
    }

    fn field(&mut self, name: &str, value: &FieldValue) -> EventField {
        let name = self.text(name);
        let field = EventField {
            name,
            kind: FieldKind::Whole as c_int,
            whole: 0,
            decimal: 0.0,
            text: std::ptr::null(),
        };
        match value {
            FieldValue::Number(number) => {
                let kind = number.to_whole().map_or(FieldKind::Decimal, |_| FieldKind::Whole) as c_int;
                EventField { kind, whole: number.to_whole().unwrap_or(0), decimal: number.to_f64(), ..field }
            }
            FieldValue::Bool(value) => {
                EventField { kind: FieldKind::Bool as c_int, whole: i64::from(*value), ..field }
            }
            FieldValue::Text(text) => {
                EventField { kind: FieldKind::Text as c_int, text: self.text(text), ..field }
            }
        }
    }

    fn notice(notice: &NoticeText, topic: Option<&str>, number: u32) -> Box<Self> {
        let kind = match notice {
            NoticeText::Gap { .. } | NoticeText::FurtherGaps { .. } => ReceptionCode::Gap,
            NoticeText::Gone { .. } => ReceptionCode::Gone,
            NoticeText::Owner { .. } => ReceptionCode::Owner,
            NoticeText::Mismatch { .. } => ReceptionCode::Mismatch,
            NoticeText::Tick { .. } => ReceptionCode::Tick,
            NoticeText::Silence { .. } => ReceptionCode::Silence,
            NoticeText::Incomplete {} => ReceptionCode::Incomplete,
            NoticeText::Lost { .. } => ReceptionCode::Lost,
        };
        let mut owned = Self::new(kind, number);
        owned.view.topic = topic.map_or(std::ptr::null(), |topic| owned.text(topic));
        owned.view.text = owned.text(&notice.to_string());
        match notice {
            NoticeText::Gap { supplier, first, last, lost, .. } => {
                (owned.view.supplier, owned.view.sequence) = (*supplier, *first);
                (owned.view.last, owned.view.lost) = (*last, *lost);
            }
            NoticeText::FurtherGaps { lost } => owned.view.lost = *lost,
            NoticeText::Gone { supplier, died, .. } => {
                (owned.view.supplier, owned.view.died) = (*supplier, u8::from(*died));
            }
            NoticeText::Owner { supplier, .. } => owned.view.supplier = *supplier,
            NoticeText::Tick { at_ns: at } | NoticeText::Silence { since_ns: at } => {
                owned.view.published_ns = *at;
            }
            NoticeText::Lost { first, last } => (owned.view.sequence, owned.view.last) = (*first, *last),
            NoticeText::Mismatch { .. } | NoticeText::Incomplete {} => {}
        }
        owned
    }

    fn into_raw_view(self: Box<Self>) -> *mut EventView {
        Box::into_raw(self).cast()
    }
}

/// Converts an event to a view that the program frees.
pub(super) fn into_view(event: ReceivedEvent, number: u32) -> *mut EventView {
    OwnedEvent::event(event, number).into_raw_view()
}

/// Returns the event behind a view.
///
/// # Safety
/// `view` is null or was received and not freed.
pub(super) unsafe fn received<'a>(view: *const EventView) -> Result<&'a ReceivedEvent, EventsError> {
    // SAFETY: null, or the first part of a reception; the caller guarantees it.
    let owned = unsafe { view.cast::<OwnedEvent>().as_ref() }.ok_or_else(|| null("event"))?;
    owned.event.as_ref().ok_or_else(|| argument("a notice is no event").into())
}

/// # Safety
/// `options` is null or readable, and the texts in it are null or C strings.
unsafe fn subscription(options: *const SubscriptionOptions) -> Result<SubscriptionSpec, EventsError> {
    // SAFETY: null or readable; the caller guarantees it.
    let given = unsafe { options.as_ref() }.ok_or_else(|| null("options"))?;
    // SAFETY: null or C strings; the caller guarantees it.
    let read = |from, what| unsafe { text(from, what) }.map(|text| text.map(str::to_owned));
    let more = read(given.more, "more")?;
    let mut made: SubscriptionSpec =
        more.map_or_else(|| Ok(SubscriptionSpec::default()), |more| serde_json::from_str(&more))?;
    if let Some(topics) = read(given.topics, "topics")? {
        let (event_type, filter) =
            (read(given.event_type, "the type's name")?, read(given.filter, "filter")?);
        made.interests.push(InterestSpec { topics, event_type, filter, ..InterestSpec::default() });
    }
    made.class = read(given.class_name, "the class's name")?.or(made.class);
    made.group = read(given.group, "the group's name")?.or(made.group);
    if given.queue > 0 {
        made.queue_events = given.queue;
    }
    made.full = match given.full {
        0 => made.full,
        1 => WhenFull::DropByDeadline,
        2 => WhenFull::BlockSupplier,
        other => return Err(argument(format!("{other} is no unisono_full")).into()),
    };
    made.late = match given.late {
        0 => made.late,
        1 => WhenLate::Drop,
        2 => WhenLate::Report,
        other => return Err(argument(format!("{other} is no unisono_late")).into()),
    };
    if given.last > 0 {
        made.history = KeptHistory::Last(given.last);
    }
    if given.acknowledge_ns > 0 {
        let usual = AgainSpec { after_ns: given.acknowledge_ns, attempts: 16, window: 64 };
        let more = made.again.take().unwrap_or(usual);
        made.again = Some(AgainSpec { after_ns: given.acknowledge_ns, ..more });
    }
    Ok(made)
}

/// Subscribes to events, and waits until the broker agrees. `*number` becomes the subscription's number,
/// which its events carry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_subscribe(
    client: *mut ClientHandle,
    options: *const SubscriptionOptions,
    number: *mut u32,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        // SAFETY: unisono.h requires NULL or room for the number.
        let to = unsafe { number.as_mut() }.ok_or_else(|| null("number"))?;
        // SAFETY: unisono.h requires NULL or options with C strings.
        let made = handle.client.subscribe(&unsafe { subscription(options) }?)?;
        *to = handle.number();
        handle.subscriptions.insert(made, *to);
        Ok(())
    })
}

/// Ends a subscription. Events in flight may still arrive, with number 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_unsubscribe(client: *mut ClientHandle, number: u32) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        let known = handle.subscriptions.iter().find(|(_, known)| **known == number);
        let known = known.map(|(subscription, _)| *subscription);
        let known =
            known.ok_or_else(|| argument(format!("{number} is no subscription of this connection")))?;
        handle.subscriptions.remove(&known);
        Ok(handle.client.unsubscribe(known)?)
    })
}

/// Receives the next event or notice; free it with unisono_event_free(). UNISONO_STATUS_TIMED_OUT: nothing
/// arrived within `timeout_ns` nanoseconds, and `*event` is NULL. With 0 the call does not wait; a negative
/// `timeout_ns` sets no limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_receive(
    client: *mut ClientHandle,
    timeout_ns: i64,
    event: *mut *mut EventView,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or room for the event.
        let to = unsafe { handle::emptied(event, "event") }?;
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        let timeout = timeout(timeout_ns);
        let owned = loop {
            match handle.client.receive(timeout)? {
                Some(Reception::Event(event)) => {
                    let number = handle.subscriptions.get(&event.subscription).copied().unwrap_or(0);
                    break OwnedEvent::event(event, number);
                }
                Some(Reception::Notice { subscription, topic, notice }) => {
                    let number = handle.subscriptions.get(&subscription).copied().unwrap_or(0);
                    break OwnedEvent::notice(&notice, topic.as_deref(), number);
                }
                Some(Reception::Rejected { topic, reason }) => {
                    let known = handle.topics.iter().find(|(_, known)| **known == topic);
                    let number = known.map_or(0, |(number, _)| *number);
                    let mut owned = OwnedEvent::new(ReceptionCode::Rejected, number);
                    owned.view.text = owned.text(&reason);
                    break owned;
                }
                Some(Reception::Reconnected { away }) => {
                    let mut owned = OwnedEvent::new(ReceptionCode::Reconnected, 0);
                    owned.view.published_ns =
                        (now() - unisono_events_client::Duration::from(away)).as_nanos();
                    owned.view.text = owned.text(&format!("connected again after {away:.1?}"));
                    break owned;
                }
                Some(_) => {} // a kind of reception that a later version of the engine adds
                None => return Err(EventsError::Nothing(timeout.unwrap_or_default())),
            }
        };
        *to = owned.into_raw_view();
        Ok(())
    })
}

/// Frees a result of unisono_receive() or unisono_ask(), and sets `*event` to NULL. The call is also allowed
/// after the connection was closed, and in another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_event_free(event: *mut *mut EventView) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or the address of a handle, which `into_view` made.
        drop(unsafe { handle::take(event.cast::<*mut OwnedEvent>(), "event") }?);
        Ok(())
    })
}

/// Acknowledges an event, so that it is not delivered again. Does nothing for an event without
/// UNISONO_EVENT_ACKNOWLEDGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_acknowledge(
    client: *mut ClientHandle,
    event: *const EventView,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        // SAFETY: unisono.h requires NULL or an event that was received and not freed.
        Ok(handle.client.acknowledge(unsafe { received(event) }?)?)
    })
}
