/* Making and freeing windows of all flavors, and access to their memory. */
#include "shim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unisono_spec spec_of(const struct window *window)
{
	return (unisono_spec){
		.unit = (uint32_t)window->unit,
		.flags = (window->no_locks ? UNISONO_NO_LOCKS : 0) |
			 (window->local_completion ? UNISONO_LOCAL_COMPLETION : 0),
	};
}

/* A part without bytes has no address in MPICH. In Open MPI it has one between its neighbors, if the
 * window is contiguous. */
enum { EMPTY_PARTS_ARE_NULL = !HOST_OPEN_MPI };

/* Whether the host makes a window. Collective. */
static bool window_is_the_hosts(MPI_Info info, MPI_Comm comm)
{
	int between = 0;

	if (kinds_are_the_hosts(info, comm))
		return true;
	/* wrong communicators are errors, which begin() reports */
	return comm != MPI_COMM_NULL && !PMPI_Comm_test_inter(comm, &between) && !between &&
	       job_is_the_hosts(comm);
}

/* Checks the arguments that all flavors share; makes a window with its job, without memory. */
static int begin(const char *call, MPI_Aint bytes, MPI_Aint unit, MPI_Info info, MPI_Comm comm, int flavor,
		 struct window **made)
{
	struct window *window;
	int between, code;

	if (comm == MPI_COMM_NULL)
		return comm_error(MPI_COMM_WORLD, call, MPI_ERR_COMM, "the null communicator has no windows");
	if (PMPI_Comm_test_inter(comm, &between) || between)
		return comm_error(comm, call, MPI_ERR_COMM, "windows need an intracommunicator");
	if (bytes < 0)
		return comm_error(comm, call, MPI_ERR_SIZE, "a window has no negative size");
	if (unit <= 0 || unit > 0x7fffffff)
		return comm_error(comm, call, MPI_ERR_DISP, "a displacement unit is one or more");
	window = calloc(1, sizeof *window);
	if (!window)
		return comm_error(comm, call, MPI_ERR_NO_MEM, "no memory for a window");
	window->bytes = bytes;
	window->unit = (int)unit;
	window->flavor = flavor;
	window->model = MPI_WIN_UNIFIED;
	window->no_locks = hint_is_true(info, "no_locks", false);
	window->local_completion = hint_is_true(info, "unisono_local_completion", false);
	strcpy(window->accumulate_ordering, "rar,raw,war,waw");
	strcpy(window->accumulate_ops, "same_op_no_op");
	strcpy(window->same_size, "false");
	strcpy(window->same_disp_unit, "false");
	strcpy(window->no_locks_hint, "false");
	strcpy(window->noncontiguous_hint, "false");
	window_info(window, info);
	pthread_mutex_init(&window->mutex, NULL);
	pthread_mutex_init(&window->turn, NULL);
	code = job_of(comm, &window->job);
	if (!code) {
		code = PMPI_Comm_group(comm, &window->group);
		if (code)
			job_release(window->job);
	}
	if (code) {
		pthread_mutex_destroy(&window->mutex);
		pthread_mutex_destroy(&window->turn);
		free(window);
		return comm_error(comm, call, code, unisono_error_text());
	}
	handler_default(&window->handler);
	*made = window;
	return MPI_SUCCESS;
}

static void discard(struct window *window)
{
	handler_drop(&window->handler);
	PMPI_Group_free(&window->group);
	pthread_mutex_destroy(&window->mutex);
	pthread_mutex_destroy(&window->turn);
	if (window->memory)
		memory_unshare(window->memory, window->memory_bytes);
	free(window->shared_bases);
	free(window->shared_bytes);
	free(window->shared_units);
	free(window);
}

static int finish(const char *call, MPI_Comm comm, struct window *window, unisono_status status, MPI_Win *win)
{
	int code = status ? code_of_status(status) : window_register(window);

	if (code) {
		job_release(window->job);
		discard(window);
		return comm_error(comm, call, code, status ? unisono_error_text() : "too many windows");
	}
	window->by_messages = !unisono_mpi_window_is_direct(window->core);
	window->settle_unlocks = window->by_messages && !window->local_completion;
	window->lock_is_held = window->flavor == MPI_WIN_FLAVOR_SHARED;
	window_set_slice(window);
	if (!window->no_locks)
		job_is_locked(window->job);
	*win = window->handle;
	return MPI_SUCCESS;
}

static int create(const char *call, void *base, MPI_Aint bytes, MPI_Aint unit, MPI_Info info, MPI_Comm comm,
		  MPI_Win *win)
{
	struct window *window;
	unisono_spec spec;
	int code = begin(call, bytes, unit, info, comm, MPI_WIN_FLAVOR_CREATE, &window);

	if (code)
		return code;
	window->base = base;
	spec = spec_of(window);
	return finish(call, comm, window,
		      unisono_window_create(window->job->core, base, bytes, &spec, &window->core), win);
}

static int allocate(const char *call, MPI_Aint bytes, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base,
		    MPI_Win *win)
{
	struct window *window;
	unisono_spec spec;
	unisono_status status;
	int code = begin(call, bytes, unit, info, comm, MPI_WIN_FLAVOR_ALLOCATE, &window);

	if (code)
		return code;
	spec = spec_of(window);
	status = unisono_window_allocate(window->job->core, bytes, &spec, &window->base, &window->core);
	if (bytes == 0 && EMPTY_PARTS_ARE_NULL)
		window->base = NULL;
	code = finish(call, comm, window, status, win);
	if (!code)
		memcpy(base, &window->base, sizeof window->base);
	return code;
}

/*
 * Allocates a shared window's memory. The standard requires the parts to be contiguous: they are then slices
 * of one mapping, and the window is created over them. With alloc_shared_noncontig each rank gets a part of
 * its own, which operations access directly. The ranks may share memory even if UNISONO_MPI_TRANSPORT forces
 * messages. Sets `words` for an error that is not the library's.
 */
static unisono_status share(struct window *window, MPI_Comm comm, bool contiguous, const char **words)
{
	int size = window->job->size;
	unisono_status status;
	unisono_spec spec = spec_of(window);
	struct mine {
		MPI_Aint bytes;
		int unit;
	} mine = { window->bytes, window->unit }, *all = calloc(size, sizeof *all);

	window->shared_bases = calloc(size, sizeof *window->shared_bases);
	window->shared_bytes = calloc(size, sizeof *window->shared_bytes);
	window->shared_units = calloc(size, sizeof *window->shared_units);
	if (!all || !window->shared_bases || !window->shared_bytes || !window->shared_units ||
	    PMPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, comm)) {
		free(all);
		*words = "no memory for a table of the ranks";
		return UNISONO_STATUS_OTHER;
	}
	for (int rank = 0; rank < size; rank++) {
		window->shared_bytes[rank] = all[rank].bytes;
		window->shared_units[rank] = all[rank].unit;
		window->memory_bytes += all[rank].bytes;
	}
	free(all);
	if (!contiguous && window->job->one_host) {
		status = unisono_window_allocate(window->job->core, window->bytes, &spec, &window->base,
						 &window->core);
		for (int rank = 0; rank < size && !status; rank++)
			status = unisono_window_mapped(window->core, rank, &window->shared_bases[rank], NULL,
						       NULL);
	} else {
		char *next;

		/* a part without bytes needs an address as well */
		window->memory_bytes += 1;
		window->memory = next = memory_share(comm, window->memory_bytes);
		if (!next) {
			*words = "the ranks cannot map one piece of memory";
			return UNISONO_STATUS_OTHER;
		}
		for (int rank = 0; rank < size; rank++) {
			window->shared_bases[rank] = next;
			next += window->shared_bytes[rank];
		}
		status = unisono_window_create(window->job->core, window->shared_bases[window->job->rank],
					       window->bytes, &spec, &window->core);
	}
	for (int rank = 0; rank < size && (EMPTY_PARTS_ARE_NULL || !contiguous); rank++)
		if (window->shared_bytes[rank] == 0)
			window->shared_bases[rank] = NULL;
	window->base = status ? NULL : window->shared_bases[window->job->rank];
	return status;
}

static int allocate_shared(const char *call, MPI_Aint bytes, MPI_Aint unit, MPI_Info info, MPI_Comm comm,
			   void *base, MPI_Win *win)
{
	struct window *window;
	int code = begin(call, bytes, unit, info, comm, MPI_WIN_FLAVOR_SHARED, &window), here = 0;
	unisono_status status;
	const char *words = NULL;
	MPI_Comm together;

	if (code)
		return code;
	PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &together);
	PMPI_Comm_size(together, &here);
	PMPI_Comm_free(&together);
	if (here != window->job->size) {
		job_release(window->job);
		discard(window);
		return comm_error(comm, call, MPI_ERR_RMA_SHARED,
				  "these ranks do not share memory; split with MPI_COMM_TYPE_SHARED first");
	}
	window->noncontiguous = hint_is_true(info, "alloc_shared_noncontig", false);
	status = share(window, comm, !window->noncontiguous, &words);
	if (status && words) {
		job_release(window->job);
		discard(window);
		return comm_error(comm, call, code_of_status(status), words);
	}
	code = finish(call, comm, window, status, win);
	if (!code)
		memcpy(base, &window->base, sizeof window->base);
	return code;
}

BOTH(int, Win_create, (void *base, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *win))
{
	MADE_BY_HOST(Win_create, info, comm, (base, bytes, unit, info, comm, win));
	return create("MPI_Win_create", base, bytes, unit, info, comm, win);
}

BOTH(int, Win_allocate, (MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win))
{
	MADE_BY_HOST(Win_allocate, info, comm, (bytes, unit, info, comm, base, win));
	return allocate("MPI_Win_allocate", bytes, unit, info, comm, base, win);
}

BOTH(int, Win_allocate_shared,
     (MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win))
{
	MADE_BY_HOST(Win_allocate_shared, info, comm, (bytes, unit, info, comm, base, win));
	return allocate_shared("MPI_Win_allocate_shared", bytes, unit, info, comm, base, win);
}

BOTH(int, Win_create_dynamic, (MPI_Info info, MPI_Comm comm, MPI_Win *win))
{
	MADE_BY_HOST(Win_create_dynamic, info, comm, (info, comm, win));
	static const char call[] = "MPI_Win_create_dynamic";
	struct window *window;
	unisono_spec spec;
	int code = begin(call, 0, 1, info, comm, MPI_WIN_FLAVOR_DYNAMIC, &window);

	if (code)
		return code;
	window->base = MPI_BOTTOM;
	spec = spec_of(window);
	return finish(call, comm, window, unisono_window_dynamic(window->job->core, &spec, &window->core),
		      win);
}

/*
 * Finds the address of a rank's part in this process if it is mapped here, otherwise zero bytes at NULL
 * (MPI-4.1 section 12.2.3). The ranks of a host map all their parts of an allocated window. Of a created
 * window each rank maps only its own part.
 */
static unisono_status part_here(struct window *window, int rank, MPI_Aint *bytes, MPI_Aint *unit, void **base)
{
	uint64_t mapped_bytes = 0;
	uint32_t mapped_unit = 0;
	unisono_status status;

	if (rank == window->job->rank) {
		*base = window->base;
		*bytes = window->bytes;
		*unit = window->unit;
		return UNISONO_STATUS_OK;
	}
	enter(window);
	status = unisono_window_mapped(window->core, rank, base, &mapped_bytes, &mapped_unit);
	leave(window);
	window->lock_is_held = window->lock_is_held || *base;
	*bytes = *base ? (MPI_Aint)mapped_bytes : 0;
	*unit = *base ? (MPI_Aint)mapped_unit : 1;
	return status;
}

/* Queries a window that is not a shared one. For MPI_PROC_NULL it returns the lowest rank's part that is
 * mapped here and has bytes. */
static int parts_query(const char *call, struct window *window, int rank, MPI_Aint *bytes, MPI_Aint *unit,
		       void *base)
{
	int first = rank == MPI_PROC_NULL ? 0 : rank;
	int last = rank == MPI_PROC_NULL ? window->job->size - 1 : rank;
	unisono_status status = UNISONO_STATUS_OK;
	void *found = NULL;

	if (window->flavor == MPI_WIN_FLAVOR_DYNAMIC)
		return window_error(window, call, MPI_ERR_RMA_FLAVOR,
				    "a dynamic window has no parts to ask for");
	if (first < 0 || last >= window->job->size)
		return window_error(window, call, MPI_ERR_RANK, "no such rank in this window");
	for (*bytes = 0; first <= last && *bytes == 0 && !status; first++)
		status = part_here(window, first, bytes, unit, &found);
	memcpy(base, &found, sizeof found);
	return window_result(window, call, status);
}

static int shared_query(const char *call, MPI_Win win, int rank, MPI_Aint *bytes, MPI_Aint *unit, void *base)
{
	struct window *window = window_of(win);

	if (!window)
		return no_window(call);
	if (window->flavor != MPI_WIN_FLAVOR_SHARED)
		return parts_query(call, window, rank, bytes, unit, base);
	if (rank == MPI_PROC_NULL) {
		/* the lowest rank with a nonempty part */
		for (rank = 0; rank < window->job->size - 1 && window->shared_bytes[rank] == 0;)
			rank++;
		if (HOST_OPEN_MPI && window->shared_bytes[rank] == 0) {
			*bytes = *unit = 0;
			memset(base, 0, sizeof(void *));
			return MPI_SUCCESS;
		}
	} else if (rank < 0 || rank >= window->job->size) {
		return window_error(window, call, MPI_ERR_RANK, "no such rank in this window");
	}
	*bytes = window->shared_bytes[rank];
	*unit = window->shared_units[rank];
	memcpy(base, &window->shared_bases[rank], sizeof(void *));
	return MPI_SUCCESS;
}

BOTH(int, Win_shared_query, (MPI_Win win, int rank, MPI_Aint *bytes, int *unit, void *base))
{
	TO_HOST(Win_shared_query, win, (win, rank, bytes, unit, base));
	MPI_Aint units = 0;
	int code = shared_query("MPI_Win_shared_query", win, rank, bytes, &units, base);

	if (!code)
		*unit = (int)units;
	return code;
}

#if MPI_VERSION >= 4
BOTH(int, Win_create_c,
     (void *base, MPI_Aint bytes, MPI_Aint unit, MPI_Info info, MPI_Comm comm, MPI_Win *win))
{
	MADE_BY_HOST(Win_create_c, info, comm, (base, bytes, unit, info, comm, win));
	return create("MPI_Win_create_c", base, bytes, unit, info, comm, win);
}

BOTH(int, Win_allocate_c,
     (MPI_Aint bytes, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win))
{
	MADE_BY_HOST(Win_allocate_c, info, comm, (bytes, unit, info, comm, base, win));
	return allocate("MPI_Win_allocate_c", bytes, unit, info, comm, base, win);
}

BOTH(int, Win_allocate_shared_c,
     (MPI_Aint bytes, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win))
{
	MADE_BY_HOST(Win_allocate_shared_c, info, comm, (bytes, unit, info, comm, base, win));
	return allocate_shared("MPI_Win_allocate_shared_c", bytes, unit, info, comm, base, win);
}

BOTH(int, Win_shared_query_c, (MPI_Win win, int rank, MPI_Aint *bytes, MPI_Aint *unit, void *base))
{
	TO_HOST(Win_shared_query_c, win, (win, rank, bytes, unit, base));
	return shared_query("MPI_Win_shared_query_c", win, rank, bytes, unit, base);
}
#endif

BOTH(int, Win_attach, (MPI_Win win, void *base, MPI_Aint bytes))
{
	TO_HOST(Win_attach, win, (win, base, bytes));
	struct window *window = window_of(win);
	unisono_status status;

	if (!window)
		return no_window("MPI_Win_attach");
	if (window->flavor != MPI_WIN_FLAVOR_DYNAMIC)
		return window_error(window, "MPI_Win_attach", MPI_ERR_RMA_FLAVOR,
				    "memory is attached to dynamic windows only");
	if (bytes < 0)
		return window_error(window, "MPI_Win_attach", MPI_ERR_SIZE, "memory has no negative size");
	enter(window);
	status = unisono_window_attach(window->core, base, bytes);
	leave(window);
	return window_result(window, "MPI_Win_attach", status);
}

BOTH(int, Win_detach, (MPI_Win win, const void *base))
{
	TO_HOST(Win_detach, win, (win, base));
	struct window *window = window_of(win);
	unisono_status status;

	if (!window)
		return no_window("MPI_Win_detach");
	if (window->flavor != MPI_WIN_FLAVOR_DYNAMIC)
		return window_error(window, "MPI_Win_detach", MPI_ERR_RMA_FLAVOR,
				    "memory is detached from dynamic windows only");
	enter(window);
	status = unisono_window_detach(window->core, (void *)base);
	leave(window);
	return window_result(window, "MPI_Win_detach", status);
}

BOTH(int, Win_free, (MPI_Win * win))
{
	TO_HOST(Win_free, *win, (win));
	static const char call[] = "MPI_Win_free";
	struct window *window = window_of(*win);
	char label[WINDOW_LABEL];
	unisono_status status;
	int code;

	if (!window)
		return no_window(call);
	/* check before the delete callbacks run, because their effects cannot be undone */
	status = unisono_mpi_window_freeable(window->core);
	if (status)
		return window_result(window, call, status);
	operations_of_epoch_ended(window, ALL_RANKS);
	code = attributes_delete(window);
	if (code)
		return window_error(window, call, code, "a delete callback of an attribute refused");
	window_label(window, "", label);
	status = unisono_mpi_window_free(&window->core, label);
	if (status)
		return window_result(window, call, status);
	window_unregister(window);
	code = job_release(window->job);
	discard(window);
	*win = MPI_WIN_NULL;
	return code;
}
