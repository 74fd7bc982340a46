/*
 * Calls that send. The receiver may sleep, so each rings its bell. One that can wait for the receiver is the
 * host MPI's form without waiting, and questions.
 */
#include "crowded.h"

/* Longer messages may wait for their receiver. MPIs copy shorter ones (at least 2 KB) and go on. */
enum { ELEMENTS_COPIED = 256 };

/* Waits for a message that this call has begun to send. */
INLINE int sent(int code, struct request_question *sending, int destination, MPI_Comm comm)
{
	if (UNLIKELY(code))
		return code;
	ring(comm, destination);
	return await(UNISONO_MPI_WAIT_CALL_SEND, UNISONO_MPI_WAIT_KIND_UNDIRECTED, ask_request,
		     &sending->question);
}

/* A short message is sent by the host's own call where its receiver has a processor to take it. */
static inline bool is_hosts(int count)
{
	return !waits_served || (count <= ELEMENTS_COPIED && !ranks_outnumber && !waits_counted) ||
	       !wait_is_ours();
}

/*
 * Returns what a call of the host's says that sends. Before the first nap of any rank there is nobody to
 * ring; the host's call is then the last thing to do, a jump.
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

/* The request of a long message may need more than this rank. */
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

/* A persistent request does not say where it goes to: all who nap look again. */
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
