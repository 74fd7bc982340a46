/*
 * The shim: every one-sided call of the host's MPI, implemented with libunisono. Handles differ between ABIs,
 * so the shim is compiled once for each ABI with that ABI's mpi.h in ../bridges; each result is a bridge.
 *
 * Names. A bridge defines MPI_X; the preload, which the program calls, sends both MPI_X and PMPI_X there. So
 * calls from Fortran bindings (which call either) and from tools that wrap MPI_X arrive here too. The shim
 * reaches the host's own function of such a name through host(). It calls functions that it does not override
 * as PMPI_X (host.c).
 *
 * Layers. A file calls only files of the lines above its own, and those before it in its line:
 *	launcher.c, host.c, process.c, memory.c: the process, the host MPI, shared memory
 *	store.c, agreement.c, served.c, spawn.c: whether all members of a communicator are served
 *	kinds.c, types.c, handles.c, statistics.c, abort.c, errors.c: handles and errors
 *	jobs.c, hints.c, attributes.c, requests.c, windows.c, synchronize.c, communicate.c: one-sided calls
 *	fortran.c: one-sided calls of Fortran
 *	host_ranks.c, giving_way.c, orders.c, comm_records.c, waitall.c, files.c, waits.c, tests.c: waits
 *	sends.c, collectives.c: sends and collectives that wait (waiting.h)
 *	tree.c, barrier.c, init.c: MPI_Barrier, MPI_Init and MPI_Finalize
 */
#ifndef UNISONO_MPI_SHIM_H
#define UNISONO_MPI_SHIM_H

#define _GNU_SOURCE
#include "launcher.h"
#include "unisono_mpi.h"
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#if defined(OPEN_MPI)
#define HOST_OPEN_MPI 1
#define HOST_MPICH 0
#define HOST_STANDARD 0
#elif defined(MPICH)
#define HOST_OPEN_MPI 0
#define HOST_MPICH 1
#define HOST_STANDARD 0
#elif defined(UNISONO_STANDARD_ABI)
#define HOST_OPEN_MPI 0
#define HOST_MPICH 0
#define HOST_STANDARD 1
#else
#error "only MPICH (and its relatives), Open MPI and the standard ABI are known"
#endif

#define PUBLIC __attribute__((visibility("default")))
/* Defines MPI_name for calls of both MPI_name and PMPI_name; entry/names.h has to list the name. */
#define BOTH(type, name, arguments)                                                                          \
	PUBLIC type MPI_##name arguments;                                                                    \
	type MPI_##name arguments

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
/* For a window of the host's (kinds.c): the host's function of the same name. */
#define OF_HOST(name) ((__typeof__(&MPI_##name))host("PMPI_" #name))
#define TO_HOST(name, win, arguments)                                                                        \
	do {                                                                                                 \
		if (UNLIKELY(host_has_windows) && !window_of(win))                                           \
			return OF_HOST(name) arguments;                                                      \
	} while (0)
/* The host's function for a call that makes a window. */
#define MADE_BY_HOST(name, info, comm, arguments)                                                            \
	do {                                                                                                 \
		if (UNLIKELY(window_is_the_hosts(info, comm)))                                               \
			return OF_HOST(name) arguments;                                                      \
	} while (0)
/* For a body that serves several calls, so that each call is as fast as if written out. */
#define INLINE static inline __attribute__((always_inline))

/* process.c */
extern bool many_threads; /* MPI_THREAD_MULTIPLE: each use of a window locks it */
void setup(void);
void warn_once(const char *words);
void await_launcher(void);
void progress(void);
bool messages_forced(void);
bool agent_possible(void);
bool agent_disabled(void);
int threads_to_request(int required);
bool threads_missing(void);

/* store.c */
bool store_begin(void);
bool store_is_of_one_host(void);
bool store_put(const char *key, const char *text);
bool store_published(void);
bool store_find(const char *key, int rank, char *text, size_t bytes);

/* agreement.c */
void agreement_publish(void);
void agreement_begin(void);
bool agreement_of(const int *ranks, int count);
bool agreement_is_partly(void);
MPI_Comm agreement_world(void);

/* served.c */
bool comm_is_served(MPI_Comm comm);
void comm_has_served_children(MPI_Comm comm);

/* jobs.c: state that the members of a communicator share */
struct job {
	unisono_job *core;
	unisono_window *gate;	    /* without bytes: its fences are the barriers; NULL before the first */
	unisono_mpi_server *server; /* NULL before the first window with locks that reaches other hosts */
	MPI_Comm messages; /* a private duplicate, for jobs that reach other hosts; else MPI_COMM_NULL */
	int rank, size;
	bool one_host;
	bool waits_serve;      /* all members can serve windows in their waits; set only if !one_host */
	_Atomic int users;     /* windows, plus one while the communicator lives */
	unsigned char key[16]; /* random, the same at all members; orders jobs alike at all ranks */
	struct job *next;
};

bool job_is_the_hosts(MPI_Comm comm);
int job_of(MPI_Comm comm, struct job **job);
int job_release(struct job *job);
unisono_status job_barrier(struct job *job);
void jobs_stop_agents(void);
void jobs_at_finalize(void);
bool jobs_have_ended(void);
void job_is_locked(struct job *job);
bool job_serves(MPI_Comm comm);

/* tree.c: the members of a communicator on several hosts */
struct tree;
bool tree_wanted(void);
int tree_of(MPI_Comm comm, struct tree **tree, bool *one_host);
void tree_release(struct tree *tree);
int tree_barrier(struct tree *tree, const char **words);

/* errors.c */
struct handler {
	MPI_Errhandler handle;
	struct handler_record *record; /* NULL for the predefined handlers */
};

/* attributes.c */
struct attribute;

/* handles.c: the window of a handle */
struct window {
	unisono_window *core;
	struct job *job;
	MPI_Win handle;
	MPI_Group group;
	void *base;
	MPI_Aint bytes;
	int unit, flavor, model;
	bool no_locks, local_completion, by_messages, settle_unlocks, noncontiguous;
	bool lock_is_held; /* lock calls return with the lock: the program loads and stores in other parts */
	char accumulate_ordering[32], accumulate_ops[32], same_size[8], same_disp_unit[8];
	char granularity[24];			      /* mpi_accumulate_granularity; empty: not set */
	char no_locks_hint[8], noncontiguous_hint[8]; /* the values that the program set last */
	void *memory;				      /* of a contiguous shared window: all parts */
	size_t memory_bytes;
	void **shared_bases; /* of a shared window, by rank */
	MPI_Aint *shared_bytes;
	int *shared_units;
	char name[MPI_MAX_OBJECT_NAME];
	struct attribute *attributes;
	struct handler handler;
	pthread_mutex_t mutex, turn; /* turn: held by the thread that gets the mutex next */
	bool contended;
};

enum { MAX_WINDOWS = 1 << 16 };
extern struct window *_Atomic slots[MAX_WINDOWS];

#if !HOST_MPICH
/* A handle is a pointer into our table, so whether a handle is ours is known without reading memory. */
static inline size_t slot_of(MPI_Win win)
{
	return ((uintptr_t)win - (uintptr_t)slots) / sizeof *slots;
}
static inline MPI_Win handle_of(size_t slot)
{
	return (MPI_Win)(void *)&slots[slot];
}
#else
/* A handle is a number: of MPICH's kind for windows, from a block that MPICH does not use. */
enum { FIRST_HANDLE = (int)0xaf000000 };
static inline size_t slot_of(MPI_Win win)
{
	return (size_t)((unsigned)win - (unsigned)FIRST_HANDLE);
}
static inline MPI_Win handle_of(size_t slot)
{
	return (MPI_Win)((unsigned)FIRST_HANDLE + slot);
}
#endif

/* Finds the window of a handle; NULL if the handle is not ours or its window was freed. */
static inline struct window *window_of(MPI_Win win)
{
	size_t slot = slot_of(win);

	return LIKELY(slot < MAX_WINDOWS) ? atomic_load_explicit(&slots[slot], memory_order_relaxed) : NULL;
}
int window_register(struct window *window);
void window_unregister(struct window *window);
void window_set_slice(struct window *window);
enum { WINDOW_LABEL = MPI_MAX_OBJECT_NAME + 64 };
void window_label(const struct window *window, const char *more, char label[WINDOW_LABEL]);
void windows_enter_statistics(bool now); /* enters windows that were never freed into the statistics */

void window_enter(struct window *window);
static inline void enter(struct window *window)
{
	if (UNLIKELY(many_threads))
		window_enter(window);
}
static inline void leave(struct window *window)
{
	if (UNLIKELY(many_threads))
		pthread_mutex_unlock(&window->mutex);
}

/*
 * Leaves the window after a call of the library; returns whether the call has to be repeated. With several
 * threads the library waits for other ranks in slices. Between slices other threads of this rank get their
 * turn, because the wait may depend on them.
 */
static inline bool leave_to_repeat(struct window *window, unisono_status status)
{
	if (LIKELY(!many_threads))
		return false;
	pthread_mutex_unlock(&window->mutex);
	return status == UNISONO_STATUS_AGAIN;
}

/* kinds.c */
extern bool host_has_windows;
bool kinds_are_the_hosts(MPI_Info info, MPI_Comm comm);

/* types.c: the layouts of a datatype */
struct type {
	MPI_Datatype handle;
	unisono_layout *layout; /* for accumulates: elements with their padding */
	unisono_layout *moved;	/* for puts and gets: data alone; the same layout if there is no padding */
};
enum { TYPE_SLOTS = 1024 };
extern struct type *_Atomic types[TYPE_SLOTS];
const struct type *type_described(MPI_Datatype handle);

static inline size_t type_slot(MPI_Datatype handle)
{
	uintptr_t number = (uintptr_t)handle;

	return (number ^ number >> 6 ^ number >> 16) % TYPE_SLOTS;
}
/* NULL if the datatype has no layout (MPI_ERR_TYPE). */
static inline const struct type *type_of(MPI_Datatype handle)
{
	const struct type *type = atomic_load_explicit(&types[type_slot(handle)], memory_order_acquire);

	return LIKELY(type && type->handle == handle) ? type : type_described(handle);
}
static inline const unisono_layout *layout_of(MPI_Datatype handle)
{
	const struct type *type = type_of(handle);

	return LIKELY(type) ? type->layout : NULL;
}

/* memory.c */
enum { MEMORY_PLACE_BYTES = 96 };
int memory_offer(size_t bytes, char place[MEMORY_PLACE_BYTES]);
void memory_withdraw(int descriptor, const char *place);
void *memory_accept(const char *place, size_t bytes);
void *memory_share(MPI_Comm comm, size_t bytes);
void memory_unshare(void *memory, size_t bytes);

/* handles.c: converts a window's handle to a Fortran integer, and back */
MPI_Fint number_of_window(MPI_Win win);
MPI_Win window_of_number(MPI_Fint number);

/* host.c: the host's function or datum with a name; host() ends the program if there is none */
void *host(const char *name);
void *host_if_any(const char *name);
/* host.c: the function that a name means in the code at `caller`; ends the program if there is none */
void *host_for(const char *name, void *caller);

/* host_ranks.c */
void host_ranks_publish(void);
void host_ranks_begin(void);
void host_ranks_end(void);
bool waits_can_serve_windows(void);
void waits_begin_to_serve_windows(bool (*serve)(void));

/* statistics.c */
void statistics_gather(void);
void statistics_print_own(const char *why);

/* errors.c: calls the window's handler; returns the error code for the caller */
int window_error(struct window *window, const char *call, int code, const char *words);
int comm_error(MPI_Comm comm, const char *call, int code, const char *words);
int no_window(const char *call);
int code_of_status(unisono_status status);
static inline int window_result(struct window *window, const char *call, unisono_status status)
{
	if (LIKELY(status == UNISONO_STATUS_OK))
		return MPI_SUCCESS;
	return window_error(window, call, code_of_status(status), unisono_error_text());
}
void handler_default(struct handler *handler);
void handler_drop(struct handler *handler);
MPI_Errhandler handler_recorded(void (*function)(void), bool fortran);

/* attributes.c */
int attributes_delete(struct window *window);
int keyval_create(void (*on_delete)(void), void *extra, bool fortran);
int attribute_set(struct window *window, int keyval, void *value);
bool attribute_find(struct window *window, int keyval, void **value);
void keyval_is_fortran(int keyval);
bool keyval_is_ours(int keyval);

/* requests.c: requests of operations that may be incomplete when their call returns (requests.h) */
enum { ALL_RANKS = -1 };
int operation_completed(MPI_Request *request);
int operation_begun(struct window *window, unisono_request *core, int rank, MPI_Request *request);
void operations_of_epoch_ended(struct window *window, int rank);

/* hints.c: stores the hints that a window keeps */
bool hint_is_true(MPI_Info info, const char *key, bool otherwise);
void window_info(struct window *window, MPI_Info info);

#endif
