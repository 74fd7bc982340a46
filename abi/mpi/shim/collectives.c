/*
 * Collectives among ranks that all share one host and outnumber its processors: the shim calls the host MPI's
 * nonblocking form and polls it. The blocking and the nonblocking form of a call do not match each other, so
 * the decision to serve a call depends only on values that are the same at all members of the communicator.
 *
 * Reductions have to return the same bits as the host's own call. Integer results do not depend on the order
 * of additions. Floating-point results do: orders.c finds the order of small calls of MPI_Allreduce out by
 * trials and adds in that order; other floating-point reductions stay the host's.
 *
 * MPICH 4.3 and 5 count the calls on a communicator and add in another order after the fourth
 * (MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD): MPI_Allreduce by its own count, MPI_Reduce by the common count of
 * MPI_Reduce, MPI_Bcast and MPI_Barrier. These MPIs do not see the calls that are served. So before the host
 * makes a reduction, it gets as many calls as it has missed, but no more than change its order.
 */
#include "waiting.h"

/*
 * Whether a call waits for all members in any case. Other calls may end at one member before another has
 * begun, and some programs depend on that although the standard forbids it.
 */
enum synchronizing { MAY_END_EARLY = 1, WAITS_FOR_ALL = 4 };

/*
 * Finds the record of a communicator. Its members agree whether they outnumber their processors: in the first
 * call that waits for all members, or in the fourth call that may end early. If some ranks of the host have
 * not joined by then (these must be ranks outside of the communicator), the members ask again after twice as
 * many calls.
 */
static __attribute__((noinline)) struct comm_record *record_agreed(MPI_Comm comm,
								   enum synchronizing synchronizing)
{
	struct comm_record *record;
	unsigned before;

	host_ranks_joined();
	record = comm_record_of(comm);
	if (!record || record->outnumber != ANSWER_UNKNOWN)
		return record;
	if (!record->all_here || record->size < 2) {
		record->outnumber = ANSWER_NO;
		return record;
	}
	before = record->passed;
	record->passed += synchronizing;
	/* at 4, 8, 16, and so on */
	if (record->passed >= WAITS_FOR_ALL && (before ^ record->passed) > before)
		record->outnumber = ranks_outnumber_in(comm);
	return record;
}

/* Finds the record of a communicator if its collectives are served; NULL otherwise. */
static struct comm_record *servable(MPI_Comm comm, enum synchronizing synchronizing)
{
	static _Thread_local struct {
		MPI_Comm comm;
		unsigned freed;
		struct comm_record *record; /* NULL: its calls are the host's */
		bool known;
	} last;
	struct comm_record *record;
	unsigned freed;

	if (LIKELY(!collectives_may_be_served))
		return NULL;
	freed = atomic_load_explicit(&comm_records_freed, memory_order_relaxed);
	if (LIKELY(last.known && last.comm == comm && last.freed == freed))
		return last.record;
	record = record_agreed(comm, synchronizing);
	last.known = record && record->outnumber != ANSWER_UNKNOWN;
	last.record = last.known && record->outnumber == ANSWER_YES ? record : NULL;
	last.comm = comm;
	last.freed = freed;
	return last.record;
}

/* Returns the size of a buffer in bytes; if it is unknown, a size above the limit. */
static MPI_Aint bytes_of(int count, MPI_Datatype type)
{
	int size = 0;

	if (count < 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &size) || size == MPI_UNDEFINED)
		return MAX_COLLECTIVE_BYTES + 1;
	return (MPI_Aint)count * size;
}

/*
 * Whether this call is a sample: with --stats, some calls run as the host's own for comparison, the same ones
 * at all members: the 16th, the 32nd, and so on at powers of two. Their share falls, so they take a small
 * part of the run time however slow they are.
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

/* A call that is not served although its ranks are crowded. */
#define LEFT(name, why, call)                                                                                \
	(UNLIKELY(waits_counted) ? TIMED(name, unisono_mpi_crowd_left, GIVING_WAY(call), why)                \
				 : GIVING_WAY(call))

/* The number of counted calls after which the host adds in another order. */
enum { HOST_CALLS_TO_CHANGE = 5 };

/* Notes a served call that the host would have counted. */
static void host_missed(struct comm_record *record, unisono_mpi_wait_call call)
{
	struct host_count *count = &record->host[call == UNISONO_MPI_WAIT_CALL_ALLREDUCE];

	switch (call) {
	case UNISONO_MPI_WAIT_CALL_BARRIER: /* counts as a reduction and a broadcast */
		count->missed += 2;
		return;
	case UNISONO_MPI_WAIT_CALL_ALLREDUCE:
	case UNISONO_MPI_WAIT_CALL_BCAST:
	case UNISONO_MPI_WAIT_CALL_REDUCE:
		count->missed += count->missed < HOST_CALLS_TO_CHANGE;
		return;
	default:
		return;
	}
}

/* Before the host's own reduction `call`: gives the host as many calls as it has missed; collective. */
static int make_up(struct comm_record *record, unisono_mpi_wait_call call, MPI_Comm comm)
{
	struct host_count *count = &record->host[call == UNISONO_MPI_WAIT_CALL_ALLREDUCE];
	int nothing = 0, all, code = MPI_SUCCESS;

	/* Open MPI counts no calls */
	if (HOST_OPEN_MPI ||
	    (call != UNISONO_MPI_WAIT_CALL_ALLREDUCE && call != UNISONO_MPI_WAIT_CALL_REDUCE))
		return code;
	for (; !code && count->missed && count->made_up < HOST_CALLS_TO_CHANGE; count->made_up++) {
		count->missed--;
		code = GIVING_WAY(call == UNISONO_MPI_WAIT_CALL_ALLREDUCE
					  ? PMPI_Allreduce(&nothing, &all, 1, MPI_INT, MPI_SUM, comm)
					  : PMPI_Bcast(&nothing, 1, MPI_INT, 0, comm));
	}
	count->missed = 0;
	return code;
}

/* Serves the first barriers of a communicator, before the engine takes over. */
int barrier_of_host(MPI_Comm comm)
{
	struct polled_request collective = { .completion = { 0 } };
	struct comm_record *record = servable(comm, WAITS_FOR_ALL);
	int code;

	if (!(UNLIKELY(windows_served) && job_serves(comm)) && !record)
		return HOSTS(BARRIER, PMPI_Barrier(comm));
	code = finish_collective(UNISONO_MPI_WAIT_CALL_BARRIER, PMPI_Ibarrier(comm, &collective.request),
				 &collective);
	if (!code && record)
		host_missed(record, UNISONO_MPI_WAIT_CALL_BARRIER);
	return code;
}

/* Notes that a collective has begun whose request the program waits for in the host's own calls: that wait
 * may depend on all members. */
INLINE int begun(int code)
{
	needs_other_ranks = true;
	if (UNLIKELY(atomic_load_explicit(sleeping_ranks, memory_order_relaxed)))
		ring_undirected();
	return code;
}

BOTH(int, Ibarrier, (MPI_Comm comm, MPI_Request *request))
{
	return begun(PMPI_Ibarrier(comm, request));
}

/*
 * Defines a collective, and its nonblocking form: its name, its name in capitals, its parameters before the
 * communicator, and their names. `served` is a condition that has the same value at all members.
 */
#define UNPACK(...) __VA_ARGS__
#define COLLECTIVE_IF(served, name, form, NAME, parameters, ...)                                             \
	BOTH(int, name, (UNPACK parameters, MPI_Comm comm))                                                  \
	{                                                                                                    \
		struct polled_request collective = { .completion = { 0 } };                                  \
		struct comm_record *record = servable(comm, MAY_END_EARLY);                                  \
		int code;                                                                                    \
                                                                                                             \
		if (LIKELY(!record))                                                                         \
			return HOSTS(NAME, PMPI_##name(__VA_ARGS__, comm));                                  \
		if (!(served)) {                                                                             \
			code = make_up(record, UNISONO_MPI_WAIT_CALL_##NAME, comm);                          \
			return code ? code                                                                   \
				    : LEFT(NAME, UNISONO_MPI_LEFT_REASON_OPERATION,                          \
					   PMPI_##name(__VA_ARGS__, comm));                                  \
		}                                                                                            \
		UNLESS_SAMPLE(record, NAME, PMPI_##name(__VA_ARGS__, comm));                                 \
		code = finish_collective(UNISONO_MPI_WAIT_CALL_##NAME,                                       \
					 PMPI_##form(__VA_ARGS__, comm, &collective.request), &collective);  \
		if (!code)                                                                                   \
			host_missed(record, UNISONO_MPI_WAIT_CALL_##NAME);                                   \
		return code;                                                                                 \
	}                                                                                                    \
                                                                                                             \
	BOTH(int, form, (UNPACK parameters, MPI_Comm comm, MPI_Request * request))                           \
	{                                                                                                    \
		return begun(PMPI_##form(__VA_ARGS__, comm, request));                                       \
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

/* Whether a reduction returns the same bits in any order; the same answer at all members. */
static bool any_order_will_do(MPI_Datatype type, MPI_Op op)
{
	return (is_arithmetic(op) || is_logical(op)) && element_of(type) == INTEGER;
}

/* Parameters of the collectives, in the types of COUNT and PLACE. */
#define OUT const void *out, COUNT out_count, MPI_Datatype out_type
#define OUT_BY_RANK const void *out, const COUNT out_counts[], const PLACE out_places[], MPI_Datatype out_type
#define IN void *in, COUNT in_count, MPI_Datatype in_type
#define IN_BY_RANK void *in, const COUNT in_counts[], const PLACE in_places[], MPI_Datatype in_type
#define ALL_BY_RANK(place)                                                                                   \
	const void *out, const COUNT out_counts[], const place out_places[], const MPI_Datatype out_types[], \
		void *in, const COUNT in_counts[], const place in_places[], const MPI_Datatype in_types[]
#define COUNTED(count_type) const void *in, void *out, count_type count, MPI_Datatype type, MPI_Op op

/* The kinds of entries in the list: a collective that only moves data, and a reduction. */
#define COLLECTIVE(...) LISTED(true, __VA_ARGS__)
#define REDUCTION(...) LISTED(any_order_will_do(type, op), __VA_ARGS__)

#define COUNT int
#define PLACE int
#define LISTED COLLECTIVE_IF
#include "collective_calls.h"

#if MPI_VERSION >= 4
/* The same with large counts, as mpi4py calls them. */
#undef COUNT
#undef PLACE
#undef LISTED
#define COUNT MPI_Count
#define PLACE MPI_Aint
#define LISTED(served, name, form, ...) COLLECTIVE_IF(served, name##_c, form##_c, __VA_ARGS__)
#include "collective_calls.h"
#endif

BOTH(int, Iallreduce, (COUNTED(int), MPI_Comm comm, MPI_Request *request))
{
	return begun(PMPI_Iallreduce(in, out, count, type, op, comm, request));
}

/* Reduces floating-point numbers: in the host's order if that is known, otherwise by the host's own call. */
static int reduce_floats(struct comm_record *record, COUNTED(int), enum element element, MPI_Comm comm)
{
	unisono_mpi_left_reason why;
	const struct order *order;
	bool reduced;
	int code = make_up(record, UNISONO_MPI_WAIT_CALL_ALLREDUCE, comm);

	if (!code)
		code = order_of(record, type, count, element == DOUBLE, comm, &order, &why);
	if (code)
		return code;
	if (!order)
		return LEFT(ALLREDUCE, why, PMPI_Allreduce(in, out, count, type, op, comm));
	UNLESS_SAMPLE(record, ALLREDUCE, PMPI_Allreduce(in, out, count, type, op, comm));
	code = reduce_in_order(order, in, out, op, comm, &reduced);
	if (code || LIKELY(reduced))
		return code;
	return LEFT(ALLREDUCE, UNISONO_MPI_LEFT_REASON_NUMBERS,
		    PMPI_Allreduce(in, out, count, type, op, comm));
}

BOTH(int, Allreduce, (COUNTED(int), MPI_Comm comm))
{
	struct polled_request collective = { .completion = { 0 } };
	struct comm_record *record = count < 1 ? NULL : servable(comm, WAITS_FOR_ALL);
	enum element element;
	int code;

	if (LIKELY(!record))
		return HOSTS(ALLREDUCE, PMPI_Allreduce(in, out, count, type, op, comm));
	element = element_of(type);
	if (!any_order_will_do(type, op)) {
		if (is_arithmetic(op) && (element == FLOAT || element == DOUBLE) &&
		    bytes_of(count, type) <= MAX_COLLECTIVE_BYTES)
			return reduce_floats(record, in, out, count, type, op, element, comm);
		code = make_up(record, UNISONO_MPI_WAIT_CALL_ALLREDUCE, comm);
		return code ? code
			    : LEFT(ALLREDUCE, UNISONO_MPI_LEFT_REASON_OPERATION,
				   PMPI_Allreduce(in, out, count, type, op, comm));
	}
	UNLESS_SAMPLE(record, ALLREDUCE, PMPI_Allreduce(in, out, count, type, op, comm));
	code = finish_collective(UNISONO_MPI_WAIT_CALL_ALLREDUCE,
				 PMPI_Iallreduce(in, out, count, type, op, comm, &collective.request),
				 &collective);
	if (!code)
		host_missed(record, UNISONO_MPI_WAIT_CALL_ALLREDUCE);
	return code;
}

#if MPI_VERSION >= 4
BOTH(int, Iallreduce_c, (COUNTED(MPI_Count), MPI_Comm comm, MPI_Request *request))
{
	return begun(PMPI_Iallreduce_c(in, out, count, type, op, comm, request));
}

/* All members give the same count, so that all of them take the same way. */
BOTH(int, Allreduce_c, (COUNTED(MPI_Count), MPI_Comm comm))
{
	if (LIKELY(count == (int)count))
		return MPI_Allreduce(in, out, (int)count, type, op, comm);
	return PMPI_Allreduce_c(in, out, count, type, op, comm);
}
#endif
