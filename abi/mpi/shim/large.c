/*
 * Messages with large counts (MPI-4): MPI_Send_c and its kind, as mpi4py calls them for every buffer. A count
 * that an int holds turns the call into MPI_Send and its kind, whose waits are served. A longer message is
 * the host's own call. The two forms match each other, so that the two sides of a message need not agree.
 */
#include "waiting.h"

#if MPI_VERSION >= 4

#define SEND_ARGUMENTS(count) const void *, count, MPI_Datatype, int, int, MPI_Comm

/* Calls of the shim itself, in sends.c and waits.c. */
int MPI_Send(SEND_ARGUMENTS(int));
int MPI_Rsend(SEND_ARGUMENTS(int));
int MPI_Ssend(SEND_ARGUMENTS(int));
int MPI_Bsend(SEND_ARGUMENTS(int));
int MPI_Isend(SEND_ARGUMENTS(int), MPI_Request *);
int MPI_Irsend(SEND_ARGUMENTS(int), MPI_Request *);
int MPI_Issend(SEND_ARGUMENTS(int), MPI_Request *);
int MPI_Ibsend(SEND_ARGUMENTS(int), MPI_Request *);
int MPI_Recv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
int MPI_Sendrecv(const void *, int, MPI_Datatype, int, int, void *, int, MPI_Datatype, int, int, MPI_Comm,
		 MPI_Status *);

static inline bool fits_int(MPI_Count count)
{
	return LIKELY(count == (int)count);
}

/* Ends a call of the host that may wait for another rank, or that another rank waits for. */
static int ring_after(int code, MPI_Comm comm, int rank)
{
	needs_other_ranks = true;
	ring(comm, rank);
	return code;
}

#define SEND_LARGE(name, ...)                                                                                \
	if (fits_int(count))                                                                                 \
		return MPI_##name(buffer, (int)count, type, destination, tag, comm, ##__VA_ARGS__);          \
	return ring_after(OF_HOST(name##_c)(buffer, count, type, destination, tag, comm, ##__VA_ARGS__),     \
			  comm, destination)

#define SENDS_LARGE(name, form)                                                                              \
	BOTH(int, name##_c,                                                                                  \
	     (const void *buffer, MPI_Count count, MPI_Datatype type, int destination, int tag,              \
	      MPI_Comm comm))                                                                                \
	{                                                                                                    \
		SEND_LARGE(name);                                                                            \
	}                                                                                                    \
                                                                                                             \
	BOTH(int, form##_c,                                                                                  \
	     (const void *buffer, MPI_Count count, MPI_Datatype type, int destination, int tag,              \
	      MPI_Comm comm, MPI_Request *request))                                                          \
	{                                                                                                    \
		SEND_LARGE(form, request);                                                                   \
	}

SENDS_LARGE(Send, Isend)
SENDS_LARGE(Rsend, Irsend)
SENDS_LARGE(Ssend, Issend)
SENDS_LARGE(Bsend, Ibsend)

BOTH(int, Recv_c,
     (void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
      MPI_Status *status))
{
	if (fits_int(count))
		return MPI_Recv(buffer, (int)count, type, source, tag, comm, status);
	return ring_after(OF_HOST(Recv_c)(buffer, count, type, source, tag, comm, status), comm, source);
}

BOTH(int, Sendrecv_c,
     (const void *out, MPI_Count out_count, MPI_Datatype out_type, int destination, int out_tag, void *in,
      MPI_Count in_count, MPI_Datatype in_type, int source, int in_tag, MPI_Comm comm, MPI_Status *status))
{
	int code;

	if (fits_int(out_count) && fits_int(in_count))
		return MPI_Sendrecv(out, (int)out_count, out_type, destination, out_tag, in, (int)in_count,
				    in_type, source, in_tag, comm, status);
	code = OF_HOST(Sendrecv_c)(out, out_count, out_type, destination, out_tag, in, in_count, in_type,
				   source, in_tag, comm, status);
	ring(comm, destination);
	return ring_after(code, comm, source);
}

#endif
