/* Synchronization calls. */
#include "shim.h"
#include <stdio.h>
#include <stdlib.h>

/* The asserts of MPI as the core's; false for bits that no assert has. */
static bool asserts(int given, unsigned *core)
{
	const int known = MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE |
			  MPI_MODE_NOSUCCEED;

	*core = (given & MPI_MODE_NOCHECK ? CORE_NO_CHECK : 0) |
		(given & MPI_MODE_NOSTORE ? CORE_NO_STORE : 0) | (given & MPI_MODE_NOPUT ? CORE_NO_PUT : 0) |
		(given & MPI_MODE_NOPRECEDE ? CORE_NO_PRECEDE : 0) |
		(given & MPI_MODE_NOSUCCEED ? CORE_NO_SUCCEED : 0);
	return !(given & ~known);
}

#define BEGIN(call_name)                                                                                     \
	static const char call[] = call_name;                                                                \
	struct window *window = window_of(win);                                                              \
	int core;                                                                                            \
	if (__builtin_expect(!window, 0))                                                                    \
	return no_window(call)

#define ASSERTS                                                                                              \
	unsigned promised;                                                                                   \
	if (__builtin_expect(!asserts(assert, &promised), 0))                                                \
	return window_error(window, call, MPI_ERR_ASSERT, "unknown bits in the assert")

#define DO(expression)                                                                                       \
	do {                                                                                                 \
		AT_WINDOW(window, core, expression);                                                         \
		return window_result(window, call, core);                                                    \
	} while (0)

/* A call with nothing but the window. */
#define SIMPLE(name, function)                                                                               \
	BOTH(int, name, (MPI_Win win))                                                                       \
	{                                                                                                    \
		BEGIN("MPI_" #name);                                                                         \
		DO(function(window->core));                                                                  \
	}

/* A call with a target, which may be the null process. */
#define TO_TARGET(name, function)                                                                            \
	BOTH(int, name, (int rank, MPI_Win win))                                                             \
	{                                                                                                    \
		BEGIN("MPI_" #name);                                                                         \
		if (rank == MPI_PROC_NULL)                                                                   \
			return MPI_SUCCESS;                                                                  \
		DO(function(window->core, rank));                                                            \
	}

BOTH(int, Win_fence, (int assert, MPI_Win win))
{
	BEGIN("MPI_Win_fence");
	ASSERTS;
	DO(core_fence(window->core, promised));
}

/* A group's members, as ranks of the window. */
static int members(struct window *window, MPI_Group group, int *few, int most, int **ranks, int *count)
{
	int *all, code = PMPI_Group_size(group, count);

	*ranks = few;
	if (code || *count == 0)
		return code;
	if (*count > most) {
		*ranks = malloc(2 * *count * sizeof **ranks);
		if (!*ranks)
			return MPI_ERR_NO_MEM;
	}
	all = *ranks + (*count > most ? *count : most);
	for (int i = 0; i < *count; i++)
		all[i] = i;
	code = PMPI_Group_translate_ranks(group, *count, all, window->group, *ranks);
	for (int i = 0; i < *count && !code; i++)
		if ((*ranks)[i] < 0)
			code = MPI_ERR_GROUP;
	if (code && *ranks != few)
		free(*ranks);
	return code;
}

static int with_group(const char *call, MPI_Group group, int assert, MPI_Win win,
		      int (*function)(struct core_window *, const int *, size_t, unsigned))
{
	enum { FEW = 32 };
	struct window *window = window_of(win);
	int few[2 * FEW], *ranks, count, core, code;

	if (!window)
		return no_window(call);
	ASSERTS;
	code = group == MPI_GROUP_NULL ? MPI_ERR_GROUP : members(window, group, few, FEW, &ranks, &count);
	if (code)
		return window_error(window, call, MPI_ERR_GROUP, "the group is not of ranks of this window");
	AT_WINDOW(window, core, function(window->core, ranks, count, promised));
	if (ranks != few)
		free(ranks);
	return window_result(window, call, core);
}

BOTH(int, Win_post, (MPI_Group group, int assert, MPI_Win win))
{
	return with_group("MPI_Win_post", group, assert, win, core_post);
}

BOTH(int, Win_start, (MPI_Group group, int assert, MPI_Win win))
{
	return with_group("MPI_Win_start", group, assert, win, core_start);
}

SIMPLE(Win_complete, core_complete)
SIMPLE(Win_wait, core_wait)

BOTH(int, Win_test, (MPI_Win win, int *flag))
{
	BEGIN("MPI_Win_test");
	progress();
	DO(core_test(window->core, flag));
}

BOTH(int, Win_lock, (int type, int rank, int assert, MPI_Win win))
{
	BEGIN("MPI_Win_lock");
	ASSERTS;
	if (type != MPI_LOCK_SHARED && type != MPI_LOCK_EXCLUSIVE)
		return window_error(window, call, MPI_ERR_LOCKTYPE,
				    "neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE");
	if (rank == MPI_PROC_NULL)
		return MPI_SUCCESS;
	DO(core_lock(window->core, rank, type == MPI_LOCK_EXCLUSIVE, promised));
}

/*
 * Over messages the engine acknowledges nothing under an exclusive lock, since nobody else can look before
 * the operations are complete. The target itself can, in the unified model, after as little as a barrier: so
 * ask.
 */
BOTH(int, Win_unlock, (int rank, MPI_Win win))
{
	BEGIN("MPI_Win_unlock");
	if (rank == MPI_PROC_NULL)
		return MPI_SUCCESS;
	int asked = CORE_OK;
	if (window->ask_before_unlock)
		AT_WINDOW(window, asked, core_flush(window->core, rank));
	if (__builtin_expect(asked, 0)) {
		/* the epoch ends, whatever the target refused; the first words are said */
		int code = code_of_core(asked);
		char words[256];

		snprintf(words, sizeof words, "%s", core_last_error());
		AT_WINDOW(window, core, core_unlock(window->core, rank));
		return window_error(window, call, code, words);
	}
	DO(core_unlock(window->core, rank));
}

BOTH(int, Win_lock_all, (int assert, MPI_Win win))
{
	BEGIN("MPI_Win_lock_all");
	ASSERTS;
	DO(core_lock_all(window->core, promised));
}

SIMPLE(Win_unlock_all, core_unlock_all)
TO_TARGET(Win_flush, core_flush)
SIMPLE(Win_flush_all, core_flush_all)
TO_TARGET(Win_flush_local, core_flush_local)
SIMPLE(Win_flush_local_all, core_flush_local_all)

/* Allowed at any time: outside of an epoch it is a barrier for the memory alone. */
BOTH(int, Win_sync, (MPI_Win win))
{
	struct window *window = window_of(win);
	int core;

	if (!window)
		return no_window("MPI_Win_sync");
	enter(window);
	core = core_sync(window->core);
	leave(window);
	atomic_thread_fence(memory_order_seq_cst);
	return core == CORE_RMA_SYNC ? MPI_SUCCESS : window_result(window, "MPI_Win_sync", core);
}
