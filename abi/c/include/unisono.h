/* One-sided windows of Unisono, for C and C++. Made by cbindgen from abi/c/src; do not edit.
 *
 * Every call that can fail returns a unisono_status; unisono_error_text() then says what went wrong and what to do
 * about it. Handles are used by one thread at a time. Calls have the meaning of their namesakes in MPI-4.0,
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

// Post, start, lock: the other side has made its matching call before, or no conflicting lock is asked for.
#define UNISONO_ASSERT_NO_CHECK 1

// Fence, post: the local part was not written by local stores since the last one.
#define UNISONO_ASSERT_NO_STORE 2

// Fence, post: nobody puts or accumulates into the local part until the next one.
#define UNISONO_ASSERT_NO_PUT 4

// Fence: no operations since the last fence; on all ranks or on none.
#define UNISONO_ASSERT_NO_PRECEDE 8

// Fence: no operations until the next fence; on all ranks or on none.
#define UNISONO_ASSERT_NO_SUCCEED 16

// Locks are never used on this window: no agent thread, and lock calls are errors.
#define UNISONO_NO_LOCKS 1

// Unlock completes at the origin only; at the target with the next flush or collective call.
#define UNISONO_LOCAL_COMPLETION 2

// What a call answers.
typedef enum unisono_status {
        // It is done.
        UNISONO_STATUS_OK = 0,
        // An argument makes no sense: a null pointer, or a number that means nothing here.
        UNISONO_STATUS_ARG = 1,
        // Promises that contradict each other or the call.
        UNISONO_STATUS_ASSERT = 2,
        // A count that overflows.
        UNISONO_STATUS_COUNT = 3,
        // A negative displacement.
        UNISONO_STATUS_DISP = 4,
        // The operation is not defined for these elements, or not for this call.
        UNISONO_STATUS_OP = 5,
        // No such rank, or one that is not in this epoch's group.
        UNISONO_STATUS_RANK = 6,
        // Memory cannot be attached or detached.
        UNISONO_STATUS_RMA_ATTACH = 7,
        // A lock is held, or conflicts.
        UNISONO_STATUS_RMA_CONFLICT = 8,
        // The call does not fit the kind of window.
        UNISONO_STATUS_RMA_FLAVOR = 9,
        // Outside the target's window. Nothing was written.
        UNISONO_STATUS_RMA_RANGE = 10,
        // Outside the epoch that the call needs.
        UNISONO_STATUS_RMA_SYNC = 11,
        // A size that no window can have.
        UNISONO_STATUS_SIZE = 12,
        // Both sides disagree about the data, or a layout cannot be used here.
        UNISONO_STATUS_TYPE = 13,
        // This build, host or job cannot do it.
        UNISONO_STATUS_UNSUPPORTED = 14,
        // The window has been freed.
        UNISONO_STATUS_WIN = 15,
        // A rank is gone; the job cannot go on.
        UNISONO_STATUS_GONE = 16,
        // Not in time.
        UNISONO_STATUS_TIMED_OUT = 17,
        // The kernel refused.
        UNISONO_STATUS_SYSTEM = 18,
        // A mistake in the library itself.
        UNISONO_STATUS_INTERNAL = 19,
        UNISONO_STATUS_OTHER = 20,
        // A limit is reached: of mappings, of memory, or of descriptors.
        UNISONO_STATUS_NO_MEM = 21,
        // Nothing was done, and the same call is to be made again. Only for bindings that give windows a
        // patience.
        UNISONO_STATUS_AGAIN = 22,
} unisono_status;

// The predefined types of elements.
typedef enum unisono_element {
        // Raw bytes: replace and bitwise operations.
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
        // `bool`: logical operations.
        UNISONO_ELEMENT_BOOL = 14,
        // `struct { float value; int place; }`
        UNISONO_ELEMENT_F32_INT = 15,
        // `struct { double value; int place; }`
        UNISONO_ELEMENT_F64_INT = 16,
        // `struct { int value; int place; }`
        UNISONO_ELEMENT_INT_INT = 17,
        // `struct { long value; int place; }`
        UNISONO_ELEMENT_LONG_INT = 18,
        // `struct { short value; int place; }`
        UNISONO_ELEMENT_SHORT_INT = 19,
        // `long double` of x86-64.
        UNISONO_ELEMENT_LONG_DOUBLE = 20,
        // `long double complex` of x86-64.
        UNISONO_ELEMENT_COMPLEX_LONG = 21,
        // `struct { long double value; int place; }` of x86-64
        UNISONO_ELEMENT_LONG_DOUBLE_INT = 22,
        // `struct { float value, place; }`
        UNISONO_ELEMENT_F32F32 = 23,
        // `struct { double value, place; }`
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
        // Both nonzero: 1, else 0.
        UNISONO_OPERATION_LOGICAL_AND = 5,
        UNISONO_OPERATION_LOGICAL_OR = 6,
        // Exactly one nonzero.
        UNISONO_OPERATION_LOGICAL_XOR = 7,
        UNISONO_OPERATION_BIT_AND = 8,
        UNISONO_OPERATION_BIT_OR = 9,
        // Bitwise exclusive or.
        UNISONO_OPERATION_BIT_XOR = 10,
        // What is brought.
        UNISONO_OPERATION_REPLACE = 11,
        // What is there; for get_accumulate and fetch_and_op.
        UNISONO_OPERATION_NO_OP = 12,
        // The pair with the smaller value; of equal ones the smaller place.
        UNISONO_OPERATION_MIN_LOC = 13,
        // The pair with the greater value; of equal ones the smaller place.
        UNISONO_OPERATION_MAX_LOC = 14,
} unisono_operation;

// Kinds of locks.
typedef enum unisono_lock {
        // Others may hold it too, if shared.
        UNISONO_LOCK_SHARED = 1,
        // Nobody else holds it.
        UNISONO_LOCK_EXCLUSIVE = 2,
} unisono_lock;

// How synchronization is done.
typedef enum unisono_style {
        // Direct stores and flags where memory is shared; otherwise deferred.
        UNISONO_STYLE_DIRECT = 0,
        // The paper's protocol everywhere: all work in the second synchronization call.
        UNISONO_STYLE_DEFERRED = 1,
        // The naive forms that the paper describes, for comparison.
        UNISONO_STYLE_NAIVE = 2,
} unisono_style;

// One rank's membership in a job.
typedef struct unisono_job unisono_job;

// What memory looks like: elements in a row, strided, indexed, or any runs of bytes. May be used by several
// threads at a time.
typedef struct unisono_layout unisono_layout;

// An operation under way.
typedef struct unisono_request unisono_request;

// Memory that the members of a job access.
typedef struct unisono_window unisono_window;

// `count` blocks of `bytes` bytes, the first at `offset`, each `stride` bytes after the one before.
typedef struct unisono_run {
        // Of the first block, in bytes; may be negative.
        int64_t offset;
        // Of each block.
        uint64_t bytes;
        // From one block to the next, in bytes.
        int64_t stride;
        uint64_t count;
} unisono_run;

// What kind of window to make. All zero is the default, and so is a NULL pointer to it.
typedef struct unisono_spec {
        // Displacements into this rank's part count so many bytes; 0 means 1.
        uint32_t unit;
        // UNISONO_NO_LOCKS, UNISONO_LOCAL_COMPLETION; the same on all ranks.
        uint32_t flags;
        // One of unisono_style; the same on all ranks.
        int style;
} unisono_spec;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What went wrong in this thread's last call that failed, and what to do about it; never NULL. Valid until
// the next call of this thread that fails.
const char *unisono_error_text(void);

// The name of a status, such as "RMA_RANGE"; never NULL.
const char *unisono_status_name(int status);

// Joins the job that `unisono run` started this process for; a process that was started by itself is a job
// of one. Collective: waits until all have come, at most so many seconds (0 or less: a minute).
enum unisono_status unisono_job_join(struct unisono_job **job,
                                     double patience_s);

// This member's number; -1 without a job.
int unisono_job_rank(const struct unisono_job *job);

// How many members there are; -1 without a job.
int unisono_job_size(const struct unisono_job *job);

// Waits until every member has come here. Collective.
enum unisono_status unisono_job_barrier(struct unisono_job *job);

// Gathers `bytes` bytes of every member at every member, in the order of ranks: `all` has room for as many
// times the job's size. Every member gives as many. Collective; not a fast path.
enum unisono_status unisono_job_gather(struct unisono_job *job,
                                       const void *data,
                                       size_t bytes,
                                       void *all);

// Ends the membership in an orderly way, and sets `*job` to NULL. Free windows before. Collective.
enum unisono_status unisono_job_finalize(struct unisono_job **job);

// The layout of one element, one of unisono_element; NULL for another number. It exists for ever.
const struct unisono_layout *unisono_layout_of(int element);

// `count` blocks of `length` elements, `stride` elements from one block's begin to the next one's.
enum unisono_status unisono_layout_strided(int element,
                                           uint64_t count,
                                           uint64_t length,
                                           int64_t stride,
                                           struct unisono_layout **layout);

// Blocks of `lengths[i]` elements at `offsets[i]` elements, in this order.
enum unisono_status unisono_layout_indexed(int element,
                                           size_t blocks,
                                           const int64_t *offsets,
                                           const uint64_t *lengths,
                                           struct unisono_layout **layout);

// Any runs of bytes in the order in which data travels, as of a struct; `extent` bytes from one to the next.
// `element` is the one type that all data is made of, which accumulates need, or 0.
enum unisono_status unisono_layout_runs(const struct unisono_run *runs,
                                        size_t count,
                                        int64_t extent,
                                        int element,
                                        struct unisono_layout **layout);

// Bytes of data in one of these; 0 for NULL.
uint64_t unisono_layout_size(const struct unisono_layout *layout);

// Bytes from one of these to the next; 0 for NULL.
int64_t unisono_layout_extent(const struct unisono_layout *layout);

// Frees a layout and sets `*layout` to NULL. Operations that use it may still be under way.
enum unisono_status unisono_layout_free(struct unisono_layout **layout);

// Writes origin data to the target.
enum unisono_status unisono_put(struct unisono_window *window,
                                const void *origin,
                                uint64_t origin_count,
                                const struct unisono_layout *origin_layout,
                                int target,
                                int64_t place,
                                uint64_t target_count,
                                const struct unisono_layout *target_layout);

// Reads target data into origin memory.
enum unisono_status unisono_get(struct unisono_window *window,
                                void *origin,
                                uint64_t origin_count,
                                const struct unisono_layout *origin_layout,
                                int target,
                                int64_t place,
                                uint64_t target_count,
                                const struct unisono_layout *target_layout);

// Combines origin data into the target, each element atomically; `operation` is one of unisono_operation.
enum unisono_status unisono_accumulate(struct unisono_window *window,
                                       const void *origin,
                                       uint64_t origin_count,
                                       const struct unisono_layout *origin_layout,
                                       int target,
                                       int64_t place,
                                       uint64_t target_count,
                                       const struct unisono_layout *target_layout,
                                       int operation);

// As accumulate, and puts what was there before into `result`. The no-op ignores the origin, which may be
// NULL.
enum unisono_status unisono_get_accumulate(struct unisono_window *window,
                                           const void *origin,
                                           uint64_t origin_count,
                                           const struct unisono_layout *origin_layout,
                                           void *result,
                                           uint64_t result_count,
                                           const struct unisono_layout *result_layout,
                                           int target,
                                           int64_t place,
                                           uint64_t target_count,
                                           const struct unisono_layout *target_layout,
                                           int operation);

// Writes origin data to the target.
// In a passive epoch; `*request` says when it is complete at the origin. With NULL a flush says so.
enum unisono_status unisono_rput(struct unisono_window *window,
                                 const void *origin,
                                 uint64_t origin_count,
                                 const struct unisono_layout *origin_layout,
                                 int target,
                                 int64_t place,
                                 uint64_t target_count,
                                 const struct unisono_layout *target_layout,
                                 struct unisono_request **request);

// Reads target data into origin memory.
// In a passive epoch; `*request` says when it is complete at the origin. With NULL a flush says so.
enum unisono_status unisono_rget(struct unisono_window *window,
                                 void *origin,
                                 uint64_t origin_count,
                                 const struct unisono_layout *origin_layout,
                                 int target,
                                 int64_t place,
                                 uint64_t target_count,
                                 const struct unisono_layout *target_layout,
                                 struct unisono_request **request);

// Combines origin data into the target, each element atomically; `operation` is one of unisono_operation.
// In a passive epoch; `*request` says when it is complete at the origin. With NULL a flush says so.
enum unisono_status unisono_raccumulate(struct unisono_window *window,
                                        const void *origin,
                                        uint64_t origin_count,
                                        const struct unisono_layout *origin_layout,
                                        int target,
                                        int64_t place,
                                        uint64_t target_count,
                                        const struct unisono_layout *target_layout,
                                        int operation,
                                        struct unisono_request **request);

// As accumulate, and puts what was there before into `result`. The no-op ignores the origin, which may be
// NULL. In a passive epoch; `*request` says when it is complete at the origin. With NULL a flush says so.
enum unisono_status unisono_rget_accumulate(struct unisono_window *window,
                                            const void *origin,
                                            uint64_t origin_count,
                                            const struct unisono_layout *origin_layout,
                                            void *result,
                                            uint64_t result_count,
                                            const struct unisono_layout *result_layout,
                                            int target,
                                            int64_t place,
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
                                         int64_t place,
                                         int operation);

// Writes one element if what is there equals `compare`, and puts what was there into `result`. Elements are
// integers, bytes or bools.
enum unisono_status unisono_compare_and_swap(struct unisono_window *window,
                                             const void *origin,
                                             const void *compare,
                                             void *result,
                                             int element,
                                             int target,
                                             int64_t place);

// Waits until the operation is complete at the origin, and sets `*request` to NULL.
enum unisono_status unisono_request_wait(struct unisono_window *window,
                                         struct unisono_request **request);

// Whether the operation is complete at the origin (`*done` is 1); if so, `*request` becomes NULL.
enum unisono_status unisono_request_test(struct unisono_window *window,
                                         struct unisono_request **request,
                                         int *done);

// Ends the epoch that the last fence began, and begins the next. Collective.
enum unisono_status unisono_window_fence(struct unisono_window *window, int assert);

// Exposes this rank's part to these origins. Does not wait.
enum unisono_status unisono_window_post(struct unisono_window *window,
                                        const int *ranks,
                                        size_t count,
                                        int assert);

// Begins an access epoch to these targets. Does not wait.
enum unisono_status unisono_window_start(struct unisono_window *window,
                                         const int *ranks,
                                         size_t count,
                                         int assert);

// Ends the access epoch that start began.
enum unisono_status unisono_window_complete(struct unisono_window *window);

// Ends the exposure epoch that post began: waits until every origin has completed.
enum unisono_status unisono_window_wait(struct unisono_window *window);

// As wait, without waiting: whether the exposure epoch has ended (`*done` is 1).
enum unisono_status unisono_window_test(struct unisono_window *window, int *done);

// Begins a passive access epoch to `target`; `lock` is one of unisono_lock. Need not wait for the lock.
enum unisono_status unisono_window_lock(struct unisono_window *window,
                                        int lock,
                                        int target,
                                        int assert);

// Ends it; all its operations are complete at origin and target.
enum unisono_status unisono_window_unlock(struct unisono_window *window, int target);

// Begins a shared passive access epoch to everybody.
enum unisono_status unisono_window_lock_all(struct unisono_window *window, int assert);

enum unisono_status unisono_window_unlock_all(struct unisono_window *window);

// Completes all operations to `target` at origin and target; the epoch goes on.
enum unisono_status unisono_window_flush(struct unisono_window *window, int target);

// As flush, for every target.
enum unisono_status unisono_window_flush_all(struct unisono_window *window);

// Completes all operations to `target` at the origin: buffers may be used again, results have come.
enum unisono_status unisono_window_flush_local(struct unisono_window *window, int target);

// As flush_local, for every target.
enum unisono_status unisono_window_flush_local_all(struct unisono_window *window);

// Makes local loads and stores and others' operations on this rank's part see each other; in a passive
// epoch.
enum unisono_status unisono_window_sync(struct unisono_window *window);

// Makes progress: applies what others have sent, sends what waits. Never waits.
enum unisono_status unisono_window_progress(struct unisono_window *window);

// Waits until every operation of passive epochs that have ended is complete at its target; needs no epoch.
// Over messages an exclusive unlock does not wait for its target. Whoever locks next finds the operations
// done, and so does everybody who learns of them by this job's calls; before telling others by any other
// means, call this.
enum unisono_status unisono_window_settle(struct unisono_window *window);

// A window over zeroed memory of the library's, `bytes` here (members may differ); `*base` is where.
// Collective.
enum unisono_status unisono_window_allocate(struct unisono_job *job,
                                            uint64_t bytes,
                                            const struct unisono_spec *spec,
                                            void **base,
                                            struct unisono_window **window);

// A window over the caller's memory, which stays valid until the window is freed. Collective.
enum unisono_status unisono_window_create(struct unisono_job *job,
                                          void *base,
                                          uint64_t bytes,
                                          const struct unisono_spec *spec,
                                          struct unisono_window **window);

// A window to which memory is attached later; displacements are addresses. Collective.
enum unisono_status unisono_window_dynamic(struct unisono_job *job,
                                           const struct unisono_spec *spec,
                                           struct unisono_window **window);

// Attaches memory to a dynamic window; it stays valid until it is detached.
enum unisono_status unisono_window_attach(struct unisono_window *window,
                                          void *address,
                                          size_t bytes);

// Detaches memory, by the address it was attached with.
enum unisono_status unisono_window_detach(struct unisono_window *window, void *address);

// Where the part of rank `rank` lies in this process, how long it is, and its unit; each pointer may be
// NULL. `*base` becomes NULL where the part is out of reach.
enum unisono_status unisono_window_mapped(struct unisono_window *window,
                                          int rank,
                                          void **base,
                                          uint64_t *bytes,
                                          uint32_t *unit);

// Frees the window and sets `*window` to NULL. Collective, and waits for everybody. Fails inside an epoch,
// and the window stays.
enum unisono_status unisono_window_free(struct unisono_window **window);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UNISONO_H */
