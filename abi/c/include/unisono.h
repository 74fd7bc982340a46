/* One-sided windows and events of Unisono, for C and C++. Made by cbindgen from abi/c/src; do not edit.
 *
 * Every call that can fail returns a unisono_status, except those that return a pointer or a number.
 * unisono_error_text() then says what went wrong and what to do about it. Calls have the meaning of their namesakes in
 * MPI-4.0, chapter 12.
 *
 * A job is the processes that `unisono run` starts; each is a rank. A window is memory of each rank that the other ranks
 * read and write. The rank that starts a put or a get is its origin, the rank whose memory it concerns its target. A
 * layout says where the elements of a transfer lie. A fence ends the operations before it, and begins new ones. What is
 * marked "collective" is called by every rank of the job, in the same order. Job, window and request handles are used by
 * one thread at a time. In this program each rank writes its number into the window of the next rank:
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
 * Compile it, in a clone or where Unisono is installed, and start it:
 *
 *	cc ring.c -o ring -I abi/c/include -L target/release -lunisono -Wl,-rpath,$PWD/target/release
 *	cc ring.c -o ring $(pkg-config --cflags --libs unisono)
 *	unisono run -n 4 ./ring
 *
 * Events need no job, but a broker, which `unisono events serve` starts. Names of their times end in _ns: they are
 * nanoseconds. Texts are UTF-8 and end with a zero.
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

// Only the strongest living supplier of the topic is heard; the others stand by.
#define UNISONO_TOPIC_EXCLUSIVE 1

// Events may be redelivered until they are acknowledged.
#define UNISONO_TOPIC_RELIABLE 2

// The deadline had passed when it was delivered.
#define UNISONO_EVENT_LATE 1

// It was published before the subscription.
#define UNISONO_EVENT_RETAINED 2

// It comes again unless it is acknowledged.
#define UNISONO_EVENT_ACKNOWLEDGE 4

// Start: every target has called post before. Post: no origin calls start before the post returns. Lock: no
// other rank holds or asks for a lock that excludes this one.
#define UNISONO_ASSERT_NO_CHECK 1

// Fence, post: this rank has not stored into its own part since the last synchronization.
#define UNISONO_ASSERT_NO_STORE 2

// Fence, post: no rank puts or accumulates into this rank's part until the next synchronization.
#define UNISONO_ASSERT_NO_PUT 4

// Fence: this rank has issued no operation since the last fence. All ranks give it, or none does.
#define UNISONO_ASSERT_NO_PRECEDE 8

// Fence: this rank issues no operation before the next fence. All ranks give it, or none does.
#define UNISONO_ASSERT_NO_SUCCEED 16

// The program never locks this window: no agent thread runs for it, and lock calls are errors.
#define UNISONO_NO_LOCKS 1

// Unlock completes operations at the origin only. They are complete at the target after the next flush
// there, unisono_window_settle or unisono_window_free.
#define UNISONO_LOCAL_COMPLETION 2

// The result of a call. unisono_error_text says more.
typedef enum unisono_status {
        UNISONO_STATUS_OK = 0,
        // A null pointer, or a number that means nothing here.
        UNISONO_STATUS_ARG = 1,
        // Asserts that contradict each other or the call.
        UNISONO_STATUS_ASSERT = 2,
        // A count that overflows.
        UNISONO_STATUS_COUNT = 3,
        // A negative displacement.
        UNISONO_STATUS_DISP = 4,
        // The operation is not defined for these elements, or not for this call.
        UNISONO_STATUS_OP = 5,
        // No such rank, or a rank that is not in the group of this epoch.
        UNISONO_STATUS_RANK = 6,
        // Memory cannot be attached or detached.
        UNISONO_STATUS_RMA_ATTACH = 7,
        // A lock is held, or conflicts with the one asked for.
        UNISONO_STATUS_RMA_CONFLICT = 8,
        // The call does not fit the kind of window.
        UNISONO_STATUS_RMA_FLAVOR = 9,
        // Bytes outside the target's part. Nothing was written.
        UNISONO_STATUS_RMA_RANGE = 10,
        // The call needs an epoch that is not open, or does not fit the open one.
        UNISONO_STATUS_RMA_SYNC = 11,
        // A size that no window can have, or an event that is larger than the broker takes.
        UNISONO_STATUS_SIZE = 12,
        // Origin and target disagree about the data, or a layout cannot be used here.
        UNISONO_STATUS_TYPE = 13,
        // This build, host or job cannot do it.
        UNISONO_STATUS_UNSUPPORTED = 14,
        // The window has been freed.
        UNISONO_STATUS_WIN = 15,
        // A rank is gone and the job cannot go on, or there is no broker any more: connect again.
        UNISONO_STATUS_GONE = 16,
        // The given time passed.
        UNISONO_STATUS_TIMED_OUT = 17,
        // The kernel or the network refused.
        UNISONO_STATUS_SYSTEM = 18,
        // A mistake in the library itself.
        UNISONO_STATUS_INTERNAL = 19,
        UNISONO_STATUS_OTHER = 20,
        // A limit of mappings, memory or descriptors is reached.
        UNISONO_STATUS_NO_MEM = 21,
        // Nothing was done: make the same call again. Only the MPI preload gets this; a program that uses this
        // header never does.
        UNISONO_STATUS_AGAIN = 22,
        // The broker refuses the event, the topic or the subscription; the text has its reason.
        UNISONO_STATUS_REFUSED = 23,
        // What became of an event or a request is unknown: the connection broke, and is there again.
        UNISONO_STATUS_UNANSWERED = 24,
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
        // The origin's value, whatever the target holds.
        UNISONO_OPERATION_REPLACE = 11,
        // The target's value stays; for get_accumulate and fetch_and_op.
        UNISONO_OPERATION_NO_OP = 12,
        // The pair with the smaller value; of two equal values the one with the smaller index.
        UNISONO_OPERATION_MIN_LOC = 13,
        // The pair with the greater value; of two equal values the one with the smaller index.
        UNISONO_OPERATION_MAX_LOC = 14,
} unisono_operation;

// Kinds of locks.
typedef enum unisono_lock {
        // Any number of ranks hold it at the same time.
        UNISONO_LOCK_SHARED = 1,
        // No other rank holds a lock of this part.
        UNISONO_LOCK_EXCLUSIVE = 2,
} unisono_lock;

// How synchronization is done.
typedef enum unisono_style {
        // Stores and flags where ranks share memory; elsewhere as DEFERRED.
        UNISONO_STYLE_DIRECT = 0,
        // Messages everywhere, which the call that ends an epoch sends (Thakur, Gropp, Toonen, EuroPVM/MPI
        // 2004).
        UNISONO_STYLE_DEFERRED = 1,
        // Messages everywhere, one for each call; to compare with.
        UNISONO_STYLE_NAIVE = 2,
} unisono_style;

// What a field holds.
typedef enum unisono_field_kind {
        UNISONO_FIELD_KIND_WHOLE = 1,
        // A decimal with a whole value arrives as WHOLE.
        UNISONO_FIELD_KIND_DECIMAL = 2,
        // `whole` is 0 or 1.
        UNISONO_FIELD_KIND_BOOL = 3,
        UNISONO_FIELD_KIND_TEXT = 4,
} unisono_field_kind;

// What became of an event.
typedef enum unisono_outcome {
        // It is in the queues of `consumers` consumers and groups.
        UNISONO_OUTCOME_TAKEN = 0,
        // A stronger supplier of the topic lives; nobody got it.
        UNISONO_OUTCOME_STANDBY = 1,
        // An event of this sequence number came before; nobody got it again.
        UNISONO_OUTCOME_DUPLICATE = 2,
        // As TAKEN, and in the broker's log: it outlives the broker.
        UNISONO_OUTCOME_WRITTEN = 3,
        // As TAKEN, and on the disk: it outlives the power.
        UNISONO_OUTCOME_SYNCED = 4,
} unisono_outcome;

// What happens to events while the queue of a subscription is full.
typedef enum unisono_full {
        // The oldest goes.
        UNISONO_FULL_DROP_OLDEST = 0,
        // What is late goes, or else what is due last.
        UNISONO_FULL_DROP_BY_DEADLINE = 1,
        // The supplier waits.
        UNISONO_FULL_BLOCK_SUPPLIER = 2,
} unisono_full;

// What happens to events whose deadline has passed.
typedef enum unisono_late {
        // They come all the same, with UNISONO_EVENT_LATE.
        UNISONO_LATE_DELIVER = 0,
        // They are dropped without notice.
        UNISONO_LATE_DROP = 1,
        // They are dropped, and a GAP is told.
        UNISONO_LATE_REPORT = 2,
} unisono_late;

// What has come.
typedef enum unisono_reception {
        UNISONO_RECEPTION_EVENT = 1,
        // `lost` events of a supplier are missing, from `sequence` to `last`.
        UNISONO_RECEPTION_GAP = 2,
        // A supplier will publish no more.
        UNISONO_RECEPTION_GONE = 3,
        // Another supplier of an exclusive topic is heard now.
        UNISONO_RECEPTION_OWNER = 4,
        // What was asked for is no longer offered.
        UNISONO_RECEPTION_MISMATCH = 5,
        // A period is over.
        UNISONO_RECEPTION_TICK = 6,
        // Nothing has come for the time that the subscription named.
        UNISONO_RECEPTION_SILENCE = 7,
        // A correlation began and was not completed in time.
        UNISONO_RECEPTION_INCOMPLETE = 8,
        // An event that unisono_publish published was refused: `number` is its topic.
        UNISONO_RECEPTION_REJECTED = 9,
        // The broker's log no longer has the events at positions `sequence` to `last`.
        UNISONO_RECEPTION_LOST = 10,
        // The connection broke, and is there again: the program was away since `published_ns`. A subscription
        // that resumes misses nothing; others missed what was published meanwhile.
        UNISONO_RECEPTION_RECONNECTED = 11,
} unisono_reception;

// How a program waits in unisono_receive and other calls.
typedef enum unisono_wait {
        // It sleeps until something comes.
        UNISONO_WAIT_SLEEP = 0,
        // It looks again and again, and needs a processor of its own.
        UNISONO_WAIT_SPIN = 1,
        // It spins while that is better, and sleeps otherwise.
        UNISONO_WAIT_ADAPTIVE = 2,
} unisono_wait;

// A connection to a broker. One thread at a time uses it; other threads open their own.
typedef struct unisono_client unisono_client;

// One rank's membership in a job: the ranks that make windows together.
typedef struct unisono_job unisono_job;

// Where the data of a transfer lies: elements in a row, strided, indexed, or any runs of bytes. Several
// threads may use one layout at the same time.
typedef struct unisono_layout unisono_layout;

// An operation that may not be complete yet.
typedef struct unisono_request unisono_request;

// Memory of each member of a job that the other members read and write.
typedef struct unisono_window unisono_window;

// How to connect. What is zero or NULL is the default.
typedef struct unisono_client_options {
        // As unisono_client_connect takes it.
        const char *address;
        // The program's name in tables, metrics and errors: at most 64 characters. NULL: what ps shows, and the
        // number of the process, such as "camera[4711]".
        const char *name;
        // The secret that says who the program is, over TCP; instead of the one in the address's file.
        const char *token;
        // The longest time between two calls of the program, in nanoseconds; at least 300,000,000. 0: no limit.
        // After a longer time the broker takes the program for dead, and its next call is UNISONO_STATUS_GONE
        // with a text that says so. The time that the program waits in a call does not count.
        uint64_t lease_ns;
        // One of unisono_wait.
        int wait;
        // How long the library tries to connect again when the connection breaks; 0: it does not try. Its topics
        // and subscriptions are there again then, with their numbers, and UNISONO_RECEPTION_RECONNECTED comes.
        // Calls wait meanwhile. When the time is over, they return UNISONO_STATUS_GONE.
        uint64_t reconnect_ns;
} unisono_client_options;

// A topic to publish on, and what is offered for it. What is zero or NULL is the default.
typedef struct unisono_topic {
        // Levels with / between them, such as "plant/1/heat".
        const char *name;
        // The name of the type of its events, which subscriptions may ask for.
        const char *event_type;
        // Events that the broker keeps for those who subscribe late. Not together with `last_values`.
        size_t last;
        // Keys of which the broker keeps the last event for those who subscribe late.
        size_t last_values;
        // When an event is due that has no deadline of its own, after its publication.
        uint64_t deadline_ns;
        // A sum of UNISONO_TOPIC_EXCLUSIVE and UNISONO_TOPIC_RELIABLE.
        uint32_t flags;
        // Of suppliers of an exclusive topic the one with the greatest number is heard.
        uint32_t strength;
        // Further options in JSON, such as "{\"period_ns\": 1000000, \"burst\": 4}": the keys of an ADVERTISE
        // frame (crates/broker/PROTOCOL.md). "{\"share\": 3}" counts where suppliers
        // share the queue of a subscription.
        const char *more;
} unisono_topic;

// A named value of an event, by which filters decide.
typedef struct unisono_field {
        // At most 255 bytes.
        const char *name;
        // One of unisono_field_kind.
        int kind;
        int64_t whole;
        // In events that arrive also set for WHOLE.
        double decimal;
        // At most 65,535 bytes.
        const char *text;
} unisono_field;

// An event to publish. What is zero or NULL is left out.
typedef struct unisono_draft {
        const void *payload;
        // Bytes of the payload, at most unisono_client_largest().
        size_t bytes;
        // Which of the things that the topic is about; at most 1,024 bytes.
        const char *key;
        const struct unisono_field *fields;
        size_t field_count;
        // When it is due, on the clock of unisono_now(); 0: never.
        uint64_t deadline_ns;
        // How bad it is if it is lost: a full queue drops the least critical events first.
        uint8_t criticality;
        // For unisono_try_publish: the number that the topic's `writer` (a key of `more`) gives this event, from
        // 1 on; 0: none. The broker's log takes each number once.
        uint64_t number;
} unisono_draft;

// What became of an event that unisono_try_publish published.
typedef struct unisono_published {
        // The broker's count of this supplier's events on the topic.
        uint64_t sequence;
        uint32_t consumers;
        // One of unisono_outcome.
        int outcome;
} unisono_published;

// An event or a notice that has come. All of it is valid until unisono_event_free, and the library does not
// change it. Through shared memory a payload of 16 KiB or more is not copied: it stays in memory that the
// broker, or its supplier, can write, of which at most four payloads are held at a time; further ones are
// copied. A supplier that is broken or hostile can change such a payload at any time, also after it was
// checked. Where the supplier is not trusted, copy the payload first, and check and use the copy. All else
// in the structure is a copy.
typedef struct unisono_event {
        // One of unisono_reception.
        int kind;
        // The subscription (REJECTED: the topic) that it is for; 0 for the reply to a request, and for
        // RECONNECTED.
        uint32_t number;
        // NULL if it is about no topic.
        const char *topic;
        // NULL if it has no key.
        const char *key;
        // What a notice says, in words; NULL for an event.
        const char *text;
        const void *payload;
        // Bytes of the payload.
        size_t bytes;
        // Ascending by name.
        const struct unisono_field *fields;
        size_t field_count;
        // The other events of a correlation, in the order in which they came.
        const struct unisono_event *const *with;
        size_t with_count;
        // When it was published, on the clock of unisono_now(). TICK: when the period ended. SILENCE: when the
        // last event came. RECONNECTED: when the library noticed that the connection had broken.
        uint64_t published_ns;
        // When it is due; 0: never.
        uint64_t deadline_ns;
        // The supplier's count of its events. GAP: the first that is missing.
        uint64_t sequence;
        // GAP: the last that is missing. EVENT that is to be acknowledged: the number of the delivery, which is
        // the event's position in the log if the subscription resumes. EVENT otherwise: 0.
        uint64_t last;
        // GAP: how many are missing; 0: nobody knows yet.
        uint64_t lost;
        // The broker's number of the supplier.
        uint32_t supplier;
        // A sum of UNISONO_EVENT_LATE, UNISONO_EVENT_RETAINED and UNISONO_EVENT_ACKNOWLEDGE.
        uint32_t flags;
        uint8_t criticality;
        // Earlier deliveries of it that were not acknowledged; 255: or more.
        uint8_t repeated;
        // GONE: 1 if the supplier died, 0 if it left.
        uint8_t died;
} unisono_event;

// What to receive, and on which terms. What is zero or NULL is the default.
typedef struct unisono_subscription {
        // A pattern: + stands for one level, # for all further ones. NULL: `more` has the interests.
        const char *topics;
        // A condition on fields, such as "celsius > 80". NULL: all events.
        const char *filter;
        // Only topics of this type.
        const char *event_type;
        // A class of the broker's policy.
        const char *class_name;
        // Consumers of one group share the events: each goes to one of them.
        const char *group;
        // Events that may wait; 0: 1,024.
        size_t queue;
        // One of unisono_full.
        int full;
        // One of unisono_late.
        int late;
        // Events published before that are wanted as well; the topic has to keep as many.
        size_t last;
        // An event that is not acknowledged in this time comes again, 16 times at most; 0: nothing is to be
        // acknowledged.
        uint64_t acknowledge_ns;
        // Further options in JSON, such as "{\"silence_ns\": 1000000000}": the keys of a SUBSCRIBE frame
        // (crates/broker/PROTOCOL.md). "{\"direct\": false}" refuses events that come straight from suppliers,
        // through shared memory and without the broker. "{\"between\": \"shares\"}" gives suppliers the queue by
        // their shares. Over UDP with "{\"best_effort\": true}" no event waits for one that the network lost.
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

// What kind of window to make. All zero is the default, and so is a NULL pointer to this.
typedef struct unisono_spec {
        // Bytes of one unit of displacement into this rank's part; 0 means 1.
        uint32_t unit;
        // A sum of UNISONO_NO_LOCKS and UNISONO_LOCAL_COMPLETION; the same on all ranks.
        uint32_t flags;
        // One of unisono_style; the same on all ranks.
        int style;
} unisono_spec;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What went wrong in this thread's last failed call, and what to do about it. Never NULL; valid until the
// next failed call of this thread.
const char *unisono_error_text(void);

// The name of a status, such as "RMA_RANGE"; never NULL.
const char *unisono_status_name(int status);

// The version of this library, such as "0.1.0"; never NULL.
const char *unisono_version(void);

// The time of the clock that deadlines are of (CLOCK_MONOTONIC), in nanoseconds.
uint64_t unisono_now(void);

// Connects to the broker at `address`: the path of its socket, to share memory with it; "unix:PATH", to send
// everything through the socket; "tcp:HOST:PORT"; "tls:HOST:PORT?authority=FILE";
// "udp:HOST:PORT?authority=FILE", for QUIC. Behind a tls: or udp: address stands
// "&certificate=FILE&key=FILE" if the broker asks for certificates, and "&token-file=FILE" if it asks for
// tokens. NULL: this user's broker, at the socket where `unisono events serve` listens unless it is told
// otherwise, or else the host's at /run/unisono/events.
enum unisono_status unisono_client_connect(const char *address,
                                           struct unisono_client **client);

// Connects as the options say; `options` may be NULL.
enum unisono_status unisono_client_open(const struct unisono_client_options *options,
                                        struct unisono_client **client);

// The name by which the broker knows this program, until the connection is closed; NULL if `client` is NULL.
const char *unisono_client_name(const struct unisono_client *client);

// Says that this program lives, if it has a lease and makes no other call in time.
enum unisono_status unisono_client_alive(struct unisono_client *client);

// What the broker has done for all programs, as a JSON object with the keys of `unisono events top --json`,
// without rates: "consumers" has a row for each consumer with the "name" of its program. `*json` is the
// library's, and valid until the next call of this function or the end of the connection.
enum unisono_status unisono_client_statistics(struct unisono_client *client,
                                              const char **json);

// Ends the connection and sets `*client` to NULL. Its topics and subscriptions end; events that it has
// received stay valid until they are freed. What unisono_publish_later holds back may be lost: flush first.
enum unisono_status unisono_client_close(struct unisono_client **client);

// The descriptor to poll for reading, which stays the library's: never read, write or close it. Poll only
// after unisono_receive with a time limit of 0 has returned UNISONO_STATUS_TIMED_OUT: what has come before
// may already wait in this process. If the library connects again, the descriptor is another one: ask before
// each wait. -1 if `client` is NULL.
int unisono_client_descriptor(const struct unisono_client *client);

// Bytes of the largest payload that the broker takes; 0 if `client` is NULL.
size_t unisono_client_largest(const struct unisono_client *client);

// Says that this program will publish on a topic, and waits until the broker agrees. `*topic` becomes the
// number by which it publishes.
enum unisono_status unisono_advertise(struct unisono_client *client,
                                      const struct unisono_topic *options,
                                      uint32_t *topic);

// Ends a topic: those who listen hear that this supplier left.
enum unisono_status unisono_withdraw(struct unisono_client *client, uint32_t topic);

// Publishes an event and does not wait for what becomes of it. If it is refused, unisono_receive says so.
// Waits while a consumer that blocks suppliers has no room. The payload is the program's again afterwards.
enum unisono_status unisono_publish(struct unisono_client *client,
                                    uint32_t topic,
                                    const struct unisono_draft *draft);

// As publish, but the event may wait in this process until unisono_flush: many events then leave with one
// system call.
enum unisono_status unisono_publish_later(struct unisono_client *client,
                                          uint32_t topic,
                                          const struct unisono_draft *draft);

// Lets all events leave that publish_later holds back, and waits until they have.
enum unisono_status unisono_flush(struct unisono_client *client);

// Publishes an event unless it would have to wait for a consumer, and waits for what became of it.
// UNISONO_STATUS_REFUSED: nobody got it; the text says who refused and why. `published` may be NULL.
enum unisono_status unisono_try_publish(struct unisono_client *client,
                                        uint32_t topic,
                                        const struct unisono_draft *draft,
                                        struct unisono_published *published);

// Publishes a request and waits for its reply, which the program frees with unisono_event_free. Other events
// that come meanwhile are received later. `timeout_ns` below 0 waits for ever.
enum unisono_status unisono_ask(struct unisono_client *client,
                                uint32_t topic,
                                const struct unisono_draft *draft,
                                int64_t timeout_ns,
                                struct unisono_event **reply);

// Answers a request that was received. An event that is none is UNISONO_STATUS_ARG.
enum unisono_status unisono_reply(struct unisono_client *client,
                                  const struct unisono_event *request,
                                  const struct unisono_draft *draft);

// Asks for events, and waits until the broker agrees. `*number` becomes the number that events of this
// subscription bear.
enum unisono_status unisono_subscribe(struct unisono_client *client,
                                      const struct unisono_subscription *options,
                                      uint32_t *number);

// Ends a subscription. What was on its way may still come, with number 0.
enum unisono_status unisono_unsubscribe(struct unisono_client *client, uint32_t number);

// The next event or notice, which the program frees with unisono_event_free. UNISONO_STATUS_TIMED_OUT: none
// came within `timeout_ns` nanoseconds, and `*event` is NULL; 0 does not wait, below 0 waits for ever.
enum unisono_status unisono_receive(struct unisono_client *client,
                                    int64_t timeout_ns,
                                    struct unisono_event **event);

// Frees what unisono_receive or unisono_ask gave, and sets `*event` to NULL. Also after the connection
// was closed, and in another thread.
enum unisono_status unisono_event_free(struct unisono_event **event);

// Says that an event is done with, so that it does not come again. Does nothing for an event without
// UNISONO_EVENT_ACKNOWLEDGE.
enum unisono_status unisono_acknowledge(struct unisono_client *client,
                                        const struct unisono_event *event);

// Joins the job that `unisono run` started this process for. A process that nobody launched is a job of one.
// Collective: waits until all ranks have come, at most `patience_s` seconds (0 or less: one minute).
enum unisono_status unisono_job_join(struct unisono_job **job,
                                     double patience_s);

// This rank's number, from 0; -1 if `job` is NULL.
int unisono_job_rank(const struct unisono_job *job);

// How many ranks the job has; -1 if `job` is NULL.
int unisono_job_size(const struct unisono_job *job);

// Waits until every rank has called this. Collective.
enum unisono_status unisono_job_barrier(struct unisono_job *job);

// Gathers `bytes` bytes of every rank at every rank. `all` has room for `bytes` times the job's size, and
// holds the data in the order of ranks. Every rank passes the same `bytes`. Collective; not made to be fast.
enum unisono_status unisono_job_gather(struct unisono_job *job,
                                       const void *data,
                                       size_t bytes,
                                       void *all);

// Leaves the job and sets `*job` to NULL. Free its windows first. Collective.
enum unisono_status unisono_job_finalize(struct unisono_job **job);

// The layout of one element; `element` is one of unisono_element. NULL for another number. The layout is
// never freed.
const struct unisono_layout *unisono_layout_of(int element);

// A layout of `count` blocks of `length` elements each. `stride` elements lie between the starts of two
// blocks.
enum unisono_status unisono_layout_strided(int element,
                                           uint64_t count,
                                           uint64_t length,
                                           int64_t stride,
                                           struct unisono_layout **layout);

// A layout of blocks: block i has `lengths[i]` elements and begins `offsets[i]` elements after the buffer's
// address. Data travels in this order.
enum unisono_status unisono_layout_indexed(int element,
                                           size_t blocks,
                                           const int64_t *offsets,
                                           const uint64_t *lengths,
                                           struct unisono_layout **layout);

// A layout of any runs of bytes, such as those of a struct, in the order in which data travels. `extent` is
// the distance in bytes from one such layout to the next where a count repeats it. `element` is the type
// that all data is made of, which accumulates need. Pass 0 if the data has no single element type.
enum unisono_status unisono_layout_runs(const struct unisono_run *runs,
                                        size_t count,
                                        int64_t extent,
                                        int element,
                                        struct unisono_layout **layout);

// Bytes of data in one instance of this layout; 0 for NULL.
uint64_t unisono_layout_size(const struct unisono_layout *layout);

// Bytes from one element of this layout to the next; 0 for NULL.
int64_t unisono_layout_extent(const struct unisono_layout *layout);

// Frees a layout and sets `*layout` to NULL. Operations that use it may still be running.
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

// Combines origin data into the target, each element atomically; `operation` is one of unisono_operation.
enum unisono_status unisono_accumulate(struct unisono_window *window,
                                       const void *origin,
                                       uint64_t origin_count,
                                       const struct unisono_layout *origin_layout,
                                       int target,
                                       int64_t displacement,
                                       uint64_t target_count,
                                       const struct unisono_layout *target_layout,
                                       int operation);

// As accumulate, and stores what the target held before in `result`. The no-op ignores the origin, which may
// be NULL.
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

// As put, in a passive epoch. `*request` then tells when the operation is complete at the origin; with NULL
// a flush does.
enum unisono_status unisono_rput(struct unisono_window *window,
                                 const void *origin,
                                 uint64_t origin_count,
                                 const struct unisono_layout *origin_layout,
                                 int target,
                                 int64_t displacement,
                                 uint64_t target_count,
                                 const struct unisono_layout *target_layout,
                                 struct unisono_request **request);

// As get, in a passive epoch. `*request` then tells when the operation is complete at the origin; with NULL
// a flush does.
enum unisono_status unisono_rget(struct unisono_window *window,
                                 void *origin,
                                 uint64_t origin_count,
                                 const struct unisono_layout *origin_layout,
                                 int target,
                                 int64_t displacement,
                                 uint64_t target_count,
                                 const struct unisono_layout *target_layout,
                                 struct unisono_request **request);

// As accumulate, in a passive epoch. `*request` then tells when the operation is complete at the origin;
// if `request` is NULL, call a flush to complete it.
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

// As get_accumulate, in a passive epoch. `*request` then tells when the operation is complete at the origin;
// if `request` is NULL, call a flush to complete it.
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

// get_accumulate of one element; `element` is one of unisono_element.
enum unisono_status unisono_fetch_and_op(struct unisono_window *window,
                                         const void *origin,
                                         void *result,
                                         int element,
                                         int target,
                                         int64_t displacement,
                                         int operation);

// Stores what the target holds in `result`, and writes the origin's element there if the target held
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

// Sets `*done` to 1 if the operation is complete at the origin, and `*request` then to NULL; else `*done` to
// 0.
enum unisono_status unisono_request_test(struct unisono_window *window,
                                         struct unisono_request **request,
                                         int *done);

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

// Sets `*done` to 1 if every origin has called complete, which ends the exposure epoch; else to 0. Does not
// wait.
enum unisono_status unisono_window_test(struct unisono_window *window,
                                        int *done);

// Begins a passive access epoch to `target`; `lock` is one of unisono_lock. May return before this rank has
// the lock; the operations wait for it.
enum unisono_status unisono_window_lock(struct unisono_window *window,
                                        int lock,
                                        int target,
                                        int assert);

// Ends the passive epoch to `target`: its operations are complete at the origin. When they are complete at
// the target: unisono_window_settle.
enum unisono_status unisono_window_unlock(struct unisono_window *window,
                                          int target);

// Begins a passive access epoch to all ranks, with a shared lock at each.
enum unisono_status unisono_window_lock_all(struct unisono_window *window, int assert);

// Ends the passive epoch that lock_all began: its operations are complete at the origin. When they are
// complete at the targets: unisono_window_settle.
enum unisono_status unisono_window_unlock_all(struct unisono_window *window);

// Completes all operations to `target` at origin and target; the epoch goes on.
enum unisono_status unisono_window_flush(struct unisono_window *window, int target);

// As flush, for every target.
enum unisono_status unisono_window_flush_all(struct unisono_window *window);

// Completes all operations to `target` at the origin: the program may use its buffers again, results have
// come.
enum unisono_status unisono_window_flush_local(struct unisono_window *window,
                                               int target);

// As flush_local, for every target.
enum unisono_status unisono_window_flush_local_all(struct unisono_window *window);

// In a passive epoch: makes this rank's loads and stores and other ranks' operations on its part see each
// other.
enum unisono_status unisono_window_sync(struct unisono_window *window);

// Applies what other ranks have sent, and sends what this rank holds back. Never waits.
enum unisono_status unisono_window_progress(struct unisono_window *window);

// Waits until every operation of passive epochs that have ended is complete at its target. Needs no epoch.
// Where windows work by messages, an exclusive unlock returns before its target has done the operations.
// Ranks that lock the part afterwards, or that learn of the unlock through calls of this job, find the
// operations done. Call this before you tell another rank by other means, such as a pipe.
enum unisono_status unisono_window_settle(struct unisono_window *window);

// Makes a window over zeroed memory of the library's: `bytes` bytes at this rank, which other ranks need not
// match. `*base` becomes their address. Collective.
enum unisono_status unisono_window_allocate(struct unisono_job *job,
                                            uint64_t bytes,
                                            const struct unisono_spec *spec,
                                            void **base,
                                            struct unisono_window **window);

// Makes a window over `bytes` bytes of the program's memory at `base`, which stay valid until the window is
// freed. Collective.
enum unisono_status unisono_window_create(struct unisono_job *job,
                                          void *base,
                                          uint64_t bytes,
                                          const struct unisono_spec *spec,
                                          struct unisono_window **window);

// Makes a window without memory: ranks attach memory later. Displacements are addresses. Collective.
enum unisono_status unisono_window_dynamic(struct unisono_job *job,
                                           const struct unisono_spec *spec,
                                           struct unisono_window **window);

// Attaches memory of this rank to a dynamic window. It stays valid until the program detaches it.
enum unisono_status unisono_window_attach(struct unisono_window *window,
                                          void *address,
                                          size_t bytes);

// Detaches memory, by the address at which the program attached it.
enum unisono_status unisono_window_detach(struct unisono_window *window, void *address);

// Where the part of rank `rank` lies in this process, how many bytes it has, and its displacement unit; each
// pointer may be NULL. `*base` becomes NULL if this process does not map the part.
enum unisono_status unisono_window_mapped(struct unisono_window *window,
                                          int rank,
                                          void **base,
                                          uint64_t *bytes,
                                          uint32_t *unit);

// Frees the window and sets `*window` to NULL. Collective: waits for all ranks. Inside an epoch it is an
// error, and the window stays.
enum unisono_status unisono_window_free(struct unisono_window **window);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UNISONO_H */
