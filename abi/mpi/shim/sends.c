/*
 * Send calls. The receiver may be sleeping, so each call wakes it (rings its bell). A call that may wait for
 * the receiver runs as the host MPI's nonblocking form, which the shim polls.
 */
#include "waiting.h"

/* Messages with more elements may wait for their receiver. MPIs buffer messages of up to 2 KB (256 elements
 * of 8 bytes), or longer ones, and return. */
enum { MAX_EAGER_ELEMENTS = 256 };

/* Waits for a message whose nonblocking send returned `code`. */
INLINE int await_sent(int code, struct polled_request *sending, int destination, MPI_Comm comm)
{
	if (UNLIKELY(code))
		return code;
	ring(comm, destination);
	return await(UNISONO_MPI_WAIT_CALL_SEND, UNISONO_MPI_WAIT_KIND_UNDIRECTED, poll_request,
		     &sending->completion);
}

/* Whether the host's own call sends: if waits are not served, if the message is short and its receiver has a
 * processor to run on, or if this wait is not served. */
static inline bool is_sent_by_host(int count)
{
	return !waits_served || (count <= MAX_EAGER_ELEMENTS && !ranks_outnumber && !waits_counted) ||
	       !serves_wait();
}

/*
 * Returns the result of a host call that sends. Until some rank has slept, no bell needs to be rung; the
 * host's call is then a tail call, a jump.
 */
#define SEND_AND_RING(call, destination, comm)                                                               \
	do {                                                                                                 \
		int code_;                                                                                   \
                                                                                                             \
		if (LIKELY(!atomic_load_explicit(ranks_have_slept, memory_order_relaxed)))                   \
			return (call);                                                                       \
		code_ = (call);                                                                              \
		ring(comm, destination);                                                                     \
		return code_;                                                                                \
	} while (0)

#define SEND_ARGUMENTS                                                                                       \
	(const void *buffer, int count, MPI_Datatype type, int destination, int tag, MPI_Comm comm)
#define SEND_AS(name, form)                                                                                  \
	static __attribute__((noinline)) int name##_ours SEND_ARGUMENTS                                      \
	{                                                                                                    \
		struct polled_request sending = { .completion = { 0 } };                                     \
                                                                                                             \
		UNLESS_SAMPLED(SEND, PMPI_##name(buffer, count, type, destination, tag, comm));              \
		return await_sent(                                                                           \
			PMPI_##form(buffer, count, type, destination, tag, comm, &sending.request),          \
			&sending, destination, comm);                                                        \
	}                                                                                                    \
                                                                                                             \
	BOTH(int, name, SEND_ARGUMENTS)                                                                      \
	{                                                                                                    \
		if (is_sent_by_host(count))                                                                  \
			SEND_AND_RING(PMPI_##name(buffer, count, type, destination, tag, comm), destination, \
				      comm);                                                                 \
		return name##_ours(buffer, count, type, destination, tag, comm);                             \
	}

SEND_AS(Send, Isend)
SEND_AS(Rsend, Irsend)

BOTH(int, Ssend, SEND_ARGUMENTS)
{
	struct polled_request sending = { .completion = { 0 } };

	if (!serves_wait())
		SEND_AND_RING(PMPI_Ssend(buffer, count, type, destination, tag, comm), destination, comm);
	UNLESS_SAMPLED(SEND, PMPI_Ssend(buffer, count, type, destination, tag, comm));
	return await_sent(PMPI_Issend(buffer, count, type, destination, tag, comm, &sending.request),
			  &sending, destination, comm);
}

BOTH(int, Bsend, SEND_ARGUMENTS)
{
	SEND_AND_RING(PMPI_Bsend(buffer, count, type, destination, tag, comm), destination, comm);
}

#define ISEND_ARGUMENTS                                                                                      \
	(const void *buffer, int count, MPI_Datatype type, int destination, int tag, MPI_Comm comm,          \
	 MPI_Request *request)

/* Notes that completing a long message may need other ranks. */
static inline void note_long_send(int count)
{
	if (UNLIKELY(count > MAX_EAGER_ELEMENTS))
		needs_other_ranks = true;
}

BOTH(int, Isend, ISEND_ARGUMENTS)
{
	note_long_send(count);
	SEND_AND_RING(PMPI_Isend(buffer, count, type, destination, tag, comm, request), destination, comm);
}

BOTH(int, Irsend, ISEND_ARGUMENTS)
{
	note_long_send(count);
	SEND_AND_RING(PMPI_Irsend(buffer, count, type, destination, tag, comm, request), destination, comm);
}

BOTH(int, Ibsend, ISEND_ARGUMENTS)
{
	SEND_AND_RING(PMPI_Ibsend(buffer, count, type, destination, tag, comm, request), destination, comm);
}

BOTH(int, Issend, ISEND_ARGUMENTS)
{
	needs_other_ranks = true;
	SEND_AND_RING(PMPI_Issend(buffer, count, type, destination, tag, comm, request), destination, comm);
}

/* Wakes all sleeping ranks, because the destination of a persistent request cannot be queried. */
INLINE int ring_all_after(int code)
{
	needs_other_ranks = true;
	if (UNLIKELY(atomic_load_explicit(sleeping_ranks, memory_order_relaxed)))
		ring_all();
	return code;
}

BOTH(int, Start, (MPI_Request * request))
{
	return ring_all_after(PMPI_Start(request));
}

BOTH(int, Startall, (int count, MPI_Request requests[]))
{
	return ring_all_after(PMPI_Startall(count, requests));
}
