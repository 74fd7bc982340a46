/*
 * What the Rust core offers to the shim: the engine's jobs, windows and types behind plain C. The core knows
 * no MPI: handles, sentinels and error handlers are the shim's. Declared again in src/, where a test compares
 * both.
 *
 * Functions that can fail answer 0 or the class of the error (enum core_class); core_last_error() has the
 * words.
 */
#ifndef UNISONO_MPI_CORE_H
#define UNISONO_MPI_CORE_H

#include <stddef.h>
#include <stdint.h>

/* Error classes of the standard, by this project's numbers. */
enum core_class {
	CORE_OK,
	CORE_ARG,
	CORE_ASSERT,
	CORE_COUNT,
	CORE_DISP,
	CORE_OP,
	CORE_OTHER,
	CORE_RANK,
	CORE_RMA_ATTACH,
	CORE_RMA_CONFLICT,
	CORE_RMA_FLAVOR,
	CORE_RMA_RANGE,
	CORE_RMA_SYNC,
	CORE_SIZE,
	CORE_TYPE,
	CORE_UNSUPPORTED,
	CORE_WIN,
	CORE_GONE,   /* a rank is gone: the words name it; the standard has no class for it */
	CORE_NO_MEM, /* a limit of descriptors, mappings or memory */
};

/* Not errors: with a patience, calls that wait for another rank's next call are to be repeated. */
enum core_repeat {
	CORE_AGAIN = -1, /* nothing was changed: the same call again */
	CORE_UNFINISHED =
		-2, /* a request-based form was issued: core_flush_local until it answers something else */
};

/* Elements that accumulates know; 0 for data that only moves. The engine's codes. */
enum core_element {
	CORE_OPAQUE,
	CORE_BYTE,
	CORE_I8,
	CORE_I16,
	CORE_I32,
	CORE_I64,
	CORE_U8,
	CORE_U16,
	CORE_U32,
	CORE_U64,
	CORE_F32,
	CORE_F64,
	CORE_COMPLEX32,
	CORE_COMPLEX64,
	CORE_BOOL,
	CORE_F32_INT,
	CORE_F64_INT,
	CORE_INT_INT,
	CORE_LONG_INT,
	CORE_SHORT_INT,
	CORE_LONG_DOUBLE,
	CORE_COMPLEX_LONG,
	CORE_LONG_DOUBLE_INT,
	CORE_F32_F32,
	CORE_F64_F64,
	CORE_BITS128,
	CORE_BITS256,
};

/* Operations; the engine's codes. */
enum core_operation {
	CORE_SUM = 1,
	CORE_PRODUCT,
	CORE_MIN,
	CORE_MAX,
	CORE_LAND,
	CORE_LOR,
	CORE_LXOR,
	CORE_BAND,
	CORE_BOR,
	CORE_BXOR,
	CORE_REPLACE,
	CORE_NO_OP,
	CORE_MINLOC,
	CORE_MAXLOC,
};

/* Asserts; the engine's bits. */
enum core_assert {
	CORE_NO_CHECK = 1,
	CORE_NO_STORE = 2,
	CORE_NO_PUT = 4,
	CORE_NO_PRECEDE = 8,
	CORE_NO_SUCCEED = 16,
};

/* Flags of a new window. */
enum core_flag {
	CORE_NO_LOCKS = 1,
	CORE_LOCAL_COMPLETION = 2,
};

/* How a type is made of others. */
enum core_combiner {
	CORE_CONTIGUOUS, /* integers: count */
	CORE_VECTOR,	 /* integers: count, length; addresses: stride in bytes */
	CORE_BLOCKS,   /* integers: length each; addresses: displacement in bytes each; one child, or one each
			*/
	CORE_SUBARRAY, /* integers: dimensions, sizes, parts, starts, order (0 C, 1 Fortran) */
	CORE_RESIZED,  /* the child as it is, with another extent */
};

struct core_job;
struct core_window;
struct core_type;

/* The MPI's messages, for jobs that leave the host. All answer 0 or an MPI error code. */
struct core_messages {
	void *context;
	int (*send)(void *context, int to, void *packet, size_t bytes, void **pending);
	int (*sent)(void *context, void **pending, int *done);
	int (*receive)(void *context, int *from, size_t *bytes, void **message);
	int (*take)(void *context, void **message, void *packet, size_t bytes);
};

const char *core_last_error(void);
int core_key(unsigned char key[16]);
int core_job_shared(int rank, int size, const unsigned char key[16], void (*progress)(void),
		    struct core_job **job);
int core_job_messages(int rank, int size, const struct core_messages *messages, struct core_job **job);
int core_job_barrier(struct core_job *job);
int core_job_finalize(struct core_job *job);
/* Stops the thread that serves others while this rank makes no call. */
void core_job_without_agent(struct core_job *job);

struct core_type *core_type_named(unsigned element, uint64_t bytes);
struct core_type *core_type_combine(unsigned combiner, int64_t extent, const int64_t *integers,
				    size_t integer_count, const int64_t *addresses, size_t address_count,
				    const struct core_type *const *children, size_t child_count);
struct core_type *core_type_traced(const int64_t *offsets, size_t count, int64_t extent, unsigned element);
unsigned core_type_element(const struct core_type *type);
/* The element, if the type is one of them and nothing else; 0 otherwise. */
unsigned core_type_single(const struct core_type *type);
void core_type_free(struct core_type *type);

int core_window_allocate(struct core_job *job, uint64_t bytes, uint32_t unit, unsigned flags,
			 struct core_window **window);
int core_window_create(struct core_job *job, void *base, uint64_t bytes, uint32_t unit, unsigned flags,
		       struct core_window **window);
int core_window_dynamic(struct core_job *job, unsigned flags, struct core_window **window);
int core_window_mapped(struct core_window *window, int rank, void **base, uint64_t *bytes, uint32_t *unit);
/* How long calls at the windows of this one's job wait at most before they answer CORE_AGAIN; at first
 * forever. */
void core_window_patience(const struct core_window *window, uint64_t nanoseconds);
int core_window_attach(struct core_window *window, void *base, uint64_t bytes);
int core_window_detach(struct core_window *window, const void *base);
/* Whether it can be freed now: no epoch is open. */
int core_window_freeable(struct core_window *window);
/* Frees it unless that is an error; `label` is for the statistics. */
int core_window_free(struct core_window *window, const char *label);
/* The statistics of a window that is never freed. */
void core_window_counted(struct core_window *window, const char *label);
/* The table of all windows: whether one is wanted; this process's part as bytes, taken once; the sum of all
 * parts, which lie one after the other, printed; and this process's part alone, printed unless it was taken. */
int core_statistics_wanted(void);
const unsigned char *core_statistics_take(size_t *bytes);
void core_statistics_print(const unsigned char *all, const int *lengths, size_t ranks);
void core_statistics_alone(int rank, const char *why);

int core_put(struct core_window *window, const void *origin, int64_t origin_count,
	     const struct core_type *origin_type, int rank, int64_t place, int64_t target_count,
	     const struct core_type *target_type);
int core_get(struct core_window *window, void *origin, int64_t origin_count,
	     const struct core_type *origin_type, int rank, int64_t place, int64_t target_count,
	     const struct core_type *target_type);
int core_accumulate(struct core_window *window, const void *origin, int64_t origin_count,
		    const struct core_type *origin_type, int rank, int64_t place, int64_t target_count,
		    const struct core_type *target_type, unsigned operation);
int core_get_accumulate(struct core_window *window, const void *origin, int64_t origin_count,
			const struct core_type *origin_type, void *result, int64_t result_count,
			const struct core_type *result_type, int rank, int64_t place, int64_t target_count,
			const struct core_type *target_type, unsigned operation);
int core_fetch_and_op(struct core_window *window, const void *origin, void *result, unsigned element,
		      int rank, int64_t place, unsigned operation);
int core_compare_and_swap(struct core_window *window, const void *origin, const void *compare, void *result,
			  unsigned element, int rank, int64_t place);

/* The request-based forms: complete at the origin when they return. */
int core_rput(struct core_window *window, const void *origin, int64_t origin_count,
	      const struct core_type *origin_type, int rank, int64_t place, int64_t target_count,
	      const struct core_type *target_type);
int core_rget(struct core_window *window, void *origin, int64_t origin_count,
	      const struct core_type *origin_type, int rank, int64_t place, int64_t target_count,
	      const struct core_type *target_type);
int core_raccumulate(struct core_window *window, const void *origin, int64_t origin_count,
		     const struct core_type *origin_type, int rank, int64_t place, int64_t target_count,
		     const struct core_type *target_type, unsigned operation);
int core_rget_accumulate(struct core_window *window, const void *origin, int64_t origin_count,
			 const struct core_type *origin_type, void *result, int64_t result_count,
			 const struct core_type *result_type, int rank, int64_t place, int64_t target_count,
			 const struct core_type *target_type, unsigned operation);

int core_fence(struct core_window *window, unsigned assert);
int core_post(struct core_window *window, const int *ranks, size_t count, unsigned assert);
int core_start(struct core_window *window, const int *ranks, size_t count, unsigned assert);
int core_complete(struct core_window *window);
int core_wait(struct core_window *window);
int core_test(struct core_window *window, int *done);
int core_lock(struct core_window *window, int rank, int exclusive, unsigned assert);
int core_unlock(struct core_window *window, int rank);
int core_lock_all(struct core_window *window, unsigned assert);
int core_unlock_all(struct core_window *window);
int core_flush(struct core_window *window, int rank);
int core_flush_all(struct core_window *window);
int core_flush_local(struct core_window *window, int rank);
int core_flush_local_all(struct core_window *window);
int core_sync(struct core_window *window);

#endif
