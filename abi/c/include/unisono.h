/* One-sided windows, events and shares of links of Unisono, for C and C++. Made by cbindgen from abi/c/src; do not edit.
 *
 * Every call that can fail returns a unisono_status, except calls that return a pointer or a number.
 * unisono_error_text() then describes the error and how to correct it. Calls have the meaning of their namesakes in
 * MPI-4.0, chapter 12.
 *
 * A job consists of the processes that `unisono run` starts; each process is a rank. A window is memory of each rank
 * that the other ranks read and write. The rank that starts a put or a get is its origin; the rank whose memory it
 * reads or writes is its target. A layout describes the places of a transfer's elements in memory. A fence completes
 * the operations before it and begins a new epoch. Every rank of the job makes the calls marked "collective", in the
 * same order. A job, window or request handle is used by a single thread at a time. In this program each rank writes
 * its number into the window of the next rank:
 *
 *	#include <stdio.h>
 *	#include <unisono.h>
 *
 *	int main(void)
 *	{
 *		unisono_job *job;
 *		unisono_window *window;
 *		double *mine, value;
 *		const unisono_layout *real = unisono_layout_of(UNISONO_ELEMENT_F64);
 *
 *		if (unisono_job_join(&job, 10.0) != UNISONO_STATUS_OK) {
 *			fprintf(stderr, "%s\n", unisono_error_text());
 *			return 1;
 *		}
 *		int rank = unisono_job_rank(job), next = (rank + 1) % unisono_job_size(job);
 *
 *		value = rank;
 *		unisono_window_allocate(job, sizeof(double), NULL, (void **)&mine, &window);
 *		unisono_window_fence(window, UNISONO_ASSERT_NO_PRECEDE);
 *		unisono_put(window, &value, 1, real, next, 0, 1, real);
 *		unisono_window_fence(window, UNISONO_ASSERT_NO_SUCCEED);
 *		printf("rank %d got %g\n", rank, *mine);
 *		unisono_window_free(&window);
 *		unisono_job_finalize(&job);
 *		return 0;
 *	}
 *
 * To compile it in a clone, to compile it where Unisono is installed, and to start it:
 *
 *	cc ring.c -o ring -I abi/c/include -L target/release -lunisono -Wl,-rpath,$PWD/target/release
 *	cc ring.c -o ring $(pkg-config --cflags --libs unisono)
 *	unisono run -n 4 ./ring
 *
 * Events need no job but a broker; start it with `unisono events serve`. Fields and arguments whose names end in _ns
 * are in nanoseconds. Texts are UTF-8 and end with a zero byte.
 *
 *	unisono_client *client;
 *	unisono_event *event;
 *	uint32_t heat, subscription;
 *
 *	unisono_client_connect(NULL, &client);
 *	unisono_subscribe(client, &(unisono_subscription){ .topics = "plant/+/heat" }, &subscription);
 *	unisono_advertise(client, &(unisono_topic){ .name = "plant/1/heat" }, &heat);
 *	unisono_publish(client, heat, &(unisono_draft){ .payload = "hot", .bytes = 3 });
 *	while (unisono_receive(client, 1000000000, &event) == UNISONO_STATUS_OK) {
 *		printf("%s: %zu bytes\n", event->topic, event->bytes);
 *		unisono_event_free(&event);
 *	}
 *	unisono_client_close(&client);
 */


#ifndef UNISONO_H
#define UNISONO_H

#include <stddef.h>
#include <stdint.h>

// Consumers get only the events of the topic's strongest living supplier; all other suppliers stand by.
#define UNISONO_TOPIC_EXCLUSIVE 1

// The broker may redeliver events until they are acknowledged.
#define UNISONO_TOPIC_RELIABLE 2

// The deadline had passed at the delivery.
#define UNISONO_EVENT_LATE 1

// The event was published before the subscription began.
#define UNISONO_EVENT_RETAINED 2

// The event is delivered again unless the program acknowledges it.
#define UNISONO_EVENT_ACKNOWLEDGE 4

// Start: every target has already called post. Post: no origin calls start before post returns. Lock: no
// other rank holds or requests a conflicting lock.
#define UNISONO_ASSERT_NO_CHECK 1

// Fence, post: this rank has not stored into its own part since the last synchronization.
#define UNISONO_ASSERT_NO_STORE 2

// Fence, post: no rank puts or accumulates into this rank's part until the next synchronization.
#define UNISONO_ASSERT_NO_PUT 4

// Fence: this rank has issued no operation since the last fence. All ranks pass it, or none does.
#define UNISONO_ASSERT_NO_PRECEDE 8

// Fence: this rank issues no operation before the next fence. All ranks pass it, or none does.
#define UNISONO_ASSERT_NO_SUCCEED 16

// The program never locks this window: no agent thread runs for it, and lock calls are errors.
#define UNISONO_NO_LOCKS 1

// Unlock completes operations at the origin only. They are complete at the target after the next flush to
// it, unisono_window_settle() or unisono_window_free().
#define UNISONO_LOCAL_COMPLETION 2

// The result of a call. unisono_error_text() explains an error.
typedef enum unisono_status {
        UNISONO_STATUS_OK = 0,
        // A null pointer, an invalid value, or ranks that make a window with different arguments.
        UNISONO_STATUS_ARG = 1,
        // Assertions that contradict each other or the call.
        UNISONO_STATUS_ASSERT = 2,
        // A count that overflows.
        UNISONO_STATUS_COUNT = 3,
        // A negative displacement.
        UNISONO_STATUS_DISP = 4,
        // The operation is not defined for these elements or for this call.
        UNISONO_STATUS_OP = 5,
        // No such rank, or the rank is not in the group of this epoch.
        UNISONO_STATUS_RANK = 6,
        // The memory cannot be attached or detached.
        UNISONO_STATUS_RMA_ATTACH = 7,
        // A lock is held, or conflicts with the requested one.
        UNISONO_STATUS_RMA_CONFLICT = 8,
        // The call does not fit this kind of window.
        UNISONO_STATUS_RMA_FLAVOR = 9,
        // The operation reaches outside the target's part. Nothing was written.
        UNISONO_STATUS_RMA_RANGE = 10,
        // The call needs an epoch that is not open, or does not fit the open epoch.
        UNISONO_STATUS_RMA_SYNC = 11,
        // An invalid size for a window, or an event larger than the broker accepts.
        UNISONO_STATUS_SIZE = 12,
        // Origin and target data do not match, or a layout cannot be used here.
        UNISONO_STATUS_TYPE = 13,
        // This build, host or job does not support the call.
        UNISONO_STATUS_UNSUPPORTED = 14,
        // The window has been freed.
        UNISONO_STATUS_WIN = 15,
        // A rank is gone and the job cannot go on; or the broker is gone, and the program has to connect again.
        UNISONO_STATUS_GONE = 16,
        // The time limit passed.
        UNISONO_STATUS_TIMED_OUT = 17,
        // The kernel or the network reported an error.
        UNISONO_STATUS_SYSTEM = 18,
        // A bug in the library itself.
        UNISONO_STATUS_INTERNAL = 19,
        UNISONO_STATUS_OTHER = 20,
        // The limit of mappings, memory or descriptors is reached.
        UNISONO_STATUS_NO_MEM = 21,
        // Nothing was done: make the same call again. Only the MPI preload gets this status; a program that uses
        // this header never does.
        UNISONO_STATUS_AGAIN = 22,
        // The broker refuses the event, the topic or the subscription; the text gives the reason.
        UNISONO_STATUS_REFUSED = 23,
        // The connection broke and was restored; it is unknown whether the broker processed the event or the
        // request.
        UNISONO_STATUS_UNANSWERED = 24,
        // The function that unisono_end_waits_by() set ended the wait.
        UNISONO_STATUS_INTERRUPTED = 25,
} unisono_status;

// The predefined types of elements.
typedef enum unisono_element {
        // Raw bytes, for replace and bitwise operations.
        UNISONO_ELEMENT_BYTE = 1,
        UNISONO_ELEMENT_I8 = 2,
        UNISONO_ELEMENT_I16 = 3,
        UNISONO_ELEMENT_I32 = 4,
        UNISONO_ELEMENT_I64 = 5,
        UNISONO_ELEMENT_U8 = 6,
        UNISONO_ELEMENT_U16 = 7,
        UNISONO_ELEMENT_U32 = 8,
        UNISONO_ELEMENT_U64 = 9,
        UNISONO_ELEMENT_F32 = 10,
        UNISONO_ELEMENT_F64 = 11,
        UNISONO_ELEMENT_COMPLEX32 = 12,
        UNISONO_ELEMENT_COMPLEX64 = 13,
        // `bool`, for logical operations.
        UNISONO_ELEMENT_BOOL = 14,
        // `struct { float value; int index; }`
        UNISONO_ELEMENT_F32_INT = 15,
        // `struct { double value; int index; }`
        UNISONO_ELEMENT_F64_INT = 16,
        // `struct { int value; int index; }`
        UNISONO_ELEMENT_INT_INT = 17,
        // `struct { long value; int index; }`
        UNISONO_ELEMENT_LONG_INT = 18,
        // `struct { short value; int index; }`
        UNISONO_ELEMENT_SHORT_INT = 19,
        // `long double` of x86-64.
        UNISONO_ELEMENT_LONG_DOUBLE = 20,
        // `long double complex` of x86-64.
        UNISONO_ELEMENT_COMPLEX_LONG = 21,
        // `struct { long double value; int index; }` of x86-64
        UNISONO_ELEMENT_LONG_DOUBLE_INT = 22,
        // `struct { float value, index; }`
        UNISONO_ELEMENT_F32F32 = 23,
        // `struct { double value, index; }`
        UNISONO_ELEMENT_F64F64 = 24,
        // 16 bytes without arithmetic: replace and no-op.
        UNISONO_ELEMENT_BITS128 = 25,
        // 32 bytes without arithmetic: replace and no-op.
        UNISONO_ELEMENT_BITS256 = 26,
} unisono_element;

// The predefined operations.
typedef enum unisono_operation {
        UNISONO_OPERATION_SUM = 1,
        UNISONO_OPERATION_PRODUCT = 2,
        UNISONO_OPERATION_MIN = 3,
        UNISONO_OPERATION_MAX = 4,
        // 1 if both are nonzero, else 0.
        UNISONO_OPERATION_LOGICAL_AND = 5,
        UNISONO_OPERATION_LOGICAL_OR = 6,
        // 1 if exactly one is nonzero, else 0.
        UNISONO_OPERATION_LOGICAL_XOR = 7,
        UNISONO_OPERATION_BIT_AND = 8,
        UNISONO_OPERATION_BIT_OR = 9,
        UNISONO_OPERATION_BIT_XOR = 10,
        // Writes the origin's value, whatever the target holds.
        UNISONO_OPERATION_REPLACE = 11,
        // Leaves the target's value; for get_accumulate and fetch_and_op.
        UNISONO_OPERATION_NO_OP = 12,
        // The pair with the smaller value; if the values are equal, the pair with the smaller index.
        UNISONO_OPERATION_MIN_LOC = 13,
        // The pair with the greater value; if the values are equal, the pair with the smaller index.
        UNISONO_OPERATION_MAX_LOC = 14,
} unisono_operation;

// Kinds of locks.
typedef enum unisono_lock {
        // Any number of ranks may hold it at the same time.
        UNISONO_LOCK_SHARED = 1,
        // No other rank holds a lock of this part.
        UNISONO_LOCK_EXCLUSIVE = 2,
} unisono_lock;

// How the window synchronizes.
typedef enum unisono_style {
        // Stores and flags where ranks share memory; elsewhere as DEFERRED.
        UNISONO_STYLE_DIRECT = 0,
        // Messages everywhere. The call that ends an epoch sends them (Thakur, Gropp, Toonen, EuroPVM/MPI 2004).
        UNISONO_STYLE_DEFERRED = 1,
        // Messages everywhere, one for each call; for comparison.
        UNISONO_STYLE_NAIVE = 2,
} unisono_style;

// The type of a field's value.
typedef enum unisono_field_kind {
        UNISONO_FIELD_KIND_WHOLE = 1,
        // Received fields with a whole value have the type WHOLE instead.
        UNISONO_FIELD_KIND_DECIMAL = 2,
        // The value is `whole`: 0 or 1.
        UNISONO_FIELD_KIND_BOOL = 3,
        UNISONO_FIELD_KIND_TEXT = 4,
} unisono_field_kind;

// The outcome of a published event.
typedef enum unisono_outcome {
        // The event is in the queues of `consumers` consumers and groups.
        UNISONO_OUTCOME_TAKEN = 0,
        // A stronger supplier of the topic lives; no consumer gets the event.
        UNISONO_OUTCOME_STANDBY = 1,
        // An event with this sequence number came before; no consumer gets it again.
        UNISONO_OUTCOME_DUPLICATE = 2,
        // As TAKEN, and the event is in the broker's log: it survives the end of the broker.
        UNISONO_OUTCOME_WRITTEN = 3,
        // As TAKEN, and the event is on disk: it survives a loss of power.
        UNISONO_OUTCOME_SYNCED = 4,
} unisono_outcome;

// Handling of events while the queue of a subscription is full.
typedef enum unisono_full {
        // The oldest event is dropped.
        UNISONO_FULL_DROP_OLDEST = 0,
        // A late event is dropped, or else the event with the latest deadline.
        UNISONO_FULL_DROP_BY_DEADLINE = 1,
        // The supplier waits.
        UNISONO_FULL_BLOCK_SUPPLIER = 2,
} unisono_full;

// Handling of events whose deadline has passed.
typedef enum unisono_late {
        // They are delivered with UNISONO_EVENT_LATE.
        UNISONO_LATE_DELIVER = 0,
        // They are dropped without notice.
        UNISONO_LATE_DROP = 1,
        // They are dropped and reported as a GAP.
        UNISONO_LATE_REPORT = 2,
} unisono_late;

// The kind of a received event or notice.
typedef enum unisono_reception {
        UNISONO_RECEPTION_EVENT = 1,
        // `lost` events of a supplier are missing, from `sequence` to `last`.
        UNISONO_RECEPTION_GAP = 2,
        // A supplier will publish no more events.
        UNISONO_RECEPTION_GONE = 3,
        // From now on the events of an exclusive topic come from another supplier.
        UNISONO_RECEPTION_OWNER = 4,
        // The topic no longer meets the subscription's requirements.
        UNISONO_RECEPTION_MISMATCH = 5,
        // A period is over.
        UNISONO_RECEPTION_TICK = 6,
        // No event came for the time that the subscription named.
        UNISONO_RECEPTION_SILENCE = 7,
        // A correlation began and was not completed in time.
        UNISONO_RECEPTION_INCOMPLETE = 8,
        // An event of unisono_publish was refused: `number` is its topic.
        UNISONO_RECEPTION_REJECTED = 9,
        // The broker's log no longer has the events at positions `sequence` to `last`.
        UNISONO_RECEPTION_LOST = 10,
        // The connection broke at `published_ns` and was restored. A subscription that resumes misses no event;
        // other subscriptions missed the events published in between.
        UNISONO_RECEPTION_RECONNECTED = 11,
} unisono_reception;

// How a program waits in unisono_receive() and other calls.
typedef enum unisono_wait {
        // It sleeps until an event arrives.
        UNISONO_WAIT_SLEEP = 0,
        // It polls, and needs a processor to itself.
        UNISONO_WAIT_SPIN = 1,
        // It polls as long as that is cheaper than sleeping, and then sleeps.
        UNISONO_WAIT_ADAPTIVE = 2,
} unisono_wait;

// A connection to a broker. One thread at a time uses it; other threads open connections of their own.
typedef struct unisono_client unisono_client;

// A rank's membership in a job: the ranks that make windows together.
typedef struct unisono_job unisono_job;

// The places of a transfer's data in memory: contiguous, strided or indexed elements, or arbitrary runs of
// bytes. Several threads may use a layout at the same time.
typedef struct unisono_layout unisono_layout;

// An operation that may not be complete yet.
typedef struct unisono_request unisono_request;

// Memory of each member of a job that the other members read and write.
typedef struct unisono_window unisono_window;

// Options of a connection. A zero or NULL field selects the default.
typedef struct unisono_client_options {
        // An address as in unisono_client_connect().
        const char *address;
        // The program's name in tables, metrics and errors: at most 64 characters. NULL: the command name that
        // ps shows, with the process number, such as "camera[4711]".
        const char *name;
        // The secret that authenticates the program over TCP; it replaces the token file in the address.
        const char *token;
        // The longest time between two calls of the program, in nanoseconds; at least 300,000,000. 0: no limit.
        // After a longer time the broker considers the program dead, and the program's next call returns
        // UNISONO_STATUS_GONE with a text that says so. Time that the program spends waiting inside a call does
        // not count.
        uint64_t lease_ns;
        // A value of unisono_wait.
        int wait;
        // The time that the library tries to reconnect after the connection breaks; 0: it does not try. After a
        // reconnect the topics and subscriptions are restored with their numbers, and unisono_receive() returns
        // UNISONO_RECEPTION_RECONNECTED. Calls wait in the meantime. After the time has passed, they return
        // UNISONO_STATUS_GONE.
        uint64_t reconnect_ns;
} unisono_client_options;

// A named value of an event, which filters can test.
typedef struct unisono_field {
        // At most 255 bytes.
        const char *name;
        // A value of unisono_field_kind.
        int kind;
        int64_t whole;
        // In received events also set for WHOLE.
        double decimal;
        // At most 65,535 bytes.
        const char *text;
} unisono_field;

// An event to publish. A zero or NULL field leaves that part out.
typedef struct unisono_draft {
        const void *payload;
        // The size of the payload in bytes, at most unisono_client_largest().
        size_t bytes;
        // Identifies the thing that the event is about, if the topic is about several; at most 1,024 bytes.
        const char *key;
        const struct unisono_field *fields;
        size_t field_count;
        // The deadline, on the clock of unisono_now(); 0: none.
        uint64_t deadline_ns;
        // How bad the loss of the event is: a full queue drops the least critical events first.
        uint8_t criticality;
        // For unisono_try_publish(): this event's number from the topic's `writer` (a key of `more`), starting
        // at 1; 0: none. The broker's log accepts each number once.
        uint64_t number;
} unisono_draft;

// Memory for the payload of an event.
typedef struct unisono_lent {
        // The place of the payload; its content is undefined, and its address has no alignment. NULL after the
        // publication.
        void *memory;
        // The size of the payload in bytes; 0 after the publication.
        size_t bytes;
        // 1 if consumers will read the payload from this memory; 0 if the publication copies it, because the
        // topic's events go through the broker.
        int in_place;
} unisono_lent;

// A topic to publish on, and its properties. A zero or NULL field selects the default.
typedef struct unisono_topic {
        // Levels separated by /, such as "plant/1/heat".
        const char *name;
        // The name of its events' type. A subscription may ask for a type.
        const char *event_type;
        // The number of events that the broker keeps for late subscribers. Not together with `last_values`.
        size_t last;
        // The number of keys whose last event the broker keeps for late subscribers.
        size_t last_values;
        // The deadline of events without a deadline of their own, in nanoseconds after their publication.
        uint64_t deadline_ns;
        // A sum of UNISONO_TOPIC_EXCLUSIVE and UNISONO_TOPIC_RELIABLE.
        uint32_t flags;
        // Consumers of an exclusive topic get the events of the supplier with the greatest strength.
        uint32_t strength;
        // Further options in JSON, such as "{\"period_ns\": 1000000, \"burst\": 4}": the keys of an ADVERTISE
        // frame (crates/events-wire/PROTOCOL.md). "{\"share\": 3}" is this supplier's weight where suppliers
        // share the queue of a subscription. "{\"order\": \"publication\"}" ensures that no consumer gets an
        // event before an earlier event of this supplier. "{\"content\": {\"type\": \"application/cbor\"}}"
        // adds the field content_type to each event that lacks it; "schema" beside "type" adds the field schema.
        const char *more;
} unisono_topic;

// The outcome of an event that unisono_try_publish() published.
typedef struct unisono_published {
        // The number of this event in the broker's count of this supplier's events on the topic.
        uint64_t sequence;
        uint32_t consumers;
        // A value of unisono_outcome.
        int outcome;
} unisono_published;

// A received event or notice. All of it is valid until unisono_event_free, and the library does not change
// it. Through shared memory a payload of 16 KiB or more is not copied: it stays in memory that the broker,
// or the event's supplier, can write. At most four payloads are held there at a time; further payloads are
// copied. A supplier that is broken or hostile can change such a payload at any time, also after it was
// checked. Where the supplier is not trusted, copy the payload first, and check and use the copy. All else
// in the structure is a copy.
typedef struct unisono_event {
        // A value of unisono_reception.
        int kind;
        // The number of the subscription (REJECTED: of the topic); 0 for the reply to a request, and for
        // RECONNECTED.
        uint32_t number;
        // NULL for a notice that concerns no topic.
        const char *topic;
        // NULL if the event has no key.
        const char *key;
        // The text of a notice; NULL for an event.
        const char *text;
        const void *payload;
        // The size of the payload in bytes.
        size_t bytes;
        // Sorted by name, ascending.
        const struct unisono_field *fields;
        size_t field_count;
        // The other events of a correlation, in the order of the subscription's interests.
        const struct unisono_event *const *with;
        size_t with_count;
        // The time of publication, on the clock of unisono_now(). TICK: the end of the period. SILENCE: the
        // arrival of the last event. RECONNECTED: the time when the library noticed the broken connection.
        uint64_t published_ns;
        // The deadline; 0: none.
        uint64_t deadline_ns;
        // The event's number in the supplier's count. GAP: the number of the first missing event.
        uint64_t sequence;
        // GAP: the number of the last missing event. EVENT with UNISONO_EVENT_ACKNOWLEDGE: the number of the
        // delivery; if the subscription resumes, this is the event's position in the log. Other EVENT: 0.
        uint64_t last;
        // GAP: the number of missing events; 0: unknown yet. Without a topic: events of further topics.
        uint64_t lost;
        // The broker's number of the supplier.
        uint32_t supplier;
        // A sum of UNISONO_EVENT_LATE, UNISONO_EVENT_RETAINED and UNISONO_EVENT_ACKNOWLEDGE.
        uint32_t flags;
        uint8_t criticality;
        // Earlier deliveries of this event that were not acknowledged; 255 means 255 or more.
        uint8_t repeated;
        // GONE: 1 if the supplier died, 0 if it left.
        uint8_t died;
} unisono_event;

// The events to receive, and how. A zero or NULL field selects the default.
typedef struct unisono_subscription {
        // A pattern: + stands for one level, # for all further levels. NULL: `more` holds the interests.
        const char *topics;
        // A condition on fields, such as "celsius > 80". NULL: all events.
        const char *filter;
        // Receive only topics with this type.
        const char *event_type;
        // A class of the broker's policy.
        const char *class_name;
        // Consumers of a group share the events: each event goes to a single member.
        const char *group;
        // Maximum number of waiting events; 0: 1,024.
        size_t queue;
        // A value of unisono_full.
        int full;
        // A value of unisono_late.
        int late;
        // The number of events that a topic must keep for late subscribers, or the subscription does not get it.
        // All kept events arrive, also if there are more.
        size_t last;
        // An event that is not acknowledged within this time is delivered again, at most 16 times or as often as
        // "again" in `more` says; 0: no event needs an acknowledgment, unless "again" is in `more`.
        uint64_t acknowledge_ns;
        // Further options in JSON, such as "{\"silence_ns\": 1000000000}": the keys of a SUBSCRIBE frame
        // (crates/events-wire/PROTOCOL.md). "{\"direct\": false}" refuses events that suppliers send directly,
        // without the broker between them. "{\"between\": \"shares\"}" divides the queue among
        // suppliers by their shares. "{\"order\": \"publication\"}" keeps the order in which each supplier
        // published on a topic; otherwise the event that is due first comes first. Over UDP, with
        // "{\"best_effort\": true}", no event waits for another event that the network lost.
        const char *more;
} unisono_subscription;

// `count` blocks of `bytes` bytes each.
typedef struct unisono_run {
        // Bytes from the buffer's address to the first block; may be negative.
        int64_t offset;
        // Bytes of one block.
        uint64_t bytes;
        // Bytes from the start of one block to the start of the next.
        int64_t stride;
        uint64_t count;
} unisono_run;

// Properties of a window to make. All zero selects the defaults, and so does a NULL pointer to this struct.
typedef struct unisono_spec {
        // Bytes of a displacement unit of this rank's part; 0 means 1.
        uint32_t unit;
        // A sum of UNISONO_NO_LOCKS and UNISONO_LOCAL_COMPLETION; the same on all ranks.
        uint32_t flags;
        // A value of unisono_style; the same on all ranks.
        int style;
} unisono_spec;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the text about this thread's last failed call: the error, and how to correct it. Never NULL; valid
// until the next failed call of this thread. A call that returns UNISONO_STATUS_AGAIN leaves the text as it
// is.
const char *unisono_error_text(void);

// Returns the name of a status, such as "RMA_RANGE"; never NULL.
const char *unisono_status_name(int status);

// Returns the version of this library, such as "0.2.0"; never NULL.
const char *unisono_version(void);

// Returns the current time of CLOCK_MONOTONIC in nanoseconds. Deadlines are on this clock.
uint64_t unisono_now(void);

// Returns the time `length_ns` from now, for the deadline of an event: unisono_due_in(5 * 1000 * 1000) is in
// 5 ms. A time beyond the end of the clock becomes that end.
uint64_t unisono_due_in(uint64_t length_ns);

// Sets a function for this process that each thread calls ten times a second while it waits in a function of
// this library. If it returns a value other than 0, it ends the wait with UNISONO_STATUS_INTERRUPTED. This
// is for languages that handle signals between two calls, such as Python. Only the first function is kept.
void unisono_end_waits_by(int (*ends)(void));

// Connects to the broker at `address`. The path of the broker's socket selects shared memory; "unix:PATH"
// sends all data through that socket; "tcp:HOST:PORT" uses TCP, "tls:HOST:PORT?authority=FILE" TLS, and
// "udp:HOST:PORT?authority=FILE" QUIC. Append "&certificate=FILE&key=FILE" to a tls: or udp: address if the
// broker requires certificates, and "&token-file=FILE" if it requires tokens. NULL selects this user's
// broker, at the default socket of `unisono events serve`, or else the host's broker at /run/unisono/events.
enum unisono_status unisono_client_connect(const char *address,
                                           struct unisono_client **client);

// Connects with options; `options` may be NULL.
enum unisono_status unisono_client_open(const struct unisono_client_options *options,
                                        struct unisono_client **client);

// Returns the name by which the broker knows this program, valid until the connection is closed; NULL if
// `client` is NULL.
const char *unisono_client_name(const struct unisono_client *client);

// Renews the lease of a program that makes no other call in time. A program without a lease need not call
// it.
enum unisono_status unisono_client_alive(struct unisono_client *client);

// Gets the broker's statistics for all programs, as a JSON object with the keys of `unisono events top
// --json`, without rates. "consumers" has a row for each consumer with the "name" of its program. `*json`
// belongs to the library and is valid until the next call of this function or until the connection is
// closed.
enum unisono_status unisono_client_statistics(struct unisono_client *client,
                                              const char **json);

// Closes the connection and sets `*client` to NULL. Its topics and subscriptions end; received events stay
// valid until they are freed. Events that unisono_publish_later() holds back may be lost: call
// unisono_flush() first.
enum unisono_status unisono_client_close(struct unisono_client **client);

// Returns the descriptor to poll for reading. It belongs to the library: never read, write or close it. Poll
// only after unisono_receive() with a time limit of 0 has returned UNISONO_STATUS_TIMED_OUT, because earlier
// events may already be waiting in this process. The descriptor changes if the library reconnects, so get it
// again before each poll. -1 if `client` is NULL.
int unisono_client_descriptor(const struct unisono_client *client);

// Returns the size in bytes of the largest payload that the broker accepts; 0 if `client` is NULL.
size_t unisono_client_largest(const struct unisono_client *client);

// Lends memory for the payload of an event with the key, the fields, the deadline and the criticality of
// `draft`; `draft->bytes` is the size of the payload, and `draft->payload` is NULL. If consumers get the
// topic's events directly, through shared memory, they read the payload from this memory, and it is never
// copied; a topic lends up to four such places at a time. Write the payload, publish the event by
// unisono_publish_loan(), and return the loan by unisono_loan_return() in any case.
enum unisono_status unisono_loan(struct unisono_client *client,
                                 uint32_t topic,
                                 const struct unisono_draft *draft,
                                 struct unisono_lent **lent);

// Publishes the event of a loan, as unisono_publish() does. Do not write to the loan's memory afterwards,
// because consumers read it. The memory stays mapped until unisono_loan_return(). `deadline_ns` replaces the
// draft's deadline; 0 keeps the draft's deadline.
enum unisono_status unisono_publish_loan(struct unisono_client *client,
                                         struct unisono_lent *lent,
                                         uint64_t deadline_ns);

// Like unisono_publish_loan(), but waits no longer than `timeout_ns` for room. UNISONO_STATUS_TIMED_OUT has
// the same meaning as for unisono_publish_within().
enum unisono_status unisono_publish_loan_within(struct unisono_client *client,
                                                struct unisono_lent *lent,
                                                uint64_t deadline_ns,
                                                uint64_t timeout_ns,
                                                int *taken);

// Returns a loan and sets `*lent` to NULL; a loan that was not published is dropped without an event. The
// call is also allowed after the connection was closed, and in another thread.
enum unisono_status unisono_loan_return(struct unisono_lent **lent);

// Announces that this program will publish on a topic, and waits until the broker agrees. `*topic` becomes
// the topic's number for publishing.
enum unisono_status unisono_advertise(struct unisono_client *client,
                                      const struct unisono_topic *options,
                                      uint32_t *topic);

// Ends a topic: its subscribers learn that this supplier left.
enum unisono_status unisono_withdraw(struct unisono_client *client, uint32_t topic);

// Publishes an event without waiting for its outcome. If the broker refuses the event, unisono_receive()
// reports that. Blocks while a consumer that blocks suppliers has a full queue. The program may reuse the
// payload's memory afterwards.
enum unisono_status unisono_publish(struct unisono_client *client,
                                    uint32_t topic,
                                    const struct unisono_draft *draft);

// Like unisono_publish(), but the event may wait in this process until unisono_flush(), so that many events
// leave with one system call.
enum unisono_status unisono_publish_later(struct unisono_client *client,
                                          uint32_t topic,
                                          const struct unisono_draft *draft);

// Sends all events that unisono_publish_later() holds back, and waits until they have left this process.
enum unisono_status unisono_flush(struct unisono_client *client);

// Like unisono_publish(), but waits no longer than `timeout_ns` for room. After UNISONO_STATUS_TIMED_OUT: if
// `*taken` is 0, publish the event again; otherwise later calls, such as unisono_flush_within(), send it. A
// program that receives its own events over another connection must receive them in the meantime.
enum unisono_status unisono_publish_within(struct unisono_client *client,
                                           uint32_t topic,
                                           const struct unisono_draft *draft,
                                           uint64_t timeout_ns,
                                           int *taken);

// Like unisono_flush(), but waits no longer than `timeout_ns`. UNISONO_STATUS_TIMED_OUT: some events are
// still in this process.
enum unisono_status unisono_flush_within(struct unisono_client *client,
                                         uint64_t timeout_ns);

// Publishes an event if no consumer would block it, and waits for the event's outcome.
// UNISONO_STATUS_REFUSED: no consumer got the event; the text names the refuser and the reason. `published`
// may be NULL.
enum unisono_status unisono_try_publish(struct unisono_client *client,
                                        uint32_t topic,
                                        const struct unisono_draft *draft,
                                        struct unisono_published *published);

// Publishes a request and waits for its reply; free the reply with unisono_event_free(). Other events that
// arrive in the meantime are received later. A negative `timeout_ns` sets no limit.
enum unisono_status unisono_ask(struct unisono_client *client,
                                uint32_t topic,
                                const struct unisono_draft *draft,
                                int64_t timeout_ns,
                                struct unisono_event **reply);

// Answers a received request. UNISONO_STATUS_ARG: the event is no request.
enum unisono_status unisono_reply(struct unisono_client *client,
                                  const struct unisono_event *request,
                                  const struct unisono_draft *draft);

// Subscribes to events, and waits until the broker agrees. `*number` becomes the subscription's number,
// which its events carry.
enum unisono_status unisono_subscribe(struct unisono_client *client,
                                      const struct unisono_subscription *options,
                                      uint32_t *number);

// Ends a subscription. Events in flight may still arrive, with number 0.
enum unisono_status unisono_unsubscribe(struct unisono_client *client, uint32_t number);

// Receives the next event or notice; free it with unisono_event_free(). UNISONO_STATUS_TIMED_OUT: nothing
// arrived within `timeout_ns` nanoseconds, and `*event` is NULL. With 0 the call does not wait; a negative
// `timeout_ns` sets no limit.
enum unisono_status unisono_receive(struct unisono_client *client,
                                    int64_t timeout_ns,
                                    struct unisono_event **event);

// Frees a result of unisono_receive() or unisono_ask(), and sets `*event` to NULL. The call is also allowed
// after the connection was closed, and in another thread.
enum unisono_status unisono_event_free(struct unisono_event **event);

// Acknowledges an event, so that it is not delivered again. Does nothing for an event without
// UNISONO_EVENT_ACKNOWLEDGE.
enum unisono_status unisono_acknowledge(struct unisono_client *client,
                                        const struct unisono_event *event);

// Joins the job for which `unisono run` or Slurm's srun started this process. A process that was started
// otherwise gets a job of one rank. Collective: waits until all ranks have joined, at most `timeout_s`
// seconds (0 or less: one minute).
enum unisono_status unisono_job_join(struct unisono_job **job,
                                     double timeout_s);

// Returns this rank's number, from 0; -1 if `job` is NULL.
int unisono_job_rank(const struct unisono_job *job);

// Returns the number of ranks in the job; -1 if `job` is NULL.
int unisono_job_size(const struct unisono_job *job);

// Waits until every rank has called this function. Collective.
enum unisono_status unisono_job_barrier(struct unisono_job *job);

// Gathers `bytes` bytes of every rank at every rank. `all` has room for `bytes` times the job's size, and
// receives the data in the order of ranks. Every rank passes the same `bytes`. Collective; not optimized for
// speed.
enum unisono_status unisono_job_gather(struct unisono_job *job,
                                       const void *data,
                                       size_t bytes,
                                       void *all);

// Leaves the job and sets `*job` to NULL. Free the job's windows first. Collective.
enum unisono_status unisono_job_finalize(struct unisono_job **job);

// Returns the layout of a single element; `element` is a value of unisono_element. NULL for an unknown
// number. The layout is static: it need not be freed.
const struct unisono_layout *unisono_layout_of(int element);

// Makes a layout of `count` blocks of `length` elements each. The starts of two blocks are `stride` elements
// apart.
enum unisono_status unisono_layout_strided(int element,
                                           uint64_t count,
                                           uint64_t length,
                                           int64_t stride,
                                           struct unisono_layout **layout);

// Makes a layout of blocks: block i has `lengths[i]` elements and begins `offsets[i]` elements after the
// buffer's address. Data is transferred in this order.
enum unisono_status unisono_layout_indexed(int element,
                                           size_t blocks,
                                           const int64_t *offsets,
                                           const uint64_t *lengths,
                                           struct unisono_layout **layout);

// Makes a layout of arbitrary runs of bytes, such as the members of a struct, in the order of transfer.
// `extent` is the distance in bytes between two such layouts if a count repeats the layout. `element` is the
// type of all data, which accumulates need; pass 0 if the data has no single element type.
enum unisono_status unisono_layout_runs(const struct unisono_run *runs,
                                        size_t count,
                                        int64_t extent,
                                        int element,
                                        struct unisono_layout **layout);

// Returns the number of bytes of data in a single instance of this layout; 0 for NULL.
uint64_t unisono_layout_size(const struct unisono_layout *layout);

// Returns the distance in bytes between two consecutive instances of this layout; 0 for NULL.
int64_t unisono_layout_extent(const struct unisono_layout *layout);

// Frees a layout and sets `*layout` to NULL. Operations that use it may still be in progress.
enum unisono_status unisono_layout_free(struct unisono_layout **layout);

// Writes origin data to the target.
enum unisono_status unisono_put(struct unisono_window *window,
                                const void *origin,
                                uint64_t origin_count,
                                const struct unisono_layout *origin_layout,
                                int target,
                                int64_t displacement,
                                uint64_t target_count,
                                const struct unisono_layout *target_layout);

// Reads target data into origin memory.
enum unisono_status unisono_get(struct unisono_window *window,
                                void *origin,
                                uint64_t origin_count,
                                const struct unisono_layout *origin_layout,
                                int target,
                                int64_t displacement,
                                uint64_t target_count,
                                const struct unisono_layout *target_layout);

// Combines origin data into the target, each element atomically; `operation` is a value of
// unisono_operation.
enum unisono_status unisono_accumulate(struct unisono_window *window,
                                       const void *origin,
                                       uint64_t origin_count,
                                       const struct unisono_layout *origin_layout,
                                       int target,
                                       int64_t displacement,
                                       uint64_t target_count,
                                       const struct unisono_layout *target_layout,
                                       int operation);

// Like unisono_accumulate(), and stores the target's previous data in `result`. The no-op ignores the
// origin, which may then be NULL.
enum unisono_status unisono_get_accumulate(struct unisono_window *window,
                                           const void *origin,
                                           uint64_t origin_count,
                                           const struct unisono_layout *origin_layout,
                                           void *result,
                                           uint64_t result_count,
                                           const struct unisono_layout *result_layout,
                                           int target,
                                           int64_t displacement,
                                           uint64_t target_count,
                                           const struct unisono_layout *target_layout,
                                           int operation);

// Like unisono_put(), in a passive epoch. `*request` becomes a request that completes when the operation is
// complete at the origin. If `request` is NULL, a flush completes the operation.
enum unisono_status unisono_rput(struct unisono_window *window,
                                 const void *origin,
                                 uint64_t origin_count,
                                 const struct unisono_layout *origin_layout,
                                 int target,
                                 int64_t displacement,
                                 uint64_t target_count,
                                 const struct unisono_layout *target_layout,
                                 struct unisono_request **request);

// Like unisono_get(), in a passive epoch. `*request` becomes a request that completes when the operation is
// complete at the origin. If `request` is NULL, a flush completes the operation.
enum unisono_status unisono_rget(struct unisono_window *window,
                                 void *origin,
                                 uint64_t origin_count,
                                 const struct unisono_layout *origin_layout,
                                 int target,
                                 int64_t displacement,
                                 uint64_t target_count,
                                 const struct unisono_layout *target_layout,
                                 struct unisono_request **request);

// Like unisono_accumulate(), in a passive epoch. `*request` becomes a request that completes when the
// operation is complete at the origin. If `request` is NULL, a flush completes the operation.
enum unisono_status unisono_raccumulate(struct unisono_window *window,
                                        const void *origin,
                                        uint64_t origin_count,
                                        const struct unisono_layout *origin_layout,
                                        int target,
                                        int64_t displacement,
                                        uint64_t target_count,
                                        const struct unisono_layout *target_layout,
                                        int operation,
                                        struct unisono_request **request);

// Like unisono_get_accumulate(), in a passive epoch. `*request` becomes a request that completes when the
// operation is complete at the origin. If `request` is NULL, a flush completes the operation.
enum unisono_status unisono_rget_accumulate(struct unisono_window *window,
                                            const void *origin,
                                            uint64_t origin_count,
                                            const struct unisono_layout *origin_layout,
                                            void *result,
                                            uint64_t result_count,
                                            const struct unisono_layout *result_layout,
                                            int target,
                                            int64_t displacement,
                                            uint64_t target_count,
                                            const struct unisono_layout *target_layout,
                                            int operation,
                                            struct unisono_request **request);

// Like unisono_get_accumulate(), for a single element; `element` is a value of unisono_element.
enum unisono_status unisono_fetch_and_op(struct unisono_window *window,
                                         const void *origin,
                                         void *result,
                                         int element,
                                         int target,
                                         int64_t displacement,
                                         int operation);

// Stores the target's element in `result`, and replaces it with the origin's element if it was equal to
// `compare`. Elements are integers, bytes or bools.
enum unisono_status unisono_compare_and_swap(struct unisono_window *window,
                                             const void *origin,
                                             const void *compare,
                                             void *result,
                                             int element,
                                             int target,
                                             int64_t displacement);

// Waits until the operation is complete at the origin, and sets `*request` to NULL.
enum unisono_status unisono_request_wait(struct unisono_window *window,
                                         struct unisono_request **request);

// Tests whether the operation is complete at the origin. If so, sets `*done` to 1 and `*request` to NULL;
// otherwise sets `*done` to 0.
enum unisono_status unisono_request_test(struct unisono_window *window,
                                         struct unisono_request **request,
                                         int *done);

// Gives a socket a share of its own in a class of the policy that is in force for a link: while several
// sockets of the class have packets waiting, they share the class by their weights. The administrator's
// policy says which users may do so (`sockets`), and `unisono queue guard` has to run. The share ends when
// the socket is closed; another call changes its class and weight.
//
// Returns 0, or a negative number of errno(3): -ECONNREFUSED without a guard, -ENOENT if no policy has the
// class, -EPERM if the policy does not permit it to this user, -ERANGE if it does not permit the weight,
// -EDQUOT if this user has as many sockets as it permits, -ENOTSOCK if it is no socket for IPv4 or IPv6.
// unisono_error_text() says what to do. The socket then has the share that it had before.
int unisono_share_socket(int socket,
                         const char *class_name,
                         double weight);

// Ends the epoch that the last fence began, and begins the next. Collective.
enum unisono_status unisono_window_fence(struct unisono_window *window, int assert);

// Exposes this rank's part to `count` origins. Does not wait.
enum unisono_status unisono_window_post(struct unisono_window *window,
                                        const int *ranks,
                                        size_t count,
                                        int assert);

// Begins an access epoch to `count` targets. Does not wait.
enum unisono_status unisono_window_start(struct unisono_window *window,
                                         const int *ranks,
                                         size_t count,
                                         int assert);

// Ends the access epoch that start began.
enum unisono_status unisono_window_complete(struct unisono_window *window);

// Ends the exposure epoch that post began: waits until every origin has called complete.
enum unisono_status unisono_window_wait(struct unisono_window *window);

// Tests whether every origin has called complete. If so, sets `*done` to 1 and ends the exposure epoch;
// otherwise sets `*done` to 0. Does not wait.
enum unisono_status unisono_window_test(struct unisono_window *window,
                                        int *done);

// Begins a passive access epoch to `target`; `lock` is a value of unisono_lock. May return before this rank
// holds the lock; the operations then wait for it.
enum unisono_status unisono_window_lock(struct unisono_window *window,
                                        int lock,
                                        int target,
                                        int assert);

// Ends the passive epoch to `target`: its operations are complete at the origin. unisono_window_settle()
// waits until they are complete at the target.
enum unisono_status unisono_window_unlock(struct unisono_window *window,
                                          int target);

// Begins a passive access epoch to all ranks, with a shared lock at each.
enum unisono_status unisono_window_lock_all(struct unisono_window *window, int assert);

// Ends the passive epoch that lock_all began: its operations are complete at the origin.
// unisono_window_settle() waits until they are complete at the targets.
enum unisono_status unisono_window_unlock_all(struct unisono_window *window);

// Completes all operations to `target` at origin and target; the epoch goes on.
enum unisono_status unisono_window_flush(struct unisono_window *window, int target);

// Like unisono_window_flush(), for every target.
enum unisono_status unisono_window_flush_all(struct unisono_window *window);

// Completes all operations to `target` at the origin: the program may use its buffers again, and results
// have arrived.
enum unisono_status unisono_window_flush_local(struct unisono_window *window,
                                               int target);

// Like unisono_window_flush_local(), for every target.
enum unisono_status unisono_window_flush_local_all(struct unisono_window *window);

// In a passive epoch: makes this rank's loads and stores visible to other ranks' operations on its part, and
// the operations visible to this rank.
enum unisono_status unisono_window_sync(struct unisono_window *window);

// Applies operations that other ranks have sent, and sends operations that this rank holds back. Never
// waits.
enum unisono_status unisono_window_progress(struct unisono_window *window);

// Waits until every operation of the passive epochs that have ended is complete at its target. Needs no
// epoch. If windows work by messages, an exclusive unlock returns before its target has done the operations.
// Ranks that lock the part afterwards, or that learn of the unlock through calls of this job, find the
// operations done. Call this function before you inform another rank by other means, such as a pipe.
enum unisono_status unisono_window_settle(struct unisono_window *window);

// Makes a window of zeroed memory that the library allocates: `bytes` bytes at this rank; other ranks may
// pass other sizes. `*base` becomes the memory's address. Collective.
enum unisono_status unisono_window_allocate(struct unisono_job *job,
                                            uint64_t bytes,
                                            const struct unisono_spec *spec,
                                            void **base,
                                            struct unisono_window **window);

// Makes a window of `bytes` bytes of the program's memory at `base`. The memory stays valid until the window
// is freed. Collective.
enum unisono_status unisono_window_create(struct unisono_job *job,
                                          void *base,
                                          uint64_t bytes,
                                          const struct unisono_spec *spec,
                                          struct unisono_window **window);

// Makes a window without memory: ranks attach memory later. Displacements are addresses. Collective.
enum unisono_status unisono_window_dynamic(struct unisono_job *job,
                                           const struct unisono_spec *spec,
                                           struct unisono_window **window);

// Attaches memory of this rank to a dynamic window. The memory stays valid until the program detaches it.
enum unisono_status unisono_window_attach(struct unisono_window *window,
                                          void *address,
                                          size_t bytes);

// Detaches memory that the program attached at this address.
enum unisono_status unisono_window_detach(struct unisono_window *window, void *address);

// Gets the address of rank `rank`'s part in this process, its size in bytes, and its displacement unit; each
// pointer may be NULL. `*base` becomes NULL if this process does not map the part.
enum unisono_status unisono_window_mapped(struct unisono_window *window,
                                          int rank,
                                          void **base,
                                          uint64_t *bytes,
                                          uint32_t *unit);

// Frees the window and sets `*window` to NULL. Collective: waits for all ranks. Fails inside an epoch; the
// window then stays.
enum unisono_status unisono_window_free(struct unisono_window **window);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UNISONO_H */
