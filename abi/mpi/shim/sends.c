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

/* The host's own call has sent a message. */
INLINE int rung(int code, int destination, MPI_Comm comm)
{
	ring(comm, destination);
	return code;
}

#define SEND_ARGUMENTS                                                                                       \
	(const void *buffer, int count, MPI_Datatype type, int destination, int tag, MPI_Comm comm)
#define SEND_AS(name, form)                                                                                  \
	BOTH(int, name, SEND_ARGUMENTS)                                                                      \
	{                                                                                                    \
		struct request_question sending = { .question = { 0 } };                                     \
                                                                                                             \
		if (is_hosts(count))                                                                         \
			return rung(HOST(name)(buffer, count, type, destination, tag, comm), destination,    \
				    comm);                                                                   \
		UNLESS_SAMPLED(SEND, HOST(name)(buffer, count, type, destination, tag, comm));               \
		return sent(HOST(form)(buffer, count, type, destination, tag, comm, &sending.request),       \
			    &sending, destination, comm);                                                    \
	}

SEND_AS(Send, Isend)
SEND_AS(Rsend, Irsend)

BOTH(int, Ssend, SEND_ARGUMENTS)
{
	struct request_question sending = { .question = { 0 } };

	if (!wait_is_ours())
		return rung(HOST(Ssend)(buffer, count, type, destination, tag, comm), destination, comm);
	UNLESS_SAMPLED(SEND, HOST(Ssend)(buffer, count, type, destination, tag, comm));
	return sent(HOST(Issend)(buffer, count, type, destination, tag, comm, &sending.request), &sending,
		    destination, comm);
}

BOTH(int, Bsend, SEND_ARGUMENTS)
{
	return rung(HOST(Bsend)(buffer, count, type, destination, tag, comm), destination, comm);
}

/* A request was made that may need more than this rank. */
INLINE int begun(int code, int count, int destination, MPI_Comm comm)
{
	if (UNLIKELY(count > ELEMENTS_COPIED))
		undirected = true;
	return rung(code, destination, comm);
}

#define ISEND_ARGUMENTS                                                                                      \
	(const void *buffer, int count, MPI_Datatype type, int destination, int tag, MPI_Comm comm,          \
	 MPI_Request *request)

BOTH(int, Isend, ISEND_ARGUMENTS)
{
	return begun(HOST(Isend)(buffer, count, type, destination, tag, comm, request), count, destination,
		     comm);
}

BOTH(int, Irsend, ISEND_ARGUMENTS)
{
	return begun(HOST(Irsend)(buffer, count, type, destination, tag, comm, request), count, destination,
		     comm);
}

BOTH(int, Ibsend, ISEND_ARGUMENTS)
{
	return rung(HOST(Ibsend)(buffer, count, type, destination, tag, comm, request), destination, comm);
}

BOTH(int, Issend, ISEND_ARGUMENTS)
{
	undirected = true;
	return rung(HOST(Issend)(buffer, count, type, destination, tag, comm, request), destination, comm);
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
	return started(HOST(Start)(request));
}

BOTH(int, Startall, (int count, MPI_Request requests[]))
{
	return started(HOST(Startall)(count, requests));
}
