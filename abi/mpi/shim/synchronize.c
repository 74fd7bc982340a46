/* Synchronization calls. */
#include "shim.h"
#include <stdio.h>
#include <stdlib.h>

/* Converts MPI's assertions to the library's; false if a bit is no known assertion. */
static inline bool asserts(int given, int *asserted)
{
	const int known = MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE |
			  MPI_MODE_NOSUCCEED;

	*asserted = (given & MPI_MODE_NOCHECK ? UNISONO_ASSERT_NO_CHECK : 0) |
		    (given & MPI_MODE_NOSTORE ? UNISONO_ASSERT_NO_STORE : 0) |
		    (given & MPI_MODE_NOPUT ? UNISONO_ASSERT_NO_PUT : 0) |
		    (given & MPI_MODE_NOPRECEDE ? UNISONO_ASSERT_NO_PRECEDE : 0) |
		    (given & MPI_MODE_NOSUCCEED ? UNISONO_ASSERT_NO_SUCCEED : 0);
	return !(given & ~known);
}

static int wrong_assert(struct window *window, const char *call)
{
	return window_error(window, call, MPI_ERR_ASSERT, "unknown bits in the assert");
}

/* Makes a call whose only argument is the window. */
INLINE int at_window(const char *call, MPI_Win win, unisono_status (*function)(unisono_window *))
{
	struct window *window = window_of(win);
	unisono_status status;

	if (UNLIKELY(!window))
		return no_window(call);
	do {
		enter(window);
		status = function(window->core);
	} while (leave_to_repeat(window, status));
	return window_result(window, call, status);
}

/* Makes a call with a target rank or MPI_PROC_NULL. */
INLINE int at_target(const char *call, int rank, MPI_Win win,
		     unisono_status (*function)(unisono_window *, int))
{
	struct window *window = window_of(win);
	unisono_status status;

	if (UNLIKELY(!window))
		return no_window(call);
	if (rank == MPI_PROC_NULL)
		return MPI_SUCCESS;
	do {
		enter(window);
		status = function(window->core, rank);
	} while (leave_to_repeat(window, status));
	return window_result(window, call, status);
}

/* Makes a call with an assertion. */
INLINE int with_assert(const char *call, int assert, MPI_Win win,
		       unisono_status (*function)(unisono_window *, int))
{
	struct window *window = window_of(win);
	unisono_status status;
	int asserted;

	if (UNLIKELY(!window))
		return no_window(call);
	if (UNLIKELY(!asserts(assert, &asserted)))
		return wrong_assert(window, call);
	do {
		enter(window);
		status = function(window->core, asserted);
	} while (leave_to_repeat(window, status));
	return window_result(window, call, status);
}

BOTH(int, Win_fence, (int assert, MPI_Win win))
{
	TO_HOST(Win_fence, win, (assert, win));
	return with_assert("MPI_Win_fence", assert, win, unisono_window_fence);
}

/* Converts a group's members to ranks of the window. */
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
		      unisono_status (*function)(unisono_window *, const int *, size_t, int))
{
	enum { FEW = 32 };
	struct window *window = window_of(win);
	int few[2 * FEW], *ranks, count, code, asserted;
	unisono_status status;

	if (!window)
		return no_window(call);
	if (!asserts(assert, &asserted))
		return wrong_assert(window, call);
	code = group == MPI_GROUP_NULL ? MPI_ERR_GROUP : members(window, group, few, FEW, &ranks, &count);
	if (code)
		return window_error(window, call, MPI_ERR_GROUP, "the group is not of ranks of this window");
	do {
		enter(window);
		status = function(window->core, ranks, (size_t)count, asserted);
	} while (leave_to_repeat(window, status));
	if (ranks != few)
		free(ranks);
	return window_result(window, call, status);
}

BOTH(int, Win_post, (MPI_Group group, int assert, MPI_Win win))
{
	TO_HOST(Win_post, win, (group, assert, win));
	return with_group("MPI_Win_post", group, assert, win, unisono_window_post);
}

BOTH(int, Win_start, (MPI_Group group, int assert, MPI_Win win))
{
	TO_HOST(Win_start, win, (group, assert, win));
	return with_group("MPI_Win_start", group, assert, win, unisono_window_start);
}

BOTH(int, Win_complete, (MPI_Win win))
{
	TO_HOST(Win_complete, win, (win));
	return at_window("MPI_Win_complete", win, unisono_window_complete);
}

BOTH(int, Win_wait, (MPI_Win win))
{
	TO_HOST(Win_wait, win, (win));
	return at_window("MPI_Win_wait", win, unisono_window_wait);
}

BOTH(int, Win_test, (MPI_Win win, int *flag))
{
	TO_HOST(Win_test, win, (win, flag));
	static const char call[] = "MPI_Win_test";
	struct window *window = window_of(win);
	unisono_status status;

	if (!window)
		return no_window(call);
	progress();
	do {
		enter(window);
		status = unisono_window_test(window->core, flag);
	} while (leave_to_repeat(window, status));
	return window_result(window, call, status);
}

/* Waits for the locks of the epoch that a lock call began, if the program does not only use operations. */
INLINE unisono_status hold(struct window *window, int first, int last)
{
	unisono_status status = UNISONO_STATUS_OK;

	if (LIKELY(!window->lock_is_held))
		return status;
	for (int rank = first; rank <= last && !status; rank++)
		do {
			enter(window);
			status = unisono_mpi_window_hold(window->core, rank);
		} while (leave_to_repeat(window, status));
	return status;
}

BOTH(int, Win_lock, (int type, int rank, int assert, MPI_Win win))
{
	TO_HOST(Win_lock, win, (type, rank, assert, win));
	static const char call[] = "MPI_Win_lock";
	struct window *window = window_of(win);
	unisono_status status;
	int asserted;

	if (UNLIKELY(!window))
		return no_window(call);
	if (UNLIKELY(!asserts(assert, &asserted)))
		return wrong_assert(window, call);
	if (type != MPI_LOCK_SHARED && type != MPI_LOCK_EXCLUSIVE)
		return window_error(window, call, MPI_ERR_LOCKTYPE,
				    "neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE");
	if (rank == MPI_PROC_NULL)
		return MPI_SUCCESS;
	do {
		enter(window);
		status = unisono_window_lock(
			window->core, type == MPI_LOCK_SHARED ? UNISONO_LOCK_SHARED : UNISONO_LOCK_EXCLUSIVE,
			rank, asserted);
	} while (leave_to_repeat(window, status));
	if (LIKELY(!status))
		status = hold(window, rank, rank);
	return window_result(window, call, status);
}

/*
 * With messages, the engine returns from an exclusive unlock before the target has done the operations,
 * because no rank that locks later can come before them. The target's own loads need no lock: in the unified
 * model, a barrier is enough to read its own memory. The engine cannot see the host's messages, so it settles
 * before this call returns. Operations that travelled with their lock request are settled already.
 */
BOTH(int, Win_unlock, (int rank, MPI_Win win))
{
	TO_HOST(Win_unlock, win, (rank, win));
	static const char call[] = "MPI_Win_unlock";
	struct window *window = window_of(win);
	unisono_status settled = UNISONO_STATUS_OK, status;
	char words[256];
	int code = MPI_SUCCESS;

	if (UNLIKELY(!window))
		return no_window(call);
	if (rank == MPI_PROC_NULL)
		return MPI_SUCCESS;
	do {
		enter(window);
		status = unisono_window_unlock(window->core, rank);
	} while (leave_to_repeat(window, status));
	if (UNLIKELY(status)) {
		/* the epoch ends even if the target refused an operation; report the first error */
		code = code_of_status(status);
		snprintf(words, sizeof words, "%s", unisono_error_text());
	}
	if (window->settle_unlocks)
		do {
			enter(window);
			settled = unisono_window_settle(window->core);
		} while (leave_to_repeat(window, settled));
	operations_of_epoch_ended(window, rank);
	return UNLIKELY(code) ? window_error(window, call, code, words)
			      : window_result(window, call, settled);
}

BOTH(int, Win_lock_all, (int assert, MPI_Win win))
{
	TO_HOST(Win_lock_all, win, (assert, win));
	static const char call[] = "MPI_Win_lock_all";
	int code = with_assert(call, assert, win, unisono_window_lock_all);
	struct window *window = window_of(win);

	return LIKELY(!code) ? window_result(window, call, hold(window, 0, window->job->size - 1)) : code;
}

BOTH(int, Win_unlock_all, (MPI_Win win))
{
	TO_HOST(Win_unlock_all, win, (win));
	int code = at_window("MPI_Win_unlock_all", win, unisono_window_unlock_all);

	operations_of_epoch_ended(window_of(win), ALL_RANKS);
	return code;
}

BOTH(int, Win_flush, (int rank, MPI_Win win))
{
	TO_HOST(Win_flush, win, (rank, win));
	return at_target("MPI_Win_flush", rank, win, unisono_window_flush);
}

BOTH(int, Win_flush_all, (MPI_Win win))
{
	TO_HOST(Win_flush_all, win, (win));
	return at_window("MPI_Win_flush_all", win, unisono_window_flush_all);
}

BOTH(int, Win_flush_local, (int rank, MPI_Win win))
{
	TO_HOST(Win_flush_local, win, (rank, win));
	return at_target("MPI_Win_flush_local", rank, win, unisono_window_flush_local);
}

BOTH(int, Win_flush_local_all, (MPI_Win win))
{
	TO_HOST(Win_flush_local_all, win, (win));
	return at_window("MPI_Win_flush_local_all", win, unisono_window_flush_local_all);
}

/* Allowed at any time: outside an epoch it is only a memory barrier. */
BOTH(int, Win_sync, (MPI_Win win))
{
	TO_HOST(Win_sync, win, (win));
	struct window *window = window_of(win);
	unisono_status status;

	if (!window)
		return no_window("MPI_Win_sync");
	enter(window);
	status = unisono_window_sync(window->core);
	leave(window);
	atomic_thread_fence(memory_order_seq_cst);
	return status == UNISONO_STATUS_RMA_SYNC ? MPI_SUCCESS
						 : window_result(window, "MPI_Win_sync", status);
}
