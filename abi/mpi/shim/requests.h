/*
 * Requests of windows in the calls that wait for requests or test them: declarations of requests.c. Until the
 * program has an operation that is not complete when its call returns, each of these functions only reads
 * `operations_used`.
 */
#ifndef UNISONO_MPI_REQUESTS_H
#define UNISONO_MPI_REQUESTS_H

#include "shim.h"

extern _Atomic bool operations_used;

void operations_complete_slow(int count, const MPI_Request requests[]);
bool operations_advance_slow(int count, const MPI_Request requests[]);
int operations_result_slow(int code);
void operations_pause(void);

static inline bool operations_were_used(void)
{
	return UNLIKELY(atomic_load_explicit(&operations_used, memory_order_relaxed));
}

/* Waits until the windows' operations among these requests are complete. */
static inline void operations_complete(int count, const MPI_Request requests[])
{
	if (operations_were_used())
		operations_complete_slow(count, requests);
}

/* Asks once whether they are complete; returns whether any is not. */
static inline bool operations_advance(int count, const MPI_Request requests[])
{
	return operations_were_used() && operations_advance_slow(count, requests);
}

/* The result of a call in which the host returned `code`: where the host ended the request of an operation
 * that was refused, that operation's error. */
static inline int operations_result(int code)
{
	return operations_were_used() ? operations_result_slow(code) : code;
}

#endif
