//! Events with deadlines: a connection to the broker that `unisono events serve` starts, as
//! [`unisono_broker::Client`] has it.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the connection, its descriptor, the errors |
//! | `publish.rs` | topics and drafts, publishing, requests and replies |
//! | `receive.rs` | subscriptions, what has come, acknowledging |
//!
//! Topics and subscriptions are numbers of their connection: a number that means nothing is an error and not
//! a crash. All times are nanoseconds; points in time are of `CLOCK_MONOTONIC`.

pub mod field;
pub mod publish;
pub mod receive;

use crate::error::{CallStatus, answer_or, failed, guarded, keep, null};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;
use unisono_broker::{
    AddressError, BrokerAddress, ChannelWait, Client, ClientOptions, SubscriptionHandle, TopicHandle, now,
};

/// A connection to a broker. One thread at a time uses it; other threads open their own.
#[derive(Debug)]
pub struct ClientHandle {
    client: Client,
    /// The last number given to a topic or a subscription.
    numbers: u32,
    topics: BTreeMap<u32, TopicHandle>,
    subscriptions: BTreeMap<SubscriptionHandle, u32>,
    name: CString,
    /// What `unisono_client_statistics` answered last.
    statistics: CString,
}

/// Why a call about events failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EventsError {
    #[error(transparent)]
    Broker(#[from] unisono_broker::Error),
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The rest of this crate has its errors of arguments from the engine.
    #[error(transparent)]
    Argument(#[from] unisono_rma::Error),
    #[error("the options are no JSON that a broker knows: {0}")]
    Options(#[from] serde_json::Error),
    #[error("nothing came within {0:?}")]
    Nothing(Duration),
}

impl EventsError {
    fn status(&self) -> CallStatus {
        use unisono_broker::Error as Broker;
        match self {
            Self::Argument(error) => failed(error),
            Self::Address(_) | Self::Options(_) => CallStatus::Arg,
            Self::Nothing(_) => CallStatus::TimedOut,
            Self::Broker(error) => match error {
                Broker::Nobody { .. }
                | Broker::NobodyThere { .. }
                | Broker::NobodyHere { .. }
                | Broker::NobodyServes { .. }
                | Broker::SentAway(_)
                | Broker::Broken(_) => CallStatus::Gone,
                Broker::Refused(_) | Broker::Rejected(_) | Broker::Closed(_) | Broker::RequestFailed(_) => {
                    CallStatus::Refused
                }
                Broker::Unanswered => CallStatus::Unanswered,
                Broker::TooLong { .. } => CallStatus::Size,
                Broker::Options(_) => CallStatus::Arg,
                Broker::NoReply(_) | Broker::NobodyReplies { .. } => CallStatus::TimedOut,
                _ => CallStatus::Other,
            },
        }
    }
}

/// Runs a call's body, keeps its error's text, and lets nothing unwind.
fn told(body: impl FnOnce() -> Result<(), EventsError>) -> CallStatus {
    guarded(|| match body() {
        Ok(()) => CallStatus::Ok,
        Err(error) => {
            keep(&error.to_string());
            error.status()
        }
    })
}

/// The connection behind a handle.
///
/// # Safety
/// `client` is null or a live handle that no other thread uses now.
unsafe fn connection<'a>(client: *mut ClientHandle) -> Result<&'a mut ClientHandle, EventsError> {
    // SAFETY: null or a live handle of this thread's, which the caller of this function says.
    let handle = unsafe { client.as_mut() };
    handle.ok_or_else(|| null("client").into())
}

/// A text that the program passed; `what` names it in the error for one that is not UTF-8.
///
/// # Safety
/// `from` is null or a C string.
unsafe fn text<'a>(from: *const c_char, what: &str) -> Result<Option<&'a str>, EventsError> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and a C string, which the caller of this function says.
    let bytes = unsafe { CStr::from_ptr(from) };
    let read =
        bytes.to_str().map_err(|error| crate::error::argument(format!("{what} is not UTF-8: {error}")));
    Ok(Some(read?))
}

/// A time limit as C passes it. None: for ever.
fn limit(timeout_ns: i64) -> Option<Duration> {
    u64::try_from(timeout_ns).ok().map(Duration::from_nanos)
}

impl ClientHandle {
    fn number(&mut self) -> u32 {
        self.numbers += 1; // 2^32 topics and subscriptions of one program are out of reach
        self.numbers
    }

    fn topic(&self, number: u32) -> Result<TopicHandle, EventsError> {
        let known = self.topics.get(&number).copied();
        known.ok_or_else(|| crate::error::argument(format!("{number} is no topic of this connection")).into())
    }
}

/// The version of this library, such as "0.1.0"; never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_version() -> *const c_char {
    // the compiler makes the C string from the manifest
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The time of the clock that deadlines are of (CLOCK_MONOTONIC), in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_now() -> u64 {
    now().0
}

/// How a program waits in unisono_receive and other calls.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCode {
    /// It sleeps until something comes.
    Sleep = 0,
    /// It looks again and again, and needs a processor of its own.
    Spin = 1,
    /// It spins while that is better, and sleeps otherwise.
    Adaptive = 2,
}

/// How to connect. What is zero or NULL is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// As unisono_client_connect takes it.
    pub address: *const c_char,
    /// The program's name in tables, metrics and errors: at most 64 characters. NULL: what ps shows, and the
    /// number of the process, such as "camera[4711]".
    pub name: *const c_char,
    /// The secret that says who the program is, over TCP; instead of the one in the address's file.
    pub token: *const c_char,
    /// The longest time between two calls of the program, in nanoseconds; at least 300,000,000. 0: no limit.
    /// After a longer time the broker takes the program for dead, and its next call is UNISONO_STATUS_GONE
    /// with a text that says so. The time that the program waits in a call does not count.
    pub lease_ns: u64,
    /// One of unisono_wait.
    pub wait: c_int,
    /// How long the library tries to connect again when the connection breaks; 0: it does not try. Its topics
    /// and subscriptions are there again then, with their numbers, and UNISONO_RECEPTION_RECONNECTED comes.
    /// Calls wait meanwhile. When the time is over, they return UNISONO_STATUS_GONE.
    pub reconnect_ns: u64,
}

impl ConnectOptions {
    /// To the broker at an address, without any options.
    const fn at(address: *const c_char) -> Self {
        let (name, token) = (std::ptr::null(), std::ptr::null());
        Self { address, name, token, lease_ns: 0, wait: 0, reconnect_ns: 0 }
    }
}

/// # Safety
/// The texts in `given` are null or C strings.
unsafe fn open(given: &ConnectOptions) -> Result<ClientHandle, EventsError> {
    let mut options = ClientOptions::new();
    // SAFETY: null or a C string, which the caller of this function says.
    if let Some(name) = unsafe { text(given.name, "the name") }? {
        options = options.named(name);
    }
    // SAFETY: null or a C string, which the caller of this function says.
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
    // SAFETY: null or a C string, which the caller of this function says.
    let client = match unsafe { text(given.address, "the address") }? {
        Some(address) => options.connect(&address.parse::<BrokerAddress>()?)?,
        None => options.connect_default()?,
    };
    let name = CString::new(client.name()).unwrap_or_default();
    let (topics, subscriptions) = (BTreeMap::new(), BTreeMap::new());
    Ok(ClientHandle { client, numbers: 0, topics, subscriptions, name, statistics: CString::default() })
}

/// Connects to the broker at `address`: the path of its socket, to share memory with it; "unix:PATH", to send
/// everything through the socket; "tcp:HOST:PORT"; "tls:HOST:PORT?authority=FILE";
/// "udp:HOST:PORT?authority=FILE", for QUIC. Behind a tls: or udp: address stands
/// "&certificate=FILE&key=FILE" if the broker asks for certificates, and "&token-file=FILE" if it asks for
/// tokens. NULL: this user's broker, at the socket where `unisono events serve` listens unless it is told
/// otherwise, or else the host's at /run/unisono/events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_connect(
    address: *const c_char,
    client: *mut *mut ClientHandle,
) -> CallStatus {
    // SAFETY: unisono.h asks for NULL or a C string, and for NULL or a place for the handle.
    unsafe { unisono_client_open(&ConnectOptions::at(address), client) }
}

/// Connects as the options say; `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_open(
    options: *const ConnectOptions,
    client: *mut *mut ClientHandle,
) -> CallStatus {
    told(|| {
        // SAFETY: unisono.h asks for NULL or a place for the handle.
        let to = unsafe { client.as_mut() }.ok_or_else(|| null("client"))?;
        *to = std::ptr::null_mut();
        let defaults = ConnectOptions::at(std::ptr::null());
        // SAFETY: unisono.h asks for NULL or options with C strings.
        let given = unsafe { options.as_ref() }.unwrap_or(&defaults);
        // SAFETY: unisono.h asks for NULL or options with C strings.
        *to = Box::into_raw(Box::new(unsafe { open(given) }?));
        Ok(())
    })
}

/// The name by which the broker knows this program, until the connection is closed; NULL if `client` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_name(client: *const ClientHandle) -> *const c_char {
    // SAFETY: unisono.h asks for NULL or a live handle.
    let handle = unsafe { client.as_ref() };
    answer_or(std::ptr::null(), || Ok(handle.map_or(std::ptr::null(), |handle| handle.name.as_ptr())))
}

/// Says that this program lives, if it has a lease and makes no other call in time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_alive(client: *mut ClientHandle) -> CallStatus {
    // SAFETY: unisono.h asks for a handle that is null or live, and that one thread uses.
    told(|| Ok(unsafe { connection(client) }?.client.alive()?))
}

/// What the broker has done for all programs, as a JSON object with the keys of `unisono events top --json`,
/// without rates: "consumers" has a row for each consumer with the "name" of its program. `*json` is the
/// library's, and valid until the next call of this function or the end of the connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_statistics(
    client: *mut ClientHandle,
    json: *mut *const c_char,
) -> CallStatus {
    told(|| {
        // SAFETY: unisono.h asks for NULL or a place for the text.
        let to = unsafe { json.as_mut() }.ok_or_else(|| null("json"))?;
        *to = std::ptr::null();
        // SAFETY: unisono.h asks for a handle that is null or live, and that one thread uses.
        let handle = unsafe { connection(client) }?;
        // JSON has no zero in it: it is written as an escape
        let text = serde_json::to_string(&handle.client.statistics()?)?;
        handle.statistics = CString::new(text).unwrap_or_default();
        *to = handle.statistics.as_ptr();
        Ok(())
    })
}

/// Ends the connection and sets `*client` to NULL. Its topics and subscriptions end; events that it has
/// received stay valid until they are freed. What unisono_publish_later holds back may be lost: flush first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_close(client: *mut *mut ClientHandle) -> CallStatus {
    told(|| {
        // SAFETY: unisono.h asks for NULL or the address of a handle.
        let from = unsafe { client.as_mut() }.ok_or_else(|| null("client"))?;
        if from.is_null() {
            return Err(null("*client").into());
        }
        // SAFETY: `unisono_client_connect` made it, and the program's pointer forgets it here.
        drop(unsafe { Box::from_raw(std::mem::replace(from, std::ptr::null_mut())) });
        Ok(())
    })
}

/// The descriptor to poll for reading, which stays the library's: never read, write or close it. Poll only
/// after unisono_receive with a time limit of 0 has returned UNISONO_STATUS_TIMED_OUT: what has come before
/// may already wait in this process. If the library connects again, the descriptor is another one: ask before
/// each wait. -1 if `client` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_descriptor(client: *const ClientHandle) -> c_int {
    // SAFETY: unisono.h asks for NULL or a live handle.
    let handle = unsafe { client.as_ref() };
    answer_or(-1, || Ok(handle.map_or(-1, |handle| handle.client.as_fd().as_raw_fd())))
}

/// Bytes of the largest payload that the broker takes; 0 if `client` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_client_largest(client: *const ClientHandle) -> usize {
    // SAFETY: unisono.h asks for NULL or a live handle.
    let handle = unsafe { client.as_ref() };
    answer_or(0, || Ok(handle.map_or(0, |handle| handle.client.largest())))
}
