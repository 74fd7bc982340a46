/*
 * Requests of operations that are not complete when their call returns: operations of windows that work by
 * messages. Such a request is a generalized request of the host MPI, so that the program can pass it to every
 * call together with requests of messages. The host does not know when the operation is complete. So the
 * calls that wait for requests or test them (waits.c, waitall.c, tests.c) come here first.
 *
 * The end of an epoch completes the epoch's requests, including requests that the program has freed.
 */
#include "requests.h"
#include <sched.h>
#include <stdlib.h>

struct operation {
	MPI_Request handle;
	struct window *window;
	unisono_request *core; /* NULL: complete */
	int rank, code;	       /* code: the error of a refused operation */
	struct operation *next;
};

_Atomic bool operations_used;

/* The operations that may be incomplete, by handle. A thread that works on an operation takes it out. */
enum { CHAINS = 1024 };
static struct operation *chains[CHAINS];
static _Atomic unsigned int open_operations;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int code_of_ended; /* of the requests that the host ended in this call */

static struct operation **chain_of(MPI_Request handle)
{
	uintptr_t number = (uintptr_t)handle;

	return &chains[(number ^ number >> 6 ^ number >> 16) % CHAINS];
}

static bool any_open(void)
{
	return atomic_load_explicit(&open_operations, memory_order_relaxed);
}

static void keep(struct operation *operation)
{
	struct operation **chain = chain_of(operation->handle);

	pthread_mutex_lock(&guard);
	operation->next = *chain;
	*chain = operation;
	atomic_fetch_add(&open_operations, 1);
	pthread_mutex_unlock(&guard);
}

/* Takes out the operation at `at`. The caller holds the guard. */
static struct operation *unlinked(struct operation **at)
{
	struct operation *operation = *at;

	*at = operation->next;
	atomic_fetch_sub(&open_operations, 1);
	return operation;
}

/* Takes out the operation of a request; NULL if the request is not of a window, or its operation is complete.
 */
static struct operation *taken(MPI_Request handle)
{
	struct operation *found = NULL;

	pthread_mutex_lock(&guard);
	for (struct operation **at = chain_of(handle); *at && !found; at = found ? at : &(*at)->next)
		if ((*at)->handle == handle)
			found = unlinked(at);
	pthread_mutex_unlock(&guard);
	return found;
}

static int status_of(void *extra, MPI_Status *status)
{
	const struct operation *operation = extra;

	PMPI_Status_set_elements(status, MPI_BYTE, 0);
	PMPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = MPI_UNDEFINED;
	status->MPI_TAG = MPI_UNDEFINED;
	if (operation && operation->code)
		code_of_ended = operation->code;
	return MPI_SUCCESS;
}

static int freed(void *extra)
{
	free(extra);
	return MPI_SUCCESS;
}

static int not_cancelled(void *extra, int complete)
{
	(void)extra;
	(void)complete;
	return MPI_SUCCESS;
}

/* Makes a completed request of the host MPI. */
int operation_completed(MPI_Request *request)
{
	int code = PMPI_Grequest_start(status_of, freed, not_cancelled, NULL, request);

	return code ? code : PMPI_Grequest_complete(*request);
}

/*
 * Frees a request that may be incomplete. Its operation completes with the epoch, and needs no request for
 * that. MPICH calls the free function at once, also for an incomplete request.
 */
BOTH(int, Request_free, (MPI_Request * request))
{
	struct operation *operation = operations_were_used() ? taken(*request) : NULL;

	if (operation) {
		unisono_mpi_request_free(&operation->core);
		PMPI_Grequest_complete(*request);
	}
	return PMPI_Request_free(request);
}

/* Sends what is left to send, and asks whether the operation is complete. */
static unisono_status ask(struct operation *operation)
{
	unisono_status status;
	int done = 0;

	do {
		enter(operation->window);
		status = unisono_request_test(operation->window->core, &operation->core, &done);
	} while (leave_to_repeat(operation->window, status));
	return status;
}

/* Ends an operation that is complete or has failed. The window's error handler learns of a failure here; the
 * call that ends the request returns the code. */
static void end(struct operation *operation, unisono_status status)
{
	if (UNLIKELY(status)) {
		operation->code = window_result(operation->window, "a request of a window", status);
		/* frees the core's request, if the window still works */
		ask(operation);
	}
	PMPI_Grequest_complete(operation->handle);
}

int operation_begun(struct window *window, unisono_request *core, int rank, MPI_Request *request)
{
	struct operation *operation = malloc(sizeof *operation);
	unisono_status status = UNISONO_STATUS_OK;
	int code;

	if (!operation)
		return window_error(window, "a request of a window", MPI_ERR_NO_MEM,
				    "no memory for a request");
	*operation = (struct operation){ .window = window, .core = core, .rank = rank };
	status = ask(operation);
	if (!status && operation->core)
		code = PMPI_Grequest_start(status_of, freed, not_cancelled, operation, request);
	else
		code = status ? window_result(window, "a request of a window", status)
			      : operation_completed(request);
	if (code || !operation->core) {
		free(operation);
		return code;
	}
	operation->handle = *request;
	atomic_store_explicit(&operations_used, true, memory_order_relaxed);
	keep(operation);
	return MPI_SUCCESS;
}

void operations_complete_slow(int count, const MPI_Request requests[])
{
	for (int i = 0; i < count && any_open(); i++) {
		struct operation *operation = taken(requests[i]);
		unisono_status status;

		if (!operation)
			continue;
		status = ask(operation);
		while (!status && operation->core) {
			do {
				enter(operation->window);
				status = unisono_window_flush_local(operation->window->core, operation->rank);
			} while (leave_to_repeat(operation->window, status));
			if (!status)
				status = ask(operation);
		}
		end(operation, status);
	}
}

bool operations_advance_slow(int count, const MPI_Request requests[])
{
	bool left = false;

	for (int i = 0; i < count && any_open(); i++) {
		struct operation *operation = taken(requests[i]);
		unisono_status status;

		if (!operation)
			continue;
		status = ask(operation);
		if (!status && operation->core) {
			keep(operation);
			left = true;
		} else {
			end(operation, status);
		}
	}
	return left;
}

/* Ends the operations of an epoch that has ended: those at a rank, or at every rank if `rank` is ALL_RANKS.
 */
void operations_of_epoch_ended(struct window *window, int rank)
{
	struct operation *ended = NULL, *next;

	if (LIKELY(!any_open()))
		return;
	pthread_mutex_lock(&guard);
	for (int chain = 0; chain < CHAINS; chain++)
		for (struct operation **at = &chains[chain]; *at;) {
			if ((*at)->window != window || (rank != ALL_RANKS && (*at)->rank != rank)) {
				at = &(*at)->next;
				continue;
			}
			struct operation *operation = unlinked(at);

			operation->next = ended;
			ended = operation;
		}
	pthread_mutex_unlock(&guard);
	for (; ended; ended = next) {
		unisono_status status = ask(ended);

		next = ended->next;
		if (!status && ended->core)
			keep(ended); /* another thread has begun the next epoch */
		else
			end(ended, status);
	}
}

int operations_result_slow(int code)
{
	int ended = code_of_ended;

	code_of_ended = MPI_SUCCESS;
	return code ? code : ended;
}

/* Between two questions for the first complete request of several: other threads and ranks may use the
 * processor. */
void operations_pause(void)
{
	sched_yield();
}
