/*
 * The ranks of this host that share processors: their places, their shared lines, and the bells that senders
 * ring. This is set up in MPI_Init, because the setup is collective and waits are not.
 */
#include "waiting.h"
#include <stdlib.h>
#include <string.h>

bool waits_served, ranks_outnumber, waits_counted, waits_only_timed;
_Thread_local bool needs_other_ranks;
_Thread_local unsigned immediate_waits, unserved_waits;

static const _Atomic uint32_t no_ranks;
const _Atomic uint32_t *sleeping_ranks = &no_ranks, *ranks_have_slept = &no_ranks;

static MPI_Group host_group;   /* the ranks of this host, ordered by place; valid once waits are served */
static unsigned *world_places; /* place of each rank of MPI_COMM_WORLD */
static int world_size;
static bool world_here; /* all ranks of MPI_COMM_WORLD are on this host */

enum { LINE = 128, LINES_SHARED = 2 };
/*
 * Next to other programs each wait lasts a scheduler slice (3 to 4 ms), so 64 waits take a quarter of a
 * second.
 */
enum { SERVED_AFTER_LONG_WAIT = 64 };
/* Starts as after a long wait, so a program that starts next to others does not have to detect them first. */
_Thread_local unsigned waits_to_serve = SERVED_AFTER_LONG_WAIT;

/* Stores the places of the first `count` ranks of a group; returns whether all of them are on this host. */
bool host_places(MPI_Group group, int count, unsigned *members)
{
	int *ranks = calloc(2 * (size_t)count, sizeof *ranks), *found = ranks + count;
	bool all = true;

	if (!ranks)
		abort();
	for (int i = 0; i < count; i++)
		ranks[i] = i;
	PMPI_Group_translate_ranks(group, count, ranks, host_group, found);
	for (int i = 0; i < count; i++) {
		members[i] = found[i] == MPI_UNDEFINED ? NOT_HERE : (unsigned)found[i];
		all = all && found[i] != MPI_UNDEFINED;
	}
	free(ranks);
	return all;
}

/* Whether the host MPI yields the processor by itself while it waits. */
static bool host_yields(void)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	return !PMPI_Get_library_version(version, &length) && strncmp(version, "Open MPI", 8) == 0;
}

/* Whether the user gave `--only windows`. */
static bool windows_only(void)
{
	const char *only = getenv("UNISONO_MPI_ONLY");

	return only && strcmp(only, "windows") == 0;
}

/* Collective: called at the end of MPI_Init, in which all ranks of MPI_COMM_WORLD take part. */
void host_ranks_begin(void)
{
	MPI_Comm host_comm;
	MPI_Group world;
	int count, place, full, any;
	void *lines;

	PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
	waits_only_timed = host_yields();
	if (windows_only() || world_size < 2 || (waits_only_timed && !unisono_mpi_statistics_wanted()) ||
	    PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host_comm))
		return;
	PMPI_Comm_size(host_comm, &count);
	PMPI_Comm_rank(host_comm, &place);
	world_here = count == world_size;
	lines = count < 2 ? NULL : memory_share(host_comm, LINE * (size_t)(LINES_SHARED + count));
	if (lines) {
		unisono_mpi_crowd_join(lines, (size_t)count, (size_t)place, world_here);
		PMPI_Barrier(host_comm);
		full = unisono_mpi_crowd_begin();
		if (PMPI_Allreduce(&full, &any, 1, MPI_INT, MPI_MAX, host_comm))
			any = 0;
		unisono_mpi_crowd_is_full(any);
		ranks_outnumber = any && !waits_only_timed;
		PMPI_Comm_group(host_comm, &host_group);
		PMPI_Comm_group(MPI_COMM_WORLD, &world);
		world_places = calloc((size_t)world_size, sizeof *world_places);
		if (!world_places)
			abort();
		host_places(world, world_size, world_places);
		PMPI_Group_free(&world);
		sleeping_ranks = (const _Atomic uint32_t *)unisono_mpi_crowd_napping();
		ranks_have_slept = (const _Atomic uint32_t *)unisono_mpi_crowd_napped();
		waits_served = true;
	}
	waits_counted = waits_served && unisono_mpi_statistics_wanted();
	PMPI_Comm_free(&host_comm);
}

/* Called before MPI_Finalize. */
void host_ranks_end(void)
{
	if (!waits_served)
		return;
	waits_served = waits_counted = false;
	sleeping_ranks = ranks_have_slept = &no_ranks;
	PMPI_Group_free(&host_group);
}

int poll_request(void *context)
{
	struct polled_request *request = context;
	struct completion *completion = &request->completion;

	completion->code = PMPI_Test(&request->request, &completion->done, MPI_STATUS_IGNORE);
	if (UNLIKELY(completion->code))
		completion->done = 1;
	return completion->done;
}

void await_slow(unisono_mpi_wait_call call, unisono_mpi_wait_kind kind, unisono_mpi_question poll,
		struct completion *completion)
{
	/* repeats only if this thread is ending and the library could not wait in it */
	while (!completion->done) {
		if (unisono_mpi_crowd_wait(call, kind, immediate_waits, poll, completion))
			waits_to_serve = SERVED_AFTER_LONG_WAIT;
		immediate_waits = 0;
	}
}

/* Another rank may sleep until this rank has received a message, so ring. */
void await_ended(void)
{
	needs_other_ranks = false;
	unisono_mpi_crowd_ring_undirected();
}

/* The place of a rank of MPI_COMM_WORLD, or NOT_HERE. */
unsigned world_place(int rank)
{
	return rank < world_size ? world_places[rank] : NOT_HERE;
}

int finish_collective(unisono_mpi_wait_call call, int code, struct polled_request *request)
{
	if (UNLIKELY(code))
		return code;
	if (UNLIKELY(atomic_load_explicit(sleeping_ranks, memory_order_relaxed)))
		unisono_mpi_crowd_ring_undirected();
	return await(call, UNISONO_MPI_WAIT_KIND_UNDIRECTED, poll_request, &request->completion);
}
