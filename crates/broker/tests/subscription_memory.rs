//! The memory that an idle subscription takes in the broker, by the allocations of a broker without sockets.
//!
//! Each allocation counts as a block of glibc's allocator: 8 more bytes, rounded up to 16, and 32 at least.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use unisono_broker::{Broker, ClientId, Limits, Next, Task};
use unisono_events_client::{Advertisement, Greeting, Instant, SubscriptionSpec};
use unisono_events_wire::Frame;
use unisono_events_wire::frame::PublishHead;
use unisono_events_wire::transport::TransportPeer;
use unisono_fairqueue::{ClassSpec, Hierarchy};

struct Counting;

thread_local! {
    /// The bytes of this thread's blocks in use.
    static IN_USE: Cell<i64> = const { Cell::new(0) };
}

fn count(layout: Layout, sign: i64) {
    let block = (layout.size() + 8).next_multiple_of(16).max(32);
    IN_USE.set(IN_USE.get() + sign * i64::try_from(block).expect("a block fits in memory"));
}

// SAFETY: passes every call on to the system's allocator, unchanged
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout, 1);
        // SAFETY: the caller keeps the contract of the same method
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(layout, -1);
        // SAFETY: the caller keeps the contract of the same method
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Hash tables have just grown, and are hardly more than half full: the most memory for each subscription.
const MANY: u32 = 1800;

struct Bench {
    broker: Broker,
    clients: u32,
}

impl Bench {
    fn new() -> Self {
        let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
        let limits = Limits {
            consumers: MANY as usize,
            memory: 1 << 40,
            memory_of_user: 1 << 40,
            ..Limits::default()
        };
        Self { broker: Broker::new(tree.expect("it is sound"), limits), clients: 0 }
    }

    fn say(&mut self, client: ClientId, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        let _ = self.broker.received(Instant::from_secs(1), client, &bytes, None);
        self.take_answers();
    }

    /// Delivers all waiting events.
    fn take_all(&mut self) {
        while matches!(self.broker.next(Instant::from_secs(1)), Next::Delivered) {
            self.take_answers();
        }
    }

    fn take_answers(&mut self) {
        while let Some(task) = self.broker.task() {
            let Task::Answer { head, .. } = task else { continue };
            let answer = Frame::read(&head).expect("a broker writes frames");
            assert!(!matches!(answer, Frame::Refused { .. } | Frame::Bye { .. }), "{answer:?}");
        }
    }

    fn client(&mut self) -> ClientId {
        self.clients += 1;
        let client = ClientId(self.clients);
        assert!(self.broker.connected(Instant::from_secs(1), client, TransportPeer::User(0)));
        let name = "reader[1234567]".to_owned();
        self.say(client, &Frame::Hello(Greeting { name, ..Greeting::default() }));
        client
    }

    /// Makes many subscriptions, calls `use_them`, and ends them. Returns the bytes of each before and after
    /// that call, and when all have ended.
    fn bytes_of(
        &mut self,
        client: ClientId,
        topic: impl Fn(u32) -> String,
        use_them: impl FnOnce(&mut Self),
    ) -> [f64; 3] {
        let before = IN_USE.get();
        let each = || (IN_USE.get() - before) as f64 / f64::from(MANY);
        for number in 1..=MANY {
            let spec = Box::new(SubscriptionSpec::new(&topic(number)));
            self.say(client, &Frame::Subscribe { number, spec });
        }
        let idle = each();
        use_them(self);
        let used = each();
        for number in 1..=MANY {
            self.say(client, &Frame::Unsubscribe { number });
        }
        [idle, used, each()]
    }
}

#[test]
fn an_idle_subscription_takes_half_a_kibibyte_and_gives_its_memory_back() {
    let mut bench = Bench::new();
    let client = bench.client();
    let [idle, .., ended] = bench.bytes_of(client, |_| "plant/line/heat".to_owned(), |_| {});
    assert!(idle <= 512.0, "{idle:.0} bytes of a subscription");
    assert!(ended <= 16.0, "{ended:.0} bytes are left of a subscription");
    let [own, .., ended] = bench.bytes_of(client, |number| format!("plant/{number}/heat"), |_| {});
    assert!(own <= 1536.0, "{own:.0} bytes of a subscription to a topic of its own");
    assert!(ended <= 16.0, "{ended:.0} bytes are left of a subscription to a topic of its own");
}

#[test]
fn a_subscription_whose_events_were_taken_gives_their_memory_back() {
    let mut bench = Bench::new();
    let (supplier, client) = (bench.client(), bench.client());
    bench.say(supplier, &Frame::Advertise { number: 1, spec: Advertisement::new("t") });
    let [idle, used, _] = bench.bytes_of(
        client,
        |_| "t".to_owned(),
        |bench| {
            for _ in 0..10 {
                let head = PublishHead { topic: 1, ..PublishHead::default() };
                bench.say(supplier, &Frame::Publish { head, payload: &[7; 1000] });
                bench.take_all();
            }
        },
    );
    // its counters stay
    assert!(used <= idle + 192.0, "{idle:.0} bytes of a subscription, {used:.0} after some events");
}
