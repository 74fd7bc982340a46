/*
 * The record of each communicator: its size, and the places of its ranks on this host. It is an attribute of
 * the communicator. Senders find in it which rank to wake.
 */
#include "waiting.h"
#include <stdlib.h>
#include <string.h>

static int keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
_Atomic unsigned comm_records_freed;

/* Copies the record: a duplicate has the same members, with the same answer. */
static int comm_record_copy(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *copied)
{
	const struct comm_record *record = value;
	size_t bytes = sizeof *record + (size_t)record->size * sizeof record->members[0];
	struct comm_record *made = malloc(bytes);

	(void)comm;
	(void)key;
	(void)extra;
	*copied = made != NULL;
	if (made) {
		memcpy(made, record, bytes);
		made->orders = NULL;
		made->calls = made->passed = 0;
		memset(made->host, 0, sizeof made->host);
		*(void **)copy = made;
	}
	return MPI_SUCCESS;
}

static int comm_record_delete(MPI_Comm comm, int key, void *value, void *extra)
{
	(void)comm;
	(void)key;
	(void)extra;
	atomic_fetch_add_explicit(&comm_records_freed, 1, memory_order_relaxed);
	orders_free(((struct comm_record *)value)->orders);
	free(value);
	return MPI_SUCCESS;
}

static struct comm_record *comm_record_new(MPI_Comm comm)
{
	struct comm_record *record;
	MPI_Group group;
	int between = 0, size = 0;

	PMPI_Comm_test_inter(comm, &between);
	if (between)
		PMPI_Comm_remote_size(comm, &size);
	else
		PMPI_Comm_size(comm, &size);
	record = calloc(1, sizeof *record + (size_t)size * sizeof record->members[0]);
	if (!record)
		abort();
	if (between)
		PMPI_Comm_remote_group(comm, &group);
	else
		PMPI_Comm_group(comm, &group);
	record->size = size;
	record->all_here = host_places(group, size, record->members) && !between;
	PMPI_Group_free(&group);
	PMPI_Comm_set_attr(comm, keyval, record);
	return record;
}

/* Finds the record of a communicator, or makes it; NULL for MPI_COMM_NULL or on failure. */
struct comm_record *comm_record_of(MPI_Comm comm)
{
	struct comm_record *record = NULL;
	int found = 0;

	if (comm == MPI_COMM_NULL)
		return NULL;
	pthread_mutex_lock(&guard);
	if (keyval == MPI_KEYVAL_INVALID)
		PMPI_Comm_create_keyval(comm_record_copy, comm_record_delete, &keyval, NULL);
	if (!PMPI_Comm_get_attr(comm, keyval, &record, &found) && !found)
		record = comm_record_new(comm);
	pthread_mutex_unlock(&guard);
	return record;
}

void ring_slow(MPI_Comm comm, int rank)
{
	const struct comm_record *record;
	unsigned place = NOT_HERE;

	if (!host_ranks_joined() || rank < 0) /* MPI_PROC_NULL and other negative values */
		return;
	if (comm == MPI_COMM_WORLD) {
		place = world_place(rank);
	} else {
		record = comm_record_of(comm);
		if (record && rank < record->size)
			place = record->members[rank];
	}
	if (place != NOT_HERE)
		unisono_mpi_crowd_ring(place);
}
