/*
 * Calls that stay the host MPI's although ranks outnumber the processors, and whose waits give way all the
 * same. MPICH 4.3 and 5 call functions that a program has added (MPIX_Async_start) in each round of their
 * progress. While the host waits in such a call, a function of ours sleeps there, so that the rank that the
 * host waits for gets the processor. Otherwise each step of the call may wait for the end of a slice of the
 * scheduler. The standard ABI has no such function.
 */
#include "waiting.h"
#include <stdio.h>
#include <time.h>

/* Numbers of the mpi.h of MPICH 4.3 and 5. */
enum { ASYNC_NOPROGRESS = 0, ASYNC_DONE = 1, STREAM_NULL = 0x3c000000 };
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

static int (*add)(async_function *, void *state, int stream); /* NULL if the host cannot */

static void find_host(void)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length, major, minor;

	/* other MPIs with this ABI, and other versions, may have other numbers */
	if (HOST_MPICH && !PMPI_Get_library_version(version, &length) &&
	    sscanf(version, "MPICH Version: %d.%d", &major, &minor) == 2 &&
	    (major == 5 || (major == 4 && minor >= 3)))
		add = (int (*)(async_function *, void *, int))host_if_any("PMPIX_Async_start");
}

/* Called before a call of the host's that crowded ranks wait in. */
void giving_way_begins(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_host);
	if (!add)
		return;
	rounds = 0;
	next_pause = FIRST_PAUSE;
	atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
	if (!atomic_exchange_explicit(&added, true, memory_order_relaxed) && add(give_way, NULL, STREAM_NULL))
		atomic_store_explicit(&added, false, memory_order_relaxed);
}

/* Called after it. */
void giving_way_ends(void)
{
	if (next_pause)
		atomic_fetch_sub_explicit(&calls, 1, memory_order_relaxed);
	next_pause = 0;
}
