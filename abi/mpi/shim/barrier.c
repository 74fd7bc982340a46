/*
 * MPI_Barrier. The first few barriers of a communicator are the host's, because making a job or a tree costs
 * more than these barriers do. Afterwards the ranks of one host share an engine barrier, and with --tree the
 * ranks of several hosts share a tree (tree.c). All ranks count the same number of barriers, because a
 * barrier is collective.
 */
#include "waiting.h"
#include <stdlib.h>

enum { BARRIERS_BEFORE_JOB = 3 };

struct barrier {
	struct job *job;   /* of one host */
	struct tree *tree; /* of several hosts; without job and tree: the host's barrier */
	unsigned count;
	bool by_host;
};

static int keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned generation = 1;

static int barrier_freed(MPI_Comm comm, int key, void *value, void *extra)
{
	struct barrier *barrier = value;

	(void)comm;
	(void)key;
	(void)extra;
	atomic_fetch_add(&generation, 1);
	/* the job ends with the communicator's own attribute or here, whichever comes last */
	if (barrier->job)
		job_release(barrier->job);
	if (barrier->tree)
		tree_release(barrier->tree);
	free(barrier);
	return MPI_SUCCESS;
}

static struct barrier *barrier_of(MPI_Comm comm)
{
	struct barrier *barrier = NULL;
	int found = 0, between = 0, size = 0;

	pthread_mutex_lock(&guard);
	if (keyval == MPI_KEYVAL_INVALID)
		PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, barrier_freed, &keyval, NULL);
	pthread_mutex_unlock(&guard);
	if (PMPI_Comm_get_attr(comm, keyval, &barrier, &found))
		return NULL;
	if (!found) {
		barrier = calloc(1, sizeof *barrier);
		if (!barrier)
			return NULL;
		PMPI_Comm_test_inter(comm, &between);
		PMPI_Comm_size(comm, &size);
		barrier->by_host = between || size < 2 || messages_forced() || !comm_is_served(comm);
		PMPI_Comm_set_attr(comm, keyval, barrier);
	}
	return barrier;
}

static int barrier_of_tree(MPI_Comm comm, struct tree *tree)
{
	uint64_t begun = waits_counted ? timed_wait_begins() : 0;
	const char *words;
	int code = tree_barrier(tree, &words);

	if (waits_counted)
		unisono_mpi_crowd_timed(UNISONO_MPI_WAIT_CALL_BARRIER, begun);
	return LIKELY(!code) ? MPI_SUCCESS : comm_error(comm, "MPI_Barrier", code, words);
}

/* Decides what serves a communicator's barriers; collective. */
static int barrier_begin(MPI_Comm comm, struct barrier *barrier)
{
	bool one_host = true;
	int code = tree_wanted() ? tree_of(comm, &barrier->tree, &one_host) : MPI_SUCCESS;

	if (code || barrier->tree)
		return code;
	if (one_host && job_is_the_hosts(comm))
		one_host = false;
	if (one_host)
		code = job_of(comm, &barrier->job);
	if (!code && (!barrier->job || !barrier->job->one_host)) {
		if (barrier->job)
			job_release(barrier->job);
		barrier->job = NULL;
		barrier->by_host = true;
	}
	return code;
}

static unisono_status barrier_of_job(struct job *job)
{
	unisono_status status;
	uint64_t begun;

	if (LIKELY(!waits_counted))
		return job_barrier(job);
	begun = timed_wait_begins();
	status = job_barrier(job);
	unisono_mpi_crowd_timed(UNISONO_MPI_WAIT_CALL_BARRIER, begun);
	return status;
}

BOTH(int, Barrier, (MPI_Comm comm))
{
	static _Thread_local struct {
		MPI_Comm comm;
		struct job *job;
		unsigned generation;
	} last;
	struct barrier *barrier;
	unisono_status status;
	int code;

	if (LIKELY(last.job && last.comm == comm && last.generation == atomic_load(&generation) &&
		   last.job->core)) {
		status = barrier_of_job(last.job);
		return LIKELY(!status) ? MPI_SUCCESS
				       : comm_error(comm, "MPI_Barrier", code_of_status(status),
						    unisono_error_text());
	}
	barrier = comm == MPI_COMM_NULL || jobs_have_ended() ? NULL : barrier_of(comm);
	if (!barrier || barrier->by_host || barrier->count++ < BARRIERS_BEFORE_JOB)
		return barrier_of_host(comm);
	if (!barrier->job && !barrier->tree) {
		code = barrier_begin(comm, barrier);
		if (code)
			return comm_error(comm, "MPI_Barrier", code, unisono_error_text());
		if (barrier->by_host)
			return barrier_of_host(comm);
	}
	if (barrier->tree)
		return barrier_of_tree(comm, barrier->tree);
	last.comm = comm;
	last.job = barrier->job;
	last.generation = atomic_load(&generation);
	status = barrier_of_job(barrier->job);
	return status ? comm_error(comm, "MPI_Barrier", code_of_status(status), unisono_error_text())
		      : MPI_SUCCESS;
}
