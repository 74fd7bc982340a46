//! Events with deadlines: the C form of [`unisono_events_client::Client`], a connection to the broker that
//! `unisono events serve` starts.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the connection, its descriptor, the errors |
//! | `publish.rs` | topics and drafts, publishing, requests and replies |
//! | `loan.rs` | memory for payloads that are written in place |
//! | `receive.rs` | subscriptions, receiving, acknowledging |
//! | `field.rs` | a field of an event in its C form |
//!
//! Topics and subscriptions are numbers that are valid within their connection: an unknown number is an error
//! and not a crash. All times are nanoseconds; points in time are on `CLOCK_MONOTONIC`.

pub mod field;
pub mod loan;
pub mod publish;
pub mod receive;

use crate::error::{CallStatus, failed, ffi_call_or, guarded, null, set_error_text};
use crate::handle;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;
use std::time::Duration;
use unisono_events_client::{
    AddressError, BrokerAddress, ChannelWait, Client, ClientOptions, SubscriptionHandle, TopicHandle,
    interrupt, now,
};

/// A connection to a broker. One thread at a time uses it; other threads open connections of their own.
#[derive(Debug)]
pub struct ClientHandle {
    client: Client,
    /// The last number given to a topic or a subscription.
    numbers: u32,
    topics: BTreeMap<u32, TopicHandle>,
    subscriptions: BTreeMap<SubscriptionHandle, u32>,
    name: CString,
    /// The last result of `unisono_client_statistics`.
    statistics: CString,
}

/// The reason why a call about events failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EventsError {
    #[error(transparent)]
    Broker(#[from] unisono_events_client::Error),
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Wrong arguments, which the rest of this crate reports as errors of the engine (`unisono-rma`).
    #[error(transparent)]
    Argument(#[from] unisono_rma::Error),
    #[error("the options are no JSON that a broker knows: {0}")]
    Options(#[from] serde_json::Error),
    #[error("nothing came within {0:?}")]
    Nothing(Duration),
    /// The time limit passed, and the event or a part of it is still in this process.
    #[error("no room for the event within {0:?}")]
    NoRoom(Duration),
}

impl EventsError {
    fn status(&self) -> CallStatus {
        use unisono_events_client::Error as Broker;
        match self {
            Self::Argument(error) => failed(error),
            Self::Address(_) | Self::Options(_) => CallStatus::Arg,
            Self::Nothing(_) | Self::NoRoom(_) => CallStatus::TimedOut,
            Self::Broker(error) => match error {
                Broker::Nobody { .. }
                | Broker::NobodyThere { .. }
                | Broker::NobodyHere { .. }
                | Broker::NobodyServes { .. }
                | Broker::ForeignService { .. }
                | Broker::NoGreeting { .. }
                | Broker::SilentServer { .. }
                | Broker::SentAway(_)
                | Broker::Forked
                | Broker::Broken(_) => CallStatus::Gone,
                Broker::Refused(_) | Broker::Rejected(_) | Broker::Closed(_) | Broker::RequestFailed(_) => {
                    CallStatus::Refused
                }
                Broker::Unanswered => CallStatus::Unanswered,
                Broker::Interrupted => CallStatus::Interrupted,
                Broker::TooLong { .. } => CallStatus::Size,
                Broker::Options(_) => CallStatus::Arg,
                Broker::NoReply(_) | Broker::NobodyReplies { .. } | Broker::NoRoom => CallStatus::TimedOut,
                _ => CallStatus::Other,
            },
        }
    }
}

/// Runs a call's body, keeps its error's text, and stops panics from unwinding.
fn ffi_events_call(body: impl FnOnce() -> Result<(), EventsError>) -> CallStatus {
    guarded(|| match body() {
        Ok(()) => CallStatus::Ok,
        Err(error) => {
            set_error_text(&error.to_string());
            error.status()
        }
    })
}

/// Returns the connection behind a handle.
///
/// # Safety
/// `client` is null or a live handle that no other thread uses now.
unsafe fn connection<'a>(client: *mut ClientHandle) -> Result<&'a mut ClientHandle, EventsError> {
    // SAFETY: null or a live handle of this thread's; the caller guarantees it.
    let handle = unsafe { client.as_mut() };
    handle.ok_or_else(|| null("client").into())
}

/// Returns a text that the program passed; `what` names it in the error message if it is not UTF-8.
///
/// # Safety
/// `from` is null or a C string.
unsafe fn text<'a>(from: *const c_char, what: &str) -> Result<Option<&'a str>, EventsError> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and a C string; the caller guarantees it.
    let bytes = unsafe { CStr::from_ptr(from) };
    let read =
        bytes.to_str().map_err(|error| crate::error::argument(format!("{what} is not UTF-8: {error}")));
    Ok(Some(read?))
}

/// Converts a time limit from C. `None`: no limit.
fn timeout(timeout_ns: i64) -> Option<Duration> {
    u64::try_from(timeout_ns).ok().map(Duration::from_nanos)
}

impl ClientHandle {
    fn number(&mut self) -> u32 {
        self.numbers += 1; // a program cannot make 2^32 topics and subscriptions
        self.numbers
    }

    fn topic(&self, number: u32) -> Result<TopicHandle, EventsError> {
        let known = self.topics.get(&number).copied();
        known.ok_or_else(|| crate::error::argument(format!("{number} is no topic of this connection")).into())
    }
}

/// Returns the version of this library, such as "0.2.0"; never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_version() -> *const c_char {
    // the macro makes the C string from the manifest's version
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the current time of CLOCK_MONOTONIC in nanoseconds. Deadlines are on this clock.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_now() -> u64 {
    now().as_nanos()
}

/// Returns the time `length_ns` from now, for the deadline of an event: unisono_due_in(5 * 1000 * 1000) is in
/// 5 ms. A time beyond the end of the clock becomes that end.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_due_in(length_ns: u64) -> u64 {
    unisono_now().saturating_add(length_ns)
}

static ENDS_WAIT: OnceLock<extern "C" fn() -> c_int> = OnceLock::new();

/// Sets a function for this process that each thread calls ten times a second while it waits in a function of
/// this library. If it returns a value other than 0, it ends the wait with UNISONO_STATUS_INTERRUPTED. This
/// is for languages that handle signals between two calls, such as Python. Only the first function is kept.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_end_waits_by(ends: Option<extern "C" fn() -> c_int>) {
    if let Some(ends) = ends {
        let _ = ENDS_WAIT.set(ends); // a later function is ignored
        interrupt::set_check(|| ENDS_WAIT.get().is_some_and(|ends| ends() != 0));
    }
}

/// How a program waits in unisono_receive() and other calls.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCode {
    /// It sleeps until an event arrives.
    Sleep = 0,
    /// It polls, and needs a processor to itself.
    Spin = 1,
    /// It polls as long as that is cheaper than sleeping, and then sleeps.
    Adaptive = 2,
}

/// Options of a connection. A zero or NULL field selects the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// An address as in unisono_client_connect().
    pub address: *const c_char,
    /// The program's name in tables, metrics and errors: at most 64 characters. NULL: the command name that
    /// ps shows, with the process number, such as "camera[4711]".
    pub name: *const c_char,
    /// The secret that authenticates the program over TCP; it replaces the token file in the address.
    pub token: *const c_char,
    /// The longest time between two calls of the program, in nanoseconds; at least 300,000,000. 0: no limit.
    /// After a longer time the broker considers the program dead, and the program's next call returns
    /// UNISONO_STATUS_GONE with a text that says so. Time that the program spends waiting inside a call does
    /// not count.
    pub lease_ns: u64,
    /// A value of unisono_wait.
    pub wait: c_int,
    /// The time that the library tries to reconnect after the connection breaks; 0: it does not try. After a
    /// reconnect the topics and subscriptions are restored with their numbers, and unisono_receive() returns
    /// UNISONO_RECEPTION_RECONNECTED. Calls wait in the meantime. After the time has passed, they return
    /// UNISONO_STATUS_GONE.
    pub reconnect_ns: u64,
}

impl ConnectOptions {
    /// Returns the options of a connection to the broker at an address, with the defaults.
    const fn at(address: *const c_char) -> Self {
        let (name, token) = (std::ptr::null(), std::ptr::null());
        Self { address, name, token, lease_ns: 0, wait: 0, reconnect_ns: 0 }
    }
}

/// # Safety
/// The texts in `given` are null or C strings.
unsafe fn open(given: &ConnectOptions) -> Result<ClientHandle, EventsError> {
    let mut options = ClientOptions::new();
    // SAFETY: null or a C string; the caller guarantees it.
    if let Some(name) = unsafe { text(given.name, "the name") }? {
        options = options.named(name);
    }
    // SAFETY: null or a C string; the caller guarantees it.
    if let Some(token) = unsafe { text(given.token, "the token") }? {
        options = options.with_token(token);
    }
    if given.lease_ns > 0 {
        options = options.leased(Duration::from_nanos(given.lease_ns));
    }
    if given.reconnect_ns > 0 {
        options = options.reconnecting(Duration::from_nanos(given.reconnect_ns));
    }
    options = options.waiting(match given.wait {
        0 => ChannelWait::Sleep,
        1 => ChannelWait::Spin,
        2 => ChannelWait::Adaptive,
        other => return Err(crate::error::argument(format!("{other} is no unisono_wait")).into()),
    });
    // SAFETY: null or a C string; the caller guarantees it.
    let client = match unsafe { text(given.address, "the address") }? {
        Some(address) => options.connect(&address.parse::<BrokerAddress>()?)?,
        None => options.connect_default()?,
    };
    let name = CString::new(client.name()).unwrap_or_default();
    let (topics, subscriptions) = (BTreeMap::new(), BTreeMap::new());
    Ok(ClientHandle { client, numbers: 0, topics, subscriptions, name, statistics: CString::default() })
}

/// Connects to the broker at `address`. The path of the broker's socket selects shared memory; "unix:PATH"
/// sends all data through that socket; "tcp:HOST:PORT" uses TCP, "tls:HOST:PORT?authority=FILE" TLS, and
/// "udp:HOST:PORT?authority=FILE" QUIC. Append "&certificate=FILE&key=FILE" to a tls: or udp: address if the
/// broker requires certificates, and "&token-file=FILE" if it requires tokens. NULL selects this user's
/// broker, at the default socket of `unisono events serve`, or else the host's broker at /run/unisono/events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_connect(
    address: *const c_char,
    client: *mut *mut ClientHandle,
) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a C string for `address`, and NULL or room for the handle for
    // `client`.
    unsafe { unisono_client_open(&ConnectOptions::at(address), client) }
}

/// Connects with options; `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_open(
    options: *const ConnectOptions,
    client: *mut *mut ClientHandle,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or room for the handle.
        let to = unsafe { handle::emptied(client, "client") }?;
        let defaults = ConnectOptions::at(std::ptr::null());
        // SAFETY: unisono.h requires NULL or options with C strings.
        let given = unsafe { options.as_ref() }.unwrap_or(&defaults);
        // SAFETY: unisono.h requires NULL or options with C strings.
        *to = Box::into_raw(Box::new(unsafe { open(given) }?));
        Ok(())
    })
}

/// Returns the name by which the broker knows this program, valid until the connection is closed; NULL if
/// `client` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_name(client: *const ClientHandle) -> *const c_char {
    // SAFETY: unisono.h requires NULL or a live handle.
    let handle = unsafe { client.as_ref() };
    ffi_call_or(std::ptr::null(), || Ok(handle.map_or(std::ptr::null(), |handle| handle.name.as_ptr())))
}

/// Renews the lease of a program that makes no other call in time. A program without a lease need not call
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_alive(client: *mut ClientHandle) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    ffi_events_call(|| Ok(unsafe { connection(client) }?.client.alive()?))
}

/// Gets the broker's statistics for all programs, as a JSON object with the keys of `unisono events top
/// --json`, without rates. "consumers" has a row for each consumer with the "name" of its program. `*json`
/// belongs to the library and is valid until the next call of this function or until the connection is
/// closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_statistics(
    client: *mut ClientHandle,
    json: *mut *const c_char,
) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or room for the text.
        let to = unsafe { json.as_mut() }.ok_or_else(|| null("json"))?;
        *to = std::ptr::null();
        // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
        let handle = unsafe { connection(client) }?;
        // the text contains no zero byte, because JSON escapes that character
        let text = serde_json::to_string(&handle.client.statistics()?)?;
        handle.statistics = CString::new(text).unwrap_or_default();
        *to = handle.statistics.as_ptr();
        Ok(())
    })
}

/// Closes the connection and sets `*client` to NULL. Its topics and subscriptions end; received events stay
/// valid until they are freed. Events that unisono_publish_later() holds back may be lost: call
/// unisono_flush() first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_close(client: *mut *mut ClientHandle) -> CallStatus {
    ffi_events_call(|| {
        // SAFETY: unisono.h requires NULL or the address of a handle, which `unisono_client_open` made.
        drop(unsafe { handle::take(client, "client") }?);
        Ok(())
    })
}

/// Returns the descriptor to poll for reading. It belongs to the library: never read, write or close it. Poll
/// only after unisono_receive() with a time limit of 0 has returned UNISONO_STATUS_TIMED_OUT, because earlier
/// events may already be waiting in this process. The descriptor changes if the library reconnects, so get it
/// again before each poll. -1 if `client` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_descriptor(client: *const ClientHandle) -> c_int {
    // SAFETY: unisono.h requires NULL or a live handle.
    let handle = unsafe { client.as_ref() };
    ffi_call_or(-1, || Ok(handle.map_or(-1, |handle| handle.client.as_fd().as_raw_fd())))
}

/// Returns the size in bytes of the largest payload that the broker accepts; 0 if `client` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_largest(client: *const ClientHandle) -> usize {
    // SAFETY: unisono.h requires NULL or a live handle.
    let handle = unsafe { client.as_ref() };
    ffi_call_or(0, || Ok(handle.map_or(0, |handle| handle.client.largest())))
}
