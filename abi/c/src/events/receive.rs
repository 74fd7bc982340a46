//! Subscriptions, and what has come.

use super::field::{EventField, FieldKind};
use super::{ClientHandle, EventsError, connection, limit, text, told};
use crate::error::{CallStatus, argument, null};
use std::borrow::Cow;
use std::ffi::{CString, c_char, c_int, c_void};
use unisono_broker::{
    AgainSpec, FieldValue, InterestSpec, KeptHistory, NoticeText, ReceivedEvent, Reception, SubscriptionSpec,
    WhenFull, WhenLate, now,
};

/// What happens to events while the queue of a subscription is full.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullCode {
    /// The oldest goes.
    DropOldest = 0,
    /// What is late goes, or else what is due last.
    DropByDeadline = 1,
    /// The supplier waits.
    BlockSupplier = 2,
}

/// What happens to events whose deadline has passed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateCode {
    /// They come all the same, with UNISONO_EVENT_LATE.
    Deliver = 0,
    /// They are dropped without notice.
    Drop = 1,
    /// They are dropped, and a GAP is told.
    Report = 2,
}

/// What to receive, and on which terms. What is zero or NULL is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionOptions {
    /// A pattern: + stands for one level, # for all further ones. NULL: `more` has the interests.
    pub topics: *const c_char,
    /// A condition on fields, such as "celsius > 80". NULL: all events.
    pub filter: *const c_char,
    /// Only topics of this type.
    pub event_type: *const c_char,
    /// A class of the broker's policy.
    pub class_name: *const c_char,
    /// Consumers of one group share the events: each goes to one of them.
    pub group: *const c_char,
    /// Events that may wait; 0: 1,024.
    pub queue: usize,
    /// One of unisono_full.
    pub full: c_int,
    /// One of unisono_late.
    pub late: c_int,
    /// Events published before that are wanted as well; the topic has to keep as many.
    pub last: usize,
    /// An event that is not acknowledged in this time comes again, 16 times at most; 0: nothing is to be
    /// acknowledged.
    pub acknowledge_ns: u64,
    /// Further options in JSON, such as "{\"silence_ns\": 1000000000}": the keys of a SUBSCRIBE frame
    /// (crates/broker/PROTOCOL.md). "{\"direct\": false}" refuses events that come straight from suppliers,
    /// through shared memory and without the broker. "{\"between\": \"shares\"}" gives suppliers the queue by
    /// their shares. Over UDP with "{\"best_effort\": true}" no event waits for one that the network lost.
    pub more: *const c_char,
}

/// What has come.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceptionCode {
    Event = 1,
    /// `lost` events of a supplier are missing, from `sequence` to `last`.
    Gap = 2,
    /// A supplier will publish no more.
    Gone = 3,
    /// Another supplier of an exclusive topic is heard now.
    Owner = 4,
    /// What was asked for is no longer offered.
    Mismatch = 5,
    /// A period is over.
    Tick = 6,
    /// Nothing has come for the time that the subscription named.
    Silence = 7,
    /// A correlation began and was not completed in time.
    Incomplete = 8,
    /// An event that unisono_publish published was refused: `number` is its topic.
    Rejected = 9,
    /// The broker's log no longer has the events at positions `sequence` to `last`.
    Lost = 10,
    /// The connection broke, and is there again: the program was away since `published_ns`. A subscription
    /// that resumes misses nothing; others missed what was published meanwhile.
    Reconnected = 11,
}

/// The deadline had passed when it was delivered.
pub const UNISONO_EVENT_LATE: u32 = 1;
/// It was published before the subscription.
pub const UNISONO_EVENT_RETAINED: u32 = 2;
/// It comes again unless it is acknowledged.
pub const UNISONO_EVENT_ACKNOWLEDGE: u32 = 4;

/// An event or a notice that has come. All of it is valid until unisono_event_free, and the library does not
/// change it. Through shared memory a payload of 16 KiB or more is not copied: it stays in memory that the
/// broker, or its supplier, can write, of which at most four payloads are held at a time; further ones are
/// copied. A supplier that is broken or hostile can change such a payload at any time, also after it was
/// checked. Where the supplier is not trusted, copy the payload first, and check and use the copy. All else
/// in the structure is a copy.
#[repr(C)]
#[derive(Debug)]
pub struct EventView {
    /// One of unisono_reception.
    pub kind: c_int,
    /// The subscription (REJECTED: the topic) that it is for; 0 for the reply to a request, and for
    /// RECONNECTED.
    pub number: u32,
    /// NULL if it is about no topic.
    pub topic: *const c_char,
    /// NULL if it has no key.
    pub key: *const c_char,
    /// What a notice says, in words; NULL for an event.
    pub text: *const c_char,
    pub payload: *const c_void,
    /// Bytes of the payload.
    pub bytes: usize,
    /// Ascending by name.
    pub fields: *const EventField,
    pub field_count: usize,
    /// The other events of a correlation, in the order in which they came.
    pub with: *const *const EventView,
    pub with_count: usize,
    /// When it was published, on the clock of unisono_now(). TICK: when the period ended. SILENCE: when the
    /// last event came. RECONNECTED: when the library noticed that the connection had broken.
    pub published_ns: u64,
    /// When it is due; 0: never.
    pub deadline_ns: u64,
    /// The supplier's count of its events. GAP: the first that is missing.
    pub sequence: u64,
    /// GAP: the last that is missing. EVENT that is to be acknowledged: the number of the delivery, which is
    /// the event's position in the log if the subscription resumes. EVENT otherwise: 0.
    pub last: u64,
    /// GAP: how many are missing; 0: nobody knows yet.
    pub lost: u64,
    /// The broker's number of the supplier.
    pub supplier: u32,
    /// A sum of UNISONO_EVENT_LATE, UNISONO_EVENT_RETAINED and UNISONO_EVENT_ACKNOWLEDGE.
    pub flags: u32,
    pub criticality: u8,
    /// Earlier deliveries of it that were not acknowledged; 255: or more.
    pub repeated: u8,
    /// GONE: 1 if the supplier died, 0 if it left.
    pub died: u8,
}

/// What an [`EventView`] points into; the view comes first, so that a pointer to it is one to this.
#[repr(C)]
struct OwnedReception {
    view: EventView,
    event: Option<ReceivedEvent>,
    /// A payload that could not stay where it was.
    copy: Vec<u8>,
    texts: Vec<CString>,
    fields: Vec<EventField>,
    with: Vec<OwnedReception>,
    with_views: Vec<*const EventView>,
}

impl OwnedReception {
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

    /// A C string of this text that lives as long as the reception. C has no text with a zero in it.
    fn text(&mut self, text: &str) -> *const c_char {
        let made = CString::new(text).or_else(|_| CString::new(text.replace('\0', " "))).unwrap_or_default();
        let at = made.as_ptr(); // into the heap: it stays while the string moves
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
        owned.view.published_ns = event.published.0;
        owned.view.deadline_ns = event.deadline.unwrap_or_default().0;
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
        self.event = Some(event); // in whose memory the payload lies
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
            NoticeText::Gap { .. } => ReceptionCode::Gap,
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

    fn hand_over(self: Box<Self>) -> *mut EventView {
        Box::into_raw(self).cast()
    }
}

/// An event for the program to free.
pub(super) fn give(event: ReceivedEvent, number: u32) -> *mut EventView {
    OwnedReception::event(event, number).hand_over()
}

/// The event behind a view.
///
/// # Safety
/// `view` is null or was received and not freed.
pub(super) unsafe fn received<'a>(view: *const EventView) -> Result<&'a ReceivedEvent, EventsError> {
    // SAFETY: null, or the first part of a reception, which the caller of this function says.
    let owned = unsafe { view.cast::<OwnedReception>().as_ref() }.ok_or_else(|| null("event"))?;
    owned.event.as_ref().ok_or_else(|| argument("a notice is no event").into())
}

/// # Safety
/// `options` is null or readable, and the texts in it are null or C strings.
unsafe fn subscription(options: *const SubscriptionOptions) -> Result<SubscriptionSpec, EventsError> {
    // SAFETY: null or readable, which the caller of this function says.
    let given = unsafe { options.as_ref() }.ok_or_else(|| null("options"))?;
    // SAFETY: null or C strings, which the caller of this function says.
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
        made.again = Some(AgainSpec { after_ns: given.acknowledge_ns, attempts: 16, window: 64 });
    }
    Ok(made)
}

/// Asks for events, and waits until the broker agrees. `*number` becomes the number that events of this
/// subscription bear.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_subscribe(
    client: *mut ClientHandle,
    options: *const SubscriptionOptions,
    number: *mut u32,
) -> CallStatus {
    told(|| {
        // SAFETY: unisono.h asks for a handle that is null or live, and that one thread uses.
        let handle = unsafe { connection(client) }?;
        // SAFETY: unisono.h asks for NULL or a place for the number.
        let to = unsafe { number.as_mut() }.ok_or_else(|| null("number"))?;
        // SAFETY: unisono.h asks for NULL or options with C strings.
        let made = handle.client.subscribe(&unsafe { subscription(options) }?)?;
        *to = handle.number();
        handle.subscriptions.insert(made, *to);
        Ok(())
    })
}

/// Ends a subscription. What was on its way may still come, with number 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_unsubscribe(client: *mut ClientHandle, number: u32) -> CallStatus {
    told(|| {
        // SAFETY: unisono.h asks for a handle that is null or live, and that one thread uses.
        let handle = unsafe { connection(client) }?;
        let known = handle.subscriptions.iter().find(|(_, known)| **known == number);
        let known = known.map(|(subscription, _)| *subscription);
        let known =
            known.ok_or_else(|| argument(format!("{number} is no subscription of this connection")))?;
        handle.subscriptions.remove(&known);
        Ok(handle.client.unsubscribe(known)?)
    })
}

/// The next event or notice, which the program frees with unisono_event_free. UNISONO_STATUS_TIMED_OUT: none
/// came within `timeout_ns` nanoseconds, and `*event` is NULL; 0 does not wait, below 0 waits for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_receive(
    client: *mut ClientHandle,
    timeout_ns: i64,
    event: *mut *mut EventView,
) -> CallStatus {
    told(|| {
        // SAFETY: unisono.h asks for NULL or a place for the event.
        let to = unsafe { event.as_mut() }.ok_or_else(|| null("event"))?;
        *to = std::ptr::null_mut();
        // SAFETY: unisono.h asks for a handle that is null or live, and that one thread uses.
        let handle = unsafe { connection(client) }?;
        let patience = limit(timeout_ns);
        let owned = loop {
            match handle.client.receive(patience)? {
                Some(Reception::Event(event)) => {
                    let number = handle.subscriptions.get(&event.subscription).copied().unwrap_or(0);
                    break OwnedReception::event(event, number);
                }
                Some(Reception::Notice { subscription, topic, notice }) => {
                    let number = handle.subscriptions.get(&subscription).copied().unwrap_or(0);
                    break OwnedReception::notice(&notice, topic.as_deref(), number);
                }
                Some(Reception::Rejected { topic, reason }) => {
                    let known = handle.topics.iter().find(|(_, known)| **known == topic);
                    let number = known.map_or(0, |(number, _)| *number);
                    let mut owned = OwnedReception::new(ReceptionCode::Rejected, number);
                    owned.view.text = owned.text(&reason);
                    break owned;
                }
                Some(Reception::Reconnected { away }) => {
                    let mut owned = OwnedReception::new(ReceptionCode::Reconnected, 0);
                    owned.view.published_ns = now().since(away.into()).0;
                    owned.view.text = owned.text(&format!("connected again after {away:.1?}"));
                    break owned;
                }
                Some(_) => {} // of a later version of the engine
                None => return Err(EventsError::Nothing(patience.unwrap_or_default())),
            }
        };
        *to = owned.hand_over();
        Ok(())
    })
}

/// Frees what unisono_receive or unisono_ask gave, and sets `*event` to NULL. Also after the connection
/// was closed, and in another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_event_free(event: *mut *mut EventView) -> CallStatus {
    told(|| {
        // SAFETY: unisono.h asks for NULL or the address of a handle.
        let from = unsafe { event.as_mut() }.ok_or_else(|| null("event"))?;
        if from.is_null() {
            return Err(null("*event").into());
        }
        let owned = std::mem::replace(from, std::ptr::null_mut()).cast::<OwnedReception>();
        // SAFETY: `hand_over` made it, and the program's pointer forgets it here.
        drop(unsafe { Box::from_raw(owned) });
        Ok(())
    })
}

/// Says that an event is done with, so that it does not come again. Does nothing for an event without
/// UNISONO_EVENT_ACKNOWLEDGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_acknowledge(
    client: *mut ClientHandle,
    event: *const EventView,
) -> CallStatus {
    told(|| {
        // SAFETY: unisono.h asks for a handle that is null or live, and that one thread uses.
        let handle = unsafe { connection(client) }?;
        // SAFETY: unisono.h asks for NULL or an event that was received and not freed.
        Ok(handle.client.acknowledge(unsafe { received(event) }?)?)
    })
}
