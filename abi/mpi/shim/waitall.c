/*
 * MPI_Waitall. The shim asks for one request after the other by MPI_Request_get_status, which completes
 * nothing. When no request is left to wait for, the host's own MPI_Waitall ends all of them at once: so
 * requests, statuses and errors are the host's, whatever their kinds. (MPI_Testall would not do. It completes
 * requests at the first error, and MPICH's own fails on persistent collectives and partitioned requests.)
 *
 * Two waits stay the host's:
 *	- waits for requests of files. MPICH makes progress on them only in waits and tests;
 *	- waits of a program with a handler function for MPI_COMM_WORLD or MPI_COMM_SELF. MPICH would call it
 *	  for MPI_Request_get_status, too.
 */
#include "requests.h"
#include "waiting.h"

/* Requests of files that may be unfinished, as a hash table; 0 is no request. A request that is completed by
 * another call than MPI_Wait and MPI_Waitall stays in the table until its handle is used again. That, and a
 * request that finds no entry, costs only time: the host waits for requests that this file could wait for. */
enum { FILE_REQUESTS = 1024, PROBES = 16 };
static _Atomic uintptr_t file_requests[FILE_REQUESTS];
static _Atomic bool any_file_requests, too_many_file_requests;

static _Atomic uintptr_t *file_request_entry(uintptr_t number, unsigned int probe)
{
	return &file_requests[((number ^ number >> 6 ^ number >> 16) + probe) % FILE_REQUESTS];
}

void note_file_request(MPI_Request request)
{
	uintptr_t number = (uintptr_t)request;

	atomic_store_explicit(&any_file_requests, true, memory_order_relaxed);
	for (unsigned int probe = 0; probe < PROBES; probe++) {
		uintptr_t there = 0;

		if (atomic_compare_exchange_strong(file_request_entry(number, probe), &there, number) ||
		    there == number)
			return;
	}
	atomic_store_explicit(&too_many_file_requests, true, memory_order_relaxed);
}

static __attribute__((noinline)) bool forget_noted(uintptr_t number)
{
	for (unsigned int probe = 0; probe < PROBES; probe++) {
		uintptr_t there = number;

		if (atomic_compare_exchange_strong(file_request_entry(number, probe), &there, 0))
			return true;
	}
	return atomic_load_explicit(&too_many_file_requests, memory_order_relaxed);
}

/* Forgets a request when a wait ends it, because its handle may then become another request's. Returns
 * whether the request may belong to a file. */
bool forget_file_request(MPI_Request request)
{
	return UNLIKELY(atomic_load_explicit(&any_file_requests, memory_order_relaxed)) &&
	       forget_noted((uintptr_t)request);
}

static bool is_function(MPI_Errhandler handler)
{
	if (LIKELY(handler == MPI_ERRORS_ARE_FATAL || handler == MPI_ERRORS_RETURN))
		return false;
#ifdef MPI_ERRORS_ABORT
	if (handler == MPI_ERRORS_ABORT)
		return false;
#endif
	MPI_Errhandler_free(&handler);
	return true;
}

/* Whether the program has a handler function for errors of requests: MPICH calls the handler of
 * MPI_COMM_WORLD, and from MPI 4 on the handler of MPI_COMM_SELF. */
static bool has_handler_function(void)
{
	MPI_Errhandler of_world, of_self;

	return PMPI_Comm_get_errhandler(MPI_COMM_WORLD, &of_world) || is_function(of_world) ||
	       PMPI_Comm_get_errhandler(MPI_COMM_SELF, &of_self) || is_function(of_self);
}

struct all {
	struct completion completion;
	int count, ended; /* requests before `ended` can be completed */
	MPI_Request *requests;
};

static int poll_all(void *context)
{
	struct all *all = context;

	for (; all->ended < all->count; all->ended++) {
		int done = 0;

		/* the host's MPI_Waitall reports an error */
		if (!PMPI_Request_get_status(all->requests[all->ended], &done, MPI_STATUS_IGNORE) && !done)
			return 0;
	}
	return all->completion.done = 1;
}

static __attribute__((noinline)) int all_ours(int count, MPI_Request requests[], MPI_Status statuses[])
{
	struct all all = { .count = count, .requests = requests };
	bool of_files = false;

	UNLESS_SAMPLED(WAITALL, PMPI_Waitall(count, requests, statuses));
	for (int i = 0; i < count; i++)
		of_files |= forget_file_request(requests[i]);
	if (!of_files && !has_handler_function())
		await(UNISONO_MPI_WAIT_CALL_WAITALL, kind_of_requests(), poll_all, &all.completion);
	return PMPI_Waitall(count, requests, statuses);
}

BOTH(int, Waitall, (int count, MPI_Request requests[], MPI_Status statuses[]))
{
	operations_complete(count, requests);
	return operations_result(serves_wait() ? all_ours(count, requests, statuses)
					       : PMPI_Waitall(count, requests, statuses));
}
