/* One-sided windows of Unisono, for C and C++. Made by cbindgen from abi/c/src; do not edit.
 *
 * Every call that can fail returns a unisono_status, except those that return a pointer or a number.
 * unisono_error_text() then says what went wrong and what to do about it. Job, window and request handles are used
 * by one thread at a time. Calls have the meaning of their namesakes in MPI-4.0,
 * chapter 12; those marked "collective" are made by every member of the job, in the same order.
 *
 *	unisono_job *job;
 *	unisono_window *window;
 *	double *mine;
 *	const unisono_layout *real = unisono_layout_of(UNISONO_ELEMENT_F64);
 *
 *	unisono_job_join(&job, 10.0);
 *	unisono_window_allocate(job, 8, NULL, (void **)&mine, &window);
 *	unisono_window_fence(window, UNISONO_ASSERT_NO_PRECEDE);
 *	unisono_put(window, &value, 1, real, target, 0, 1, real);
 *	unisono_window_fence(window, UNISONO_ASSERT_NO_SUCCEED);
 *	unisono_window_free(&window);
 *	unisono_job_finalize(&job);
 *
 * Start the program with: unisono run -n 4 ./program
 */


#ifndef UNISONO_H
#define UNISONO_H

#include <stddef.h>
#include <stdint.h>

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
        // A size that no window can have.
        UNISONO_STATUS_SIZE = 12,
        // Origin and target disagree about the data, or a layout cannot be used here.
        UNISONO_STATUS_TYPE = 13,
        // This build, host or job cannot do it.
        UNISONO_STATUS_UNSUPPORTED = 14,
        // The window has been freed.
        UNISONO_STATUS_WIN = 15,
        // A rank is gone; the job cannot go on.
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

// One rank's membership in a job: the ranks that make windows together.
typedef struct unisono_job unisono_job;

// Where the data of a transfer lies: elements in a row, strided, indexed, or any runs of bytes. Several
// threads may use one layout at the same time.
typedef struct unisono_layout unisono_layout;

// An operation that may not be complete yet.
typedef struct unisono_request unisono_request;

// Memory of each member of a job that the other members read and write.
typedef struct unisono_window unisono_window;

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
