/*
 * Small collectives among ranks that all share one host and outnumber its processors: the shim calls the host
 * MPI's nonblocking form and polls it. The blocking and the nonblocking form of a call do not match each
 * other, so the decision to serve a call depends only on values that are the same at all members of the
 * communicator.
 *
 * MPI_Allreduce has to return the same bits as the host's own call. Integer results do not depend on the
 * order of additions. Floating-point results agree only if both forms add in the same order, which orders.c
 * finds out by trials.
 */
#include "waiting.h"

/* The record of a communicator whose collectives can be served; NULL otherwise. */
static struct comm_record *servable(MPI_Comm comm)
{
	struct comm_record *record;

	if (LIKELY(!ranks_outnumber) || !waits_served)
		return NULL;
	record = comm_record_of(comm);
	return record && record->all_here && record->size > 1 ? record : NULL;
}

/* The size of a buffer in bytes; if it is unknown, a size above the limit. */
static MPI_Aint bytes_of(int count, MPI_Datatype type)
{
	int size = 0;

	if (count < 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &size) || size == MPI_UNDEFINED)
		return MAX_COLLECTIVE_BYTES + 1;
	return (MPI_Aint)count * size;
}

/*
 * With --stats, some calls run as the host's own for comparison, the same ones at all members: the 16th, the
 * 32nd, and so on at powers of two. Their share falls, so they cost little of the run time however slow they
 * are.
 */
static bool is_sample(struct comm_record *record)
{
	unsigned calls = ++record->calls;

	return UNLIKELY(waits_counted) && calls >= 16 && (calls & (calls - 1)) == 0;
}

#define UNLESS_SAMPLE(record, name, call)                                                                    \
	do {                                                                                                 \
		if (is_sample(record))                                                                       \
			return TIMED(name, unisono_mpi_crowd_sampled, call);                                 \
	} while (0)

/* A call that is not served. */
#define HOSTS(name, call) (UNLIKELY(waits_counted) ? TIMED(name, unisono_mpi_crowd_timed, call) : (call))

BOTH(int, Bcast, (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm))
{
	struct polled_request collective = { .completion = { 0 } };
	struct comm_record *record = servable(comm);

	if (LIKELY(!record) || bytes_of(count, type) > MAX_COLLECTIVE_BYTES)
		return HOSTS(BCAST, PMPI_Bcast(buffer, count, type, root, comm));
	UNLESS_SAMPLE(record, BCAST, PMPI_Bcast(buffer, count, type, root, comm));
	return finish_collective(UNISONO_MPI_WAIT_CALL_BCAST,
				 PMPI_Ibcast(buffer, count, type, root, comm, &collective.request),
				 &collective);
}

/* Serves the first barriers of a communicator, before the engine takes over. */
int barrier_of_host(MPI_Comm comm)
{
	struct polled_request collective = { .completion = { 0 } };

	if (!servable(comm))
		return HOSTS(BARRIER, PMPI_Barrier(comm));
	return finish_collective(UNISONO_MPI_WAIT_CALL_BARRIER, PMPI_Ibarrier(comm, &collective.request),
				 &collective);
}

/* The wait for the request remains the host's. That wait may depend on all members. */
BOTH(int, Ibarrier, (MPI_Comm comm, MPI_Request *request))
{
	int code = PMPI_Ibarrier(comm, request);

	needs_other_ranks = true;
	if (UNLIKELY(atomic_load_explicit(sleeping_ranks, memory_order_relaxed)))
		unisono_mpi_crowd_ring_undirected();
	return code;
}

enum element { OTHER, INTEGER, FLOAT, DOUBLE };

static enum element element_of(MPI_Datatype type)
{
	const unisono_layout *layout = layout_of(type);

	switch (layout ? unisono_mpi_layout_single(layout) : 0) {
	case UNISONO_ELEMENT_I8:
	case UNISONO_ELEMENT_I16:
	case UNISONO_ELEMENT_I32:
	case UNISONO_ELEMENT_I64:
	case UNISONO_ELEMENT_U8:
	case UNISONO_ELEMENT_U16:
	case UNISONO_ELEMENT_U32:
	case UNISONO_ELEMENT_U64:
		return INTEGER;
	case UNISONO_ELEMENT_F32:
		return FLOAT;
	case UNISONO_ELEMENT_F64:
		return DOUBLE;
	default:
		return OTHER;
	}
}

static bool is_arithmetic(MPI_Op op)
{
	return op == MPI_SUM || op == MPI_PROD || op == MPI_MIN || op == MPI_MAX;
}

static bool is_logical(MPI_Op op)
{
	return op == MPI_LAND || op == MPI_LOR || op == MPI_LXOR || op == MPI_BAND || op == MPI_BOR ||
	       op == MPI_BXOR;
}

BOTH(int, Allreduce, (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm))
{
	struct polled_request collective = { .completion = { 0 } };
	struct comm_record *record = servable(comm);
	enum element element;
	bool same_order;
	int code;

	if (LIKELY(!record) || count < 1 || bytes_of(count, type) > MAX_COLLECTIVE_BYTES)
		return HOSTS(ALLREDUCE, PMPI_Allreduce(in, out, count, type, op, comm));
	element = element_of(type);
	if (element == INTEGER ? !is_arithmetic(op) && !is_logical(op)
			       : !is_arithmetic(op) || element == OTHER)
		return HOSTS(ALLREDUCE, PMPI_Allreduce(in, out, count, type, op, comm));
	if (element != INTEGER) {
		code = order_is_same(record, type, count, element == DOUBLE, comm, &same_order);
		if (code)
			return code;
		if (!same_order)
			return HOSTS(ALLREDUCE, PMPI_Allreduce(in, out, count, type, op, comm));
	}
	UNLESS_SAMPLE(record, ALLREDUCE, PMPI_Allreduce(in, out, count, type, op, comm));
	return finish_collective(UNISONO_MPI_WAIT_CALL_ALLREDUCE,
				 PMPI_Iallreduce(in, out, count, type, op, comm, &collective.request),
				 &collective);
}
