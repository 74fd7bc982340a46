/*
 * Communicators as the engine's jobs. A job belongs to a communicator (as an attribute) and to the windows
 * made on it. The last of them to be freed ends the job; freeing a communicator or a window is collective, so
 * ending the job is too. Jobs that remain end in MPI_Finalize in the order of their keys, because threads
 * make jobs in an order that differs between ranks. Ranks of one host share memory, which they find by a
 * random key that the communicator's first rank broadcasts. A communicator that reaches other hosts gets a
 * private duplicate, and its packets travel as the host MPI's messages.
 * A ring of connections shows it which ranks are gone.
 */
#include "shim.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct job *jobs;
static pthread_mutex_t guard =
	PTHREAD_MUTEX_INITIALIZER; /* protects the list and the key; never held while waiting */
static int keyval = MPI_KEYVAL_INVALID;
static _Atomic bool ended;

enum { TAG = 1 };

static int packet_send(void *context, int to, void *packet, size_t bytes, void **pending)
{
	struct job *job = context;
	MPI_Request *request = malloc(sizeof *request);
	int code;

	*pending = request;
	if (!request)
		return MPI_ERR_NO_MEM;
	code = PMPI_Isend(packet, (int)bytes, MPI_BYTE, to, TAG, job->messages, request);
	if (code) {
		free(request);
		*pending = NULL;
	}
	return code;
}

static int packet_ended(void *context, void **pending, int *done)
{
	MPI_Request *request = *pending;
	int code = PMPI_Test(request, done, MPI_STATUS_IGNORE);

	(void)context;
	if (code || *done) {
		free(request);
		*pending = NULL;
	}
	return code;
}

static int packet_receive(void *context, int *from, size_t *bytes, void **message)
{
	struct job *job = context;
	MPI_Status status;
	MPI_Message *matched = malloc(sizeof *matched);
	int found = 0, count = 0, code;

	*message = NULL;
	if (!matched)
		return MPI_ERR_NO_MEM;
	code = PMPI_Improbe(MPI_ANY_SOURCE, TAG, job->messages, &found, matched, &status);
	if (code || !found) {
		free(matched);
		return code;
	}
	PMPI_Get_count(&status, MPI_BYTE, &count);
	*from = status.MPI_SOURCE;
	*bytes = (size_t)count;
	*message = matched;
	return MPI_SUCCESS;
}

/*
 * A packet of up to WHOLE_BYTES arrives together with its header, so it is only copied. A longer one may
 * still be on its way, or wait at its sender for this call.
 */
static int packet_take(void *context, void **message, void *packet, size_t bytes)
{
	enum { WHOLE_BYTES = 1024 };
	MPI_Message *matched = *message;
	MPI_Request *request = NULL;
	int code = MPI_SUCCESS, done;

	*message = NULL;
	if (bytes <= WHOLE_BYTES) {
		code = PMPI_Mrecv(packet, (int)bytes, MPI_BYTE, matched, MPI_STATUS_IGNORE);
	} else {
		request = malloc(sizeof *request);
		code = request ? PMPI_Imrecv(packet, (int)bytes, MPI_BYTE, matched, request) : MPI_ERR_NO_MEM;
	}
	free(matched);
	if (code || !request) {
		free(request);
		return code;
	}
	*message = request;
	return packet_ended(context, message, &done);
}

static int comm_freed(MPI_Comm comm, int key, void *value, void *extra)
{
	(void)comm;
	(void)key;
	(void)extra;
	if (!ended)
		job_release(value);
	return MPI_SUCCESS;
}

static int failed(struct job *job, unisono_status status)
{
	if (job->messages != MPI_COMM_NULL)
		PMPI_Comm_free(&job->messages);
	free(job);
	return code_of_status(status);
}

/* The way of a communicator's ranks to each other: the value of an attribute. */
enum reach {
	BY_MEMORY = 1, /* all are on this host, and share memory */
	BY_MESSAGES,   /* some are on other hosts */
	BY_HOST_MPI,   /* all are on this host, but cannot map each other's memory */
};

static int reach_deleted(MPI_Comm comm, int key, void *value, void *extra)
{
	(void)comm;
	(void)key;
	(void)value;
	(void)extra;
	return MPI_SUCCESS;
}

static int reach_find(MPI_Comm comm, enum reach *reach)
{
	MPI_Comm together;
	void *probe;
	int size, here, code;

	*reach = BY_MESSAGES;
	if (messages_forced())
		return MPI_SUCCESS;
	code = PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &together);
	if (code)
		return code;
	PMPI_Comm_size(comm, &size);
	PMPI_Comm_size(together, &here);
	if (here == size) {
		probe = memory_share(together, 1);
		*reach = probe ? BY_MEMORY : BY_HOST_MPI;
		if (probe)
			memory_unshare(probe, 1);
	}
	return PMPI_Comm_free(&together);
}

/* Finds how a communicator's ranks reach each other; the same at all of them. Collective at the first call.
 */
static int reach_of(MPI_Comm comm, enum reach *reach)
{
	static int key = MPI_KEYVAL_INVALID;
	void *value;
	int found, code;

	pthread_mutex_lock(&guard);
	if (key == MPI_KEYVAL_INVALID)
		PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, reach_deleted, &key, NULL);
	pthread_mutex_unlock(&guard);
	code = PMPI_Comm_get_attr(comm, key, &value, &found);
	if (!code && found)
		*reach = (enum reach)(intptr_t)value;
	else if (!code)
		code = reach_find(comm, reach);
	if (!code && !found)
		code = PMPI_Comm_set_attr(comm, key, (void *)(intptr_t)*reach);
	return code;
}

/*
 * Whether a communicator's windows and barriers are left to the host MPI, because its ranks cannot map each
 * other's memory. They may be in containers of their own. Collective.
 */
bool job_is_the_hosts(MPI_Comm comm)
{
	enum reach reach;

	if (reach_of(comm, &reach) || reach != BY_HOST_MPI)
		return false;
	host_has_windows = true;
	warn_once("the ranks of this host cannot map each other's memory (is each in a container or user "
		  "namespace of its own?); their windows and barriers are left to the program's MPI");
	return true;
}

/*
 * Connects the ranks in a ring that tells them which ranks are gone. NULL at all ranks if some of them cannot
 * connect; their process does not try again. Collective.
 */
static int watch_make(MPI_Comm comm, struct job *job, unisono_mpi_watch **made)
{
	static _Atomic bool impossible;
	uint8_t *offers = calloc((size_t)job->size + 1, UNISONO_MPI_WATCH_OFFER);
	unisono_mpi_watch *watch = NULL;
	int mine, all, code;

	*made = NULL;
	if (!offers)
		return MPI_ERR_NO_MEM;
	uint8_t *own = offers + (size_t)job->size * UNISONO_MPI_WATCH_OFFER;

	/* without an offer of each rank none connects */
	if (!impossible)
		watch = unisono_mpi_watch_new(job->rank, job->size, job->key, own);
	code = PMPI_Allgather(own, UNISONO_MPI_WATCH_OFFER, MPI_BYTE, offers, UNISONO_MPI_WATCH_OFFER,
			      MPI_BYTE, comm);
	mine = !code && watch && !unisono_mpi_watch_meet(watch, offers);
	free(offers);
	if (!code)
		code = PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm);
	if (!code && all) {
		*made = watch;
		return MPI_SUCCESS;
	}
	if (!code && !mine && !impossible) {
		char words[256];

		snprintf(words, sizeof words,
			 "a rank that dies on another host will not be named (%s); allow TCP between the "
			 "hosts, on "
			 "all ports",
			 unisono_error_text());
		warn_once(words);
	}
	impossible = true;
	if (watch)
		unisono_mpi_watch_free(watch);
	return code;
}

/* Whether all members can serve windows in their waits. Collective. */
static int all_serve(MPI_Comm comm, bool *serve)
{
	int own = waits_can_serve_windows(), all = 0, code;

	code = PMPI_Allreduce(&own, &all, 1, MPI_INT, MPI_MIN, comm);
	*serve = all;
	return code;
}

/*
 * Counts the members on this host, and the processors that they may use together: each may be bound to one of
 * its own. Collective.
 */
static int count_here(MPI_Comm comm, int *here, int *processors)
{
	MPI_Comm together;
	cpu_set_t set;
	int code = PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &together), freed;

	if (code)
		return code;
	PMPI_Comm_size(together, here);
	CPU_ZERO(&set);
	sched_getaffinity(0, sizeof set, &set); /* fails beyond 1024 processors: then none is counted */
	code = PMPI_Allreduce(MPI_IN_PLACE, &set, sizeof set, MPI_BYTE, MPI_BOR, together);
	*processors = CPU_COUNT(&set);
	freed = PMPI_Comm_free(&together);
	return code ? code : freed;
}

static int job_make(MPI_Comm comm, struct job **made)
{
	struct job *job = calloc(1, sizeof *job);
	unisono_status status;
	enum reach reach;
	int code;

	if (!job)
		return MPI_ERR_NO_MEM;
	job->messages = MPI_COMM_NULL;
	PMPI_Comm_rank(comm, &job->rank);
	PMPI_Comm_size(comm, &job->size);
	code = reach_of(comm, &reach);
	if (code) {
		free(job);
		return code;
	}
	job->one_host = reach != BY_MESSAGES;
	if (job->rank == 0 && unisono_mpi_key(job->key)) {
		free(job);
		return MPI_ERR_OTHER;
	}
	code = PMPI_Bcast(job->key, sizeof job->key, MPI_BYTE, 0, comm);
	if (code) {
		free(job);
		return code;
	}
	if (job->one_host) {
		/* unisono_mpi_job_shared() waits without MPI progress, so let all ranks meet in MPI first */
		code = ((int (*)(MPI_Comm))host("PMPI_Barrier"))(comm);
		if (code) {
			free(job);
			return code;
		}
		status = unisono_mpi_job_shared(job->rank, job->size, job->key, progress, &job->core);
	} else if (threads_missing()) {
		warn_once("windows that reach other hosts need MPI_THREAD_MULTIPLE, which this MPI was not "
			  "started with: "
			  "call MPI_Init_thread with it");
		free(job);
		return MPI_ERR_UNSUPPORTED_OPERATION;
	} else {
		unisono_mpi_messages messages = {
			.context = job,
			.send = packet_send,
			.ended = packet_ended,
			.receive = packet_receive,
			.take = packet_take,
		};

		unisono_mpi_watch *watch = NULL;
		int here = 1, processors = 0;

		code = PMPI_Comm_dup(comm, &job->messages);
		if (!code)
			code = count_here(comm, &here, &processors);
		if (!code)
			code = all_serve(comm, &job->waits_serve);
		if (!code)
			code = watch_make(comm, job, &watch);
		if (code) {
			if (job->messages != MPI_COMM_NULL)
				PMPI_Comm_free(&job->messages);
			free(job);
			return code;
		}
		status = unisono_mpi_job_messages(job->rank, job->size, here, processors, &messages, watch,
						  &job->core);
		if (!status && agent_disabled())
			unisono_mpi_job_without_agent(job->core);
	}
	if (status)
		return failed(job, status);
	pthread_mutex_lock(&guard);
	struct job **at = &jobs;
	while (*at && memcmp((*at)->key, job->key, sizeof job->key) < 0)
		at = &(*at)->next;
	job->next = *at;
	*at = job;
	pthread_mutex_unlock(&guard);
	*made = job;
	return MPI_SUCCESS;
}

/* Gets the job of a communicator and adds a user. Collective at the first call, which makes the job. */
int job_of(MPI_Comm comm, struct job **job)
{
	int found, code;

	setup();
	pthread_mutex_lock(&guard);
	if (keyval == MPI_KEYVAL_INVALID)
		PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, comm_freed, &keyval, NULL);
	pthread_mutex_unlock(&guard);
	code = PMPI_Comm_get_attr(comm, keyval, job, &found);
	if (code)
		return code;
	if (!found) {
		code = job_make(comm, job);
		if (code)
			return code;
		(*job)->users = 1;
		PMPI_Comm_set_attr(comm, keyval, *job);
	}
	(*job)->users++;
	return MPI_SUCCESS;
}

/* Serves the packets of other hosts to windows with locks; returns whether there was one. Never waits. */
static bool serve_windows(void)
{
	bool any = false;

	if (pthread_mutex_trylock(&guard))
		return false;
	for (struct job *job = jobs; job; job = job->next)
		any |= job->server && unisono_mpi_server_serve(job->server);
	pthread_mutex_unlock(&guard);
	return any;
}

/* Called when a window with locks is made: other ranks may use it at any time. */
void job_is_locked(struct job *job)
{
	if (!job->waits_serve)
		return;
	pthread_mutex_lock(&guard);
	if (!job->server)
		job->server = unisono_mpi_server_new(job->core);
	pthread_mutex_unlock(&guard);
	waits_begin_to_serve_windows(serve_windows);
}

/* Whether ranks of other hosts may use windows of a communicator at any time; the same at all members. */
bool job_serves(MPI_Comm comm)
{
	struct job *job;
	int found = 0;

	return keyval != MPI_KEYVAL_INVALID && !PMPI_Comm_get_attr(comm, keyval, &job, &found) && found &&
	       job->server;
}

/*
 * A barrier of ranks that share memory. A fence of a window without bytes passes the engine's barrier once;
 * unisono_job_barrier() would send packets instead.
 */
unisono_status job_barrier(struct job *job)
{
	const unisono_spec spec = { .flags = UNISONO_NO_LOCKS };
	unisono_status status;
	void *base;

	if (UNLIKELY(!job->gate)) {
		/* making the window is collective, as a barrier is; the job's barrier orders its first use */
		status = unisono_window_allocate(job->core, 0, &spec, &base, &job->gate);
		if (!status)
			status = unisono_job_barrier(job->core);
		if (status)
			return status;
	}
	do
		status = unisono_window_fence(job->gate, 0);
	while (UNLIKELY(status == UNISONO_STATUS_AGAIN));
	return status;
}

static int job_end(struct job *job)
{
	unisono_status status = UNISONO_STATUS_OK;

	if (job->gate) {
		status = unisono_window_fence(job->gate, UNISONO_ASSERT_NO_SUCCEED);
		if (!status)
			status = unisono_mpi_window_free(&job->gate, "barriers");
	}
	pthread_mutex_lock(&guard);
	if (job->server)
		unisono_mpi_server_free(job->server);
	job->server = NULL;
	pthread_mutex_unlock(&guard);
	if (job->core && !status)
		status = unisono_job_finalize(&job->core);
	job->core = NULL;
	if (job->messages != MPI_COMM_NULL)
		PMPI_Comm_free(&job->messages);
	return status ? code_of_status(status) : MPI_SUCCESS;
}

/* Removes a user of a job. The call for the last user is collective. */
int job_release(struct job *job)
{
	int code;

	if (atomic_fetch_sub(&job->users, 1) > 1)
		return MPI_SUCCESS;
	pthread_mutex_lock(&guard);
	for (struct job **at = &jobs; *at; at = &(*at)->next)
		if (*at == job) {
			*at = job->next;
			break;
		}
	pthread_mutex_unlock(&guard);
	code = job_end(job);
	free(job);
	return code;
}

bool jobs_have_ended(void)
{
	return atomic_load(&ended);
}

/* Called before MPI_Finalize: an agent thread must not call MPI while MPI shuts down. */
void jobs_stop_agents(void)
{
	for (struct job *job = jobs; job; job = job->next)
		if (!job->one_host && job->core)
			unisono_mpi_job_without_agent(job->core);
}

static int at_finalize(MPI_Comm comm, int key, void *value, void *extra)
{
	(void)comm;
	(void)key;
	(void)value;
	(void)extra;
	windows_enter_statistics(false);
	atomic_store(&ended, true);
	for (struct job *job = jobs; job; job = job->next)
		job_end(job);
	/* all jobs' barriers are in the statistics now, and MPI still works */
	statistics_gather();
	return MPI_SUCCESS;
}

/* MPI_Finalize first deletes the attributes of MPI_COMM_SELF, newest first, and lets their callbacks use
 * MPI. An attribute that is set before all others is deleted last, so its callback ends the jobs when the
 * program can do nothing more. */
void jobs_at_finalize(void)
{
	int key;

	if (!PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, NULL))
		PMPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
}
