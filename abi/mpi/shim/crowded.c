/*
 * The ranks of this host that share processors: their places, their shared lines, and the bells that senders
 * ring. This is set up in MPI_Init, because the setup is collective and waits are not.
 */
#include "crowded.h"
#include <stdlib.h>
#include <string.h>

bool waits_served, ranks_outnumber, waits_counted, waits_only_timed;
_Thread_local bool undirected;
_Thread_local unsigned waits_passed, waits_seen;

static const _Atomic uint32_t nobody;
const _Atomic uint32_t *napping = &nobody, *napped = &nobody;

static MPI_Group here;	   /* the ranks of this host, ordered by place; valid once waits are served */
static unsigned *of_world; /* place of each rank of MPI_COMM_WORLD */
static int world_size, keyval = MPI_KEYVAL_INVALID;
static bool world_here; /* all ranks of MPI_COMM_WORLD are on this host */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

enum { LINE = 128, LINES_SHARED = 2 };
/*
 * Next to other programs each wait lasts a scheduler slice (3 to 4 ms), so 64 waits take a quarter of a
 * second.
 */
enum { OURS_AFTER_A_LONG_ONE = 64 };
/* Starts as after a long wait, so a program that starts next to others does not have to detect them first. */
_Thread_local unsigned waits_ours = OURS_AFTER_A_LONG_ONE;

/* Stores the places of the first `count` ranks of a group; returns whether all of them are on this host. */
static bool places(MPI_Group group, int count, unsigned *members)
{
	int *ranks = calloc(2 * (size_t)count, sizeof *ranks), *found = ranks + count;
	bool all = true;

	if (!ranks)
		abort();
	for (int i = 0; i < count; i++)
		ranks[i] = i;
	PMPI_Group_translate_ranks(group, count, ranks, here, found);
	for (int i = 0; i < count; i++) {
		members[i] = found[i] == MPI_UNDEFINED ? NOT_HERE : (unsigned)found[i];
		all = all && found[i] != MPI_UNDEFINED;
	}
	free(ranks);
	return all;
}

/* Whether the host MPI yields the processor by itself while it waits. */
static bool host_gives_way(void)
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
void crowded_begin(void)
{
	MPI_Comm together;
	MPI_Group world;
	int count, place, full, any;
	void *lines;

	PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
	waits_only_timed = host_gives_way();
	if (windows_only() || world_size < 2 || (waits_only_timed && !unisono_mpi_statistics_wanted()) ||
	    PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &together))
		return;
	PMPI_Comm_size(together, &count);
	PMPI_Comm_rank(together, &place);
	world_here = count == world_size;
	lines = count < 2 ? NULL : memory_share(together, LINE * (size_t)(LINES_SHARED + count));
	if (lines) {
		unisono_mpi_crowd_join(lines, (size_t)count, (size_t)place, world_here);
		PMPI_Barrier(together);
		full = unisono_mpi_crowd_begin();
		if (PMPI_Allreduce(&full, &any, 1, MPI_INT, MPI_MAX, together))
			any = 0;
		unisono_mpi_crowd_is_full(any);
		ranks_outnumber = any && !waits_only_timed;
		PMPI_Comm_group(together, &here);
		PMPI_Comm_group(MPI_COMM_WORLD, &world);
		of_world = calloc((size_t)world_size, sizeof *of_world);
		if (!of_world)
			abort();
		places(world, world_size, of_world);
		PMPI_Group_free(&world);
		napping = (const _Atomic uint32_t *)unisono_mpi_crowd_napping();
		napped = (const _Atomic uint32_t *)unisono_mpi_crowd_napped();
		waits_served = true;
	}
	waits_counted = waits_served && unisono_mpi_statistics_wanted();
	PMPI_Comm_free(&together);
}

/* Called before MPI_Finalize. */
void crowded_end(void)
{
	if (!waits_served)
		return;
	waits_served = waits_counted = false;
	napping = napped = &nobody;
	PMPI_Group_free(&here);
}

int ask_request(void *context)
{
	struct request_question *asked = context;
	struct question *question = &asked->question;

	question->code = PMPI_Test(&asked->request, &question->done, MPI_STATUS_IGNORE);
	if (UNLIKELY(question->code))
		question->done = 1;
	return question->done;
}

void await_slowly(unisono_mpi_wait_call call, unisono_mpi_wait_kind kind, unisono_mpi_question ask,
		  struct question *question)
{
	/* repeats only if this thread is ending and the library could not wait in it */
	while (!question->done) {
		if (unisono_mpi_crowd_wait(call, kind, waits_passed, ask, question))
			waits_ours = OURS_AFTER_A_LONG_ONE;
		waits_passed = 0;
	}
}

/* Another rank may sleep until this rank has received a message, so ring. */
void await_is_over(void)
{
	undirected = false;
	unisono_mpi_crowd_ring_undirected();
}

static int fellows_forgotten(MPI_Comm comm, int key, void *value, void *extra)
{
	(void)comm;
	(void)key;
	(void)extra;
	orders_forgotten(((struct fellows *)value)->orders);
	free(value);
	return MPI_SUCCESS;
}

static struct fellows *fellows_found(MPI_Comm comm)
{
	struct fellows *fellows;
	MPI_Group group;
	int between = 0, size = 0;

	PMPI_Comm_test_inter(comm, &between);
	if (between)
		PMPI_Comm_remote_size(comm, &size);
	else
		PMPI_Comm_size(comm, &size);
	fellows = calloc(1, sizeof *fellows + (size_t)size * sizeof fellows->members[0]);
	if (!fellows)
		abort();
	if (between)
		PMPI_Comm_remote_group(comm, &group);
	else
		PMPI_Comm_group(comm, &group);
	fellows->size = size;
	fellows->all_here = places(group, size, fellows->members) && !between;
	PMPI_Group_free(&group);
	PMPI_Comm_set_attr(comm, keyval, fellows);
	return fellows;
}

/* The record of a communicator; NULL for MPI_COMM_NULL or on failure. */
struct fellows *fellows_of(MPI_Comm comm)
{
	struct fellows *fellows = NULL;
	int found = 0;

	if (comm == MPI_COMM_NULL)
		return NULL;
	pthread_mutex_lock(&guard);
	if (keyval == MPI_KEYVAL_INVALID)
		PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, fellows_forgotten, &keyval, NULL);
	if (!PMPI_Comm_get_attr(comm, keyval, &fellows, &found) && !found)
		fellows = fellows_found(comm);
	pthread_mutex_unlock(&guard);
	return fellows;
}

void ring_slowly(MPI_Comm comm, int rank)
{
	const struct fellows *fellows;
	unsigned place = NOT_HERE;

	if (rank < 0) /* MPI_PROC_NULL and other negative values */
		return;
	if (comm == MPI_COMM_WORLD) {
		place = rank < world_size ? of_world[rank] : NOT_HERE;
	} else {
		fellows = fellows_of(comm);
		if (fellows && rank < fellows->size)
			place = fellows->members[rank];
	}
	if (place != NOT_HERE)
		unisono_mpi_crowd_ring(place);
}
