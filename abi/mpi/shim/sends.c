/*
 * Send calls. The receiver may nap, so each call rings its bell. A call that may wait for the receiver runs
 * as the host MPI's nonblocking form, which the shim polls.
 */
#include "crowded.h"

/* Longer messages may wait for their receiver. MPIs buffer shorter ones (at least 2 KB) and return. */
enum { ELEMENTS_COPIED = 256 };

/* Waits for a message whose nonblocking send returned `code`. */
INLINE int sent(int code, struct request_question *sending, int destination, MPI_Comm comm)
{
	if (UNLIKELY(code))
		return code;
	ring(comm, destination);
	return await(UNISONO_MPI_WAIT_CALL_SEND, UNISONO_MPI_WAIT_KIND_UNDIRECTED, ask_request,
		     &sending->question);
}

/* Whether the host's own call sends: for a short message whose receiver has a processor to run on. */
static inline bool is_hosts(int count)
{
	return !waits_served || (count <= ELEMENTS_COPIED && !ranks_outnumber && !waits_counted) ||
	       !wait_is_ours();
}

/*
 * Returns the result of a host call that sends. Until some rank has napped, no bell needs to be rung; the
 * host's call is then a tail call, a jump.
 */
#define SEND_AND_RING(call, destination, comm)                                                               \
	do {                                                                                                 \
		int code_;                                                                                   \
                                                                                                             \
		if (LIKELY(!atomic_load_explicit(napped, memory_order_relaxed)))                             \
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
		struct request_question sending = { .question = { 0 } };                                     \
                                                                                                             \
		UNLESS_SAMPLED(SEND, PMPI_##name(buffer, count, type, destination, tag, comm));              \
		return sent(PMPI_##form(buffer, count, type, destination, tag, comm, &sending.request),      \
			    &sending, destination, comm);                                                    \
	}                                                                                                    \
                                                                                                             \
	BOTH(int, name, SEND_ARGUMENTS)                                                                      \
	{                                                                                                    \
		if (is_hosts(count))                                                                         \
			SEND_AND_RING(PMPI_##name(buffer, count, type, destination, tag, comm), destination, \
				      comm);                                                                 \
		return name##_ours(buffer, count, type, destination, tag, comm);                             \
	}

SEND_AS(Send, Isend)
SEND_AS(Rsend, Irsend)

BOTH(int, Ssend, SEND_ARGUMENTS)
{
	struct request_question sending = { .question = { 0 } };

	if (!wait_is_ours())
		SEND_AND_RING(PMPI_Ssend(buffer, count, type, destination, tag, comm), destination, comm);
	UNLESS_SAMPLED(SEND, PMPI_Ssend(buffer, count, type, destination, tag, comm));
	return sent(PMPI_Issend(buffer, count, type, destination, tag, comm, &sending.request), &sending,
		    destination, comm);
}

BOTH(int, Bsend, SEND_ARGUMENTS)
{
	SEND_AND_RING(PMPI_Bsend(buffer, count, type, destination, tag, comm), destination, comm);
}

#define ISEND_ARGUMENTS                                                                                      \
	(const void *buffer, int count, MPI_Datatype type, int destination, int tag, MPI_Comm comm,          \
	 MPI_Request *request)

/* Completing a long message may need more than this rank. */
static inline void requested(int count)
{
	if (UNLIKELY(count > ELEMENTS_COPIED))
		undirected = true;
}

BOTH(int, Isend, ISEND_ARGUMENTS)
{
	requested(count);
	SEND_AND_RING(PMPI_Isend(buffer, count, type, destination, tag, comm, request), destination, comm);
}

BOTH(int, Irsend, ISEND_ARGUMENTS)
{
	requested(count);
	SEND_AND_RING(PMPI_Irsend(buffer, count, type, destination, tag, comm, request), destination, comm);
}

BOTH(int, Ibsend, ISEND_ARGUMENTS)
{
	SEND_AND_RING(PMPI_Ibsend(buffer, count, type, destination, tag, comm, request), destination, comm);
}

BOTH(int, Issend, ISEND_ARGUMENTS)
{
	undirected = true;
	SEND_AND_RING(PMPI_Issend(buffer, count, type, destination, tag, comm, request), destination, comm);
}

/* A persistent request does not tell its destination, so all napping ranks are woken. */
INLINE int started(int code)
{
	undirected = true;
	if (UNLIKELY(atomic_load_explicit(napping, memory_order_relaxed)))
		unisono_mpi_crowd_ring_all();
	return code;
}

BOTH(int, Start, (MPI_Request * request))
{
	return started(PMPI_Start(request));
}

BOTH(int, Startall, (int count, MPI_Request requests[]))
{
	return started(PMPI_Startall(count, requests));
}
