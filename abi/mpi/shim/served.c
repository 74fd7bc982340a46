/*
 * Whether all members of a communicator run under 'unisono mpi': only then can the shim replace a call on it.
 * All members have to give the same answer, and a member that is not served cannot be asked. So the answer
 * follows from facts that all members share:
 *	- a communicator whose members are in one MPI_COMM_WORLD is served, if its ranks in the world are;
 *	- a communicator of several worlds is served if it has the mark. Both sides of MPI_Comm_spawn mark
 *	  their intercommunicator if the parents are served and the children were started as served ones. A
 *	  communicator made from a marked one has the mark, if it is made by one of the calls below;
 *	- every other communicator, such as one from MPI_Comm_accept, is left to the host MPI.
 */
#include "shim.h"
#include <stdlib.h>

static int keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static int mark_copied(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *copied)
{
	(void)comm;
	(void)key;
	(void)extra;
	*(void **)copy = value;
	*copied = 1;
	return MPI_SUCCESS;
}

static int mark_deleted(MPI_Comm comm, int key, void *value, void *extra)
{
	(void)comm;
	(void)key;
	(void)value;
	(void)extra;
	return MPI_SUCCESS;
}

static bool is_marked(MPI_Comm comm)
{
	void *value;
	int found = 0;

	return keyval != MPI_KEYVAL_INVALID && comm != MPI_COMM_NULL &&
	       !PMPI_Comm_get_attr(comm, keyval, &value, &found) && found;
}

static void mark(MPI_Comm comm)
{
	if (comm == MPI_COMM_NULL)
		return;
	pthread_mutex_lock(&guard);
	if (keyval == MPI_KEYVAL_INVALID)
		PMPI_Comm_create_keyval(mark_copied, mark_deleted, &keyval, NULL);
	pthread_mutex_unlock(&guard);
	PMPI_Comm_set_attr(comm, keyval, NULL);
}

/* Whether all members of a communicator are ranks of this process's MPI_COMM_WORLD, and served. */
static bool is_served_in_world(MPI_Comm comm)
{
	MPI_Group own, world;
	int size = 0, *ranks, *found;
	bool all = true;

	PMPI_Comm_size(comm, &size);
	ranks = calloc(2 * (size_t)size, sizeof *ranks);
	if (!ranks)
		abort();
	found = ranks + size;
	for (int i = 0; i < size; i++)
		ranks[i] = i;
	PMPI_Comm_group(comm, &own);
	PMPI_Comm_group(MPI_COMM_WORLD, &world);
	PMPI_Group_translate_ranks(own, size, ranks, world, found);
	for (int i = 0; i < size; i++)
		all = all && found[i] != MPI_UNDEFINED;
	all = all && agreement_of(found, size);
	PMPI_Group_free(&own);
	PMPI_Group_free(&world);
	free(ranks);
	return all;
}

/* Whether a communicator is served; the same answer at all members of an intracommunicator. */
bool comm_is_served(MPI_Comm comm)
{
	int begun = 0;

	PMPI_Initialized(&begun);
	if (!begun) /* a program with sessions alone has no MPI_COMM_WORLD */
		return true;
	if (is_marked(comm) || is_served_in_world(comm))
		return true;
	warn_once("a communicator with processes that do not run under 'unisono mpi', or that were connected "
		  "by MPI_Comm_accept or MPI_Comm_join, is left to the program's MPI");
	return false;
}

/* Marks the intercommunicator of MPI_Comm_spawn. */
void comm_has_served_children(MPI_Comm comm)
{
	mark(comm);
}

BOTH(int, Comm_get_parent, (MPI_Comm * parent))
{
	int code = OF_HOST(Comm_get_parent)(parent);

	/* set by the 'unisono mpi' that MPI_Comm_spawn of served ranks started */
	if (!code && getenv("UNISONO_MPI_SPAWNED"))
		mark(*parent);
	return code;
}

/* The communicators that calls make from others. MPI_Comm_dup and its relatives copy attributes. */
#define DERIVED(name, arguments, values)                                                                     \
	BOTH(int, name, arguments)                                                                           \
	{                                                                                                    \
		int code = OF_HOST(name) values;                                                             \
                                                                                                             \
		if (!code && UNLIKELY(is_marked(comm)))                                                      \
			mark(*made);                                                                         \
		return code;                                                                                 \
	}

DERIVED(Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm *made), (comm, high, made))
DERIVED(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *made), (comm, color, key, made))
DERIVED(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made),
	(comm, type, key, info, made))
DERIVED(Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm *made), (comm, group, made))
DERIVED(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made),
	(comm, group, tag, made))
DERIVED(Cart_create,
	(MPI_Comm comm, int dimensions, const int lengths[], const int periods[], int reorder,
	 MPI_Comm *made),
	(comm, dimensions, lengths, periods, reorder, made))
