/*
 * Calls that stay the host MPI's although ranks outnumber the processors, and whose waits give way all the
 * same. MPICH 4.2 and later call functions that a program has added (MPIX_Async_start) in each round of their
 * progress. While the host waits in such a call, a function of ours sleeps there, so that the rank that the
 * host waits for gets the processor. Otherwise each step of the call may wait for the end of a slice of the
 * scheduler. Earlier MPICHs have no such functions.
 */
#include "waiting.h"
#include <time.h>

/* Numbers of MPICH's mpi.h. */
enum { ASYNC_NOPROGRESS = 0, ASYNC_DONE = 1, STREAM_NULL = 0x3d000000 };
/* The rounds of progress before the first sleep; a message between two running ranks takes fewer. */
enum { ROUNDS_AWAKE = 50 };
enum { FIRST_PAUSE = 5000, MAX_PAUSE = 200000 }; /* ns */

typedef int async_function(void *thing);

static _Atomic unsigned calls; /* that wait now */
static _Atomic bool added;     /* the host has the function */
static _Thread_local unsigned rounds;
static _Thread_local long next_pause; /* 0: this thread is in no such call */

static int give_way(void *thing)
{
	struct timespec pause = { .tv_nsec = next_pause };

	(void)thing;
	if (!atomic_load_explicit(&calls, memory_order_relaxed)) {
		atomic_store_explicit(&added, false, memory_order_relaxed);
		return ASYNC_DONE;
	}
	if (next_pause && ++rounds > ROUNDS_AWAKE) {
		nanosleep(&pause, NULL);
		next_pause = next_pause * 2 > MAX_PAUSE ? MAX_PAUSE : next_pause * 2;
	}
	return ASYNC_NOPROGRESS;
}

/* Called before a call of the host's that crowded ranks wait in. */
void giving_way_begins(void)
{
#if HOST_MPICH
	static int (*add)(async_function *, void *state, int stream);
	static _Atomic bool looked_up;

	if (UNLIKELY(!atomic_load_explicit(&looked_up, memory_order_acquire))) {
		add = (int (*)(async_function *, void *, int))host_if_any("PMPIX_Async_start");
		atomic_store_explicit(&looked_up, true, memory_order_release);
	}
	if (!add)
		return;
	rounds = 0;
	next_pause = FIRST_PAUSE;
	atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
	if (!atomic_exchange_explicit(&added, true, memory_order_relaxed) && add(give_way, NULL, STREAM_NULL))
		atomic_store_explicit(&added, false, memory_order_relaxed);
#else
	(void)give_way;
#endif
}

/* Called after it. */
void giving_way_ends(void)
{
	if (next_pause)
		atomic_fetch_sub_explicit(&calls, 1, memory_order_relaxed);
	next_pause = 0;
}
